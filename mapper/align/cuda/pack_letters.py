"""Packing of letters to 2 bits each, as they lie in memory, for staging.

Whole blocks are packed by *lines*: 256 letters make one cache line, in vector instructions. The
compiler's own vectors need twice the instructions: it packs eight letters at a time where the
processor can pack 64, and a line would have to lie in memory before it can be stored past the
caches. The rest of a span is packed four letters at a time, as a word of 32 bits.

A staged line is written once and read by the device, so it is stored past the caches
(non-temporal). An ordinary store first loads the line from memory and later writes it back, which
is a quarter of all memory traffic of staging.

Letters other than A, C, G, T are noted by block; only sequences in noted blocks are checked letter
by letter.

The Python bodies of compiled intrinsics define their meaning, and run where the JIT is off.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from mapper.align.matches import unaligned_half, unaligned_word
from mapper.align.packing import differs_from_acgt
from mapper.jit.accelerate import core, driver
from mapper.jit.bounds import check_items
from mapper.jit.simd import BYTE, VECTOR, WORD, constant, load, moving

# --- non-temporal stores ---

LINE = 64
"""Bytes of a line; the addresses of non-temporal stores must be multiples of it."""


def stream_line(source, source_byte, target, target_byte):
    """Copy LINE bytes of one array (uint8 or uint64, at any byte) to a line of another."""
    to = target.view(np.uint8)
    to[target_byte : target_byte + LINE] = source.view(np.uint8)[source_byte : source_byte + LINE]


def streams_done():
    """Make all lines stored visible before anything that is written next."""


def is_streamable(array: np.ndarray) -> bool:
    """Return True if all rows of an array start at a line."""
    return array.ctypes.data % LINE == 0 and all(
        stride % LINE == 0 for stride in array.strides[:-1]
    )


def past_caches(builder, stored):
    """Mark a store instruction as non-temporal."""
    one = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
    stored.set_metadata("nontemporal", one)


@intrinsic
def _stream(typingctx, source, source_byte, target, target_byte):
    def codegen(context, builder, signature, args):
        line = ir.VectorType(ir.IntType(32), LINE // 4)

        def address(i):
            kind = signature.args[i]
            check_items(context, builder, kind, args[i], args[i + 1], LINE, n_bytes=1)
            array = context.make_array(kind)(context, builder, args[i])
            start = builder.bitcast(array.data, cgutils.voidptr_t)
            return builder.bitcast(builder.gep(start, [args[i + 1]]), line.as_pointer())

        stored = builder.store(builder.load(address(0), align=1), address(2), align=LINE)
        past_caches(builder, stored)
        return context.get_dummy_value()

    return types.none(source, types.int64, target, types.int64), codegen


@intrinsic
def _fence(typingctx):
    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), codegen


@overload(stream_line, inline="always")
def _stream_line_compiled(source, source_byte, target, target_byte):
    return lambda source, source_byte, target, target_byte: _stream(
        source, source_byte, target, target_byte
    )


@overload(streams_done, inline="always")
def _streams_done_compiled():
    return lambda: _fence()


# --- lines of letters ---

LINE_LETTERS = 4 * LINE

_AHEAD = 2048
"""Letters of prefetching ahead. The processor's own prefetching stops at the end of every
page; with this, each of two threads on an EPYC packed 1.3 times as fast (512 ahead: no gain)."""

_LETTERS = np.frombuffer(b"ACGTUacgtu", np.uint8)

_FOURS = ir.VectorType(ir.IntType(32), VECTOR // 4)
_PACKED = ir.VectorType(BYTE, VECTOR // 4)


def pack_line(letters, at, codes, to, streamed):
    """Pack ``letters[at:at + LINE_LETTERS]`` into the LINE bytes of `codes` from `to` on.

    Parameters
    ----------
    letters, codes
        uint8. Memory after the letters may be prefetched, but is not read.
    streamed
        Store past the caches; the line then starts at a multiple of LINE in memory.

    Returns
    -------
    0 if all letters are A, C, G, T or U, of any case; otherwise the codes have no meaning.
    """
    fours = letters[at : at + LINE_LETTERS].reshape(LINE, 4)
    steps = np.array([0, 2, 4, 6], np.uint8)
    codes[to : to + LINE] = np.bitwise_or.reduce(
        (fours >> np.uint8(1) & np.uint8(3)) << steps, axis=1
    )
    return np.int64(not np.isin(fours, _LETTERS).all())


def _fetch(builder, place):
    """Prefetch the line of an address, which need not be valid."""
    number = ir.IntType(32)
    address = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [place, number(0), number(0), number(1)])  # to read it, once, as data


def _line_doubts(builder, run, once, twice):
    """Return two vectors that are not 0 for invalid letters: in bit 0, and in bits 3, 6 and 7.

    In upper case A is 01000001, C 01000011, G 01000111, T 01010100 and U 01010101: bit 4 is set
    where bit 2 is and bit 1 is not, and only there may bit 0 be clear. Bits move in numbers
    of 32 bits; those that come from the next letter do not reach bit 0.
    """
    is_t = builder.and_(twice, builder.not_(once))
    fourfold = builder.lshr(run, constant(_FOURS, 4))
    odd = builder.or_(
        builder.xor(fourfold, is_t), builder.not_(builder.or_(run, is_t))
    )  # wrong bit 4, or wrong bit 0
    return odd, builder.xor(run, constant(_FOURS, 0x40404040))


def _line_codes(builder, once):
    """Return the 2-bit codes of 64 letters that were moved by a bit, 4 to a byte."""
    codes = builder.and_(once, constant(_FOURS, 0x03030303))
    # Gathers four codes in the highest byte, without carries into it.
    codes = builder.mul(codes, constant(_FOURS, 0x01041040))
    return builder.trunc(builder.lshr(codes, constant(_FOURS, 24)), _PACKED)


def _joined(builder, parts):
    """Return the concatenation of vectors."""
    while len(parts) > 1:
        n = 2 * parts[0].type.count
        order = ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(n)))
        parts = [builder.shuffle_vector(*parts[i : i + 2], order) for i in range(0, len(parts), 2)]
    return parts[0]


def _pack(builder, source, target, streamed):
    odd = others = constant(_FOURS, 0)
    packed = []
    for at in range(0, LINE_LETTERS, VECTOR):
        _fetch(builder, builder.gep(source, [WORD(_AHEAD + at)]))
        run = load(builder, builder.gep(source, [WORD(at)]), _FOURS)
        once, twice = (builder.lshr(run, constant(_FOURS, n)) for n in (1, 2))
        more = _line_doubts(builder, run, once, twice)
        odd, others = builder.or_(odd, more[0]), builder.or_(others, more[1])
        packed.append(_line_codes(builder, once))
    line = _joined(builder, packed)
    stored = builder.store(
        line, builder.bitcast(target, line.type.as_pointer()), align=LINE if streamed else 1
    )
    if streamed:
        past_caches(builder, stored)
    doubts = builder.or_(
        builder.and_(odd, constant(_FOURS, 0x01010101)),
        builder.and_(others, constant(_FOURS, 0xC8C8C8C8)),
    )
    are_doubtful = builder.icmp_unsigned("!=", doubts, constant(_FOURS, 0))
    return builder.zext(builder.bitcast(are_doubtful, ir.IntType(_FOURS.count)), WORD)


_pack_cached, _pack_streamed = (
    moving(partial(_pack, streamed=s), read=LINE_LETTERS, written=LINE) for s in (False, True)
)


@overload(pack_line, inline="always")
def _pack_line_compiled(letters, at, codes, to, streamed):
    def run(letters, at, codes, to, streamed):
        if streamed:
            return _pack_streamed(letters, at, codes, to)
        return _pack_cached(letters, at, codes, to)

    return run


# --- blocks of letters ---

BLOCK_LETTERS = 1024
"""Letters of a block, for each of which other letters than A, C, G, T are noted."""


@driver
def blocks_of(begin, end):
    """Return the number of blocks of the letters begin:end."""
    return (end - begin + BLOCK_LETTERS - 1) // BLOCK_LETTERS


@core
def _codes(word):
    """Return the 2-bit codes of 4 letters, as uint8."""
    word = np.uint32(np.uint32(word >> np.uint32(1)) & np.uint32(0x03030303))
    # Gathers the codes in the highest byte, without carries into it.
    return np.uint8(np.uint32(word * np.uint32(0x01041040)) >> np.uint32(24))


@core
def _doubts(word):
    """Return two words (uint32) for 4 letters, which :func:`_are_doubtful` tests.

    In upper case A is 01000001, C 01000011, G 01000111, T 01010100 and U 01010101: bit 4 is set
    where bit 2 is and bit 1 is not, and only there may bit 0 be clear.
    """
    differ = np.uint32(word ^ np.uint32(0x41414141))
    t = np.uint32(np.uint32(word << np.uint32(2)) & np.uint32(~np.uint32(word << np.uint32(3))))
    t = np.uint32(t & np.uint32(0x10101010))
    even = np.uint32(differ & np.uint32(~np.uint32(t >> np.uint32(4))))
    return np.uint32(differ ^ t), even


@core
def _are_doubtful(differ, even):
    """Return True if any letter is not one of A C G T U, in either case; takes joined doubts."""
    return ((differ & np.uint32(0xD8D8D8D8)) | (even & np.uint32(0x01010101))) != 0


@core
def _last_letters(letters, at, end):
    """Return the letters from `at` on as a word of 32 bits; from `end` on A, without a load."""
    word = np.uint32(0x41414141)
    for x in range(min(np.int64(4), end - at)):
        word = np.uint32(word ^ np.uint32(np.uint32(letters[at + x] ^ 0x41) << np.uint32(8 * x)))
    return word


@core
def _pack_block(letters, start, end, codes):
    """Pack letters start:end, 4 an item of `codes`; return True if any is not A, C, G or T."""
    whole = (end - start) >> 2
    differ, even = np.uint32(0), np.uint32(0)
    for j in range(whole):
        word = unaligned_half(letters, start + 4 * j)
        codes[j] = _codes(word)
        more_differ, more_even = _doubts(word)
        differ = np.uint32(differ | more_differ)
        even = np.uint32(even | more_even)
    if start + 4 * whole < end:
        word = _last_letters(letters, start + 4 * whole, end)
        codes[whole] = _codes(word)
        more_differ, more_even = _doubts(word)
        differ = np.uint32(differ | more_differ)
        even = np.uint32(even | more_even)
    return _are_doubtful(differ, even)


@core
def _pack_lines(letters, start, codes, at, streamed):
    """Pack a whole block; return True if any letter is not A, C, G or T."""
    doubts = np.int64(0)
    for x in range(BLOCK_LETTERS // LINE_LETTERS):
        doubts |= pack_line(letters, start + x * LINE_LETTERS, codes, at + x * LINE, streamed)
    return doubts != 0


@driver
def pack_blocks(letters, begin, end, first_block, last_block, codes, noted, streamed):
    """Pack some blocks of the letters begin:end.

    Parameters
    ----------
    codes
        uint8: 4 letters an item, the first of all in the first.
    noted
        bool, one a block: receives True if any letter of it is not A, C, G or T.
    streamed
        Store past the caches; `codes` then starts at a line.
    """
    for block in range(first_block, last_block):
        at = block * (BLOCK_LETTERS // 4)
        start = begin + block * BLOCK_LETTERS
        stop = min(start + BLOCK_LETTERS, end)
        if stop - start == BLOCK_LETTERS:
            noted[block] = _pack_lines(letters, start, codes, at, streamed)
        else:
            noted[block] = _pack_block(letters, start, stop, codes[at : at + BLOCK_LETTERS // 4])


@core
def _eight_letters(letters, at, end):
    """Return the letters from `at` on as a word of 64 bits; from `end` on A, without a load."""
    word = np.uint64(0x4141414141414141)
    for x in range(min(np.int64(8), end - at)):
        word ^= np.uint64(letters[at + x] ^ 0x41) << np.uint64(8 * x)
    return word


@core
def is_acgt_where_noted(letters, start, end, origin, noted):
    """Return True if the letters are all A, C, G or T; reads only if their blocks are noted.

    Blocks are counted from letter `origin`.
    """
    if start == end:
        return True
    doubted = False
    for block in range((start - origin) // BLOCK_LETTERS, (end - 1 - origin) // BLOCK_LETTERS + 1):
        doubted = doubted or noted[block]
    if not doubted:
        return True
    differ = np.uint64(0)
    at = start
    while at + 8 <= end:
        differ |= differs_from_acgt(unaligned_word(letters, at))
        at += 8
    return (differ | differs_from_acgt(_eight_letters(letters, at, end))) == 0
