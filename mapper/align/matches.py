"""Core: runs of equal symbols of two packed sequences, many symbols at a time.

A sequence is packed with 2, 4 or 8 bits a symbol (``packing.py``), symbol 0 in the lowest
bits of its first word. Eight bytes are loaded from any byte address, so that a comparison
sees at least 58, 60 or 64 bits: 29, 15 or 8 symbols. The packing decides what is equal:
symbols match exactly where their codes agree.

Symbols of a pair, a byte each, for loops of the CPU that look at many of them.

Behind the last symbol of either side lies a byte that differs from all, so that a run of matches
ends there by itself: a comparison needs neither shifts nor the number of symbols that are left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import leading_zeros, trailing_zeros


class Pair(NamedTuple):
    """A query and a reference, or a part of each, in packed form."""

    query_words: np.ndarray  # uint64
    ref_words: np.ndarray  # uint64
    query_bit: int  # bit of query_words where the part starts
    ref_bit: int
    query_len: int  # symbols
    ref_len: int
    shift: int  # log2 of the bits of a symbol: 1, 2 or 3


# What returns arrays counts references, which cores do not.
@driver
def pair_at(packed, i):
    """Pair i as a whole."""
    return Pair(
        packed.query_words, packed.ref_words, packed.query_start[i] << 6, packed.ref_start[i] << 6,
        packed.query_len[i], packed.ref_len[i], np.int64(packed.shift[i]),
    )  # fmt: skip


@driver
def part_of(pair, v, h, query_len, ref_len):
    """The part of a pair that starts at query symbol v and reference symbol h."""
    return Pair(
        pair.query_words, pair.ref_words, pair.query_bit + (v << pair.shift),
        pair.ref_bit + (h << pair.shift), query_len, ref_len, pair.shift,
    )  # fmt: skip


def unaligned_word(words, byte):
    """Return the 8 bytes from byte `byte` of an array of uint64 or uint8 on, as a uint64.

    This body is the meaning, for where the JIT is off. Compiled, it is one load, or two
    aligned ones where the machine asks for alignment (CUDA; arrays of uint64 only there).
    """
    size = words.dtype.itemsize
    at, rest = divmod(int(byte), size)
    value = 0
    for i in range(8 // size + (rest > 0)):
        value |= int(words[at + i]) << (8 * size * i)
    return np.uint64(value >> (8 * rest) & 0xFFFF_FFFF_FFFF_FFFF)


@intrinsic
def _load(typingctx, words, byte):
    i64 = ir.IntType(64)

    def unaligned(builder, data, byte):
        start = builder.bitcast(data, cgutils.voidptr_t)
        address = builder.bitcast(builder.gep(start, [byte]), i64.as_pointer())
        return builder.load(address, align=1)

    def aligned(builder, data, byte):
        at = builder.lshr(byte, i64(3))
        bits = builder.shl(builder.and_(byte, i64(7)), i64(3))
        start = builder.bitcast(data, i64.as_pointer())
        low = builder.load(builder.gep(start, [at]))
        high = builder.load(builder.gep(start, [builder.add(at, i64(1))]))
        # Two shifts, because a shift by 64 is undefined.
        moved = builder.shl(builder.shl(high, i64(1)), builder.sub(i64(63), bits))
        return builder.or_(builder.lshr(low, bits), moved)

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        load = aligned if context.strict_alignment else unaligned
        return load(builder, array.data, args[1])

    return types.uint64(words, types.int64), codegen


def unaligned_half(letters, byte):
    """Return the 4 bytes from byte `byte` of an array of uint8 on, as a uint32.

    This body is the meaning, for where the JIT is off. Compiled, it is one load, on the CPU only.
    """
    return np.uint32(sum(int(letters[int(byte) + i]) << (8 * i) for i in range(4)))


@intrinsic
def _load_half(typingctx, letters, byte):
    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        start = builder.bitcast(array.data, cgutils.voidptr_t)
        address = builder.bitcast(builder.gep(start, [args[1]]), ir.IntType(32).as_pointer())
        return builder.load(address, align=1)

    return types.uint32(letters, types.int64), codegen


@overload(unaligned_half, inline="always")
def _unaligned_half_compiled(letters, byte):
    return lambda letters, byte: _load_half(letters, byte)


@overload(unaligned_word, inline="always")
def _unaligned_word_compiled(words, byte):
    return lambda words, byte: _load(words, byte)


@core
def word_at(words, bit):
    """The symbols from `bit` on in the low bits; the top 6 bits (or fewer) may be missing."""
    return unaligned_word(words, bit >> 3) >> np.uint64(bit & 7)


@core
def word_before(words, bit):
    """The symbols that end before `bit` in the high bits; the low 6 bits may be missing."""
    byte = (bit + 7) >> 3
    return unaligned_word(words, byte - 8) << np.uint64((byte << 3) - bit)


@core
def symbols_a_word(shift):
    """Symbols of 2, 4 or 8 bits that a load from any byte address holds whole."""
    return (56 + (1 << shift)) >> shift


@core
def fence_of(shift, forward):
    """A bit that always differs, behind the symbols that a load is sure to hold."""
    n_bits = symbols_a_word(shift) << shift
    if n_bits == 64:
        return np.uint64(0)
    return np.uint64(1) << np.uint64(n_bits if forward else 63 - n_bits)


@core
def first_run(pair, v, h, fence, forward):
    """Matches after v and h consumed symbols, as far as one load sees.

    v and h count from the starts of both sequences or, backward, from their ends. What lies
    beyond an end is compared too; callers cut it off.
    """
    if forward:
        at_query = word_at(pair.query_words, pair.query_bit + (v << pair.shift))
        at_ref = word_at(pair.ref_words, pair.ref_bit + (h << pair.shift))
        return trailing_zeros((at_query ^ at_ref) | fence) >> pair.shift
    at_query = word_before(pair.query_words, pair.query_bit + ((pair.query_len - v) << pair.shift))
    at_ref = word_before(pair.ref_words, pair.ref_bit + ((pair.ref_len - h) << pair.shift))
    return leading_zeros((at_query ^ at_ref) | fence) >> pair.shift


@core
def run_of_matches(pair, v, h, limit, forward):
    """Matches after v and h consumed symbols, at most `limit`; as :func:`first_run`."""
    step = symbols_a_word(pair.shift)
    fence = fence_of(pair.shift, forward)
    done = np.int64(0)
    while done < limit:
        run = first_run(pair, v + done, h + done, fence, forward)
        done += run
        if run < step:
            break
    return min(done, limit)


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
