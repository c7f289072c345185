"""CUDA kernels of gap-affine alignment and extension by one thread a pair, for any input.

They run the cores of the CPU. A thread's workspace holds its rows, origins and events. The last
axis of every array is the thread, so that the threads of a warp, which are at about the same cells
of their pairs, access neighbouring memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.affine.extension import extension_search
from mapper.align.affine.wavefront import (
    AffinePenalties,
    AffineRows,
    Band,
    Origins,
    affine_search,
    end_offset,
    highest_bound,
    look_back,
    replay,
    trace_back,
)
from mapper.align.cuda.kernels import BLOCK as CHUNK_BLOCK
from mapper.align.cuda.kernels import UNFIT
from mapper.align.cuda.retry import (
    BLOCK,
    CUT,
    DONE,
    UNSOLVED,
    Attempt,
    DevicePairs,
    DeviceResults,
    RetryWorker,
)
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, Ends, ends_within
from mapper.align.matches import Pair
from mapper.cigar import S, append_op
from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace

_MAX_CELLS = 1 << 20
"""Most origins of a thread; a pair that needs more stays unsolved."""


class AffineSpace(NamedTuple):
    """Arrays of all threads, or views of one thread's."""

    rows: Any  # AffineRows
    origins: Any  # Origins
    events: Any  # uint32


def affine_space(
    space: Workspace, penalties: AffinePenalties, bound: int, n_threads: int, begin_width: int,
    want_path: bool, name: str = "",
) -> AffineSpace:  # fmt: skip
    """Return workspace for penalties up to `bound`.

    It has a diagonal for each gap symbol that the bound allows, on both sides; a pair whose
    alignment may begin on more diagonals stays unsolved.

    Parameters
    ----------
    begin_width
        The most diagonals, less one, on which an alignment can begin.
    name
        Prefix of the names of the arrays.
    """

    def room(what: str, dtype: Any, *shape: int) -> Any:
        n_items = int(np.prod(shape)) * n_threads
        return space.device(name + what, n_items, dtype).reshape((*shape, n_threads))

    n_rows = look_back(penalties)
    reach = max(0, bound - penalties.gap_open) // penalties.gap_extend
    n_columns = 2 * (reach + 4)
    kept = bound + 2 if want_path else 1
    n_cells = (bound + 1) * (reach + 4) + begin_width * kept if want_path else 1
    rows = AffineRows(
        room("match", np.int32, n_rows, n_columns), room("insertion", np.int32, n_rows, n_columns),
        room("deletion", np.int32, n_rows, n_columns), room("lo", np.int64, n_rows),
        room("hi", np.int64, n_rows),
    )  # fmt: skip
    origins = Origins(
        room("origins", np.uint8, min(n_cells, _MAX_CELLS)), room("origin at", np.int64, kept),
        room("origin lo", np.int64, kept),
    )  # fmt: skip
    return AffineSpace(rows, origins, room("events", np.uint32, bound + 1))


@device_function
def rows_of(space, thread):
    """Return the rows of one thread."""
    rows = space.rows
    return AffineRows(
        rows.match[:, :, thread], rows.insertion[:, :, thread], rows.deletion[:, :, thread],
        rows.lo[:, thread], rows.hi[:, thread],
    )  # fmt: skip


@device_function
def origins_of(space, thread):
    """Return the origins of one thread."""
    origins = space.origins
    return Origins(origins.cells[:, thread], origins.at[:, thread], origins.lo[:, thread])


ATTEMPTS = (Attempt(40, 1 << 15), Attempt(220, 1 << 14))
"""Penalties divided by their common divisor; with usual ones at most 1.5 GB of workspace. A
third attempt for higher penalties has room for so few threads that the CPU is faster
(``benchmarks/results/align_cuda_variants.md``)."""


@device_function
def search_within(pair, ends, rows, origins, penalties, band, most, bound, want_path):
    """Search up to penalty `bound`, where alignments up to `most` are of interest.

    Returns
    -------
    status, s, k
        Of the pair (DONE, UNSOLVED, CUT), and the end; s is -1 where there is none up to `most`.
    """
    # Cuts depend on the cells of rows, so that `bound` must not limit those.
    limit = most if band.width > 0 else min(most, bound)
    centre = rows.match.shape[1] >> 1
    found, s, k, cut = affine_search(
        pair, ends, rows, origins, penalties, band, centre, bound + 1, limit, want_path, 1
    )
    if found == FINISHED:
        return CUT if cut else DONE, s, k
    # EXCEEDED means above the limit, unless `bound` lowered it or a band cut cells off.
    known = found == EXCEEDED and most <= bound and not cut
    return DONE if known else UNSOLVED, np.int64(-1), k


