"""Loops over parts, shared by threads."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.parallel.map import map_in_threads, parts


@given(st.integers(0, 200), st.integers(1, 50))
def test_parts_cover_the_range_once(n: int, n_parts: int) -> None:
    pieces = list(parts(n, n_parts))
    assert [i for first, end in pieces for i in range(first, end)] == list(range(n))
    assert len(pieces) <= n_parts
    sizes = [end - first for first, end in pieces]
    assert all(sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_results_come_in_order_from_several_threads() -> None:
    barrier = threading.Barrier(2, timeout=300)  # passed only if two calls run at once

    def work(i: int) -> int:
        if i < 2:
            barrier.wait()
        return i * i

    assert map_in_threads(work, range(10), 2) == [i * i for i in range(10)]


def test_an_error_reaches_the_caller_and_ends_the_loop() -> None:
    done = []

    def work(i: int) -> None:
        if i == 1:
            raise ValueError("no")
        time.sleep(0.01)  # the caller has to wake up before all others are through
        done.append(i)

    with pytest.raises(ValueError, match="no"):
        map_in_threads(work, range(1000), 1)
    assert len(done) < 999


def test_an_interrupt_need_not_wait_for_a_long_call() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(i: int) -> None:
        begun.set()
        ended.wait()

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.2)  # what comes just before the caller waits is seen after the wait only
        # A real signal, which ends a wait; what interrupt_main() leaves is seen after one only.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            map_in_threads(work, range(3), 1, abandon=True)
    finally:
        ended.set()
        signal.signal(signal.SIGINT, previous)


def test_the_error_state_of_numpy_is_the_callers() -> None:
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        map_in_threads(lambda x: x * x, [np.int32(2**30)], 1)
