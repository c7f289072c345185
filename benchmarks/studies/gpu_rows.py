"""Mapping with what each row of the table of GPUs gives: device memory, cores, host memory.

    python -m benchmarks.studies.gpu_rows rows 3.1G --work DIR [--pairs 2000000]
    python -m benchmarks.studies.gpu_rows jobs 3.1G --work DIR [--pairs 2000000]

`rows` makes a genome and reads (common/whole_genome_data.py), indexes it as the row says, and maps
with the row's batches, cores and memory. Another process holds the rest of the device's memory, and
fmwave is told that so many share the device as would leave it the row's memory, or a little more; a
cgroup limits the host's where the system lets this program make one, and else the table says that
it was not limited. Rows of more memory than the device has are left out and named. The records of
all rows have to be the same. `jobs` lets 1, 2 and 4 jobs share the device, each with its part of
the cores, without MPS and with it. Both write their tables to standard output; results:
benchmarks/results/gpu_rows.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common import harness, whole_genome_data
from benchmarks.common.harness import BenchmarkError, Measurement
from benchmarks.common.map_runs import fmwave, gpus, records_digest, run
from benchmarks.common.time_limit import device_peak
from mapper.cli.sizes import size
from mapper.cuda.gpu_table import Row, read_table

OF_A_RUN = ("memory_gb", "sa_sampling", "batch_bases", "host_cores", "host_memory_gb")
"""Columns that a run depends on: rows that have these alike are run once."""

AS_SOLD = 0.97  # of the memory that the row names, the part that drivers report
SNAKEMAKE_GB = 0.5  # of the host memory, Snakemake's own process of the job
JOBS = (1, 2, 4)
JOBS_SAMPLING = 4  # an index of which four copies fit into 80 GB

HOLD = """
import sys
from numba import cuda
free, _ = cuda.current_context().get_memory_info()
kept = [cuda.device_array(max(1, free - int(sys.argv[1])), "u1")]
print(cuda.current_context().get_memory_info()[0], flush=True)
sys.stdin.read()
"""


@contextmanager
def memory_left(n_bytes: int) -> Iterator[float]:
    """Hold the device's memory but for ``n_bytes``; yield the GB that are free."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(n_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        free = holder.stdout.readline()
        try:
            if not free:
                raise BenchmarkError("the process that holds device memory has failed")
            yield int(free) / 1e9
        finally:
            holder.stdin.close()


