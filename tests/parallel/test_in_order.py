"""Results in the order of the items, from workers of any speed."""

from __future__ import annotations

import threading
import time

import pytest

from mapper.parallel.in_order import AHEAD, in_order


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
