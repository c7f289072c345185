"""Antidiagonals of a band of gap-affine extension, in vector instructions: losses, no paths.

The compiler would keep them in memory: an antidiagonal looks back to the last one shifted by a
cell, which a processor cannot read back before it is written out. Here they stay in registers.
Beside each function in vectors stands the plain one: it is the meaning, and what runs where the
JIT is off. :mod:`mapper.extend.reach` has what it is for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from mapper.jit.simd import BYTE, WORD, constant, load, store

LOST = 255
"""The loss of a cell that nothing leads to, and of all that lose more."""

STATES = 7
"""Rows of `band`: on the diagonals of even number losses of H, I and D; those on the diagonals of
odd number; and the most by which any cell loses less than its bar."""


class ByteLosses(NamedTuple):
    """What differences lose, LOST at the most."""

    mismatch: np.uint8
    insertion_opened: np.uint8  # its first base
    insertion: np.uint8  # each base more
    deletion_opened: np.uint8
    deletion: np.uint8


def spread(low, high, ambiguous, shift, codes, at):
    """Write the codes of 64 bases from the words of their bit planes.

    An ambiguous base has the bit `shift` set, whatever else.
    """
    for i in range(64):
        code = (int(low) >> i & 1) | (int(high) >> i & 1) << 1
        codes[at + i] = code | (int(ambiguous) >> i & 1) << shift


def advance(band, query, bars, at, ref, ref_at, n_pairs, losses, slack):
    """Go on by pairs of antidiagonals: first the cells on odd diagonals, then those on even ones.

    Parameters
    ----------
    band
        uint8, STATES rows of 32, 64 or 128 columns; column j is diagonal 2 j of the first three
        rows, counted from the lowest of the band, and diagonal 2 j + 1 of the next.
    query, bars, at
        uint8: what a cell of the row of column 0 compares with the reference, and the bar under
        which its loss counts; the rows of the columns behind follow, the last base first. The
        antidiagonal of even diagonals begins an item before, the next pair does so, too.
    ref, ref_at
        uint8, the same in the reference, in its order; the next pair begins an item behind.
    losses
        :class:`ByteLosses`.
    slack
        Losses of so much or more do not count.

    Returns
    -------
    Whether the last two antidiagonals have a cell that loses less than `slack`.
    """

    def plus(row, loss):
        return np.minimum(row.astype(np.int64) + int(loss), LOST).astype(np.uint8)

    band = band.reshape(STATES, -1)
    n = band.shape[1]
    lost = np.full(1, LOST, np.uint8)
    even, odd, most = band[0:3], band[3:6], band[6]
    for pair in range(n_pairs):
        for here, other in ((odd, even), (even, odd)):
            is_even = here is even
            first = at - pair - is_even
            inserted = np.minimum(plus(other[0], losses.insertion_opened),
                                  plus(other[1], losses.insertion))  # fmt: skip
            deleted = np.minimum(plus(other[0], losses.deletion_opened),
                                 plus(other[2], losses.deletion))  # fmt: skip
            if is_even:
                deleted = np.concatenate([lost, deleted[:-1]])
            else:
                inserted = np.concatenate([inserted[1:], lost])
            differ = query[first : first + n] != ref[ref_at + pair : ref_at + pair + n]
            matched = plus(here[0], 0)
            matched[differ] = plus(here[0], losses.mismatch)[differ]
            here[0] = np.minimum(matched, np.minimum(inserted, deleted))
            here[1], here[2] = inserted, deleted
            below = bars[first : first + n].astype(np.int64) - here[0]
            most[:] = np.maximum(most, np.maximum(below, 0))
    return bool((np.minimum(even[0], odd[0]) < slack).any())


def _zext_bits(builder, word, vector):
    """Return the bits of a word as bytes 0 and 1."""
    bits = builder.bitcast(word, ir.VectorType(ir.IntType(1), 64))
    return builder.zext(bits, vector)


def _array_data(context, builder, array_type, array):
    return context.make_array(array_type)(context, builder, array).data


def _check_bytes(*array_types):
    for array_type in array_types:
        if array_type.dtype != types.uint8 or array_type.layout != "C":
            raise TypingError(f"bytes in {array_type}")


@intrinsic
def _spread(typingctx, low, high, ambiguous, shift, codes, at):
    _check_bytes(codes)

    def codegen(context, builder, signature, args):
        low, high, ambiguous, shift, codes, at = args
        vector = ir.VectorType(BYTE, 64)
        run = builder.or_(
            _zext_bits(builder, low, vector),
            builder.shl(_zext_bits(builder, high, vector), constant(vector, 1)),
        )
        amount = _splat(builder, builder.trunc(shift, BYTE), vector)
        run = builder.or_(run, builder.shl(_zext_bits(builder, ambiguous, vector), amount))
        data = _array_data(context, builder, signature.args[4], codes)
        store(builder, builder.gep(data, [at]), run)
        return context.get_dummy_value()

    return types.none(
        types.uint64, types.uint64, types.uint64, types.uint64, codes, types.int64
    ), codegen


@overload(spread, inline="always")
def _spread_compiled(low, high, ambiguous, shift, codes, at):
    return lambda low, high, ambiguous, shift, codes, at: _spread(
        low, high, ambiguous, np.uint64(shift), codes, at
    )


def _splat(builder: Any, value: Any, vector: Any) -> Any:
    """Return a vector with a value everywhere that is not known before."""
    one = builder.insert_element(
        ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
    )
    order = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, one, order)


class _Bytes:
    """Arithmetic on vectors of unsigned bytes."""

    def __init__(self, builder: Any, n: int) -> None:
        self.builder = builder
        self.vector = ir.VectorType(BYTE, n)
        self.n = n

    def _saturating(self, name: str, a: Any, b: Any) -> Any:
        kind = ir.FunctionType(self.vector, [self.vector, self.vector])
        function = self.builder.module.declare_intrinsic(f"llvm.{name}.sat.v{self.n}i8", (), kind)
        return self.builder.call(function, [a, b])

    def plus(self, a: Any, b: Any) -> Any:
        return self._saturating("uadd", a, b)

    def minus(self, a: Any, b: Any) -> Any:
        return self._saturating("usub", a, b)

    def least(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.icmp_unsigned("<", a, b), a, b)

    def most(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.icmp_unsigned(">", a, b), a, b)

    def shifted(self, a: Any, by: int) -> Any:
        """Item j of the result is item j + `by`, or LOST."""
        order = [j + by if 0 <= j + by < self.n else self.n for j in range(self.n)]
        indices = ir.Constant(ir.VectorType(ir.IntType(32), self.n), order)
        return self.builder.shuffle_vector(a, constant(self.vector, LOST), indices)

    def any(self, flags: Any) -> Any:
        bits = self.builder.bitcast(flags, ir.IntType(self.n))
        return self.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))


def _advancing(n: int) -> Any:
    """Return :func:`advance` for bands of n columns."""

    @intrinsic
    def advancing(typingctx, band, query, bars, at, ref, ref_at, n_pairs, losses, slack):
        _check_bytes(band, query, bars, ref)

        def codegen(context, builder, signature, args):
            band, query, bars, at, ref, ref_at, n_pairs, losses, slack = args
            kinds = signature.args
            do = _Bytes(builder, n)
            state = _array_data(context, builder, kinds[0], band)
            query, bars, ref = (
                _array_data(context, builder, kinds[i], array)
                for i, array in ((1, query), (2, bars), (4, ref))
            )
            mismatch, opened_i, longer_i, opened_d, longer_d = (
                _splat(builder, builder.extract_value(losses, i), do.vector) for i in range(5)
            )
            rows = [builder.gep(state, [ir.Constant(WORD, n * i)]) for i in range(STATES)]
            kept = [cgutils.alloca_once_value(builder, load(builder, r, do.vector)) for r in rows]

            def cells(here, other, is_even, codes, bar, letters):
                """One antidiagonal; `here` and `other` are the states H, I, D."""
                inserted = do.least(do.plus(other[0], opened_i), do.plus(other[1], longer_i))
                deleted = do.least(do.plus(other[0], opened_d), do.plus(other[2], longer_d))
                if is_even:
                    deleted = do.shifted(deleted, -1)
                else:
                    inserted = do.shifted(inserted, 1)
                equal = builder.icmp_unsigned("==", codes, letters)
                lost = builder.select(equal, constant(do.vector, 0), mismatch)
                matched = do.plus(here[0], lost)
                score = do.least(matched, do.least(inserted, deleted))
                return (score, inserted, deleted), do.minus(bar, score)

            with cgutils.for_range(builder, n_pairs) as loop:
                even = [builder.load(k) for k in kept[0:3]]
                odd = [builder.load(k) for k in kept[3:6]]
                most = builder.load(kept[6])
                row = builder.sub(at, loop.index)
                before = builder.sub(row, ir.Constant(WORD, 1))
                letters = load(
                    builder, builder.gep(ref, [builder.add(ref_at, loop.index)]), do.vector
                )
                codes, bar = (
                    load(builder, builder.gep(a, [row]), do.vector) for a in (query, bars)
                )
                odd, below = cells(odd, even, False, codes, bar, letters)
                most = do.most(most, below)
                codes, bar = (
                    load(builder, builder.gep(a, [before]), do.vector) for a in (query, bars)
                )
                even, below = cells(even, odd, True, codes, bar, letters)
                most = do.most(most, below)
                for k, value in zip(kept, (*even, *odd, most), strict=True):
                    builder.store(value, k)
            for k, r in zip(kept, rows, strict=True):
                store(builder, r, builder.load(k))
            least = do.least(builder.load(kept[0]), builder.load(kept[3]))
            limit = _splat(builder, builder.trunc(slack, BYTE), do.vector)
            return do.any(builder.icmp_unsigned("<", least, limit))

        return types.boolean(
            band, query, bars, types.int64, ref, types.int64, types.int64, losses, types.int64
        ), codegen

    return advancing


_advance_32, _advance_64, _advance_128 = _advancing(32), _advancing(64), _advancing(128)


@overload(advance, inline="always")
def _advance_compiled(band, query, bars, at, ref, ref_at, n_pairs, losses, slack):
    def run(band, query, bars, at, ref, ref_at, n_pairs, losses, slack):
        if len(band) == STATES * 32:
            return _advance_32(band, query, bars, at, ref, ref_at, n_pairs, losses, slack)
        if len(band) == STATES * 128:
            return _advance_128(band, query, bars, at, ref, ref_at, n_pairs, losses, slack)
        return _advance_64(band, query, bars, at, ref, ref_at, n_pairs, losses, slack)

    return run
