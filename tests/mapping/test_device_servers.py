"""Several devices, each with a process: one device that is named twice, against the CPU."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mapper.cli.main import main
from mapper.cuda.devices import CUDA, DeviceChoice
from mapper.errors import IndexFormatError, ResourceError
from mapper.mapping import device_servers
from mapper.mapping.device_io import HOST
from mapper.mapping.job import MapJob
from mapper.mapping.pipeline import map_reads
from mapper.mapping.session import Session
from mapper.mapping.stages import LeftToHost
from mapper.pair.insert_size import model_from
from mapper.sorting.options import MarkOptions, SortOptions
from tests.helpers.mapping_runs import DATA, build_index, map_to
from tests.helpers.simulate import Read, write_fastq
from tests.mapping.test_served_deflater import check_compression

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.medium,
    # Hashes, where the simulator runs them in Python.
    pytest.mark.filterwarnings("ignore:.*overflow encountered"),
]
TWO = DeviceChoice(CUDA, (0, 0))
N_READS = 16
SORTED = SortOptions(None, MarkOptions())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("phix") / "phix.fmw"


@pytest.fixture(scope="module")
def phix(folder: Path):
    return build_index(DATA / "phix174.fa", folder)


@pytest.fixture
def pairs(tmp_path: Path) -> list[str]:
    paths = []
    for mate in (1, 2):
        lines = (DATA / f"phix_R{mate}.fq").read_text().splitlines(keepends=True)
        paths.append(str(tmp_path / f"{mate}.fq"))
        Path(paths[-1]).write_text("".join(lines[: 4 * N_READS // 2]))
    return paths


@pytest.fixture
def session(device, phix, folder):
    """A session with two processes, which end with it."""
    with Session(phix, path=str(folder)) as session:
        session._stages_on(TWO, 2)
        processes = [server._process for server in session._servers._group.servers]
        yield session
    assert len(processes) == 2
    assert all(process.returncode is not None for process in processes)


def map_in(session: Session, output: Path, *reads: str, **options: Any):
    job = MapJob(list(reads), str(output), output.suffix[1:], device=TWO, threads=2, **options)
    return map_reads(session.index, job, session)


@pytest.mark.parametrize("sort", [None, SORTED], ids=["unsorted", "sorted"])
def test_the_file_is_that_of_the_cpu(device, phix, pairs, tmp_path, monkeypatch, sort) -> None:
    """The index is one of this process here, which has no path to name."""
    map_fastq, texts = device_servers.DeviceServers.map_fastq, list[bool]()

    def noting(*arguments: Any) -> Any:
        found = map_fastq(*arguments)
        texts.append(not isinstance(found, LeftToHost))
        return found

    monkeypatch.setattr(device_servers.DeviceServers, "map_fastq", noting)
    model = None if sort is None else model_from(300.0, 50.0, 100, 500, 1000)
    options = {"sort": sort, "insert_size": model}
    map_to(phix, tmp_path / "cpu.bam", *pairs, **options)
    stats = map_to(
        phix, tmp_path / "two.bam", *pairs, **options, device=TWO, compress_on=HOST, threads=2,
        batch_bases=700,
    )  # fmt: skip
    assert (tmp_path / "two.bam").read_bytes() == (tmp_path / "cpu.bam").read_bytes()
    # Without a model the insert size is estimated of all pairs, which the host parses.
    assert all(texts)
    assert bool(texts) == (model is not None)
    assert stats.counts["reads"] == N_READS
    assert stats.stage_seconds["seed"] > 0  # of the processes


@pytest.mark.slow_simulated
def test_runs_of_a_session_take_the_same_processes(session, phix, pairs, tmp_path) -> None:
    """Also for long reads, and for reads with a read group."""
    name = phix.contigs.names[0]
    long_reads = [
        Read(f"r{i}", phix.fetch(name, 900 * i, 900 * i + 1500), "I" * 1500) for i in range(3)
    ]
    singles = write_fastq(tmp_path / "long.fq", long_reads)
    processes = [server._process.pid for server in session._servers._group.servers]
    for i, (reads, options) in enumerate(
        [(pairs, {"read_group": r"@RG\tID:a\tSM:s"}), ([singles], {}), (pairs, {})]
    ):
        map_to(phix, tmp_path / f"{i}.cpu.sam", *reads, **options)
        map_in(session, tmp_path / f"{i}.sam", *reads, **options)
        assert (tmp_path / f"{i}.sam").read_text() == (tmp_path / f"{i}.cpu.sam").read_text()
    assert [server._process.pid for server in session._servers._group.servers] == processes


def test_the_command_starts_the_processes_early(device, phix, folder, pairs, tmp_path) -> None:
    """Also where it ends before a session could take them."""
    assert main(["map", str(tmp_path / "none.fmw"), *pairs, "--device", "cuda:0,0"]) == 1
    assert device_servers._STARTED == {}
    for name in ("cpu", "cuda:0,0"):
        options = ["--device", name, "-t", "2", "--quiet"]
        assert (
            main(["map", str(folder), *pairs, "-o", str(tmp_path / f"{name}.sam"), *options]) == 0
        )
    cpu, cuda = (
        [line for line in (tmp_path / f"{name}.sam").read_text().splitlines() if line[:3] != "@PG"]
        for name in ("cpu", "cuda:0,0")
    )
    assert cuda == cpu
    assert device_servers._STARTED == {}


def test_a_process_that_ends_is_an_error_and_leaves_nothing(session, pairs, tmp_path) -> None:
    os.kill(session._servers._group.servers[1]._process.pid, signal.SIGKILL)
    with pytest.raises(ResourceError, match="the process of cuda:0 has ended by signal 9"):
        map_in(session, tmp_path / "x.sam", *pairs)
    assert not (tmp_path / "x.sam").exists()


def test_an_index_that_a_process_cannot_open_is_an_error(device, phix, tmp_path) -> None:
    with (
        Session(phix, path=str(tmp_path / "other.fmw")) as session,
        pytest.raises(IndexFormatError, match=r"other\.fmw"),
    ):
        session._stages_on(TWO, 2)


def test_blocks_are_compressed_by_the_processes(session) -> None:
    from mapper.cuda import nvcomp
    from mapper.cuda.api import SIMULATED

    if SIMULATED or nvcomp.load() is None:
        pytest.skip("needs a CUDA device and nvCOMP")
    with session._servers.deflater(1) as deflater:
        check_compression(deflater, session._servers._group)
