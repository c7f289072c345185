"""Lines of letters → 2 bits each, in vector instructions: 256 letters make a cache line.

The compiler's own vectors need twice the instructions: it packs eight letters at a time where the
processor could pack 64, and a line has to lie in memory before it can be stored past the caches.
Beside the function in vectors stands the plain one: it is the meaning, and what runs where the
JIT is off.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import overload

from mapper.align.cuda.flat_stream import LINE, past_caches
from mapper.jit.simd import BYTE, RUN, WORD, constant, load, moving

LINE_LETTERS = 4 * LINE

_AHEAD = 2048
"""Letters between those that are packed and those that are fetched from memory meanwhile. By
itself the processor stops at the end of every page; of two threads on an EPYC each packed 1.3
times as fast with it (512 ahead: as without)."""

_LETTERS = np.frombuffer(b"ACGTUacgtu", np.uint8)

_FOURS = ir.VectorType(ir.IntType(32), RUN // 4)
_PACKED = ir.VectorType(BYTE, RUN // 4)


def pack_line(letters, at, codes, to, streamed):
    """Pack ``letters[at:at + LINE_LETTERS]`` into the LINE bytes of `codes` from `to` on.

    Parameters
    ----------
    letters, codes
        uint8. What lies behind the letters may be fetched, but is not looked at.
    streamed
        Whether to store past the caches: the line then begins at a multiple of LINE in memory.

    Returns
    -------
    0 if all letters are A, C, G, T or U, of any case; else what is written has no meaning.
    """
    fours = letters[at : at + LINE_LETTERS].reshape(LINE, 4)
    steps = np.array([0, 2, 4, 6], np.uint8)
    codes[to : to + LINE] = np.bitwise_or.reduce(
        (fours >> np.uint8(1) & np.uint8(3)) << steps, axis=1
    )
    return np.int64(not np.isin(fours, _LETTERS).all())


def _fetch(builder, place):
    """Have the line of an address loaded; it need not be one of ours."""
    number = ir.IntType(32)
    address = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [place, number(0), number(0), number(1)])  # to read it, once, as data


def _doubts(builder, run, once, twice):
    """Return vectors that say of letters whether they are none, in bit 0, and 3, 6 and 7.

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


def _codes(builder, once):
    """Return the 2-bit codes of 64 letters that were moved by a bit, 4 to a byte."""
    codes = builder.and_(once, constant(_FOURS, 0x03030303))
    # Brings four codes side by side into the highest byte; nothing is carried into it.
    codes = builder.mul(codes, constant(_FOURS, 0x01041040))
    return builder.trunc(builder.lshr(codes, constant(_FOURS, 24)), _PACKED)


def _joined(builder, parts):
    """Return vectors as one."""
    while len(parts) > 1:
        n = 2 * parts[0].type.count
        order = ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(n)))
        parts = [builder.shuffle_vector(*parts[i : i + 2], order) for i in range(0, len(parts), 2)]
    return parts[0]


def _pack(builder, source, target, streamed):
    odd = others = constant(_FOURS, 0)
    packed = []
    for at in range(0, LINE_LETTERS, RUN):
        _fetch(builder, builder.gep(source, [WORD(_AHEAD + at)]))
        run = load(builder, builder.gep(source, [WORD(at)]), _FOURS)
        once, twice = (builder.lshr(run, constant(_FOURS, n)) for n in (1, 2))
        more = _doubts(builder, run, once, twice)
        odd, others = builder.or_(odd, more[0]), builder.or_(others, more[1])
        packed.append(_codes(builder, once))
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


_pack_cached = moving(lambda builder, source, target: _pack(builder, source, target, False))
_pack_streamed = moving(lambda builder, source, target: _pack(builder, source, target, True))


@overload(pack_line, inline="always")
def _pack_line_compiled(letters, at, codes, to, streamed):
    def run(letters, at, codes, to, streamed):
        if streamed:
            return _pack_streamed(letters, at, codes, to)
        return _pack_cached(letters, at, codes, to)

    return run
