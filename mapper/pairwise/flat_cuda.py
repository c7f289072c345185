"""Many short pairs on CUDA devices, as they lie in memory: the first pass of a batch.

The letters of a chunk of pairs are copied to pinned memory, from there to a device, packed and
aligned there, and the results come back the same way; the host does nothing else. Several
threads do so at a time, each with a stream and memory of its own, so that copies and kernels of
different chunks overlap. Pairs with other letters than A C G T, and those that do not fit the
small work space of a kernel, are left to what follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mapper.device.memory import Workspace
from mapper.device.seam import SIMULATED
from mapper.errors import DeviceMemoryError
from mapper.pairwise.cuda_batch import workspace_of
from mapper.pairwise.flat_batch import chunks_of, fill_rows, selected, span_of, stage_places
from mapper.pairwise.flat_kernels import (
    BLOCK,
    FlatResults,
    FlatSide,
    count_blocks_kernel,
    gather_slots_kernel,
    sum_blocks_kernel,
)
from mapper.pairwise.flat_metrics import FlatMetric
from mapper.pairwise.on_device import scatter_ops
from mapper.pairwise.packing import PairBatch
from mapper.pairwise.result import Columns, PairAlignments, new_columns

log = logging.getLogger(__name__)

STREAMS = 1 if SIMULATED else 8
"""Chunks at work on a device: one thread copies 10 GB/s, a PCIe link five times that."""

COPYING_THREADS = 4

Rest = Callable[[PairBatch, np.ndarray], PairAlignments]
"""Aligns pairs that are left, of the given numbers."""


def first_pass(
    ordinals: Sequence[int], metric: FlatMetric, batch: PairBatch, want_path: bool,
    columns: Columns, counts: np.ndarray,
) -> tuple[np.ndarray, list[np.ndarray]]:  # fmt: skip
    """Fill the rows of the pairs that fit.

    Returns
    -------
    left, ops
        Which pairs are left: bool (n,). Operations of all others, in order: uint32, in pieces.
    """
    left = np.zeros(batch.n_pairs, np.bool_)
    chunks = chunks_of(batch)
    places = [(ordinal, i) for i in range(STREAMS) for ordinal in ordinals][: len(chunks)]
    if not places:
        return left, []
    waiting = iter(list(enumerate(chunks)))
    ops: list[np.ndarray] = [np.empty(0, np.uint32)] * len(chunks)

    def work(place: tuple[int, int]) -> None:
        with workspace_of(*place) as space:
            for i, (first, last) in waiting:  # next() of a list's iterator is one step
                try:
                    ops[i] = _align(
                        space, metric, batch, first, last, want_path, columns, counts, left
                    )
                except DeviceMemoryError as error:
                    log.debug("%s; %d pairs are left to a later pass", error, last - first)
                    space.release()
                    left[first:last] = True

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(work, places))
    return left, ops


def align_flat(
    ordinals: Sequence[int], metric: FlatMetric, batch: PairBatch, want_path: bool, rest: Rest
) -> PairAlignments:
    """Align all pairs: those that fit in a first pass, the others by `rest`.

    Neither side of the batch needs padding.
    """
    n = batch.n_pairs
    columns = Columns._make(np.empty(n, column.dtype) for column in new_columns(0))
    counts = np.zeros(n, np.int64)
    left, ops = first_pass(ordinals, metric, batch, want_path, columns, counts)
    numbers = np.flatnonzero(left)
    rescued_ops = None
    if len(numbers):
        log.debug("%d of %d pairs are left by the first pass", len(numbers), n)
        found = rest(selected(batch, numbers), numbers)
        for column, values in zip(columns, found[:6], strict=True):
            column[numbers] = values
        if found.cigar_offsets is not None and found.cigar_ops is not None:
            counts[numbers] = np.diff(found.cigar_offsets)
            rescued_ops = found.cigar_ops
    if not want_path:
        return PairAlignments(*columns, None, None)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if rescued_ops is None:
        return PairAlignments(*columns, offsets, _joined(ops))
    flat = np.empty(int(offsets[-1]), np.uint32)
    scatter_ops(np.flatnonzero(~left), _joined(ops), offsets, flat)
    scatter_ops(numbers, rescued_ops, offsets, flat)
    return PairAlignments(*columns, offsets, flat)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return operations in one array, copied by several threads."""
    ends = np.cumsum([0, *(len(part) for part in parts)])
    flat = np.empty(int(ends[-1]), np.uint32)

    def copy(i: int) -> None:
        flat[ends[i] : ends[i + 1]] = parts[i]

    with ThreadPoolExecutor(COPYING_THREADS) as pool:
        list(pool.map(copy, range(len(parts))))
    return flat


