"""Counters and stage times of a run: the report at its end, the table of stages, and JSON."""

from __future__ import annotations

import importlib.metadata
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mapper import __version__
from mapper.host_memory import peak_bytes
from mapper.io.output_file import write_json
from mapper.pair.insert_size import MIN_PAIRS

T = TypeVar("T")

STAGES = (
    "inflate", "read", "wait", "pack", "seed", "chain", "extend", "rescue", "place", "records",
    "encode", "spill", "compress", "idle",
)  # fmt: skip
"""Stages in the order of the data flow; times are summed over threads. ``inflate``: decompressing
the input; with BGZF also the time in which its threads wait for each other. ``spill``: sorting
records for the temporary file and compressing them. ``compress``: compressing and writing the
output; of sorted records, all that follows mapping. ``wait``: streams of a device without reads.
The stages of a device, ``pack`` to ``rescue``, last until their results are back; in ``pack``
threads of the pool, too, copy reads to where a device fetches them. ``idle``: threads
of the pool without a task, because they wait for input, output or a device."""

ON_CPU = "reads_on_cpu"
"""Counter of reads that do not fit a device's memory, even alone."""

ORPHANS_MAPPED, ORPHANS_SKIPPED = "orphans_mapped", "orphans_skipped"
"""Counters of records of BAM, CRAM and SAM that are flagged paired and have no mate in the file."""


