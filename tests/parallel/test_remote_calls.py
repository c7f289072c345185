"""Calls of another process: results, errors, memory, and the end of either process."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import InputFormatError, ResourceError
from mapper.parallel import remote_calls
from mapper.parallel.remote_calls import Servers
from mapper.parallel.signals import STOPPING

ROOT = Path(__file__).parents[2]
MODULE = "tests.helpers.called_server"
LARGE = 1_000_000


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def two(paths):
    servers = Servers(MODULE, [([], "the first"), ([], "the second")])
    yield servers
    servers.close()


def test_results_of_many_threads(two) -> None:
    def add(i: int) -> bool:
        a, b = np.full(LARGE // (1 + i % 3), i), np.arange(LARGE // (1 + i % 3))
        return np.array_equal(two.servers[i % 2].call("add", a, b), a + b)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(add, range(12)))


def test_memory_is_shared_in_all_directions(two) -> None:
    first, second = two.servers
    own = two.memory.copies.empty(LARGE)
    own[:] = 1
    first.call("change", own)
    second.call("change", own[: LARGE // 2])
    assert own[[0, -1]].tolist() == [3, 2]
    theirs = first.call("shared", LARGE)
    assert theirs[250:253].tolist() == [250, 0, 1]
    theirs[0] = 99
    place = two.memory.place_of(theirs)
    assert place.key.owner == 1
    assert first.call("place", theirs) == place
    assert second.call("place", theirs[10:]) == place._replace(start=10, n_bytes=LARGE - 10)
    second.call("change", theirs)
    assert theirs[0] == 100
    given = second.call("give", [theirs, own])
    assert two.memory.place_of(given[0]) == place


def test_a_result_is_kept_until_its_arrays_are_gone(two) -> None:
    server = two.servers[0]
    found = server.call("shared", LARGE)
    part = found[LARGE // 2 :]
    del found
    gc.collect()
    kept = server.call("n_kept")
    del part
    gc.collect()
    assert server.call("n_kept") == kept - 1


def test_memory_that_a_server_frees_goes_here_too(two) -> None:
    server, other = two.servers
    found = server.call("shared", LARGE)
    assert len(two.memory._foreign) == 1
    del found
    gc.collect()
    server.call("n_kept")  # takes the word that it is not used
    server.call("clear")
    for _ in range(100):
        if not two.memory._foreign:
            break
        time.sleep(0.05)
    assert two.memory._foreign == {}
    assert other.call("give", 1) == 1


def test_errors_come_back(two, caplog) -> None:
    server = two.servers[0]
    with pytest.raises(InputFormatError, match=r"x\.fq: no"):
        server.call("refuse", "x.fq: no")
    with pytest.raises(ResourceError, match="unpicklable"):
        server.call("unpicklable")
    with pytest.raises(TypeError, match="missing 1 required"):
        server.call("add", 1)
    assert server.call("give", "on") == "on"


def test_a_message_of_both_is_logged_once(paths, caplog, monkeypatch) -> None:
    with caplog.at_level(logging.WARNING):
        for seconds in (60, 0):
            monkeypatch.setattr(remote_calls, "SAME_SECONDS", seconds)
            servers = Servers(
                MODULE, [(["of both"], "a"), (["of both", "of one", "twice", "twice"], "b")]
            )
            assert [server.call("give", 1) for server in servers.servers] == [1, 1]
            servers.close()
    said = [record.getMessage() for record in caplog.records]
    assert sorted(said[:4]) == ["of both", "of one", "twice", "twice"]
    assert sorted(said[4:]) == ["of both", "of both", "of one", "twice", "twice"]


def test_what_cannot_be_taken_ends_the_server(two, monkeypatch) -> None:
    server, other = two.servers
    with monkeypatch.context() as patch:
        patch.setattr(two.memory, "attach", None)
        with pytest.raises(ResourceError, match=r"what the process of the first said .*TypeError"):
            server.call("shared", LARGE)
    assert server._process.wait(10) == -signal.SIGKILL
    assert other.call("give", 1) == 1


@pytest.mark.parametrize("fails", ["mmap", "descriptor"])
def test_a_segment_that_cannot_be_had_ends_the_server(two, monkeypatch, fails: str) -> None:
    """The process may map no more memory, or open no more files."""
    server, other = two.servers
    if fails == "mmap":

        def full(*_):
            raise OSError(12, "Cannot allocate memory")

        monkeypatch.setattr(two.memory, "attach", full)
        said = "Cannot allocate memory"
    else:
        received = socket.recv_fds

        def without(*arguments):
            data, descriptors, *rest = received(*arguments)
            for descriptor in descriptors:
                os.close(descriptor)
            return data, [], *rest

        monkeypatch.setattr(socket, "recv_fds", without)
        server.call("give", 1)  # the reader was waiting in the other
        said = "too many open files"
    with pytest.raises(ResourceError, match=f"what the process of the first said .*{said}"):
        server.call("shared", LARGE)
    with pytest.raises(ResourceError, match="could not be taken"):
        server.call("give", 1)
    assert other.call("give", 1) == 1


def test_nobody_waits_for_a_reader(two) -> None:
    """Large messages both ways, beside word of segments, do not lock each other."""
    text = "x" * 2_000_000

    def call(i: int) -> bool:
        server = two.servers[i % 2]
        ok = server.call("give", text) == text
        two.memory.allocate(LARGE)
        server.call("shared", LARGE + i)
        server.call("clear")
        two.memory.forget_freed()
        return ok

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(64)))


@pytest.mark.parametrize("number", STOPPING)
def test_servers_leave_signals_to_their_caller(two, number: int) -> None:
    server = two.servers[0]
    os.kill(server._process.pid, number)
    assert server.call("give", 1) == 1


def test_servers_end_with_a_caller_that_is_killed(paths, tmp_path) -> None:
    text = (
        f"import os, signal; from mapper.parallel.remote_calls import Servers\n"
        f"server = Servers({MODULE!r}, [([], 'a')]).servers[0]\n"
        "assert server.call('give', 1) == 1\n"
        "server.begin('wait', 100.0)\n"
        "print(server._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, check=False)
    assert killed.returncode == -signal.SIGKILL
    pid = int(killed.stdout)
    for _ in range(300):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):  # it is gone, maybe while its file was read
            return
        time.sleep(0.1)
    pytest.fail("the server goes on")


def test_no_memory_is_an_error_of_the_caller(two, monkeypatch) -> None:
    def full(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("os.memfd_create", full)
    with pytest.raises(ResourceError, match=r"no memory to share with the first: .*Cannot alloc"):
        two.servers[0].call("give", np.zeros(LARGE))


@pytest.mark.parametrize("how", ["status", "signal"])
def test_calls_of_a_server_that_ends_fail(two, how: str) -> None:
    server, other = two.servers
    if how == "status":
        with pytest.raises(ResourceError, match=r"the first has ended with exit status 3"):
            server.call("end", 3)
    else:
        os.kill(server._process.pid, signal.SIGKILL)
        with pytest.raises(ResourceError, match="the first has ended by signal 9"):
            while True:
                server.call("give", 1)
    with pytest.raises(ResourceError, match="the first has ended"):
        server.call("give", 1)
    two.memory.allocate(LARGE)  # nobody fails for telling it
    assert other.call("give", 1) == 1


def test_closing_ends_servers_and_calls_under_way(paths) -> None:
    servers = Servers(MODULE, [([], "a")])
    (server,) = servers.servers
    assert server.call("give", 1) == 1
    waiting = server.begin("wait", 1.0)
    servers.close()
    with pytest.raises(ResourceError, match="has been ended"):
        waiting.result(0)
    assert server._process.returncode == 0
    with pytest.raises(ResourceError, match="has been ended"):
        server.call("give", 1)
    servers.close()  # a second time


def test_a_process_that_cannot_be_started(paths, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/python")
    with pytest.raises(ResourceError, match="no process can be started for a"):
        Servers(MODULE, [([], "a")])
