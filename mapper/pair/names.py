"""Names that tags quote, as flat bytes for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Names(NamedTuple):
    """Texts that tags quote, as flat bytes."""

    contigs: np.ndarray  # uint8
    contig_offsets: np.ndarray  # int64 (n_contigs + 1,)
    contig_starts: np.ndarray  # int64 (n_contigs,)
    read_group: np.ndarray  # uint8; empty for none


def make_names(contigs: tuple[str, ...], starts: np.ndarray, read_group: str) -> Names:
    """Flatten contig names and the read group's ID.

    Parameters
    ----------
    starts
        int64 (n_contigs,): where each contig begins in the indexed text.
    read_group
        ID without ``ID:``; empty for none.
    """
    encoded = [name.encode() for name in contigs]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=offsets[1:])
    flat = np.frombuffer(b"".join(encoded), np.uint8)
    return Names(flat, offsets, starts, np.frombuffer(read_group.encode(), np.uint8))
