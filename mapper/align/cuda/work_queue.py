"""Parts of chunks, dealt to threads that run compiled code alone.

A batch is staged in some thousand parts. Handing each to a thread through the interpreter costs as
much as the part takes, and the threads then fight for the interpreter with the one that queues work
on the devices. Here each thread enters compiled code once a batch and takes one *job* after
the other: all parts of a chunk before those of the next, so that chunks are ready in their order.
A chunk is begun when it has been given a place; the thread that queues gives places, and waits
for what is ready. The numbers that they share are changed by atomic operations only.

The Python bodies of those operations are their meaning, for where the JIT is off; there one thread
takes queue.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from mapper.jit.accelerate import core, driver

_LINE = 8
"""Numbers (of 8 bytes) in a cache line: each that threads share has one of its own."""

_TAKEN, _BUFFERS, _STOPPED, _INVALID, _CHUNKS = range(5)
"""Lines: queue taken; chunks that have a place; whether to stop; whether anything was found that
is not allowed; two of each chunk from here."""

_TURNS = 1 << 10
"""How often a thread looks, letting others run, before it sleeps between looks."""

_MICROSECONDS = 50


ALL = -1
"""Of queue: as many as there are."""


class WorkQueue(NamedTuple):
    """What threads share about the parts of a batch."""

    numbers: np.ndarray  # int64, a line of 8 for each
    n_chunks: int
    n_parts: int  # of a chunk


def work_queue(n_chunks: int, n_parts: int) -> WorkQueue:
    """Return queue of so many chunks, none of which has a place."""
    return WorkQueue(np.zeros(_LINE * (_CHUNKS + 2 * n_chunks), np.int64), n_chunks, n_parts)


def atomic_add(numbers, at, n):
    """Add to an item of an int64 array; return what it was."""
    before = int(numbers[at])
    numbers[at] = before + n
    return before


def atomic_read(numbers, at):
    """Return an item of an int64 array as it is now; what was written before it is seen after."""
    return int(numbers[at])


def atomic_replace(numbers, at, expected, value):
    """Replace an item of an int64 array if it is as expected; return what it was."""
    before = int(numbers[at])
    if before == expected:
        numbers[at] = value
    return before


def _back_off(attempt):
    time.sleep(0 if attempt < _TURNS else 1e-6 * _MICROSECONDS)


def _item(context, builder, array_type, array, at):
    array = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, array, [at])


@intrinsic
def _add(typingctx, numbers, at, n):
    def codegen(context, builder, signature, args):
        item = _item(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", item, args[2], "acq_rel")

    return types.int64(numbers, types.int64, types.int64), codegen


@intrinsic
def _replace(typingctx, numbers, at, expected, value):
    def codegen(context, builder, signature, args):
        item = _item(context, builder, signature.args[0], args[0], args[1])
        found = builder.cmpxchg(item, args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(found, 0)

    return types.int64(numbers, types.int64, types.int64, types.int64), codegen


@intrinsic
def _read(typingctx, numbers, at):
    def codegen(context, builder, signature, args):
        item = _item(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(item, "acquire", 8)

    return types.int64(numbers, types.int64), codegen


def _calls_system(name, arguments):
    """Return the code of a call of the C library: of `name` with some int32."""

    def codegen(context, builder, signature, args):
        i32 = ir.IntType(32)
        of_type = ir.FunctionType(i32, [i32] * arguments)
        function = cgutils.get_or_insert_function(builder.module, of_type, name)
        return builder.call(function, args)

    return codegen


@intrinsic
def _let_others_run(typingctx):
    return types.int32(), _calls_system("sched_yield", 0)


@intrinsic
def _sleep(typingctx, microseconds):
    return types.int32(types.int32), _calls_system("usleep", 1)


@overload(atomic_add, inline="always")
def _atomic_add_compiled(numbers, at, n):
    return lambda numbers, at, n: _add(numbers, at, n)


@overload(atomic_replace, inline="always")
def _atomic_replace_compiled(numbers, at, expected, value):
    return lambda numbers, at, expected, value: _replace(numbers, at, expected, value)


@overload(atomic_read, inline="always")
def _atomic_read_compiled(numbers, at):
    return lambda numbers, at: _read(numbers, at)


@overload(_back_off)
def _back_off_compiled(attempt):
    def back_off(attempt):
        if attempt < _TURNS:
            _let_others_run()
        else:
            _sleep(_MICROSECONDS)

    return back_off


@core
def take_job(queue):
    """Take a job, and wait until its chunk has a place.

    Returns
    -------
    ``chunk * n_parts + part``; -1 when there is none left, or threads are to stop.
    """
    job = atomic_add(queue.numbers, _LINE * _TAKEN, 1)
    chunk = job // queue.n_parts
    if chunk >= queue.n_chunks:
        return np.int64(-1)
    attempt = 0
    while atomic_read(queue.numbers, _LINE * _BUFFERS) <= chunk:
        if atomic_read(queue.numbers, _LINE * _STOPPED) != 0:
            return np.int64(-1)
        _back_off(attempt)
        attempt += 1
    return np.int64(job)


@core
def try_take_job(queue):
    """Take a job of a chunk that has a place, as :func:`take_job`; -1 if there is none."""
    taken = atomic_read(queue.numbers, _LINE * _TAKEN)
    while taken // queue.n_parts < min(
        atomic_read(queue.numbers, _LINE * _BUFFERS), queue.n_chunks
    ):
        before = atomic_replace(queue.numbers, _LINE * _TAKEN, taken, taken + 1)
        if before == taken:
            return np.int64(taken)
        taken = before
    return np.int64(-1)


@core
def finish_job(queue, chunk):
    """Note that a part is done; say whether it was the last of its chunk."""
    before = atomic_add(queue.numbers, _LINE * (_CHUNKS + 2 * chunk), 1)
    return before + 1 == queue.n_parts


@core
def mark_ready(queue, chunk):
    """Note that a chunk is ready."""
    atomic_add(queue.numbers, _LINE * (_CHUNKS + 2 * chunk + 1), 1)


@core
def mark_invalid(queue):
    """Note that something was found that is not allowed."""
    atomic_add(queue.numbers, _LINE * _INVALID, 1)


@core
def is_invalid(queue):
    """Whether anything was found that is not allowed, in what is ready."""
    return atomic_read(queue.numbers, _LINE * _INVALID) != 0


@driver
def add_buffers(queue, n):
    """Give places to n more chunks."""
    atomic_add(queue.numbers, _LINE * _BUFFERS, n)


@driver
def stop(queue):
    """Have threads take no more queue."""
    atomic_add(queue.numbers, _LINE * _STOPPED, 1)


NOT_READY, READY, FAILED = range(3)


@driver
def chunk_state(queue, chunk):
    """Say whether a chunk is ready; FAILED if it is, and :func:`is_invalid`."""
    if atomic_read(queue.numbers, _LINE * (_CHUNKS + 2 * chunk + 1)) == 0:
        return NOT_READY
    return FAILED if is_invalid(queue) else READY


@driver
def back_off(attempt):
    """Let other threads run; the longer the more turns there were before."""
    _back_off(attempt)
