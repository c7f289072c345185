"""Buffer the unread bytes of an input file, read ahead by idle threads.

:class:`InputBuffer` reads in steps, whose parts (blocks of BGZF to decompress) any thread may do.
Its :class:`LineCounts` keep the line ends that were counted where bytes were decompressed: in
a cache, and by many threads. Cutting a text in batches needs them, and one thread counts the rest.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.bgzf import BLOCK_BYTES
from mapper.io.bgzf_reader import (
    N_LINES,
    PLAIN_END,
    BlocksPart,
    Done,
    ReadAgainError,
    SharedInflating,
    Step,
)
from mapper.io.input_file import BrokenStreamError, PlainBytes
from mapper.io.position import Place
from mapper.io.record_ends import few_line_ends, line_ends, not_line_ends
from mapper.parallel.buffers import RECYCLER

MAX_RECORD_BYTES = 1 << 28
"""A larger record is taken for a broken file, not for a read."""

_WANTED_AHEAD = 2
_CHUNKS_AHEAD = 2
_LEAST_STEP = 1 << 16
"""Bytes. A smaller rest of a :class:`Block` stays unused: a block of BGZF might not fit."""

_FEW_BYTES = 1 << 18
"""Line ends of fewer bytes are counted in less time than it takes to reacquire the GIL."""


# --- line counts ---


class CountedPieces(NamedTuple):
    """Consecutive pieces of a stream and the numbers of their line ends.

    Lists, because NumPy releases the GIL to search an array, and the thread that cuts batches for
    all others would wait to reacquire it.
    """

    ends: list[int]  # n + 1: start of the first piece, end of each
    n_before: list[int]  # n + 1: line ends between the first of these positions and each


class LineCounts:
    """Known numbers of line ends in the unread part of a stream."""

    def __init__(self) -> None:
        self._known: deque[CountedPieces] = deque()
        self._end = 0  # of the part of the stream that was added
        self._taken = 0  # start of the unread part

    def add(self, n_bytes: int, ends: np.ndarray | None, n_lines: np.ndarray | None) -> None:
        """Add the next bytes of the stream, and the numbers of line ends in their pieces.

        Parameters
        ----------
        n_bytes
            Their number.
        ends, n_lines
            End of each piece (int64, ascending, the last `n_bytes`), and line ends in it; None if
            not known.
        """
        if ends is not None and n_lines is not None:
            pieces = [self._end, *(self._end + end for end in ends.tolist())]
            self._known.append(CountedPieces(pieces, list(accumulate(n_lines.tolist(), initial=0))))
        self._end += n_bytes

    def take(self, n_bytes: int) -> None:
        """Move the start of the unread part by `n_bytes`."""
        self._taken += n_bytes
        while self._known and self._known[0].ends[-1] <= self._taken:
            self._known.popleft()

    @property
    def n_taken(self) -> int:
        """Bytes before the unread part."""
        return self._taken

    def known(self, n_bytes: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the known line ends in the first bytes of the unread part.

        Returns
        -------
        Line ends in pieces that lie wholly in these bytes; bounds (start, end) of the other parts,
        whose line ends are not known.
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
    """Return the line ends of a text, given what :meth:`LineCounts.known` returns for it."""
    n_bytes = sum(end - first for first, end in unknown)
    ends = few_line_ends if n_bytes <= _FEW_BYTES else line_ends
    return known + sum(int(ends(text[first:end])) for first, end in unknown)


# --- steps ---


class Block:
    """Memory that consecutive steps read into.

    Parameters
    ----------
    front
        Bytes kept free at the start, for unread bytes of the previous block.
    memory
        Returns an array (uint8) of a number of bytes.
    """

    def __init__(
        self, size: int, front: int, memory: Callable[[int], np.ndarray] = RECYCLER.empty
    ) -> None:
        self.data = memory(size)
        self.at = self.end = front  # data[at:end] is unread
        self.begun = front  # end of the steps that have begun
        self.is_full = False  # no more steps may begin here


class PendingStep:
    """A step of reading that has begun and whose bytes are not available yet."""

    def __init__(self, block: Block, n_bytes: int, n_parts: int) -> None:
        self.block = block
        self.start = block.begun
        self.n_bytes = n_bytes
        self.n_left = n_parts
        self.error: Exception | None = None
        self._failed_at = (0, 0)  # plain bytes of the step before the error, and place in the file
        self.n_parts = n_parts
        self.counted: list[np.ndarray] = []  # tables of blocks with known line ends
        block.begun += n_bytes

    def part_done(self, done: Done) -> None:
        self.n_left -= 1
        if done.blocks is not None:
            self.counted.append(done.blocks)
        if done.error is not None:
            packed = done.error.place.packed if isinstance(done.error, ReadAgainError) else 0
            failed_at = (done.plain_end, packed)
            if self.error is None or failed_at < self._failed_at:
                self.n_bytes, self.error, self._failed_at = done.plain_end, done.error, failed_at

    def line_ends(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the ends of the step's blocks and their line ends; None if not known."""
        if not self.counted or len(self.counted) < self.n_parts or self.error is not None:
            return None, None
        blocks = np.concatenate(sorted(self.counted, key=lambda table: int(table[0, PLAIN_END])))
        return blocks[:, PLAIN_END], blocks[:, N_LINES]