@device_function
def align_pair(pair, ends, penalties, max_penalty, band, bound, want_path, rows, origins, events,
               ops):  # fmt: skip
    """Align a pair by one thread, up to penalty `bound`, and write its operations.

    Returns
    -------
    status, s, k
        As :func:`search_within`.
    h, start_k, n_ops
        Offset of the end, diagonal of the start (if `want_path`), and number of operations.
    """
    most = min(max_penalty, highest_bound(pair, penalties))
    status, s, k = search_within(pair, ends, rows, origins, penalties, band, most, bound, want_path)
    h = start_k = n_ops = np.int64(0)
    if s >= 0:
        h = end_offset(rows, rows.match.shape[1] >> 1, s, k)
        if want_path:
            n_events, start_k = trace_back(origins, penalties, s, k, events)
            n_ops = replay(pair, events, n_events, max(0, -start_k), max(0, start_k), h, ops)
    return status, s, k, h, start_k, n_ops


@kernel(BLOCK)
def affine_kernel(pairs, free, penalties, scale, max_penalty, band, bound, want_path, space, out):
    """Align pairs of any span by threads that stride over them, up to a (divided) penalty."""
    thread = cuda.grid(1)
    n_threads = cuda.gridsize(1)
    own, own_origins = rows_of(space, thread), origins_of(space, thread)
    own_events = space.events[:, thread]
    slot = 2 * bound + 2
    for j in range(thread, len(pairs.todo), n_threads):
        i = pairs.todo[j]
        n, m = pairs.query_len[i], pairs.ref_len[i]
        pair = Pair(
            pairs.query_words, pairs.ref_words, pairs.query_start[i] << 6, pairs.ref_start[i] << 6,
            n, m, np.int64(pairs.shift[i]),
        )  # fmt: skip
        ends = ends_within(free, n, m)
        status, s, k, h, start_k, n_ops = align_pair(
            pair, ends, penalties, max_penalty, band, bound, want_path, own, own_origins,
            own_events, out.ops[j * slot : (j + 1) * slot],
        )  # fmt: skip
        out.n_ops[j] = n_ops
        out.score[j] = s * scale if s >= 0 else -1
        out.status[j] = status
        if s < 0:
            continue
        known = want_path or ends.query_begin + ends.ref_begin == 0
        out.query_start[j] = max(0, -start_k) if known else -1
        out.query_end[j] = h - k
        out.ref_start[j] = max(0, start_k) if known else -1
        out.ref_end[j] = h


@kernel(CHUNK_BLOCK)
def staged_affine_kernel(staged, n, penalties, scale, max_penalty, band, bound, is_first,
                         want_path, space, slot, out):  # fmt: skip
    """Align staged pairs globally by threads that stride over them, up to a (divided) penalty.

    The first launch looks at every pair; others do those that are unsolved.
    """
    thread = cuda.grid(1)
    own, own_origins = rows_of(space, thread), origins_of(space, thread)
    own_events = space.events[:, thread]
    ends = Ends(0, 0, 0, 0)
    columns = staged.view(np.int32)
    for i in range(thread, n, cuda.gridsize(1)):
        query_len, ref_len = np.int64(columns[2 * n + i]), np.int64(columns[3 * n + i])
        if is_first:
            out.status[i] = UNFIT if query_len < 0 else UNSOLVED
            out.n_ops[i] = 0
            out.score[i] = -1
        if out.status[i] != UNSOLVED:
            continue
        query_at, ref_at = np.int64(columns[i]), np.int64(columns[n + i])
        pair = Pair(staged, staged, query_at << 1, ref_at << 1, query_len, ref_len, np.int64(1))
        status, s, _, _, _, n_ops = align_pair(
            pair, ends, penalties, max_penalty, band, bound, want_path, own, own_origins,
            own_events, out.slots[i * slot : (i + 1) * slot],
        )  # fmt: skip
        out.n_ops[i] = n_ops
        out.score[i] = s * scale if s >= 0 else -1
        out.status[i] = status


