"""The samtools that comes with pysam, in processes of its own.

Within this process it would hold up signals until it is done, and could not be stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from mapper.errors import UsageError
from mapper.io.bgzf_reader import HEAD_BYTES, is_bgzf

_GZIP_MAGIC = b"\x1f\x8b"
_CALL = (
    "import sys, pysam; pysam.set_verbosity(1); "  # 1: htslib's errors, not its warnings
    "pysam.{command}(*sys.argv[1:], catch_stdout=False)"
)


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
        # A file: a pipe that nobody empties would stop samtools after 64 kB of warnings.
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CALL.format(command=command), *arguments],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.DEVNULL if stdout is None else stdout,
            stderr=self._messages,
            bufsize=0,
        )

    def wait(self) -> str | None:
        """Wait for the end; return None if all went well, else what samtools said."""
        try:
            status = self.process.wait()
        except BaseException:
            self.kill()
            raise
        if self._messages.closed:
            return None if status == 0 else f"exit status {status}"
        self._messages.seek(0)
        said = self._messages.read().decode(errors="replace")
        self._messages.close()
        return None if status == 0 else _reason(said, status)

    def kill(self) -> None:
        """End the process, if it has not ended, and forget what it said."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                _close(stream)
        self._messages.close()


def check_fasta(path: Path) -> None:
    """Raise UsageError for a FASTA file that others read and samtools does not.

    It needs an index beside the file, which it makes if there is none. A file that cannot be
    opened is left to who reads it.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return
    if head.startswith(_GZIP_MAGIC) and not is_bgzf(head):
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


def run(command: str, *arguments: str) -> str | None:
    """Run a command to its end; return as :meth:`SamtoolsProcess.wait` does."""
    return SamtoolsProcess(command, *arguments).wait()


def _reason(said: str, status: int) -> str:
    r"""Return the messages in what a failed process wrote.

    htslib's come first, as "[E::function] message"; samtools' own stand in the last line of
    pysam's traceback: "SamtoolsError: '... stderr=samtools view: message\n'".
    """
    lines = said.strip().splitlines() or [f"exit status {status}"]
    found = [line.partition("] ")[2] for line in lines if line.startswith("[E::")][:1]
    own = lines[-1].rpartition("stderr=")[2].removesuffix("'").replace("\\n", " ").strip()
    return "; ".join([*found, own])


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except OSError:  # a broken pipe on flushing what nobody will read
        return
