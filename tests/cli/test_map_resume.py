"""``fmwave map --resume``: killed and started again until it ends, it gives the same bytes.

``tests/mapping/test_resume.py`` goes on from every state of a run; here processes are killed while
they map, spill and write the sorted file.
"""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mapper.cli.main import main
from tests.cli.test_map_stops import HEADER_BYTES, ROOT, last_error, start, wait_until
from tests.cli.test_sort_stops import Inputs, inputs
from tests.helpers.mapping_runs import World

pytestmark = pytest.mark.medium

__all__ = ["inputs"]  # a fixture

SLOW = ("--compression", "9", "--batch-bases", "20000")
SPILLING = ("--sort", "--markdup", "--memory", "540M")
COPIES = 6  # of the reads: their records do not fit in that
STATE = ".x.bam.fmwave-resume"


def state_of(directory: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((directory / STATE / "state.json").read_text()))
    except FileNotFoundError:
        return None


def has_state(directory: Path) -> bool:
    """Return True when a run can be gone on with."""
    return state_of(directory) is not None


def has_spilled(directory: Path) -> bool:
    """Return True when some of the records lie in the temporary file."""
    state = state_of(directory)
    return state is not None and bool(state["output"]["blocks"])


def is_merging(directory: Path) -> bool:
    """Return True when sorted records are written."""
    path = directory / STATE / "records"
    return path.exists() and path.stat().st_size > HEADER_BYTES


class Case(NamedTuple):
    """How a run is killed, and how it is given its reads."""

    number: signal.Signals
    reached: Callable[[Path], bool]
    options: tuple[str, ...] = ()
    is_gzip: bool = False


CASES = {
    "map-kill": Case(signal.SIGKILL, has_state),
    "map-term": Case(signal.SIGTERM, has_state, is_gzip=True),
    "map-usr1": Case(signal.SIGUSR1, has_state, SPILLING),
    "spill-kill": Case(signal.SIGKILL, has_spilled, SPILLING),
    "spill-term": Case(signal.SIGTERM, has_spilled, (*SPILLING, "--tmp-dir")),
    "merge-kill": Case(signal.SIGKILL, is_merging, SPILLING),
    "merge-term": Case(signal.SIGTERM, is_merging, (*SPILLING, "--tmp-dir")),
}


@pytest.mark.parametrize("name", CASES)
def test_killed_and_started_again(
    world: World,
    inputs: Inputs,
    tmp_path: Path,
    name: str,
) -> None:
    case = CASES[name]
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    out.mkdir()
    scratch.mkdir()
    reads = inputs.reads
    if case.is_gzip:
        reads = tmp_path / "reads.fq.gz"
        reads.write_bytes(gzip.compress(inputs.reads.read_bytes(), 1))
    if case.reached in (has_spilled, is_merging):  # or writing ends before it is seen
        reads = tmp_path / "reads.fq"
        reads.write_bytes(inputs.reads.read_bytes() * COPIES)
    options = [*case.options, *([str(scratch)] if case.options[-1:] == ("--tmp-dir",) else [])]
    words = [world.index_path, str(reads), "-o", str(out / "x.bam"), *SLOW, *options]
    words += ["--resume", "--resume-seconds", "0"]
    assert main(["map", *words, "-t", "2"]) == 0
    undisturbed = {path.name: path.read_bytes() for path in out.iterdir()}
    for path in out.iterdir():
        path.unlink()
    with start(*words, "-t", "2") as process:
        wait_until(process, lambda: case.reached(out))
        process.send_signal(case.number)
        status = process.wait()
        assert process.stderr is not None
        stderr = process.stderr.read()
    if case.number == signal.SIGKILL:
        assert status == -9
    else:
        assert status == 128 + case.number
        last_error(stderr)
    assert [path.name for path in out.iterdir()] == [STATE]
    process = start(*words, "-t", "1")
    _, stderr = process.communicate()
    assert process.returncode == 0
    assert b"going on after" in stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == undisturbed
    assert not list(scratch.iterdir())


def test_a_signal_has_the_state_written(
    world: World,
    inputs: Inputs,
    tmp_path: Path,
) -> None:
    """The first state comes after 30 seconds, or with the signal."""
    out = tmp_path / "x.bam"
    words = [world.index_path, str(inputs.reads), "-o", str(out), *SLOW, "-t", "1", "--resume"]
    with start(*words) as process:
        wait_until(process, lambda: is_merging(tmp_path))
        assert not has_state(tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    assert has_state(tmp_path)
    assert main(["map", *words]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.bam"]


def test_what_is_refused(
    world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    sheet = tmp_path / "sheet.tsv"
    sheet.write_text(f"output\treads1\n{tmp_path}/x.bam\t{world.first}\n")
    for words, message in (
        (["--batch", str(sheet)], "--resume and --batch"),
        (["-", "-o", str(tmp_path / "x.bam")], "--resume: standard input cannot be read again"),
        ([world.first], "--resume: what was written to standard output"),
    ):
        assert main(["map", world.index_path, *words, "--resume"]) == 2
        assert message in capfd.readouterr().err
    reads = subprocess.Popen(["cat", world.first], stdout=subprocess.PIPE)
    assert reads.stdout is not None
    pipe = f"/dev/fd/{reads.stdout.fileno()}"
    words = ["map", world.index_path, pipe, "-o", str(tmp_path / "x.bam"), "--resume"]
    command = [sys.executable, "-m", "mapper.cli.main", *words]
    done = subprocess.run(
        command, pass_fds=[reads.stdout.fileno()], cwd=ROOT, capture_output=True, check=False
    )
    reads.communicate()
    assert done.returncode == 2
    assert f"{pipe} cannot be read again; name a file" in last_error(done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.tsv"]
