"""Cut reads into batches of k-mers, and a batch with too many hits into smaller ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from mapper.batch import KmerBatch, KmerHits, ReadBatch
from mapper.dna import AMBIGUOUS
from mapper.errors import DeviceMemoryError
from mapper.jit.accelerate import driver

# --- cut reads into k-mers ---


@driver
def _cut(bases, base_offsets, kmer_len, stride, read, start, low, high, reads, offsets):
    """Fill the columns from k-mer `start` of `read` on, until they are full.

    Returns
    -------
    n_kmers, n_ambiguous
        k-mers cut, and k-mers skipped because of an ambiguous base.
    read, start
        Read and k-mer start to continue from; `read` is the number of reads at the end.
    """
    n_reads = len(base_offsets) - 1
    one = np.uint64(1)
    n_kmers = n_ambiguous = 0
    while read < n_reads:
        first_base = base_offsets[read]
        read_len = base_offsets[read + 1] - first_base
        low_bits = high_bits = np.uint64(0)
        clean_from = start  # first base after the last ambiguous one
        next_start = start
        for i in range(start, read_len):
            code = bases[first_base + i]
            low_bits >>= one
            high_bits >>= one
            if code >= AMBIGUOUS:
                clean_from = i + 1
            else:
                low_bits |= np.uint64(code & 1) << np.uint64(kmer_len - 1)
                high_bits |= np.uint64(code >> 1) << np.uint64(kmer_len - 1)
            if i - kmer_len + 1 != next_start:
                continue
            if clean_from > next_start:
                n_ambiguous += 1
            elif n_kmers == len(low):
                return n_kmers, n_ambiguous, read, next_start
            else:
                low[n_kmers] = low_bits
                high[n_kmers] = high_bits
                reads[n_kmers] = read
                offsets[n_kmers] = next_start
                n_kmers += 1
            next_start += stride
        read += 1
        start = 0
    return n_kmers, n_ambiguous, read, start


def cut_kmers(
    reads: ReadBatch, kmer_len: int, stride: int, max_kmers: int
) -> Iterator[tuple[KmerBatch, int]]:
    """Yield the k-mers of reads, in order, in batches.

    A k-mer starts at every multiple of `stride` with k bases to the end of the read. k-mers
    with an ambiguous base are skipped.

    Parameters
    ----------
    kmer_len
        k, 1 to 64.
    stride
        Distance of starts in bases, at least 1.
    max_kmers
        Largest number of k-mers in a batch.

    Yields
    ------
    A batch, and the number of k-mers skipped up to its end. Nothing for reads without k-mers.
    """
    lengths = np.diff(reads.base_offsets)
    most = int(np.maximum(0, (lengths - kmer_len) // stride + 1).sum())
    read = start = 0
    while read < reads.n_reads:
        room = min(most, max_kmers)
        columns = (
            np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.int32),
            np.empty(room, np.int32),
        )  # fmt: skip
        n, n_ambiguous, read, start = _cut(
            reads.bases, reads.base_offsets, kmer_len, stride, read, start, *columns
        )
        most -= n + n_ambiguous
        if n or n_ambiguous:
            yield KmerBatch(*(column[:n] for column in columns)), n_ambiguous


# --- search a batch in pieces ---


class ListFullError(Exception):
    """A batch has more hits, beyond the first of each row, than its list has room for."""

    def __init__(self, n_items: int) -> None:
        super().__init__(n_items)
        self.n_items = n_items


def search_in_pieces(
    search: Callable[[KmerBatch, int], KmerHits], kmers: KmerBatch, capacity: int
) -> KmerHits:
    """Search a batch of k-mers, in pieces if memory does not suffice for all its hits.

    Parameters
    ----------
    search
        Takes k-mers and the capacity of the list of hits; raises ListFullError if that does
        not suffice, DeviceMemoryError if the device's memory does not.
    capacity
        Items of the list of hits. A single k-mer gets more if it needs more; pieces get less
        where the device's memory did not suffice.

    Raises
    ------
    DeviceMemoryError
        If a single k-mer does not fit the device.
    """
    try:
        return search(kmers, capacity)
    except ListFullError as full:
        if kmers.n_kmers == 1:
            return search(kmers, full.n_items)
        n_pieces = min(kmers.n_kmers, full.n_items // capacity + 2)
    except DeviceMemoryError:
        if kmers.n_kmers == 1:
            raise
        n_pieces = 2
        capacity = max(1, capacity // 2)
    cuts = np.linspace(0, kmers.n_kmers, n_pieces + 1).astype(np.int64)
    pieces = [KmerBatch(*(column[a:b] for column in kmers)) for a, b in pairwise(cuts)]
    return join([search_in_pieces(search, piece, capacity) for piece in pieces])


def join(pieces: list[KmerHits]) -> KmerHits:
    """Concatenate the hits of consecutive batches."""
    offsets = [pieces[0].hit_offsets]
    for piece in pieces[1:]:
        offsets.append(piece.hit_offsets[1:] + offsets[-1][-1])
    return KmerHits(
        np.concatenate(offsets),
        *(
            np.concatenate([getattr(piece, name) for piece in pieces])
            for name in ("text_pos", "mismatches", "skipped")
        ),
    )
