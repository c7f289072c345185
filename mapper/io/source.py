"""Byte sources: a file, gzip file or standard input as one stream of plain bytes."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

from isal import igzip, isal_zlib

from mapper.errors import InputFormatError

STDIN = "-"

GZIP_MAGIC = b"\x1f\x8b"
_FOREIGN_COMPRESSION = {
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
}
_HEAD_BYTES = 8


class BrokenStreamError(Exception):
    """A stream that cannot be read on; the message is the reason, for a user to read."""


class _WithHead(io.RawIOBase):
    """A raw file with the bytes that were read to recognise it put back in front.

    Pipes cannot seek, and ``BufferedReader.peek`` may return less than was asked for.
    """

    def __init__(self, raw: io.FileIO, head: bytes) -> None:
        self._raw = raw
        self._head = head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            n = min(len(self._head), len(buffer))
            buffer[:n] = self._head[:n]
            self._head = self._head[n:]
            return n
        return self._raw.readinto(buffer) or 0

    def close(self) -> None:
        self._raw.close()
        super().close()


def source_name(path: str) -> str:
    """Return what messages call an input."""
    return "standard input" if path == STDIN else path


class ByteSource:
    """Plain bytes of a file, decompressed where it is gzip (any number of members, BGZF).

    Parameters
    ----------
    path
        File name, or ``-`` for standard input.

    Raises
    ------
    InputFormatError
        If there is no such file, it cannot be read, is a directory, or is compressed
        with something else than gzip.
    """

    def __init__(self, path: str) -> None:
        self.name = source_name(path)
        raw = _open_raw(path, self.name)
        head = _read_head(raw, self.name)
        for magic, kind in _FOREIGN_COMPRESSION.items():
            if head.startswith(magic):
                raw.close()
                raise InputFormatError(
                    f"{self.name}: compressed with {kind}, which is not read; decompress it, "
                    "or compress it with gzip or bgzip"
                )
        self._raw = _WithHead(raw, head)
        self._stream: Any = self._raw
        if head.startswith(GZIP_MAGIC):
            self._stream = igzip.IGzipFile(fileobj=self._raw, mode="rb")

    def readinto(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` and return how many bytes; 0 only at the end.

        Raises
        ------
        BrokenStreamError
            If the gzip data are cut off or damaged, or the file cannot be read on.
        """
        try:
            return int(self._stream.readinto(buffer))
        except EOFError as error:
            raise BrokenStreamError(
                "the gzip data end early: the file is truncated; copy or download it again"
            ) from error
        except (gzip.BadGzipFile, isal_zlib.error) as error:  # type: ignore[misc]
            raise BrokenStreamError(
                f"the gzip data are damaged ({error}); copy or download the file again"
            ) from error
        except OSError as error:
            raise BrokenStreamError(f"reading failed ({error.strerror or error})") from error

    def close(self) -> None:
        """Close the file (not standard input)."""
        self._stream.close()
        self._raw.close()  # a gzip stream leaves its file open


def _open_raw(path: str, name: str) -> io.FileIO:
    try:
        if path == STDIN:
            return io.FileIO(0, closefd=False)
        return io.FileIO(path)
    except FileNotFoundError as error:
        raise InputFormatError(f"{name}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise InputFormatError(f"{name}: is a directory; name a file in it") from error
    except OSError as error:
        raise InputFormatError(f"{name}: cannot be opened ({error.strerror})") from error


def _read_head(raw: io.FileIO, name: str) -> bytes:
    head = b""
    try:
        while len(head) < _HEAD_BYTES and (more := raw.read(_HEAD_BYTES - len(head))):
            head += more
    except OSError as error:
        raw.close()
        raise InputFormatError(f"{name}: cannot be read ({error.strerror})") from error
    return head


def same_file(a: str, b: str) -> bool:
    """Say whether two paths name one file (or both standard input)."""
    if STDIN in (a, b):
        return a == b
    try:
        return Path(a).samefile(b)
    except OSError:
        return False
