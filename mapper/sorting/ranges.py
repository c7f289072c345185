"""Ranges of the sorted order: what sources of sorted records give, and what tasks work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mapper.io.bam_writer import FIXED_BYTES
from mapper.jit.accelerate import driver
from mapper.parallel.buffers import RECYCLER, spanning
from mapper.sorting.record_order import copy_records, find_next, stable_order

RANGE_BYTES = 8 << 20
"""Bytes of the records of a range, unless :func:`range_bytes` says otherwise."""

_UNDER_WAY = 6
"""Ranges of a thread at a time, with the keys of their duplicates."""


_LEAST_RANGES = 96
"""Ranges of few records are smaller, down to LEAST_RANGE_BYTES: with two threads, those of 16 MB
that are under way took more memory than the records of 500,000 reads did."""

LEAST_RANGE_BYTES = 4 << 20


def range_bytes(n_threads: int, spare: int = 0, total: int | None = None) -> int:
    """Return the bytes of a range for a number of threads.

    Many threads wait for the GIL after each compiled call, longer than the call takes: on 16 cores
    with a GPU, ranges of 16 MB took three quarters of the time that those of 8 MB did. Two threads
    that merge files take 2 % less.

    Parameters
    ----------
    spare
        Bytes that nothing else takes: ranges of 16 MB take more than others only out of these.
    total
        Bytes of all records, if that is known.
    """
    more = n_threads * _UNDER_WAY * RANGE_BYTES
    most = 2 * RANGE_BYTES if more <= spare else RANGE_BYTES
    return most if total is None else min(most, max(total // _LEAST_RANGES, LEAST_RANGE_BYTES))


class Records(NamedTuple):
    """Records in sorted order, one behind another, in memory of their own."""

    data: np.ndarray  # uint8: BAM records
    starts: np.ndarray  # int64 (n_records,): of each in `data`


@driver
def sort_records(data, starts, keys, out):
    """Copy records to `out` in sorted order; those of equal keys stay as they come.

    Parameters
    ----------
    data, starts, keys
        BAM records (uint8) at these offsets (int64), and their keys
        (:mod:`mapper.sorting.record_order`).

    Returns
    -------
    Their offsets in `out`, and their end: int64.
    """
    return copy_records(data, starts[stable_order(keys)], out)


@driver
def _sort_pieces(data, offsets, sizes, starts, keys, out):
    """Find the records of pieces of `data`, and sort all of them: :func:`sort_records`.

    In one call: to go on in Python after each piece, a thread would wait for the GIL.
    """
    n = np.int64(0)
    for piece in range(len(offsets)):
        n = find_next(data, offsets[piece], offsets[piece] + sizes[piece], starts, keys, n)
    return sort_records(data, starts[:n], keys[:n], out)


def sort_pieces(pieces: Sequence[np.ndarray]) -> Records:
    """Return the records of arrays of whole ones (uint8), sorted by :func:`sort_records`."""
    data, offsets = spanning(pieces)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    total = int(sizes.sum())
    rows = RECYCLER.empty(2 * np.dtype(np.int64).itemsize * (total // FIXED_BYTES))
    starts, keys = rows.view(np.int64).reshape(2, -1)
    out = RECYCLER.empty(total)
    positions = _sort_pieces(data, offsets, sizes, starts, keys, out)
    return Records(out[: positions[-1]], positions[:-1])


class RecordRange(NamedTuple):
    """Consecutive records of the sorted order, from several sorted sources."""

    place: int
    """A lower bound of the places (:func:`mapper.sorting.record_order.place_of`) of the records
    of this range and of all later ones."""
    load: Callable[[], Records]
    """Returns the records, those of equal keys in the order of the sources. Any thread may call it,
    once."""
