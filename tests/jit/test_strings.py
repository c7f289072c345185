"""Where the letters of Python's strings lie."""

from __future__ import annotations

import ctypes
import mmap

import numba
import numpy as np
import pytest

from mapper.jit.accelerate import driver
from mapper.jit.strings import ascii_place, layout, note_items, prefetch_objects

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


@pytest.mark.parametrize(("first", "room", "n"), [(0, 4, 4), (3, 50, 47), (50, 4, 0), (60, 4, 0)])
def test_items_are_noted_to_the_end_of_the_list(first: int, room: int, n: int) -> None:
    strings = [f"{i}" * i for i in range(50)]
    addresses = np.full(room, -1, np.int64)
    assert note_items(id(strings), first, layout(), addresses) == n
    assert addresses.tolist() == [*map(id, strings[first : first + n])] + [-1] * (room - n)


def test_objects_that_are_gone_may_be_asked_for() -> None:
    mapped = mmap.mmap(-1, 1 << 20)
    letters = np.frombuffer(mapped, np.uint8)
    addresses = letters.ctypes.data + np.arange(0, 1 << 20, 4096)
    del letters
    mapped.close()
    prefetch_objects(np.append(addresses, [0, 1, -1]))
