"""Helper processes of a first run: they compile what it calls, and end with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

from mapper.cli.compile import HELPER_COMMAND
from mapper.jit.accelerate import announce_compiling
from mapper.mapping import warm_up
from mapper.mapping.warm_up import FINISHING, READING, Helpers

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs numba's JIT")

COMPILE_AND_MAP = """
import gc, sys
from mapper.mapping import warm_up
from mapper.jit.accelerate import grown
from mapper.jit.cache import Driver
from mapper.cli.main import main

warm_up.compile_finishing()
warm_up.compile_reading()
# Drivers but `grown` are called by Python only.
called = [f for f in gc.get_objects() if isinstance(f, Driver) and f is not grown]
called = {f: list(f.overloads) for f in called if f.overloads and f.__module__[:6] == "mapper"}
assert main(sys.argv[1:]) == 0
for function, signatures in called.items():
    new = [signature for signature in function.overloads if signature not in signatures]
    print(function.__module__, function.__name__, len(new), new)
"""

ENDLESS = """
import time
from mapper.cli.compile import help_compiling
from mapper.mapping import warm_up
warm_up.compile_finishing = lambda: time.sleep(10_000)
help_compiling(["finishing"])
"""

LEAVE_BEHIND = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_helpers_compile_what_the_run_calls(world, tmp_path):
    """With the same signatures."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_AND_MAP, "map", world.index_path, world.first,
         world.second, "-o", str(tmp_path / "out.bam"), "-t", "1", "--device", "cpu", "--quiet"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) > 10
    assert {"_place", "_make_records", "_propose", "_fill_bam", "fill_batch"} <= {
        line.split()[1] for line in lines
    }
    assert [line for line in lines if line.split()[2] != "0"] == []


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Give this process and its children an empty cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm_up, "is_compiled", lambda module: False)


def test_compiling_by_helpers_is_announced(fresh, caplog):
    announce_compiling.cache_clear()
    with caplog.at_level("INFO", "mapper"), Helpers(HELPER_COMMAND, [READING], 0):
        assert caplog.messages == []
    with caplog.at_level("INFO", "mapper"), Helpers(HELPER_COMMAND, [READING], 1):
        (message,) = caplog.messages
    assert message.startswith("compiling code")


def test_there_are_no_more_processes_than_parts(fresh):
    for most, n in ((0, 0), (1, 1), (2, 2), (7, 2)):
        with Helpers(HELPER_COMMAND, [FINISHING, READING], most) as helpers:
            assert len(helpers._processes) == n
            assert bool(helpers) == (n > 0)


def test_there_are_none_where_all_is_compiled(monkeypatch):
    monkeypatch.setattr(warm_up, "is_compiled", lambda module: True)
    with Helpers(HELPER_COMMAND, [FINISHING, READING], 7) as helpers:
        assert not helpers


def test_a_run_goes_on_if_no_process_can_be_started(fresh):
    with Helpers(["/nowhere/python"], [FINISHING, READING], 7) as helpers:
        assert not helpers


def test_a_helper_that_was_killed_is_not_waited_for(fresh):
    with Helpers(HELPER_COMMAND, [FINISHING], 1) as helpers:
        helpers._processes[0].kill()
        helpers.wait()
        assert not helpers


def test_helpers_end_with_what_they_are_for(fresh):
    with (
        pytest.raises(RuntimeError, match="gives up"),
        Helpers(HELPER_COMMAND, [FINISHING], 1) as helpers,
    ):
        process = helpers._processes[0]
        raise RuntimeError("the run gives up")
    assert process.returncode == -signal.SIGKILL


def test_a_helper_ends_with_the_process_that_started_it():
    parent = subprocess.Popen(
        [sys.executable, "-c", LEAVE_BEHIND, ENDLESS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _runs(pid)
        parent.kill()
    while _runs(pid):
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
