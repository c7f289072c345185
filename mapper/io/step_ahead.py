"""Steps of reading a file ahead, and the memory that they write to."""

from __future__ import annotations

import numpy as np

from mapper.io.bgzf_reader import N_LINES, PLAIN_END, Done
from mapper.parallel.buffers import RECYCLER


class Block:
    """Memory that bytes of the file are read into, one step behind the other.

    Parameters
    ----------
    front
        Bytes that are left free at the start, for unread ones of the block before.
    """

    def __init__(self, size: int, front: int) -> None:
        self.data = RECYCLER.empty(size)
        self.at = self.end = front  # data[at:end] is unread
        self.begun = front  # steps have begun up to here


class StepAhead:
    """A step that has begun and whose bytes cannot be handed out yet."""

    def __init__(self, block: Block, n_bytes: int, n_parts: int) -> None:
        self.block = block
        self.start = block.begun
        self.n_bytes = n_bytes
        self.n_left = n_parts
        self.error: Exception | None = None
        self.n_parts = n_parts
        self.counted: list[np.ndarray] = []  # tables of blocks whose line ends are known
        block.begun += n_bytes

    def part_done(self, done: Done) -> None:
        self.n_left -= 1
        if done.blocks is not None:
            self.counted.append(done.blocks)
        if done.error is not None and (self.error is None or done.plain_end < self.n_bytes):
            self.n_bytes, self.error = done.plain_end, done.error

    def line_ends(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return where blocks of the step end, and their line ends; None if that is not known."""
        if not self.counted or len(self.counted) < self.n_parts or self.error is not None:
            return None, None
        blocks = np.concatenate(sorted(self.counted, key=lambda table: int(table[0, PLAIN_END])))
        return blocks[:, PLAIN_END], blocks[:, N_LINES]
