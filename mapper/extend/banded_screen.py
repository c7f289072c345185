"""Bound the objective of a side's gapped extensions on the CPU, before the wavefront searches it.

Few searches with gaps beat the alignment without: most end with a proof that nothing does. The
wavefront (``wavefront.py``) takes a cell at a time for that, with a lookup of the least loss ahead
in every cell. This is the same recurrence as a banded matrix, without paths: the cells of an
antidiagonal are independent, so that a vector register takes 32 of them at a time. It finds the
highest objective; the wavefront is run only where that exceeds the floor. The wavefront alone
decides what an alignment is: this screen changes no result, it only spares searches. CUDA devices
do without it.

A cell (v, h) counts, in score units, what is lost of the matches of its v bases of the read::

    I(v, h) = min(H(v-1, h) + o + e + a, I(v-1, h) + e + a)
    D(v, h) = min(H(v, h-1) + o + e, D(v, h-1) + e)
    H(v, h) = min(H(v-1, h-1) + (a + b if the bases differ), I(v, h), D(v, h))

with match a, mismatch -b, and a gap of n bases -(o + n e). Losses only grow along a path, so that
cells that have lost too much need no exact value: bytes that saturate at 255 are enough where less
than that can be lost.

The antidiagonals stay in registers (:func:`advance`, built as LLVM IR): compiled from Python they
would be kept in memory, and an antidiagonal reads the last one shifted by a cell, which a processor
cannot forward from its store buffer. The Python body of each such function defines its result, and
runs where the JIT is off.

References
----------
Gotoh (1982), doi:10.1016/0022-2836(82)90398-9: the recurrence. Wozniak (1997),
doi:10.1093/bioinformatics/13.2.145: by antidiagonals.
"""

# Why this is not the byte kernel of align/affine/banded.py: that stores differences of neighbours,
# four a cell, and knows a score on one diagonal only, where this needs the loss of every cell (any
# may be the end, or dead) and stops at 255, far below what that must count up to.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from mapper.dna import plane_word
from mapper.jit.accelerate import core
from mapper.jit.bounds import check_items
from mapper.jit.intrinsics import reversed_bits
from mapper.jit.simd import BYTE, WORD, constant, load, store
from mapper.params import ExtendParams

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
        check_items(context, builder, signature.args[4], codes, at, 64)
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
            check_items(context, builder, kinds[0], band, WORD(0), n * STATES)
            rows, lowest = builder.add(n_pairs, WORD(n)), builder.sub(at, n_pairs)
            for i, first, accessed in (
                (1, lowest, rows), (2, lowest, rows), (4, ref_at, builder.sub(rows, WORD(1)))
            ):  # fmt: skip
                check_items(context, builder, kinds[i], args[i], first, accessed)
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


UNKNOWN = 2**30
"""Objective that :func:`highest_objective` gives where it does not look."""

_NARROW, _MIDDLE, _WIDE = 32, 64, 128  # columns; each has two diagonals
_PAIRS = 8  # antidiagonals, by two, between looks at whether any cell is alive

_QUERY_BIT, _REF_BIT = 2, 3
"""Bits of the codes of ambiguous bases, which then differ from all others; so differs what lies
outside read or contig."""

_FRONT = _WIDE + _PAIRS
"""Items outside before those of the rows, and before those of the columns."""


class BandedScreen(NamedTuple):
    """Workspace, and what differences lose. Arrays are uint8."""

    query: np.ndarray
    bars: np.ndarray
    ref: np.ndarray
    narrow: np.ndarray  # (STATES * 32,)
    middle: np.ndarray  # (STATES * 64,)
    wide: np.ndarray  # (STATES * 128,)
    losses: ByteLosses


def new_banded_screen(max_read_len: int, params: ExtendParams) -> BandedScreen:
    """Allocate workspace for any side of a read up to `max_read_len`."""
    n = _FRONT + max_read_len + 2 * _WIDE + _PAIRS + 64  # codes are written by words
    query, bars, ref = (np.zeros(n, np.uint8) for _ in range(3))
    query[:_FRONT], ref[:_FRONT] = 1 << _QUERY_BIT, 1 << _REF_BIT
    opened = params.gap_open + params.gap_extend
    lost = (
        params.match + params.mismatch, opened + params.match, params.gap_extend + params.match,
        opened, params.gap_extend,
    )  # fmt: skip
    losses = ByteLosses(*(np.uint8(min(loss, LOST)) for loss in lost))
    narrow, middle, wide = (np.empty(STATES * n, np.uint8) for n in (_NARROW, _MIDDLE, _WIDE))
    return BandedScreen(query, bars, ref, narrow, middle, wide, losses)


