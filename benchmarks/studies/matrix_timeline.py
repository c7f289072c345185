"""Print when each step of an all-against-all matrix alignment begins and ends.

    python -m benchmarks.studies.matrix_timeline [--sequences 1000] [--device cuda:0] [--path]

One call on the set of ``align_matrix``, the third, so that all is compiled and allocated. A line
for each step of the host (milliseconds from the call's begin, how long, which thread), and for
each kernel as the device saw it (from an event at the call's begin). Then the sums.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

from benchmarks.align_matrix import TASKS, make_set, seconds


class Recorder:
    """Begin, seconds, thread and name of steps; events of kernels."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float, str, str]] = []
        self.kernels: list[tuple[str, Any, Any]] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which now notes when it is called."""

        def call(*args: Any, **more: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                end = time.perf_counter()
                self.steps.append((begin, end - begin, threading.current_thread().name, name))

        return call

    def launched(self, launch: Callable[..., None]) -> Callable[..., None]:
        """Return the launch of a kernel, with an event before and behind it."""
        from mapper.cuda.api import cuda

        def call(kernel: Any, n_blocks: int, stream: Any, *args: Any, **more: Any) -> None:
            before, behind = cuda.event(), cuda.event()
            before.record(stream)
            launch(kernel, n_blocks, stream, *args, **more)
            behind.record(stream)
            self.kernels.append((f"{kernel.function.__name__} ({n_blocks})", before, behind))

        return call


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sequences", type=int, default=1000, help="[%(default)s]")
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]")
    parser.add_argument("--span", default="global", help="[%(default)s]")
    parser.add_argument("--path", action="store_true", help="with CIGARs")
    options = parser.parse_args(arguments)
    from mapper.align.matrix import api, cuda_engine, engine
    from mapper.align.matrix import cuda_engine as matrix_device
    from mapper.cuda.api import Kernel, cuda
    from mapper.cuda.memory import Workspace

    alphabet, scoring = TASKS["protein, BLOSUM62, 10 + n"]
    sequences = make_set(options.sequences, alphabet)
    how = {**scoring, "span": options.span, "cigar": options.path}
    for _ in range(3):
        print(f"without notes: {1e3 * seconds(sequences, options.device, **how)[0]:.1f} ms")
    recorder = Recorder()
    places = [
        (api, "check_scoring"), (api, "MatrixEngine"), (api, "_coded"),
        (api, "_next_window"), (api, "_pairs"), (engine, "choose_device"),
        (cuda_engine, "plan_query_pairs"), (cuda_engine, "plan_batch"),
        (cuda_engine.Launcher, "fill"), (matrix_device.MatrixWorker, "align"),
        (matrix_device, "codes_on_device"), (matrix_device, "without_memory"),
        (matrix_device, "_columns"), (Workspace, "upload_joined"), (Workspace, "device"),
        (Workspace, "download_results"), (Workspace, "synchronize"),
        (Kernel, "launch_blocks"),
    ]  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(Kernel, "launch_blocks", recorder.launched(Kernel.launch_blocks))
        )
        for owner, name in places:
            wrapped = recorder.timed(name, getattr(owner, name))
            if isinstance(owner, type):
                wrapped = _method(wrapped)
            stack.enter_context(mock.patch.object(owner, name, wrapped))
        first = cuda.event()
        cuda.synchronize()
        begin = time.perf_counter()
        first.record()
        wall, _ = seconds(sequences, options.device, **how)
    cuda.synchronize()
    print(f"with notes: {1e3 * wall:.1f} ms")
    lines = [(b - begin, s, thread, name) for b, s, thread, name in recorder.steps]
    sums: defaultdict[str, float] = defaultdict(float)
    busy = []
    for name, before, behind in recorder.kernels:
        at, end = (1e-3 * first.elapsed_time(event) for event in (before, behind))
        lines.append((at, end - at, "DEVICE", name))
        busy.append((at, end))
    for at, taken, thread, name in sorted(lines):
        print(f"{1e3 * at:8.2f} {1e3 * taken:8.2f}  {thread:12} {name}")
        sums[name.partition(" ")[0]] += taken
    print(*(f"{name}: {1e3 * s:.2f}" for name, s in sums.items()), sep="; ")
    idle, until = 0.0, 0.0
    for at, end in sorted(busy):
        idle += max(0.0, at - until)
        until = max(until, end)
    print(f"device without a kernel: {1e3 * (idle + wall - until):.2f} ms of {1e3 * wall:.2f}")
    return 0


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **more: function(self, *args, **more)


if __name__ == "__main__":
    sys.exit(main())
