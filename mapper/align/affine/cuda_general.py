"""CUDA kernel of gap-affine alignment: one thread a pair, the cores of the CPU."""

from __future__ import annotations

import numpy as np

from mapper.align.affine.affine_origins import replay, trace_back
from mapper.align.affine.affine_space import affine_space, origins_of, rows_of
from mapper.align.affine.wavefront_affine import (
    AffinePenalties,
    Band,
    affine_search,
    end_offset,
    highest_bound,
)
from mapper.align.cuda.retry import (
    BLOCK,
    CUT,
    DONE,
    LEFT,
    DevicePairs,
    DeviceResults,
    Rung,
    RungWorker,
)
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, Ends, ends_within
from mapper.align.matches import Pair
from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace

RUNGS = (Rung(40, 1 << 15), Rung(220, 1 << 14))
"""Penalties divided by their common divisor; with usual ones at most 1.5 GB of work space. A
third rung for higher penalties has room for so few threads that the CPU is faster
(``benchmarks/results/pairwise_cuda_rungs.md``)."""


@device_function
def search_within(pair, ends, rows, origins, penalties, band, most, bound, want_path):
    """Search up to penalty `bound`, where alignments up to `most` are of interest.

    Returns
    -------
    status, s, k
        Of the pair (DONE, LEFT, CUT), and the end; s is -1 where there is none up to `most`.
    """
    # A band's cuts follow from what the rows hold, so `bound` must not prune them.
    limit = most if band.width > 0 else min(most, bound)
    centre = rows.match.shape[1] >> 1
    found, s, k, cut = affine_search(
        pair, ends, rows, origins, penalties, band, centre, bound + 1, limit, want_path, 1
    )
    if found == FINISHED:
        return CUT if cut else DONE, s, k
    # Above the limit, if the room did not lower it, and no band cut off what might not be.
    known = found == EXCEEDED and most <= bound and not cut
    return DONE if known else LEFT, np.int64(-1), k


@kernel(BLOCK)
def affine_kernel(pairs, free, penalties, scale, max_penalty, band, bound, want_path, space, out):
    """Align pairs by threads that stride over them; as ``affine_cpu``, one rung."""
    thread = cuda.grid(1)
    n_threads = cuda.gridsize(1)
    own, own_origins = rows_of(space, thread), origins_of(space, thread)
    slot = 2 * bound + 2
    for j in range(thread, len(pairs.todo), n_threads):
        i = pairs.todo[j]
        n, m = pairs.query_len[i], pairs.ref_len[i]
        pair = Pair(
            pairs.query_words, pairs.ref_words, pairs.query_start[i] << 6, pairs.ref_start[i] << 6,
            n, m, np.int64(pairs.shift[i]),
        )  # fmt: skip
        ends = ends_within(free, n, m)
        most = min(max_penalty, highest_bound(pair, penalties))
        status, s, k = search_within(
            pair, ends, own, own_origins, penalties, band, most, bound, want_path
        )
        out.n_ops[j] = 0
        out.score[j] = -1
        out.status[j] = status
        if s < 0:
            continue
        h = end_offset(own, own.match.shape[1] >> 1, s, k)
        out.score[j] = s * scale
        out.query_end[j] = h - k
        out.ref_end[j] = h
        if want_path:
            own_events = space.events[:, thread]
            n_events, start_k = trace_back(own_origins, penalties, s, k, own_events)
            v_start, h_start = max(0, -start_k), max(0, start_k)
            ops = out.ops[j * slot : (j + 1) * slot]
            out.n_ops[j] = replay(pair, own_events, n_events, v_start, h_start, h, ops)
            out.query_start[j] = v_start
            out.ref_start[j] = h_start
        else:
            known = 0 if ends.query_begin + ends.ref_begin == 0 else -1
            out.query_start[j] = known
            out.ref_start[j] = known


class AffineWorker(RungWorker):
    """Gap-affine alignment on one device; penalties have been divided by `scale`."""

    rungs = RUNGS

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
        self, space: Workspace, rung: Rung, pairs: DevicePairs, n_todo: int, want_path: bool,
        begin_width: int, out: DeviceResults,
    ) -> None:  # fmt: skip
        n_threads = min(rung.n_threads, (n_todo + BLOCK - 1) // BLOCK * BLOCK)
        own = affine_space(space, self._penalties, rung.bound, n_threads, begin_width, want_path)
        affine_kernel.launch(
            n_threads, space.stream, pairs, self._free, self._penalties, self._scale,
            self._max_penalty, self._band, rung.bound, int(want_path), own, out,
        )  # fmt: skip
