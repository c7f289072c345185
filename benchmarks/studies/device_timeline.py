"""Measure what a device does during a run: which kernels, how many at a time, and where it waits.

    python -m benchmarks.studies.device_timeline run -- fmwave map --device cuda REF.fmw R1 R2 ...
    python -m benchmarks.studies.device_timeline read TRACE.tsv [--stream N]

`run` builds cupti_trace.cpp (g++, and CUPTI of the CUDA toolkit), has the command load it, and
reads its trace, which takes a few per cent of a run's time. The summary is of the middle of the
run, by batches: shares of the time in which there was a kernel of fmwave's, of another library's
(nvCOMP), a copy; kernels by the sum of their times; how many kernels of fmwave's ran at a time; and
how long each stream was busy. With ``--stream`` each of the stream's calls in one batch, in order:
when, after what gap, and how long.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common.harness import BenchmarkError

SOURCE = Path(__file__).with_name("cupti_trace.cpp")
LAST_KERNEL = "encode_records"
"""Of a batch."""

MIDDLE = 0.3, 0.85
"""The part of a run, between its first batch and its last, that the summary is of."""

COPIES = {1: "to the device", 2: "to the host"}


class Call(NamedTuple):
    """A kernel or a copy; times in nanoseconds."""

    start: int
    end: int
    stream: int
    size: int  # blocks or bytes
    name: str
    is_kernel: bool
    is_own: bool  # a kernel of fmwave's


def plain_name(mangled: str) -> str:
    """Return module and function of a kernel that numba has compiled; other names as they are."""
    parts = []
    rest = mangled.removeprefix("_ZN")
    while found := re.match(r"\d+", rest):
        end = found.end() + int(found.group())
        parts.append(rest[found.end() : end])
        rest = rest[end:]
    return ".".join(parts[-2:]) if parts else mangled


def calls_of(lines: Iterable[str]) -> list[Call]:
    """Parse a trace; calls in the order of their starts."""
    calls = []
    for line in lines:
        kind, start, end, stream, size, what = line.rstrip("\n").split("\t")
        is_kernel = kind == "kernel"
        name = plain_name(what) if is_kernel else f"copy {COPIES.get(int(what), 'elsewhere')}"
        is_own = is_kernel and what.startswith("_ZN6mapper")
        calls.append(Call(int(start), int(end), int(stream), int(size), name, is_kernel, is_own))
    return sorted(calls)


def busy(calls: Iterable[Call]) -> int:
    """Return how long at least one of the calls lasted; they are in order."""
    total = until = 0
    for call in calls:
        total += max(0, call.end - max(call.start, until))
        until = max(until, call.end)
    return total


def at_a_time(calls: Sequence[Call], start: int, end: int) -> Counter[int]:
    """Return how long how many of the calls ran at a time."""
    changes = [(call.start, 1) for call in calls] + [(min(call.end, end), -1) for call in calls]
    lasted: Counter[int] = Counter()
    n, at = 0, start
    for when, change in sorted(changes):
        lasted[n] += when - at
        n, at = n + change, when
    lasted[n] += end - at
    return lasted


def summary(calls: Sequence[Call]) -> list[str]:
    """Return the lines that say what the device did in the middle of the run."""
    batches = [call for call in calls if LAST_KERNEL in call.name]
    if len(batches) < 4:
        raise BenchmarkError(f"{len(batches)} batches in the trace: too few to have a middle")
    first, last = batches[0].start, batches[-1].end
    start, end = (first + int(share * (last - first)) for share in MIDDLE)
    calls = [call for call in calls if start <= call.start < end]
    span = end - start
    own = [call for call in calls if call.is_own]
    shares = {
        "kernels of fmwave": own,
        "other kernels": [call for call in calls if call.is_kernel and not call.is_own],
        **{f"copies {way}": [c for c in calls if c.name == f"copy {way}"]
           for way in COPIES.values()},
    }  # fmt: skip
    n_batches = sum(start <= call.start < end for call in batches)
    lines = [f"{span / 1e9:.2f} s, {n_batches} batches"]
    lines += [f"{name}: {busy(of) / span:.3f} of the time" for name, of in shares.items()]
    lasted = at_a_time(own, start, end)
    lines.append(
        "kernels of fmwave at a time: "
        + ", ".join(f"{n}: {lasted[n] / span:.3f}" for n in sorted(lasted))
    )
    by_name: defaultdict[str, list[Call]] = defaultdict(list)
    by_stream: defaultdict[int, list[Call]] = defaultdict(list)
    for call in calls:
        by_name[call.name].append(call)
        by_stream[call.stream].append(call)
    lines += ["", "| kernel or copy | calls | sum, of the time | mean, us | longest, ms |"]
    lines += ["|---|---|---|---|---|"]
    sums = {name: sum(call.end - call.start for call in of) for name, of in by_name.items()}
    for name in sorted(sums, key=lambda name: -sums[name]):
        of = by_name[name]
        longest = max(call.end - call.start for call in of)
        lines.append(
            f"| {name} | {len(of)} | {sums[name] / span:.3f} | {sums[name] / len(of) / 1e3:.1f} "
            f"| {longest / 1e6:.2f} |"
        )
    lines.append("")
    lines += [
        f"stream {stream}: kernels or copies {busy(of) / span:.3f} of the time"
        for stream, of in sorted(by_stream.items())
    ]
    return lines


def batch_of(calls: Sequence[Call], stream: int) -> list[str]:
    """Return a line for each call of a stream, in a batch of the middle of the run."""
    calls = [call for call in calls if call.stream == stream]
    ends = [i for i, call in enumerate(calls) if LAST_KERNEL in call.name]
    if len(ends) < 2:
        raise BenchmarkError(f"stream {stream} has no whole batch")
    middle = len(ends) // 2
    lines = []
    until = calls[ends[middle - 1]].end
    for call in calls[ends[middle - 1] + 1 : ends[middle] + 1]:
        lines.append(
            f"{(call.start - calls[0].start) / 1e6:10.2f} ms, "
            f"gap {(call.start - until) / 1e6:7.3f} ms, "
            f"lasts {(call.end - call.start) / 1e6:7.3f} ms: {call.name} ({call.size})"
        )
        until = max(until, call.end)
    return lines


def traced(command: Sequence[str], cuda: Path, trace: Path) -> None:
    """Run a command; have the device's calls written to `trace`."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "trace.so")
        target = cuda / "targets" / "x86_64-linux"
        subprocess.run(
            ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", f"-I{target / 'include'}", str(SOURCE),
             f"-L{target / 'lib'}", "-lcupti", f"-Wl,-rpath,{target / 'lib'}", "-o", str(library)],
            check=True,
        )  # fmt: skip
        names = {"CUDA_INJECTION64_PATH": str(library), "DEVICE_TRACE": str(trace)}
        subprocess.run(command, check=True, env={**os.environ, **names})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or read, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    run = commands.add_parser("run")
    run.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"), help="[%(default)s]")
    run.add_argument("--trace", type=Path, default=Path("device_trace.tsv"), help="[%(default)s]")
    run.add_argument("command", nargs="+")
    read = commands.add_parser("read")
    read.add_argument("trace", type=Path)
    for command in (run, read):
        command.add_argument("--stream", type=int, help="list a batch of this stream")
    options = parser.parse_args(arguments)
    try:
        if options.what == "run":
            traced(options.command, options.cuda, options.trace)
        with options.trace.open() as lines:
            calls = calls_of(lines)
        found = summary(calls) if options.stream is None else batch_of(calls, options.stream)
    except (BenchmarkError, OSError, subprocess.CalledProcessError) as error:
        print(f"device_timeline: {error}", file=sys.stderr)
        return 1
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
