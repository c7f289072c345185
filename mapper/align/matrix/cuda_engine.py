"""Matrix alignment of batches on one device: launches of the kernels, and workers over batches.

Pairs whose queries share references are computed as query pairs, the others one by one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from mapper.align.dispatch import joined
from mapper.align.matrix import cuda_query_pairs
from mapper.align.matrix.cuda_cells import HALVES_CAPABILITY
from mapper.align.matrix.cuda_fill import (
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
    MatrixPairs,
    fill_kernel,
    gather_kernel,
    trace_kernel,
)
from mapper.align.matrix.cuda_plan import ONE_CELL, Plan, plan_batch
from mapper.align.matrix.cuda_query_pairs import trace_query_pairs
from mapper.align.matrix.plan_query_pairs import QueryPairPlan, plan_query_pairs
from mapper.align.matrix.scoring import CodedPairs, Scoring, costs_of, padded_scores, without_memory
from mapper.align.result import NO_MEMORY, NO_SCORE, OK, Columns, PairAlignments
from mapper.cuda.api import SHARED_BYTES, SIMULATED, cuda, device_context
from mapper.cuda.halving import Halves, in_halves
from mapper.cuda.memory import (
    Workspace,
    copy_in,
    copy_out,
    page_locked,
    priority_stream,
    total_bytes,
    wait_for,
)
from mapper.errors import UsageError
from mapper.parallel.buffers import RECYCLER

Trace = Callable[[Any, Any], None]
"""Launches the traceback of paths, with ``ops_start`` and the array for operations."""


class Batch(NamedTuple):
    """A batch of pairs on a device; pairs that are left out have lengths of 0."""

    n: np.ndarray  # int64 (n_pairs,)
    m: np.ndarray
    query_start: np.ndarray
    ref_start: np.ndarray
    query_codes: Any  # uint8, on the device
    ref_codes: Any
    out: Any  # int64 (RESULTS, n_pairs), on the device


_MOST_WHOLE = 1 << 24
"""Most bytes of codes that are uploaded as a whole, once for all batches that use them."""


def codes_on_device(space: Workspace, pairs: CodedPairs) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return codes of queries and references on the device, and their starts there."""
    queries, query_start = _on_device(
        space, pairs.query_codes, pairs.query_start, pairs.query_end, "query codes"
    )
    if pairs.ref_codes is pairs.query_codes and pairs.ref_codes.nbytes <= _MOST_WHOLE:
        return queries, queries, query_start, pairs.ref_start
    refs, ref_start = _on_device(
        space, pairs.ref_codes, pairs.ref_start, pairs.ref_end, "ref codes"
    )
    return queries, refs, query_start, ref_start


def _on_device(
    space: Workspace, codes: np.ndarray, starts: np.ndarray, ends: np.ndarray, name: str
) -> tuple[Any, np.ndarray]:
    """Return the codes of sequences on the device, and their starts there."""
    if codes.nbytes <= _MOST_WHOLE:
        held = space.kept.get(name)
        if held is None or held[0]() is not codes:
            held = weakref.ref(codes), _uploaded(space, codes, name)
            space.kept[name] = held
        return held[1], starts
    space.kept[name] = None
    begin, end = int(starts.min()), int(ends.max())
    return _uploaded(space, codes[begin:end], name), starts - begin


def _uploaded(space: Workspace, codes: np.ndarray, name: str) -> Any:
    # Kernels read, but do not use, a letter of an empty sequence at the end.
    return space.upload_joined(name, [codes, np.zeros(1, np.uint8)])


def roomy(n: int) -> int:
    """Round up to a power of two, so that batches of different size seldom allocate.

    Allocating and freeing may synchronise the device.
    """
    return 1 << max(int(n) - 1, 1).bit_length()


def upload_roomy(space: Workspace, name: str, array: np.ndarray) -> Any:
    """Copy an array to the device through buffers of :func:`roomy` size."""
    space.device(name, roomy(array.size), array.dtype)
    space.pinned(name, roomy(array.size), array.dtype)
    return space.upload(name, array.reshape(-1)).reshape(*array.shape)


