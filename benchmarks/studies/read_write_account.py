"""Where the threads of reading and writing are: the main thread, each serial chain, each task.

    python -m benchmarks.studies.read_write_account --threads 16 --copies 4 --data /dev/shm/account

Reads are made (a million pairs, `--copies` times over), read as gzip, as BGZF and as unaligned
BAM, and written as BAM, as `read_write` does it, in this process: without its start. First
`--rounds` times as it is, then once with clocks in it, which cost some percent. Printed are

- what the main thread does, which nobody else can do at that time;
- the chains of which each link waits for the one before: no number of threads makes the run
  faster than the slowest of them. Computing alone is what remains if nothing is waited for, and
  the rate that would allow; its time beside that went for the GIL or a core;
- the tasks, and what of each is compiled code that runs without the GIL. All other
  computing holds the lock, one thread at a time: it is a chain, too;
- a probe that sleeps for a millisecond, and how much later it comes to run: what any thread pays
  for the lock.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import io as read_write
from benchmarks.common import convert
from benchmarks.studies.call_times import Account, Row
from mapper.cli.main import set_up_process
from mapper.params import BATCH_BASES

MEMBERS = 16
READS_PER_MEMBER = 62_500

UNLOCKED = "without the lock: "
MAIN, WRITE, BEGIN = "main thread", UNLOCKED + "write to the file", "begin steps of "
CUT = ("task: cut", "cut", "get bytes to cut", UNLOCKED + "find the end of a batch")
WAITS = ("main: wait for a batch", "main: wait for a task", "task: wait for another", "idle")


class TimedPool(Executor):
    """An executor whose tasks are counted."""

    def __init__(self, account: Account, pool: Executor) -> None:
        self._account, self._pool = account, pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        name = getattr(fn, "__name__", getattr(getattr(fn, "func", fn), "__name__", "")).strip("_")
        return self._pool.submit(self._account.timed(f"task: {name}", fn), *args, **kwargs)


class TimedStream:
    """A gzip stream whose inflating is counted."""

    def __init__(self, account: Account, stream: Any) -> None:
        self.readinto = account.timed(UNLOCKED + "inflate gzip", stream.readinto)
        self.close = stream.close


@contextlib.contextmanager
def clocks(sums: Account) -> Iterator[None]:
    """Put clocks into what is imported."""
    from mapper.io import (
        bam_reader,
        bam_writer,
        batch_reader,
        bgzf,
        bgzf_reader,
        fastq,
        input_buffer,
        input_file,
        input_tags,
        output_file,
    )
    from mapper.io import fastq as fastq_parse
    from mapper.mapping import prefetch
    from mapper.parallel import pool as workers

    main = threading.main_thread()
    at, submit, gzip_stream = (
        workers.PriorityPool.at,
        workers.PriorityPool.submit,
        input_file._gzip_stream,
    )

    def timed_submit(
        self: workers.PriorityPool, priority: int, call: Callable[[], Any]
    ) -> Future[Any]:
        if priority == workers.MAP:
            call = sums.timed("task: parse, encode", call)
        elif getattr(call, "__name__", "") == "_cut_on":
            call = sums.timed(CUT[0], call)
        return submit(self, priority, call)

    def begins(file: Any, *_: Any, **__: Any) -> str:
        return f"{BEGIN}{Path(file.name).name}"

    def waiting(*_: Any) -> str:
        return WAITS[1] if threading.current_thread() is main else WAITS[2]

    with contextlib.ExitStack() as stack:
        for owner, name, changed in (
            (workers.PriorityPool, "at", lambda self, p: TimedPool(sums, at(self, p))),
            (workers.PriorityPool, "submit", timed_submit),
            (input_file, "_gzip_stream", lambda raw: TimedStream(sums, gzip_stream(raw))),
        ):
            stack.enter_context(mock.patch.object(owner, name, changed))
        parts: tuple[tuple[Any, str, Any], ...] = (
            (prefetch.BatchPrefetcher, "wait_or", WAITS[0]),
            (Future, "result", waiting),
            (workers.PriorityPool, "_next_task", WAITS[3]),
            (batch_reader.BatchReader, "next_raw", CUT[1]),
            (input_buffer.InputBuffer, "_begin_step", begins),
            (input_buffer.InputBuffer, "_do_part", "do a part of a step"),
            (input_buffer.InputBuffer, "unread", CUT[2]),
            (bgzf.BgzfWriter, "append", "main: hand out blocks"),
            (output_file.OutputFile, "write", WRITE),
            (input_file._WithHead, "readinto", UNLOCKED + "read the file"),
            (bgzf, "_fill_blocks", UNLOCKED + "deflate"),
            (bgzf_reader, "_decompress_compiled", UNLOCKED + "inflate blocks"),
            (bgzf_reader, "find_blocks", UNLOCKED + "find blocks"),
            (bam_writer, "_fill_bam", UNLOCKED + "encode"),
            (bam_writer, "_fill_offsets", UNLOCKED + "encode"),
            (input_tags, "_merge_tags", UNLOCKED + "merge tags"),
            (fastq_parse, "fill_batch", UNLOCKED + "parse"),
            (bam_reader, "fill_batch", UNLOCKED + "parse"),
            (fastq, "whole_records", CUT[3]),
            (bam_reader, "whole_reads", CUT[3]),
        )
        for owner, name, kind in parts:
            timed = sums.timed(kind, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, timed))
        yield


def make(directory: Path, copies: int) -> dict[str, list[Path]]:
    """Make the files; what is there already is kept."""
    from mapper.io.bgzf import EOF_BLOCK

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
            read_write.write_whole(files["bgz"][-1], [*blocks * copies, EOF_BLOCK])
    return files


def plain_rates(call: Callable[[], None], out: Path, n_reads: int, rounds: int) -> list[float]:
    """Convert some times as it is; return the reads a second."""
    rates = []
    for _ in range(rounds):
        out.unlink(missing_ok=True)  # to give an old file's memory back takes time, too
        start = time.perf_counter()
        call()
        rates.append(n_reads / (time.perf_counter() - start))
    return rates


def account(
    paths: Sequence[Path], out: Path, threads: int, batch_bases: int, n_reads: int, rounds: int,
    label: str,
) -> None:  # fmt: skip
    """Convert some times, then once with clocks; print where the time went."""

    def convert_all() -> None:
        convert.convert_fmwave([str(path) for path in paths], str(out), threads, batch_bases)

    rates = plain_rates(convert_all, out, n_reads, rounds)
    sums = Account()
    late: list[float] = []
    stop = threading.Event()

    def probe() -> None:
        while not stop.is_set():
            start = time.perf_counter()
            time.sleep(0.001)
            late.append(time.perf_counter() - start - 0.001)

    out.unlink(missing_ok=True)
    prober = threading.Thread(target=probe)
    prober.start()
    start, cpu = time.perf_counter(), os.times()
    try:
        with clocks(sums):
            sums.timed(MAIN, convert_all)()
    finally:
        stop.set()
        prober.join()
    wall, after = time.perf_counter() - start, os.times()
    user, system = after.user - cpu.user, after.system - cpu.system
    if rates:
        print(
            f"\n{label}: {statistics.median(rates) / 1e6:.2f} M reads/s "
            f"({min(rates) / 1e6:.2f} to {max(rates) / 1e6:.2f}, {rounds} rounds)"
        )
    print(
        f"\n{label}, with clocks: {n_reads / wall / 1e6:.2f} M reads/s, {wall:.2f} s; CPU "
        f"{user:.2f} s user, {system:.2f} s system = {(user + system) / wall:.1f} cores, "
        f"{1e6 * (user + system) / n_reads:.2f} µs a read"
    )
    print_main_thread(sums.rows, start, wall)
    print_chains(sums.rows, n_reads, wall)
    print_tasks(sums.rows, threads, wall)
    late.sort()
    print(
        f"  probe late by {1e6 * late[len(late) // 2]:.0f} µs (median), "
        f"{1e6 * late[len(late) * 9 // 10]:.0f} (90 %), {1e6 * late[-1]:.0f} (most)"
    )


def print_main_thread(rows: dict[str, Row], start: float, wall: float) -> None:
    """Print what the main thread did, and when the first and last things came out."""
    print("  main thread, share of its time:")
    spent = {kind: rows[kind].wall for kind in (*WAITS[:2], WRITE)}
    for kind, seconds in spent.items():
        print(f"{100 * seconds / wall:8.1f} %  {kind.removeprefix(UNLOCKED)}, {rows[kind].n} times")
    rest = wall - sum(spent.values())
    print(f"{100 * rest / wall:8.1f} %  the rest, begin and end of the run included")
    ends = {"first batch cut": rows[CUT[0]].first, "last batch cut": rows[CUT[0]].last}
    ends |= {"first blocks written": rows[WRITE].first, "last written": rows[WRITE].last}
    print("  " + ", ".join(f"{what} at {t - start:.3f} s" for what, t in ends.items()))


def print_chains(rows: dict[str, Row], n_reads: int, wall: float) -> None:
    """Print each serial chain: time a read, and what it alone would allow."""
    waited = sum(rows[kind].wall for kind in WAITS[:2])
    times = {"main thread, but for its waits": (rows[MAIN].wall - waited, rows[MAIN].cpu)}
    times["cuts, but for waiting for bytes"] = (
        sum(rows[kind].own_wall for kind in CUT if kind != CUT[2]) + rows[CUT[2]].own_cpu,
        sum(rows[kind].own_cpu for kind in CUT),
    )
    for kind in sorted(rows):
        if kind.startswith(BEGIN):
            times[kind] = (rows[kind].wall, rows[kind].cpu)
    locked = sum(row.own_cpu for kind, row in rows.items() if not kind.startswith(UNLOCKED))
    times["the GIL, at most"] = (locked, locked)
    print("  serial chains:      ns a read, of these computing, share of the run, alone M reads/s")
    for name, (seconds, computing) in times.items():
        print(
            f"    {name:35} {1e9 * seconds / n_reads:7.1f} {1e9 * computing / n_reads:7.1f} "
            f"{100 * seconds / wall:7.1f} % {n_reads / computing / 1e6:8.1f}"
        )


def print_tasks(rows: dict[str, Row], threads: int, wall: float) -> None:
    """Print the workers' idle time, each kind of task, and the compiled code in them."""
    idle = rows[WAITS[3]].wall / (threads * wall)
    print(f"  {threads} workers, idle {100 * idle:.1f} % of their time")
    print("  calls, inner ones apart:         times     µs each   seconds, of these computing")
    for kind, row in sorted(rows.items()):
        if kind not in (MAIN, WAITS[3]):
            print(
                f"    {kind:42} {row.n:6d} {1e6 * row.own_wall / row.n:10.1f} "
                f"{row.own_wall:8.2f} {row.own_cpu:8.2f}"
            )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-bases", type=int, nargs="+", default=[BATCH_BASES])
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    set_up_process()
    files = make(arguments.data, arguments.copies)
    n_reads = 2 * MEMBERS * READS_PER_MEMBER * arguments.copies
    out, unaligned = arguments.data / "out.bam", arguments.data / "u.bam"
    # Compiled code and page cache first.
    convert.convert_fmwave([str(path) for path in files["bgz"]], str(unaligned), 2)
    convert.convert_fmwave([str(unaligned)], str(out), 2)
    for batch_bases in arguments.batch_bases:
        for paths, target, label in (
            (files["gz"], out, "FASTQ.gz"),
            (files["bgz"], unaligned, "FASTQ in BGZF"),
            ([unaligned], out, "unaligned BAM"),
        ):
            account(
                paths, target, arguments.threads, batch_bases, n_reads, arguments.rounds,
                f"{label}, batches of {batch_bases / 1e6:g} M bases",
            )  # fmt: skip


if __name__ == "__main__":
    main()
