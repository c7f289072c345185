"""Steps of a long benchmark, each a process that is measured and ended at a time limit."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common import harness
from benchmarks.common.harness import BenchmarkError


class OutOfTimeError(Exception):
    """The time limit has come; the message names the step that it met."""


class Steps:
    """Run processes one after another, within a time limit for all.

    Parameters
    ----------
    limit_s
        Seconds from now; None for no limit.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.started = time.monotonic()
        self.limit_s = limit_s
        self.rows: list[dict[str, Any]] = []
        """What each process took, in order."""

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def left(self) -> float | None:
        """Return the seconds until the limit."""
        return None if self.limit_s is None else self.limit_s - self.elapsed()

    def run(
        self, name: str, command: Sequence[str | Path], log: Path, stdout: Path | None = None
    ) -> dict[str, Any]:
        """Run a process to its end and measure it.

        Raises
        ------
        OutOfTimeError
            If the limit comes first; the process is ended.
        BenchmarkError
            If it fails; with the end of its log.
        """
        left = self.left()
        if left is not None and left <= 0:
            raise OutOfTimeError(f"{name}: not begun, {self.elapsed():.0f} s had passed")
        self.say(f"{name} ...")
        with device_peak() as device:
            cost = harness.measure(command, log, stdout, limit_s=left)
        if cost.ended_at_limit:
            raise OutOfTimeError(f"{name}: ended after {cost.wall_s:.0f} s")
        if cost.exit_status:
            raise BenchmarkError(f"{' '.join(map(str, command))}:\n{harness.tail(log, 15)}")
        row = {
            "step": name, "wall_s": cost.wall_s, "cpu_s": cost.cpu_s,
            "peak_rss_mb": cost.peak_rss_mb, "device_peak_mb": device.get("mb"),
        }  # fmt: skip
        self.rows.append(row)
        self.say(f"{name}: {cost.wall_s:.1f} s, {cost.peak_rss_mb / 1000:.2f} GB")
        return row

    def say(self, what: str) -> None:
        print(f"[{self.elapsed():6.1f} s] {what}", flush=True)

    def table(self) -> list[str]:
        """Return what the processes took as a markdown table."""
        return harness.table(
            ["step", "wall, s", "CPU, s", "peak memory, GB", "device memory, GB"],
            [
                [
                    row["step"], f"{row['wall_s']:.1f}", f"{row['cpu_s']:.1f}",
                    f"{row['peak_rss_mb'] / 1000:.2f}",
                    "–" if row["device_peak_mb"] is None else f"{row['device_peak_mb'] / 1000:.1f}",
                ]
                for row in self.rows
            ],
        )  # fmt: skip


@contextmanager
def device_peak() -> Iterator[dict[str, float]]:
    """Look at the memory in use on the busiest device every second; ``mb`` is the most seen.

    MB = 10^6 bytes. Nothing is returned where nvidia-smi is not there.
    """
    seen: dict[str, float] = {}
    if shutil.which("nvidia-smi") is None:
        yield seen
        return
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1):
            run = subprocess.run(query, capture_output=True, text=True, check=False)
            if run.returncode == 0:
                used = max(float(line) for line in run.stdout.split()) * 1.048576
                seen["mb"] = max(seen.get("mb", 0.0), used)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()
