"""Reads whose chains explain little of them: they are seeded again, with more and shorter windows.

Where one base in seven is wrong, matches of 19 bases are rare, and most that there are hold no
window. A second look costs several times as much as the first, but few reads need one.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import ChainBatch
from mapper.jit.accelerate import driver


def weak_reads(base_offsets: np.ndarray, chains: ChainBatch, share: float) -> np.ndarray:
    """Return which reads have no chain that scores `share` of their bases: bool (n_reads,)."""
    first, end = chains.chain_offsets[:-1], chains.chain_offsets[1:]
    best = np.zeros(len(first), np.int64)
    best[first < end] = chains.score[first[first < end]]
    return best < share * np.diff(base_offsets)


@driver
def _copy_chains(source, first, end, target, chain, anchor):
    """Copy the chains first:end to `chain` and on; return those behind them, of anchors too."""
    shift = anchor - source.anchor_offsets[first]
    for i in range(first, end):
        target.strand[chain] = source.strand[i]
        target.ref_id[chain] = source.ref_id[i]
        target.score[chain] = source.score[i]
        chain += 1
        target.anchor_offsets[chain] = source.anchor_offsets[i + 1] + shift
    for i in range(source.anchor_offsets[first], source.anchor_offsets[end]):
        target.query_start[i + shift] = source.query_start[i]
        target.text_pos[i + shift] = source.text_pos[i]
        target.length[i + shift] = source.length[i]
    return chain, source.anchor_offsets[end] + shift


@driver
def _choose_chains(first_look, second_look, is_second, out):
    chain = anchor = np.int64(0)
    out.chain_offsets[0] = out.anchor_offsets[0] = 0
    for read in range(len(is_second)):
        source = second_look if is_second[read] else first_look
        first, end = source.chain_offsets[read], source.chain_offsets[read + 1]
        chain, anchor = _copy_chains(source, first, end, out, chain, anchor)
        out.chain_offsets[read + 1] = chain
    return chain, anchor


def choose_chains(
    first_look: ChainBatch, second_look: ChainBatch, is_second: np.ndarray
) -> ChainBatch:
    """Return the chains of the second look for the reads chosen, of the first for the others."""
    n_chains = len(first_look.strand) + len(second_look.strand)
    n_anchors = len(first_look.length) + len(second_look.length)
    sizes = (len(is_second) + 1, *3 * (n_chains,), n_chains + 1, *3 * (n_anchors,))
    out = ChainBatch._make(
        np.empty(size, column.dtype) for size, column in zip(sizes, first_look, strict=True)
    )
    n_chains, n_anchors = _choose_chains(first_look, second_look, is_second, out)
    ends = (len(is_second) + 1, *3 * (n_chains,), n_chains + 1, *3 * (n_anchors,))
    return ChainBatch._make(column[:end] for end, column in zip(ends, out, strict=True))
