"""CUDA kernel of edit distance of short pairs by bit vectors: a thread a pair.

Where a wavefront of s edits has some s cells a row, a column of a band of the matrix is one word,
whatever the pair: the threads of a warp do the same, each its own pair, and wait for nobody. With
their words as wide as the band, 32 or 64 bits, pairs of up to so many edits, less one, are worth it
(``bit_vectors.py``). For the path two words a column go to global memory, those of the threads of
a block side by side.

A launch is one of several stages (``flat_stages.py``), each with a wider band.

References
----------
Myers (1999), J. ACM 46:395. Hyyrö (2003), Nordic J. Computing 10:29.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.cuda.kernels import BLOCK, strings_of, two_bits
from mapper.align.cuda.retry import DONE
from mapper.align.cuda.stages import hand_on, is_idle, source_of
from mapper.align.edit.bit_vectors import search_columns, trace_columns
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace, multiprocessors, total_bytes

_BLOCKS = 4
"""Of a multiprocessor; twice as many would fit, and wait for memory."""

WORD_TYPES = {32: np.uint32, 64: np.uint64}


class VectorSpace(NamedTuple):
    """Where the moves of all threads of a launch lie, for references of up to `columns`."""

    moves: Any  # uint32 or uint64 (n_blocks * 2 * columns * BLOCK,)
    columns: int


def vector_space(
    space: Workspace, width: int, columns: int, n_pairs: int, want_path: bool
) -> tuple[int, VectorSpace]:
    """Return how many blocks to launch for up to `n_pairs`, and their work space.

    Launches of all widths share it; make that of the widest first.
    """
    n_blocks = min((n_pairs + BLOCK - 1) // BLOCK, multiprocessors() * _BLOCKS)
    items = 2 * columns * BLOCK
    if want_path:
        n_blocks = max(1, min(n_blocks, (total_bytes() >> 6) // (items * width // 8)))
    n_items = n_blocks * items if want_path else 1
    moves = space.device("flat moves", n_items, WORD_TYPES[width])
    return n_blocks, VectorSpace(moves, columns)


@kernel(BLOCK)
def vector_edit_kernel(staged, n, max_distance, width, number, is_widest, want_path, space, stages,
                       slot, out):  # fmt: skip
    """Find global edit distances below `width`, and paths, as stage `number`.

    Handed on are pairs that are too long, and, but for the widest, those that have more edits: the
    groups behind that go no farther. Operations are written last one first.
    """
    source = source_of(stages, number)
    n_pairs = np.int32(0) if is_idle(stages, number) else stages.counts[source]
    first = np.int64(0)
    if want_path:
        first = np.int64(cuda.blockIdx.x) * 2 * space.columns * BLOCK + cuda.threadIdx.x
    x, step = np.int32(cuda.grid(1)), np.int32(cuda.gridsize(1))
    while x < n_pairs:
        i = np.int64(stages.pairs[source - 1, x])
        x = np.int32(x + step)
        strings = two_bits(strings_of(staged, n, i))
        if strings.ref_len > space.columns:  # would keep its warp waiting
            hand_on(stages, number, i)
            continue
        most = min(max_distance, np.int64(max(strings.query_len, strings.ref_len)))
        last = np.int32(min(most, np.int64(width - 1)))
        score = search_columns(strings, last, width, space.moves, first, BLOCK, want_path)
        if score < 0 and most >= width:
            if not is_widest:
                hand_on(stages, number, i)
            continue
        n_ops = np.int32(0)
        if score >= 0 and want_path:
            ops = out.slots[i * slot : (i + 1) * slot]
            n_ops = trace_columns(strings, width, space.moves, first, BLOCK, ops)
        out.score[i] = score
        out.status[i] = DONE
        out.n_ops[i] = n_ops
