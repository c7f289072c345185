"""Batches of pairs through the matrix kernels of one device."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np

from mapper.device.halves import HALVES_CAPABILITY
from mapper.device.memory import Workspace, total_bytes
from mapper.device.seam import SIMULATED, cuda
from mapper.errors import DeviceMemoryError, UsageError
from mapper.pairwise.matrix_cuda import (
    BLOCK,
    GROUPS,
    LANES,
    SHARED_BYTES,
    MatrixPairs,
    MatrixResults,
    costs_of,
    fill_kernel,
    gather_kernel,
    trace_kernel,
)
from mapper.pairwise.matrix_plan import ONE_CELL, Plan, padded_scores, plan_batch
from mapper.pairwise.matrix_scoring import CodedPairs, Scoring, without_memory
from mapper.pairwise.on_device import joined
from mapper.pairwise.result import NO_MEMORY, OK, Columns, PairAlignments, new_columns

log = logging.getLogger(__name__)

WORKERS_A_DEVICE = 3
"""One computes while others plan, upload, walk back and download: a batch ends with few long pairs,
which leave room for the next."""

_PATH_SHARE = 8
"""A worker takes up to this fraction of a device's memory for the origins of cells."""

_BYTES_A_CELL = 0.75
"""Of origins, half a byte and what strips of fixed height waste, on average of length 100."""

_CELLS = 1 << 36
"""Most cells of a batch: some 20 ms."""

_spaces: dict[tuple[int, int], tuple[threading.Lock, Workspace]] = {}
_spaces_lock = threading.Lock()


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
        self._padded: dict[int, Any] = {}
        with cuda.gpus[ordinal], _spaces_lock:
            self._lock, self._space = _spaces.setdefault(
                (ordinal, number), (threading.Lock(), Workspace())
            )
            capability = cuda.get_current_device().compute_capability
            self._has_halves = SIMULATED or tuple(capability) >= HALVES_CAPABILITY
            self._path_bytes = total_bytes() // _PATH_SHARE

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
        left_out = without_memory(pairs, scoring)
        n = np.where(left_out, 0, pairs.query_end - pairs.query_start)
        m = np.where(left_out, 0, pairs.ref_end - pairs.ref_start)
        plan = plan_batch(
            n, m, pairs.query_start, scoring.scores, scoring.gaps, scoring.mode,
            has_halves=self._has_halves, want_path=scoring.cigar, lanes=LANES, groups=GROUPS,
            shared_bytes=SHARED_BYTES,
        )  # fmt: skip
        on_device = self._uploaded(pairs, n, m, plan)
        out = MatrixResults._make(
            [space.device(f"out {name}", len(n), np.int64) for name in MatrixResults._fields]
        )
        origins = space.device("origins", int(plan.origin_start[-1]) + 1, np.uint32)
        ops = space.device("ops", int(plan.ops_start[-1]) + 1, np.uint32)
        boundary = [
            space.device(name, int(plan.boundary_start[-1]) + 1, np.int32)
            for name in ("boundary scores", "boundary gaps")
        ]
        slots, strips, steps = (
            space.upload(name, getattr(plan, name)) for name in ("slots", "strips", "steps")
        )
        for shape, first, n_blocks in plan.launches:
            last = first + n_blocks
            words = shape.profile_words(len(scoring.scores), LANES)
            fill_kernel(shape, scoring.mode, scoring.cigar).launch_blocks(
                n_blocks, space.stream, on_device, self._scores(shape.halves), scoring.gaps,
                costs_of(scoring.gaps, scoring.mode, shape.halves),
                slots[first * GROUPS : last * GROUPS], strips[first:last], steps[first:last],
                plan.shared, *boundary, origins, out,
                shared_bytes=8 * words * (1 if plan.shared else GROUPS),
            )  # fmt: skip
        if scoring.cigar:
            trace_kernel.launch(
                len(plan.slots), space.stream, on_device, self._scores(1), scoring.gaps,
                scoring.mode, slots, origins, ops, out,
            )  # fmt: skip
        return self._collected(plan, out, ops, left_out)

    def _uploaded(self, pairs: CodedPairs, n: np.ndarray, m: np.ndarray, plan: Plan) -> MatrixPairs:
        """Copy a batch to the device: of its sequences, the stretch that the pairs lie in."""
        space = self._space
        columns: list[Any] = []
        for side, codes, starts, ends in (
            ("query", pairs.query_codes, pairs.query_start, pairs.query_end),
            ("ref", pairs.ref_codes, pairs.ref_start, pairs.ref_end),
        ):
            begin, end = int(starts.min()), int(ends.max())
            # Of an empty sequence at the end the first letter is looked at, but not used.
            stretch = np.zeros(end - begin + 1, np.uint8)
            stretch[:-1] = codes[begin:end]
            columns.append(space.upload(f"{side} codes", stretch))
            columns.append(space.upload(f"{side} start", starts - begin))
            columns.append(space.upload(f"{side} len", n if side == "query" else m))
        for name in ("halves", "rows", "boundary_start", "origin_start", "ops_start"):
            columns.append(space.upload(name, getattr(plan, name)))
        return MatrixPairs._make(columns)

    def _scores(self, halves: int) -> Any:
        """Return the scores on the device, with the letter that makes the borders."""
        if halves not in self._padded:
            padded = padded_scores(self._scoring.scores, self._scoring.mode, halves)
            self._padded[halves] = cuda.to_device(padded)
        return self._padded[halves]

    def _collected(
        self, plan: Plan, out: MatrixResults, ops: Any, left_out: np.ndarray
    ) -> PairAlignments:
        """Fetch results, and operations in the order of the pairs."""
        space, n = self._space, len(left_out)
        with_path = self._scoring.cigar
        names = MatrixResults._fields if with_path else ("score", "query_end", "ref_end")
        host = {name: space.download(f"out {name}", getattr(out, name)) for name in names}
        space.synchronize()
        columns = new_columns(n)
        _fill(columns, host, left_out, self._scoring)
        if not with_path:
            return PairAlignments(*columns, None, None)
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(np.where(left_out, 0, host["n_ops"]), out=offsets[1:])
        flat = space.device("flat ops", int(offsets[-1]), np.uint32)
        gather_kernel.launch(
            n * BLOCK, space.stream, ops, space.upload("ops_start", plan.ops_start),
            space.upload("offsets", offsets), flat,
        )  # fmt: skip
        result = space.download_result(flat)
        space.synchronize()
        return PairAlignments(*columns, offsets, result)


def _fill(
    columns: Columns, host: dict[str, np.ndarray], left_out: np.ndarray, scoring: Scoring
) -> None:
    """Copy what has come from the device into the columns of the result."""
    for name, values in host.items():
        if name != "n_ops":
            getattr(columns, name)[:] = values
    columns.status[:] = OK
    if not scoring.cigar and scoring.starts_whole:
        columns.query_start[:] = 0
        columns.ref_start[:] = 0
    _mark_left_out(columns, left_out)


def _mark_left_out(columns: Columns, left_out: np.ndarray) -> None:
    """Give pairs whose paths would take too much memory their status, and nothing else."""
    fresh = new_columns(1)
    for column, none in zip(columns, fresh, strict=True):
        column[left_out] = none[0]
    columns.status[left_out] = NO_MEMORY
