"""Calls of another process: results, errors, memory, and the end of either process."""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import InputFormatError, ResourceError
from mapper.parallel.remote_calls import Servers

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
    server.call("place", np.zeros(1))  # takes note of what is gone
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


def test_messages_are_logged_once(paths, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        servers = Servers(
            MODULE, [(["of both"], "a"), (["of both", "of one", "twice", "twice"], "b")]
        )
        assert [server.call("give", 1) for server in servers.servers] == [1, 1]
        servers.close()
    said = sorted(record.getMessage() for record in caplog.records)
    assert said == ["of both", "of one", "twice", "twice"]


def test_what_is_not_understood_ends_the_server(two, monkeypatch) -> None:
    server, other = two.servers
    with monkeypatch.context() as patch:
        patch.setattr(two.memory, "attach", None)
        with pytest.raises(ResourceError, match=r"the first said .*TypeError"):
            server.call("shared", LARGE)
    assert server._process.wait(10) == -signal.SIGKILL
    assert other.call("give", 1) == 1


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


def test_servers_end_with_their_caller(paths) -> None:
    """At the end of the connection, as when the process is killed; calls under way fail."""
    servers = Servers(MODULE, [([], "a")])
    (server,) = servers.servers
    assert server.call("give", 1) == 1
    servers.close()
    assert server._process.returncode == 0
    with pytest.raises(ResourceError, match="has been ended"):
        server.call("give", 1)
    servers.close()  # a second time


def test_a_process_that_cannot_be_started(paths, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/python")
    with pytest.raises(ResourceError, match="no process can be started for a"):
        Servers(MODULE, [([], "a")])
