"""Thread pools, the only place that starts threads: a pool with priorities, and plain ones.

A mapping run has one pool, and all computing is a task of it: reading, decompressing, mapping,
encoding, compressing. The size of the pool is therefore the number of cores that the run takes.
Reading is serial where the format is (a gzip stream, the order of records), so it goes first:
otherwise its steps would queue behind batches, and the threads would run dry.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Generic, NamedTuple, TypeVar

from mapper.errors import ResourceError, option

READ, WRITE, SPILL, MAP, SPARE = range(5)
"""Priorities, the highest first: input feeds all, output frees memory, a temporary file as well.
What a device does otherwise is for threads that mapping leaves."""

T = TypeVar("T")


# --- a pool with priorities ---


class _Task(NamedTuple):
    priority: int
    number: int  # tasks of one priority run in the order of submission
    future: Future[Any]
    call: Callable[[], Any]


class PriorityPool:
    """Threads that run tasks by priority, then in order.

    Parameters
    ----------
    n_threads
        Threads, all started at once.

    Raises
    ------
    ResourceError
        If the system does not allow so many.
    """

    def __init__(self, n_threads: int) -> None:
        self._tasks: list[_Task] = []
        self._n_submitted = 0
        self._changed = threading.Condition()
        self._closed = False
        self._n_running = 0
        self._is_awaited = False  # by cancel_all()
        self._n_threads = 0  # wanted
        self._n_started = 0
        self._threads: set[threading.Thread] = set()
        self._n_idle, self._idle_seconds, self._idle_since = 0, 0.0, time.perf_counter()
        self.resize(n_threads)

    def resize(self, n_threads: int) -> None:
        """Change the number of threads: start some, or let some end when they are idle."""
        with self._changed:
            self._n_threads = n_threads
            for _ in range(n_threads - len(self._threads)):
                name = f"worker {self._n_started}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._n_started += 1
                try:
                    thread.start()
                except RuntimeError as error:
                    raise ResourceError(
                        f"of {n_threads} threads only {len(self._threads)} could be started; give "
                        f"fewer ({option('threads')}), or raise the limits of processes and memory "
                        "(ulimit -u, -v)"
                    ) from error
                self._threads.add(thread)
            self._changed.notify_all()

    def at(self, priority: int) -> Executor:
        """Return an executor that submits its tasks with a priority."""
        return _AtPriority(self, priority)

    def submit(self, priority: int, call: Callable[[], T]) -> Future[T]:
        """Queue a task."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the workers have been dismissed")
            heapq.heappush(self._tasks, _Task(priority, self._n_submitted, future, call))
            self._n_submitted += 1
            self._changed.notify()
        return future

    def idle_seconds(self) -> float:
        """Return the total time that threads have been idle, summed over all, up to now."""
        with self._changed:
            self._count_idle(0)
            return self._idle_seconds

    def _count_idle(self, change: int) -> None:
        """Add the idle time up to now, then change the number of idle threads; lock is held."""
        now = time.perf_counter()
        self._idle_seconds += self._n_idle * (now - self._idle_since)
        self._idle_since = now
        self._n_idle += change

    def cancel_all(self) -> None:
        """Cancel queued tasks, and wait for running ones."""
        with self._changed:
            self._is_awaited = True
            while self._tasks or self._n_running:
                for task in self._tasks:
                    task.future.cancel()
                self._tasks.clear()
                if self._n_running:
                    self._changed.wait()
            self._is_awaited = False

    def shutdown(self) -> None:
        """Cancel queued tasks, wait for running ones, and end the threads."""
        with self._changed:
            self._closed = True
            threads = list(self._threads)
            for task in self._tasks:
                task.future.cancel()
            self._changed.notify_all()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        task = self._next_task(n_done=0)
        while task is not None:
            if task.future.set_running_or_notify_cancel():
                complete(task.future, task.call)
            del task  # so that the result's memory is not held while waiting for the next task
            task = self._next_task(n_done=1)

    def _next_task(self, n_done: int) -> _Task | None:
        """Wait for a task, after this thread has done `n_done`; None if the thread is to end."""
        with self._changed:
            self._n_running -= n_done
            if self._is_awaited:
                self._changed.notify_all()
            while True:
                if len(self._threads) > self._n_threads or (self._closed and not self._tasks):
                    # It is missing from the set if a signal came between its start and add().
                    self._threads.discard(threading.current_thread())
                    return None
                if self._tasks:
                    self._n_running += 1
                    return heapq.heappop(self._tasks)
                self._count_idle(1)
                self._changed.wait()
                self._count_idle(-1)


class _AtPriority(Executor):
    def __init__(self, pool: PriorityPool, priority: int) -> None:
        self._pool = pool
        self._priority = priority

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(self._priority, lambda: fn(*args, **kwargs))


