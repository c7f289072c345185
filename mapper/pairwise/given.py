"""Pairs as callers give them, on their way to the CPU or to devices, whatever the metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mapper.accelerate import core, driver
from mapper.device.choose import CPU, DeviceChoice
from mapper.errors import UsageError
from mapper.pairwise.packing import (
    MAX_LENGTH,
    PackedPairs,
    PairBatch,
    Sequences,
    batch_of,
    pack_pairs,
)
from mapper.pairwise.result import PairAlignments
from mapper.pairwise.run import in_slices, thread_count

if TYPE_CHECKING:
    from mapper.pairwise.flat_metrics import FlatMetric
    from mapper.pairwise.on_device import Worker

Given = Sequences | PairBatch | PackedPairs


def packed_pairs(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    symbols: str = "dna",
    threads: int | None = None,
    first_pair: int = 0,
) -> PackedPairs:
    """Pack pairs, to be given to :func:`mapper.edit_distance` or :func:`mapper.align_affine`.

    Parameters
    ----------
    queries, refs, symbols, threads, first_pair
        As for :func:`mapper.edit_distance`. The packing carries the rule of what matches.

    Returns
    -------
    The words of both sides, a sequence from a word's start on: 2 bits a symbol for pairs of A, C,
    G and T (A 0, C 1, T 2, G 3), the first in the lowest bits; else 4 or 8.

    Raises
    ------
    UsageError, InputFormatError
        As for :func:`mapper.edit_distance`.
    """
    return pack_pairs(as_batch(queries, refs), symbols, first_pair, thread_count(threads))


def as_batch(
    queries: Sequences | PairBatch, refs: Sequences | None, padded: bool = True
) -> PairBatch:
    """Return a batch, made of two lists if it is none yet; see :func:`batch_of`."""
    if isinstance(queries, PairBatch):
        _check_alone(refs)
        return queries
    if refs is None:
        raise UsageError("references are missing")
    return batch_of(queries, refs, padded)


def _check_alone(refs: Sequences | None) -> None:
    if refs is not None:
        raise UsageError("pairs hold the references already; give no others")


def align_given(
    queries: Given,
    refs: Sequences | None,
    *,
    choice: DeviceChoice,
    symbols: str,
    first_pair: int,
    threads: int | None,
    cigar: bool,
    is_global: bool,
    on_cpu: Callable[[PackedPairs], PairAlignments],
    on_device: Callable[[int], Worker],
    metric: Callable[[], FlatMetric],
) -> PairAlignments:
    """Align pairs where `choice` says, by what a metric brings along for that.

    Parameters
    ----------
    is_global
        Whether no end is free: such pairs go through the first pass of a device.
    on_cpu, on_device
        Aligns packed pairs on the CPU; makes what does so on a device (of this ordinal).
    metric
        Makes what the first pass launches.
    """
    pairs: PairBatch | PackedPairs
    if isinstance(queries, PackedPairs):
        _check_alone(refs)
        check_packed(queries, thread_count(threads))
        pairs = queries
        flat = is_global and bool((pairs.shift == 1).any())
    else:
        # A device takes most pairs as they lie in memory.
        flat = choice.backend != CPU and is_global and symbols in ("dna", "iupac")
        pairs = as_batch(queries, refs, padded=not flat)
        if not flat:
            pairs = pack_pairs(pairs, symbols, first_pair, thread_count(threads))
    if choice.backend == CPU and isinstance(pairs, PackedPairs):
        return on_cpu(pairs)
    from mapper.pairwise.flat_batch import LetterSource
    from mapper.pairwise.flat_packed import PackedSource
    from mapper.pairwise.flat_rest import align_flat
    from mapper.pairwise.on_device import run_on_devices

    workers = [on_device(ordinal) for ordinal in choice.ordinals]

    def rest(left: PairBatch | PackedPairs, numbers: np.ndarray) -> PairAlignments:
        if isinstance(left, PairBatch):
            left = pack_pairs(left, symbols, first_pair, thread_count(threads), numbers)
        return run_on_devices(workers, left, cigar, on_cpu)

    if isinstance(pairs, PackedPairs) and not flat:
        return run_on_devices(workers, pairs, cigar, on_cpu)
    source = PackedSource(pairs) if isinstance(pairs, PackedPairs) else LetterSource(pairs)
    return align_flat(choice.ordinals, metric(), source, cigar, thread_count(threads), rest)


def check_packed(packed: PackedPairs, threads: int) -> None:
    """Raise UsageError unless these are packed pairs as :func:`packed_pairs` leaves them."""
    expected = ["uint64", "int64", "int64", "uint64", "int64", "int64", "uint8"]
    n_pairs = packed.n_pairs
    for name, column, dtype in zip(packed._fields, packed, expected, strict=True):
        if column.dtype != dtype or column.ndim != 1:
            raise UsageError(f"packed pairs: {name} is no flat array of {dtype}")
        if not name.endswith("words") and len(column) != n_pairs:
            raise UsageError(f"packed pairs: {n_pairs} pairs, but {len(column)} in {name}")
    _check_side("queries", *packed[:3], packed.shift, threads)
    _check_side("references", *packed[3:6], packed.shift, threads)


def _check_side(
    side: str, words: np.ndarray, start: np.ndarray, length: np.ndarray, shift: np.ndarray,
    threads: int,
) -> None:  # fmt: skip
    def wrong_place(first: int, last: int) -> int:
        return int(_wrong_place(len(words), start, length, shift, first, last))

    wrong = [pair for pair in in_slices(len(shift), threads, wrong_place) if pair >= 0]
    if wrong:
        raise UsageError(
            f"packed pairs: {side} must lie one behind the other, with a word before the first and "
            f"two behind the last; that of pair {wrong[0]} does not"
        )


@core
def _is_wrong(start, length, shift, behind):
    bits = length << np.int64(shift)
    wrong = (start < 1) | (length < 0) | (length > MAX_LENGTH) | (shift < 1) | (shift > 3)
    return wrong | (start + ((bits + 63) >> 6) > behind)


@driver
def _wrong_place(n_words, start, length, shift, first, last):
    """Return the first of these pairs, which are some, whose words are not where they should be.

    -1 if there is none.
    """
    behind = n_words - 2 if last == len(start) else start[last]
    start, length, shift = start[first:last], length[first:last], shift[first:last]
    n = len(start) - 1
    wrong = _is_wrong(start[n], length[n], shift[n], behind)
    for i in range(n):  # to its end, so that it becomes vector code
        wrong |= _is_wrong(start[i], length[i], shift[i], start[i + 1])
    if not wrong:
        return -1
    for i in range(n):
        if _is_wrong(start[i], length[i], shift[i], start[i + 1]):
            return first + i
    return first + n
