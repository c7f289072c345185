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
from mapper.pairwise.cuda_batch import CUT, LEFT, Rung, workspace_of
from mapper.pairwise.flat_kernels import (
    BLOCK,
    UNFIT,
    FlatResults,
    FlatSide,
    count_blocks_kernel,
    gather_slots_kernel,
    more_edit_kernel,
    small_affine_kernel,
    small_edit_kernel,
    sum_blocks_kernel,
)
from mapper.pairwise.on_device import scatter_ops
from mapper.pairwise.packing import PairBatch, selected
from mapper.pairwise.result import HEURISTIC, OK, OVER_LIMIT, Columns, PairAlignments, new_columns
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

MORE_EDITS = 64
"""Greatest distance of the first pass."""

MORE_EDIT_THREADS = 1 << 15
"""Threads of a chunk: their cells take 0.3 GB."""

AFFINE_RUNGS = (Rung(40, 1 << 15), Rung(220, 1 << 12))
"""(Divided) penalties of the first pass, and threads of a chunk: with usual penalties their work
space takes 0.4 GB."""


class FlatMetric(ABC):
    """What aligns the pairs of a chunk."""

    slot: int
    """Most operations of a path."""

    @abstractmethod
    def launch(
        self, space: Workspace, queries: FlatSide, refs: FlatSide, n: int, want_path: bool,
        out: FlatResults,
    ) -> None:  # fmt: skip
        """Queue the kernels."""


class SmallEdit(FlatMetric):
    """Global edit distances, first up to SMALL in fast memory, then up to MORE_EDITS."""

    slot = 2 * MORE_EDITS + 2

    def __init__(self, max_distance: int) -> None:
        self._max_distance = max_distance

    def launch(
        self, space: Workspace, queries: FlatSide, refs: FlatSide, n: int, want_path: bool,
        out: FlatResults,
    ) -> None:  # fmt: skip
        """Queue the kernels."""
        host = small_layout(MORE_EDITS, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"layout {name}", column) for name, column in host._asdict().items()
        )
        small_edit_kernel.launch(
            n, space.stream, queries, refs, self._max_distance, int(want_path), layout, self.slot,
            out,
        )  # fmt: skip
        n_threads = _threads(MORE_EDIT_THREADS, n)
        n_cells = (MORE_EDITS + 1) ** 2
        cells = space.device("cells", n_cells * n_threads, np.int16).reshape((n_cells, n_threads))
        more_edit_kernel.launch(
            n_threads, space.stream, queries, refs, self._max_distance, MORE_EDITS, int(want_path),
            cells, layout, self.slot, out,
        )  # fmt: skip


class SmallAffine(FlatMetric):
    """Global gap-affine alignments; penalties have been divided by `scale`."""

    slot = 2 * AFFINE_RUNGS[-1].bound + 2

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
        """Queue the kernels."""
        for i, rung in enumerate(AFFINE_RUNGS):
            n_threads = _threads(rung.n_threads, n)
            own = affine_space(space, self._penalties, rung.bound, n_threads, 0, want_path)
            small_affine_kernel.launch(
                n_threads, space.stream, queries, refs, self._penalties, self._scale,
                self._max_penalty, self._band, rung.bound, int(i == 0), int(want_path), own,
                self.slot, out,
            )  # fmt: skip


