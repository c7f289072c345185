"""The sheet of ``fmwave map --batch``: a header line, and one tab-separated line for each lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mapper.errors import MapperError, UsageError

REQUIRED = ("output", "reads1")
OPTIONS = (
    "reads2", "interleaved", "read_group", "insert_size", "insert_size_from", "json_stats",
)  # fmt: skip
GROUP_FIELDS = (
    "ID", "BC", "CN", "DS", "DT", "FO", "KS", "LB", "PG", "PI", "PL", "PM", "PU", "SM",
)  # fmt: skip
"""Fields of @RG that a column can give (SAM, section 1.3); ID is the first."""

_ANSWERS = {"yes": True, "no": False}


@dataclass(frozen=True)
class SheetRow:
    """The cells of a line; None for an empty cell or a missing column."""

    number: int  # of the line in the file, from 1
    output: str
    reads: tuple[str, ...]
    interleaved: bool | None
    read_group: str | None
    insert_size: str | None
    insert_size_from: str | None
    json_stats: str | None


def read_sheet(path: str) -> tuple[list[SheetRow], list[MapperError]]:
    """Read a sheet.

    Empty lines, and lines that begin with ``#``, are skipped. Nothing is quoted; blanks around
    a cell are not part of it.

    Returns
    -------
    The rows that can be understood, and an error for each of the others.

    Raises
    ------
    UsageError
        If the file cannot be read, or its header line or all of it cannot be used.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--batch {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--batch {path}: byte {error.start + 1} is not UTF-8") from error
    lines = _lines(text)
    number, header = next(lines, (0, []))
    if not header:
        raise UsageError(
            f"--batch {path}: is empty; a header line and lines of samples are expected"
        )
    _check_header(f"{path}, line {number}", header)
    rows, errors = [], []
    for number, cells in lines:
        try:
            rows.append(_row(number, header, cells))
        except UsageError as error:
            errors.append(UsageError(f"{path}, line {number}: {error}"))
    if not rows and not errors:
        raise UsageError(f"--batch {path}: has a header line only; lines of samples are expected")
    return rows, list(errors)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield number, [cell.strip() for cell in line.split("\t")]


def _check_header(place: str, header: list[str]) -> None:
    known = (*REQUIRED, *OPTIONS, *GROUP_FIELDS)
    for column in header:
        if column not in known:
            raise UsageError(f"{place}: unknown column {column!r}; known are {', '.join(known)}")
        if header.count(column) > 1:
            raise UsageError(f"{place}: column {column} stands there twice")
    for column in REQUIRED:
        if column not in header:
            raise UsageError(
                f"{place}: there is no column {column!r}; the header line names the columns, "
                "separated by tabs"
            )


def _row(number: int, header: list[str], cells: list[str]) -> SheetRow:
    if len(cells) != len(header):
        raise UsageError(
            f"{len(cells)} cells, and the header has {len(header)}; empty cells need their tabs"
        )
    row = {column: cell for column, cell in zip(header, cells, strict=True) if cell}
    for column in REQUIRED:
        if column not in row:
            raise UsageError(f"{column} is empty")
    interleaved = row.get("interleaved")
    if interleaved is not None and interleaved not in _ANSWERS:
        raise UsageError(f"interleaved {interleaved!r}: yes or no is expected")
    return SheetRow(
        number=number,
        output=row["output"],
        reads=(row["reads1"], *([row["reads2"]] if "reads2" in row else [])),
        interleaved=None if interleaved is None else _ANSWERS[interleaved],
        read_group=_read_group(row),
        insert_size=row.get("insert_size"),
        insert_size_from=row.get("insert_size_from"),
        json_stats=row.get("json_stats"),
    )


def _read_group(row: dict[str, str]) -> str | None:
    """Return the read group as for -R: the cell, or built from the columns of its fields."""
    fields = [f"{tag}:{row[tag]}" for tag in GROUP_FIELDS if tag in row]
    line = row.get("read_group")
    if line is not None and fields:
        raise UsageError(f"read_group and {fields[0][:2]} are both given; give one of them")
    return line if line is not None or not fields else "\t".join(["@RG", *fields])
