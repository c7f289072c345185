"""CRAM and SAM as uncompressed BAM, by a samtools process."""

from __future__ import annotations

import stat
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from mapper.io.bgzf_reader import Step
from mapper.io.input_file import BrokenStreamError, ByteSource
from mapper.io.samtools import SamtoolsProcess, check_fasta


class ConvertedSource:
    """A CRAM or SAM file as the bytes of an uncompressed BAM file, by samtools.

    Parameters
    ----------
    source
        The file. A regular one is opened once more, by samtools; from a pipe the bytes are
        passed on.
    reference
        FASTA file of the reference that a CRAM was made with, or None if it needs none.
    threads
        Threads that samtools takes.
    """

    def __init__(self, source: ByteSource, reference: str | None, threads: int) -> None:
        self.name = source.name
        self.is_bgzf = True
        self._source = source
        self._broken: BrokenStreamError | None = None
        regular = source.path != "-" and stat.S_ISREG(Path(source.path).stat().st_mode)
        options = ["-u", "--no-PG", "-@", str(threads - 1)]
        if reference is not None:
            check_fasta(Path(reference))
            options += ["-T", reference]
        self._samtools = SamtoolsProcess(
            "view", *options, source.path if regular else "-",
            stdin=None if regular else subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        process = self._samtools.process
        if process.stdin is not None:
            threading.Thread(target=self._feed, args=(process.stdin,), daemon=True).start()
        assert process.stdout is not None
        self._plain = ByteSource.of_stream(process.stdout, source.name)

    @property
    def ends_with_eof_block(self) -> bool:
        """Whether samtools got to the end; it fails on files that are cut off."""
        return self._plain.ends_with_eof_block

    def readinto(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        BrokenStreamError
            If samtools cannot read the file.
        """
        n = 0
        reason = None
        try:
            n = self._plain.readinto(buffer)
        except BrokenStreamError as error:
            reason = str(error)
        if n == 0:
            reason = self._samtools.wait() or reason
            if self._broken is not None:
                raise self._broken
            if reason is not None:
                raise BrokenStreamError(reason)
        return n

    def begin(self, buffer: memoryview) -> Step:
        """As :meth:`readinto`; nothing is left to be done."""
        return Step(self.readinto(buffer))

    def stop(self) -> None:
        """End samtools at once; whoever reads, in another thread, finds the stream broken."""
        self._samtools.process.kill()

    def close(self) -> None:
        """End samtools and close the file."""
        self._samtools.kill()
        self._source.close()

    def _feed(self, pipe: IO[bytes]) -> None:
        buffer = memoryview(bytearray(1 << 16))
        try:
            while n := self._source.readinto(buffer):
                pipe.write(buffer[:n])
        except BrokenStreamError as error:
            self._broken = error
        except (OSError, ValueError):
            return  # samtools has ended, and says why
        finally:
            with suppress(OSError):
                pipe.close()
