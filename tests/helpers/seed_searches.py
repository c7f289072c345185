"""Search single seeds by the search cores, and workspaces for several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mapper.index.fm import FMIndex
from mapper.jit.lanes import ONE_LANE
from mapper.seed.diagonals import SeedScratch, table_size
from mapper.seed.exact import complete_unique, lengthen_seed, narrow_seeds, narrow_together

Seed = tuple[int, int, int, int, int]
"""Start on its strand, length, strand, rows."""


def scratch_of(seeds: list[Seed], max_hits: int = 5000) -> SeedScratch:
    columns = list(zip(*seeds, strict=True)) if seeds else [[]] * 5
    return SeedScratch(
        start=np.array(columns[0], np.int32),
        length=np.array(columns[1], np.int32),
        strand=np.array(columns[2], np.uint8),
        sa_lo=np.array(columns[3], np.int64),
        sa_hi=np.array(columns[4], np.int64),
        order=np.empty(len(seeds), np.int32),
        diag=np.empty(max_hits, np.int64),
        diag_seed=np.empty(max_hits, np.int32),
        slots=np.empty(table_size(max_hits), np.int32),
    )


def search_seed(
    fm: FMIndex, codes: np.ndarray, start: int, end: int, strand: int, room: int, extend_over: int
) -> tuple[int, int, int]:
    """Return a seed's rows and final length, by index alone: as on a device, and as on the CPU."""
    found = [
        _search(fm, codes, start, end, strand, room, extend_over, narrow)
        for narrow in (_narrow_alone, narrow_together)
    ]
    assert found[0] == found[1]
    return found[0]


def _narrow_alone(*arguments: Any) -> None:
    narrow_seeds(*arguments, ONE_LANE)


def _search(
    fm: FMIndex, codes: np.ndarray, start: int, end: int, strand: int, room: int,
    extend_over: int, narrow: Callable[..., None],
) -> tuple[int, int, int]:  # fmt: skip
    scratch = scratch_of([(start, 0, strand, 0, 0)])
    narrow(fm, codes, end - start, scratch, 0, 1)
    sa_lo, sa_hi, length = scratch.sa_lo[0], scratch.sa_hi[0], scratch.length[0]
    if sa_lo == sa_hi:
        return 0, 0, end - start
    if sa_hi - sa_lo == 1:
        row = complete_unique(fm, codes, start, end, strand, sa_lo, np.int64(length))
        return (row, row + 1, end - start) if row >= 0 else (0, 0, end - start)
    return lengthen_seed(fm, codes, start, end, strand, sa_lo, sa_hi, room, extend_over)
