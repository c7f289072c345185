"""Runs of 64 characters of FASTQ in vector instructions.

The compiler would find the first character of some kind by the least of 64 numbers, on which
everything behind waits. Beside each function in vectors stands the plain one: it is the meaning,
and what runs where the JIT is off.

Runs of 64 bases to and from BAM's form of two in a byte, in vector instructions.

The compiler would widen each byte to 32 bits and gather single ones. Beside each function in
vectors stands the plain one: it is the meaning, and what runs where the JIT is off.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba.extending import overload

from mapper.jit.simd import (
    BYTE,
    BYTES,
    RUN,
    any_bits,
    before_first,
    constant,
    load,
    moving,
    reading,
    store,
)

_HALF = ir.VectorType(BYTE, RUN // 2)
_PAIRS = ir.VectorType(ir.IntType(16), RUN // 2)


def pack_run(codes, at, packed, to, reverse):
    """Write RUN bases as the nibbles 1, 2, 4 and 8, two in a byte, the first in the high half.

    Parameters
    ----------
    codes, at
        uint8; the bases are ``codes[at:at + RUN]``.
    packed, to
        uint8; where the RUN / 2 bytes go.
    reverse
        Whether the bases are to be turned and complemented.

    Returns
    -------
    0 if all bases are A, C, G or T; else what is written has no meaning.
    """
    run = codes[at : at + RUN]
    others = np.int64(np.bitwise_or.reduce(run & np.uint8(0xFC)))
    if reverse:
        run = (run ^ np.uint8(3))[::-1]
    nibbles = np.uint8(1) << (run & np.uint8(3))
    packed[to : to + RUN // 2] = (nibbles[0::2] << np.uint8(4)) | nibbles[1::2]
    return others


def unpack_run(packed, at, codes, to, reverse):
    """Write the codes of RUN bases that :func:`pack_run` wrote.

    Parameters
    ----------
    packed, at
        uint8; the bases are in ``packed[at:at + RUN / 2]``.
    codes, to
        uint8; where the RUN codes go.
    reverse
        Whether the bases are to be turned and complemented.

    Returns
    -------
    0 if all nibbles are those of A, C, G or T; else what is written has no meaning.
    """
    pairs = packed[at : at + RUN // 2]
    nibbles = np.stack([pairs >> np.uint8(4), pairs & np.uint8(15)], axis=1).ravel()
    run = (nibbles >> np.uint8(1)) - (nibbles >> np.uint8(3))
    codes[to : to + RUN] = (run ^ np.uint8(3))[::-1] if reverse else run
    return np.int64(not np.isin(nibbles, (1, 2, 4, 8)).all())


def _turned(builder, run):
    """Return the codes of a run's reverse complement."""
    order = ir.Constant(ir.VectorType(ir.IntType(32), RUN), list(range(RUN - 1, -1, -1)))
    return builder.xor(builder.shuffle_vector(run, run, order), constant(BYTES, 3))


def _pack(builder, source, target, reverse):
    run = load(builder, source, BYTES)
    if reverse:
        run = _turned(builder, run)
    # 1 or 2 for the low bit, four times that for the high one.
    nibbles = builder.add(builder.and_(run, constant(BYTES, 1)), constant(BYTES, 1))
    nibbles = builder.select(
        builder.icmp_unsigned(">", run, constant(BYTES, 1)),
        builder.shl(nibbles, constant(BYTES, 2)), nibbles,
    )  # fmt: skip
    # Two bytes are a number of 16 bits; the first of them is its low half.
    pairs = builder.bitcast(nibbles, _PAIRS)
    first, second = (
        builder.shl(pairs, constant(_PAIRS, 4)),
        builder.lshr(pairs, constant(_PAIRS, 8)),
    )
    store(builder, target, builder.trunc(builder.or_(first, second), _HALF))
    return any_bits(builder, builder.and_(run, constant(BYTES, 0xFC)))


