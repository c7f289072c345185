"""Text and bases in vector instructions: 64 characters of FASTQ or 64 bases of BAM at a time.

The compiler does not vectorise these loops well: it would find the first character of some kind
as the least of 64 numbers, on which everything behind waits, and widen each base to 32 bits to put
two in a byte. Each function has a plain version first, which says what it does and is called where
the JIT is off; the compiled one replaces it by overload.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from mapper.jit.simd import (
    BYTE,
    BYTES,
    VECTOR,
    WORD,
    address,
    any_bits,
    before_first,
    check_bytes,
    constant,
    everywhere,
    load,
    moving,
    reading,
    store,
)

# --- bases, two in a byte ---

_HALF = ir.VectorType(BYTE, VECTOR // 2)
_PAIRS = ir.VectorType(ir.IntType(16), VECTOR // 2)


def pack_vector(codes, at, packed, to, reverse):
    """Write 64 bases as the nibbles 1, 2, 4 and 8, two in a byte, the first in the high half.

    Parameters
    ----------
    codes, at
        uint8; the bases are ``codes[at:at + VECTOR]``.
    packed, to
        uint8; where the VECTOR / 2 bytes go.
    reverse
        Write the reverse complement.

    Returns
    -------
    0 if all bases are A, C, G or T; otherwise what is written has no meaning.
    """
    vector = codes[at : at + VECTOR]
    others = np.int64(np.bitwise_or.reduce(vector & np.uint8(0xFC)))
    if reverse:
        vector = (vector ^ np.uint8(3))[::-1]
    nibbles = np.uint8(1) << (vector & np.uint8(3))
    packed[to : to + VECTOR // 2] = (nibbles[0::2] << np.uint8(4)) | nibbles[1::2]
    return others


def unpack_vector(packed, at, codes, to, reverse):
    """Write the codes of 64 bases that :func:`pack_vector` wrote.

    Parameters
    ----------
    packed, at
        uint8; the bases are in ``packed[at:at + VECTOR / 2]``.
    codes, to
        uint8; where the VECTOR codes go.
    reverse
        Write the reverse complement.

    Returns
    -------
    0 if all nibbles are those of A, C, G or T; otherwise what is written has no meaning.
    """
    pairs = packed[at : at + VECTOR // 2]
    nibbles = np.stack([pairs >> np.uint8(4), pairs & np.uint8(15)], axis=1).ravel()
    vector = (nibbles >> np.uint8(1)) - (nibbles >> np.uint8(3))
    codes[to : to + VECTOR] = (vector ^ np.uint8(3))[::-1] if reverse else vector
    return np.int64(not np.isin(nibbles, (1, 2, 4, 8)).all())


def _turned(builder, vector):
    """Return the codes of the reverse complement."""
    order = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR), list(range(VECTOR - 1, -1, -1)))
    return builder.xor(builder.shuffle_vector(vector, vector, order), constant(BYTES, 3))


def _pack(builder, source, target, reverse):
    vector = load(builder, source, BYTES)
    if reverse:
        vector = _turned(builder, vector)
    # 1 or 2 for the low bit, four times that for the high one.
    nibbles = builder.add(builder.and_(vector, constant(BYTES, 1)), constant(BYTES, 1))
    nibbles = builder.select(
        builder.icmp_unsigned(">", vector, constant(BYTES, 1)),
        builder.shl(nibbles, constant(BYTES, 2)), nibbles,
    )  # fmt: skip
    # Two bytes are a number of 16 bits; the first of them is its low half.
    pairs = builder.bitcast(nibbles, _PAIRS)
    first, second = (
        builder.shl(pairs, constant(_PAIRS, 4)),
        builder.lshr(pairs, constant(_PAIRS, 8)),
    )
    store(builder, target, builder.trunc(builder.or_(first, second), _HALF))
    return any_bits(builder, builder.and_(vector, constant(BYTES, 0xFC)))


def _unpack(builder, source, target, reverse):
    pairs = builder.zext(load(builder, source, _HALF), _PAIRS)
    first, second = (
        builder.lshr(pairs, constant(_PAIRS, 4)),
        builder.and_(pairs, constant(_PAIRS, 15)),
    )
    pairs = builder.or_(first, builder.shl(second, constant(_PAIRS, 8)))
    nibbles = builder.bitcast(pairs, BYTES)
    vector = builder.sub(
        builder.lshr(nibbles, constant(BYTES, 1)), builder.lshr(nibbles, constant(BYTES, 3))
    )
    store(builder, target, _turned(builder, vector) if reverse else vector)
    # A number with one bit set shares no bit with its predecessor; that of 0 has all bits.
    less = builder.sub(nibbles, constant(BYTES, 1))
    several = builder.and_(nibbles, less)
    return any_bits(builder, builder.or_(several, builder.and_(less, constant(BYTES, 0xF0))))


_pack_forward, _pack_reverse = (
    moving(partial(_pack, reverse=r), written=VECTOR // 2) for r in (False, True)
)
_unpack_forward, _unpack_reverse = (
    moving(partial(_unpack, reverse=r), read=VECTOR // 2) for r in (False, True)
)


@overload(pack_vector, inline="always")
def _pack_compiled(codes, at, packed, to, reverse):
    def pack(codes, at, packed, to, reverse):
        if reverse:
            return _pack_reverse(codes, at, packed, to)
        return _pack_forward(codes, at, packed, to)

    return pack


@overload(unpack_vector, inline="always")
def _unpack_compiled(packed, at, codes, to, reverse):
    def unpack(packed, at, codes, to, reverse):
        if reverse:
            return _unpack_reverse(packed, at, codes, to)
        return _unpack_forward(packed, at, codes, to)

    return unpack


# --- characters ---

_LF = 10
_LETTERS = b"ACGT"
_UPPER = 0xDF  # makes a small letter a capital
_SPACE, _FIRST_VISIBLE, _N_VISIBLE = 32, 33, 94
"""Names and qualities have characters 33 to 126; smaller ones wrap round to large values. The space
is printable, too."""


def before_line_end(text, at):
    """Return the number of ``text[at:at + VECTOR]`` before the first LF, VECTOR without one."""
    found = np.flatnonzero(text[at : at + VECTOR] == _LF)
    return np.int64(found[0] if len(found) else VECTOR)


def before_difference(text, at, other, there):
    """Return the common prefix length of ``text[at:]`` and ``other[there:]``, up to VECTOR."""
    found = np.flatnonzero(text[at : at + VECTOR] != other[there : there + VECTOR])
    return np.int64(found[0] if len(found) else VECTOR)


def before_unprintable(text, at):
    """Return the number of ``text[at:at + VECTOR]`` before the first that is not printable."""
    found = np.flatnonzero(text[at : at + VECTOR] - np.uint8(_SPACE) > _N_VISIBLE)
    return np.int64(found[0] if len(found) else VECTOR)


def copy_visible(text, at, target, to):
    """Copy ``text[at:at + VECTOR]``; return the number before the first that is not visible."""
    vector = text[at : at + VECTOR]
    target[to : to + VECTOR] = vector
    found = np.flatnonzero(vector - np.uint8(_FIRST_VISIBLE) >= _N_VISIBLE)
    return np.int64(found[0] if len(found) else VECTOR)


def copy_quality(text, at, quals, to):
    """Write the Phred values of ``text[at:at + VECTOR]``; return 0 if all are visible."""
    vector = text[at : at + VECTOR] - np.uint8(_FIRST_VISIBLE)
    quals[to : to + VECTOR] = vector
    return np.int64((vector >= _N_VISIBLE).any())


def copy_phred(phred, at, quals, to):
    """Copy the Phred values ``phred[at:at + VECTOR]``; return 0 if all can be written as text."""
    vector = phred[at : at + VECTOR]
    quals[to : to + VECTOR] = vector
    return np.int64((vector >= _N_VISIBLE).any())


def phred_sum(phred, at, n, least):
    """Return the sum of those of ``phred[at:at + n]`` that are at least `least`.

    ``phred[at:at + VECTOR]`` are read; `n` may be up to VECTOR.
    """
    vector = phred[at : at + VECTOR][: max(n, 0)]
    return np.int64(vector[vector >= least].sum())


def copy_letters(text, at, codes, to):
    """Write the codes of ``text[at:at + VECTOR]``; return 0 if all are A, C, G or T, of any case.

    Otherwise what is written has no meaning.
    """
    vector = text[at : at + VECTOR] & np.uint8(_UPPER)
    twice = (vector >> np.uint8(1)) & np.uint8(3)
    codes[to : to + VECTOR] = twice ^ (twice >> np.uint8(1))
    return np.int64(not np.isin(vector, np.frombuffer(_LETTERS, np.uint8)).all())


def _invisible(builder, phred):
    return builder.icmp_unsigned(">=", phred, constant(BYTES, _N_VISIBLE))


def _before_line_end(builder, source):
    vector = load(builder, source, BYTES)
    return before_first(builder, builder.icmp_unsigned("==", vector, constant(BYTES, _LF)))


def _before_difference(builder, source, other):
    vectors = load(builder, source, BYTES), load(builder, other, BYTES)
    return before_first(builder, builder.icmp_unsigned("!=", *vectors))


def _before_unprintable(builder, source):
    distance = builder.sub(load(builder, source, BYTES), constant(BYTES, _SPACE))
    return before_first(builder, builder.icmp_unsigned(">", distance, constant(BYTES, _N_VISIBLE)))


def _copy_visible(builder, source, target):
    vector = load(builder, source, BYTES)
    store(builder, target, vector)
    phred = builder.sub(vector, constant(BYTES, _FIRST_VISIBLE))
    return before_first(builder, _invisible(builder, phred))


def _copy_quality(builder, source, target):
    phred = builder.sub(load(builder, source, BYTES), constant(BYTES, _FIRST_VISIBLE))
    store(builder, target, phred)
    return any_bits(builder, builder.sext(_invisible(builder, phred), BYTES))


def _copy_phred(builder, source, target):
    phred = load(builder, source, BYTES)
    store(builder, target, phred)
    return any_bits(builder, builder.sext(_invisible(builder, phred), BYTES))


_LANES = ir.Constant(BYTES, list(range(VECTOR)))
_FOURS = ir.VectorType(ir.IntType(32), VECTOR // 4)


@intrinsic
def _phred_sum_vector(typingctx, phred, at, n, least):
    check_bytes(phred)

    def codegen(context, builder, signature, args):
        place = address(context, builder, signature.args[0], *args[:2], VECTOR)
        vector = load(builder, place, BYTES)
        n, least = (everywhere(builder, builder.trunc(number, BYTE), BYTES) for number in args[2:])
        counts = builder.and_(
            builder.icmp_unsigned("<", _LANES, n), builder.icmp_unsigned(">=", vector, least)
        )
        sums = builder.select(counts, vector, constant(BYTES, 0))
        # The compiler would widen each byte to 32 bits: add neighbours instead, twice.
        for wide in (_PAIRS, _FOURS):
            bits = wide.element.width // 2
            sums = builder.bitcast(sums, wide)
            low = builder.and_(sums, constant(wide, (1 << bits) - 1))
            sums = builder.add(low, builder.lshr(sums, constant(wide, bits)))
        kind = ir.FunctionType(_FOURS.element, [_FOURS])
        name = f"llvm.vector.reduce.add.v{_FOURS.count}i32"
        total = builder.call(builder.module.declare_intrinsic(name, (), kind), [sums])
        return builder.zext(total, WORD)

    return types.int64(phred, types.int64, types.int64, types.int64), codegen


def _copy_letters(builder, source, target):
    vector = builder.and_(load(builder, source, BYTES), constant(BYTES, _UPPER))
    # Two bits of the letters differ: 0 for A, 1 for C, 2 for T, 3 for G.
    twice = builder.and_(builder.lshr(vector, constant(BYTES, 1)), constant(BYTES, 3))
    store(builder, target, builder.xor(twice, builder.lshr(twice, constant(BYTES, 1))))
    are_letters = constant(BYTES, 0)
    for letter in _LETTERS:
        is_letter = builder.icmp_unsigned("==", vector, constant(BYTES, letter))
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


@overload(phred_sum, inline="always")
def _phred_sum_compiled(phred, at, n, least):
    return lambda phred, at, n, least: _phred_sum_vector(phred, at, n, least)


@overload(copy_letters, inline="always")
def _copy_letters_compiled(text, at, codes, to):
    return lambda text, at, codes, to: _copy_letters_vector(text, at, codes, to)
