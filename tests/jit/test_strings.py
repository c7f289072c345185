"""Where the letters of Python's strings lie."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from mapper.jit.accelerate import driver
from mapper.jit.intrinsics import atomic_add, atomic_read
from mapper.jit.strings import (
    IS_GONE,
    IS_OPEN,
    N_ASKING,
    N_ENTERED,
    N_LEFT,
    N_READ,
    N_READING,
    N_WANTING,
    ascii_place,
    begin_reading,
    count_in_gate,
    end_reading,
    keep_strings,
    layout,
    n_items,
    new_gate,
)

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="compiled code reads the strings")


class Name(str):
    pass


@driver
def place(strings, i, of):
    return ascii_place(strings, i, of)


def place_of(value: object) -> tuple[int, int]:
    values = ["other", value]
    address, length = place(id(values), 1, layout())
    return int(address), int(length)


def test_this_python_is_known() -> None:
    assert layout() is not None


@pytest.mark.parametrize("text", ["", "A", "ACGT" * 9, "x" * 5000])
def test_the_letters_of_a_string_of_ascii_are_found(text: str) -> None:
    made = "".join([text[:1], text[1:]])
    address, length = place_of(made)
    assert length == len(text)
    assert ctypes.string_at(address, length) == text.encode()


@pytest.mark.parametrize("value", ["é", "AжC", "\ud800", Name("ACGT"), b"ACGT", 5, None, ["A"]])
def test_nothing_else_has_a_place(value: object) -> None:
    assert place_of(value)[1] == -1


def test_places_are_those_of_the_strings_of_a_list() -> None:
    strings = [f"{i}" * i for i in range(50)]
    found = np.array([place(id(strings), i, layout()) for i in range(50)])
    assert found[:, 1].tolist() == [len(text) for text in strings]


def test_items_are_counted_as_the_list_changes() -> None:
    strings = ["A", "C"]
    for change in (lambda: None, strings.pop, lambda: strings.extend("GT"), strings.clear):
        change()
        assert int(count(id(strings), layout())) == len(strings)


@driver
def count(strings, of):
    return n_items(strings, of)


@driver
def read_in_turns(gate, n, seen):
    """Read n times; note in item 0 whether this thread reads, and in item 1 if there is no turn."""
    atomic_add(gate, N_ENTERED, 1)
    for _ in range(n):
        if not begin_reading(gate):
            seen[1] += 1
            break
        atomic_add(seen, 0, 1)
        for _ in range(200_000):
            atomic_read(gate, N_READING)
        atomic_add(seen, 0, -1)
        end_reading(gate)
    atomic_add(gate, N_LEFT, 1)


def test_strings_are_read_in_turns_while_no_python_code_runs() -> None:
    gate, seen, done = new_gate(), np.zeros((3, 2), np.int64), []
    read_in_turns(new_gate(), 0, np.zeros(2, np.int64))  # compiles
    with ThreadPoolExecutor(4) as pool:
        for row in seen:
            pool.submit(read_in_turns, gate, 500, row)

        def other_python() -> int:  # runs between turns only
            return sum(int(gate[IS_OPEN] + seen[:, 0].sum()) for _ in iter(lambda: len(done), 1))

        other = pool.submit(other_python)
        try:
            keep_strings(gate, 3)
        finally:
            done.append(True)
        assert other.result() == 0
    assert not seen.any()
    assert gate[N_READ] == 1_500
    assert gate[[IS_OPEN, N_READING, N_ASKING, N_WANTING]].tolist() == [0, 0, 0, 0]


def test_who_waits_for_a_turn_is_told_that_there_are_no_more() -> None:
    gate, seen = new_gate(), np.zeros(2, np.int64)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read_in_turns, gate, 5, seen)
        while not gate[N_ASKING]:
            assert not waiting.done()
        gate[IS_GONE] = 1
        waiting.result(60)
    assert seen.tolist() == [0, 1]
    assert gate[[N_READING, N_READ, N_ASKING, N_LEFT]].tolist() == [0, 0, 0, 1]


def test_who_needs_the_gil_gets_it_at_once() -> None:
    gate = new_gate()
    gate[N_ENTERED] = gate[N_ASKING] = 1

    def leave() -> None:
        count_in_gate(gate, N_WANTING, -1)
        count_in_gate(gate, N_LEFT, 1)

    gate[N_WANTING] = 1
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 0.01).add_done_callback(lambda _: leave())
        keep_strings(gate, 1)
    assert gate[[N_WANTING, N_LEFT]].tolist() == [0, 1]
