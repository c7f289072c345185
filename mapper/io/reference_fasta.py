"""Read a reference FASTA block by block, and refuse files that are not valid.

The file is read once. All threads encode blocks of it; the calling thread follows the records from
block to block, in order, and checks them.
"""

from __future__ import annotations

import itertools
import re
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.errors import InputFormatError, UsageError
from mapper.io.contig_md5 import contig_md5
from mapper.io.fasta_codes import AT, BAD_BASE, BAD_LINE, FULL, OK, encode_lines
from mapper.io.header import CONTIG_NAME, MAX_CONTIG_LENGTH
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import GZIP_MAGIC, ByteSource
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.pool import MAP, READ, WRITE, PriorityPool, ordered_calls

BLOCK_BYTES = 1 << 21
"""Largest block, unless a header is longer."""

_STEP_BYTES = 1 << 23  # of a step of reading; all threads decompress one of BGZF
_LINES_BYTES = 1 << 12  # that mostly contain a line end
_MOST_HEADER_BYTES = 1 << 26
_WHITE = np.frombuffer(b" \t\n\r\v\f", np.uint8)
_LF, _CR, _GREATER = (ord(c) for c in "\n\r>")


# --- blocks ---


class FastaBlock(NamedTuple):
    """Some lines, for :func:`mapper.io.fasta_codes.encode_lines`."""

    text: np.ndarray  # uint8; not to be written to
    in_line: bool  # True if the first line began before


def require_regular_file(path: Path) -> int:
    """Return the size of a file in bytes.

    Raises
    ------
    InputFormatError
        If it does not exist or is a directory, pipe or device.
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
    """Return the size of a file's text in bytes; None if it is compressed, and thus not known.

    It is an upper bound of the bases and the separators of contigs, as each record has a ``>``.

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
        Its threads read and decompress ahead; None: the calling thread does.

    Raises
    ------
    InputFormatError
        If the file cannot be read, is empty, does not begin with a header or, after all blocks
        that could be read, is truncated or damaged.
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
    """Skip white space before the first header; return False for a broken file without one."""
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
    """Return where to cut: after a line, or inside a sequence line; 0 if only a header is there."""
    for size in (_LINES_BYTES, len(text)):
        ends = np.flatnonzero(text[-size:] == _LF)
        if ends.size:
            return max(len(text) - size, 0) + int(ends[-1]) + 1
    if text[0] == _GREATER and not in_line:
        return 0
    return len(text) - int(text[-1] == _CR)


# --- records ---

_FIRST_WORD = re.compile(rb"\S*")
_BLOCKS_AHEAD = 16
_CONTIGS_AHEAD = 2  # in memory, while their MD5 is computed
_HEADS = 1 << 12  # room for headers of a block; with more it is encoded again


class FastaCodes(NamedTuple):
    """The bases of a block of the file."""

    codes: np.ndarray  # uint8, written codes of mapper.io.fasta_codes
    names: list[str]  # first word of the header line of each contig that begins here
    starts: list[int]  # start of each in the codes; those before continue the previous contig
    otherwise: bool  # True if some codes have WRITTEN_OTHERWISE

    def pieces(self) -> list[np.ndarray]:
        """Return the codes contig by contig; the first continue that of the previous block."""
        bounds = [0, *self.starts, len(self.codes)]
        return [self.codes[start:end] for start, end in itertools.pairwise(bounds)]


class _Encoded(NamedTuple):
    """An encoded block."""

    text: np.ndarray
    status: int
    at: int  # position of the status in the text
    codes: np.ndarray
    heads: np.ndarray
    otherwise: bool


def read_fasta(path: Path, pool: PriorityPool | None = None) -> Generator[FastaCodes, None, None]:
    """Yield the contigs of a FASTA file, block by block.

    Parameters
    ----------
    path
        Plain, gzip or BGZF.
    pool
        Its threads read ahead, decompress and encode.

    Raises
    ------
    InputFormatError
        If the file cannot be read, is truncated, empty or no FASTA, or if a record has no name,
        no bases, a name that SAM forbids or that came before, a character that is no IUPAC
        nucleotide, or too many bases for BAM.
    """
    records = _Records(path)
    reading, encoding = (pool.at(READ), pool.at(WRITE)) if pool is not None else (None, None)
    with closing(fasta_blocks(path, reading)) as blocks:
        calls = (partial(_encode, block) for block in blocks)
        for block in ordered_calls(calls, encoding, _BLOCKS_AHEAD):
            yield records.follow(block)
    records.end()


def check_reference(
    path: Path, names: Sequence[str], md5: Sequence[str], pool: PriorityPool | None = None
) -> None:
    """Raise UsageError unless a FASTA file holds these contigs, in this order.

    CRAM is written and read with the file: one with the same names and other bases would change
    the reads.
    """
    n_contigs = 0

    def contigs() -> Iterator[Callable[[], str]]:
        nonlocal n_contigs
        pieces: list[np.ndarray] = []
        for block in read_fasta(path, pool):
            first, *others = block.pieces()
            pieces.append(first)
            for name, codes in zip(block.names, others, strict=True):
                if n_contigs >= len(names) or name != names[n_contigs]:
                    more = n_contigs < len(names)
                    raise _other_contig(path, name, repr(names[n_contigs]) if more else None)
                if n_contigs:
                    yield partial(contig_md5, pieces)
                n_contigs += 1
                pieces = [codes]
        yield partial(contig_md5, pieces)

    hashing = pool.at(MAP) if pool is not None else None
    found = list(ordered_calls(contigs(), hashing, _CONTIGS_AHEAD))
    RECYCLER.clear()  # of blocks of the file
    for name, md5_found, expected in zip(names, found, md5, strict=False):
        if md5_found != expected:
            raise _other_contig(path, name, repr(name))
    if n_contigs != len(names):
        raise UsageError(f"{path}: {n_contigs} contigs, and the index has {len(names)}")


