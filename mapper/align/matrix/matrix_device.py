"""Batches of pairs through the matrix kernels of one device."""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import Any

import numpy as np

from mapper.align.dispatch import joined
from mapper.align.matrix.cuda_cells import HALVES_CAPABILITY
from mapper.align.matrix.cuda_engine import Batch, Launcher, codes_on_device, roomy, upload_roomy
from mapper.align.matrix.cuda_plan import ONE_CELL
from mapper.align.matrix.matrix_cuda import (
    GROUPS,
    LANES,
    N_OPS,
    QUERY_BEGIN,
    QUERY_END,
    REF_BEGIN,
    REF_END,
    RESULTS,
    SCORE,
    SCORE_RESULTS,
    gather_kernel,
)
from mapper.align.matrix.matrix_scoring import CodedPairs, Scoring, without_memory
from mapper.align.result import NO_MEMORY, NO_SCORE, OK, Columns, PairAlignments
from mapper.cuda.api import SHARED_BYTES, SIMULATED, cuda
from mapper.cuda.memory import Workspace, copy_out, page_locked, total_bytes
from mapper.cuda.streams import urgent_stream
from mapper.errors import DeviceMemoryError, UsageError
from mapper.parallel.buffers import RECYCLER

log = logging.getLogger(__name__)

_PATH_SHARE = 8
"""A worker takes up to this fraction of a device's memory for the origins of cells."""

_BYTES_A_CELL = 0.75
"""Of origins, half a byte and what strips of fixed height waste, on average of length 100."""

_CELLS = 1 << 36
"""Most cells of a batch: some 30 ms on an H200."""

_spaces: dict[tuple[int, int], tuple[threading.Lock, Workspace, Any]] = {}
"""Of each worker of a device: held while a batch is done, work space, stream for long kernels."""

_spaces_lock = threading.Lock()


def workers_a_device(cigar: bool) -> int:
    """Return how many batches are under way on a device at a time.

    One is computed while the next is planned and uploaded: a batch ends with few long pairs, which
    leave room for it. With paths, a third one is walked back and downloaded meanwhile. (More
    workers stand in each other's way, under Python's one lock.)
    """
    return 3 if cigar else 2


