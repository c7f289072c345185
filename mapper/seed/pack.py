"""Pack both strands of reads into bit planes, for seeding, extension and rescue."""

from __future__ import annotations

import numpy as np

from mapper.batch import PackedReads, ReadBatch
from mapper.dna import AMBIGUOUS, n_words, pack_strand, plane_word
from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import reversed_bits
from mapper.jit.simd import VECTOR, bytes_with

_ABOVE = 256 - AMBIGUOUS
"""Bits of codes of ambiguous bases that others do not have."""


@core
def pack_row(bases, base_offsets, planes, word_offsets, read, strand):
    """Pack one strand of one read into its rows of `planes`, as a device does."""
    start, end = base_offsets[read], base_offsets[read + 1]
    word = word_offsets[read] + strand * n_words(end - start)
    pack_strand(bases, start, end, strand, planes, word)


@core
def _last_bits(length, w):
    """Return a mask of the bits of word w of a read that are bases of it."""
    used = length - VECTOR * w
    return ~np.uint64(0) if used >= VECTOR else (np.uint64(1) << np.uint64(used)) - np.uint64(1)


@core
def _pack_forward(bases, start, end, planes, word):
    """Write the planes of the strand as given, 64 bases at a time."""
    for w in range(n_words(end - start)):
        at = start + VECTOR * w
        if at + VECTOR > len(bases):
            pack_strand(bases, at, end, 0, planes, word + w)
            return
        inside = _last_bits(end - start, w)
        ambiguous = bytes_with(bases, at, _ABOVE)
        clear = inside & ~ambiguous
        planes[word + w, 0] = bytes_with(bases, at, 1) & clear
        planes[word + w, 1] = bytes_with(bases, at, 2) & clear
        planes[word + w, 2] = ambiguous | ~inside


@core
def _words_from_end(planes, word, length, w, plane):
    """Return word w of a plane read from the last base to the first; bits beyond it are 0."""
    pos = length - VECTOR * (w + 1)
    if pos >= 0:
        return reversed_bits(plane_word(planes, word, pos, plane))
    return reversed_bits(planes[word, plane] << np.uint64(-pos))


@core
def _pack_reverse(planes, word, length):
    """Write the planes of the reverse complement behind those of the strand as given."""
    n = n_words(length)
    for w in range(n):
        inside = _last_bits(length, w)
        ambiguous = _words_from_end(planes, word, length, w, 2)
        clear = inside & ~ambiguous
        planes[word + n + w, 0] = ~_words_from_end(planes, word, length, w, 0) & clear
        planes[word + n + w, 1] = ~_words_from_end(planes, word, length, w, 1) & clear
        planes[word + n + w, 2] = ambiguous | ~inside


@driver
def _pack(bases, base_offsets, planes, word_offsets):
    for read in range(len(base_offsets) - 1):
        start, end = base_offsets[read], base_offsets[read + 1]
        _pack_forward(bases, start, end, planes, word_offsets[read])
        _pack_reverse(planes, word_offsets[read], end - start)


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