class AffineWorker(RetryWorker):
    """Gap-affine alignment on one device; penalties have been divided by `scale`."""

    attempts = ATTEMPTS

    def __init__(
        self, ordinal: int, free: Ends, penalties: AffinePenalties, scale: int, max_penalty: int,
        band: Band,
    ) -> None:  # fmt: skip
        super().__init__(ordinal, free)
        self._penalties = penalties
        self._scale = scale
        self._max_penalty = max_penalty
        self._band = band

    def launch(
        self, space: Workspace, attempt: Attempt, pairs: DevicePairs, n_todo: int, want_path: bool,
        begin_width: int, out: DeviceResults,
    ) -> None:  # fmt: skip
        n_threads = min(attempt.n_threads, (n_todo + BLOCK - 1) // BLOCK * BLOCK)
        own = affine_space(space, self._penalties, attempt.bound, n_threads, begin_width, want_path)
        affine_kernel.launch(
            n_threads, space.stream, pairs, self._free, self._penalties, self._scale,
            self._max_penalty, self._band, attempt.bound, int(want_path), own, out,
        )  # fmt: skip


EXTENSION_ATTEMPTS = (Attempt(90, 1 << 15), Attempt(250, 1 << 13))
"""Penalties into which scores are turned: bwa's mismatch is 10 of them, and what is left of a
sequence counts a match bonus a symbol."""


@kernel(BLOCK)
def extension_kernel(pairs, penalties, match, x_drop, bound, want_path, space, out):
    """Extend pairs by threads that stride over them; as ``extension_cpu``, one attempt."""
    thread = cuda.grid(1)
    n_threads = cuda.gridsize(1)
    own, own_origins = rows_of(space, thread), origins_of(space, thread)
    own_events = space.events[:, thread]
    centre = own.match.shape[1] >> 1
    slot = 2 * bound + 2
    for j in range(thread, len(pairs.todo), n_threads):
        i = pairs.todo[j]
        n, m = pairs.query_len[i], pairs.ref_len[i]
        pair = Pair(
            pairs.query_words, pairs.ref_words, pairs.query_start[i] << 6, pairs.ref_start[i] << 6,
            n, m, pairs.shift[i],
        )  # fmt: skip
        status, best, dropped = extension_search(
            pair, own, own_origins, penalties, match, x_drop, centre, bound, want_path
        )
        out.n_ops[j] = 0
        out.score[j] = -1
        if status != FINISHED:
            out.status[j] = UNSOLVED
            continue
        out.status[j] = CUT if dropped else DONE
        s, k, h = best.penalty, best.k, best.h
        out.score[j] = best.doubled >> 1
        out.query_start[j] = 0
        out.query_end[j] = h - k
        out.ref_start[j] = 0
        out.ref_end[j] = h
        if want_path:
            n_events, _ = trace_back(own_origins, penalties, s, k, own_events)
            ops = out.ops[j * slot : (j + 1) * slot]
            n_ops = replay(pair, own_events, n_events, 0, 0, h, ops)
            out.n_ops[j] = append_op(ops, n_ops, S, n - h + k)


class ExtensionWorker(RetryWorker):
    """Extension on one device."""

    attempts = EXTENSION_ATTEMPTS

    def __init__(self, ordinal: int, penalties: AffinePenalties, match: int, x_drop: int) -> None:
        super().__init__(ordinal, Ends(0, 0, 0, 0))
        self._penalties = penalties
        self._match = match
        self._x_drop = x_drop

    def launch(
        self, space: Workspace, attempt: Attempt, pairs: DevicePairs, n_todo: int, want_path: bool,
        begin_width: int, out: DeviceResults,
    ) -> None:  # fmt: skip
        n_threads = min(attempt.n_threads, (n_todo + BLOCK - 1) // BLOCK * BLOCK)
        own = affine_space(space, self._penalties, attempt.bound, n_threads, begin_width, want_path)
        extension_kernel.launch(
            n_threads, space.stream, pairs, self._penalties, self._match, self._x_drop,
            attempt.bound, int(want_path), own, out,
        )  # fmt: skip