class MatrixWorker:
    """Aligns batches on one device, one after the other.

    Parameters
    ----------
    ordinal, number
        The device, and which of its workers this is: each has work space of its own, which is
        kept from call to call.
    """

    def __init__(self, ordinal: int, number: int, scoring: Scoring) -> None:
        most = SHARED_BYTES // (8 * GROUPS * ONE_CELL.profile_words(0, LANES)) - 1
        if len(scoring.scores) > most:
            raise UsageError(
                f"a matrix of {len(scoring.scores)} letters: devices take up to {most}; use the CPU"
            )
        self._ordinal = ordinal
        self._scoring = scoring
        with cuda.gpus[ordinal], _spaces_lock:
            if (ordinal, number) not in _spaces:
                space = Workspace(stream=urgent_stream())
                _spaces[ordinal, number] = (threading.Lock(), space, cuda.stream())
            self._lock, self._space, fills = _spaces[ordinal, number]
            has_halves, device_bytes = _about(ordinal)
            self._path_bytes = device_bytes // _PATH_SHARE
            self._launcher = Launcher(
                scoring, self._space, fills, has_halves, self._path_bytes // 4
            )

    @property
    def most_cells(self) -> int:
        """Cells that a batch should have at most."""
        if not self._scoring.cigar:
            return _CELLS
        return min(_CELLS, int(self._path_bytes / _BYTES_A_CELL))

    def align(self, pairs: CodedPairs) -> PairAlignments:
        """Align a batch; in halves if the device has no memory for it whole.

        Raises
        ------
        DeviceMemoryError
            If a single pair does not fit.
        """
        try:
            with cuda.gpus[self._ordinal], self._lock:
                try:
                    return self._align(pairs)
                except DeviceMemoryError:
                    self._space.release()
                    raise
        except DeviceMemoryError:
            n = pairs.n_pairs
            if n == 1:
                raise
            log.debug("no device memory for %d pairs; going on with half of them", n)
        return joined(
            [self.align(pairs.part(0, n // 2)), self.align(pairs.part(n // 2, n))],
            self._scoring.cigar,
        )

    def _align(self, pairs: CodedPairs) -> PairAlignments:
        scoring, space = self._scoring, self._space
        n, m = pairs.lengths()
        left_out = without_memory(pairs, scoring)
        if scoring.cigar:
            n[left_out] = 0
            m[left_out] = 0
        query_codes, ref_codes, query_start, ref_start = codes_on_device(space, pairs)
        out = space.device("out", roomy(RESULTS * len(n)), np.int64)[: RESULTS * len(n)]
        batch = Batch(
            n, m, query_start, ref_start, query_codes, ref_codes, out.reshape(RESULTS, len(n))
        )
        walks = self._launcher.fill(batch)
        if not scoring.cigar:
            found = self._downloaded(out, SCORE_RESULTS, len(n))
            return PairAlignments(*_columns(found, left_out, scoring), None, None)
        ops_start = np.zeros(len(n) + 1, np.int64)
        np.cumsum(n + m + 2, out=ops_start[1:])
        ops = space.device("ops", roomy(int(ops_start[-1])), np.uint32)
        starts = upload_roomy(space, "ops start", ops_start)
        for walk in walks:
            walk(starts, ops)
        found = self._downloaded(out, RESULTS, len(n))
        offsets = np.zeros(len(n) + 1, np.int64)
        np.cumsum(np.where(left_out, 0, found[N_OPS]), out=offsets[1:])
        n_ops = int(offsets[-1])
        flat = space.device("flat ops", roomy(n_ops), np.uint32)
        gather_kernel.launch_blocks(
            len(n), space.stream, ops, starts, upload_roomy(space, "offsets", offsets), flat
        )
        result = page_locked(n_ops, np.dtype(np.uint32))
        if n_ops:
            copy_out(result, flat, n_ops, space.stream)
        columns = _columns(found, left_out, scoring)
        space.synchronize()
        return PairAlignments(*columns, offsets, result)

    def _downloaded(self, out: Any, n_rows: int, n_pairs: int) -> np.ndarray:
        """Fetch the first rows of the results, to be kept: int64 (n_rows, n_pairs)."""
        host = page_locked(n_rows * n_pairs, np.dtype(np.int64))
        copy_out(host, out, len(host), self._space.stream)
        self._space.synchronize()
        return host.reshape(n_rows, n_pairs)


@cache
def _about(ordinal: int) -> tuple[bool, int]:
    """Say of the current device if it computes halves, and its bytes of memory."""
    capability = cuda.get_current_device().compute_capability
    return SIMULATED or tuple(capability) >= HALVES_CAPABILITY, total_bytes()


def _columns(found: np.ndarray, left_out: np.ndarray, scoring: Scoring) -> Columns:
    """Return the columns of the result; pairs that were left out have nothing but a status."""
    n = len(left_out)
    if scoring.cigar:
        starts = [found[QUERY_BEGIN], found[REF_BEGIN]]
    else:  # from a recycler, as new memory is slow at first
        starts = [RECYCLER.empty(8 * n).view(np.int64) for _ in range(2)]
        for start in starts:
            start.fill(0 if scoring.starts_whole else -1)
    score, query_end, ref_end = (found[row] for row in (SCORE, QUERY_END, REF_END))
    status = np.full(n, OK, np.int8)
    columns = Columns(score, status, starts[0], query_end, starts[1], ref_end)
    if left_out.any():
        status[left_out] = NO_MEMORY
        score[left_out] = NO_SCORE
        for span in columns[2:]:
            span[left_out] = -1
    return columns
