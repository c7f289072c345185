"""A pool of threads that serves urgent tasks first, and tasks that help each other.

A run has one pool, and whatever computes is a task of it: reading, decompressing, mapping,
encoding, compressing. Its size is therefore what the run takes of the machine. Reading is
serial where the format is (a gzip stream, the order of records), so it goes first:
otherwise its steps would queue behind batches, and the threads would run dry.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Generic, NamedTuple, TypeVar

from mapper.errors import ResourceError

READ, WRITE, MAP = range(3)
"""Priorities, the most urgent first: input feeds all, output frees memory."""

T = TypeVar("T")


class _Task(NamedTuple):
    priority: int
    number: int  # tasks of one priority run in the order in which they came
    future: Future[Any]
    call: Callable[[], Any]


class Workers:
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
        """Have so many threads: start some, or let some end when they have nothing to do."""
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
                        "fewer (-t), or raise the limits of processes and memory (ulimit -u, -v)"
                    ) from error
                self._threads.add(thread)
            self._changed.notify_all()

    def at(self, priority: int) -> Executor:
        """Return these workers as an executor whose tasks have that priority."""
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
        """Return for how long threads have had nothing to do, all together, up to now."""
        with self._changed:
            self._count_idle(0)
            return self._idle_seconds

    def _count_idle(self, change: int) -> None:
        """Add up, before so many threads more have nothing to do; the lock is held."""
        now = time.perf_counter()
        self._idle_seconds += self._n_idle * (now - self._idle_since)
        self._idle_since = now
        self._n_idle += change

    def cancel_all(self) -> None:
        """Cancel what has not begun, and wait for what has."""
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
        """Cancel what has not begun, wait for what has, and let the threads end."""
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
                run_into(task.future, task.call)
            del task  # nor the result's memory held while waiting for the next
            task = self._next_task(n_done=1)

    def _next_task(self, n_done: int) -> _Task | None:
        """Wait for a task, after `n_done` that this thread has done; None if it is to end."""
        with self._changed:
            self._n_running -= n_done
            if self._is_awaited:
                self._changed.notify_all()
            while True:
                if len(self._threads) > self._n_threads or (self._closed and not self._tasks):
                    # It is not among them where a signal came between its start and that.
                    self._threads.discard(threading.current_thread())
                    return None
                if self._tasks:
                    self._n_running += 1
                    return heapq.heappop(self._tasks)
                self._count_idle(1)
                self._changed.wait()
                self._count_idle(-1)


class _AtPriority(Executor):
    def __init__(self, workers: Workers, priority: int) -> None:
        self._workers = workers
        self._priority = priority

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._workers.submit(self._priority, lambda: fn(*args, **kwargs))


def share_threads(threads: int, n_helpers: int) -> tuple[int, int]:
    """Return how many threads the pool has, and each process that helps it.

    A quarter is for each samtools process that reads or writes beside the pool, and one at
    least: only with fewer threads than processes is the sum larger than `threads`.
    """
    each = max(threads // 4, 1)
    return max(threads - n_helpers * each, 1), each


def run_into(future: Future[T], call: Callable[[], T]) -> None:
    """Call, and let `future` have what comes of it."""
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class Handed(Generic[T]):
    """A call that is handed to an executor, and taken back when its result is wanted first.

    So whoever wants it waits for nothing but calls that are running.
    """

    def __init__(self, executor: Executor, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._future = executor.submit(self._run)

    def _run(self) -> T:
        call, self._call = self._call, None  # the executor may keep what was taken back
        assert call is not None
        return call()

    def result(self) -> T:
        """Return what comes of the call."""
        return self._run() if self._future.cancel() else self._future.result()

    def cancel(self) -> None:
        """Leave it out, unless it has begun."""
        if self._future.cancel():
            self._call = None


def in_turn(calls: Iterable[Callable[[], T]], executor: Executor | None, most: int) -> Iterator[T]:
    """Call all, up to `most` of them in other threads ahead of the one that is waited for.

    Results come in order, and so does an error of `calls` itself: after those of what came before.

    Parameters
    ----------
    calls
        None of them may wait for a task.
    executor
        None: each when its turn comes, in this thread.
    """
    if executor is None:
        for call in calls:
            yield call()
        return
    begun: deque[Handed[T]] = deque()
    failure = None
    left = iter(calls)
    try:
        while True:
            try:
                begun.append(Handed(executor, next(left)))
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            if len(begun) > most:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for handed in begun:
            handed.cancel()
    if failure is not None:
        raise failure


def do_all(calls: Sequence[Callable[[], T]], executor: Executor | None) -> list[T]:
    """Call all, some in other threads, and return the results in order.

    May itself run as a task of `executor`: whatever no other thread has begun, this one does,
    so that it waits for nothing but tasks that are running.

    Parameters
    ----------
    calls
        None of them may wait for a task.
    executor
        None: all in this thread.
    """
    if executor is None:
        return [call() for call in calls]
    futures = [executor.submit(call) for call in calls[1:]]
    results = [call() for call in calls[:1]]
    own = {i: call() for i, call in reversed(list(enumerate(calls[1:]))) if futures[i].cancel()}
    return results + [own[i] if i in own else f.result() for i, f in enumerate(futures)]
