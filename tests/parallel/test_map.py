"""The ordered map: order, bounds, scheduling, errors and signals."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.parallel.map import AHEAD, any_idle, map_in_threads, ordered_map, parts


def in_order(workers, items):
    return ordered_map(any_idle(workers), items, len(workers))


def longest_first(workers, items, costs):
    return map_in_threads(any_idle(workers), items, len(workers), costs=costs)


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


def test_a_slow_worker_does_not_change_the_order():
    def slow(item):
        time.sleep(0.01)
        return item * item

    def fast(item):
        return item * item

    assert list(in_order([slow, fast, fast], range(50))) == [i * i for i in range(50)]


def test_a_worker_has_one_item_at_a_time():
    inside = threading.Lock()

    def worker(item):
        assert inside.acquire(blocking=False)
        time.sleep(0.001)
        inside.release()
        return item

    assert list(in_order([worker], range(20))) == list(range(20))


def test_items_are_drawn_no_further_ahead_than_promised():
    drawn = 0

    def items():
        nonlocal drawn
        while drawn < 100:
            drawn += 1
            yield drawn

    for n_results, _ in enumerate(in_order([int, int], items()), 1):
        assert drawn - n_results < AHEAD * 2


def test_an_error_comes_after_the_results_before_it():
    def worker(item):
        if item == 3:
            raise ValueError("bad item")
        return item

    got = []
    with pytest.raises(ValueError, match="bad item"):
        for result in in_order([worker, worker], range(1000)):
            got.append(result)
    assert got == [0, 1, 2]


def test_no_items_no_results():
    assert list(in_order([int], [])) == []


def test_a_pool_of_the_caller_is_used_and_left_open():
    begun = []

    def work(item):
        begun.append(item)
        time.sleep(0.001)
        if item == 2:
            raise ValueError("no")
        return item

    with ThreadPoolExecutor(1) as pool:
        assert map_in_threads(int, ["3", "4"], 1, pool=pool) == [3, 4]
        with pytest.raises(ValueError, match="no"):
            map_in_threads(work, range(1000), 1, pool=pool)
        assert pool.submit(int).result() == 0
    assert len(begun) < 999


def test_calls_that_have_not_begun_are_left_out_when_no_more_results_are_taken():
    begun = []
    results = in_order([begun.append], range(1000))
    next(results)
    results.close()
    assert len(begun) <= 1 + AHEAD


def test_results_are_in_the_order_of_the_items() -> None:
    items = list(range(40))
    workers = [lambda x: 10 * x for _ in range(3)]
    assert longest_first(workers, items, [x % 7 for x in items]) == [10 * x for x in items]
    assert longest_first(workers, [], []) == []


def test_the_most_expensive_item_starts_first() -> None:
    seen: list[str] = []
    longest_first([seen.append], ["b", "a", "d", "c"], [2, 9, 1, 2])
    assert seen == ["a", "b", "c", "d"]


def test_an_idle_worker_takes_the_next() -> None:
    """One worker holds the most expensive item until the other has done all the rest."""
    done: dict[str, list[int]] = {"x": [], "y": []}
    rest_done = threading.Event()

    def worker(name: str):
        def work(item: int) -> str:
            if item == 5:
                assert rest_done.wait(300)
            done[name].append(item)
            if sum(map(len, done.values())) == 5:
                rest_done.set()
            return name

        return work

    longest_first([worker("x"), worker("y")], list(range(6)), list(range(6)))
    assert sorted(map(len, done.values())) == [1, 5]
    assert [5] in done.values()


def test_no_worker_is_called_twice_at_a_time() -> None:
    busy = threading.Lock()

    def work(item: int) -> int:
        assert busy.acquire(blocking=False)
        busy.release()
        return item

    assert longest_first([work], list(range(50)), [1] * 50) == list(range(50))


def test_an_error_comes_out_and_drops_what_has_not_begun() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 0:
            raise ValueError("no")
        return item

    with pytest.raises(ValueError, match="no"):
        longest_first([work], [0, 1, 2], [3, 2, 1])
    assert begun[0] == 0
