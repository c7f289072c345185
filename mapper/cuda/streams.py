"""Streams of high priority, and the order of work between streams."""

from __future__ import annotations

from typing import Any

from mapper.cuda.api import SIMULATED, cuda, cuda_driver


def priority_stream() -> Any:
    """Return a stream of the highest priority on the current device.

    Blocks of its kernels are the next to run when a block of another kernel ends. The stream
    exists as long as the process: keep it for reuse.
    """
    if SIMULATED:
        return cuda.stream()
    # numba-cuda wraps the driver's functions by name; its own streams have the lowest priority.
    _, highest = cuda_driver.driver.cuCtxGetStreamPriorityRange()
    return cuda.external_stream(int(cuda_driver.driver.cuStreamCreateWithPriority(0, highest)))


def wait_for(stream: Any, other: Any, event: Any) -> None:
    """Make later work of a stream wait for all work that is queued on another.

    `event` is an event of the current device (``cuda.event()``) and can be reused.
    """
    event.record(other)
    event.wait(stream)
