"""Profiling hooks of the streamed pass, for benchmarks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from mapper.cuda.api import cuda
from mapper.cuda.launch import Calls


class Trace:
    """Seconds by kind of work, on the host (of the thread that queues) and on the device."""

    def __init__(self) -> None:
        self.host: dict[str, float] = defaultdict(float)
        self._marks: dict[int, list[tuple[str, Any]]] = defaultdict(list)

    def mark(self, stream: Any, name: str) -> None:
        """Label the work queued on a stream since the previous mark."""
        event = cuda.event()
        event.record(stream)
        self._marks[id(stream)].append((name, event))

    def device(self) -> dict[str, float]:
        """Return the seconds by label, summed over all streams, which overlap."""
        seconds: dict[str, float] = defaultdict(float)
        for marks in self._marks.values():
            for (_, before), (name, event) in pairwise(marks):
                event.synchronize()
                seconds[name] += before.elapsed_time(event) / 1000
        return dict(seconds)


_trace: Trace | None = None


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace the work inside, of one thread."""
    global _trace
    _trace = Trace()
    try:
        yield _trace
    finally:
        _trace = None


def mark(calls: Calls, name: str) -> None:
    """Label the calls noted for a stream (:meth:`Trace.mark`), if there is a trace."""
    if _trace is not None:
        calls.make()
        _trace.mark(calls.stream, name)


@contextmanager
def host_time(name: str) -> Iterator[None]:
    """Count the time inside as `name`, if there is a trace."""
    if _trace is None:
        yield
        return
    trace, begin = _trace, time.perf_counter()
    try:
        yield
    finally:
        trace.host[name] += time.perf_counter() - begin
