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
    from mapper.io.reads import Lane
    from mapper.mapping.job import MapJob

log = logging.getLogger(__name__)

_INSTEAD = {
    "reads": "READS", "read_group": "-R", "lane": "--lane", "json_stats": "--json-stats",
}  # fmt: skip
"""Options that the sheet replaces: destination and name."""

_WHOLE_RUN = ("interleaved", "insert_size", "insert_size_from", "json_stats")
"""Columns in which the lines of an output agree."""


class Row(NamedTuple):
    """One run: the options of the command line, with those of its lines of the sheet."""

    args: argparse.Namespace
    sheet: str = ""
    """Empty for a run without a sheet."""
    numbers: tuple[int, ...] = ()
    """Of its lines, one for each lane."""

    @property
    def lines(self) -> list[str]:
        """Sheet and number of each line, for messages."""
        return [f"{self.sheet}, line {number}" for number in self.numbers]

    @property
    def line(self) -> str:
        """Sheet and numbers of all lines, for messages; empty for a run without a sheet."""
        if len(self.numbers) < 2:
            return "".join(self.lines)
        *others, last = map(str, self.numbers)
        return f"{self.sheet}, lines {', '.join(others)} and {last}"


def rows_of(args: argparse.Namespace) -> tuple[list[Row], list[MapperError]]:
    """Read the sheet of ``--batch``.

    Returns
    -------
    The runs, one for each output, by their first lines, and an error for each thing in the sheet
    that keeps it from being used.

    Raises
    ------
    UsageError
        If an option of the command line belongs in the sheet, or the sheet cannot be understood.
    """
    for dest, name in _INSTEAD.items():
        if getattr(args, dest):
            raise UsageError(f"{name} and --batch: the sheet names read files, groups and outputs")
    if args.output != "-":
        raise UsageError("-o and --batch: the sheet names the outputs")
    sheet, errors = read_sheet(args.batch)
    lanes: dict[Path, list[SheetRow]] = {}
    for lane in sheet:
        lanes.setdefault(Path(lane.output).resolve(), []).append(lane)
    rows = []
    for same in lanes.values():
        rows.append(Row(_args_of(args, same), args.batch, tuple(lane.number for lane in same)))
        errors += _differences(rows[-1], same)
    return rows, errors + _clashes(rows)


def jobs_of(
    rows: Sequence[Row], errors: Sequence[MapperError],
    job_of: Callable[[argparse.Namespace], MapJob],
) -> list[MapJob]:  # fmt: skip
    """Return the job of each run.

    Raises
    ------
    MapperError
        If there are `errors` of the sheet already, or options or the beginnings of files show that
        a run will fail; all of them are named.
    """
    jobs: list[MapJob] = []
    errors = list(errors)
    for row in rows:
        try:
            jobs.append(job_of(row.args))
            _check_output(jobs[-1])
        except MapperError as error:
            errors.append(type(error)(f"{row.line}: {error}"))
        else:
            errors += _lane_errors(row, jobs[-1])
    _raise_all(errors)
    return jobs


@contextmanager
def one_run(row: Row, number: int, n_rows: int) -> Iterator[None]:
    """Add to the errors of a run, the block, its lines of the sheet and how many runs are done.

    `number` counts from 0. Errors of a run without a sheet are not changed.
    """
    if not row.line:
        yield
        return
    line = f"{row.line} ({row.args.output})"
    log.info("%s: %d of %d", line, number + 1, n_rows)
    done = f"{number} of {n_rows} outputs are done, and stay"
    try:
        yield
    except MapperError as error:
        error.args = (f"{line}: {error}; {done}",)
        raise
    except BaseException:
        log.warning("%s: not finished; %s", line, done)
        raise


def _args_of(args: argparse.Namespace, lanes: Sequence[SheetRow]) -> argparse.Namespace:
    """Return the options of one run; cells of the first line override the command line."""
    own = copy.copy(args)
    row = lanes[0]
    own.output, own.reads = row.output, list(row.reads)
    own.read_group, own.json_stats = row.read_group, row.json_stats
    own.lane = [[lane.read_group, *lane.reads] for lane in lanes[1:]]
    if row.interleaved is not None:
        own.interleaved = row.interleaved
    if row.insert_size is not None or row.insert_size_from is not None:
        own.insert_size, own.insert_size_from = row.insert_size, row.insert_size_from
    return own


def _differences(row: Row, lanes: Sequence[SheetRow]) -> list[MapperError]:
    """Return an error for each cell that says otherwise than the first line of its output."""
    errors: list[MapperError] = []
    first, *others = row.lines
    for line, lane in zip(others, lanes[1:], strict=True):
        for column in _WHOLE_RUN:
            own, expected = getattr(lane, column), getattr(row.args, column)
            if own is not None and own != expected:
                errors.append(
                    UsageError(
                        f"{line}: {column} is {_cell(own)}, and {_cell(expected)} in {first}, of "
                        f"the same output {row.args.output}; leave it empty where it is as in the "
                        "first line"
                    )
                )
    return errors


