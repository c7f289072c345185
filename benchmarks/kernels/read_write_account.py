"""Where the threads of reading and writing are: tasks, waits, the main thread, Python's lock.

    python -m benchmarks.kernels.read_write_account --threads 16 --copies 4 --data /dev/shm/account

Reads are made (a million pairs, `--copies` times over), read as gzip, as BGZF and as unaligned
BAM, and written as BAM, as `read_write` does it, in this process: without its start. For each
kind of task: how many there were, their time, and how much of that their thread computed (the
rest it waited: for Python's lock, a core, or other threads). A probe that sleeps for a
millisecond says how much later it comes to run, which is what any thread pays for the lock.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.kernels import read_write
from mapper.cli.main import set_up_process

MEMBERS = 16
READS_PER_MEMBER = 62_500


class Account:
    """Times by kind of task, filled in by many threads."""

    def __init__(self) -> None:
        self.rows: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.lock = threading.Lock()

    def timed(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with its time counted."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
                with self.lock:
                    row = self.rows[kind]
                    row[0], row[1], row[2] = row[0] + 1, row[1] + wall, row[2] + cpu

        return timed


class TimedPool(Executor):
    """An executor whose tasks are counted."""

    def __init__(self, account: Account, pool: Executor, kind: str) -> None:
        self._account, self._pool, self._kind = account, pool, kind

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        name = getattr(fn, "__name__", getattr(getattr(fn, "func", fn), "__name__", ""))
        return self._pool.submit(self._account.timed(f"{self._kind} {name}", fn), *args, **kwargs)


def make(directory: Path, copies: int) -> dict[str, list[Path]]:
    """Make the files; what is there already is kept."""
    directory.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[Path]] = {"gz": [], "bgz": []}
    with ProcessPoolExecutor() as processes:
        for mate in (1, 2):
            for kind in files:
                files[kind].append(directory / f"R{mate}.fq.{kind}")
            if files["bgz"][-1].exists():
                continue
            starts = range(0, MEMBERS * READS_PER_MEMBER, READS_PER_MEMBER)
            members = list(
                processes.map(
                    read_write.fastq_member, starts, [READS_PER_MEMBER] * MEMBERS, [mate] * MEMBERS
                )
            )
            blocks = list(processes.map(read_write.as_bgzf, members))
            read_write.write_whole(files["gz"][-1], members * copies)
            read_write.write_whole(files["bgz"][-1], blocks * copies)
    return files


def account(paths: Sequence[Path], out: Path, threads: int, n_reads: int, label: str) -> None:
    """Convert once, and print where the time went."""
    from mapper import cut_ahead, workers
    from mapper.io import atomic, raw_batch

    sums = Account()
    priorities = {workers.READ: "read", workers.WRITE: "write", workers.MAP: "map"}
    at, submit = workers.Workers.at, workers.Workers.submit

    def timed_at(self: workers.Workers, priority: int) -> TimedPool:
        return TimedPool(sums, at(self, priority), priorities[priority])

    def timed_submit(self: workers.Workers, priority: int, call: Callable[[], Any]) -> Future[Any]:
        return submit(self, priority, sums.timed("map", call) if priority == workers.MAP else call)

    patches = contextlib.ExitStack()
    patches.enter_context(mock.patch.object(workers.Workers, "at", timed_at))
    patches.enter_context(mock.patch.object(workers.Workers, "submit", timed_submit))
    for owner, name, kind in (
        (workers.Workers, "_next_task", "idle"),
        (atomic.OutputFile, "write", "main: write"),
        (raw_batch.BatchReader, "next_raw", "read cut"),
        (cut_ahead.CutAhead, "wait_or", "main: wait"),
    ):
        timed = sums.timed(kind, getattr(owner, name))
        patches.enter_context(mock.patch.object(owner, name, timed))
    late: list[float] = []
    stop = threading.Event()

    def probe() -> None:
        while not stop.is_set():
            start = time.perf_counter()
            time.sleep(0.001)
            late.append(time.perf_counter() - start - 0.001)

    prober = threading.Thread(target=probe)
    prober.start()
    start, cpu = time.perf_counter(), os.times()
    try:
        with patches:
            read_write.convert_fmwave([str(path) for path in paths], str(out), threads)
    finally:
        stop.set()
        prober.join()
    wall, after = time.perf_counter() - start, os.times()
    user, system = after.user - cpu.user, after.system - cpu.system
    late.sort()
    print(
        f"\n{label}: {n_reads / wall / 1e6:.2f} M reads/s, {wall:.2f} s; CPU {user:.2f} s user, "
        f"{system:.2f} s system = {(user + system) / wall:.1f} cores, "
        f"{1e6 * (user + system) / n_reads:.2f} µs a read\n"
        f"probe is late by {1e6 * late[len(late) // 2]:.0f} µs (median), "
        f"{1e6 * late[len(late) * 9 // 10]:.0f} (90 %), {1e6 * late[-1]:.0f} (most)"
    )
    for kind, (n, seconds, computed) in sorted(sums.rows.items()):
        print(
            f"{kind:>28} {n:8.0f} x {1e6 * seconds / n:9.1f} µs = {seconds:7.2f} s, "
            f"{computed:7.2f} s of it computing"
        )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    set_up_process()
    files = make(arguments.data, arguments.copies)
    n_reads = 2 * MEMBERS * READS_PER_MEMBER * arguments.copies
    out, unaligned = arguments.data / "out.bam", arguments.data / "u.bam"
    # Compiled code and page cache first.
    read_write.convert_fmwave([str(path) for path in files["bgz"]], str(unaligned), 2)
    read_write.convert_fmwave([str(unaligned)], str(out), 2)
    account(files["gz"], out, arguments.threads, n_reads, "FASTQ.gz")
    account(files["bgz"], unaligned, arguments.threads, n_reads, "FASTQ in BGZF")
    account([unaligned], out, arguments.threads, n_reads, "unaligned BAM")


if __name__ == "__main__":
    main()
