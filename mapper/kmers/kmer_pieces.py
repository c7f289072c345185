"""Search a batch of k-mers whole or, where its hits are too many at a time, in pieces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from mapper.batch import KmerBatch, KmerHits
from mapper.errors import DeviceMemoryError


class ListFullError(Exception):
    """A batch has more hits, beyond the first of each row, than its list has room for."""

    def __init__(self, n_items: int) -> None:
        super().__init__(n_items)
        self.n_items = n_items


def search_in_pieces(
    search: Callable[[KmerBatch, int], KmerHits], kmers: KmerBatch, capacity: int
) -> KmerHits:
    """Search a batch, cutting it into pieces as often as it takes.

    Parameters
    ----------
    search
        Takes k-mers and the capacity of the list of hits; raises ListFullError if that does
        not suffice, DeviceMemoryError if the device's memory does not.
    capacity
        Room for hits. Only a single k-mer gets more, if it needs it; pieces get less where the
        device's memory did not suffice.

    Raises
    ------
    DeviceMemoryError
        If a single k-mer is too much for the device.
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
    """Return the hits of consecutive batches as those of one."""
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
