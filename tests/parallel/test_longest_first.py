"""Longest-first scheduling: order, results, and what happens on failure."""

from __future__ import annotations

import threading

import pytest

from mapper.parallel.longest_first import longest_first


def test_results_are_in_the_order_of_the_items() -> None:
    items = list(range(40))
    workers = [lambda x: 10 * x for _ in range(3)]
    assert longest_first(workers, items, [x % 7 for x in items]) == [10 * x for x in items]
    assert longest_first(workers, [], []) == []


def test_the_dearest_is_dealt_first() -> None:
    seen: list[str] = []
    longest_first([seen.append], ["b", "a", "d", "c"], [2, 9, 1, 2])
    assert seen == ["a", "b", "c", "d"]


def test_a_free_worker_takes_the_next() -> None:
    """One worker holds the dearest item until the other has done all the rest."""
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
