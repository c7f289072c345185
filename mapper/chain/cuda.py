"""CUDA kernels of chaining: seeds of short reads → loci, anchors of long ones → links.

A thread turns a seed into a candidate locus. A warp links the anchors of a long read, in their
order; its lanes look at the predecessors of an anchor together. The CPU takes chains of the links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mapper.batch import AnchorBatch, LinkBatch, LocusBatch, ReadBatch
from mapper.chain.collinear import Items, fill_items, link_items
from mapper.chain.cpu import find_window
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import columns
from mapper.index.reference import ContigBounds
from mapper.jit.lanes import lanes_meet
from mapper.params import ChainParams
from mapper.seed.cuda import DeviceSeeds


@kernel(128)
def _chain(contigs, seeds, loci, n_seeds):
    i = cuda.grid(1)
    if i < n_seeds:
        loci.diagonal[i] = seeds.text_pos[i] - seeds.query_start[i]
        find_window(
            contigs.starts, contigs.lengths, seeds.text_pos, i, loci.ref_id, loci.window_start,
            loci.window_end,
        )  # fmt: skip


def find_loci(space: Workspace, contigs: ContigBounds, seeds: DeviceSeeds) -> LocusBatch:
    """Turn located seeds into candidate loci: :func:`mapper.chain.cpu.find_loci`.

    The result consists of device arrays, some of them shared with `seeds`.
    """
    n = len(seeds.columns.strand)
    loci = LocusBatch(
        locus_offsets=seeds.offsets,
        strand=seeds.columns.strand,
        diagonal=space.device("locus.diagonal", n, np.int64),
        ref_id=space.device("locus.ref_id", n, np.int32),
        window_start=space.device("locus.window_start", n, np.int64),
        window_end=space.device("locus.window_end", n, np.int64),
    )
    _chain.launch(n, space.stream, contigs, seeds.columns, loci, n)
    return loci


# --- long reads ---

_ITEMS = ("i4", "i4", "i4", "i8", "i8", "i8")


@kernel(WARP)
def link_reads(anchors, contig_starts, items, params, links):
    """Link the anchors of one read a warp."""
    read = cuda.blockIdx.x
    first, end = anchors.anchor_offsets[read], anchors.anchor_offsets[read + 1]
    mine = Items(
        items.group[first:end], items.query_start[first:end], items.query_end[first:end],
        items.text_start[first:end], items.text_end[first:end], items.weight[first:end],
    )  # fmt: skip
    lanes = WarpLanes(cuda.threadIdx.x, WARP)
    fill_items(anchors, first, end, contig_starts, mine, lanes)
    lanes_meet(lanes)
    link_items(
        mine, end - first, params.band, params.max_gap, params.lookback, links.score[first:end],
        links.parent[first:end], lanes,
    )  # fmt: skip


def link_anchors(
    space: Workspace, contig_starts: Any, anchors: AnchorBatch, params: ChainParams
) -> LinkBatch:
    """Find the best chain that ends with each anchor: :func:`mapper.chain.cpu.link_anchors`.

    All arrays, and those of the result, lie on the device.
    """
    n = len(anchors.strand)
    links = columns(space, "link", LinkBatch, ("i8", "i8"), n)
    if n:
        items = columns(space, "link.item", Items, _ITEMS, n)
        n_reads = len(anchors.anchor_offsets) - 1
        link_reads.launch_blocks(
            n_reads, space.stream, anchors, contig_starts, items, params, links
        )
    return links


def download_links(
    space: Workspace, anchors: AnchorBatch, links: LinkBatch, batches: Sequence[ReadBatch]
) -> list[tuple[AnchorBatch, LinkBatch]]:
    """Copy anchors and links to the host, for the caller to keep; waits for the stream.

    Returns
    -------
    The share of each batch, as views.
    """
    host = space.download_results("anchors", [*anchors, *links])
    space.synchronize()
    offsets, *of_anchors, frequent, score, parent = host
    shares = []
    first = 0
    for reads in batches:
        end = first + reads.n_reads
        rows = slice(offsets[first], offsets[end])
        own = [column[rows] for column in of_anchors]
        shares.append(
            (
                AnchorBatch._make(
                    (offsets[first : end + 1] - offsets[first], *own, frequent[first:end])
                ),
                LinkBatch(score[rows], parent[rows]),
            )
        )
        first = end
    return shares
