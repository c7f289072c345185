"""Runs that go on from the states of a killed one: the same bytes from each of them.

A state is what ``kill -9`` leaves: the directory as it was when the state had been written, with
more bytes at the end of its files, as a run writes on meanwhile. ``tests/cli/test_map_resume.py``
kills processes.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pysam
import pytest

import mapper.sorting.output as sorting_output
from mapper.cuda import nvcomp
from mapper.errors import InputFormatError, MapperError, OutputError, UsageError
from mapper.index.storage import checksum
from mapper.io.position import FilePosition, InputPosition, Place, ReaderPosition
from mapper.io.reads import Lane
from mapper.mapping import resume, session
from mapper.mapping.device_io import AUTO, DEVICE, HOST, DeviceIO
from mapper.mapping.job import MapJob, Resume
from mapper.mapping.options import insert_size_model, map_params
from mapper.parallel.pool import complete
from mapper.sorting.options import MarkOptions, SortOptions
from mapper.sorting.runs import RecordSorter
from tests.helpers.mapping_runs import World, lines_of, map_to, thirds

BATCH_BASES = 12_000  # some twenty batches of the world's reads
SORT_BYTES = 120_000  # so that most of them go to the temporary file
STATES = 6  # of a run that are gone on from

MARKED = SortOptions(duplicates=MarkOptions(supplementary=True))


class Inline(Executor):
    """Runs a task at once, so that every batch has its state."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        complete(future, partial(fn, *args, **kwargs))
        future.result()
        return future


@contextmanager
def inline_pool(n_threads: int) -> Iterator[Executor]:
    yield Inline()


class Killed(NamedTuple):
    """An undisturbed run, and what a run killed after each of its states would have left."""

    files: dict[str, Any]
    counts: dict[str, int]
    insert_size: dict[str, float] | None
    states: list[Path]


def run(world: World, output: Path, options: dict[str, Any], **other: Any) -> Any:
    """Map with states after every batch, and little memory for sorting."""
    asked = Resume(checksum(world.index_path), seconds=0)
    given = {"resume": asked, "batch_bases": BATCH_BASES, "threads": 2, **options, **other}
    return map_to(world.index, output, *given.pop("reads"), **given)


def files_in(directory: Path) -> dict[str, Any]:
    """Return names and contents; of CRAM the records, as samtools' bytes vary with its threads."""
    files: dict[str, Any] = {path.name: path.read_bytes() for path in directory.iterdir()}
    if "x.cram" in files:
        return {"x.cram": lines_of(directory / "x.cram"), "x.cram.crai": "x.cram.crai" in files}
    return files


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def sorter(file: Any, executor: Executor, n_threads: int, *_: Any) -> RecordSorter:
        return RecordSorter(file, executor, n_threads, SORT_BYTES)

    monkeypatch.setattr(sorting_output, "RecordSorter", sorter)