class Launcher:
    """Plans batches and launches their kernels, in the order of the workspace's stream.

    Make and use it with the workspace's device current.

    Parameters
    ----------
    fills
        Stream for the long kernels. If the workspace's stream has a high priority, a batch that
        is nearly done need not wait until all of the next is computed.
    origin_words
        Most words of origins that a batch should need.
    """

    def __init__(
        self, scoring: Scoring, space: Workspace, fills: Any, has_halves: bool, origin_words: int
    ) -> None:
        self._scoring, self._space, self._has_halves = scoring, space, has_halves
        self._origin_words = origin_words
        self._fills, self._event = fills, cuda.event()

    def fill(self, batch: Batch) -> list[Trace]:
        """Launch the kernels that compute all matrices; return functions that trace the paths."""
        scoring = self._scoring
        traces = []
        rest = np.arange(len(batch.n))
        query_pairs = None
        n_letters = len(scoring.scores)
        n_codes = max(batch.query_codes.size, batch.ref_codes.size)
        shared = cuda_query_pairs.shared_bytes(n_letters)
        if self._has_halves and shared <= SHARED_BYTES and n_codes < 2**31:
            query_pairs = plan_query_pairs(
                batch.n, batch.m, batch.query_start, batch.ref_start, scoring.scores,
                scoring.gaps, scoring.mode, want_path=scoring.cigar, lanes=cuda_query_pairs.LANES,
                groups=cuda_query_pairs.GROUPS, room=self._room,
            )  # fmt: skip
        if query_pairs is not None:
            traces.append(self._fill_query_pairs(batch, query_pairs))
            rest = query_pairs.rest
        if len(rest):
            plan = plan_batch(
                batch.n[rest], batch.m[rest], batch.query_start[rest], batch.ref_start[rest],
                scoring.scores, scoring.gaps, scoring.mode, has_halves=self._has_halves,
                want_path=scoring.cigar, lanes=LANES, groups=GROUPS, shared_bytes=SHARED_BYTES,
                pair=rest,
            )  # fmt: skip
            traces.append(self._fill_pairs(batch, plan))
        return traces

    def _fill_query_pairs(self, batch: Batch, plan: QueryPairPlan) -> Trace:
        scoring, space = self._scoring, self._space
        n_letters, (_, n_blocks) = len(scoring.scores), plan.blocks.shape
        tables = (
            self._planned("tasks", plan.tasks), self._planned("origins of tasks", plan.origin_at),
            self._planned("blocks", plan.blocks),
        )  # fmt: skip
        stride = cuda_query_pairs.boundary_words(plan.longest)
        over = space.device("rows", roomy(n_blocks * cuda_query_pairs.GROUPS * stride), np.uint64)
        origins = self._room_for_origins(
            "origins of query pairs", plan.n_words + cuda_query_pairs.WORDS_BEFORE
        )
        codes = batch.query_codes, batch.ref_codes
        scores = self._scores(2)
        wait_for(self._fills, space.stream, self._event)
        cuda_query_pairs.query_pairs_kernel(scoring.mode, scoring.cigar).launch_blocks(
            n_blocks, self._fills, *tables, *codes, scores, scoring.gaps,
            costs_of(scoring.gaps, scoring.mode, 2), stride, over, origins, batch.out,
            shared_bytes=cuda_query_pairs.shared_bytes(n_letters),
        )  # fmt: skip
        wait_for(space.stream, self._fills, self._event)

        def trace(ops_start: Any, ops: Any) -> None:
            trace_query_pairs.launch(
                2 * plan.tasks.shape[1], space.stream, *tables, *codes, self._scores(1),
                scoring.gaps, scoring.mode, origins, ops_start, ops, batch.out,
            )  # fmt: skip

        return trace

    def _fill_pairs(self, batch: Batch, plan: Plan) -> Trace:
        scoring, space = self._scoring, self._space
        pairs = MatrixPairs(
            batch.query_codes, batch.ref_codes, upload_roomy(space, "table", plan.table)
        )
        slots = upload_roomy(space, "slots", plan.slots)
        most = upload_roomy(space, "most", plan.most)
        n_columns, n_words = (int(size) + 1 for size in plan.sizes)
        boundary = space.device("boundary", 2 * n_columns, np.int32).reshape(2, n_columns)
        origins = self._room_for_origins("origins", n_words)
        scores = {halves: self._scores(halves) for halves in (1, 2)}
        wait_for(self._fills, space.stream, self._event)
        for shape, first, n_blocks in plan.launches:
            words = shape.profile_words(len(scoring.scores), LANES)
            fill_kernel(shape, scoring.mode, scoring.cigar).launch_blocks(
                n_blocks, self._fills, pairs, scores[shape.halves], scoring.gaps,
                costs_of(scoring.gaps, scoring.mode, shape.halves), first, slots, most,
                plan.shared, boundary, origins, batch.out,
                shared_bytes=8 * words * (1 if plan.shared else GROUPS),
            )  # fmt: skip
        wait_for(space.stream, self._fills, self._event)

        def trace(ops_start: Any, ops: Any) -> None:
            trace_kernel.launch(
                len(plan.slots), space.stream, pairs, self._scores(1), scoring.gaps,
                scoring.mode, slots, origins, ops_start, ops, batch.out,
            )  # fmt: skip

        return trace

    def _room(self, name: str, n: int, dtype: type) -> np.ndarray:
        """Return page-locked memory, in which a plan is written and from which it is uploaded."""
        return self._space.pinned(name, roomy(n), dtype)[:n]

    def _planned(self, name: str, array: np.ndarray) -> Any:
        """Upload an array that lies in memory from :meth:`_room`."""
        there = self._space.device(name, roomy(array.size), array.dtype)
        copy_in(there, array.reshape(-1), array.size, self._space.stream)
        return there[: array.size].reshape(*array.shape)

    def _room_for_origins(self, name: str, n_words: int) -> Any:
        n_roomy = max(n_words, min(roomy(n_words), self._origin_words))
        return self._space.device(name, n_roomy, np.uint32)

    def _scores(self, halves: int) -> Any:
        """Return the scores on the device, with the extra letter of the borders."""
        name = f"scores for {halves}"
        padded = padded_scores(self._scoring.scores, self._scoring.mode, halves)
        if not np.array_equal(self._space.kept.get(name, ()), padded):
            self._space.kept[f"{name}, there"] = upload_roomy(self._space, name, padded)
            self._space.kept[name] = padded
        return self._space.kept[f"{name}, there"]


