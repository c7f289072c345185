"""Cores of the suffix sort that all machines share: what ranks say, and what they lead to."""

from __future__ import annotations

import numpy as np

from mapper.index.packed_text import base_at
from mapper.jit.accelerate import core


@core
def rank_after(rank, n, text_pos, depth, offset):
    """Key (uint64) that orders suffixes which agree in `depth` bases: the rank of what follows.

    What ends within these bases sorts before all that go on, the shortest first.

    Parameters
    ----------
    rank
        Row type (n,): see :mod:`mapper.index.suffix_sort`.
    offset
        Added, so that no key is negative: the least `depth` of all rounds will do, because
        after its round nothing that ends within twice as many bases is tied.
    """
    after = text_pos + depth
    if after < n:
        return np.uint64(np.int64(rank[after]) + offset)
    return np.uint64(n - after + offset)


@core
def place(words, rank, text_pos, first_row, end_row, sa_shift, bwt, sa_samples):
    """Write what the row of a suffix says, if the row lies in ``[first_row, end_row)``.

    Parameters
    ----------
    rank
        Of all suffixes, none tied.
    first_row
        A multiple of ``2**sa_shift``.
    bwt
        uint8: the base before the suffix goes to ``bwt[row - first_row]``; before the whole
        text there is none, and nothing is written.
    sa_samples
        Row type: of sampled rows from `first_row` on.
    """
    row = np.int64(rank[text_pos]) - first_row
    if row < 0 or row >= end_row - first_row:
        return
    if text_pos > 0:
        bwt[row] = base_at(words, text_pos - 1)
    if row & ((1 << sa_shift) - 1) == 0:
        sa_samples[row >> sa_shift] = text_pos
