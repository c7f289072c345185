"""A reference FASTA cut into blocks that several threads can encode, each for itself."""

from __future__ import annotations

import stat
from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import GZIP_MAGIC, ByteSource

BLOCK_BYTES = 1 << 21
"""Of a block, at most, unless a header is longer."""

_STEP_BYTES = 1 << 23  # read at a time, and decompressed by all threads where it is BGZF
_LINES_BYTES = 1 << 12  # in which a line mostly ends
_MOST_HEADER_BYTES = 1 << 26
_WHITE = np.frombuffer(b" \t\n\r\v\f", np.uint8)
_LF, _CR, _GREATER = (ord(c) for c in "\n\r>")


class FastaBlock(NamedTuple):
    """Some lines; see :func:`mapper.io.fasta_codes.encode_lines`."""

    text: np.ndarray  # uint8; not to be written to
    in_line: bool  # whether the first line began before


def require_regular_file(path: Path) -> int:
    """Return the size of a file in bytes.

    Raises
    ------
    InputFormatError
        If there is none, or it is something else.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise InputFormatError(f"{path}: {error.strerror}; a FASTA file is expected") from error
    if not stat.S_ISREG(found.st_mode):
        raise InputFormatError(
            f"{path}: is a directory, pipe or device; a FASTA file is expected (its name and "
            "size are kept, and CRAM needs it again)"
        )
    return found.st_size


def plain_bytes(path: Path) -> int | None:
    """Return the bytes of a file's text; None where it is compressed, until it has been read.

    No FASTA has more bases and separators of contigs together: each record has its ``>``.

    Raises
    ------
    InputFormatError
        If there is no such file, or it cannot be read.
    """
    size = require_regular_file(path)
    source = ByteSource(str(path))
    try:
        return None if source.raw_head.startswith(GZIP_MAGIC) else size
    finally:
        source.close()


def fasta_blocks(path: Path, executor: Executor | None = None) -> Generator[FastaBlock, None, None]:
    """Yield the text of a FASTA file, from its first ``>`` on.

    Parameters
    ----------
    path
        Plain, gzip or BGZF.
    executor
        Its threads read and decompress ahead; None: the calling thread does it.

    Raises
    ------
    InputFormatError
        If the file cannot be read, is empty, does not begin with a header or, after all that
        could be read, is truncated or damaged.
    """
    require_regular_file(path)
    source = ByteSource(str(path))
    file = InputBuffer(source, _STEP_BYTES, executor)
    try:
        if _find_header(path, file):
            yield from _cut(file)
        if file.broken is not None:
            raise InputFormatError(f"{path}: {file.broken}") from file.broken
        if source.is_bgzf and not source.ends_with_eof_block:
            raise InputFormatError(
                f"{path}: the BGZF end-of-file block is missing; the file is truncated"
            )
    finally:
        file.close()


def _find_header(path: Path, file: InputBuffer) -> bool:
    """Skip white space before the first header; say whether there is one, and not a broken file."""
    is_empty = True
    while True:
        rest, ended = file.unread(1)
        is_empty &= not len(rest)
        some = rest[:BLOCK_BYTES]
        solid = np.flatnonzero(~np.isin(some, _WHITE))
        file.take(int(solid[0]) if solid.size else len(some))
        if solid.size:
            first = chr(some[solid[0]])
            break
        if ended and len(some) == len(rest):
            if file.broken is not None:
                return False
            first = ""
            break
    if is_empty:
        raise InputFormatError(f"{path}: the file is empty; a FASTA file is expected")
    if first != ">":
        what = "is FASTQ" if first == "@" else "does not begin with '>'"
        raise InputFormatError(f"{path}: {what}; a FASTA file is expected")
    return True


def _cut(file: InputBuffer) -> Iterator[FastaBlock]:
    in_line, size = False, BLOCK_BYTES
    while True:
        rest, ended = file.unread(size)
        if ended and len(rest) <= size:
            if len(rest):
                yield FastaBlock(file.take(len(rest)), in_line)
            return
        n = _end_of_block(rest[:size], in_line)
        if n == 0:
            if size >= _MOST_HEADER_BYTES:
                raise InputFormatError(
                    f"{file.name}: a header line of more than {size} bytes; shorten it"
                )
            size *= 2
            continue
        text = file.take(n)
        yield FastaBlock(text, in_line)
        in_line, size = text[-1] != _LF, BLOCK_BYTES


def _end_of_block(text: np.ndarray, in_line: bool) -> int:
    """Return where to cut: behind a line, or inside one of a sequence; 0 if there is no place."""
    for size in (_LINES_BYTES, len(text)):
        ends = np.flatnonzero(text[-size:] == _LF)
        if ends.size:
            return max(len(text) - size, 0) + int(ends[-1]) + 1
    if text[0] == _GREATER and not in_line:
        return 0
    return len(text) - int(text[-1] == _CR)
