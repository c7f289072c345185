"""Read the small files beside a reference: its ALT contigs, groups of contigs, regions (BED).

All are text with one entry a line, plain or compressed with gzip. Blank lines count, and say
nothing.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mapper.errors import InputFormatError
from mapper.io.input_file import GZIP_MAGIC

_BED_SETTINGS = ("track", "browser")


class GroupLine(NamedTuple):
    """The group of a contig, and the line that says it."""

    group: str
    line: int


class Region(NamedTuple):
    """Bases ``start:end`` of a contig, 0-based, and the line that names them."""

    contig: str
    start: int
    end: int
    line: int


def read_alt(path: Path) -> dict[str, int]:
    """Return the ALT contigs that a file names, and the line of each.

    The file has the form of bwa's ``.alt``, lines as in SAM that align ALT contigs to the primary
    assembly, or is a list: the first column is the name. Lines that begin with ``@`` are a
    header.

    Raises
    ------
    InputFormatError
        If the file cannot be read or names no contig.
    """
    names: dict[str, int] = {}
    for number, line in _lines(path):
        if not line.startswith("@"):
            names.setdefault(line.split(maxsplit=1)[0], number)
    if not names:
        raise InputFormatError(
            f"{path}: names no contig; expected are lines with the name of an ALT contig in the "
            "first column"
        )
    return names


def read_groups(path: Path) -> dict[str, GroupLine]:
    """Return the group of each contig that a file names: lines of contig, tab, group.

    Raises
    ------
    InputFormatError
        If the file cannot be read, a line has another form, or a contig comes twice.
    """
    groups: dict[str, GroupLine] = {}
    for number, line in _lines(path):
        columns = line.split("\t")
        if len(columns) != 2 or not all(column.strip() for column in columns):
            raise InputFormatError(
                f"{path}: line {number}: {line!r} is not a contig, a tab and its group"
            )
        contig, group = (column.strip() for column in columns)
        if contig in groups:
            raise InputFormatError(
                f"{path}: line {number}: contig {contig!r} has a group by line "
                f"{groups[contig].line} already; remove one of the lines"
            )
        groups[contig] = GroupLine(group, number)
    return groups


def read_bed(path: Path) -> list[Region]:
    """Return the regions of a BED file: contig, start (0-based) and end in tabbed columns.

    Further columns are ignored, and so are comments (``#``) and the settings of a genome browser
    (lines that begin with the word ``track`` or ``browser``).

    Raises
    ------
    InputFormatError
        If the file cannot be read, or a line has another form.
    """
    regions = []
    for number, line in _lines(path):
        if line.startswith("#") or line.split(maxsplit=1)[0] in _BED_SETTINGS:
            continue
        columns = line.split("\t")
        numbers = [column.strip() for column in columns[1:3]]
        if len(numbers) < 2 or not all(text.isascii() and text.isdigit() for text in numbers):
            raise InputFormatError(
                f"{path}: line {number}: {line!r} is no region of BED: a contig, its start "
                "(0-based) and its end are expected, with tabs between them"
            )
        start, end = map(int, numbers)
        if start >= end:
            raise InputFormatError(
                f"{path}: line {number}: region {start}-{end} holds no base; the end must be "
                "beyond the start"
            )
        regions.append(Region(columns[0], start, end, number))
    return regions


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, with their numbers from 1 on."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        with gzip.open(path, "rt") if packed else path.open() as text:
            for number, line in enumerate(text, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFormatError(f"{path}: cannot be read: {reason}") from error
