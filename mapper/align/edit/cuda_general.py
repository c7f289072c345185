"""CUDA kernel of edit distance for any span and alphabet: one thread a pair, the cores of the CPU.

A pair whose path the CPU would find by divide and conquer is left to it, so that both give the same
path.
"""

from __future__ import annotations

import numpy as np

from mapper.align.cuda.retry import (
    BLOCK,
    DONE,
    UNSOLVED,
    Attempt,
    DevicePairs,
    DeviceResults,
    RetryWorker,
)
from mapper.align.edit.cpu import LEAF_CELLS, LEAF_ROWS
from mapper.align.edit.wavefront import (
    EXCEEDED,
    FINISHED,
    Ends,
    Rows,
    cell,
    edit_search,
    ends_within,
    trace_edit,
)
from mapper.align.matches import Pair
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace

ATTEMPTS = (Attempt(20, 1 << 18), Attempt(64, 1 << 15), Attempt(250, 1 << 12))
"""At most about 1 GB of workspace each, unless alignments may start on many diagonals. Chosen on an
H200 (``benchmarks/results/align_cuda_variants.md``)."""

_MOST_CELLS = 1 << 16
"""Most cells of a thread; pairs that need more go to the CPU."""


@kernel(BLOCK)
def edit_kernel(pairs, free, max_distance, bound, want_path, rows, n_cells, n_rows, out):
    """Align pairs in one attempt, as ``edit/cpu.align_edit``; threads stride over pairs."""
    thread = cuda.grid(1)
    n_threads = cuda.gridsize(1)
    own = Rows(
        rows.cells[thread * n_cells : (thread + 1) * n_cells],
        rows.at[thread * n_rows : (thread + 1) * n_rows],
        rows.lo[thread * n_rows : (thread + 1) * n_rows],
        rows.hi[thread * n_rows : (thread + 1) * n_rows],
    )
    slot = 2 * bound + 2
    for j in range(thread, len(pairs.todo), n_threads):
        i = pairs.todo[j]
        n, m = pairs.query_len[i], pairs.ref_len[i]
        pair = Pair(
            pairs.query_words, pairs.ref_words, pairs.query_start[i] << 6, pairs.ref_start[i] << 6,
            n, m, np.int64(pairs.shift[i]),
        )  # fmt: skip
        ends = ends_within(free, n, m)
        most = min(max_distance, max(n, m))
        status, s, k = edit_search(pair, ends, min(most, bound), own, want_path, 1)
        out.status[j] = DONE
        out.n_ops[j] = 0
        out.score[j] = -1
        if status != FINISHED:
            # Above the limit, unless the bound of the attempt is lower.
            out.status[j] = DONE if status == EXCEEDED and most <= bound else UNSOLVED
            continue
        first_width = ends.query_begin + ends.ref_begin + 1
        leaf_holds = s + 2 < LEAF_ROWS and (s + 1) * (s + 4 + first_width) <= LEAF_CELLS
        if want_path and not leaf_holds:
            out.status[j] = UNSOLVED
            continue
        h = cell(own, s if want_path else s & 1, k)
        out.score[j] = s
        out.query_end[j] = h - k
        out.ref_end[j] = h
        if want_path:
            ops = out.ops[j * slot : (j + 1) * slot]
            n_ops, start_k = trace_edit(own, s, k, h, ops, 0)
            for x in range(n_ops >> 1):  # reverse: they came last first
                ops[x], ops[n_ops - 1 - x] = ops[n_ops - 1 - x], ops[x]
            out.n_ops[j] = n_ops
            out.query_start[j] = max(0, -start_k)
            out.ref_start[j] = max(0, start_k)
        else:
            known = 0 if ends.query_begin + ends.ref_begin == 0 else -1
            out.query_start[j] = known
            out.ref_start[j] = known


class EditWorker(RetryWorker):
    """Edit distance on one device."""

    attempts = ATTEMPTS

    def __init__(self, ordinal: int, free: Ends, max_distance: int) -> None:
        super().__init__(ordinal, free)
        self._max_distance = max_distance

    def launch(
        self, space: Workspace, attempt: Attempt, pairs: DevicePairs, n_todo: int, want_path: bool,
        begin_width: int, out: DeviceResults,
    ) -> None:  # fmt: skip
        n_cells = _cells(attempt.bound, want_path, begin_width)
        n_rows = attempt.bound + 3 if want_path else 2
        n_threads = min(attempt.n_threads, (n_todo + BLOCK - 1) // BLOCK * BLOCK)
        rows = Rows(
            space.device("cells", n_threads * n_cells, np.int32),
            *(space.device(name, n_threads * n_rows, np.int64) for name in ("at", "lo", "hi")),
        )
        edit_kernel.launch(
            n_threads, space.stream, pairs, self._free, self._max_distance, attempt.bound,
            int(want_path), rows, n_cells, n_rows, out,
        )  # fmt: skip


def _cells(bound: int, want_path: bool, begin_width: int) -> int:
    """Return the cells of all wavefronts up to a distance, or of two wavefronts without paths."""
    if not want_path:
        return 2 * (2 * bound + 1 + begin_width + 4)
    return min((bound + 1) * (bound + 5 + begin_width), _MOST_CELLS)
