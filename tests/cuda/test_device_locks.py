"""Locks on devices: one device for each run, released however the run ends."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mapper.cli.main import main
from mapper.cuda import devices
from mapper.cuda.devices import CudaDevice, DeviceChoice, FoundDevices, hold_device
from mapper.errors import DeviceError
from mapper.mapping.stats import RunStats

TWO = (
    CudaDevice(0, "a", (9, 0), "", "GPU-a"),
    CudaDevice(1, "old", (3, 5), "too old", "GPU-old"),
    CudaDevice(2, "b", (9, 0), "", "GPU-b"),
)
A_RUN = f"""
import sys
from pathlib import Path
from mapper.cuda import devices
from mapper.cuda.devices import CudaDevice, FoundDevices
devices.FOLDER = Path(sys.argv[1])
devices.POLL_SECONDS = 0.01
devices.find_devices = lambda: FoundDevices({TWO!r}, "")
with devices.hold_device("auto", int(sys.argv[2])) as held:
    print(held.ordinals, flush=True)
    sys.stdin.readline()
"""


class Run:
    """A process that holds a device until it is told to end, or killed."""

    def __init__(self, folder: Path, sharers: int = 1) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", A_RUN, folder, str(sharers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def held(self) -> str:
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate("\n", timeout=300)
        assert self.process.returncode == 0


@pytest.fixture
def runs(tmp_path: Path) -> Iterator:
    """Start runs; none is left behind."""
    started: list[Run] = []

    def start(sharers: int = 1) -> Run:
        started.append(Run(tmp_path / "locks", sharers))
        return started[-1]

    yield start
    for run in started:
        run.process.kill()
        run.process.communicate()


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two devices for this process, and a folder of locks of its own."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "find_devices", lambda: FoundDevices(TWO, ""))
    monkeypatch.setattr(devices, "FOLDER", tmp_path / "locks")
    monkeypatch.setattr(devices, "POLL_SECONDS", 0.01)
    return tmp_path / "locks"


@pytest.mark.medium
def test_each_run_has_a_device_and_a_killed_one_gives_it_back(runs):
    first, second = runs(), runs()
    assert {first.held(), second.held()} == {"(0,)", "(2,)"}
    third = runs()
    with contextlib.suppress(subprocess.TimeoutExpired):
        third.process.wait(2)
    assert third.process.poll() is None  # it waits

    freed = first
    freed.process.kill()
    assert third.held() in ("(0,)", "(2,)")

    fourth = runs()
    second.end()
    ordinals = {fourth.held()}
    third.end()
    fifth = runs()
    ordinals.add(fifth.held())
    assert ordinals == {"(0,)", "(2,)"}
    fourth.end()
    fifth.end()


def test_runs_that_share_are_spread_evenly(runs):
    started = [runs(sharers=2) for _ in range(4)]
    assert sorted(run.held() for run in started) == ["(0,)", "(0,)", "(2,)", "(2,)"]


@pytest.mark.parametrize("text", ["auto", "cuda:0"])
def test_runs_that_share_plan_with_their_part_of_the_memory(two_devices, monkeypatch, text):
    memory = pytest.importorskip("mapper.cuda.memory")
    monkeypatch.setattr(memory, "SIMULATED", True)
    whole = memory.total_bytes()
    with hold_device(text, 2):
        assert memory.total_bytes() == whole // 2
    assert memory.total_bytes() == whole


def test_the_message_of_one_that_waits(two_devices, caplog):
    """Within a process too: two runs are two runs."""
    told = threading.Event()
    waiting = threading.Thread(target=lambda: hold_and_tell(told))
    with caplog.at_level(logging.INFO, "mapper"), hold_device("auto"), hold_device("auto"):
        waiting.start()
        while "waiting for a device: other runs hold all 2" not in caplog.text:
            assert not told.wait(0.1)
        assert not told.wait(1)
    assert told.wait(300)
    waiting.join()


def hold_and_tell(told: threading.Event) -> None:
    with hold_device("auto"):
        told.set()


@pytest.mark.parametrize("text", ["cuda", "cuda:0", "cpu", "auto"])
def test_no_lock_where_somebody_chose(two_devices, monkeypatch, text):
    """The user by name, or a scheduler by CUDA_VISIBLE_DEVICES."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    if text != "auto":
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    expected = {"cuda": (0, 2), "cuda:0": (0,), "cpu": (), "auto": (0, 2)}[text]
    with hold_device(text) as held:
        assert held == DeviceChoice("cpu" if text == "cpu" else "cuda", expected)
    assert not two_devices.exists()


def test_the_device_is_told(two_devices, caplog):
    with caplog.at_level(logging.INFO, "mapper"), hold_device("auto"):
        assert "computing on cuda:0 (a)" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "mapper"), hold_device("cuda:any"):
        assert caplog.messages == ["computing on cuda:0 (a)"]
    with caplog.at_level(logging.INFO, "mapper"), hold_device("cuda"):
        assert "computing on cuda:0 (a), cuda:2 (b)" in caplog.text


def test_no_device_no_lock(two_devices, monkeypatch):
    monkeypatch.setattr(devices, "find_devices", lambda: FoundDevices((), "no driver"))
    with hold_device("auto") as held:
        assert held.backend == "cpu"
    assert not two_devices.exists()


def test_files_are_open_to_other_users(two_devices):
    mask = os.umask(0o077)
    try:
        with hold_device("auto"):
            pass
    finally:
        os.umask(mask)
    assert two_devices.stat().st_mode & 0o7777 == 0o1777
    (file,) = two_devices.iterdir()
    assert file.name == "GPU-a.0"
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("in_the_way", ["file", "link"])
def test_a_folder_that_is_none_is_an_error(two_devices, tmp_path, in_the_way):
    if in_the_way == "file":
        two_devices.write_text("")
    else:
        two_devices.symlink_to(tmp_path)
    message = r"no device can be locked in .*device='cuda:0'"
    with pytest.raises(DeviceError, match=message), hold_device("auto"):
        pass


def test_fmwave_map_holds_its_device_while_it_maps(two_devices, monkeypatch, world, tmp_path):
    """The pipeline is replaced: what matters is which device it is given, and for how long."""
    given = []

    def map_reads(index, job, session):
        given.append(job.device)
        with devices.one_of(["GPU-a", "GPU-b"]) as free:
            given.append(free)
        return RunStats()

    monkeypatch.setattr("mapper.mapping.pipeline.map_reads", map_reads)
    argv = ["map", world.index_path, world.first, "-o", str(tmp_path / "x.bam"), "--quiet"]
    for _ in range(2):
        assert main(argv) == 0
    assert main([*argv, "--device", "cuda"]) == 0
    taken = DeviceChoice("cuda", (0,))
    assert given == [taken, 1, taken, 1, DeviceChoice("cuda", (0, 2)), 0]
