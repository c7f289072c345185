"""The part of an input file that is in memory, for the scanners."""

from __future__ import annotations

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.read_ahead import ReadAhead
from mapper.io.source import BrokenStreamError, PlainBytes

MAX_RECORD_BYTES = 1 << 28
"""A record that does not fit into this is taken for a broken file, not for a read."""


class InputBuffer:
    """The part of one file that is in memory: ``data[at:end]`` is unread.

    Parameters
    ----------
    source
        The file; a thread of its own begins to read it at once.
    chunk_bytes
        Size of the buffer, as long as records fit.
    """

    def __init__(self, source: PlainBytes, chunk_bytes: int) -> None:
        self.source = ReadAhead(source, chunk_bytes)
        self.name = source.name
        self.data = np.empty(chunk_bytes, np.uint8)
        self.at = 0
        self.end = 0
        self.ended = False
        self._broken: BrokenStreamError | None = None

    def refill(self, record: int) -> None:
        """Read on, keeping the unread part; grow if that alone fills the buffer.

        Fills the buffer to the brim, so that a long record is scanned again only when
        the buffer has doubled, not for every few bytes a pipe delivers.

        Raises
        ------
        InputFormatError
            If the stream was found broken and all that came before has been read, or a
            record exceeds MAX_RECORD_BYTES. `record` is the number to name.
        """
        if self._broken is not None:
            raise InputFormatError(
                f"{self.name}: {self._broken} (found after record {record - 1} or later)"
            ) from self._broken
        unread = self.end - self.at
        data = self.data
        if unread == len(data):
            if unread >= MAX_RECORD_BYTES:
                raise InputFormatError(
                    f"{self.name}: record {record}: no end of the record within "
                    f"{MAX_RECORD_BYTES} bytes; repair or re-export the file"
                )
            data = np.empty(2 * unread, np.uint8)
        data[:unread] = self.data[self.at : self.end]
        self.data, self.at, self.end = data, 0, unread
        view = data.data
        try:
            while self.end < len(data) and not self.ended:
                n = self.source.readinto(view[self.end :])
                self.end += n
                self.ended = n == 0
        except BrokenStreamError as error:
            self._broken = error

    def only_blank_lines_left(self, record: int) -> bool:
        """Read on to the end of the file or the first character that is no line end."""
        while True:
            rest = self.data[self.at : self.end]
            solid = np.flatnonzero((rest != ord("\n")) & (rest != ord("\r")))
            if solid.size:
                self.at += int(solid[0])
                return False
            self.at = self.end
            if self.ended:
                return True
            self.refill(record)

    def close(self) -> None:
        """Let the reading thread end and close the file."""
        self.source.close()
