"""Chunks of pairs on their way to a device and back: what the host does to them.

Compiled loops, so that several threads do it at a time, in one pass over the rows.
"""

from __future__ import annotations

import numpy as np

from mapper.accelerate import driver
from mapper.pairwise.cuda_batch import CUT, LEFT
from mapper.pairwise.flat_kernels import UNFIT
from mapper.pairwise.packing import PADDING, PairBatch
from mapper.pairwise.result import HEURISTIC, OK, OVER_LIMIT

CHUNK_PAIRS = 1 << 17
CHUNK_SYMBOLS = 1 << 27
"""Of one side, also those that lie between its sequences."""


def chunks_of(batch: PairBatch) -> list[tuple[int, int]]:
    """Cut a batch into runs of pairs."""
    bounds, first = [], 0
    while first < batch.n_pairs:
        last = min(
            int(_chunk_end(starts, ends, first, CHUNK_PAIRS, CHUNK_SYMBOLS))
            for starts, ends in (batch[1:3], batch[4:6])
        )
        bounds.append((first, last))
        first = last
    return bounds


@driver
def _chunk_end(start, end, first, most_pairs, most_symbols):
    """Return where a chunk ends: at least one pair, within both limits.

    Symbols are counted in sequences, of which several may be one, and from the first to the last.
    """
    begin, behind = start[first], end[first]
    n_symbols = end[first] - start[first]
    last = min(first + most_pairs, len(start))
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
        n_symbols += end[i] - start[i]
        if max(behind - begin, n_symbols) > most_symbols:
            return i
    return last


def selected(batch: PairBatch, pairs: np.ndarray) -> PairBatch:
    """Return a batch of some pairs (int64), with their letters only."""
    sides: list[np.ndarray] = []
    for letters, start, end in (batch[:3], batch[3:]):
        offsets = np.zeros(len(pairs) + 1, np.int64)
        np.cumsum(end[pairs] - start[pairs], out=offsets[1:])
        own = np.zeros(int(offsets[-1]) + PADDING, np.uint8)
        _select_letters(letters, start, pairs, offsets, own)
        sides += [own, offsets[:-1], offsets[1:]]
    return PairBatch(*sides)


@driver
def _select_letters(letters, start, pairs, offsets, own):
    for j in range(len(pairs)):
        at = start[pairs[j]]
        for i in range(offsets[j + 1] - offsets[j]):
            own[offsets[j] + i] = letters[at + i]


@driver
def fill_rows(first, score, status, n_ops, query_start, query_end, ref_start, ref_end, columns,
              counts, left):  # fmt: skip
    """Write the rows of a chunk; those of pairs that are left are filled later."""
    for j in range(len(score)):
        i = first + j
        left[i] = status[j] == LEFT or status[j] == UNFIT
        columns.score[i] = score[j]
        columns.status[i] = HEURISTIC if status[j] == CUT else OK
        columns.query_start[i] = columns.ref_start[i] = 0
        columns.query_end[i] = query_end[i] - query_start[i]
        columns.ref_end[i] = ref_end[i] - ref_start[i]
        if score[j] < 0:
            columns.status[i] = OVER_LIMIT
            columns.query_start[i] = columns.ref_start[i] = -1
            columns.query_end[i] = columns.ref_end[i] = -1
        if len(n_ops):
            counts[i] = n_ops[j]


@driver
def stage_places(start, end, first, origin, starts, lengths, words):
    """Write where the sequences of a chunk's side lie from `origin` on, and are packed.

    Returns
    -------
    The number of words when packed.
    """
    n_words = np.int64(0)
    for j in range(len(starts)):
        starts[j] = start[first + j] - origin
        lengths[j] = end[first + j] - start[first + j]
        words[j] = n_words
        n_words += (np.int64(lengths[j]) + 31) >> 5
    return n_words


@driver
def span_of(start, end, first, last):
    """Return the first byte of some sequences, and that behind the last."""
    begin, behind = start[first], end[first]
    for i in range(first + 1, last):
        begin = min(begin, start[i])
        behind = max(behind, end[i])
    return begin, behind
