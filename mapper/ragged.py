"""Ragged rows: items of all rows one behind the other, and the bounds of each row.

Compiled, because NumPy gives Python's lock away in some of this, or keeps it for long, and the
threads of a run wait for one another then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapper.jit.accelerate import brief, driver


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return the bounds (int64, one more) of ragged rows with these lengths."""
    offsets = np.empty(len(counts) + 1, np.int64)
    _add_up(counts, offsets)
    return offsets


@driver
def _add_up(counts, offsets):
    total = np.int64(0)
    offsets[0] = 0
    for i in range(len(counts)):
        total += counts[i]
        offsets[i + 1] = total


@driver
def longest_row(offsets):
    """Return the items of the longest row; 0 if there is none."""
    longest = np.int64(0)
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest


def join_offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Join the bounds (int64, n + 1 of n rows) of ragged rows that follow one another."""
    joined = np.empty(1 + sum(len(part) - 1 for part in parts), np.int64)
    joined[0] = parts[0][0]
    at = 0
    for part in parts:
        _join_behind(joined, at, part)
        at += len(part) - 1
    return joined


@brief
def _join_behind(joined, at, part):
    """Join the bounds of more rows behind those of the first `at`."""
    shift = joined[at] - part[0]
    for i in range(1, len(part)):
        joined[at + i] = part[i] + shift