def check_contigs(
    path: Path, names: Sequence[str], lengths: Sequence[int], pool: PriorityPool | None = None
) -> None:
    """Raise UsageError unless a FASTA file holds contigs of these names and lengths.

    Samtools writes CRAM without the contigs that it does not find, and with those of other
    lengths. The file may hold more of them, in any order; bases are not compared. Lengths are those
    of the ``.fai`` that samtools uses, or of the file if there is none.
    """
    listed = Path(f"{path}.fai")
    found = _lengths_listed(listed) if listed.exists() else _lengths_of(path, pool)
    for wanted, length in zip(names, lengths, strict=True):
        n_bases = found.get(wanted)
        if n_bases != length:
            has = "is not there" if n_bases is None else f"has {n_bases} bases"
            raise UsageError(
                f"{path}: contig {wanted!r}, of {length} bases in the header of the records, {has};"
                " give the FASTA file that the reads were mapped to"
            )


def _lengths_listed(path: Path) -> dict[str, int]:
    """Return the contigs of a ``.fai`` file, and their bases."""
    try:
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        return {row[0]: int(row[1]) for row in rows}
    except (ValueError, IndexError):
        raise UsageError(f"{path}: no index of samtools faidx; remove it") from None


def _lengths_of(path: Path, pool: PriorityPool | None) -> dict[str, int]:
    """Return the contigs of a FASTA file, and their bases."""
    found: dict[str, int] = {}
    name = ""
    for block in read_fasta(path, pool):
        first, *others = block.pieces()
        found[name] = found.get(name, 0) + len(first)
        for name, codes in zip(block.names, others, strict=True):
            found[name] = len(codes)
    RECYCLER.clear()  # of blocks of the file
    return found


def _other_contig(path: Path, name: str, expected: str | None) -> UsageError:
    return UsageError(
        f"{path}: contig {name!r} is not that of the index ({expected or 'no further contig'}), or "
        "has other bases; give the FASTA file that the index was built from"
    )


def _encode(block: FastaBlock) -> _Encoded:
    """Encode a block (a task)."""
    codes = RECYCLER.empty(len(block.text))
    heads = np.empty((_HEADS, 3), np.int64)
    while True:
        status, at, n, n_heads, otherwise = encode_lines(block.text, block.in_line, codes, heads)
        if status != FULL:
            return _Encoded(block.text, status, at, codes[:n], heads[:n_heads], otherwise)
        heads = np.empty((8 * len(heads), 3), np.int64)


class _Records:
    """Check the records of a file from block to block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: set[str] = set()
        self._name = ""
        self._n_bases = 0

    def follow(self, block: _Encoded) -> FastaCodes:
        """Check the records of a block; return its contigs."""
        names, starts = [], block.heads[:, AT].tolist()
        at = 0
        for start, end, next_line in block.heads.tolist():
            self._add_bases(next_line - at)
            names.append(self._begin(block.text[start:end].tobytes()))
            at = next_line
        self._add_bases(len(block.codes) - at)
        if block.status != OK:
            raise self._bad_character(block)
        return FastaCodes(block.codes, names, starts, block.otherwise)

    def end(self) -> None:
        """Check the last record."""
        if self._n_bases == 0:
            raise InputFormatError(f"{self._where()} has no bases; remove it")

    def _begin(self, header: bytes) -> str:
        if self._names:
            self.end()
        word = _FIRST_WORD.match(header)
        assert word is not None  # it may be empty
        if b"\0" in header:
            raise self._holds_nul()
        try:
            name = self._name = word[0].decode()
        except UnicodeDecodeError as error:
            raise InputFormatError(f"{self._path}: cannot be read as FASTA: not text") from error
        n_before = len(self._names)
        self._names.add(name)
        if not CONTIG_NAME.fullmatch(name):
            what = "has no name" if not name else "has a name that SAM does not allow"
            raise InputFormatError(f"{self._where()} {what}; rename the contig")
        if len(self._names) == n_before:
            number = f"{self._path}: record {n_before + 1} ({name!r})"
            raise InputFormatError(f"{number}: a record of this name came before; rename one")
        self._n_bases = 0
        return name

    def _add_bases(self, n: int) -> None:
        self._n_bases += n
        if self._n_bases > MAX_CONTIG_LENGTH:
            raise InputFormatError(
                f"{self._where()} has more than {MAX_CONTIG_LENGTH} bases, which BAM does not "
                "allow; split it"
            )

    def _where(self) -> str:
        return f"{self._path}: record {len(self._names)} ({self._name!r})"

    def _holds_nul(self) -> InputFormatError:
        return InputFormatError(f"{self._path}: holds a NUL byte; it is no text file")

    def _bad_character(self, block: _Encoded) -> InputFormatError:
        some = block.text[block.at : block.at + 4].tobytes()
        character = some.decode("utf-8", "replace")[0]
        if some.startswith(b"\0"):
            return self._holds_nul()
        if block.status == BAD_LINE:
            return InputFormatError(
                f"{self._path}: after record {len(self._names)} a line begins with "
                f"{character!r}; is this FASTQ? A FASTA file is expected"
            )
        assert block.status == BAD_BASE
        return InputFormatError(
            f"{self._where()}: character {character!r} at base {self._n_bases + 1} is no IUPAC "
            "nucleotide"
        )
