"""Ranges of the sorted order: what sources of sorted records give, and what tasks work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mapper.sorting.record_order import find_records, stable_order

RANGE_BYTES = 8 << 20
"""Bytes of the records of a range: enough that the calls of its tasks do not count, and few enough
that it stays in the caches of its cores."""


_FEW_THREADS = 4


def range_bytes(n_threads: int) -> int:
    """Return the bytes of a range for a number of threads.

    Half of RANGE_BYTES for a few: they seldom wait for the GIL, and the memory of ranges under way
    costs more than the calls. On a virtual machine that gets its memory when it is first touched,
    clearing it was a quarter of the time of a merge on two cores.
    """
    return RANGE_BYTES if n_threads > _FEW_THREADS else RANGE_BYTES // 2


class Records(NamedTuple):
    """Records as bytes, and where and what they are."""

    data: np.ndarray  # uint8: BAM records, and maybe bytes between them that are of no use
    starts: np.ndarray  # int64, of each record in `data`
    keys: np.ndarray  # int64, see mapper.sorting.record_order

    @classmethod
    def find(cls, data: np.ndarray) -> Records:
        """Return the records in an array of whole ones."""
        return cls(data, *find_records(data))

    def in_order(self) -> np.ndarray:
        """Return the starts in the order of the keys; equal ones as they come."""
        return self.starts[stable_order(self.keys)]


class RecordRange(NamedTuple):
    """Consecutive records of the sorted order, from several sorted sources."""

    place: int
    """A lower bound of the places (:func:`mapper.sorting.record_order.place_of`) of the records
    of this range and of all later ones."""
    load: Callable[[], Records]
    """Returns the records, those of each source together, in the order of the sources. Any thread
    may call it, once."""
