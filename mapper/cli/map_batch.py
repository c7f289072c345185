"""``fmwave map --batch``: the runs of a sheet, all checked before the first one starts."""

from __future__ import annotations

import argparse
import copy
import logging
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mapper.cli.map_sheet import SheetRow, read_sheet
from mapper.errors import MapperError, UsageError
from mapper.io.input_file import STDIN
from mapper.io.output_file import STDOUT

if TYPE_CHECKING:
    from mapper.mapping.job import MapJob

log = logging.getLogger(__name__)

_INSTEAD = {
    "reads": "READS", "read_group": "-R", "lane": "--lane", "json_stats": "--json-stats",
}  # fmt: skip
"""Options that the sheet replaces: destination and name."""


class Row(NamedTuple):
    """One run: the options of the command line, with those of its line of the sheet."""

    args: argparse.Namespace
    line: str = ""
    """Sheet and number of the line, for messages; empty for a run without a sheet."""


def rows_of(args: argparse.Namespace) -> list[Row]:
    """Return the runs of ``--batch``.

    Raises
    ------
    UsageError
        If an option of the command line belongs in the sheet, or lines of the sheet cannot be used:
        all of them are named.
    """
    for dest, name in _INSTEAD.items():
        if getattr(args, dest):
            raise UsageError(f"{name} and --batch: the sheet names read files, groups and outputs")
    if args.output != "-":
        raise UsageError("-o and --batch: the sheet names the outputs")
    sheet, errors = read_sheet(args.batch)
    rows = [Row(_args_of(args, row), f"{args.batch}, line {row.number}") for row in sheet]
    _raise_all(errors + _clashes(rows))
    return rows


def jobs_of(rows: Sequence[Row], job_of: Callable[[argparse.Namespace], MapJob]) -> list[MapJob]:
    """Return the job of each run.

    Raises
    ------
    MapperError
        If options or the beginnings of files show that a run will fail; all such runs are named.
    """
    jobs: list[MapJob] = []
    errors: list[MapperError] = []
    for row in rows:
        try:
            jobs.append(job_of(row.args))
            _check(jobs[-1])
        except MapperError as error:
            errors.append(type(error)(f"{row.line}: {error}"))
    _raise_all(errors)
    return jobs


@contextmanager
def one_run(row: Row, number: int, n_rows: int) -> Iterator[None]:
    """Add to the errors of a run, the block, its line of the sheet and how many lines are done.

    `number` counts from 0. Errors of a run without a sheet are not changed.
    """
    if not row.line:
        yield
        return
    line = f"{row.line} ({row.args.output})"
    log.info("%s: %d of %d", line, number + 1, n_rows)
    done = f"{number} of {n_rows} lines are done, and their outputs stay"
    try:
        yield
    except MapperError as error:
        error.args = (f"{line}: {error}; {done}",)
        raise
    except BaseException:
        log.warning("%s: not finished; %s", line, done)
        raise


def _args_of(args: argparse.Namespace, row: SheetRow) -> argparse.Namespace:
    """Return the options of one run; a cell overrides the command line."""
    own = copy.copy(args)
    own.output, own.reads = row.output, list(row.reads)
    own.read_group, own.json_stats = row.read_group, row.json_stats
    if row.interleaved is not None:
        own.interleaved = row.interleaved
    if row.insert_size is not None or row.insert_size_from is not None:
        own.insert_size, own.insert_size_from = row.insert_size, row.insert_size_from
    return own


def _clashes(rows: Sequence[Row]) -> list[MapperError]:
    """Return an error for each file that two runs use."""
    errors: list[MapperError] = []
    writers: dict[Path, Row] = {}
    readers: dict[Path, Row] = {}
    for row in rows:
        for name in (row.args.output, row.args.json_stats):
            if name == STDOUT:
                errors.append(UsageError(f"{row.line}: '-' is no output here; name a file"))
            elif name is not None:
                _enter(Path(name), row, writers, "is written", errors)
        for name in row.args.reads:
            if name == STDIN:
                errors.append(UsageError(f"{row.line}: '-' is no input here; name a file"))
            else:
                _enter(Path(name), row, readers, "is read", errors)
    for path, row in writers.items():
        if path in readers:
            errors.append(
                UsageError(f"{row.line}: {path} is written, and read by {readers[path].line}")
            )
    return errors


def _enter(
    path: Path, row: Row, users: dict[Path, Row], use: str, errors: list[MapperError]
) -> None:
    """Record the user of a file; add an error if it has one already."""
    first = users.setdefault(path.resolve(), row)
    if first is not row:
        errors.append(UsageError(f"{row.line}: {path} {use} by {first.line} already"))


def _check(job: MapJob) -> None:
    """Check formats and read group, as a run does when it starts."""
    from mapper.io.header import parse_read_group
    from mapper.io.output import check_format
    from mapper.io.output_file import check_writable
    from mapper.io.reads import Lane, ReadOptions, ReadsReader

    check_format(job.output, job.output_format, sort=job.sort is not None, reference=job.reference)
    check_writable(Path(job.output).resolve())
    if job.read_group is not None:
        parse_read_group(job.read_group)
    if any(_is_stream(Path(path)) for path in job.reads):
        return  # the run could not read again what is read here
    options = ReadOptions(
        interleaved=job.interleaved, keep_comments=job.keep_comments,
        reference=job.input_reference,
    )  # fmt: skip
    ReadsReader([Lane(tuple(job.reads), job.read_group)], options).close()


def _is_stream(path: Path) -> bool:
    """Return True for a pipe or a device, as from a shell's process substitution."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _raise_all(errors: Sequence[MapperError]) -> None:
    """Raise all errors as one of the first one's type, a line for each."""
    if errors:
        raise type(errors[0])("\n".join(map(str, errors)))
