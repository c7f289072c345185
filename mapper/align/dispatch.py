"""Batches of pairs over CUDA devices, with the CPU for what does not fit them.

Chunks of pairs go to whichever device is free; results come back in input order. A device
without the memory for a chunk gets it in halves. Pairs that a device leaves are aligned on
the CPU by the same cores, with the same result, while the device goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from mapper.align.packing import PackedPairs
from mapper.align.result import Columns, PairAlignments, new_columns
from mapper.align.threads import chunk_bounds
from mapper.errors import DeviceMemoryError
from mapper.jit.accelerate import driver
from mapper.parallel.map import in_order, threads_for

log = logging.getLogger(__name__)

CHUNK_PAIRS = 1 << 18
CHUNK_SYMBOLS = 1 << 27


class Worker(Protocol):
    """What aligns on one device."""

    def align(
        self, packed: PackedPairs, want_path: bool, columns: Columns, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Fill the rows of the pairs that the device can do.

        Returns
        -------
        left, done, ops
            Pairs that are left, pairs that are done in the order of their operations, and
            these (uint32, flat).
        """

    def release(self) -> None:
        """Free the device's memory."""


Rescue = Callable[[PackedPairs], PairAlignments]
"""Aligns pairs on the CPU."""


def run_on_devices(
    workers: Sequence[Worker], packed: PackedPairs, want_path: bool, rescue: Rescue
) -> PairAlignments:
    """Align all pairs, in chunks, by several workers.

    What a worker leaves of a chunk is rescued while it goes on with the next.
    """
    bounds = chunk_bounds(packed.query_len + packed.ref_len, CHUNK_SYMBOLS, CHUNK_PAIRS)
    chunks = [packed_part(packed, first, last) for first, last in bounds]
    # One thread: a rescue takes all cores by itself.
    with threads_for(1, abandon=True) as cpu:

        def align(worker: Worker, chunk: PackedPairs) -> list[Future[PairAlignments]]:
            return [
                cpu.submit(_rescued, part, want_path, rescue)
                for part in _on_device(worker, chunk, want_path)
            ]

        begun = list(in_order([partial(align, worker) for worker in workers], chunks))
        return joined([future.result() for parts in begun for future in parts], want_path)


def packed_part(packed: PackedPairs, first: int, last: int) -> PackedPairs:
    """Return pairs first:last with their words only."""
    query_words, query_start = _words(packed.query_words, packed.query_start, first, last)
    ref_words, ref_start = _words(packed.ref_words, packed.ref_start, first, last)
    rows = slice(first, last)
    return PackedPairs(
        query_words, query_start, packed.query_len[rows], ref_words, ref_start,
        packed.ref_len[rows], packed.shift[rows],
    )  # fmt: skip


def _words(
    words: np.ndarray, starts: np.ndarray, first: int, last: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of some sequences, with a word before and two behind, and their starts."""
    begin = int(starts[first]) - 1
    end = int(starts[last]) + 2 if last < len(starts) else len(words)
    return words[begin:end], starts[first:last] - begin


class _Part(NamedTuple):
    """Pairs of a chunk, as a worker has done them."""

    packed: PackedPairs
    columns: Columns
    counts: np.ndarray  # int64 (n,): operations of each pair
    left: np.ndarray  # int64: pairs that are left
    done: np.ndarray  # int64: the others, in the order of their operations
    ops: np.ndarray  # uint32


def _on_device(worker: Worker, packed: PackedPairs, want_path: bool) -> list[_Part]:
    """Align one chunk; in halves if the device has no memory for it whole."""
    n = len(packed.shift)
    columns, counts = new_columns(n), np.zeros(n, np.int64)
    try:
        return [_Part(packed, columns, counts, *worker.align(packed, want_path, columns, counts))]
    except DeviceMemoryError:
        worker.release()
        if n == 1:
            raise
        log.debug("no device memory for %d pairs; going on with half of them", n)
    halves = [packed_part(packed, 0, n // 2), packed_part(packed, n // 2, n)]
    return [part for half in halves for part in _on_device(worker, half, want_path)]


def _rescued(part: _Part, want_path: bool, rescue: Rescue) -> PairAlignments:
    """Align the pairs that are left, and put all operations in the order of the pairs."""
    packed, columns, counts, left, done, ops = part
    all_pairs, all_ops = [done], [ops]
    if len(left):
        rescued = rescue(
            packed._replace(
                query_start=packed.query_start[left], query_len=packed.query_len[left],
                ref_start=packed.ref_start[left], ref_len=packed.ref_len[left],
                shift=packed.shift[left],
            )
        )  # fmt: skip
        for column, values in zip(columns, rescued[:6], strict=True):
            column[left] = values
        if rescued.cigar_offsets is not None and rescued.cigar_ops is not None:
            counts[left] = np.diff(rescued.cigar_offsets)
            all_pairs.append(left)
            all_ops.append(rescued.cigar_ops)
    if not want_path:
        return PairAlignments(*columns, None, None)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    flat = np.empty(int(offsets[-1]), np.uint32)
    scatter_ops(np.concatenate(all_pairs), np.concatenate(all_ops), offsets, flat)
    return PairAlignments(*columns, offsets, flat)


@driver
def scatter_ops(pairs, ops, offsets, flat):
    """Put the operations of each pair, which follow one another in `ops`, at its offset."""
    at = 0
    for i in range(len(pairs)):
        start, end = offsets[pairs[i]], offsets[pairs[i] + 1]
        for x in range(start, end):
            flat[x] = ops[at + x - start]
        at += end - start


def joined(parts: list[PairAlignments], want_path: bool) -> PairAlignments:
    """Return the results of several chunks as one."""
    if not parts:
        nothing = np.zeros(1, np.int64), np.empty(0, np.uint32)
        return PairAlignments(*new_columns(0), *(nothing if want_path else (None, None)))
    columns = [np.concatenate([part[i] for part in parts]) for i in range(6)]
    if not want_path:
        return PairAlignments._make([*columns, None, None])
    counts = [np.diff(part.cigar_offsets) for part in parts if part.cigar_offsets is not None]
    ops = [part.cigar_ops for part in parts if part.cigar_ops is not None]
    offsets = np.zeros(len(columns[0]) + 1, np.int64)
    np.cumsum(np.concatenate(counts), out=offsets[1:])
    return PairAlignments._make([*columns, offsets, np.concatenate(ops)])