def _unpack(builder, source, target, reverse):
    pairs = builder.zext(load(builder, source, _HALF), _PAIRS)
    first, second = (
        builder.lshr(pairs, constant(_PAIRS, 4)),
        builder.and_(pairs, constant(_PAIRS, 15)),
    )
    pairs = builder.or_(first, builder.shl(second, constant(_PAIRS, 8)))
    nibbles = builder.bitcast(pairs, BYTES)
    run = builder.sub(
        builder.lshr(nibbles, constant(BYTES, 1)), builder.lshr(nibbles, constant(BYTES, 3))
    )
    store(builder, target, _turned(builder, run) if reverse else run)
    # What has one bit set shares none with the number before it; before 0 come all bits.
    less = builder.sub(nibbles, constant(BYTES, 1))
    several = builder.and_(nibbles, less)
    return any_bits(builder, builder.or_(several, builder.and_(less, constant(BYTES, 0xF0))))


_pack_forward, _pack_reverse = (moving(partial(_pack, reverse=r)) for r in (False, True))
_unpack_forward, _unpack_reverse = (moving(partial(_unpack, reverse=r)) for r in (False, True))


@overload(pack_run, inline="always")
def _pack_compiled(codes, at, packed, to, reverse):
    def run(codes, at, packed, to, reverse):
        if reverse:
            return _pack_reverse(codes, at, packed, to)
        return _pack_forward(codes, at, packed, to)

    return run


@overload(unpack_run, inline="always")
def _unpack_compiled(packed, at, codes, to, reverse):
    def run(packed, at, codes, to, reverse):
        if reverse:
            return _unpack_reverse(packed, at, codes, to)
        return _unpack_forward(packed, at, codes, to)

    return run


_LF = 10
_LETTERS = b"ACGT"
_UPPER = 0xDF  # makes a small letter a capital
_SPACE, _FIRST_VISIBLE, _N_VISIBLE = 32, 33, 94
"""Characters of names and qualities: 33 to 126. Those below wrap round to large values. The space
is printable, too."""


def before_line_end(text, at):
    """Return how many of ``text[at:at + RUN]`` come before the first LF."""
    found = np.flatnonzero(text[at : at + RUN] == _LF)
    return np.int64(found[0] if len(found) else RUN)


def before_difference(text, at, other, there):
    """Return how many of ``text[at:at + RUN]`` come before the first that another text differs in.

    The other text is ``other[there:there + RUN]``.
    """
    found = np.flatnonzero(text[at : at + RUN] != other[there : there + RUN])
    return np.int64(found[0] if len(found) else RUN)


def before_unprintable(text, at):
    """Return how many of ``text[at:at + RUN]`` come before the first that is not printable."""
    found = np.flatnonzero(text[at : at + RUN] - np.uint8(_SPACE) > _N_VISIBLE)
    return np.int64(found[0] if len(found) else RUN)


def copy_visible(text, at, target, to):
    """Copy ``text[at:at + RUN]``; return how many come before the first that is not visible."""
    run = text[at : at + RUN]
    target[to : to + RUN] = run
    found = np.flatnonzero(run - np.uint8(_FIRST_VISIBLE) >= _N_VISIBLE)
    return np.int64(found[0] if len(found) else RUN)


def copy_quality(text, at, quals, to):
    """Write the Phred values of ``text[at:at + RUN]``; return 0 if all are visible."""
    run = text[at : at + RUN] - np.uint8(_FIRST_VISIBLE)
    quals[to : to + RUN] = run
    return np.int64((run >= _N_VISIBLE).any())


def copy_phred(phred, at, quals, to):
    """Copy the Phred values ``phred[at:at + RUN]``; return 0 if all can be written as text."""
    run = phred[at : at + RUN]
    quals[to : to + RUN] = run
    return np.int64((run >= _N_VISIBLE).any())


def copy_letters(text, at, codes, to):
    """Write the codes of ``text[at:at + RUN]``; return 0 if all are A, C, G or T, of any case.

    Else what is written has no meaning.
    """
    run = text[at : at + RUN] & np.uint8(_UPPER)
    twice = (run >> np.uint8(1)) & np.uint8(3)
    codes[to : to + RUN] = twice ^ (twice >> np.uint8(1))
    return np.int64(not np.isin(run, np.frombuffer(_LETTERS, np.uint8)).all())


