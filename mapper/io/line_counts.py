"""Line ends that were counted where bytes were inflated: in a cache, and by many threads.

To cut a text in batches they are counted once more, by one thread at a time and from memory, where
nobody has done it before.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from mapper.io.text_cut import line_ends


class Counted(NamedTuple):
    """Pieces of a stream that follow each other, of which line ends were counted."""

    ends: np.ndarray  # int64, (n + 1,): where the first begins, where each ends
    n_before: np.ndarray  # int64, (n + 1,): line ends before each of these, from the first on


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
            counted = Counted(np.zeros(len(ends) + 1, np.int64), np.zeros(len(ends) + 1, np.int64))
            counted.ends[0] = self._end
            np.add(ends, self._end, out=counted.ends[1:])
            np.cumsum(n_lines, out=counted.n_before[1:])
            self._known.append(counted)
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
        for counted in self._known:
            first = int(counted.ends.searchsorted(at))
            last = int(counted.ends.searchsorted(end, "right")) - 1
            if last > first:
                start = int(counted.ends[first])
                if start > at:
                    unknown.append((at - self._taken, start - self._taken))
                total += int(counted.n_before[last] - counted.n_before[first])
                at = int(counted.ends[last])
        if end > at:
            unknown.append((at - self._taken, n_bytes))
        return total, unknown


def count(text: np.ndarray, known: int, unknown: list[tuple[int, int]]) -> int:
    """Return the line ends of a text, from what :meth:`LineCounts.known` returns of it."""
    return known + sum(int(line_ends(text[first:end])) for first, end in unknown)
