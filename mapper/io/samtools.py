"""Run the samtools of pysam in processes, to convert from and to CRAM and SAM; names of indexes.

Within this process samtools would block signals until it is done, and could not be stopped.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from mapper.errors import UsageError
from mapper.io.bgzf_reader import HEAD_BYTES, Step, is_bgzf
from mapper.io.input_file import GZIP_MAGIC, BrokenStreamError, ByteSource, skip
from mapper.io.position import START, FilePosition, Place
from mapper.parallel.pool import start_daemon

_CALL = (
    "import sys, pysam; pysam.set_verbosity(1); "  # 1: htslib's errors, not its warnings
    "pysam.{command}(*sys.argv[1:], catch_stdout=False)"
)


# --- processes ---


class SamtoolsProcess:
    """A running samtools command.

    Parameters
    ----------
    command, arguments
        As on the command line of samtools.
    stdin, stdout
        As for :class:`subprocess.Popen`; by default there are none.
    """

    def __init__(
        self, command: str, *arguments: str, stdin: Any = None, stdout: Any = None
    ) -> None:
        self.command = command
        # A file in memory, which needs no directory for temporary files; a pipe that is not read
        # would block samtools after 64 kB of warnings.
        self._messages: IO[bytes] = os.fdopen(os.memfd_create(f"samtools {command}"), "w+b")
        try:
            self.process = subprocess.Popen(
                # -P: else modules would come from the working directory, whatever lies there.
                [sys.executable, "-P", "-c", _CALL.format(command=command), *arguments],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.DEVNULL if stdout is None else stdout,
                stderr=self._messages,
                bufsize=0,
            )
        except BaseException:
            self._messages.close()  # cleaning up takes descriptors, of which there may be too few
            raise

    def wait(self) -> str | None:
        """Wait for the end; return None on success, else the messages of samtools."""
        try:
            status = self.process.wait()
        except BaseException:
            self.kill()
            raise
        if self._messages.closed:
            return None if status == 0 else f"exit status {status}"
        self._messages.seek(0)
        output = self._messages.read().decode(errors="replace")
        self._messages.close()
        return None if status == 0 else _reason(output, status)

    def kill(self) -> None:
        """Kill the process, if it runs, and drop its messages."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                _close(stream)
        self._messages.close()


def check_fasta(path: Path) -> None:
    """Raise UsageError for a FASTA file that samtools cannot use.

    It needs an index next to the file, and makes it if there is none. A file that cannot be opened
    is no error here.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return
    if head.startswith(GZIP_MAGIC) and not is_bgzf(head):
        raise UsageError(
            f"{path}: compressed with gzip, and CRAM needs it plain or by bgzip; run "
            f"'gunzip -k {path}' and name what comes out"
        )
    index = path.with_name(f"{path.name}.fai")
    if not index.exists() and not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"{path}: CRAM needs its index ({index.name}), which is not there and cannot be made "
            "in that directory; run 'samtools faidx' on a copy and name that"
        )


def _reason(output: str, status: int) -> str:
    r"""Extract the messages from the output of a failed process.

    Those of htslib come first, as "[E::function] message"; samtools' own are in the last line of
    pysam's traceback: "SamtoolsError: '... stderr=samtools view: message\n'".
    """
    lines = output.strip().splitlines() or [f"exit status {status}"]
    found = [line.partition("] ")[2] for line in lines if line.startswith("[E::")][:1]
    own = lines[-1].rpartition("stderr=")[2].removesuffix("'").replace("\\n", " ").strip()
    return "; ".join([*found, own])


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except OSError:  # a broken pipe while flushing
        return


# --- CRAM and SAM input ---

_CRAM_ENDS = {
    2: bytes.fromhex("0b000000ffffffff0fe0454f460000000001000001000606010001000100"),
    3: bytes.fromhex(
        "0f000000ffffffff0fe0454f4600000000010005bdd94f0001000606010001000100ee63014b"
    ),
}
"""The container that ends a file, by CRAM's major version; 2.0 has none."""

_CRAM_END_BYTES = 38
_CRAM_END_MASKED = 8


class _CramEnd:
    """The first and last bytes of a file, which tell whether a CRAM ends with its container.

    Samtools warns of a file that is cut off between containers, and succeeds.
    """

    def __init__(self, head: bytes) -> None:
        is_cram = head.startswith(b"CRAM")
        version = tuple(head[4:6]) if is_cram else (0, 0)
        self._expected = _CRAM_ENDS.get(version[0], b"") if version > (2, 0) else b""
        self._tail = b""

    def follow(self, data: memoryview) -> None:
        """Take the next bytes of the file."""
        self._tail = (self._tail + bytes(data[-_CRAM_END_BYTES:]))[-_CRAM_END_BYTES:]

    def follow_file(self, path: str) -> None:
        """Take the last bytes of a regular file."""
        with Path(path).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _CRAM_END_BYTES))
            self._tail = file.read()

    def is_there(self) -> bool:
        """Return True if the container is there, or is not to be expected."""
        n = len(self._expected)
        found = bytearray(self._tail[-n:]) if n else bytearray()
        if len(found) > _CRAM_END_MASKED:
            found[_CRAM_END_MASKED] &= 0x0F  # the bits above differ between writers (htslib)
        return found == self._expected


