"""Time of the kernels of a pairwise call by events around each launch, in one stream.

A call uses several streams, whose kernels share the device and overlap; here there is one, with a
chunk as large as fits, so that the times add up to what the device works.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


class KernelTimes:
    """Launches with the events before and after, and pairs that came to the CPU."""

    def __init__(self) -> None:
        self._spans: list[tuple[str, Any, Any]] = []
        self.pairs_on_cpu = 0

    def note(self, name: str, stream: Any, launch: Callable[[], None]) -> None:
        """Launch, between two events."""
        from mapper.cuda.api import cuda

        first, last = cuda.event(), cuda.event()
        first.record(stream)
        launch()
        last.record(stream)
        self._spans.append((name, first, last))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each kernel."""
        found: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self.launches():
            found[name] += seconds
        return dict(found)

    def launches(self) -> list[tuple[str, float]]:
        """Return the kernel and the seconds of each launch, in their order."""
        found = []
        for name, first, last in self._spans:
            last.synchronize()
            found.append((name, first.elapsed_time(last) / 1000))
        return found


@contextmanager
def kernel_times() -> Iterator[KernelTimes]:
    """Time all kernels that are launched inside, by one thread."""
    from mapper.align import dispatch
    from mapper.align.cuda import stream
    from mapper.cuda.api import SIMULATED, Kernel
    from mapper.cuda.launch import BoundKernel, Calls

    times = KernelTimes()
    launch_blocks, launch_noted = Kernel.launch_blocks, Calls.launch
    run_on_devices = dispatch.run_on_devices

    def launched(kernel: Kernel, n_blocks: int, stream: Any, *args: Any, **options: Any) -> None:
        times.note(
            kernel.function.__name__, stream,
            lambda: launch_blocks(kernel, n_blocks, stream, *args, **options),
        )  # fmt: skip

    def launched_noted(calls: Calls, bound: BoundKernel, n_blocks: int, numbers: Any) -> None:
        if SIMULATED:  # it calls the other
            launch_noted(calls, bound, n_blocks, numbers)
            return

        def launch() -> None:
            launch_noted(calls, bound, n_blocks, numbers)
            calls.make()

        calls.make()  # what comes before it
        times.note(bound._kernel.function.__name__, calls.stream, launch)

    def counted(workers: Any, packed: Any, want_path: bool, on_cpu: Any) -> Any:
        def rescued(left: Any) -> Any:
            times.pairs_on_cpu += len(left.shift)
            return on_cpu(left)

        return run_on_devices(workers, packed, want_path, rescued)

    with (
        mock.patch.object(Kernel, "launch_blocks", launched),
        mock.patch.object(Calls, "launch", launched_noted),
        mock.patch.object(dispatch, "run_on_devices", counted),
        mock.patch.object(stream, "STREAMS", 1),
        mock.patch.object(stream, "CHUNKS_A_DEVICE", 1),
    ):
        yield times
