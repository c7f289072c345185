"""Pack both strands of reads into bit planes, for seeding, extension and rescue."""

from __future__ import annotations

import numpy as np

from mapper.batch import PackedReads, ReadBatch
from mapper.dna import n_words, pack_strand
from mapper.jit.accelerate import core, driver


@core
def pack_row(bases, base_offsets, planes, word_offsets, read, strand):
    """Pack one strand of one read into its rows of `planes`."""
    start, end = base_offsets[read], base_offsets[read + 1]
    word = word_offsets[read] + strand * n_words(end - start)
    pack_strand(bases, start, end, strand, planes, word)


@driver
def _pack(bases, base_offsets, planes, word_offsets):
    for read in range(len(base_offsets) - 1):
        for strand in range(2):
            pack_row(bases, base_offsets, planes, word_offsets, read, strand)


def packed_offsets(base_offsets: np.ndarray) -> np.ndarray:
    """Return the ``word_offsets`` (int64) of PackedReads for reads with these offsets."""
    word_offsets = np.empty(len(base_offsets), np.int64)
    _count_words(base_offsets, word_offsets)
    return word_offsets


@driver
def _count_words(base_offsets, word_offsets):
    word_offsets[0] = 0
    for read in range(len(base_offsets) - 1):
        words = 2 * n_words(base_offsets[read + 1] - base_offsets[read])
        word_offsets[read + 1] = word_offsets[read] + words


def pack_reads(reads: ReadBatch) -> PackedReads:
    """Pack both strands of every read into bit planes."""
    word_offsets = packed_offsets(reads.base_offsets)
    planes = np.zeros((word_offsets[-1] + 1, 3), np.uint64)
    _pack(reads.bases, reads.base_offsets, planes, word_offsets)
    return PackedReads(planes, word_offsets)
