"""Sorting stopped, or without room, in each of its phases: nothing under a final name."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mapper.cli.main import main
from mapper.errors import OutputError
from mapper.io import output_file
from mapper.sorting.options import MarkOptions, SortOptions
from tests.cli.test_map_stops import (
    HEADER_BYTES,
    last_error,
    spilled_bytes,
    start,
    wait_until,
    written_bytes,
)
from tests.helpers.mapping_runs import World, lines_of, map_to

COPIES = 40  # of the world's reads: their records take seconds to compress by zlib's level 9


class Inputs(NamedTuple):
    """Many reads, and their records."""

    reads: Path
    plain: Path
    sorted: Path


@pytest.fixture(scope="module")
def inputs(world: World, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Map them once, which compiles everything too."""
    folder = tmp_path_factory.mktemp("inputs")
    found = Inputs(folder / "reads.fq", folder / "plain.bam", folder / "sorted.bam")
    rng = np.random.default_rng(1)
    lines = Path(world.both).read_text().splitlines()
    with found.reads.open("w") as out:
        for _ in range(COPIES):  # with other qualities, or the copies would compress to nothing
            for at in range(0, len(lines), 4):
                name, bases = lines[at], lines[at + 1]
                quals = rng.integers(35, 75, len(bases), np.uint8).tobytes().decode()
                out.write(f"{name}\n{bases}\n+\n{quals}\n")
    map_to(world.index, found.plain, str(found.reads), threads=2)
    map_to(
        world.index, found.sorted, str(found.reads), threads=2,
        sort=SortOptions(duplicates=MarkOptions()),
    )  # fmt: skip
    return found


@pytest.mark.medium
@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_sort_that_spills_gives_the_same_records(inputs: Inputs, tmp_path: Path, threads) -> None:
    """Twenty times and more, while the writing of what was spilled before goes on."""
    out = tmp_path / "x.bam"
    words = [
        "merge",
        str(inputs.plain),
        "-o",
        str(out),
        "--markdup",
        "--memory",
        "2M",
        "-t",
        threads,
    ]
    assert main(words) == 0
    assert lines_of(out) == lines_of(inputs.sorted)


SLOW = ("--compression", "9", "-t", "1")


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_while_the_sorted_file_is_written(
    world: World, inputs: Inputs, tmp_path: Path, number: signal.Signals
) -> None:
    """Of map, of merge with sorted parts, and of merge with parts that it sorts."""
    runs = []
    for name, command, words in (
        ("map", "map", (world.index_path, str(inputs.reads), "--sort", "--markdup")),
        ("merge", "merge", (str(inputs.sorted), "--markdup")),
        ("sort", "merge", (str(inputs.plain), "--markdup")),
    ):
        folder, scratch = tmp_path / name, tmp_path / f"{name}-tmp"
        folder.mkdir()
        scratch.mkdir()
        for old in ("x.bam", "x.bam.bai"):
            (folder / old).write_text("old")
        options = ("-o", str(folder / "x.bam"), "--tmp-dir", str(scratch), *SLOW)
        runs.append((folder, scratch, start(*words, *options, command=command)))
    waiting = list(runs)
    while waiting:  # each is stopped as soon as it writes: the others may be ahead
        for run in list(waiting):
            folder, _, process = run
            assert process.poll() is None, f"{folder.name} has ended before it was stopped"
            if written_bytes(folder) > HEADER_BYTES:
                process.send_signal(number)
                waiting.remove(run)
        time.sleep(0.005)
    for folder, scratch, process in runs:
        with process:
            status = process.wait()
            assert process.stderr is not None
            stderr = process.stderr.read()
        assert (folder / "x.bam").read_text() == (folder / "x.bam.bai").read_text() == "old"
        left = {path.name for path in folder.iterdir()} - {"x.bam", "x.bam.bai"}
        assert not list(scratch.iterdir())
        if number == signal.SIGKILL:
            assert status == -9
            assert left == {f".x.bam{end}.fmwave-{process.pid}.tmp" for end in ("", ".bai")}
        else:
            assert status == 143
            assert last_error(stderr) == "fmwave: error: terminated"
            assert not left


@pytest.mark.medium
def test_signals_while_merge_sorts(inputs: Inputs, tmp_path: Path) -> None:
    """The temporary file has no name, so that nothing is left of it even by kill -9."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        folder = tmp_path / number.name
        folder.mkdir()
        process = start(
            str(inputs.plain), "-o", str(folder / "x.bam"), "--memory", "1M", "--tmp-dir",
            str(folder), *SLOW, command="merge",
        )  # fmt: skip
        with process:
            wait_until(process, lambda p=process, d=folder: spilled_bytes(p, d) > 0)
            process.send_signal(number)
            assert process.wait() == (143 if number == signal.SIGTERM else -9)
        assert not [p for p in folder.iterdir() if not p.name.startswith(".x.bam")]
        if number == signal.SIGTERM:
            assert not list(folder.iterdir())


@pytest.mark.medium
def test_no_room(world: World, inputs: Inputs, tmp_path: Path) -> None:
    """For the temporary file, and for the sorted file, of merge; for the temporary file, of map."""
    merge, limit = {"command": "merge"}, 300_000
    spill = "writing the temporary file of the sort failed after .* GB: File too large; free some"
    runs = []
    for name, words, options, message in (
        ("spill", (str(inputs.plain), "--memory", "1M"), merge, spill),
        ("write", (str(inputs.sorted),), merge, "x.bam: writing failed: File too large"),
        ("sorted", (str(inputs.plain),), merge, "x.bam: writing failed: File too large"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        process = start(*words, "-o", str(folder / "x.bam"), "-t", "1", limit=limit, **options)
        runs.append((folder, process, message))
    for folder, process, message in runs:
        _, stderr = process.communicate()
        assert process.returncode == OutputError.exit_status
        assert re.search(message, last_error(stderr))
        assert not list(folder.iterdir())


@pytest.mark.parametrize("error", [OutputError("no room"), KeyboardInterrupt()])
def test_an_index_that_cannot_be_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Neither the new records nor their index get their names."""
    for old in ("x.bam", "x.bam.bai"):
        (tmp_path / old).write_text("old")
    write = output_file.OutputFile.write

    def fail_for_index(self: output_file.OutputFile, data: bytes) -> None:
        if self.name.endswith(".bai"):
            raise error
        write(self, data)

    monkeypatch.setattr(output_file.OutputFile, "write", fail_for_index)
    with pytest.raises(type(error)):
        map_to(world.index, tmp_path / "x.bam", world.first, sort=SortOptions())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.bam": "old", "x.bam.bai": "old",
    }  # fmt: skip
