"""Read batches in two steps: cut the bytes of a batch off the input, then parse them.

Only cutting must be done in order, and it only finds where records end. Parsing takes most of the
time and can be done by any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, TypeVar

import numpy as np

from mapper.batch import ReadBatch
from mapper.errors import InputFormatError

Reader = TypeVar("Reader", bound="BatchReader")


class FastqText(NamedTuple):
    """FASTQ of a batch, cut between records, that a device can parse."""

    texts: tuple[np.ndarray, ...]
    """uint8: of one file, or of two files of mates; each line ends with LF, but for damage."""
    n_records: int  # of each text, of four lines
    paired: bool
    read_group: bytes = b""
    """Of these reads; empty for none."""

    @property
    def n_reads(self) -> int:
        return self.n_records * len(self.texts)


class RawBatch(NamedTuple):
    """A batch that has been cut off the input and not been parsed."""

    n_reads: int
    n_pairs: int
    parse: Callable[[], ReadBatch]
    """Return the batch, or raise the InputFormatError at this position of the input. Any thread may
    call this, once."""
    text: FastqText | None = None
    """The same for a device; None if only the host can parse it."""


class BatchReader(ABC):
    """The interface of the readers of all formats, for one thread at a time."""

    def __init__(self) -> None:
        self.n_reads = 0
        """Reads in the batches cut off so far."""
        self.n_orphans = 0
        """Records among them that are flagged paired and have no mate, or beside them if these are
        left out."""
        self._failed = False
        self._error: InputFormatError | None = None

    def next_raw(self) -> RawBatch | None:
        """Cut off the next batch; None after the last.

        The ends of batches depend on nothing but the input and the limit. An error in the file or
        in its order of records is raised by ``parse``, after the reads before it.
        """
        if self._failed:
            return None
        try:
            raw = self._cut()
        except InputFormatError as error:
            raw = RawBatch(0, 0, raising(error))
            self._failed = True
        if raw is not None:
            self.n_reads += raw.n_reads
        return raw

    def next_batch(self) -> ReadBatch | None:
        """Return the next reads, or None after the last.

        Raises
        ------
        InputFormatError
            For any error in the input; again in each later call.
        """
        if self._error is not None:
            raise self._error
        raw = self.next_raw()
        try:
            return None if raw is None else raw.parse()
        except InputFormatError as error:
            self._error = error
            raise

    @abstractmethod
    def _cut(self) -> RawBatch | None:
        """Cut off a batch of at least one read; None after the last."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""

    def __enter__(self: Reader) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def raising(error: InputFormatError) -> Callable[[], ReadBatch]:
    """Return a function that raises `error`."""

    def parse() -> ReadBatch:
        raise error

    return parse


def parsed_batch(batch: ReadBatch) -> RawBatch:
    """Return a parsed batch as a RawBatch."""
    return RawBatch(batch.n_reads, batch.n_pairs, lambda: batch)


def bytes_ahead(n_threads: int, batch_bases: int, chunk_bytes: int) -> int:
    """Return the bytes to read a file ahead, in addition to the next batches.

    With only two steps, 16 threads were idle for 40 % of their time. The limit is a third of the
    memory of the batches that the threads work on.
    """
    return min(n_threads // 2 * chunk_bytes, n_threads * batch_bases)
