"""Symbols of a pair, a byte each, for loops of the CPU that look at many of them.

Behind the last symbol of either side lies a byte that differs from all, so that a run of matches
ends there by itself: a comparison needs neither shifts nor the number of symbols that are left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matches import unaligned_word
from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import trailing_zeros

_BEHIND = 8
"""Bytes behind the symbols, so that eight can be loaded at a time."""

_QUERY_FENCE, _REF_FENCE = np.uint8(0x80), np.uint8(0x40)
"""No codes of 2 or 4 bits."""


class Letters(NamedTuple):
    """Codes of both sequences."""

    query: np.ndarray  # uint8, more than the query has
    ref: np.ndarray  # uint8
    fenced: int  # 0: all bytes may be codes, or nothing is in the arrays


@driver
def no_letters():
    """Letters of no pair."""
    return Letters(np.empty(0, np.uint8), np.empty(0, np.uint8), np.int64(0))


@driver
def _unpack(words, word, n, shift, letters):
    """Write n codes; n is not that of a pair with 2 bits a symbol without room for 31 more."""
    if shift == 1:
        for at in range(0, n, 32):
            codes = words[word]
            word += 1
            start = np.uint64(at)
            for i in range(32):
                lane = np.uint64(i)
                letters[start + lane] = (codes >> (lane + lane)) & np.uint64(3)
        return
    a_word = 64 >> shift
    mask = np.uint64((1 << (1 << shift)) - 1)
    for at in range(n):
        if at & (a_word - 1) == 0:
            codes = words[word]
            word += 1
        letters[at] = codes & mask
        codes >>= np.uint64(1 << shift)


@driver
def letters_of(pair, letters):
    """Return the letters of a pair that begins at whole words; arrays are taken while they last."""
    n, m = pair.query_len, pair.ref_len
    needed = max(n, m) + 32 + _BEHIND
    query, ref = letters.query, letters.ref
    if len(query) < needed:
        query, ref = np.empty(2 * needed, np.uint8), np.empty(2 * needed, np.uint8)
    _unpack(pair.query_words, pair.query_bit >> 6, n, pair.shift, query)
    _unpack(pair.ref_words, pair.ref_bit >> 6, m, pair.shift, ref)
    query[n] = _QUERY_FENCE
    ref[m] = _REF_FENCE
    return Letters(query, ref, np.int64(pair.shift < 3))


@core
def run_to_fence(letters, v, h):
    """Matches after v and h symbols."""
    differ = unaligned_word(letters.query, v) ^ unaligned_word(letters.ref, h)
    run = trailing_zeros(differ) >> 3
    if run < 8:
        return run
    while True:
        differ = unaligned_word(letters.query, v + run) ^ unaligned_word(letters.ref, h + run)
        step = trailing_zeros(differ) >> 3
        run += step
        if step < 8:
            return run