def _align(
    space: Workspace, metric: FlatMetric, batch: PairBatch, first: int, last: int,
    want_path: bool, columns: Columns, counts: np.ndarray, left: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Align one chunk, and write its rows; return the operations."""
    n = last - first
    queries = _upload(space, "query", *batch[:3], first, last)
    refs = _upload(space, "ref", *batch[3:], first, last)
    n_blocks = (n + BLOCK - 1) // BLOCK
    slot = metric.slot if want_path else 0
    out = FlatResults(
        space.device("score", n, np.int64), space.device("status", n, np.int8),
        space.device("n_ops", n, np.int32), space.device("slots", n * slot + 1, np.uint32),
        space.device("totals", n_blocks + 1, np.int64),
    )  # fmt: skip
    metric.launch(space, queries, refs, n, want_path, out)
    score, status = space.download("score", out.score), space.download("status", out.status)
    flat: Any = None
    n_ops = np.empty(0, np.int32)
    if want_path:
        flat = space.device("flat", n * slot + 1, np.uint32)
        count_blocks_kernel.launch(n, space.stream, out.n_ops, out.totals)
        sum_blocks_kernel.launch_blocks(1, space.stream, out.totals, n_blocks)
        gather_slots_kernel.launch(n, space.stream, out, slot, flat)
        total = space.download("total", out.totals[n_blocks:])
        n_ops = space.download("n_ops", out.n_ops)
    space.synchronize()
    fill_rows(
        first, score, status, n_ops, batch.query_start, batch.query_end, batch.ref_start,
        batch.ref_end, columns, counts, left,
    )  # fmt: skip
    if not want_path:
        return np.empty(0, np.uint32)
    ops = space.download("flat", flat[: int(total[0])])
    space.synchronize()
    return ops.copy()


def _upload(
    space: Workspace, side: str, letters: np.ndarray, start: np.ndarray, end: np.ndarray,
    first: int, last: int,
) -> FlatSide:  # fmt: skip
    """Queue the copies of the letters and places of a side of a chunk."""
    n = last - first
    origin, behind = span_of(start, end, first, last)
    # Whole words, and one behind, as eight letters are loaded at a time.
    n_bytes = int(behind - origin) // 8 * 8 + 16
    staged = space.pinned(f"{side} letters", n_bytes, np.uint8)
    staged[: behind - origin] = letters[origin:behind]  # twice as fast as a compiled loop
    places = [space.pinned(f"{side} {name}", n, np.int32) for name in FlatSide._fields[1:4]]
    n_words = stage_places(start, end, first, origin, *places)
    on_device = [space.device(f"{side} letters", n_bytes, np.uint8)]
    on_device += [space.device(f"{side} {name}", n, np.int32) for name in FlatSide._fields[1:4]]
    for array, host in zip(on_device, (staged, *places), strict=True):
        array.copy_to_device(host, stream=space.stream)
    words = space.device(f"{side} words", n_words + 8, np.uint64)
    letters_there, starts, lengths, packed_at = on_device
    return FlatSide(letters_there.view(np.uint64), starts, lengths, packed_at, words)
