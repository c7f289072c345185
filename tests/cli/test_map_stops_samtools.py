"""``fmwave map`` stopped while its samtools processes run: no process and no file remains."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pysam
import pytest

from tests.cli.test_map_stops import endless_input, last_error, start, wait_until
from tests.helpers.mapping_runs import World


def children_of(pid: int) -> list[int]:
    """Return the processes that `pid` has started and that have not been waited for."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.medium
def test_signals_end_samtools_too(world: World, tmp_path: Path) -> None:
    """Endless SAM in, through samtools; CRAM out, through another samtools."""
    reference = tmp_path / "genome.fa"
    reference.write_bytes((Path(world.index_path).parent / "genome.fa").read_bytes())
    pysam.faidx(str(reference))
    lines = [
        f"{read.name}{i}\t4\t*\t0\t0\t*\t*\t0\t0\t{read.letters}\t{read.quals}\n"
        for i, read in enumerate(world.reads)
    ]
    header = "@HD\tVN:1.6\n" + "".join(lines[:10])
    runs = []
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)):
        directory = tmp_path / number.name
        directory.mkdir()
        (directory / "x.cram").write_text("old")
        process = start(
            world.index_path, "-", "-o", str(directory / "x.cram"), "--batch-bases", "20000",
            "-t", "1", "--reference", str(reference), stdin=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(header.encode())
        runs.append((number, status, directory, process))
    for number, status, directory, process in runs:
        with process, endless_input(process, "".join(lines).encode()):
            wait_until(
                process,
                lambda d=directory: sum(p.stat().st_size for p in d.glob(".*.tmp")) > 20_000,
            )
            children = children_of(process.pid)
            assert len(children) == 2
            process.send_signal(number)
            assert process.wait() == status
            assert process.stderr is not None
            stderr = process.stderr.read()
        left = {path.name for path in directory.iterdir()} - {"x.cram"}
        assert (directory / "x.cram").read_text() == "old"
        if number == signal.SIGKILL:
            assert left == {f".x.cram.fmwave-{process.pid}.tmp"}
        else:
            assert left == set()
            assert "terminated" in last_error(stderr) or "interrupted" in last_error(stderr)
        # After kill -9 they end by themselves, when they find their pipes closed.
        while any(map(is_running, children)):
            time.sleep(0.01)
