"""Runs of equal symbols of two packed sequences, many symbols at a time.

A sequence is packed with 2, 4 or 8 bits a symbol (``packing.py``), symbol 0 in the lowest bits of
its first word. The packing decides what is equal: symbols match exactly where their codes agree.
There are three forms of the comparison:

- By words of 64 bits (:func:`run_of_matches`), in both directions: eight bytes are loaded from any
  byte address, so that a comparison sees at least 58, 60 or 64 bits: 29, 15 or 8 symbols.
- By letters (:func:`run_to_fence`), for loops of the CPU that visit many cells: the codes of a pair
  are unpacked, a byte each. After the last symbol of either side comes a byte that differs from
  all others, so that every run of matches ends there: a comparison needs neither shifts nor the
  number of symbols left.
- By words of 32 bits (:func:`slide`), for CUDA threads, whose registers have 32 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from mapper.jit.accelerate import core, driver
from mapper.jit.bounds import check_items
from mapper.jit.intrinsics import leading_zeros, trailing_zeros, trailing_zeros_32

NULL = np.int32(-(2**30))
"""Offset of a wavefront cell that does not exist; two of them can still be added in 32 bits."""

NULL_16 = np.int32(-(2**15))
"""The same where a cell is stored in 16 bits."""


class Pair(NamedTuple):
    """A query and a reference, or a part of each, in packed form."""

    query_words: np.ndarray  # uint64
    ref_words: np.ndarray  # uint64
    query_bit: int  # bit of query_words where the part starts
    ref_bit: int
    query_len: int  # symbols
    ref_len: int
    shift: int  # log2 of the bits of a symbol: 1, 2 or 3


FENCED = np.uint8(4)
"""Flag in the shift of pairs: symbols are codes of 8 bits, with a fence (below) behind. All pairs
of a part (``coding.py``) have it, or none."""

PLAIN = np.uint8(8)
"""Flag beside FENCED: all codes of the pair are 0 to 3."""


# Drivers: functions that return arrays count references, which cores do not.
@driver
def pair_at(packed, i):
    """Return pair i as a whole."""
    return Pair(
        packed.query_words, packed.ref_words, packed.query_start[i] << 6, packed.ref_start[i] << 6,
        packed.query_len[i], packed.ref_len[i], np.int64(packed.shift[i] & np.uint8(3)),
    )  # fmt: skip


@driver
def part_of(pair, v, h, query_len, ref_len):
    """Return the part of a pair that starts at query symbol v and reference symbol h."""
    return Pair(
        pair.query_words, pair.ref_words, pair.query_bit + (v << pair.shift),
        pair.ref_bit + (h << pair.shift), query_len, ref_len, pair.shift,
    )  # fmt: skip


def unaligned_word(words, byte):
    """Return the 8 bytes from byte `byte` of an array of uint64 or uint8 on, as a uint64.

    This body runs where the JIT is off. Compiled, it is one load, or two aligned ones where the
    machine requires alignment (CUDA; arrays of uint64 only there).
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
        check_items(context, builder, signature.args[0], *args, 8, n_bytes=1)
        array = context.make_array(signature.args[0])(context, builder, args[0])
        load = aligned if context.strict_alignment else unaligned
        return load(builder, array.data, args[1])

    return types.uint64(words, types.int64), codegen


def unaligned_half(letters, byte):
    """Return the 4 bytes from byte `byte` of an array of uint8 on, as a uint32.

    This body runs where the JIT is off. Compiled, it is one load, on the CPU only.
    """
    return np.uint32(sum(int(letters[int(byte) + i]) << (8 * i) for i in range(4)))


@intrinsic
def _load_half(typingctx, letters, byte):
    def codegen(context, builder, signature, args):
        check_items(context, builder, signature.args[0], *args, 4)
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
    """Return the symbols from `bit` on in the low bits; up to 6 top bits may be missing."""
    return unaligned_word(words, bit >> 3) >> np.uint64(bit & 7)


@core
def word_before(words, bit):
    """Return the symbols before `bit` in the high bits; up to 6 low bits may be missing."""
    byte = (bit + 7) >> 3
    return unaligned_word(words, byte - 8) << np.uint64((byte << 3) - bit)


@core
def symbols_a_word(shift):
    """Return how many symbols of 2, 4 or 8 bits a load from any byte address holds whole."""
    return (56 + (1 << shift)) >> shift


@core
def fence_of(shift, forward):
    """Return a bit that always differs, after the symbols that every load holds."""
    n_bits = symbols_a_word(shift) << shift
    if n_bits == 64:
        return np.uint64(0)
    return np.uint64(1) << np.uint64(n_bits if forward else 63 - n_bits)