@dataclass
class RunStats:
    """Counts and times of a run, filled in by many threads."""

    started: float = field(default_factory=time.perf_counter)
    stage_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    stage_cpu_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    """CPU time of each stage; for the rest of its seconds, threads waited."""
    counts: dict[str, int] = field(default_factory=dict)
    start_seconds: float = 0.0
    """Time to copy the index to a device."""
    compile_seconds: float = 0.0
    wall_seconds: float = 0.0
    insert_size: dict[str, float | None] | None = None
    """What :func:`mapper.pair.insert_size.numbers_of` returned; None without pairs."""
    duplicates: dict[str, object] | None = None
    """Counts of marked duplicates, as samtools markdup names them."""
    n_starts: int = 0
    """Processes that were killed before this one went on."""
    writing_seconds: float = 0.0
    """Time after mapping in which sorted records are written."""
    _writing_since: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the block to a stage."""
        start, cpu_start = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            elapsed, cpu = time.perf_counter() - start, time.thread_time() - cpu_start
            with self._lock:
                self.stage_seconds[name] += elapsed
                self.stage_cpu_seconds[name] += cpu

    @contextmanager
    def idling(self, idle_seconds: Callable[[], float]) -> Iterator[None]:
        """Add to ``idle`` the increase of `idle_seconds()` during the block."""
        before = idle_seconds()
        yield
        self.stage_seconds["idle"] += idle_seconds() - before

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Add the time of the block to ``start_seconds``."""
        start = time.perf_counter()
        yield
        self.start_seconds += time.perf_counter() - start

    def timed(self, executor: Executor, name: str) -> Executor:
        """Return an executor that adds the times of its tasks to a stage; `executor` runs them."""
        return _TimedTasks(self, executor, name)

    def count(self, **increments: int) -> None:
        """Add to counters."""
        with self._lock:
            for name, increment in increments.items():
                self.counts[name] = self.counts.get(name, 0) + int(increment)

    def saved(self) -> dict[str, Any]:
        """Return counts and times as JSON values, from which another process goes on."""
        with self._lock:
            return {
                "counts": dict(self.counts),
                "seconds": dict(self.stage_seconds),
                "cpu_seconds": dict(self.stage_cpu_seconds),
                "start": self.start_seconds,
                "compile": self.compile_seconds,
                "wall": time.perf_counter() - self.started,
            }

    def add(self, saved: Mapping[str, Any]) -> None:
        """Add the counts and the stages' times that another process returned by :meth:`saved`."""
        self.count(**saved["counts"])
        with self._lock:
            for name in STAGES:
                self.stage_seconds[name] += saved["seconds"].get(name, 0.0)
                self.stage_cpu_seconds[name] += saved["cpu_seconds"].get(name, 0.0)

    def restore(self, saved: Mapping[str, Any], n_starts: int) -> None:
        """Add what an earlier process of the run, the `n_starts`-th, returned by :meth:`saved`."""
        self.add(saved)
        self.start_seconds += saved["start"]
        self.compile_seconds += saved["compile"]
        self.started -= saved["wall"]
        self.n_starts = n_starts

    def begin_writing(self) -> None:
        """Note that mapping has ended, and sorted records are written from now on."""
        self._writing_since = time.perf_counter()

    def finish(self) -> None:
        """Stop the clock."""
        now = time.perf_counter()
        self.wall_seconds = now - self.started
        if self._writing_since is not None:
            self.writing_seconds = now - self._writing_since

    def summary(self) -> dict[str, Any]:
        """Return counts and times as plain values, for JSON."""
        reads = self.counts.get("reads", 0)
        before = self.start_seconds + self.compile_seconds
        mapping = max(self.wall_seconds - before, 1e-9)
        return {
            "fmwave": __version__,
            **({"resumed": self.n_starts} if self.n_starts else {}),
            "versions": {"python": platform.python_version()}
            | {name: importlib.metadata.version(name) for name in ("numba", "numpy")},
            "counts": self.counts,
            "insert_size": self.insert_size,
            "duplicates": self.duplicates,
            "seconds": {
                "wall": round(self.wall_seconds, 3),
                "start": round(self.start_seconds, 3),
                "compile": round(self.compile_seconds, 3),
                "writing": round(self.writing_seconds, 3),
                "stages": {name: round(s, 3) for name, s in self.stage_seconds.items()},
                "stages_cpu": {name: round(s, 3) for name, s in self.stage_cpu_seconds.items()},
            },
            "reads_per_second": round(reads / mapping),
            "peak_memory_bytes": peak_bytes(),
        }

    def report(self) -> str:
        """Return counts, insert size and time as lines of text."""
        counts = self.counts
        reads = counts.get("reads", 0)
        mapped = counts.get("mapped", 0)
        lines = [f"{reads} reads, {mapped} mapped ({_percent(mapped, reads)})"]
        if counts.get("paired"):
            proper = counts.get("proper", 0)
            lines[0] += f", {proper} in proper pairs ({_percent(proper, reads)})"
        for counter, done in (
            (ORPHANS_MAPPED, "mapped as single reads"), (ORPHANS_SKIPPED, "left out"),
        ):  # fmt: skip
            if counts.get(counter):
                lines.append(f"{counts[counter]} reads of pairs have no mate in the file: {done}")
        if counts.get(ON_CPU):
            lines.append(f"{counts[ON_CPU]} reads did not fit a device: the CPU mapped them")
        if self.insert_size:
            lines.append(_insert_size_line(self.insert_size))
        summary = self.summary()
        lines.append(
            f"{self.wall_seconds:.1f} s in all, {self._before()}; "
            f"{summary['reads_per_second']} reads/s; "
            f"peak memory {summary['peak_memory_bytes'] / 1e9:.2f} GB"
        )
        return "\n".join(lines)

    def stage_table(self) -> str:
        """Return the times of the stages as lines of text."""
        reads = max(self.counts.get("reads", 0), 1)
        total = sum(self.stage_seconds.values())
        lines = [f"{'stage':>10} {'thread s':>9} {'share':>6} {'µs/read':>8} {'CPU µs':>7}"]
        for name, seconds in self.stage_seconds.items():
            lines.append(
                f"{name:>10} {seconds:9.2f} {_percent(seconds, total):>6} "
                f"{1e6 * seconds / reads:8.2f} "
                f"{1e6 * self.stage_cpu_seconds[name] / reads:7.2f}"
            )
        return "\n".join(lines)

    def _before(self) -> str:
        """Return the times before mapping, in words."""
        compiling = f"{self.compile_seconds:.1f} s of it compiling"
        if not self.start_seconds:
            return compiling
        return f"{self.start_seconds:.1f} s of it bringing the index to the device, {compiling}"

    def write_json(self, path: str) -> None:
        """Write the summary; the file appears when complete. ``-`` is standard output."""
        write_json(path, self.summary())


class _TimedTasks(Executor):
    def __init__(self, stats: RunStats, executor: Executor, name: str) -> None:
        self._stats, self._executor, self._name = stats, executor, name

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        def task() -> T:
            with self._stats.stage(self._name):
                return fn(*args, **kwargs)

        return self._executor.submit(task)


def _insert_size_line(size: Mapping[str, float | None]) -> str:
    mean, std, proper = size["mean"], size["std"], f"from {size['low']} to {size['high']}"
    if mean is None:
        needed = f"which takes {MIN_PAIRS} confident pairs"
        return f"insert size not estimated, {needed}: any {proper} is proper"
    source = f"{size['pairs']} pairs" if size["pairs"] else "given"
    return f"insert size {mean:.1f} ± {std:.1f}, proper {proper} ({source})"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"