def _cell(value: str | bool | None) -> str:
    """Return the value of a cell as users write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not given" if value is None else value


def _clashes(rows: Sequence[Row]) -> list[MapperError]:
    """Return an error for each file that two runs write, two lines read, or both.

    A run writes or removes the indexes of its output.
    """
    from mapper.io.samtools import index_files

    errors: list[MapperError] = []
    writers: dict[Path, str] = {}
    readers: dict[Path, str] = {}
    for row in rows:
        for name in (row.args.output, row.args.json_stats):
            if name == STDOUT:
                errors.append(UsageError(f"{row.line}: '-' is no output here; name a file"))
            elif name is not None:
                _enter(Path(name), row.line, writers, "is written", errors)
        reads = [row.args.reads, *(paths for _, *paths in row.args.lane)]
        for line, names in zip(row.lines, reads, strict=True):
            for name in names:
                if name == STDIN:
                    errors.append(UsageError(f"{line}: '-' is no input here; name a file"))
                else:
                    _enter(Path(name), line, readers, "is read", errors)
    for row in rows:  # of several runs, one file may give the insert size
        if row.args.insert_size_from is not None:
            readers.setdefault(Path(row.args.insert_size_from).resolve(), row.line)
    for path, line in writers.items():
        if path in readers:
            errors.append(UsageError(f"{line}: {path} is written, and read by {readers[path]}"))
    for row in rows:
        for index in index_files(Path(row.args.output)):
            path = index.resolve()
            user = writers.get(path, readers.get(path, row.line))
            if user != row.line:
                errors.append(
                    UsageError(
                        f"{user}: {index.name} has the name of an index of {row.args.output}, the "
                        f"output of {row.line}"
                    )
                )
    return errors


def _enter(
    path: Path, line: str, users: dict[Path, str], use: str, errors: list[MapperError]
) -> None:
    """Record the user of a file; add an error if it has another one already."""
    first = users.setdefault(path.resolve(), line)
    if first != line:
        errors.append(UsageError(f"{line}: {path} {use} by {first} already"))


def _check_output(job: MapJob) -> None:
    """Check format and name of the output, as a run does when it starts."""
    from mapper.io.output import check_format
    from mapper.io.output_file import check_writable

    check_format(job.output_format, sort=job.sort is not None, reference=job.reference)
    check_writable(Path(job.output).resolve())


def _lane_errors(row: Row, job: MapJob) -> list[MapperError]:
    """Return an error for each line whose read files or read group cannot be used."""
    from mapper.io.reads import Lane

    errors: list[MapperError] = []
    seen: dict[str, tuple[str, str]] = {}
    lanes = job.lanes or [Lane(tuple(job.reads), job.read_group)]
    for line, lane in zip(row.lines, lanes, strict=True):
        try:
            groups = _read_groups(lane, job)
            if job.lanes:
                _check_groups(groups, line, seen)
        except MapperError as error:
            errors.append(type(error)(f"{line}: {error}"))
    return errors


def _read_groups(lane: Lane, job: MapJob) -> list[str]:
    """Return the @RG lines of a lane: the one given, or those of its files if each has some."""
    from mapper.io.header import parse_read_group
    from mapper.io.reads import ReadOptions, ReadsReader

    given = [] if lane.read_group is None else [parse_read_group(lane.read_group)[0]]
    if any(path == STDIN or _is_stream(Path(path)) for path in lane.paths):
        return given  # the run could not read again what is read here
    options = ReadOptions(
        interleaved=job.interleaved, keep_comments=job.keep_comments,
        reference=job.input_reference,
    )  # fmt: skip
    reader = ReadsReader([lane], options)
    reader.close()
    own = [[line for line in header if line.startswith("@RG\t")] for header in reader.headers]
    return given or [line for lines in own for line in lines if all(own)]


def _check_groups(groups: Sequence[str], line: str, seen: dict[str, tuple[str, str]]) -> None:
    """Raise UsageError unless the read groups of a line can stand in one output with others.

    `seen` are the groups so far, @RG line and line of the sheet by ID; these are added.
    """
    from mapper.io.header import header_field

    if not groups:
        raise UsageError(
            "has no read group, and lines of one output need one each; fill in read_group, or ID, "
            "SM, LB ..."
        )
    for group in groups:
        name, sample = header_field(group, "ID"), header_field(group, "SM")
        other, where = seen.setdefault(name, (group, line))
        first, first_where = next(iter(seen.values()))
        if (expected := header_field(first, "SM")) != sample:
            raise UsageError(
                f"SM is {_cell(sample or None)}, and {_cell(expected or None)} in {first_where}; "
                "an output is one sample: give its lines the same SM, or each sample its own output"
            )
        if other != group:
            raise UsageError(
                f"read group {name!r} is described in another way in {where}; give each its own "
                "ID, or both the same line"
            )


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