def _threads(most: int, n: int) -> int:
    """Return how many threads to launch for n pairs."""
    return min(most, (n + BLOCK - 1) // BLOCK * BLOCK)


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
        _copy(parts[i], flat[ends[i] : ends[i + 1]])

    with ThreadPoolExecutor(COPYING_THREADS) as pool:
        list(pool.map(copy, range(len(parts))))
    return flat


def _chunks(batch: PairBatch) -> list[tuple[int, int]]:
    """Cut a batch into runs of pairs."""
    bounds, first = [], 0
    while first < batch.n_pairs:
        last = min(
            int(_chunk_end(starts, ends, first, CHUNK_PAIRS, CHUNK_SYMBOLS))
            for starts, ends in (batch[1:3], batch[4:6])
        )
        bounds.append((first, last))
        first = last
    return bounds


@driver
def _chunk_end(start, end, first, most_pairs, most_symbols):
    """Return where a chunk ends: at least one pair, within both limits.

    Symbols are counted in sequences, of which several may be one, and from the first to the last.
    """
    begin, behind = start[first], end[first]
    n_symbols = end[first] - start[first]
    last = min(first + most_pairs, len(start))
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
        n_symbols += end[i] - start[i]
        if max(behind - begin, n_symbols) > most_symbols:
            return i
    return last


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
    _fill(
        first, score, status, n_ops, batch.query_start, batch.query_end, batch.ref_start,
        batch.ref_end, columns, counts, left,
    )  # fmt: skip
    if not want_path:
        return np.empty(0, np.uint32)
    ops = space.download("flat", flat[: int(total[0])])
    space.synchronize()
    own = np.empty_like(ops)
    _copy(ops, own)
    return own


@driver
def _fill(first, score, status, n_ops, query_start, query_end, ref_start, ref_end, columns, counts,
          left):  # fmt: skip
    """Write the rows of a chunk; those of pairs that are left are filled later."""
    for j in range(len(score)):
        i = first + j
        left[i] = status[j] == LEFT or status[j] == UNFIT
        columns.score[i] = score[j]
        columns.status[i] = HEURISTIC if status[j] == CUT else OK
        columns.query_start[i] = columns.ref_start[i] = 0
        columns.query_end[i] = query_end[i] - query_start[i]
        columns.ref_end[i] = ref_end[i] - ref_start[i]
        if score[j] < 0:
            columns.status[i] = OVER_LIMIT
            columns.query_start[i] = columns.ref_start[i] = -1
            columns.query_end[i] = columns.ref_end[i] = -1
        if len(n_ops):
            counts[i] = n_ops[j]


@driver
def _copy(given, own):
    """Copy an array; other than NumPy's, without holding the interpreter."""
    for i in range(len(given)):
        own[i] = given[i]


@driver
def _stage(letters, start, end, first, staged, starts, lengths, words):
    """Copy the letters of a chunk's side, its places in them, and where each is packed.

    Returns
    -------
    The number of words when packed.
    """
    begin = start[first]
    behind = end[first]
    for j in range(len(starts)):
        begin = min(begin, start[first + j])
        behind = max(behind, end[first + j])
    for i in range(behind - begin):
        staged[i] = letters[begin + i]
    n_words = np.int64(0)
    for j in range(len(starts)):
        starts[j] = start[first + j] - begin
        lengths[j] = end[first + j] - start[first + j]
        words[j] = n_words
        n_words += (np.int64(lengths[j]) + 31) >> 5
    return n_words


@driver
def _span(start, end, first, last):
    """Return the number of bytes from the first to the last of some sequences."""
    begin, behind = start[first], end[first]
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
    return behind - begin


def _upload(
    space: Workspace, side: str, letters: np.ndarray, start: np.ndarray, end: np.ndarray,
    first: int, last: int,
) -> FlatSide:  # fmt: skip
    """Queue the copies of the letters and places of a side of a chunk."""
    n = last - first
    # Whole words, and one behind, as eight letters are loaded at a time.
    n_bytes = int(_span(start, end, first, last)) // 8 * 8 + 16
    staged = space.pinned(f"{side} letters", n_bytes, np.uint8)
    places = [space.pinned(f"{side} {name}", n, np.int32) for name in FlatSide._fields[1:4]]
    n_words = _stage(letters, start, end, first, staged, *places)
    copies = [space.device(f"{side} letters", n_bytes, np.uint8)]
    copies += [space.device(f"{side} {name}", n, np.int32) for name in FlatSide._fields[1:4]]
    for copy, host in zip(copies, (staged, *places), strict=True):
        copy.copy_to_device(host, stream=space.stream)
    words = space.device(f"{side} words", n_words + 8, np.uint64)
    letters_there, starts, lengths, places_packed = copies
    return FlatSide(letters_there.view(np.uint64), starts, lengths, places_packed, words)
