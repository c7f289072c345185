"""Runs of 64 bases to and from BAM's form of two in a byte, in vector instructions.

The compiler would widen each byte to 32 bits and gather single ones. Beside each function in
vectors stands the plain one: it is the meaning, and what runs where the JIT is off.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba.extending import overload

from mapper.jit.simd import BYTE, BYTES, RUN, any_bits, constant, load, moving, store

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