@core
def _write_codes(planes, word, start, n, n_more, descending, bit, codes):
    """Write the codes of n bases from `start` on, or of those before the n-th, the last first.

    They go to item _FRONT and on, and at least `n_more` codes of what is outside behind them.
    """
    for done in range(0, n + n_more, 64):
        low = high = np.uint64(0)
        ambiguous = ~np.uint64(0)
        if done < n:
            pos = start + n - 64 - done if descending else start + done
            before = np.uint64(max(-pos, np.int64(0)))  # bases before the first of the planes
            pos = max(pos, np.int64(0))
            low = plane_word(planes, word, pos, 0) << before
            high = plane_word(planes, word, pos, 1) << before
            ambiguous = plane_word(planes, word, pos, 2) << before
            if descending:
                low, high = reversed_bits(low), reversed_bits(high)
                ambiguous = reversed_bits(ambiguous)
            if n - done < 64:
                ambiguous |= ~np.uint64(0) << np.uint64(n - done)
        spread(low, high, ambiguous, bit, codes, _FRONT + done)


@core
def highest_objective(query_planes, text_planes, side, params, floor, insertions, deletions, space):
    """Bound the objective of a side's extensions, where bytes are enough for that.

    Parameters
    ----------
    side, floor, insertions, deletions
        As for :func:`mapper.extend.wavefront.extend_side`; `floor` is less than a perfect
        side brings.
    space
        A :class:`BandedScreen`, or None: then nothing is known.

    Returns
    -------
    Doubled objective: no extension exceeds both it and `floor`, and one reaches it if it exceeds
    `floor`, unless that one strays from the band, leaves the contig, or loses all on its way. Or
    UNKNOWN.
    """
    if space is None:
        return np.int64(UNKNOWN)
    # A cell that loses less than its bar exceeds the floor if the alignment ends there.
    room, match, worth = np.int64(side.query_room), np.int64(params.match), floor >> 1
    slack = match * room + params.end_bonus - worth
    # Column j of the band is diagonal 2 (j - corner), and that behind it.
    corner = (insertions + 1) >> 1
    n = corner + (deletions >> 1) + 1
    if slack > LOST or n > _WIDE:
        return np.int64(UNKNOWN)
    band = space.wide
    if n <= _NARROW:
        n, band = np.int64(_NARROW), space.narrow
    elif n <= _MIDDLE:
        n, band = np.int64(_MIDDLE), space.middle
    else:
        n = np.int64(_WIDE)
    # What row v compares lies in item first_row - v, as its bar; column h in item h + _FRONT - 1.
    first_row = _FRONT + room
    query_start, text_start = side.query_pos, side.text_pos
    text_room = min(np.int64(side.text_room), room + deletions)
    if not side.forward:
        query_start, text_start = query_start - room, text_start - text_room
    _write_codes(
        query_planes, side.query_word, query_start, room, n, side.forward, _QUERY_BIT, space.query
    )
    _write_codes(
        text_planes, 0, text_start, text_room, room + 2 * n + _PAIRS - text_room,
        not side.forward, _REF_BIT, space.ref,
    )  # fmt: skip
    space.bars[_FRONT] = slack
    for i in range(np.uint64(first_row - room + 1), np.uint64(first_row + n)):
        space.bars[i] = max(match * (first_row - np.int64(i)) - worth, 0)
    for i in range(STATES * n):
        band[i] = LOST if i < (STATES - 1) * n else 0
    band[corner] = 0
    band[(STATES - 1) * n + corner] = space.bars[first_row]
    done = np.int64(0)
    alive = True
    while alive and done <= room + (deletions >> 1):
        # Column 0 of the antidiagonal behind the corner is row `corner`, too.
        alive = advance(
            band, space.query, space.bars, first_row - corner - done, space.ref,
            _FRONT - corner + done, _PAIRS, space.losses, slack,
        )  # fmt: skip
        done += _PAIRS
    most = np.int64(0)
    for i in range((STATES - 1) * n, STATES * n):
        most = max(most, np.int64(band[i]))
    return 2 * (worth + most)
