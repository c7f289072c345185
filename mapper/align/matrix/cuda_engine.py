"""The two ways a batch of pairs goes through the matrix kernels: as twins, or pair by pair."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mapper.align.matrix import cuda_query_pairs
from mapper.align.matrix.cuda_fill import fill_kernel
from mapper.align.matrix.cuda_plan import Plan, plan_batch
from mapper.align.matrix.matrix_cuda import GROUPS, LANES, MatrixPairs, trace_kernel
from mapper.align.matrix.matrix_numbers import costs_of, padded_scores
from mapper.align.matrix.matrix_scoring import CodedPairs, Scoring
from mapper.align.matrix.plan_query_pairs import TwinPlan, plan_twins
from mapper.align.matrix.twins_trace import trace_twins
from mapper.cuda.api import SHARED_BYTES, cuda
from mapper.cuda.memory import Workspace, copy_in
from mapper.cuda.streams import wait_for

Walk = Callable[[Any, Any], None]
"""Launches the walk back along the paths: takes ``ops_start`` and the room for operations."""


class Batch(NamedTuple):
    """Pairs on their way through a device; lengths of 0 where a pair is left out."""

    n: np.ndarray  # int64 (n_pairs,)
    m: np.ndarray
    query_start: np.ndarray
    ref_start: np.ndarray
    query_codes: Any  # uint8, on the device
    ref_codes: Any
    out: Any  # int64 (RESULTS, n_pairs), on the device


_MOST_WHOLE = 1 << 24
"""Bytes of codes that are uploaded whole, once for all batches that refer to them."""


def codes_on_device(space: Workspace, pairs: CodedPairs) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return codes of queries and references on the device, and where each begins there."""
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
    """Return the codes of some sequences on the device, and where each begins there."""
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
    # Of an empty sequence at the end the first letter is looked at, but not used.
    return space.upload_joined(name, [codes, np.zeros(1, np.uint8)])


def roomy(n: int) -> int:
    """Round up to a power of two: memory that batches of unlike size need is allocated seldom.

    To allocate, or to free, may make all that runs on the device wait.
    """
    return 1 << max(int(n) - 1, 1).bit_length()


def upload_roomy(space: Workspace, name: str, array: np.ndarray) -> Any:
    """Copy an array to the device by way of buffers of :func:`roomy` size."""
    space.device(name, roomy(array.size), array.dtype)
    space.pinned(name, roomy(array.size), array.dtype)
    return space.upload(name, array.reshape(-1)).reshape(*array.shape)