def kill_everywhere(
    world: World, folder: Path, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Killed:
    """Run, and keep what is there after each state."""
    folder.mkdir()
    output = folder / "out" / name
    output.parent.mkdir()
    states: list[Path] = []
    write = resume.write_state

    def keep(path: Path, state: dict[str, Any]) -> None:
        write(path, state)
        states.append(folder / f"state{len(states)}")
        shutil.copytree(path.parent, states[-1])
        for file in states[-1].iterdir():
            if file.name not in ("state.json", "lock", "blocks"):
                with file.open("ab") as end:
                    end.write(b"beyond the state")

    with monkeypatch.context() as patch:
        patch.setattr(resume, "write_state", keep)
        patch.setattr(resume, "thread_pool", inline_pool)
        stats = run(world, output, options)
    return Killed(files_in(output.parent), stats.counts, stats.insert_size, states)


def check_all(
    world: World, folder: Path, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Killed:
    """Go on from some of the states, with other threads and batches, and compare."""
    killed = kill_everywhere(world, folder, name, options, monkeypatch)
    plain = folder / "plain" / name
    plain.parent.mkdir()
    stats = run(world, plain, options, resume=None)
    assert files_in(plain.parent) == killed.files
    assert stats.counts == killed.counts
    step = max(1, len(killed.states) // STATES)
    assert len(killed.states) > 2
    for number, state in enumerate([*killed.states[::step], killed.states[-1]]):
        output = folder / f"again{number}" / name
        output.parent.mkdir()
        shutil.copytree(state, resume.directory_of(str(output)))
        other = {
            "threads": 1 + number % 2,
            "batch_bases": (BATCH_BASES, 5_000, 3_000_000)[number % 3],
        }
        stats = run(world, output, options, **other)
        assert stats.summary()["resumed"] == 1
        assert files_in(output.parent) == killed.files
        assert stats.counts == killed.counts
        assert stats.insert_size == killed.insert_size
    return killed


# --- inputs ---


def packed(path: str, folder: Path, how: str) -> str:
    target = folder / f"{how}.{Path(path).name}.gz"
    if how == "gzip":
        target.write_bytes(gzip.compress(Path(path).read_bytes()))
    else:
        pysam.tabix_compress(path, str(target), force=True)
    return str(target)


def bam_of(world: World, path: Path, mode: str = "wb") -> str:
    """Write the pairs as unaligned BAM; every fifth has lost a mate, every seventh is single."""
    with (
        pysam.AlignmentFile(str(path), mode, header={"HD": {"VN": "1.6"}}) as out,
        pysam.FastxFile(world.first) as first,
        pysam.FastxFile(world.second) as second,
    ):
        for number, mates in enumerate(zip(first, second, strict=True)):
            flags = (0x4,) if number % 7 == 3 else (0x4D, 0x8D)[: 1 + (number % 5 != 0)]
            for flag, read in zip(flags, mates, strict=False):
                record = pysam.AlignedSegment(out.header)
                record.query_name = f"read{number}"
                record.flag = flag
                record.query_sequence = read.sequence
                record.query_qualities = pysam.qualitystring_to_array(read.quality or "")
                out.write(record)
    return str(path)


@pytest.mark.parametrize("how", ["plain", "gzip", "bgzf", "mixed", "single"])
def test_fastq(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    files = [world.first, world.second]
    if how == "single":
        files = [world.both]
    elif how == "mixed":  # BGZF with a gzip member behind it, and FASTA
        joined, fasta = tmp_path / "joined.fq.gz", tmp_path / "second.fa"
        lines = Path(world.first).read_text().splitlines(keepends=True)
        half = len(lines) // 8 * 4
        (tmp_path / "head.fq").write_text("".join(lines[:half]))
        start = Path(packed(str(tmp_path / "head.fq"), tmp_path, "bgzf")).read_bytes()
        joined.write_bytes(start + gzip.compress("".join(lines[half:]).encode()))
        with pysam.FastxFile(world.second) as reads:
            fasta.write_text("".join(f">{read.name}\n{read.sequence}\n" for read in reads))
        files = [str(joined), str(fasta)]
    elif how != "plain":
        files = [packed(path, tmp_path, how) for path in files]
    check_all(world, tmp_path / "runs", "x.bam", {"reads": files}, monkeypatch)


@pytest.mark.parametrize(("mode", "name"), [("wb", "in.bam"), ("w", "in.sam"), ("wc", "in.cram")])
def test_alignment_files(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, name: str
) -> None:
    reads = bam_of(world, tmp_path / name, mode)
    killed = check_all(world, tmp_path / "runs", "x.sam", {"reads": [reads]}, monkeypatch)
    assert killed.counts["orphans_mapped"] > 50


@pytest.mark.parametrize("sort", [None, MARKED])
def test_lanes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: SortOptions | None
) -> None:
    parts = [*thirds(world.first, tmp_path), bam_of(world, tmp_path / "in.bam")]
    groups = [f"@RG\\tID:{n}\\tSM:s\\tLB:{n % 2}" for n in range(4)]
    lanes = [Lane((part,), group) for part, group in zip(parts, groups, strict=True)]
    options = {"reads": [], "lanes": lanes, "sort": sort}
    check_all(world, tmp_path / "runs", "x.bam", options, monkeypatch)


# --- outputs ---


@pytest.mark.parametrize("name", ["x.sam", "x.paf"])
def test_text(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    options = {"reads": [world.first, world.second]}
    check_all(world, tmp_path / "runs", name, options, monkeypatch)


@pytest.mark.parametrize("case", ["sorted", "marked", "sam", "cram"])
def test_sorted(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """The states are of runs in memory, and of such that lie in the temporary file."""
    options: dict[str, Any] = {"reads": [world.first, world.second], "sort": SortOptions()}
    if case == "marked":
        options["sort"] = MARKED
    if case == "cram":
        options["reference"] = str(Path(world.index_path).parent / "genome.fa")
    killed = check_all(
        world, tmp_path / "runs", f"x.{case if case in ('sam', 'cram') else 'bam'}", options,
        monkeypatch,
    )  # fmt: skip
    outputs = [json.loads((state / "state.json").read_text())["output"] for state in killed.states]
    assert outputs[0]["runs"]
    assert len(outputs[-1]["blocks"]) > 1


def test_options_of_the_insert_size(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "reads": [world.first, world.second], "insert_size": insert_size_model([300, 50], ""),
        "params": map_params({"match": 2}),
    }  # fmt: skip
    check_all(world, tmp_path / "runs", "x.bam", options, monkeypatch)


# --- what is refused ---


class Unfinished(NamedTuple):
    """A run that was killed, and how it was begun."""

    output: Path
    options: dict[str, Any]
    state: Path


@pytest.fixture
def unfinished(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unfinished:
    reads = [shutil.copy(path, tmp_path) for path in (world.first, world.second)]
    options = {"reads": reads}
    killed = kill_everywhere(world, tmp_path / "runs", "x.sam", options, monkeypatch)
    output = tmp_path / "again" / "x.sam"
    output.parent.mkdir()
    directory = resume.directory_of(str(output))
    shutil.copytree(killed.states[5], directory)
    return Unfinished(output, options, directory / "state.json")


def damage_state(of: Unfinished) -> None:
    text = of.state.read_text()
    of.state.write_text(text.replace('"n_starts": 0', '"n_starts": 1'))


def touch_reads(of: Unfinished) -> None:
    os.utime(of.options["reads"][1], (0, 0))


def cut_reads(of: Unfinished) -> None:
    os.truncate(of.options["reads"][1], 1000)


def cut_state(of: Unfinished) -> None:
    os.truncate(of.state, 300)


def empty_state(of: Unfinished) -> None:
    of.state.write_text("")


def other_state(of: Unfinished) -> None:
    of.state.write_text("[]")


def cut_records(of: Unfinished) -> None:
    os.truncate(of.state.with_name("records"), 100)


def lose_records(of: Unfinished) -> None:
    of.state.with_name("records").unlink()


def other_version(of: Unfinished) -> None:
    state = resume.read_state(of.state)
    resume.write_state(of.state, state | {"fmwave": "0.0.1"})


CHANGES = (
    (damage_state, {}, InputFormatError, "checksum differs"),
    (cut_state, {}, InputFormatError, "damaged or cut off"),
    (empty_state, {}, InputFormatError, "damaged or cut off"),
    (other_state, {}, InputFormatError, "damaged or cut off"),
    (cut_records, {}, InputFormatError, "records: has 100 bytes, and [0-9]+ were written"),
    (lose_records, {}, InputFormatError, "records: No such file"),
    (other_version, {}, UsageError, "it is of fmwave 0.0.1, and this is"),
    (touch_reads, {}, UsageError, "2.fq has changed .by its time"),
    (cut_reads, {}, UsageError, "2.fq has changed .[0-9]+ bytes, now 1000"),
    (None, {"read_group": "@RG\tID:1"}, UsageError, "read group was not given and is"),
    (None, {"params": map_params({"gap_open": 7})}, UsageError, "extend gap open was 6 and is 7"),
    (None, {"sort": SortOptions()}, UsageError, "sort was false and is true"),
    (None, {"reads": []}, UsageError, "reads was"),
    (None, {"resume": Resume("0", seconds=0)}, UsageError, "the index is another one"),
)


@pytest.mark.parametrize(("change", "options", "error", "message"), CHANGES)
def test_another_run_is_refused(
    world: World, unfinished: Unfinished, change: Callable[[Unfinished], None] | None,
    options: dict[str, Any], error: type[MapperError], message: str,
) -> None:  # fmt: skip
    if change is not None:
        change(unfinished)
    with pytest.raises(error, match=message) as raised:
        run(world, unfinished.output, unfinished.options | options)
    assert "resume_or_restart, or remove" in str(raised.value)
    assert str(unfinished.state.parent) in str(raised.value)
    assert [path.name for path in unfinished.output.parent.iterdir()] == [".x.sam.fmwave-resume"]


@pytest.mark.parametrize(
    "change", [cut_state, lose_records, cut_records, touch_reads, other_version]
)
def test_a_run_begins_anew_if_it_may(
    world: World, unfinished: Unfinished, change: Callable[[Unfinished], None],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    change(unfinished)
    anew = Resume(checksum(world.index_path), restarts=True)
    stats = run(world, unfinished.output, unfinished.options, resume=anew)
    assert "begun anew, as" in caplog.text
    assert "resumed" not in stats.summary()
    assert [path.name for path in unfinished.output.parent.iterdir()] == ["x.sam"]


def test_a_run_that_was_complete_when_it_was_killed_begins_anew(
    world: World, unfinished: Unfinished, caplog: pytest.LogCaptureFixture
) -> None:
    """Its records have their name, and the state is still there."""
    unfinished.state.with_name("records").rename(unfinished.output)
    stats = run(world, unfinished.output, unfinished.options)
    assert "killed when it was complete; begun anew" in caplog.text
    assert "resumed" not in stats.summary()
    plain = unfinished.output.with_name("plain.sam")
    run(world, plain, unfinished.options, resume=None)
    assert unfinished.output.read_bytes() == plain.read_bytes()
    assert {path.name for path in plain.parent.iterdir()} == {"x.sam", "plain.sam"}


def test_of_a_complete_run_the_state_goes_first(
    world: World, unfinished: Unfinished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start would go on from a state whose files have been removed."""
    monkeypatch.setattr(resume, "remove_directory", lambda directory: None)
    for _ in range(2):
        run(world, unfinished.output, unfinished.options)
        assert unfinished.output.exists()
        assert not unfinished.state.exists()


def test_two_processes_do_not_write_one_output(world: World, unfinished: Unfinished) -> None:
    path = unfinished.state.with_name("lock")
    with (
        resume._lock(path, "x.sam"),
        pytest.raises(OutputError, match=f"by another process .*process {os.getpid()}"),
    ):
        run(world, unfinished.output, unfinished.options)
    run(world, unfinished.output, unfinished.options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reads": ["-"]}, "standard input cannot be read again"),
        ({"reads": ["/dev/null"]}, "/dev/null cannot be read again"),
        ({"output": "-"}, "standard output or a pipe"),
        ({"output": "/dev/null"}, "standard output or a pipe"),
        ({"output_format": "cram"}, "cannot go on with an unfinished CRAM file"),
    ],
)
def test_what_cannot_be_resumed(world: World, options: dict[str, Any], message: str) -> None:
    job = MapJob(**{"reads": [world.first], "output": "x.bam", **options})
    with pytest.raises(UsageError, match=message):
        resume.check_resumable(job)


def test_a_failure_before_the_first_state_leaves_nothing(world: World, tmp_path: Path) -> None:
    broken = tmp_path / "broken.fq"
    broken.write_text("@a\nACGT\n+\nIII\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputFormatError):
        run(world, tmp_path / "out" / "x.bam", {"reads": [str(broken)]})
    assert not list((tmp_path / "out").iterdir())


def test_a_state_that_cannot_be_written_does_not_end_the_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: Path, state: dict[str, Any]) -> None:
        raise OutputError("no room")

    monkeypatch.setattr(resume, "write_state", fail)
    monkeypatch.setattr(resume, "thread_pool", inline_pool)
    run(world, tmp_path / "x.bam", {"reads": [world.first], "sort": SortOptions()})
    assert "the state of the run could not be written: no room" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.bam", "x.bam.bai"]


# --- who compresses ---


def test_a_device_compresses_a_run_that_is_resumed_only_if_told(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    open_streams = session.open_device_io

    def note(stack: ExitStack, ordinal: int | None, compress_on: str, *rest: Any) -> DeviceIO:
        asked.append(compress_on)
        return open_streams(stack, ordinal, HOST, *rest)

    monkeypatch.setattr(session, "open_device_io", note)
    for number, (compress_on, resumable) in enumerate(
        [(AUTO, False), (AUTO, True), (HOST, True), (DEVICE, True)]
    ):
        options: dict[str, Any] = {"reads": [world.first], "compress_on": compress_on}
        run(world, tmp_path / f"{number}.bam", options | ({} if resumable else {"resume": None}))
    assert asked == [AUTO, HOST, HOST, DEVICE]


def test_a_run_that_a_device_compresses_goes_on_with_the_same_nvcomp(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def described(version: str | None, compress_on: str) -> dict[str, Any]:
        found = None if version is None else SimpleNamespace(version=version)
        monkeypatch.setattr(nvcomp, "load", lambda: found)
        job = MapJob(
            reads=[world.first], output=str(tmp_path / "x.bam"), compress_on=compress_on,
            resume=Resume("0"),
        )  # fmt: skip
        return resume._description(job)

    begun = described("6.0.0", DEVICE)
    assert not list(resume._differences(begun, described("6.0.0", DEVICE)))
    assert list(resume._differences(begun, described("6.1.0", DEVICE))) == [
        'nvCOMP was "6.0.0" and is "6.1.0"'
    ]
    assert list(resume._differences(begun, described(None, DEVICE))) == [
        'nvCOMP was "6.0.0" and is "not installed"'
    ]
    assert list(resume._differences(begun, described("6.0.0", AUTO))) == [
        'compress on was "device" and is "host"'
    ]
    by_host = described("6.0.0", AUTO)
    assert not list(resume._differences(by_host, described(None, HOST)))


# --- the state's parts ---


def test_positions_are_kept_by_json() -> None:
    position = InputPosition(
        2, 17, (0, 3),
        ReaderPosition(5, (FilePosition(7, Place(3, 2)),) * 2, (0, 1), 9, b"\0\xff", b"12345678"),
    )  # fmt: skip
    assert InputPosition.from_json(json.loads(json.dumps(position.to_json()))) == position
    ended = InputPosition(2, 17, (), None)
    assert InputPosition.from_json(json.loads(json.dumps(ended.to_json()))) == ended


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = {"insert_size": None, "statistics": {"counts": {"reads": 3}, "wall": 0.1}}
    resume.write_state(path, state)
    assert resume.read_state(path) == state | {"format": resume.FORMAT}
    whole = path.read_bytes()
    for n in range(len(whole) - 1):  # the last byte is a line end
        path.write_bytes(whole[:n])
        with pytest.raises(InputFormatError, match="damaged"):
            resume.read_state(path)
    path.unlink()
    with pytest.raises(InputFormatError, match="cannot be read: No such file"):
        resume.read_state(path)
