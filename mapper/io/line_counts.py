"""Line ends that were counted where bytes were inflated: in a cache, and by many threads.

To cut a text in batches they are counted once more, by one thread at a time and from memory, where
nobody has done it before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from mapper.io.record_ends import few_line_ends, line_ends

_FEW_BYTES = 1 << 18
"""In which line ends are counted sooner than Python's lock is had back."""


class Counted(NamedTuple):
    """Pieces of a stream that follow each other, of which line ends were counted.

    Lists: to search an array NumPy gives Python's lock away, and the thread that cuts batches, on
    which all others live, would wait for it again and again.
    """

    ends: list[int]  # n + 1: where the first begins, where each ends
    n_before: list[int]  # n + 1: line ends before each of these, from the first on


class LineCounts:
    """What is known of the line ends in the unread part of a stream."""

    def __init__(self) -> None:
        self._known: deque[Counted] = deque()
        self._end = 0  # of the part of the stream that has been told of
        self._taken = 0  # where the unread part begins

    def add(self, n_bytes: int, ends: np.ndarray | None, n_lines: np.ndarray | None) -> None:
        """Tell of the next bytes of the stream, and how many line ends each piece of them has.

        Parameters
        ----------
        n_bytes
            How many.
        ends, n_lines
            Where pieces of them end (int64, ascending, the last at `n_bytes`), and their line ends;
            None if that is not known.
        """
        if ends is not None and n_lines is not None:
            pieces = [self._end, *(self._end + end for end in ends.tolist())]
            self._known.append(Counted(pieces, list(accumulate(n_lines.tolist(), initial=0))))
        self._end += n_bytes

    def take(self, n_bytes: int) -> None:
        """Count the first bytes of the unread part as read."""
        self._taken += n_bytes
        while self._known and self._known[0].ends[-1] <= self._taken:
            self._known.popleft()

    def known(self, n_bytes: int) -> tuple[int, list[tuple[int, int]]]:
        """Return what is known of the first bytes of the unread part.

        Returns
        -------
        Line ends in pieces that lie in them as a whole; the parts of these bytes, first and end, of
        which nothing is known.
        """
        total, unknown = 0, []
        at, end = self._taken, self._taken + n_bytes
        for ends, n_before in self._known:
            if ends[0] >= end:
                break
            first = bisect_left(ends, at)
            last = bisect_right(ends, end) - 1
            if last > first:
                if ends[first] > at:
                    unknown.append((at - self._taken, ends[first] - self._taken))
                total += n_before[last] - n_before[first]
                at = ends[last]
        if end > at:
            unknown.append((at - self._taken, n_bytes))
        return total, unknown


def count(text: np.ndarray, known: int, unknown: list[tuple[int, int]]) -> int:
    """Return the line ends of a text, from what :meth:`LineCounts.known` returns of it."""
    n_bytes = sum(end - first for first, end in unknown)
    ends = few_line_ends if n_bytes <= _FEW_BYTES else line_ends
    return known + sum(int(ends(text[first:end])) for first, end in unknown)