class Launcher:
    """Plans batches and launches their kernels, in the order of the work space's stream.

    To be made where it will be used: in the context of the work space's device.

    Parameters
    ----------
    fills
        The stream for kernels that take long. That of the work space is better an urgent one:
        then a batch that is nearly done need not wait until all of the next is computed.
    origin_words
        Words of origins that a batch should need, at most.
    """

    def __init__(
        self, scoring: Scoring, space: Workspace, fills: Any, has_halves: bool, origin_words: int
    ) -> None:
        self._scoring, self._space, self._has_halves = scoring, space, has_halves
        self._origin_words = origin_words
        self._fills, self._event = fills, cuda.event()

    def fill(self, batch: Batch) -> list[Walk]:
        """Launch what computes all matrices; return what walks back along their paths."""
        scoring = self._scoring
        walks = []
        rest = np.arange(len(batch.n))
        twins = None
        n_letters = len(scoring.scores)
        n_codes = max(batch.query_codes.size, batch.ref_codes.size)
        shared = cuda_query_pairs.shared_bytes(n_letters)
        if self._has_halves and shared <= SHARED_BYTES and n_codes < 2**31:
            twins = plan_twins(
                batch.n, batch.m, batch.query_start, batch.ref_start, scoring.scores,
                scoring.gaps, scoring.mode, want_path=scoring.cigar, lanes=cuda_query_pairs.LANES,
                groups=cuda_query_pairs.GROUPS, room=self._room,
            )  # fmt: skip
        if twins is not None:
            walks.append(self._fill_twins(batch, twins))
            rest = twins.rest
        if len(rest):
            plan = plan_batch(
                batch.n[rest], batch.m[rest], batch.query_start[rest], batch.ref_start[rest],
                scoring.scores, scoring.gaps, scoring.mode, has_halves=self._has_halves,
                want_path=scoring.cigar, lanes=LANES, groups=GROUPS, shared_bytes=SHARED_BYTES,
                pair=rest,
            )  # fmt: skip
            walks.append(self._fill_pairs(batch, plan))
        return walks

    def _fill_twins(self, batch: Batch, plan: TwinPlan) -> Walk:
        scoring, space = self._scoring, self._space
        n_letters, (_, n_blocks) = len(scoring.scores), plan.blocks.shape
        tables = (
            self._planned("tasks", plan.tasks), self._planned("origins of tasks", plan.origin_at),
            self._planned("blocks", plan.blocks),
        )  # fmt: skip
        stride = cuda_query_pairs.boundary_words(plan.longest)
        over = space.device("rows", roomy(n_blocks * cuda_query_pairs.GROUPS * stride), np.uint64)
        origins = self._room_for_origins(
            "origins of twins", plan.n_words + cuda_query_pairs.WORDS_BEFORE
        )
        codes = batch.query_codes, batch.ref_codes
        scores = self._scores(2)
        wait_for(self._fills, space.stream, self._event)
        cuda_query_pairs.twins_kernel(scoring.mode, scoring.cigar).launch_blocks(
            n_blocks, self._fills, *tables, *codes, scores, scoring.gaps,
            costs_of(scoring.gaps, scoring.mode, 2), stride, over, origins, batch.out,
            shared_bytes=cuda_query_pairs.shared_bytes(n_letters),
        )  # fmt: skip
        wait_for(space.stream, self._fills, self._event)

        def walk(ops_start: Any, ops: Any) -> None:
            trace_twins.launch(
                2 * plan.tasks.shape[1], space.stream, *tables, *codes, self._scores(1),
                scoring.gaps, scoring.mode, origins, ops_start, ops, batch.out,
            )  # fmt: skip

        return walk

    def _fill_pairs(self, batch: Batch, plan: Plan) -> Walk:
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

        def walk(ops_start: Any, ops: Any) -> None:
            trace_kernel.launch(
                len(plan.slots), space.stream, pairs, self._scores(1), scoring.gaps,
                scoring.mode, slots, origins, ops_start, ops, batch.out,
            )  # fmt: skip

        return walk

    def _room(self, name: str, n: int, dtype: type) -> np.ndarray:
        """Return page-locked memory, so that a plan is written where it is uploaded from."""
        return self._space.pinned(name, roomy(n), dtype)[:n]

    def _planned(self, name: str, array: np.ndarray) -> Any:
        """Upload an array that lies in what :meth:`_room` returned."""
        there = self._space.device(name, roomy(array.size), array.dtype)
        copy_in(there, array.reshape(-1), array.size, self._space.stream)
        return there[: array.size].reshape(*array.shape)

    def _room_for_origins(self, name: str, n_words: int) -> Any:
        n_roomy = max(n_words, min(roomy(n_words), self._origin_words))
        return self._space.device(name, n_roomy, np.uint32)

    def _scores(self, halves: int) -> Any:
        """Return the scores on the device, with the letter that makes the borders."""
        name = f"scores for {halves}"
        padded = padded_scores(self._scoring.scores, self._scoring.mode, halves)
        if not np.array_equal(self._space.kept.get(name, ()), padded):
            self._space.kept[f"{name}, there"] = upload_roomy(self._space, name, padded)
            self._space.kept[name] = padded
        return self._space.kept[f"{name}, there"]