_PATH_SHARE = 8
"""A worker uses up to 1 / _PATH_SHARE of a device's memory for the origins of cells."""

_BYTES_A_CELL = 0.75
"""Bytes of origins: half a byte and the padding of strips, on average for length 100."""

_CELLS = 1 << 36
"""Most cells of a batch: some 30 ms on an H200."""

_spaces: dict[tuple[int, int], tuple[threading.Lock, Workspace, Any]] = {}
"""For (device, worker): lock to hold during a batch, workspace, stream for long kernels."""

_spaces_lock = threading.Lock()


def workers_a_device(cigar: bool) -> int:
    """Return how many batches are under way on a device at a time.

    One is computed while the next is planned and uploaded: a batch ends with few long pairs, which
    do not fill the device. With paths, a third one is traced and downloaded meanwhile. (More
    workers wait for the GIL.)
    """
    return 3 if cigar else 2


class MatrixWorker:
    """Aligns batches on one device, one after the other.

    Parameters
    ----------
    ordinal, number
        The device, and the number of the worker: each has a workspace of its own, which is kept
        from call to call.
    """

    def __init__(self, ordinal: int, number: int, scoring: Scoring) -> None:
        most = SHARED_BYTES // (8 * GROUPS * ONE_CELL.profile_words(0, LANES)) - 1
        if len(scoring.scores) > most:
            raise UsageError(
                f"a matrix of {len(scoring.scores)} letters: devices take up to {most}; use the CPU"
            )
        self._ordinal = ordinal
        self._scoring = scoring
        with device_context(ordinal), _spaces_lock:
            if (ordinal, number) not in _spaces:
                space = Workspace(stream=priority_stream())
                _spaces[ordinal, number] = (threading.Lock(), space, cuda.stream())
            self._lock, self._space, fills = _spaces[ordinal, number]
            has_halves, device_bytes = _about(ordinal)
            self._path_bytes = device_bytes // _PATH_SHARE
            self._launcher = Launcher(
                scoring, self._space, fills, has_halves, self._path_bytes // 4
            )

    @property
    def most_cells(self) -> int:
        """Most cells that a batch should have."""
        if not self._scoring.cigar:
            return _CELLS
        return min(_CELLS, int(self._path_bytes / _BYTES_A_CELL))

    def align(self, pairs: CodedPairs) -> PairAlignments:
        """Align a batch; in halves if it does not fit into the device's memory.

        Raises
        ------
        DeviceMemoryError
            If a single pair does not fit.
        """

        def halve(pairs: CodedPairs) -> Halves[CodedPairs, PairAlignments] | None:
            n = pairs.n_pairs
            if n == 1:
                return None
            join = partial(joined, want_path=self._scoring.cigar)
            return Halves([pairs.part(0, n // 2), pairs.part(n // 2, n)], join)

        with device_context(self._ordinal), self._lock:
            return in_halves(self._align, pairs, halve, self._space.release)

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
        traces = self._launcher.fill(batch)
        if not scoring.cigar:
            found = self._downloaded(out, SCORE_RESULTS, len(n))
            return PairAlignments(*_columns(found, left_out, scoring), None, None)
        ops_start = np.zeros(len(n) + 1, np.int64)
        np.cumsum(n + m + 2, out=ops_start[1:])
        ops = space.device("ops", roomy(int(ops_start[-1])), np.uint32)
        starts = upload_roomy(space, "ops start", ops_start)
        for trace in traces:
            trace(starts, ops)
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
        """Return the first rows of the results, for the caller to keep: int64 (n_rows, n_pairs)."""
        host = page_locked(n_rows * n_pairs, np.dtype(np.int64))
        copy_out(host, out, len(host), self._space.stream)
        self._space.synchronize()
        return host.reshape(n_rows, n_pairs)


@cache
def _about(ordinal: int) -> tuple[bool, int]:
    """Return True if the current device computes two cells in a register, and its memory."""
    capability = cuda.get_current_device().compute_capability
    return SIMULATED or tuple(capability) >= HALVES_CAPABILITY, total_bytes()


def _columns(found: np.ndarray, left_out: np.ndarray, scoring: Scoring) -> Columns:
    """Return the columns of the result; pairs that were left out have only a status."""
    n = len(left_out)
    if scoring.cigar:
        starts = [found[QUERY_BEGIN], found[REF_BEGIN]]
    else:  # from the recycler: the first write to new memory is slow
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
