"""Reads as bit planes, both strands: what seeding, extension and rescue compare with."""

from __future__ import annotations

import numpy as np

from mapper.accelerate import driver
from mapper.batch import PackedReads, ReadBatch
from mapper.dna import n_words, pack_strand


@driver
def _pack(bases, base_offsets, planes, word_offsets):
    for read in range(len(base_offsets) - 1):
        start, end = base_offsets[read], base_offsets[read + 1]
        word = word_offsets[read]
        pack_strand(bases, start, end, 0, planes, word)
        pack_strand(bases, start, end, 1, planes, word + n_words(end - start))


def pack_reads(reads: ReadBatch) -> PackedReads:
    """Pack both strands of every read into bit planes."""
    words = (np.diff(reads.base_offsets) + 63) >> 6
    word_offsets = np.zeros(reads.n_reads + 1, np.int64)
    np.cumsum(2 * words, out=word_offsets[1:])
    planes = np.zeros((word_offsets[-1] + 1, 3), np.uint64)
    _pack(reads.bases, reads.base_offsets, planes, word_offsets)
    return PackedReads(planes, word_offsets)
