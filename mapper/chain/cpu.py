"""CPU drivers of chaining: turn seeds of short reads into loci, anchors of long ones into chains.

A short read needs no chain: the seed stage leaves one seed for each strand and diagonal,
and each diagonal is a candidate of its own. Gapped extension then joins diagonals that
belong to one alignment. The anchors of long reads are chained (:mod:`mapper.chain.collinear`).
"""

from __future__ import annotations

import numpy as np

from mapper.batch import AnchorBatch, ChainBatch, LinkBatch, LocusBatch, SeedBatch
from mapper.batch_ops import longest_row
from mapper.chain.collinear import (
    UNITS,
    Items,
    fill_items,
    group_of,
    link_items,
    new_items,
    take_chains,
)
from mapper.index.reference import contig_bounds, find_contig
from mapper.jit.accelerate import core, driver
from mapper.jit.lanes import ONE_LANE
from mapper.params import ChainParams
from mapper.sorting.record_order import stable_order


@core
def find_window(contig_starts, contig_lens, text_pos, i, ref_id, window_start, window_end):
    """Fill row i of three columns of a LocusBatch: its contig and the contig's bounds."""
    contig = find_contig(contig_starts, text_pos[i])
    start, end = contig_bounds(contig_starts, contig_lens, contig)
    ref_id[i] = contig
    window_start[i] = start
    window_end[i] = end


@driver
def _windows(contig_starts, contig_lens, text_pos, ref_id, window_start, window_end):
    for i in range(len(text_pos)):
        find_window(contig_starts, contig_lens, text_pos, i, ref_id, window_start, window_end)


def find_loci(seeds: SeedBatch, contig_starts: np.ndarray, contig_lens: np.ndarray) -> LocusBatch:
    """Turn located seeds into candidate loci, bounded by their contigs.

    Parameters
    ----------
    contig_starts, contig_lens
        int64, shape (n_contigs,): text position of each contig's first base; its length.
    """
    n = len(seeds.strand)
    ref_id = np.empty(n, np.int32)
    window_start = np.empty(n, np.int64)
    window_end = np.empty(n, np.int64)
    _windows(contig_starts, contig_lens, seeds.text_pos, ref_id, window_start, window_end)
    return LocusBatch(
        locus_offsets=seeds.seed_offsets,
        strand=seeds.strand,
        diagonal=seeds.text_pos - seeds.query_start,
        ref_id=ref_id,
        window_start=window_start,
        window_end=window_end,
    )


# --- long reads ---


@driver
def _link_reads(anchors, contig_starts, items, params, links):
    for read in range(len(anchors.anchor_offsets) - 1):
        first, end = anchors.anchor_offsets[read], anchors.anchor_offsets[read + 1]
        fill_items(anchors, first, end, contig_starts, items, ONE_LANE)
        link_items(
            items, end - first, params.band, params.max_gap, params.lookback,
            links.score[first:end], links.parent[first:end], ONE_LANE,
        )  # fmt: skip


def link_anchors(anchors: AnchorBatch, contig_starts: np.ndarray, params: ChainParams) -> LinkBatch:
    """Find the best chain that ends with each anchor.

    Parameters
    ----------
    contig_starts
        int64, shape (n_contigs,): text position of each contig's first base.

    Notes
    -----
    Heuristic: of the anchors before one, the last ``lookback`` are looked at.
    """
    n = len(anchors.strand)
    links = LinkBatch(np.empty(n, np.int64), np.empty(n, np.int64))
    items = new_items(int(longest_row(anchors.anchor_offsets)))
    _link_reads(anchors, contig_starts, items, params, links)
    return links


@driver
def _take(score, parent, weight, params):
    """Take chains of linked items; return their number and, as :func:`take_chains`, members."""
    n = len(score)
    order = stable_order(-score)
    members = np.empty(n, np.int64)
    ends = np.zeros(n, np.int64)
    chain_score = np.zeros(n, np.int64)
    n_chains = take_chains(
        order, n, score, parent, weight, UNITS * params.min_score, np.zeros(n, np.bool_), members,
        ends, chain_score,
    )  # fmt: skip
    return n_chains, members, ends, chain_score


@driver
def _as_items(anchors, first_anchor, contig_starts, n_chains, members, ends, chain_score):
    """Return the chains as items in their order, and the chain of each."""
    keys = np.empty(n_chains, np.int64)
    for chain in range(n_chains):
        keys[chain] = members[ends[chain - 1] if chain else 0]  # anchors are sorted by their ends
    order = stable_order(keys)
    chains = Items(
        np.empty(n_chains, np.int64), np.empty(n_chains, np.int64), np.empty(n_chains, np.int64),
        np.empty(n_chains, np.int64), np.empty(n_chains, np.int64), np.empty(n_chains, np.int64),
    )  # fmt: skip
    for row in range(n_chains):
        chain = order[row]
        first = first_anchor + members[ends[chain] - 1]
        last = first_anchor + keys[chain]
        text_pos, length = anchors.text_pos[last], np.int64(anchors.length[last])
        chains.group[row] = group_of(contig_starts, anchors.strand[last], text_pos)
        chains.query_start[row] = anchors.query_start[first]
        chains.query_end[row] = anchors.query_start[last] + length
        chains.text_start[row] = anchors.text_pos[first]
        chains.text_end[row] = text_pos + length
        chains.weight[row] = chain_score[chain]
    return chains, order


