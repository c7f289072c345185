"""Ranges of the sorted order: what sources of sorted records give, and what tasks work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

RANGE_BYTES = 8 << 20
"""Bytes of the records of a range: enough that the calls of its tasks do not count, and few enough
that it stays in the caches of its cores."""


class RecordRange(NamedTuple):
    """Consecutive records of the sorted order, from several sorted sources."""

    place: int
    """A lower bound of the places (:func:`mapper.sorting.record_order.place_of`) of the records
    of this range and of all later ones."""
    load: Callable[[], np.ndarray]
    """Returns the records as one array of bytes, those of each source together, in the order of the
    sources. Any thread may call it, once."""
