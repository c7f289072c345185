"""Small indexes with text positions beyond 2**32, without the memory of such a text.

An index is moved by adding to every text position that it gives: samples of the suffix array,
starts of contigs, and the bit planes, which come to lie at the end of an array of zeros that
the system gives no memory for until it is written to.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mapper.index.fm import FMIndex
from mapper.index.index import Index

BEYOND = (1 << 32) + (5 << 20)
"""A multiple of 64, so that the planes keep their words."""


def fm_at(fm: FMIndex, text_pos: int) -> FMIndex:
    """Return the FM-index of a text that begins at `text_pos`, a multiple of 64.

    LF walks that reach the first base of the text still end at position 0: no row before the first
    sample of the suffix array may be located.
    """
    assert text_pos % 64 == 0
    planes = np.zeros((text_pos // 64 + len(fm.ref_planes), 3), np.uint64)
    planes[text_pos // 64 :] = fm.ref_planes
    return fm._replace(
        sa_samples=fm.sa_samples.astype(np.uint64) + np.uint64(text_pos),
        kmer_starts=fm.kmer_starts.astype(np.uint64),
        ref_planes=planes,
        n_rows=fm.n_rows + text_pos,
    )


def index_at(index: Index, text_pos: int, *, one_contig: bool = False) -> Index:
    """Return an index whose text begins at `text_pos`; see :func:`fm_at`.

    Parameters
    ----------
    one_contig
        The first contig begins at 0, and holds all that lies before its bases; otherwise
        nothing is there.
    """
    contigs = index.contigs
    starts, lengths = contigs.starts + text_pos, contigs.lengths.copy()
    if one_contig:
        starts[0] = 0
        lengths[0] += text_pos
    moved = contigs._replace(starts=starts, lengths=lengths)
    return replace(index, fm=fm_at(index.fm, text_pos), contigs=moved)


def with_rows_of(index: Index, text_pos: int) -> Index:
    """Return the index with the number of rows that :func:`index_at` gives it, else unchanged.

    Seed lengths and mapping qualities depend on that number.
    """
    return replace(index, fm=index.fm._replace(n_rows=index.fm.n_rows + text_pos))
