"""Many short pairs on CUDA devices, as they lie in memory: the first pass of a batch.

The letters of a chunk of pairs are copied to pinned memory, from there to a device, packed and
aligned there, and the results come back the same way; the host does nothing else. Several
threads do so at a time, each with a stream and memory of its own, so that copies and kernels of
different chunks overlap. Pairs with other letters than A C G T, and those that do not fit the
small work space of a kernel, are left to what follows.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mapper.accelerate import driver
from mapper.device.memory import Workspace
from mapper.device.seam import SIMULATED
from mapper.errors import DeviceMemoryError
from mapper.pairwise.affine_space import affine_space
from mapper.pairwise.cuda_batch import LEFT, public_status, workspace_of
from mapper.pairwise.flat_kernels import (
    BLOCK,
    SMALL,
    FlatResults,
    FlatSide,
    count_blocks_kernel,
    gather_slots_kernel,
    small_affine_kernel,
    small_edit_kernel,
    sum_blocks_kernel,
)
from mapper.pairwise.on_device import scatter_ops
from mapper.pairwise.packing import PairBatch, selected
from mapper.pairwise.result import Columns, PairAlignments, new_columns
from mapper.pairwise.small_rows import small_layout
from mapper.pairwise.wavefront_affine import AffinePenalties, Band
from mapper.pairwise.wavefront_edit import Rows

log = logging.getLogger(__name__)

CHUNK_PAIRS = 1 << 17
CHUNK_SYMBOLS = 1 << 27
"""Of one side, also those that lie between its sequences."""

STREAMS = 1 if SIMULATED else 8
"""Chunks at work on a device: one thread copies 10 GB/s, a PCIe link five times that."""

COPYING_THREADS = 4

Rest = Callable[[PairBatch, np.ndarray], PairAlignments]
"""Aligns pairs that are left, of the given numbers."""

AFFINE_BOUND = 40
"""Greatest (divided) penalty of the first pass."""

AFFINE_THREADS = 1 << (8 if SIMULATED else 15)
"""Threads of a chunk: with usual penalties their work space takes 0.4 GB."""


class FlatMetric(ABC):
    """What aligns the pairs of a chunk."""

    slot: int
    """Most operations of a path."""

    @abstractmethod
    def launch(
        self, space: Workspace, queries: FlatSide, refs: FlatSide, n: int, want_path: bool,
        out: FlatResults,
    ) -> None:  # fmt: skip
        """Queue the kernel."""


class SmallEdit(FlatMetric):
    """Global edit distances up to SMALL."""

    slot = 2 * SMALL + 2

    def __init__(self, max_distance: int) -> None:
        self._max_distance = max_distance

    def launch(
        self, space: Workspace, queries: FlatSide, refs: FlatSide, n: int, want_path: bool,
        out: FlatResults,
    ) -> None:  # fmt: skip
        """Queue the kernel."""
        host = small_layout(SMALL, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"layout {name}", column) for name, column in host._asdict().items()
        )
        small_edit_kernel.launch(
            n, space.stream, queries, refs, self._max_distance, int(want_path), layout, self.slot,
            out,
        )  # fmt: skip


class SmallAffine(FlatMetric):
    """Global gap-affine alignments up to BOUND; penalties have been divided by `scale`."""

    slot = 2 * AFFINE_BOUND + 2

    def __init__(
        self, penalties: AffinePenalties, scale: int, max_penalty: int, band: Band
    ) -> None:
        self._penalties = penalties
        self._scale = scale
        self._max_penalty = max_penalty
        self._band = band

    def launch(
        self, space: Workspace, queries: FlatSide, refs: FlatSide, n: int, want_path: bool,
        out: FlatResults,
    ) -> None:  # fmt: skip
        """Queue the kernel."""
        n_threads = min(AFFINE_THREADS, (n + BLOCK - 1) // BLOCK * BLOCK)
        own = affine_space(space, self._penalties, AFFINE_BOUND, n_threads, 0, want_path)
        small_affine_kernel.launch(
            n_threads, space.stream, queries, refs, self._penalties, self._scale,
            self._max_penalty, self._band, AFFINE_BOUND, int(want_path), own, out,
        )  # fmt: skip


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
    chunks = _chunks(batch)
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


def _chunks(batch: PairBatch) -> list[tuple[int, int]]:
    """Cut a batch into runs of pairs; of pairs out of order each is one."""
    bounds, first, n = [], 0, batch.n_pairs
    while first < n:
        last = min(first + CHUNK_PAIRS, n)
        while last > first + 1 and max(
            _span(batch.query_start, batch.query_end, first, last)[2],
            _span(batch.ref_start, batch.ref_end, first, last)[2],
        ) > CHUNK_SYMBOLS:  # fmt: skip
            last = first + (last - first) // 2
        bounds.append((first, last))
        first = last
    return bounds


@driver
def _span(start, end, first, last):
    """Return the first byte of some sequences, that behind the last, and their number."""
    begin, behind = start[first], end[first]
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
    return begin, behind, behind - begin


def _align(
    space: Workspace, metric: FlatMetric, batch: PairBatch, first: int, last: int,
    want_path: bool, columns: Columns, counts: np.ndarray, left: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Align one chunk, and write its rows; return the operations."""
    n = last - first
    rows = slice(first, last)
    queries = _upload(space, "query", batch.queries, batch.query_start[rows], batch.query_end[rows])
    refs = _upload(space, "ref", batch.refs, batch.ref_start[rows], batch.ref_end[rows])
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
    if want_path:
        flat = space.device("flat", n * slot + 1, np.uint32)
        count_blocks_kernel.launch(n, space.stream, out.n_ops, out.totals)
        sum_blocks_kernel.launch_blocks(1, space.stream, out.totals, n_blocks)
        gather_slots_kernel.launch(n, space.stream, out, slot, flat)
        total = space.download("total", out.totals[n_blocks:])
        n_ops = space.download("n_ops", out.n_ops)
    space.synchronize()
    columns.score[rows] = score
    columns.status[rows] = public_status(score, status)
    np.equal(status, LEFT, out=left[rows])
    columns.query_start[rows] = columns.ref_start[rows] = 0
    np.subtract(batch.query_end[rows], batch.query_start[rows], out=columns.query_end[rows])
    np.subtract(batch.ref_end[rows], batch.ref_start[rows], out=columns.ref_end[rows])
    without = np.flatnonzero(score < 0) + first
    for column in columns[2:]:
        column[without] = -1
    if not want_path:
        return np.empty(0, np.uint32)
    ops = space.download("flat", flat[: int(total[0])])
    counts[rows] = n_ops
    space.synchronize()
    return ops.copy()


def _upload(
    space: Workspace, side: str, letters: np.ndarray, start: np.ndarray, end: np.ndarray
) -> FlatSide:
    """Queue the copies of the letters and places of a side."""
    n = len(start)
    origin, behind, n_bytes = _span(start, end, 0, n)
    # Whole words, and one behind, as eight letters are loaded at a time.
    n_words = n_bytes // 8 + 2
    staged = space.pinned(f"{side} letters", n_words, np.uint64)
    staged.view(np.uint8)[:n_bytes] = letters[origin:behind]
    on_device = space.device(f"{side} letters", n_words, np.uint64)
    on_device.copy_to_device(staged, stream=space.stream)
    return FlatSide(
        on_device, space.upload(f"{side} start", start), space.upload(f"{side} end", end), origin,
        space.device(f"{side} words", n_bytes // 32 + n + 8, np.uint64),
    )  # fmt: skip
