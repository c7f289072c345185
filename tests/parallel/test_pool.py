"""The pool with priorities, tasks that wait for tasks, and kept and dedicated threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from mapper.errors import ResourceError
from mapper.parallel.pool import (
    MAP,
    READ,
    WRITE,
    PriorityPool,
    ReclaimableTask,
    call_in_daemon,
    dedicated_thread,
    fork_join,
    kept_pool,
    leased_pool,
    ordered_calls,
)


def test_the_most_urgent_come_first_then_the_oldest() -> None:
    workers = PriorityPool(1)
    gate = threading.Event()
    started = workers.submit(READ, gate.wait)
    order: list[str] = []
    futures = [
        workers.submit(priority, partial(order.append, name))
        for priority, name in ((MAP, "m1"), (WRITE, "w1"), (MAP, "m2"), (READ, "r1"), (WRITE, "w2"))
    ]
    gate.set()
    for future in [started, *futures]:
        future.result()
    assert order == ["r1", "w1", "w2", "m1", "m2"]
    workers.shutdown()


def test_results_and_errors_reach_who_asked() -> None:
    workers = PriorityPool(2)
    executor = workers.at(MAP)
    assert executor.submit(pow, 2, exp=10).result() == 1024
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 // 0).result()
    workers.shutdown()
    with pytest.raises(RuntimeError, match="dismissed"):
        executor.submit(pow, 2, 2)


def test_shutdown_cancels_what_waits_and_ends_the_threads() -> None:
    workers = PriorityPool(1)
    begun, gate = threading.Event(), threading.Event()

    def task() -> str:
        begun.set()
        gate.wait()
        return "done"

    running = workers.submit(MAP, task)
    waiting = workers.submit(MAP, task)
    begun.wait()
    gate.set()
    workers.shutdown()
    assert running.result() == "done"
    with pytest.raises(CancelledError):
        waiting.result()
    assert not any(thread.name.startswith("worker") for thread in threading.enumerate())


@pytest.mark.parametrize("n_threads", [0, 1, 3])
def test_tasks_share_their_work_and_never_wait_for_a_free_thread(n_threads: int) -> None:
    """Each of many tasks splits its work in parts, of which all the threads can be busy."""

    def parts(base: int) -> list[int]:
        calls = [partial(pow, base, exponent) for exponent in range(5)]
        return fork_join(calls, pool if n_threads else None)

    with ThreadPoolExecutor(max(n_threads, 1)) as pool:
        found = [future.result() for future in [pool.submit(parts, base) for base in range(20)]]
    assert found == [[base**exponent for exponent in range(5)] for base in range(20)]


def test_an_error_in_a_part_is_raised() -> None:
    with ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        fork_join([int, lambda: 1 // 0, int], pool)
    with pytest.raises(ZeroDivisionError):
        fork_join([int, lambda: 1 // 0, int], None)


def test_threads_come_and_go() -> None:
    workers = PriorityPool(0)
    waiting = [workers.submit(MAP, threading.get_ident) for _ in range(3)]
    workers.resize(3)
    assert all(isinstance(future.result(), int) for future in waiting)
    kept = set(workers._threads)
    workers.resize(1)
    while len(workers._threads) > 1:  # they end as soon as they wake
        workers.submit(MAP, int).result()
    assert workers._threads <= kept
    (own,) = workers._threads
    assert workers.submit(MAP, threading.get_ident).result() == own.ident
    workers.shutdown()
    assert not own.is_alive()


def test_all_tasks_are_cancelled_and_the_threads_go_on() -> None:
    workers = PriorityPool(1)
    gate, begun = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        gate.wait()
        return "done"

    running = workers.submit(MAP, wait)
    begun.wait()
    queued = workers.submit(MAP, int)
    canceller = threading.Thread(target=workers.cancel_all, daemon=True)
    canceller.start()
    with pytest.raises(CancelledError):
        queued.result()
    assert canceller.is_alive()  # waits for the one that runs
    gate.set()
    canceller.join()
    assert running.result() == "done"
    assert workers.submit(MAP, int).result() == 0
    workers.shutdown()


def test_a_call_is_taken_back_from_busy_threads_and_leaves_nothing_there() -> None:
    workers = PriorityPool(1)
    gate, begun = threading.Event(), threading.Event()
    running = ReclaimableTask(workers.at(MAP), lambda: (begun.set(), gate.wait()))
    begun.wait()
    kept = np.zeros(3)
    seen = weakref.ref(kept)
    handed = ReclaimableTask(workers.at(MAP), partial(np.sum, kept))
    left_out = ReclaimableTask(workers.at(MAP), partial(np.sum, kept))
    assert handed.result() == 0
    left_out.cancel()
    del kept
    assert seen() is None  # though both are still queued
    gate.set()
    assert running.result() == (None, True)
    workers.shutdown()


@pytest.mark.parametrize("n_threads", [0, 1, 3])
@pytest.mark.parametrize("most", [0, 2, 50])
def test_calls_in_turn(n_threads: int, most: int) -> None:
    """In order, no more than `most` ahead, and errors where they belong."""
    workers = PriorityPool(n_threads)
    begun: list[int] = []

    def calls(n: int) -> Iterator[Callable[[], int]]:
        for i in range(n):
            begun.append(i)
            yield partial(int, i)
        raise ValueError("after all")

    for executor in (workers.at(MAP), None):
        begun.clear()
        found = []
        with pytest.raises(ValueError, match="after all"):
            for result in ordered_calls(calls(20), executor, most):
                found.append(result)
                assert len(begun) <= len(found) + most
        assert found == list(range(20))
    wrong: list[Callable[[], int]] = [partial(int, "1"), partial(int, "x"), partial(int, "2")]
    results = ordered_calls(wrong, workers.at(MAP), most)
    assert next(results) == 1
    with pytest.raises(ValueError, match="'x'"):
        next(results)
    workers.shutdown()


def test_more_threads_than_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def start_three(thread: threading.Thread) -> None:
        if thread.name == "worker 3":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_three)
    workers = PriorityPool(1)
    with pytest.raises(ResourceError, match="of 8 threads only 3 could be started"):
        workers.resize(8)
    workers.shutdown()  # waits for the three


def test_threads_without_a_task_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mapper.parallel.pool.time", SimpleNamespace(perf_counter=lambda: now[0]))
    workers = PriorityPool(3)

    def until(n_idle: int) -> None:
        while workers._n_idle != n_idle:
            time.sleep(0.001)

    until(3)
    now[0] = 10.0
    assert workers.idle_seconds() == 30
    gate = threading.Event()
    running = workers.submit(MAP, gate.wait)
    until(2)
    now[0] = 15.0
    assert workers.idle_seconds() == 40
    gate.set()
    running.result()
    until(3)
    now[0] = 16.0
    assert workers.idle_seconds() == 43
    workers.shutdown()


FORK = """
import os
from mapper.parallel.pool import kept_pool
assert kept_pool(2).submit(int).result() == 0
child = os.fork()
if child == 0:
    os._exit(kept_pool(2).submit(lambda: 7).result(timeout=300))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_threads_are_kept() -> None:
    assert kept_pool(2) is kept_pool(2)
    assert kept_pool(2) is not kept_pool(3)


def test_a_forked_process_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)


def test_a_daemon_thread_returns_results_and_errors() -> None:
    assert call_in_daemon(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        call_in_daemon(lambda: 1 // 0)


def test_a_signal_does_not_wait_for_a_daemon_thread() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        ended.wait()

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.2)  # until the caller waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            call_in_daemon(work)
    finally:
        ended.set()
        signal.signal(signal.SIGINT, previous)


def test_a_dedicated_thread_runs_all_calls() -> None:
    with dedicated_thread() as call:
        assert call(threading.get_ident) == call(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            call(lambda: 1 // 0)


def test_a_leased_pool_is_used_again_but_never_by_two() -> None:
    with leased_pool(3) as first, leased_pool(3) as second:
        assert first is not second
        assert first.submit(int).result() == second.submit(int).result() == 0
    with leased_pool(3) as third:
        assert third in (first, second)
    with pytest.raises(KeyError), leased_pool(3) as failed:
        raise KeyError
    with leased_pool(3) as fourth:
        assert fourth is not failed
