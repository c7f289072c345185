"""Matrix alignment of coded pairs, on the CPU or on devices, with the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mapper.align.matrix.cpu import align_matrix_pairs
from mapper.align.matrix.scoring import CodedPairs, Scoring, numbers_for
from mapper.align.result import Columns, PairAlignments
from mapper.align.threads import chunk_bounds, run_chunks
from mapper.cuda.devices import CPU, choose_device
from mapper.parallel.map import any_idle, map_in_threads, ordered_map

if TYPE_CHECKING:
    from mapper.align.matrix.cuda_engine import MatrixWorker

Item = TypeVar("Item")
Result = TypeVar("Result")

Align = Callable[[CodedPairs], PairAlignments]
"""Aligns a batch."""

BATCH_PAIRS = 1 << 17
"""Most pairs of a batch of a device."""

_BATCHES_A_WORKER = 3
"""Batches that each worker gets at least, given enough work."""

_WINDOWS_A_DEVICE = 48
"""Windows that each device would get if all were as small as the first.

With fewer, devices start and end at different times; with more, their workers wait for the GIL,
which each window holds for half a millisecond (four H200: 3.75 times one with 48, 3.67 with 32 or
96).
"""

_FEW_CELLS = 1 << 33
"""Cells of a batch that is too small to cut, about two milliseconds."""

_CELLS_A_SYMBOL = 256  # a chunk of run_chunks holds so many cells for each symbol it counts
_CPU_CELLS = 1 << 34


class MatrixEngine:
    """Aligns batches of pairs.

    Parameters
    ----------
    device, threads
        As for :func:`mapper.align_matrix`.
    """

    def __init__(self, scoring: Scoring, device: str, threads: int | None) -> None:
        self._scoring = scoring
        self._threads = threads
        self._workers: list[MatrixWorker] = []
        self._n_devices = 1
        choice = choose_device(device)
        if choice.backend != CPU:
            from mapper.align.matrix.cuda_engine import MatrixWorker, workers_a_device

            self._n_devices = len(choice.ordinals)
            n_workers = workers_a_device(scoring.cigar)
            self._workers = [
                MatrixWorker(ordinal, n_workers * place + number, scoring)
                for number in range(n_workers)
                for place, ordinal in enumerate(choice.ordinals)
            ]

    def batch_cells(self, n_cells: int) -> int:
        """Return the cells of a batch, such that all workers have work and memory suffices."""
        if not self._workers:
            return _CPU_CELLS
        return self._within_limits(n_cells // (_BATCHES_A_WORKER * len(self._workers)))

    def window_cells(self, number: int, left: int, total: int) -> int:
        """Return the cells of the next one of many batches.

        Parameters
        ----------
        number, left, total
            Number of the batch; remaining cells; all cells.

        Notes
        -----
        The first batch of each device is small, so that it has work soon, and each next one is
        twice as large. The last ones shrink, so that all devices end at the same time.
        """
        if not self._workers:
            return _CPU_CELLS
        least = total // (_WINDOWS_A_DEVICE * self._n_devices)
        growing = least << min(number // self._n_devices, 32)
        return self._within_limits(min(growing, max(left // len(self._workers), least)))

    def _within_limits(self, n_cells: int) -> int:
        return max(min(self._workers[0].most_cells, max(n_cells, _FEW_CELLS)), 1)

    def align(self, pairs: CodedPairs) -> PairAlignments:
        """Align all pairs; idle devices take batches, the most expensive first."""
        if not self._workers:
            return self._on_cpu(pairs)
        cells = pairs.cells()
        bounds = chunk_bounds(cells, self.batch_cells(int(cells.sum())), BATCH_PAIRS)
        if len(bounds) == 1:
            return self._workers[0].align(pairs)
        out = _Joined(pairs.n_pairs, self._scoring.cigar)

        def work(align: Align, rows: tuple[int, int]) -> None:
            out.put(*rows, align(pairs.part(*rows)))

        costs = [int(cells[first:last].sum()) for first, last in bounds]
        workers = [partial(work, worker.align) for worker in self._workers]
        map_in_threads(any_idle(workers), bounds, len(workers), costs=costs)
        return out.result(len(self._workers))

    def map_each(
        self, function: Callable[[Align, Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Call a function for each item; yield the results in order.

        Its first argument is a function that aligns a batch of at most :meth:`window_cells`
        cells. The threads of the workers call it, one for each worker.
        """
        if self._workers:
            workers = [partial(function, worker.align) for worker in self._workers]
            yield from ordered_map(any_idle(workers), items, len(workers))
        else:
            yield from map(partial(function, self._on_cpu), items)

    def _on_cpu(self, pairs: CodedPairs) -> PairAlignments:
        scoring = self._scoring

        def align(first: int, last: int, columns: Columns, counts: np.ndarray) -> np.ndarray:
            n, m = pairs.part(first, last).lengths()
            ops: np.ndarray = align_matrix_pairs(
                *pairs, first, last, scoring.scores, numbers_for(int((n + m).max()), scoring),
                scoring.gaps, scoring.mode, scoring.memory, scoring.cigar, columns, counts,
            )  # fmt: skip
            return ops

        return run_chunks(align, pairs.cells() // _CELLS_A_SYMBOL + 1, scoring.cigar, self._threads)


class _Joined:
    """Joined results of batches, which any thread may add."""

    def __init__(self, n_pairs: int, cigar: bool) -> None:
        spans = [np.empty(n_pairs, np.int64) for _ in range(4)]
        self._columns = Columns(np.empty(n_pairs, np.int64), np.empty(n_pairs, np.int8), *spans)
        self._offsets = np.zeros(n_pairs + 1, np.int64) if cigar else None
        self._ops: dict[int, np.ndarray] = {}  # by the batch's first pair

    def put(self, first: int, last: int, found: PairAlignments) -> None:
        """Copy the results of pairs first:last."""
        for column, values in zip(self._columns, found, strict=False):
            column[first:last] = values
        if self._offsets is not None:
            assert found.cigar_offsets is not None and found.cigar_ops is not None
            np.subtract(
                found.cigar_offsets[1:], found.cigar_offsets[:-1],
                out=self._offsets[first + 1 : last + 1],
            )  # fmt: skip
            self._ops[first] = found.cigar_ops

    def result(self, n_threads: int) -> PairAlignments:
        """Return the result of all pairs, after all batches have been added."""
        offsets = self._offsets
        if offsets is None:
            return PairAlignments(*self._columns, None, None)
        np.cumsum(offsets, out=offsets)
        ops = np.empty(int(offsets[-1]), np.uint32)

        def copy(first: int) -> None:
            some = self._ops.pop(first)
            ops[offsets[first] : offsets[first] + len(some)] = some

        map_in_threads(copy, list(self._ops), n_threads)
        return PairAlignments(*self._columns, offsets, ops)