def _invisible(builder, phred):
    return builder.icmp_unsigned(">=", phred, constant(BYTES, _N_VISIBLE))


def _before_line_end(builder, source):
    run = load(builder, source, BYTES)
    return before_first(builder, builder.icmp_unsigned("==", run, constant(BYTES, _LF)))


def _before_difference(builder, source, other):
    runs = load(builder, source, BYTES), load(builder, other, BYTES)
    return before_first(builder, builder.icmp_unsigned("!=", *runs))


def _before_unprintable(builder, source):
    distance = builder.sub(load(builder, source, BYTES), constant(BYTES, _SPACE))
    return before_first(builder, builder.icmp_unsigned(">", distance, constant(BYTES, _N_VISIBLE)))


def _copy_visible(builder, source, target):
    run = load(builder, source, BYTES)
    store(builder, target, run)
    phred = builder.sub(run, constant(BYTES, _FIRST_VISIBLE))
    return before_first(builder, _invisible(builder, phred))


def _copy_quality(builder, source, target):
    phred = builder.sub(load(builder, source, BYTES), constant(BYTES, _FIRST_VISIBLE))
    store(builder, target, phred)
    return any_bits(builder, builder.sext(_invisible(builder, phred), BYTES))


def _copy_phred(builder, source, target):
    phred = load(builder, source, BYTES)
    store(builder, target, phred)
    return any_bits(builder, builder.sext(_invisible(builder, phred), BYTES))


def _copy_letters(builder, source, target):
    run = builder.and_(load(builder, source, BYTES), constant(BYTES, _UPPER))
    # Two bits of the letters differ: 0 for A, 1 for C, 2 for T, 3 for G.
    twice = builder.and_(builder.lshr(run, constant(BYTES, 1)), constant(BYTES, 3))
    store(builder, target, builder.xor(twice, builder.lshr(twice, constant(BYTES, 1))))
    are_letters = constant(BYTES, 0)
    for letter in _LETTERS:
        is_letter = builder.icmp_unsigned("==", run, constant(BYTES, letter))
        are_letters = builder.or_(are_letters, builder.sext(is_letter, BYTES))
    return any_bits(builder, builder.not_(are_letters))


_before_line_end_vector = reading(_before_line_end)
_before_difference_vector = moving(_before_difference)
_before_unprintable_vector = reading(_before_unprintable)
_copy_visible_vector = moving(_copy_visible)
_copy_quality_vector = moving(_copy_quality)
_copy_phred_vector = moving(_copy_phred)
_copy_letters_vector = moving(_copy_letters)


@overload(before_line_end, inline="always")
def _before_line_end_compiled(text, at):
    return lambda text, at: _before_line_end_vector(text, at)


@overload(before_difference, inline="always")
def _before_difference_compiled(text, at, other, there):
    return lambda text, at, other, there: _before_difference_vector(text, at, other, there)


@overload(before_unprintable, inline="always")
def _before_unprintable_compiled(text, at):
    return lambda text, at: _before_unprintable_vector(text, at)


@overload(copy_visible, inline="always")
def _copy_visible_compiled(text, at, target, to):
    return lambda text, at, target, to: _copy_visible_vector(text, at, target, to)


@overload(copy_quality, inline="always")
def _copy_quality_compiled(text, at, quals, to):
    return lambda text, at, quals, to: _copy_quality_vector(text, at, quals, to)


@overload(copy_phred, inline="always")
def _copy_phred_compiled(phred, at, quals, to):
    return lambda phred, at, quals, to: _copy_phred_vector(phred, at, quals, to)


@overload(copy_letters, inline="always")
def _copy_letters_compiled(text, at, codes, to):
    return lambda text, at, codes, to: _copy_letters_vector(text, at, codes, to)
