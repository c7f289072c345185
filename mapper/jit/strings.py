"""Where the letters of Python's strings lie, for compiled code that reads them without a copy.

Joining a list of strings and encoding it takes the GIL for as long as it takes one thread to align
short pairs. CPython keeps the letters of an ASCII string behind its object, and neither moves nor
changes: compiled code can find and read them without the GIL, as long as the strings are kept.
How the object looks is found by looking at some strings, once; where it is not as expected, strings
are joined.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numba
import numpy as np

from mapper.jit.accelerate import brief, core, driver, step
from mapper.jit.addresses import bytes_at, word_at
from mapper.jit.intrinsics import prefetch_to_l2


class Layout(NamedTuple):
    """Objects of lists and of strings of ASCII; offsets in bytes."""

    items_at: int
    """In a list: the address of its items. Before it is their number."""
    type_at: int
    type: int
    length_at: int
    state_at: int
    state_bits: int
    """Set in an object whose letters are ASCII and lie behind it."""
    letters_at: int


_COMPACT_AND_ASCII = (1 << 5, 1 << 6), (1 << 19, 1 << 20)
"""Bits of the state of a string, up to Python 3.13 and since: its letters lie behind the object,
and all are ASCII."""


_WORD_BYTES = ctypes.sizeof(ctypes.c_void_p)


class _Subclass(str):
    """Its letters lie elsewhere."""


def _word(of: object, at: int, kind: Any) -> int:
    return int(kind.from_address(id(of) + at).value)


@functools.cache
def layout() -> Layout | None:
    """Return how this Python's lists and strings look.

    None if they are not as expected, or the JIT is off, which reads them.
    """
    if numba.config.DISABLE_JIT:
        return None
    items_at = list.__basicsize__ - 2 * _WORD_BYTES  # then the room for items
    length_at = object.__basicsize__
    state_at = length_at + 16  # the hash is between them
    type_at = length_at - _WORD_BYTES
    utf8 = ctypes.pythonapi.PyUnicode_AsUTF8
    utf8.restype, utf8.argtypes = ctypes.c_void_p, [ctypes.py_object]
    samples = ["x" * n for n in (2, 3, 40, 5000)]
    letters_at = {int(utf8(sample)) - id(sample) for sample in samples}
    words = {(_word(s, type_at, ctypes.c_void_p), _word(s, length_at, ctypes.c_ssize_t) - len(s))
             for s in samples}  # fmt: skip
    if len(letters_at) > 1 or words != {(id(str), 0)}:
        return None
    items = ctypes.c_void_p * len(samples)
    if list(items.from_address(_word(samples, items_at, ctypes.c_void_p))) != [*map(id, samples)]:
        return None
    if _word(samples, items_at - _WORD_BYTES, ctypes.c_ssize_t) != len(samples):
        return None
    for compact, is_ascii in _COMPACT_AND_ASCII:
        both = compact | is_ascii
        others = ["\xe9" * 9, "\u0416" * 9]
        kinds = (both, samples), (compact, others), (is_ascii, [_Subclass("xx")])
        if all(
            _word(string, state_at, ctypes.c_uint32) & both == bits
            for bits, strings in kinds for string in strings
        ):  # fmt: skip
            return Layout(items_at, type_at, id(str), length_at, state_at, both, letters_at.pop())
    return None


@core
def ascii_place(strings, i, of):
    """Return address and length of the letters of string i, or a length of -1 if it has none.

    `strings` is the address of a list that no other thread knows, and `of` its :class:`Layout`. A
    string of ASCII has such an address. The GIL is not needed; not without the JIT.
    """
    string = word_at(word_at(strings + of.items_at) + 8 * i)
    if word_at(string + of.type_at) != of.type:  # other objects may end before the state
        return np.int64(0), np.int64(-1)
    if word_at(string + of.state_at) & of.state_bits != of.state_bits:
        return np.int64(0), np.int64(-1)
    return string + of.letters_at, word_at(string + of.length_at)


@brief
def note_items(strings, first, of, addresses):
    """Write the addresses of items of a list, from item `first` on; return how many.

    `strings` is the address of the list and `of` its :class:`Layout`. The GIL is held, so that no
    other thread changes the list meanwhile. The objects may be gone as soon as it is not.
    """
    items = word_at(strings + of.items_at)
    n = min(len(addresses), word_at(strings + of.items_at - _WORD_BYTES) - first)
    for i in range(n):
        addresses[i] = word_at(items + 8 * (first + i))
    return max(n, 0)


_TIMES = 2
"""An AMD CPU drops some of so many prefetches: the second time most of the lines are there."""


@driver
def prefetch_objects(addresses):
    """Load the cache lines of the objects' numbers of references; they may be gone."""
    for _ in range(_TIMES):
        for i in range(len(addresses)):
            prefetch_to_l2(bytes_at(addresses[i], 1), 0)


@step
def prefetch_items(strings, n, of):
    """Load the cache lines of the numbers of references of the first n objects of a list.

    `strings` is the address of a list that no other thread knows.
    """
    items = word_at(strings + of.items_at)
    for _ in range(_TIMES):
        for i in range(n):
            prefetch_to_l2(bytes_at(word_at(items + 8 * i), 1), 0)
