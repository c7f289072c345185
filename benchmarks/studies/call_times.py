"""How long calls take, by kind, whichever thread makes them and wherever they are nested."""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any


class Row:
    """Sums of one kind of call: in seconds, by the clock and as the thread computed."""

    def __init__(self) -> None:
        self.n = 0
        self.wall = self.cpu = 0.0
        self.own_wall = self.own_cpu = 0.0  # without the timed calls inside
        self.first, self.last = float("inf"), 0.0  # begin of the first, end of the last


class Account:
    """Times by kind of call, filled in by many threads; calls may be inside each other."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = defaultdict(Row)
        self._lock = threading.Lock()
        self._of_thread: Any = threading.local()

    def timed(self, kind: str | Callable[..., str], call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with its time counted; its kind may depend on its arguments."""

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            name = kind if isinstance(kind, str) else kind(*args, **kwargs)
            inside = getattr(self._of_thread, "inside", None)
            self._of_thread.inside = mine = [0.0, 0.0]
            start, start_cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                cpu, end = time.thread_time() - start_cpu, time.perf_counter()
                self._of_thread.inside = inside
                if inside is not None:
                    inside[0] += end - start
                    inside[1] += cpu
                with self._lock:
                    row = self.rows[name]
                    row.n += 1
                    row.wall += end - start
                    row.cpu += cpu
                    row.own_wall += end - start - mine[0]
                    row.own_cpu += cpu - mine[1]
                    row.first, row.last = min(row.first, start), max(row.last, end)

        return timed