class ConvertedSource:
    """A CRAM or SAM file as the bytes of an uncompressed BAM file, converted by samtools.

    Parameters
    ----------
    source
        The file. Samtools opens a regular file itself; the bytes of a pipe are passed to it.
    reference
        FASTA file of the reference of a CRAM; None if it needs none.
    threads
        Threads of samtools.
    """

    def __init__(self, source: ByteSource, reference: str | None, threads: int) -> None:
        self.name = source.name
        self.is_bgzf = True
        self.n_plain = 0
        """Bytes that have been read."""
        self._source = source
        self._stopped = False
        self._broken: BrokenStreamError | None = None
        regular = source.path != "-" and stat.S_ISREG(Path(source.path).stat().st_mode)
        options = ["-u", "--no-PG", "-@", str(threads - 1)]
        if reference is not None:
            check_fasta(Path(reference))
            options += ["-T", reference]
        self._end = _CramEnd(source.raw_head)
        if regular:
            self._end.follow_file(source.path)
        self._samtools = SamtoolsProcess(
            "view", *options, source.path if regular else "-",
            stdin=None if regular else subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        process = self._samtools.process
        if process.stdin is not None:
            start_daemon(partial(self._feed, process.stdin))
        assert process.stdout is not None
        self._plain = ByteSource.of_stream(process.stdout, source.name)

    @property
    def ends_with_eof_block(self) -> bool:
        """True if samtools read to the end, and a CRAM file has the container that ends it."""
        return self._plain.ends_with_eof_block and self._end.is_there()

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
        self.n_plain += n
        return n

    def begin(self, buffer: memoryview) -> Step:
        """Fill the start of `buffer` as :meth:`readinto` does; the step has no parts."""
        return Step(self.readinto(buffer))

    def read_again(self, place: Place) -> None:
        """Never called: no step has parts."""
        raise AssertionError

    def keep_places(self) -> None:
        """Nothing: what is converted can be read from the start only."""

    def position(self, n_plain: int) -> FilePosition:
        """Return the position after `n_plain` bytes."""
        return FilePosition(n_plain, START)

    def go_to(self, position: FilePosition) -> None:
        """Move forward to a position; see :meth:`ByteSource.go_to`."""
        skip(self, position.n_plain - self.n_plain, lambda: self._stopped)

    def stop(self) -> None:
        """Kill samtools; threads that read find the stream broken."""
        self._stopped = True
        self._samtools.process.kill()

    def close(self) -> None:
        """Kill samtools and close the file."""
        self._samtools.kill()
        self._source.close()

    def _feed(self, pipe: IO[bytes]) -> None:
        buffer = memoryview(bytearray(1 << 16))
        try:
            while n := self._source.readinto(buffer):
                self._end.follow(buffer[:n])
                pipe.write(buffer[:n])
        except BrokenStreamError as error:
            self._broken = error
        except (OSError, ValueError):
            return  # samtools has ended and its messages give the reason
        finally:
            with suppress(OSError):
                pipe.close()


# --- records by name ---


def file_with_read(paths: Sequence[str], read_name: bytes) -> str | None:
    """Return the first of some BAM files that has a record of a read, which is searched through.

    None if there is none. What htslib cannot read of a file is left out.
    """
    import pysam  # takes a while, and only the message of an error needs it

    for path in paths:
        with suppress(OSError, ValueError), pysam.AlignmentFile(path, check_sq=False) as file:
            for record in file.fetch(until_eof=True):
                if (record.query_name or "").encode() == read_name:
                    return path
    return None


# --- indexes ---

MAX_BAI_LENGTH = 1 << 29
"""Longest contig that a .bai can index; longer ones need a .csi."""

_INDEX_KINDS = (".bai", ".csi", ".crai")
_KINDS_WITHOUT_SUFFIX = {".bam": (".bai", ".csi"), ".cram": (".crai",)}
"""Indexes that readers also look for instead of the suffix: ``x.bai`` beside ``x.bam``."""


def index_files(path: Path) -> list[Path]:
    """Return the names under which readers (htslib, htsjdk) look for an index of `path`.

    If `path` is a symbolic link, names beside the file that it leads to are included.
    """
    return [
        name
        for file in dict.fromkeys((path.absolute(), path.resolve()))
        for name in (
            *(file.with_name(file.name + kind) for kind in _INDEX_KINDS),
            *map(file.with_suffix, _KINDS_WITHOUT_SUFFIX.get(file.suffix.lower(), ())),
        )
    ]
