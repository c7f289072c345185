"""Which places of the text may hold a match: within one contig, and where it is ambiguous."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.jit.accelerate import core, driver


class Places(NamedTuple):
    """What a search must know of the text beside the index."""

    contig_starts: np.ndarray  # int64 (n_contigs,)
    contig_lengths: np.ndarray  # int64 (n_contigs,)
    unclean_words: np.ndarray
    """uint64: bit w is set where word w of the text (64 bases) holds an ambiguous base, a
    separator or the end. 2 MB for a billion bases: it stays in the cache of a GPU."""


@driver
def _mark_words(ref_planes, unclean_words):
    for word in range(len(ref_planes)):
        if ref_planes[word, 2]:
            unclean_words[word >> 6] |= np.uint64(1) << np.uint64(word & 63)


def make_places(
    contig_starts: np.ndarray, contig_lengths: np.ndarray, ref_planes: np.ndarray
) -> Places:
    """Return the places of a reference; `ref_planes` as in FMIndex."""
    unclean_words = np.zeros((len(ref_planes) >> 6) + 1, np.uint64)
    _mark_words(ref_planes, unclean_words)
    return Places(contig_starts, contig_lengths, unclean_words)


@core
def surely_clean(places, text_pos, length):
    """Whether none of the words that hold `length` bases (1 to 64) is marked.

    If so, they lie in one contig and none is ambiguous; if not, look closer.
    """
    if text_pos < 0:
        return False
    first = text_pos >> 6
    last = (text_pos + length - 1) >> 6
    marks = (places.unclean_words[first >> 6] >> np.uint64(first & 63)) | (
        places.unclean_words[last >> 6] >> np.uint64(last & 63)
    )
    return (marks & np.uint64(1)) == 0
