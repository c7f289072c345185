"""CPU driver of chaining for short reads: turn seeds into candidate loci.

A short read needs no chain: the seed stage leaves one seed for each strand and diagonal,
and each diagonal is a candidate of its own. Gapped extension then joins diagonals that
belong to one alignment.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import LocusBatch, SeedBatch
from mapper.index.reference import contig_bounds, find_contig
from mapper.jit.accelerate import core, driver


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
