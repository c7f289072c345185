"""Where the time of a first pass goes, for those who ask: benchmarks."""

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
    """Seconds by what was done, on the host (of the one thread that queues) and on the device."""

    def __init__(self) -> None:
        self.host: dict[str, float] = defaultdict(float)
        self._marks: dict[int, list[tuple[str, Any]]] = defaultdict(list)

    def mark(self, stream: Any, name: str) -> None:
        """Note that what was queued on a stream since the mark before is `name`."""
        event = cuda.event()
        event.record(stream)
        self._marks[id(stream)].append((name, event))

    def device(self) -> dict[str, float]:
        """Return the seconds of all streams together; they overlap."""
        seconds: dict[str, float] = defaultdict(float)
        for marks in self._marks.values():
            for (_, before), (name, event) in pairwise(marks):
                event.synchronize()
                seconds[name] += before.elapsed_time(event) / 1000
        return dict(seconds)


_trace: Trace | None = None


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace what is done inside, by one thread."""
    global _trace
    _trace = Trace()
    try:
        yield _trace
    finally:
        _trace = None


def mark(calls: Calls, name: str) -> None:
    """As :meth:`Trace.mark` of what has been noted for a stream, if anything is traced."""
    if _trace is not None:
        calls.make()
        _trace.mark(calls.stream, name)


@contextmanager
def host_time(name: str) -> Iterator[None]:
    """Count what is done inside as `name`, if anything is traced."""
    if _trace is None:
        yield
        return
    trace, begin = _trace, time.perf_counter()
    try:
        yield
    finally:
        trace.host[name] += time.perf_counter() - begin