@core
def first_run(pair, v, h, fence, forward):
    """Return the number of matches after v and h symbols, as far as one load sees.

    v and h count from the starts of both sequences or, backward, from their ends. Symbols beyond
    an end are compared, too; callers limit the result.
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
    """Return the number of matches after v and h symbols, at most `limit`."""
    step = symbols_a_word(pair.shift)
    fence = fence_of(pair.shift, forward)
    done = np.int64(0)
    while done < limit:
        run = first_run(pair, v + done, h + done, fence, forward)
        done += run
        if run < step:
            break
    return min(done, limit)


# --- symbols unpacked to letters, for the CPU ---

_PADDING = 8
"""Bytes after the symbols, so that eight can be loaded at a time."""

QUERY_FENCE, REF_FENCE = np.uint8(0x80), np.uint8(0x40)
"""Differ from each other and from all codes of 2 or 4 bits."""


class Letters(NamedTuple):
    """Codes of both sequences, a byte each."""

    query: np.ndarray  # uint8, longer than the query
    ref: np.ndarray  # uint8
    fenced: int  # 0 if all bytes may be codes, or the arrays are empty


@driver
def no_letters():
    """Return empty letters."""
    return Letters(np.empty(0, np.uint8), np.empty(0, np.uint8), np.int64(0))


@driver
def unpack(words, word, n, shift, letters):
    """Write n codes; with 2 bits a symbol `letters` must have room for 31 more."""
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
    """Return the letters of a pair that starts at whole words; reuse the arrays if they suffice."""
    n, m = pair.query_len, pair.ref_len
    needed = max(n, m) + 32 + _PADDING
    query, ref = letters.query, letters.ref
    if len(query) < needed:
        query, ref = np.empty(2 * needed, np.uint8), np.empty(2 * needed, np.uint8)
    unpack(pair.query_words, pair.query_bit >> 6, n, pair.shift, query)
    unpack(pair.ref_words, pair.ref_bit >> 6, m, pair.shift, ref)
    query[n] = QUERY_FENCE
    ref[m] = REF_FENCE
    return Letters(query, ref, np.int64(pair.shift < 3))


@driver
def codes_of(coded):
    """Return the codes of all queries and of all references (``coding.py``)."""
    fenced = np.int64(len(coded.shift) > 0 and coded.shift[0] & FENCED)
    return Letters(coded.query_words.view(np.uint8), coded.ref_words.view(np.uint8), fenced)


@driver
def letters_in(codes, coded, i):
    """Return the letters of pair i."""
    query, ref = coded.query_start[i] << 3, coded.ref_start[i] << 3
    return Letters(codes.query[query:], codes.ref[ref:], codes.fenced)


@core
def run_to_fence(letters, v, h):
    """Return the number of matches after v and h symbols."""
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


# --- packed symbols by words of 32 bits, for CUDA ---


class Strings(NamedTuple):
    """Both packed sequences of a part, in the direction of a search.

    The arrays have at least one word before the part and six after it.
    """

    query: np.ndarray  # uint32
    ref: np.ndarray  # uint32
    query_at: int  # uint32: symbol of `query` where the part starts
    ref_at: int  # uint32
    query_len: int  # int32, symbols
    ref_len: int  # int32
    shift: int  # int32: log2 of the bits of a symbol: 1, 2 or 3


@core
def window(words, symbol, shift):
    """Return the 32 bits from a symbol (uint32) on."""
    # Unsigned, as an index that may be negative would be checked for that.
    at = np.uint64(np.uint32(symbol >> np.uint32(np.int32(5) - shift)))
    low = np.uint64(words[at])
    high = np.uint64(words[at + np.uint64(1)])
    bits = np.uint64(np.uint32(symbol << np.uint32(shift)) & np.uint32(31))
    return np.uint32(((high << np.uint64(32)) | low) >> bits)


@core
def _window_64(words, symbol, shift):
    """Return the 64 bits from a symbol (uint32) on."""
    low = np.uint64(window(words, symbol, shift))
    second = np.uint32(symbol + np.uint32(np.int32(32) >> shift))
    return (np.uint64(window(words, second, shift)) << np.uint64(32)) | low


@core
def farthest(k, query_len, ref_len):
    """Return the greatest offset on diagonal k."""
    return np.int32(min(np.int32(query_len + k), ref_len))


@core
def look(strings, h, k):
    """Return the number of matches from offset h of diagonal k within 32 bits, ends ignored.

    For a null cell (h < 0) the symbols at the start of the part are compared.
    """
    v = np.uint32(max(np.int32(h - k), np.int32(0)))
    at_query = window(strings.query, np.uint32(strings.query_at + v), strings.shift)
    at = np.uint32(max(h, np.int32(0)))
    at_ref = window(strings.ref, np.uint32(strings.ref_at + at), strings.shift)
    return np.int32(trailing_zeros_32(np.uint32(at_query ^ at_ref)) >> strings.shift)


@core
def follow(strings, h, k, limit):
    """Return the offset after the matches from offset h of diagonal k, 128 bits at a time."""
    step = np.uint32(np.int32(64) >> strings.shift)
    while h < limit:
        at_query = np.uint32(strings.query_at + np.uint32(h - k))
        at_ref = np.uint32(strings.ref_at + np.uint32(h))
        near = _window_64(strings.query, at_query, strings.shift)
        near ^= _window_64(strings.ref, at_ref, strings.shift)
        far = _window_64(strings.query, np.uint32(at_query + step), strings.shift)
        far ^= _window_64(strings.ref, np.uint32(at_ref + step), strings.shift)
        bits = trailing_zeros(near) if near != 0 else 64 + trailing_zeros(far)
        h = np.int32(h + (bits >> strings.shift))
        if bits < 128:
            break
    return np.int32(min(h, limit))


@core
def slide(strings, h, k, null):
    """Return the offset after the matches from offset h of diagonal k.

    Returns
    -------
    The offset, or `null` for a null cell or one beyond an end.
    """
    limit = farthest(k, strings.query_len, strings.ref_len)
    if h < 0 or h > limit:
        return null
    run = look(strings, h, k)
    h = np.int32(min(np.int32(h + run), limit))
    if run == np.int32(32) >> strings.shift and h < limit:
        h = follow(strings, h, k, limit)
    return h
