"""Core: rows are handed out whole and, those that take long, again in parts.

In a repeat-rich text one search in a thousand takes a hundred times as long as most. A device
would wait for the last few of them. So a thread gives up a row after many turns, forgets what it
found, and in a second pass 16 threads share that row: one has the matches with the left part
unchanged, one the right part unchanged, the others some first changes of the right part each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.jit.accelerate import core
from mapper.jit.intrinsics import fetch_add

WHOLE, LEFT_PART, EXACT_PART = -3, -2, -1
"""Parts of a row's search; those from 0 on have CHANGES_OF_PART first changes of the right part."""

CHANGES_OF_PART = 4

PARTS_SHIFT = 4
"""log2 of the parts of a row, two of them empty: 16 bases have 48 changes."""

NEVER = 2**31 - 1
"""``patience`` of who puts nothing aside."""


class Pace(NamedTuple):
    """Which turns of the loop some steps have: those with none of these bits, 255 at most."""

    fetch: int = 0  # to take on a row
    node: int = 0  # to extend an interval by a base
    look: int = 0  # to look at a row in the text


class KmerWork(NamedTuple):
    """What threads take on, one after the other."""

    next_item: np.ndarray  # int64 (1,): that nobody has taken on
    n_rows: int  # 2 i is k-mer i itself, 2 i + 1 its reverse complement
    patience: int  # turns after which a row is put aside
    n_aside: np.ndarray  # int64 (1,)
    aside: np.ndarray  # int32 (n_rows,), or no item where nothing is put aside
    in_parts: bool  # hand out parts of the rows put aside, instead of all rows
    pace: Pace


@core
def put_aside(work, row):
    """Leave a row to the second pass."""
    work.aside[fetch_add(work.n_aside, 1)] = row


@core
def take_on(work):
    """Return a row and the part of its search that nobody has taken on; row -1 if none is left."""
    item = fetch_add(work.next_item, 1)
    if not work.in_parts:
        return (item if item < work.n_rows else np.int64(-1)), np.int64(WHOLE)
    row = item >> PARTS_SHIFT
    if row >= work.n_aside[0]:
        return np.int64(-1), np.int64(WHOLE)
    return np.int64(work.aside[row]), (item & ((1 << PARTS_SHIFT) - 1)) + LEFT_PART
