"""CUDA kernel of gap-affine alignment: one thread a pair, the cores of the CPU."""

from __future__ import annotations

import numpy as np

from mapper.device.memory import Workspace
from mapper.device.seam import cuda, kernel
from mapper.pairwise.affine_origins import Origins, replay, trace_back
from mapper.pairwise.compare import Pair
from mapper.pairwise.cuda_batch import BLOCK, LEFT, DevicePairs, DeviceResults, Rung, RungWorker
from mapper.pairwise.wavefront_affine import (
    AffinePenalties,
    AffineRows,
    Band,
    affine_search,
    end_offset,
    highest_bound,
    look_back,
)
from mapper.pairwise.wavefront_edit import EXCEEDED, FINISHED, Ends, ends_within

RUNGS = (Rung(40, 1 << 15), Rung(220, 1 << 14))
"""Penalties divided by their common divisor; with usual ones at most 1.5 GB of work space. A
third rung for higher penalties has room for so few threads that the CPU is faster
(``benchmarks/results/pairwise_cuda_rungs.md``)."""


@kernel(BLOCK)
def affine_kernel(pairs, free, penalties, scale, max_penalty, bound, want_path, rows, origins,
                  events, out):  # fmt: skip
    """Align pairs by threads that stride over them; as ``affine_cpu``, one rung.

    The first axis of `rows`, `origins` and `events` is the thread.
    """
    thread = cuda.grid(1)
    n_threads = cuda.gridsize(1)
    own = AffineRows(
        rows.match[thread], rows.insertion[thread], rows.deletion[thread],
        rows.lo[thread], rows.hi[thread],
    )  # fmt: skip
    own_origins = Origins(origins.cells[thread], origins.at[thread], origins.lo[thread])
    centre = rows.match.shape[2] >> 1
    no_band = Band(0, 1)
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
        status, s, k, _ = affine_search(
            pair, ends, own, own_origins, penalties, no_band, centre, min(most, bound), want_path, 1
        )
        out.n_ops[j] = 0
        out.score[j] = -1
        if status != FINISHED:
            # Above the limit if the rung did not lower it.
            out.status[j] = 0 if status == EXCEEDED and most <= bound else LEFT
            continue
        h = end_offset(own, centre, s, k)
        out.status[j] = 0
        out.score[j] = s * scale
        out.query_end[j] = h - k
        out.ref_end[j] = h
        if want_path:
            own_events = events[thread]
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
        self, ordinal: int, free: Ends, penalties: AffinePenalties, scale: int, max_penalty: int
    ) -> None:
        super().__init__(ordinal, free)
        self._penalties = penalties
        self._scale = scale
        self._max_penalty = max_penalty

    def launch(
        self, space: Workspace, rung: Rung, pairs: DevicePairs, n_todo: int, want_path: bool,
        begin_width: int, out: DeviceResults,
    ) -> None:  # fmt: skip
        n_rows = look_back(self._penalties)
        # A diagonal more for each gap symbol that the bound allows, on both sides; where
        # alignments may begin on more diagonals than that, the pair is left.
        reach = max(0, rung.bound - self._penalties.gap_open) // self._penalties.gap_extend
        n_columns = 2 * (reach + 4)
        n_threads = min(rung.n_threads, (n_todo + BLOCK - 1) // BLOCK * BLOCK)
        shape = (n_threads, n_rows, n_columns)
        kept = rung.bound + 2 if want_path else 1
        n_cells = (rung.bound + 1) * (reach + 4) + begin_width * kept if want_path else 1
        n_cells = min(n_cells, 1 << 20)
        rows = AffineRows(
            *(
                space.device(name, n_threads * n_rows * n_columns, np.int32).reshape(shape)
                for name in ("match", "insertion", "deletion")
            ),
            *(
                space.device(name, n_threads * n_rows, np.int64).reshape(n_threads, n_rows)
                for name in ("lo", "hi")
            ),
        )
        origins = Origins(
            space.device("origins", n_threads * n_cells, np.uint8).reshape(n_threads, n_cells),
            *(
                space.device(f"origin {name}", n_threads * kept, np.int64).reshape(n_threads, kept)
                for name in ("at", "lo")
            ),
        )
        n_events = rung.bound + 1
        events = space.device("events", n_threads * n_events, np.uint32)
        affine_kernel.launch(
            n_threads, space.stream, pairs, self._free, self._penalties, self._scale,
            self._max_penalty, rung.bound, int(want_path), rows, origins,
            events.reshape(n_threads, n_events), out,
        )  # fmt: skip
