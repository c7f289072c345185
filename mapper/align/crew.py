"""Threads that are kept from call to call: starting sixteen takes longer than some batches do."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

_CREWS: dict[int, ThreadPoolExecutor] = {}
_LOCK = threading.Lock()


def crew(threads: int) -> ThreadPoolExecutor:
    """Return the process's pool of so many threads; it is not to be shut down.

    What runs in it must end without help of anything else that is to run in it.
    """
    with _LOCK:
        if threads not in _CREWS:
            _CREWS[threads] = ThreadPoolExecutor(threads, f"pairs-of-{threads}")
        return _CREWS[threads]


def _forget() -> None:
    """Begin anew in a forked process, which has none of the threads."""
    global _LOCK
    _LOCK = threading.Lock()
    _CREWS.clear()


os.register_at_fork(after_in_child=_forget)