class HostMemory:
    """A cgroup, of either version, that limits memory; ``works`` says if one could be made."""

    def __init__(self) -> None:
        top = Path("/sys/fs/cgroup")
        self.first_version = (top / "memory").is_dir()
        self.folder = (top / "memory" if self.first_version else top) / "fmwave-rows"
        self.works = True
        try:
            self.folder.mkdir(exist_ok=True)
            self.limit(1 << 40)
        except OSError:
            self.works = False

    def limit(self, n_bytes: int) -> None:
        name = "memory.limit_in_bytes" if self.first_version else "memory.max"
        (self.folder / name).write_text(str(n_bytes))

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` within the limit."""
        if not self.works:
            return list(command)
        enter = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]


def reads_of(options: argparse.Namespace) -> list[Path]:
    """Make genome and reads where they are not there; return the reads."""
    if not (options.work / whole_genome_data.MADE).exists():
        arguments = [str(options.genome), str(options.work), "--pairs", str(options.pairs)]
        whole_genome_data.main([*arguments, "--bgzf"])
    return [options.work / f"reads_{mate}.fq.gz" for mate in (1, 2)]


def index_of(options: argparse.Namespace, sampling: int) -> Path:
    """Return the index with such a sampling; the one before it is deleted."""
    index = options.work / f"p{sampling}.fmw"
    if not index.exists():
        for other in options.work.glob("p*.fmw"):
            shutil.rmtree(other) if other.is_dir() else other.unlink()
        fasta = options.work / "genome.fa"
        run(fmwave("index", fasta, "-o", index, "-p", sampling), options.work / "index.log")
    return index


def map_command(
    options: argparse.Namespace, cores: Sequence[int], sampling: int, out: Path, batch_bases: int,
    *more: object,
) -> list[str]:  # fmt: skip
    """Return the command of a job on some cores, as workflow/rules/map.smk gives it."""
    command = fmwave(
        "map", index_of(options, sampling), *reads_of(options), "-o", out, "-t", len(cores),
        "--device", "cuda:any", "--batch-bases", batch_bases, *more,
    )  # fmt: skip
    return ["taskset", "-c", ",".join(map(str, cores)), *command]


def measured(command: Sequence[str], log: Path) -> Measurement:
    """Run to the end, whatever its status; a failure's last lines go to standard error."""
    cost = harness.measure(command, log)
    if cost.exit_status:
        print(f"{' '.join(command)}:\n{harness.tail(log, 8)}", file=sys.stderr)
    return cost


def different_rows(table: dict[str, Row]) -> dict[str, tuple[int, ...]]:
    """Return what a run depends on, by the names of the rows that have it alike."""
    names: dict[tuple[int, ...], list[str]] = {}
    for name, row in table.items():
        names.setdefault(tuple(row[column] for column in OF_A_RUN), []).append(name)
    return {", ".join(rows): values for values, rows in names.items()}


def rows(options: argparse.Namespace) -> int:
    """Map with each row; status 1 if one failed or its records differ."""
    from mapper.cuda.memory import total_bytes

    have = total_bytes()
    host = HostMemory()
    cores = sorted(os.sched_getaffinity(0))
    reads_of(options)
    lines, left_out, digests, failed = [], [], set(), False
    ways = different_rows(read_table())
    for names, values in sorted(ways.items(), key=lambda way: (way[1][1], way[1][0])):
        memory_gb, sampling, batch_bases, n_cores, host_gb = values
        if memory_gb * 1e9 * AS_SOLD > have:
            left_out.append(names)
            continue
        index = index_of(options, sampling)
        out = options.work / "rows.bam"
        if host.works:
            host.limit(int((host_gb - SNAKEMAKE_GB) * 1e9))
        with memory_left(int(memory_gb * 1e9 * AS_SOLD)) as free_gb, device_peak() as peak:
            command = map_command(
                options, cores[:n_cores], sampling, out, batch_bases,
                "--jobs-per-device", max(1, int(have // (memory_gb * 1e9 * AS_SOLD))),
            )  # fmt: skip
            cost = measured(host.command(command), options.work / "rows.log")
        digest = records_digest(out) if cost.exit_status == 0 else "none"
        digests.add(digest)
        failed |= cost.exit_status != 0
        held_gb = have / 1e9 - free_gb
        lines.append(
            [names, f"{free_gb:.1f}", str(sampling), f"{size_of(index) / 1e9:.1f}",
             f"{batch_bases / 1e6:.0f} M", str(n_cores), f"{host_gb}",
             f"{peak.get('mb', 0) / 1000 - held_gb:.1f}", f"{cost.peak_rss_mb / 1000:.1f}",
             f"{cost.wall_s:.1f}" if cost.exit_status == 0 else f"failed ({cost.exit_status})",
             digest[:8]]
        )  # fmt: skip
        print(lines[-1], file=sys.stderr, flush=True)
    titles = [
        "row", "device GB free", "p", "index, GB", "batch, bases", "cores", "host GB",
        "most on the device, GB", "most on the host, GB", "wall, s", "records, MD5",
    ]  # fmt: skip
    report(options, harness.table(titles, lines))
    limited = "limited by a cgroup" if host.works else "**not limited**: no cgroup could be made"
    print(f"Host memory was {limited}. Left out, the device being smaller: {left_out or 'none'}.")
    return int(failed or len(digests) != 1)


def jobs(options: argparse.Namespace) -> int:
    """Let jobs share the device, without MPS and with it."""
    cores = sorted(os.sched_getaffinity(0))
    index_of(options, JOBS_SAMPLING)
    lines, failed = [], False
    for round_number in range(options.rounds):
        for mps in (False, True):
            for n_jobs in JOBS:
                seconds, statuses = together(options, cores, n_jobs, mps=mps)
                failed |= any(statuses)
                rate = 2 * options.pairs * n_jobs / seconds / 1e6
                lines.append(
                    [str(round_number + 1), "MPS" if mps else "none", str(n_jobs),
                     str(len(cores) // n_jobs), f"{seconds:.2f}", f"{rate:.2f}", str(statuses)]
                )  # fmt: skip
                print(lines[-1], file=sys.stderr, flush=True)
    titles = ["round", "sharing", "jobs", "cores of each", "s", "M reads/s of all", "status"]
    report(options, harness.table(titles, lines))
    return int(failed)


def together(
    options: argparse.Namespace, cores: Sequence[int], n_jobs: int, *, mps: bool
) -> tuple[float, list[int]]:
    """Run jobs at once; return the seconds until the last has ended, and the exit statuses."""
    each = len(cores) // n_jobs
    with mps_server() if mps else tempfile.TemporaryDirectory() as folder:
        environment = os.environ | ({"CUDA_MPS_PIPE_DIRECTORY": folder} if mps else {})
        began = time.perf_counter()
        started = []
        for job in range(n_jobs):
            command = map_command(
                options, cores[job * each : (job + 1) * each], JOBS_SAMPLING,
                options.work / f"job{job}.bam", 60_000_000 // n_jobs,
                "--jobs-per-device", n_jobs,
            )  # fmt: skip
            with (options.work / f"job{job}.log").open("wb") as log:
                started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        statuses = [process.wait() for process in started]
        return time.perf_counter() - began, statuses


@contextmanager
def mps_server() -> Iterator[str]:
    """Start NVIDIA's MPS for this user; yield the folder of its pipes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder
        }  # fmt: skip
        control = ["nvidia-cuda-mps-control"]
        subprocess.run([*control, "-d"], env=environment, check=True)
        try:
            yield folder
        finally:
            subprocess.run(control, env=environment, input=b"quit\n", check=False)


def size_of(index: Path) -> int:
    """Return the bytes of an index, a folder or a file."""
    files = [path for path in index.rglob("*") if path.is_file()] if index.is_dir() else [index]
    return sum(path.stat().st_size for path in files)


def report(options: argparse.Namespace, table: list[str]) -> None:
    print(", ".join(gpus()))
    print(f"{options.genome:,} bases, {2 * options.pairs:,} reads of 150 bases in pairs")
    print("\n".join(table))


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("genome", type=size)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=1, help="of `jobs` [%(default)s]")
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    return options


main = harness.reports_errors(
    harness.subcommands(
        __doc__,
        {"rows": lambda words: rows(parsed(words)), "jobs": lambda words: jobs(parsed(words))},
    )
)

if __name__ == "__main__":
    sys.exit(main(None))