def share_threads(threads: int, n_helpers: int) -> tuple[int, int]:
    """Return the number of threads of the pool, and of each process that helps it.

    Each samtools process that reads or writes concurrently gets a quarter of `threads`, at
    least one: the sum exceeds `threads` only if there are fewer threads than processes.
    """
    each = max(threads // 4, 1)
    return max(threads - n_helpers * each, 1), each


# --- tasks of a shared pool that wait for other tasks of it ---


def complete(future: Future[T], call: Callable[[], T]) -> None:
    """Set a future to the result of a call, or to the exception it raises."""
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class ReclaimableTask(Generic[T]):
    """A task that the thread that wants its result runs itself if no other has begun it.

    So a task may wait for another one of the same pool: it waits for running tasks only.
    """

    def __init__(self, executor: Executor, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._future = executor.submit(self._run)

    def _run(self) -> T:
        call, self._call = self._call, None  # the executor may keep a reclaimed task queued
        assert call is not None
        return call()

    def result(self) -> T:
        """Return the result of the call."""
        return self._run() if self._future.cancel() else self._future.result()

    def cancel(self) -> None:
        """Cancel the call, unless it has begun."""
        if self._future.cancel():
            self._call = None


def ordered_calls(
    calls: Iterable[Callable[[], T]], executor: Executor | None, ahead: int
) -> Iterator[T]:
    """Run calls as tasks of a shared pool; yield their results in order.

    An error of `calls` itself is raised after the results of the calls before it.

    Parameters
    ----------
    calls
        None of them may wait for a task.
    executor
        None: each call runs in this thread when its result is taken.
    ahead
        Calls that may be queued or running beyond the awaited one.
    """
    if executor is None:
        for call in calls:
            yield call()
        return
    begun: deque[ReclaimableTask[T]] = deque()
    failure = None
    remaining = iter(calls)
    try:
        while True:
            try:
                begun.append(ReclaimableTask(executor, next(remaining)))
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            if len(begun) > ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for task in begun:
            task.cancel()
    if failure is not None:
        raise failure


def fork_join(calls: Sequence[Callable[[], T]], executor: Executor | None) -> list[T]:
    """Run calls as tasks of a shared pool, with this thread's help; return the results in order.

    May itself run as a task of `executor`: this thread runs all calls that no other has begun,
    and so waits for running tasks only.

    Parameters
    ----------
    calls
        None of them may wait for a task.
    executor
        None: all calls run in this thread.
    """
    if executor is None:
        return [call() for call in calls]
    futures = [executor.submit(call) for call in calls[1:]]
    results = [call() for call in calls[:1]]
    own = {i: call() for i, call in reversed(list(enumerate(calls[1:]))) if futures[i].cancel()}
    return results + [own[i] if i in own else f.result() for i, f in enumerate(futures)]


# --- plain pools and single threads ---


@contextmanager
def thread_pool(n_threads: int, *, abandon: bool = False) -> Iterator[Executor]:
    """Start a pool for a block; an error or a signal in the block cancels queued tasks.

    With `abandon`, a signal does not wait for running tasks either.
    """
    pool = ThreadPoolExecutor(max(1, n_threads), thread_name_prefix="worker")
    waits = True
    try:
        yield pool
    except BaseException as error:
        waits = not abandon or isinstance(error, Exception)
        raise
    finally:
        pool.shutdown(waits, cancel_futures=True)


_KEPT: dict[int, ThreadPoolExecutor] = {}
_KEPT_LOCK = threading.Lock()


def kept_pool(n_threads: int) -> Executor:
    """Return the process's pool of `n_threads` threads, which is not to be shut down.

    Starting sixteen threads takes longer than some batches of pairs. Tasks of it must not wait
    for other tasks of it.
    """
    with _KEPT_LOCK:
        if n_threads not in _KEPT:
            _KEPT[n_threads] = ThreadPoolExecutor(n_threads, f"kept-{n_threads}")
        return _KEPT[n_threads]


_UNUSED: dict[int, list[ThreadPoolExecutor]] = {}
"""Pools for :func:`leased_pool`, by their number of threads."""


@contextmanager
def leased_pool(n_threads: int) -> Iterator[Executor]:
    """Lend a pool for a block, one that an earlier block used if there is one.

    No other block has it meanwhile. An error in the block cancels queued tasks and waits for
    running ones; a signal does not wait.
    """
    with _KEPT_LOCK:
        unused = _UNUSED.setdefault(n_threads, [])
        pool = unused.pop() if unused else ThreadPoolExecutor(n_threads, "leased")
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(isinstance(error, Exception), cancel_futures=True)
        raise
    with _KEPT_LOCK:
        _UNUSED.setdefault(n_threads, []).append(pool)


def _forget_kept_pools() -> None:
    """Drop the pools in a forked process, which has none of the threads."""
    global _KEPT_LOCK
    _KEPT_LOCK = threading.Lock()
    _KEPT.clear()
    _UNUSED.clear()


os.register_at_fork(after_in_child=_forget_kept_pools)


@contextmanager
def dedicated_thread() -> Iterator[Callable[[Callable[[], T]], T]]:
    """Start a thread for long compiled calls; yield a function that runs a call there and waits.

    Python handles signals in the main thread, between two bytecodes. A compiled function ends
    with some bytecodes, which make Python objects of its result, and numba does not check
    whether one of them raised: a KeyboardInterrupt there is a crash. A main thread that waits
    gets the signal at once instead; it is raised when the function has returned.
    """
    context = copy_context()
    # One thread for all calls: a signal during the start of a thread would not wait for it.
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(context.run, function).result()


def call_in_daemon(function: Callable[[], T]) -> T:
    """Run a function in a daemon thread and wait; a signal is raised at once.

    The function goes on then, and the process can end meanwhile: for C functions that release
    the GIL for minutes and touch nothing but memory.
    """
    future: Future[T] = Future()
    start_daemon(lambda: complete(future, function)).join()
    return future.result()


def start_daemon(function: Callable[[], None], name: str | None = None) -> threading.Thread:
    """Start a thread that does not keep the process alive; for loops that mostly wait."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    thread.start()
    return thread
