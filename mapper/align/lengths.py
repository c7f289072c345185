"""Which lengths and places of sequences are allowed."""

from __future__ import annotations

import numpy as np

from mapper.align.threads import in_slices
from mapper.errors import UsageError
from mapper.jit.accelerate import core, driver

MAX_LENGTH = 2**30
"""Longest sequence: offsets are int32 with room for sums, and null values."""

OFFSETS_RULE = "offsets must begin with 0, not fall, and lie in the array"
TOO_LONG = f"a sequence is longer than {MAX_LENGTH} symbols"


def limit_of(name: str, limit: int | None, most: int) -> int:
    """Return a limit that was given, or `most`; refuse what is no whole number from 0 on."""
    if limit is None:
        return most
    if not (limit >= 0 and limit == limit // 1):
        raise UsageError(f"{name} {limit}: a whole number, 0 or more, is expected")
    return int(min(limit, most))


def check_side(start: np.ndarray, end: np.ndarray, side: str, threads: int) -> None:
    """Raise UsageError unless lengths are 0 to MAX_LENGTH.

    Parameters
    ----------
    start, end
        int64 (n,): half-open bounds, in symbols.
    side
        What messages call these sequences.
    threads
        Threads that look; no effect on the result.
    """
    wrong = in_slices(
        len(start), threads,
        lambda first, last: bool(_wrong_lengths(start[first:last], end[first:last])),
    )  # fmt: skip
    if any(wrong):
        falls = any(in_slices(len(start), 1, lambda a, b: bool((end[a:b] < start[a:b]).any())))
        raise UsageError(f"{side}: {OFFSETS_RULE if falls else TOO_LONG}")


@core
def are_lengths_wrong(start, end):
    """Whether any length is below 0 or above MAX_LENGTH."""
    signs = np.int64(0)
    for i in range(len(start)):
        length = end[i] - start[i]
        signs |= length | (np.int64(MAX_LENGTH) - length)
    return signs < 0


@driver
def _wrong_lengths(start, end):
    return are_lengths_wrong(start, end)


@core
def is_misplaced(start, length, shift, behind):
    """Whether a packed sequence does not lie between the first word and `behind`."""
    bits = length << np.int64(shift & 3)  # of other shifts it is wrong in any case
    wrong = (start < 1) | (length < 0) | (length > MAX_LENGTH) | (shift < 1) | (shift > 3)
    return wrong | (start + ((bits + 63) >> 6) > behind)
