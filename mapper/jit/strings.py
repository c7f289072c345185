"""Where the letters of Python's strings lie, for compiled code that reads them without a copy.

Joining a list of strings and encoding it takes the GIL for as long as it takes one thread to align
short pairs. CPython keeps the letters of an ASCII string behind its object, and neither moves nor
changes: compiled code of any thread can find and read them, as long as the strings are kept
(:func:`keep_strings`). How the object looks is found by looking at some strings, once; where it is
not as expected, strings are joined.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple

import numba
import numpy as np

from mapper.jit.accelerate import brief, core, driver, step
from mapper.jit.addresses import bytes_at, word_at
from mapper.jit.intrinsics import atomic_add, atomic_read, nap, pause, prefetch


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

    None if they are not as expected, or the JIT is off, which reads them, or Python has no GIL,
    with which they are kept.
    """
    if numba.config.DISABLE_JIT or not getattr(sys, "_is_gil_enabled", lambda: True)():
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
def n_items(strings, of):
    """Return the number of items of a list, by its address; in a turn as :func:`ascii_place`."""
    return word_at(strings + of.items_at - _WORD_BYTES)


@core
def ascii_place(strings, i, of):
    """Return address and length of the letters of string i, or a length of -1 if it has none.

    `strings` is the address of a list, `of` its :class:`Layout`, and i less than :func:`n_items`.
    In a turn of a thread that keeps the GIL; not without the JIT.
    """
    string = word_at(word_at(strings + of.items_at) + _WORD_BYTES * i)
    if word_at(string + of.type_at) != of.type:  # other objects may end before the state
        return np.int64(0), np.int64(-1)
    if word_at(string + of.state_at) & of.state_bits != of.state_bits:
        return np.int64(0), np.int64(-1)
    return string + of.letters_at, word_at(string + of.length_at)


_LINE = 64
_FIRST_LINES = 4


@core
def prefetch_item(strings, i, of):
    """Load the first cache lines of item i of a list, for :func:`ascii_place`."""
    string = word_at(word_at(strings + of.items_at) + _WORD_BYTES * i)
    for line in range(_FIRST_LINES):
        prefetch(bytes_at(string + _LINE * line, 1), 0)


# --- reading while another thread keeps the GIL ---

# The objects of a list may be gone as soon as any Python code runs. To keep each of them, which
# needs the GIL, takes 16 threads as long as aligning short pairs. So the thread that waits for the
# others keeps the GIL, and no Python code runs: in turns as long as those of threads that run
# Python (sys.getswitchinterval). The others read in its turns only.

N_GATE = 24
IS_OPEN, IS_GONE, N_READING = 0, 1, 8
N_READ, N_ASKING, N_ENTERED, N_LEFT, N_WANTING = range(16, 21)
"""Items of a gate, int64: 1 in a turn; 1 if there will be no more; threads that read now; how often
was read; threads that wait for a turn; that have entered compiled code; left it for good; left it
as they need the GIL. What many threads write has cache lines of its own."""

_PAUSES = 400
"""After which a thread that waits sleeps."""

_NAP = 30
"""Microseconds that a thread sleeps, at least: the system adds about 50."""

_LONGEST_NAP = 1000
"""To wake takes more time than to look at the gate: each nap is a little longer than the last."""

_LONGEST_WAIT = 200
"""Of a nap while readers may be waiting."""

_LONGEST_TURN = 0.05
"""Seconds of a turn at most: no signal is handled meanwhile."""


def new_gate() -> np.ndarray:
    """Return the gate of a thread that keeps strings for others."""
    return np.zeros(N_GATE, np.int64)


@core
def _wait_a_little(n_waits):
    """Wait once more, after `n_waits` times."""
    if n_waits < _PAUSES:
        pause()
    else:
        nap(_NAP)  # it may be that a core is needed


@step
def begin_reading(gate):
    """Wait for a turn, without the GIL; return False if there are no more.

    :func:`end_reading` is to be called within a fraction of a millisecond.
    """
    n_waits = 0
    while True:
        is_turn = atomic_read(gate, IS_OPEN) != 0
        if is_turn:
            atomic_add(gate, N_READING, 1)
            is_turn = atomic_read(gate, IS_OPEN) != 0  # else it has just ended
            if is_turn:
                atomic_add(gate, N_READ, 1)
                break
            atomic_add(gate, N_READING, -1)
        if atomic_read(gate, IS_GONE) != 0:
            break
        if n_waits == 0:
            atomic_add(gate, N_ASKING, 1)
        _wait_a_little(n_waits)
        n_waits += 1
    if n_waits > 0:
        atomic_add(gate, N_ASKING, -1)
    return is_turn


@core
def end_reading(gate):
    """Read no string any more."""
    atomic_add(gate, N_READING, -1)


@brief
def count_in_gate(gate, item, n):
    """Add n to an item of a gate."""
    atomic_add(gate, item, n)


@core
def _longer(microseconds):
    return min(microseconds + (microseconds >> 2), np.int64(_LONGEST_NAP))


# The two below may run in the main thread, where signals are handled: they return a number or
# nothing, whose making runs no bytecode (see mapper.parallel.pool.dedicated_thread).


@brief
def _take_turn(gate, n_threads, nap_before, microseconds):
    """Keep the GIL and let others read, until some need the GIL, or none reads any more.

    `nap_before` is the length of the last nap; returns that of the last one now.
    """
    atomic_add(gate, IS_OPEN, 1)
    n_read = np.int64(-1)
    while microseconds > 0:
        if atomic_read(gate, N_LEFT) >= n_threads or atomic_read(gate, N_WANTING) > 0:
            break
        nap_before = _longer(nap_before)
        nap(nap_before)
        microseconds -= nap_before
        n_before, n_read = n_read, atomic_read(gate, N_READ)
        if n_read == n_before and atomic_read(gate, N_READING) == 0:
            break
    atomic_add(gate, IS_OPEN, -1)
    n_waits = 0
    while atomic_read(gate, N_READING) > 0:
        _wait_a_little(n_waits)
        n_waits += 1
    return nap_before


@driver
def _await_readers(gate, n_threads, n_entered, microseconds):
    """Wait without the GIL for all to have left, or for one to ask for a turn; at most so long.

    And for `n_entered` to have entered, and all that need the GIL to have got it.
    """
    nap_before = np.int64(_NAP)
    while microseconds > 0:
        if atomic_read(gate, N_LEFT) >= n_threads:
            break
        may_begin = atomic_read(gate, N_WANTING) <= 0 and atomic_read(gate, N_ENTERED) >= n_entered
        if may_begin and atomic_read(gate, N_ASKING) > 0:
            break
        nap(nap_before)
        microseconds -= nap_before
        nap_before = min(_longer(nap_before), np.int64(_LONGEST_WAIT))


def keep_strings(gate: np.ndarray, n_threads: int) -> None:
    """Keep the GIL in turns, in which `n_threads` others read strings, until these have left.

    Each thread counts itself in the gate when it enters compiled code and before it leaves it; one
    that raises an error is counted by its caller (:func:`count_in_gate`). When this function has
    returned, or raised, no thread can begin to read.
    """
    turn = int(1e6 * min(sys.getswitchinterval(), _LONGEST_TURN)) + 1
    nap_before, n_entered = _NAP, n_threads  # which need the GIL to enter
    try:
        while gate[N_LEFT] < n_threads:
            _await_readers(gate, n_threads, n_entered, turn)
            n_entered = 0
            if gate[N_ASKING]:
                nap_before = _take_turn(gate, n_threads, nap_before, turn)
    finally:
        gate[IS_GONE] = 1
