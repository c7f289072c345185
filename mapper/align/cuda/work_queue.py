"""Lock-free queue of the parts of chunks, for threads that run compiled code without the GIL.

A batch is staged in some thousand parts. Handing each to a thread through the interpreter costs as
much as the part takes, and the threads then compete for the GIL with the thread that queues work on
the devices. Here each thread enters compiled code once a batch and takes one *job* after the other:
all parts of a chunk before those of the next, so that chunks become ready in order. A chunk can be
started once it has a buffer; the thread that queues work on the devices adds buffers and waits for
ready chunks. The shared numbers are changed by atomic operations only.

The Python bodies of these operations run where the JIT is off; there one thread takes jobs.
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
from mapper.jit.intrinsics import atomic_add, atomic_read, atomic_replace

_LINE = 8
"""Numbers (of 8 bytes) in a cache line: each shared number has a line of its own."""

_TAKEN, _BUFFERS, _STOPPED, _INVALID, _CHUNKS = range(5)
"""Lines: jobs taken; chunks that have a buffer; stop flag; flag of invalid pairs; from here two of
each chunk: parts done, and ready flag."""

_YIELDS = 1 << 10
"""Attempts after which a waiting thread sleeps between attempts instead of yielding."""

_MICROSECONDS = 50


ALL = -1
"""As many jobs as there are."""


class WorkQueue(NamedTuple):
    """State that the threads of a batch share."""

    numbers: np.ndarray  # int64, a line of 8 for each
    n_chunks: int
    n_parts: int  # of a chunk


def work_queue(n_chunks: int, n_parts: int) -> WorkQueue:
    """Return a queue of `n_chunks` chunks, none of which has a buffer."""
    return WorkQueue(np.zeros(_LINE * (_CHUNKS + 2 * n_chunks), np.int64), n_chunks, n_parts)


def _back_off(attempt):
    time.sleep(0 if attempt < _YIELDS else 1e-6 * _MICROSECONDS)


def _calls_system(name, arguments):
    """Return a code generator for a C library call: of `name`, with int32 arguments."""

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


@overload(_back_off)
def _back_off_compiled(attempt):
    def back_off(attempt):
        if attempt < _YIELDS:
            _let_others_run()
        else:
            _sleep(_MICROSECONDS)

    return back_off


@core
def take_job(queue):
    """Take a job, and wait until its chunk has a buffer.

    Returns
    -------
    ``chunk * n_parts + part``; -1 if there is none left, or the queue was stopped.
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
    """Take a job of a chunk that has a buffer, as :func:`take_job`; -1 if there is none."""
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
    """Count a part of a chunk as done; return True if it was the last one."""
    before = atomic_add(queue.numbers, _LINE * (_CHUNKS + 2 * chunk), 1)
    return before + 1 == queue.n_parts


@core
def mark_ready(queue, chunk):
    """Mark a chunk as ready."""
    atomic_add(queue.numbers, _LINE * (_CHUNKS + 2 * chunk + 1), 1)


@core
def mark_invalid(queue):
    """Note that an invalid pair was found."""
    atomic_add(queue.numbers, _LINE * _INVALID, 1)


@core
def is_invalid(queue):
    """Return True if an invalid pair was found in any ready chunk."""
    return atomic_read(queue.numbers, _LINE * _INVALID) != 0


@driver
def add_buffers(queue, n):
    """Add buffers for n more chunks."""
    atomic_add(queue.numbers, _LINE * _BUFFERS, n)


@driver
def stop(queue):
    """Let threads take no more jobs."""
    atomic_add(queue.numbers, _LINE * _STOPPED, 1)


NOT_READY, READY, FAILED = range(3)


@driver
def chunk_state(queue, chunk):
    """Return NOT_READY, READY, or FAILED for a ready chunk if :func:`is_invalid`."""
    if atomic_read(queue.numbers, _LINE * (_CHUNKS + 2 * chunk + 1)) == 0:
        return NOT_READY
    return FAILED if is_invalid(queue) else READY


@driver
def back_off(attempt):
    """Let other threads run, for longer after more attempts."""
    _back_off(attempt)
