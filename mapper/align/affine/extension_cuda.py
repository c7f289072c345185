"""CUDA kernel of extension: one thread a pair, the cores of the CPU."""

from __future__ import annotations

from mapper.align.affine.affine_origins import replay, trace_back
from mapper.align.affine.affine_space import affine_space, origins_of, rows_of
from mapper.align.affine.extension import extension_search
from mapper.align.affine.wavefront_affine import AffinePenalties
from mapper.align.cuda.retry import (
    BLOCK,
    DONE,
    LEFT,
    DevicePairs,
    DeviceResults,
    Rung,
    RungWorker,
)
from mapper.align.edit.wavefront import FINISHED, Ends
from mapper.align.matches import Pair
from mapper.cigar import S, append_op
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace

RUNGS = (Rung(90, 1 << 15), Rung(250, 1 << 13))
"""Penalties into which scores are turned: bwa's mismatch is 10 of them, and what is left of a
sequence counts a match bonus a symbol."""


@kernel(BLOCK)
def extension_kernel(pairs, penalties, match, bound, want_path, space, out):
    """Extend pairs by threads that stride over them; as ``extension_cpu``, one rung."""
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
        status, doubled, s, k, h = extension_search(
            pair, own, own_origins, penalties, match, centre, bound, want_path
        )
        out.n_ops[j] = 0
        out.score[j] = -1
        if status != FINISHED:
            out.status[j] = LEFT
            continue
        out.status[j] = DONE
        out.score[j] = doubled >> 1
        out.query_start[j] = 0
        out.query_end[j] = h - k
        out.ref_start[j] = 0
        out.ref_end[j] = h
        if want_path:
            n_events, _ = trace_back(own_origins, penalties, s, k, own_events)
            ops = out.ops[j * slot : (j + 1) * slot]
            n_ops = replay(pair, own_events, n_events, 0, 0, h, ops)
            out.n_ops[j] = append_op(ops, n_ops, S, n - h + k)


class ExtensionWorker(RungWorker):
    """Extension on one device."""

    rungs = RUNGS

    def __init__(self, ordinal: int, penalties: AffinePenalties, match: int) -> None:
        super().__init__(ordinal, Ends(0, 0, 0, 0))
        self._penalties = penalties
        self._match = match

    def launch(
        self, space: Workspace, rung: Rung, pairs: DevicePairs, n_todo: int, want_path: bool,
        begin_width: int, out: DeviceResults,
    ) -> None:  # fmt: skip
        n_threads = min(rung.n_threads, (n_todo + BLOCK - 1) // BLOCK * BLOCK)
        own = affine_space(space, self._penalties, rung.bound, n_threads, begin_width, want_path)
        extension_kernel.launch(
            n_threads, space.stream, pairs, self._penalties, self._match, rung.bound,
            int(want_path), own, out,
        )  # fmt: skip
