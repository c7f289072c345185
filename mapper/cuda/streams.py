"""Streams whose kernels go before those of others, and the order between streams."""

from __future__ import annotations

from typing import Any

from mapper.cuda.api import SIMULATED, cuda, cuda_driver


def urgent_stream() -> Any:
    """Return a stream of the current device that has the highest priority.

    Blocks of its kernels are the next to run wherever a block of another kernel ends. It
    exists as long as the process: keep it for use again.
    """
    if SIMULATED:
        return cuda.stream()
    # numba-cuda wraps the driver's functions by name; its own streams have the lowest priority.
    _, highest = cuda_driver.driver.cuCtxGetStreamPriorityRange()
    return cuda.external_stream(int(cuda_driver.driver.cuStreamCreateWithPriority(0, highest)))


def wait_for(stream: Any, other: Any, event: Any) -> None:
    """Let what will be queued on a stream wait for all that is queued on another.

    `event` is one of the current device, ``cuda.event()``, and can be used again.
    """
    event.record(other)
    event.wait(stream)
