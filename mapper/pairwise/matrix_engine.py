"""Coded pairs to alignments, on the CPU or on devices, with the same result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from mapper.device.choose import CPU, choose_device
from mapper.device.in_order import in_order
from mapper.device.longest_first import longest_first
from mapper.pairwise.matrix_cpu import align_matrix_pairs
from mapper.pairwise.matrix_scoring import CodedPairs, Scoring
from mapper.pairwise.on_device import joined
from mapper.pairwise.result import PairAlignments
from mapper.pairwise.run import run_chunks

if TYPE_CHECKING:
    from mapper.pairwise.matrix_device import MatrixWorker

BATCH_PAIRS = 1 << 17
"""Most pairs of a batch of a device."""

_BATCHES_A_WORKER = 3
"""Batches that each worker gets, at least, where there is work for so many."""

_WINDOWS_A_WORKER = 8
"""Windows that each worker would get if all were as small as the first."""

_FEW_CELLS = 1 << 31
"""Cells of a batch that is not worth cutting, about a millisecond."""

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
            from mapper.pairwise.matrix_device import WORKERS_A_DEVICE, MatrixWorker

            self._n_devices = len(choice.ordinals)
            self._workers = [
                MatrixWorker(ordinal, WORKERS_A_DEVICE * place + number, scoring)
                for number in range(WORKERS_A_DEVICE)
                for place, ordinal in enumerate(choice.ordinals)
            ]

    def batch_cells(self, n_cells: int) -> int:
        """Return the cells of a batch, so that all workers have work and memory suffices."""
        if not self._workers:
            return _CPU_CELLS
        return self._within_limits(n_cells // (_BATCHES_A_WORKER * len(self._workers)))

    def window_cells(self, number: int, left: int, total: int) -> int:
        """Return the cells of the next batch of many that are made one after the other.

        Parameters
        ----------
        number, left, total
            Batches before; cells that are left, of how many.

        Notes
        -----
        The first of each device is small, so that it has work soon, and the next ones grow,
        while others compute. The last ones are small, too, so that all devices end together.
        """
        if not self._workers:
            return _CPU_CELLS
        least = total // (_WINDOWS_A_WORKER * len(self._workers))
        growing = least * (number // self._n_devices + 1)
        return self._within_limits(min(growing, max(left // len(self._workers), 2 * least)))

    def _within_limits(self, n_cells: int) -> int:
        return max(min(self._workers[0].most_cells, max(n_cells, _FEW_CELLS)), 1)

    def align(self, pairs: CodedPairs) -> PairAlignments:
        """Align all pairs; batches go to whichever device is free, the longest first."""
        if not self._workers:
            return self._on_cpu(pairs)
        cells = pairs.cells()
        bounds = _cut(cells, self.batch_cells(int(cells.sum())))
        batches = [pairs.part(first, last) for first, last in bounds]
        costs = [int(cells[first:last].sum()) for first, last in bounds]
        found = longest_first([worker.align for worker in self._workers], batches, costs)
        return joined(found, self._scoring.cigar) if len(found) != 1 else found[0]

    def align_each(self, batches: Iterable[CodedPairs]) -> Iterator[PairAlignments]:
        """Align batches of no more than :meth:`window_cells`; yield the results in order."""
        if self._workers:
            yield from in_order([worker.align for worker in self._workers], batches)
        else:
            yield from map(self._on_cpu, batches)

    def _on_cpu(self, pairs: CodedPairs) -> PairAlignments:
        scoring = self._scoring
        return run_chunks(
            lambda first, last, columns, counts: align_matrix_pairs(
                *pairs, first, last, scoring.scores, scoring.gaps, scoring.mode, scoring.memory,
                scoring.cigar, columns, counts,
            ),
            pairs.cells() // _CELLS_A_SYMBOL + 1,
            scoring.cigar,
            self._threads,
        )  # fmt: skip


def _cut(cells: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Cut pairs into batches of about `most` cells and at most BATCH_PAIRS pairs."""
    ends = np.cumsum(cells)
    bounds, first, done = [], 0, 0
    while first < len(cells):
        last = int(np.searchsorted(ends, done + most, side="right"))
        last = min(max(last, first + 1), first + BATCH_PAIRS, len(cells))
        bounds.append((first, last))
        first, done = last, int(ends[last - 1])
    return bounds
