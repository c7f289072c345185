"""Positions in the input of a run, at which another process can go on reading.

A position lies between two batches. It counts plain bytes; for a file in which reading can begin
elsewhere than at its start, it also names the last such place before it, so that only the bytes
between the two are read again. Of BGZF that is a block, of gzip whose members are found a member,
of an uncompressed file any byte; any other gzip stream, and a file that samtools converts, is read
from its start.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np


class Place(NamedTuple):
    """A place in a file where reading can begin."""

    plain: int  # bytes of the plain stream before it
    packed: int  # bytes of the file before it


class FilePosition(NamedTuple):
    """A position in one file."""

    n_plain: int  # bytes of the plain stream that have been used
    place: Place  # not behind it


START = Place(0, 0)


class ReaderPosition(NamedTuple):
    """A position of the reader of a lane's FASTQ files, or of a BAM, CRAM or SAM file."""

    n_reads: int
    files: tuple[FilePosition, ...]
    kinds: tuple[int, ...] = ()  # of FASTQ files: FASTQ or FASTA
    n_records: int = 0  # of BAM, and the following, too: skipped ones included
    earlier: bytes = b""  # first record of the last pair
    orphans: bytes = b""  # hashes of the names of orphans: uint64


class InputPosition(NamedTuple):
    """A position in all files of a run."""

    n_started: int  # lanes, or BAM files, that have been begun
    n_before: int  # reads of those before the last of these
    n_orphans: tuple[int, ...]  # of each BAM, CRAM or SAM file
    reader: ReaderPosition | None  # of the last that was begun; None if it has been read

    def to_json(self) -> dict[str, Any]:
        """Return the position as values that JSON can hold."""
        values = self._asdict()
        if self.reader is not None:
            reader = self.reader._asdict()
            for name in ("earlier", "orphans"):
                reader[name] = base64.b64encode(reader[name]).decode()
            values["reader"] = reader
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> InputPosition:
        """Return the position of which :meth:`to_json` returned `values`."""
        reader = values["reader"]
        if reader is not None:
            files = tuple(
                FilePosition(n_plain, Place(*place)) for n_plain, place in reader["files"]
            )
            reader = ReaderPosition(
                reader["n_reads"], files, tuple(reader["kinds"]), reader["n_records"],
                base64.b64decode(reader["earlier"]), base64.b64decode(reader["orphans"]),
            )  # fmt: skip
        n_orphans = tuple(values["n_orphans"])
        return cls(values["n_started"], values["n_before"], n_orphans, reader)


def array_of(data: bytes, dtype: type[np.generic]) -> np.ndarray:
    """Return bytes of a position as an array of its own."""
    return np.frombuffer(data, dtype).copy()