# --- the buffer ---


class InputBuffer:
    """The unread bytes of one file, as far as they are in memory.

    They are contiguous in a large block of memory, and batches are views of it; bytes are copied
    only when a block is used up, and then only its unread ones. The file is read ahead in steps.
    Steps begin one at a time; the parts of several (groups of BGZF blocks to decompress) may be
    done by any number of threads at once.

    Parameters
    ----------
    source
        The file.
    chunk_bytes
        Bytes of a step; no effect on what is returned.
    executor
        Its threads read ahead; None: the calling thread reads when bytes are missing.
    ahead
        Bytes to read ahead, in addition to twice the largest `wanted` so far; at least two steps.
    inflating
        Decompresses the parts of steps, and has larger ones; None for the threads of `executor`,
        which is needed with it too.
    memory
        Returns memory (uint8) of a number of bytes; not used with `inflating`, which has its own.
    least_step
        Bytes of room that a step needs, no more than `chunk_bytes`: for the plain bytes of a block
        of the source, which one thread decompresses where they do not fit.
    """

    def __init__(
        self, source: PlainBytes, chunk_bytes: int, executor: Executor | None = None,
        ahead: int = 0, inflating: SharedInflating | None = None,
        memory: Callable[[int], np.ndarray] = RECYCLER.empty, least_step: int = _LEAST_STEP,
    ) -> None:  # fmt: skip
        self.name = source.name
        self.broken: BrokenStreamError | None = None
        """Why the file cannot be read further, once all readable bytes are in memory."""
        self._source = source
        self._executor = executor
        self._inflating = inflating
        self._memory = memory
        if inflating is not None:
            device = inflating.device
            self._memory = device.memory
            chunk_bytes = max(chunk_bytes, device.most_blocks * BLOCK_BYTES // 2)
            ahead = max(ahead, device.blocks_ahead * BLOCK_BYTES)
        self._chunk = chunk_bytes
        self._least_step = min(least_step, chunk_bytes)
        self._ahead = max(ahead, _CHUNKS_AHEAD * chunk_bytes)
        self._block = self._filled = Block(0, 0)  # that batches are taken from; that steps write to
        self._steps: deque[PendingStep] = deque()  # in the order of the file
        self._parts: deque[tuple[PendingStep, BlocksPart]] = deque()  # not begun
        self._all_begun = False  # the last step has begun
        self._ended = False  # all bytes of the file have been read
        self._wanted = 0  # largest number of bytes asked for at once
        self._is_beginning = False  # a thread is beginning a step
        self._is_queued = False  # a task that begins steps is queued
        self._failure: BaseException | None = None
        self._again: Place | None = None  # the source has to go back to it before the next step
        self._n_again = 0  # how often it had to
        self._lines = LineCounts()
        self._closed = False
        self._changed = threading.Condition()  # guards all of these
        self._source_lock = threading.Lock()  # held while the source is read

    def unread(self, wanted: int) -> tuple[np.ndarray, bool]:
        """Return the unread bytes, at least `wanted` of them unless the file has fewer.

        Returns
        -------
        Bytes (uint8), not to be written to; True if these are all (the file ends, or is `broken`
        there).
        """
        while True:
            with self._changed:
                self._wanted = max(self._wanted, wanted)
                if self._failure is not None:
                    raise self._failure
                block = self._block_with(wanted)
                if block is not None:
                    self._go_on_ahead()
                    return block.data[block.at : block.end], self._ended and block is self._filled
                begins = not self._parts and self._may_begin()
                if begins:
                    self._is_beginning = True
                elif not self._parts:
                    self._changed.wait()
            # Never wait for tasks that have not begun: they may be queued after this one.
            if begins:
                self._begin_step()
            else:
                self._do_part()

    def line_ends(self, text: np.ndarray) -> int:
        """Return the number of line ends in the first unread bytes, `text`."""
        with self._changed:
            known = self._lines.known(len(text))
        return count(text, *known)

    @property
    def n_taken(self) -> int:
        """Bytes that have been taken off the buffer."""
        return self._lines.n_taken

    def take(self, n: int) -> np.ndarray:
        """Take the first `n` unread bytes off the buffer and return them."""
        with self._changed:
            self._lines.take(n)
            block = self._block
            taken = block.data[block.at : block.at + n]
            block.at += n
            self._go_on_ahead()
            return taken

    def only_blank_lines_left(self) -> bool:
        """Return True if nothing but line ends is left; skip them."""
        while True:
            rest, ended = self.unread(1)
            solid = not_line_ends(rest)
            self.take(int(solid[0]) if solid.size else len(rest))
            if solid.size or ended:
                return not solid.size

    def larger(self, size: int, record: int) -> int:
        """Return a larger number of bytes to search for the end of a record than `size`.

        Raises
        ------
        InputFormatError
            If a record exceeds MAX_RECORD_BYTES. `record` is the number to name.
        """
        if size >= MAX_RECORD_BYTES:
            raise InputFormatError(
                f"{self.name}: record {record}: no end of the record within {MAX_RECORD_BYTES} "
                "bytes; repair or re-export the file"
            )
        return min(2 * size, MAX_RECORD_BYTES)

    def close(self) -> None:
        """Close the file; threads that wait for bytes find it broken."""
        with self._changed:
            self._closed = self._all_begun = self._ended = True
            self._finish_steps()
        self._source.stop()
        with self._source_lock:
            self._source.close()

    # The following methods are called with the lock held.

    def _block_with(self, wanted: int) -> Block | None:
        """Return the block if it has `wanted` unread bytes or the last ones; None if not yet."""
        block, filled = self._block, self._filled
        if block.end - block.at >= wanted:
            return block
        if block is filled:
            return block if self._ended else None
        if block.end < block.begun and not self._ended:
            return None
        # The block is used up: move its last bytes in front of those of the next.
        rest = block.data[block.at : block.end]
        if len(rest) > filled.at:  # more is wanted than when that block was allocated
            if not self._ended and (filled.end < filled.begun or self._is_beginning):
                return None
            unread = filled.data[filled.at : filled.end]
            n_bytes = len(rest) + max(self._block_bytes(), len(unread))
            filled = Block(n_bytes, len(rest), self._memory)
            filled.data[filled.at : filled.at + len(unread)] = unread
            filled.end = filled.begun = filled.at + len(unread)
        filled.data[filled.at - len(rest) : filled.at] = rest
        filled.at -= len(rest)
        self._block = self._filled = filled
        return self._block_with(wanted)

    def _block_bytes(self) -> int:
        """Return the size of a new block, without what is kept free at its start."""
        return max(3 * self._wanted, self._ahead + 2 * self._chunk)

    def _may_begin(self) -> bool:
        """Return True if a step may begin now."""
        if self._all_begun or self._is_beginning or self._failure is not None:
            return False
        if self._block is self._filled:
            return True
        return self._has_room() and self._wanted <= self._filled.at

    def _has_room(self) -> bool:
        """Return True if a step fits into the block that steps write to."""
        filled = self._filled
        room = len(filled.data) - filled.begun
        return not filled.is_full and room >= self._least_step

    def _wants_step(self) -> bool:
        """Return True if a step may begin now and too few have begun."""
        n_begun = self._block.begun - self._block.at
        if self._block is not self._filled:
            n_begun += self._filled.begun - self._filled.at
        return self._may_begin() and n_begun < _WANTED_AHEAD * self._wanted + self._ahead

    def _go_on_ahead(self) -> None:
        """Queue a task that begins steps, unless one is queued or enough steps have begun."""
        if self._executor is not None and not self._is_queued and self._wants_step():
            self._is_queued = True
            self._executor.submit(self._begin_ahead)

    # The following methods are called without the lock, but for _finish_steps.

    def _begin_ahead(self) -> None:
        """Begin steps until enough have begun, and do a part of one (a task).

        One task for all steps, as each task of a chain would wait for a thread.
        """
        while True:
            with self._changed:
                self._is_queued = self._wants_step()
                if not self._is_queued:
                    break
                self._is_beginning = True
            self._begin_step()
        if self._inflating is None:
            self._do_part()

    def _begin_step(self) -> None:
        """Begin a step, with `_is_beginning` set, and queue its parts as tasks."""
        step, error = Step(0), None
        try:
            with self._changed:
                if self._filled.is_full and self._block is not self._filled:
                    self._drop_beginning()  # these bytes are to be used up first
                    return
                filled, front, n_bytes = self._filled, self._wanted, self._block_bytes()
                has_room = self._has_room()
                again, self._again, n_again = self._again, None, self._n_again
            if not has_room:
                # Without the lock: large memory may take the time of many parts, as the device's
                # driver locks it.
                filled = Block(front + n_bytes, front, self._memory)
                with self._changed:
                    self._filled = filled
            view = filled.data[filled.begun : filled.begun + self._chunk].data
            with self._source_lock:
                if again is not None and not self._closed:
                    self._source.read_again(again)
                if not self._closed:
                    step = self._source.begin(view)
        except BrokenStreamError as broken:
            error = broken
        except BaseException as failure:
            self._fail(failure)
            return
        with self._changed:
            if n_again != self._n_again:
                self._drop_beginning()
                return
            self._is_beginning = False
            self._all_begun |= step.n_bytes == 0
            ahead = PendingStep(filled, step.n_bytes, len(step.parts))
            ahead.error = error
            self._steps.append(ahead)
            self._parts.extend((ahead, part) for part in step.parts)
            self._finish_steps()
            self._go_on_ahead()
        executor = self._executor
        if self._inflating is not None and step.parts:
            self._inflating.device.executor.submit(self._do_parts_on_device)
            executor = self._inflating.idle
        if executor is not None:
            for _ in step.parts:
                executor.submit(self._do_part)

    def _do_parts_on_device(self) -> None:
        """Do groups of parts on a device while there are whole ones (a task).

        Fewer parts are for threads that have nothing else to do, or wait for the bytes: a small
        group takes a device as long as a large one, and time from the kernels that map.
        """
        assert self._inflating is not None
        device = self._inflating.device
        while taken := self._take_group(device.most_blocks):
            try:
                found = device.decompress([part for _, part in taken])
            except BaseException as failure:
                self._fail(failure)
                return
            with self._changed:
                for (step, _), done in zip(taken, found, strict=True):
                    step.part_done(done)
                self._finish_steps()

    def _take_group(self, n_blocks: int) -> list[tuple[PendingStep, BlocksPart]]:
        """Take parts of about so many blocks, and not more; none if there are fewer.

        Large gzip members, which are few, are left to threads (``DEVICE_BLOCK_BYTES``).
        """
        taken: list[tuple[PendingStep, BlocksPart]] = []
        left: list[tuple[PendingStep, BlocksPart]] = []
        with self._changed:
            if sum(part.n_device_blocks for _, part in self._parts) < n_blocks:
                return []
            while self._parts and self._parts[0][1].n_device_blocks <= n_blocks:
                first = self._parts.popleft()
                (taken if first[1].n_device_blocks else left).append(first)
                n_blocks -= first[1].n_device_blocks
            self._parts.extendleft(reversed(left))
        return taken

    def _do_part(self) -> None:
        """Do the first part that has not begun, if there is one (a task)."""
        with self._changed:
            if not self._parts:
                return
            step, part = self._parts.popleft()
        try:
            done = part()
        except BaseException as failure:
            self._fail(failure)
            return
        with self._changed:
            step.part_done(done)
            self._finish_steps()

    def _finish_steps(self) -> None:
        """Add the bytes of finished steps to the unread ones, in order (with the lock held)."""
        while self._steps and self._steps[0].n_left == 0 and not self._ended:
            step = self._steps.popleft()
            step.block.end = step.start + step.n_bytes
            self._lines.add(step.n_bytes, *step.line_ends())
            if isinstance(step.error, ReadAgainError):
                self._read_again(step.block, step.error.place)
                break
            assert step.error is None or isinstance(step.error, BrokenStreamError)
            self.broken = step.error
            self._ended = step.n_bytes == 0 or step.error is not None
        if self._ended:
            self._all_begun = True
            self._steps.clear()
            self._parts.clear()
        self._changed.notify_all()

    def _drop_beginning(self) -> None:
        """Begin no step after all, as a part has asked meanwhile to read again.

        (With the lock held.)
        """
        self._is_beginning = False
        self._go_on_ahead()
        self._changed.notify_all()

    def _read_again(self, block: Block, place: Place) -> None:
        """Drop all steps that have begun, as the last bytes of `block` are those before `place`.

        (With the lock held.) Parts of these steps may still write behind the bytes of the block, so
        that the next step goes to another.
        """
        self._steps.clear()
        self._parts.clear()
        block.begun, block.is_full = block.end, True
        self._filled = block
        self._again = place
        self._n_again += 1
        self._all_begun = False

    def _fail(self, failure: BaseException) -> None:
        """Raise an exception that is not the file's in the threads that wait for bytes."""
        with self._changed:
            self._is_beginning = False
            self._failure = failure
            self._changed.notify_all()