@driver
def _chain_read(anchors, first, end, contig_starts, links, params):
    """Chain the linked anchors of a read: return the joined chains' scores and anchors' rows.

    Returns
    -------
    n_chains, scores, ends, rows
        Best chain first; the rows of each, ascending, end at ``ends``.
    """
    weight = np.empty(end - first, np.int64)
    for i in range(first, end):
        weight[i - first] = UNITS * np.int64(anchors.length[i])
    n_parts, parts, part_ends, part_score = _take(
        links.score[first:end], links.parent[first:end], weight, params
    )
    chains, part_of = _as_items(
        anchors, first, contig_starts, n_parts, parts, part_ends, part_score
    )
    score = np.empty(n_parts, np.int64)
    parent = np.empty(n_parts, np.int64)
    link_items(
        chains, n_parts, params.long_band, params.long_gap, params.lookback, score, parent, ONE_LANE
    )
    n_chains, members, ends, score = _take(score, parent, chains.weight, params)
    rows = np.empty(end - first, np.int64)
    row_ends = np.empty(n_chains, np.int64)
    n_rows = np.int64(0)
    for chain in range(n_chains):
        start = ends[chain - 1] if chain else np.int64(0)
        for member in range(ends[chain] - 1, start - 1, -1):
            part = part_of[members[member]]
            part_start = part_ends[part - 1] if part else np.int64(0)
            for i in range(part_ends[part] - 1, part_start - 1, -1):
                rows[n_rows] = first + parts[i]
                n_rows += 1
        row_ends[chain] = n_rows
    return n_chains, score, row_ends, rows


@driver
def _chain_reads(anchors, contig_starts, links, params, columns):
    n_reads = len(anchors.anchor_offsets) - 1
    strand, ref_id, score, anchor_offsets, query_start, text_pos, length = columns
    offsets = np.zeros(n_reads + 1, np.int64)
    n_chains = n_anchors = np.int64(0)
    for read in range(n_reads):
        first, end = anchors.anchor_offsets[read], anchors.anchor_offsets[read + 1]
        n, scores, ends, rows = _chain_read(anchors, first, end, contig_starts, links, params)
        for chain in range(n):
            start = ends[chain - 1] if chain else np.int64(0)
            head = rows[start]
            strand[n_chains] = anchors.strand[head]
            ref_id[n_chains] = find_contig(contig_starts, anchors.text_pos[head])
            score[n_chains] = scores[chain] // UNITS
            for i in range(start, ends[chain]):
                query_start[n_anchors] = anchors.query_start[rows[i]]
                text_pos[n_anchors] = anchors.text_pos[rows[i]]
                length[n_anchors] = anchors.length[rows[i]]
                n_anchors += 1
            n_chains += 1
            anchor_offsets[n_chains] = n_anchors
        offsets[read + 1] = n_chains
    return offsets


def chain_anchors(
    anchors: AnchorBatch, contig_starts: np.ndarray, params: ChainParams,
    links: LinkBatch | None = None,
) -> ChainBatch:  # fmt: skip
    """Chain the anchors of each read, then join chains over long gaps.

    Parameters
    ----------
    contig_starts
        int64, shape (n_contigs,): text position of each contig's first base.
    links
        Of the anchors; None to find them.

    Returns
    -------
    Chains that reach ``min_score``, best first; each anchor belongs to one at most. The parts of a
    joined chain may overlap by some anchors.
    """
    if links is None:
        links = link_anchors(anchors, contig_starts, params)
    n = len(anchors.strand)
    columns = (
        np.empty(n, np.uint8), np.empty(n, np.int32), np.empty(n, np.int32),
        np.zeros(n + 1, np.int64), np.empty(n, np.int32), np.empty(n, np.int64),
        np.empty(n, np.int32),
    )  # fmt: skip
    offsets = _chain_reads(anchors, contig_starts, links, params, columns)
    strand, ref_id, score, anchor_offsets, query_start, text_pos, length = columns
    n_chains, n_anchors = offsets[-1], anchor_offsets[offsets[-1]]
    return ChainBatch(
        offsets, strand[:n_chains].copy(), ref_id[:n_chains].copy(), score[:n_chains].copy(),
        anchor_offsets[: n_chains + 1].copy(), query_start[:n_anchors].copy(),
        text_pos[:n_anchors].copy(), length[:n_anchors].copy(),
    )  # fmt: skip
