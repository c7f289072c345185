"""Spot checks of an index that is opened: whether a search would stay within its arrays.

Row numbers and text positions that the files give are places in arrays, and compiled code does
not look whether they lie there: where much is damaged, a run soon ends by a signal or not at all.
Checksums find any damage, but of a large index only while it is in use already. These checks look
at a few rows every 127th of an array: they find what runs through a hundredth of it, and nothing
that lies between two of these places. The bit planes of the text lead nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mapper.index.fm import SUPERBLOCK_SHIFT, FMIndex

PLACES = 128
"""Places of a file that are looked at; each may be a read from the disk."""

ROWS = 64
"""Rows looked at in each place: of so many random numbers some lie beyond the end of the array."""

_LOW_HALF = np.uint64(0xFFFFFFFF)


def _check_blocks(fm: FMIndex) -> None:
    """Raise ValueError if the counts of a block are not as many as the characters before it."""
    blocks = _places(len(fm.blocks))
    words = fm.blocks[blocks, :2]
    counts = ((words & _LOW_HALF) + (words >> np.uint64(32))).sum(axis=-1)
    before = (blocks << fm.occ_shift) & ((1 << SUPERBLOCK_SHIFT) - 1)
    if (counts != before.astype(np.uint64)).any():
        raise ValueError("the counts of a block do not add up")


def _check_sa_samples(fm: FMIndex) -> None:
    """Raise ValueError if a text position lies beyond the text's end."""
    if (fm.sa_samples[_places(len(fm.sa_samples))] >= fm.n_rows).any():
        raise ValueError("a text position lies beyond the end of the text")


def _check_kmer_starts(fm: FMIndex) -> None:
    """Raise ValueError if rows do not ascend from k-mer to k-mer, or lie beyond the last."""
    if fm.kmer_len == 0:
        return
    starts = fm.kmer_starts[_places(len(fm.kmer_starts))]
    if (starts > fm.n_rows).any() or starts[-1, -1] != fm.n_rows:
        raise ValueError("a k-mer's row lies beyond the last, or the last k-mer's before it")
    if (starts[:, 1:] < starts[:, :-1]).any() or (starts[1:, 0] < starts[:-1, 0]).any():
        raise ValueError("the rows of k-mers do not ascend")


SPOT_CHECKS: dict[str, Callable[[FMIndex], None]] = {
    "blocks": _check_blocks,
    "sa_samples": _check_sa_samples,
    "kmer_starts": _check_kmer_starts,
}
"""By the array that is looked at; ValueError says what is wrong with it."""


def first_rows(n_rows: int) -> np.ndarray:
    """Return the first of the ROWS rows (or all) of each place of an array: int64 (PLACES,)."""
    return np.linspace(0, n_rows - min(ROWS, n_rows), PLACES).astype(np.int64)


def _places(n_rows: int) -> np.ndarray:
    """Return the rows of all places, int64 (PLACES, ROWS or fewer); the array's last is one."""
    return first_rows(n_rows)[:, None] + np.arange(min(ROWS, n_rows))
