"""Measure the host time of a kernel launch by numba-cuda, cuda.core, mapper.cuda and a graph.

    python -m benchmarks.studies.launch_cost      (needs a GPU; five seconds)

An empty kernel with ten arrays and a number is launched twelve times on one stream, as a chunk of
pairs is. The question was whether ``cuda.core`` can replace the launches of
``mapper/cuda/launch.py``. Prints a table in Markdown; results: benchmarks/results/house_on_gpu.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import cuda.core as core  # type: ignore[import-untyped]
import numpy as np

from mapper.cuda.api import cuda, cuda_driver, kernel
from mapper.cuda.launch import BoundKernel, Calls
from mapper.cuda.memory import Workspace

N_ARRAYS, LAUNCHES, ROUNDS, REPEATS = 10, 12, 200, 7


@kernel(128)
def _touch(a, b, c, d, e, f, g, h, i, j, n):
    k = cuda.grid(1)
    if k < n:
        a[k] = b[k]


def microseconds(launch_all: Callable[[], object]) -> float:
    """Return the median host time of one launch, when `launch_all` makes LAUNCHES of them."""
    launch_all()
    cuda.synchronize()
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(ROUNDS):
            launch_all()
        found.append((time.perf_counter() - start) / ROUNDS / LAUNCHES * 1e6)
        cuda.synchronize()
    return statistics.median(found)


def ways() -> dict[str, Callable[[], object]]:
    """Return functions that launch LAUNCHES kernels, by the name of the way."""
    stream: Any = cuda.stream()
    workspace = Workspace(stream=stream)
    arrays = [workspace.device(f"array {i}", 1000, np.int32) for i in range(N_ARRAYS)]
    numbas = [cuda.device_array(1000, np.int32) for _ in range(N_ARRAYS)]
    bound = [BoundKernel(_touch, stream, *arrays, 5) for _ in range(LAUNCHES)]
    calls = Calls(stream)

    def noted() -> None:
        for each in bound:
            calls.launch(each, 1, {N_ARRAYS: 5})
        calls.make()

    core.Device().set_current()
    core_stream = core.Stream.from_handle(int(cuda_driver._stream_handle(stream)))
    core_kernel = core.Kernel.from_handle(bound[0]._function.handle)
    config = core.LaunchConfig(grid=1, block=128)
    words = [int(word) for word in bound[0]._words]
    builder = core_stream.create_graph_builder()
    builder.begin_building()
    for _ in range(LAUNCHES):
        core.launch(builder, config, core_kernel, *words)
    graph = builder.end_building().complete()
    compiled = _touch.compiled
    return {
        "the launch of numba-cuda": repeated(lambda: compiled[1, 128, stream](*numbas, 5)),
        "`cuda.core.launch`, arguments as words": repeated(
            lambda: core.launch(core_stream, config, core_kernel, *words)
        ),
        "`cuda.core` graph of the twelve, captured once": lambda: graph.launch(core_stream),
        "`Kernel.launch_blocks`": repeated(lambda: _touch.launch_blocks(1, stream, *arrays, 5)),
        "`BoundKernel.launch`": repeated(lambda: bound[0].launch(1, {N_ARRAYS: 5})),
        "`Calls`: twelve noted, made by one compiled call": noted,
    }


def repeated(launch: Callable[[], object]) -> Callable[[], object]:
    """Return a function that makes LAUNCHES launches."""

    def launch_all() -> None:
        for _ in range(LAUNCHES):
            launch()

    return launch_all


def main() -> None:
    print("| way | µs of host time a launch |\n| --- | --- |")
    for name, launch_all in ways().items():
        print(f"| {name} | {microseconds(launch_all):.2f} |", flush=True)


if __name__ == "__main__":
    main()
