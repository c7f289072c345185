"""Core: the bases beside the suffix of each row, so that rows are ruled out where they stand.

Whether the text goes on like a k-mer at the place of a row takes two accesses to memory, the
second one anywhere in the text. Repeats have thousands of rows near a k-mer that are none of its
matches. With 16 bases before each suffix, and 16 where the right part of a k-mer would be, kept
in the order of rows, the rows of an interval are compared eight to an access.

A context is a word of 32 bits: the low bits of 16 codes (:mod:`mapper.dna` planes) in its lower
half, the high bits in its upper half, the first base lowest. It decides nothing alone: an
ambiguous base has some code here, so that a context shows at most as many mismatches as the
text has.
"""

from __future__ import annotations

import numpy as np

from mapper.dna import plane_word
from mapper.index.fm import locate
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount, trailing_zeros

BASES = 16
"""Bases of a context."""

BEFORE, AFTER = range(2)
"""Rows of the array of contexts, uint32 (2, n_rows): the bases that end before the suffix of each
row, and those that begin ``left_len`` bases (of a k-mer's left part) after its start."""

AT_A_TIME = 8
"""Rows compared in a step: 32 bytes, what an access to a device's memory brings at least."""

_HALF = np.uint64(0xFFFF)


@core
def _join(low, high):
    return np.uint32((low & _HALF) | ((high & _HALF) << np.uint64(BASES)))


@core
def context_before(fm, text_pos):
    """Bases ``text_pos - 16`` to ``text_pos`` of the text; before its start, A."""
    start = text_pos - BASES
    shift = np.uint64(0)
    if start < 0:
        shift = np.uint64(-start)
        start = np.int64(0)
    return _join(
        plane_word(fm.ref_planes, 0, start, 0) << shift,
        plane_word(fm.ref_planes, 0, start, 1) << shift,
    )


@core
def context_after(fm, text_pos, left_len):
    """Bases ``text_pos + left_len`` and the 15 after them; whatever, where the text has ended."""
    start = text_pos + left_len
    if start >= fm.n_rows:
        return np.uint32(0)
    return _join(plane_word(fm.ref_planes, 0, start, 0), plane_word(fm.ref_planes, 0, start, 1))


@core
def fill_contexts(fm, left_len, row, contexts):
    """Write both contexts of a row."""
    text_pos = locate(fm, row)
    contexts[BEFORE, row] = context_before(fm, text_pos)
    contexts[AFTER, row] = context_after(fm, text_pos, left_len)


@core
def bases_before(query, end):
    """Return the context that a k-mer asks for before its base `end`, and the bits that count."""
    if end >= BASES:
        shift = np.uint64(end - BASES)
        return _join(query.low >> shift, query.high >> shift), np.uint32(_HALF)
    shift = np.uint64(BASES - end)
    return _join(query.low << shift, query.high << shift), np.uint32((_HALF << shift) & _HALF)


@core
def bases_after(query, left_len, right_len):
    """Return the context that a k-mer asks for from its base `left_len` on, and bits that count."""
    shift = np.uint64(left_len)
    ones = np.uint32((np.uint64(1) << np.uint64(right_len)) - np.uint64(1))
    return _join(query.low >> shift, query.high >> shift), ones


@core
def context_mismatches(context, wanted, ones):
    """Count the bases among `ones` in which two contexts differ."""
    differ = context ^ wanted
    return popcount(np.uint64((differ | (differ >> np.uint32(BASES))) & ones))


@core
def near_rows(contexts, side, sa_lo, sa_hi, wanted, ones, most):
    """Compare the contexts of AT_A_TIME rows from `sa_lo` on, or up to `sa_hi` (above `sa_lo`).

    Returns
    -------
    uint32: bit i is set where row ``sa_lo + i`` has at most `most` mismatches. All are set where
    `contexts` is None.
    """
    n = min(sa_hi - sa_lo, AT_A_TIME)
    near = np.uint32((1 << n) - 1)
    if contexts is not None:
        for i in range(AT_A_TIME):
            # Not a branch for each row: so the accesses do not wait for each other.
            row = min(sa_lo + i, sa_hi - 1)
            if context_mismatches(contexts[side, row], wanted, ones) > most:
                near &= ~np.uint32(1 << i)
    return near


@core
def first_near(near):
    """Index of the lowest bit set; there is one."""
    return trailing_zeros(np.uint64(near))
