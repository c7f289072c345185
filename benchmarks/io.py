r"""Reading and writing without mapping: conversion, levels of BGZF, a reference FASTA.

    python -m benchmarks.io convert --reads 4000000 --threads 2 --cores 2 --rounds 3
    python -m benchmarks.io convert --reads 24000000 --threads 16 --rounds 2 \
        --batch-bases 12000000 --tools fmwave samtools --data /dev/shm/read_write
    python -m benchmarks.io levels FILE.bam [FILE.bam ...]
    python -m benchmarks.io fasta REF.fa REF.fa.gz ... [--threads 1 2 4] [--rounds 3]

``convert``: FASTQ.gz → BAM and unaligned BAM → BAM. fmwave's readers and writers are driven as
`mapper.mapping.pipeline` drives them (common/convert.py); every read leaves as an unmapped record.
Beside it, on the same files and in the same rounds: samtools (`import`, `view`; the program, or
pysam's where there is none) and pysam (a loop over records). All write BAM at level 1; fmwave's is
made by ISA-L, the others' by zlib or libdeflate. The outputs are compared. The data are made
first, in `--data`. One thread at a time can inflate a gzip file, so two files of mates in plain
gzip are bounded by two threads' inflating; with many threads it is BGZF and BAM that show what
reading and writing can do. Results: io_convert_tTHREADS_cCORES.{md,json}.

``levels``: speed and size of each level of BGZF compression, one thread, on the records of a BAM
file, by CPU time, best of the rounds. Levels 0 to 3 are ISA-L's, 4 to 9 zlib's; `htslib` is what
pysam writes at its level 1 and at its default, 6. With `--libdeflate` (and the package `deflate`,
which fmwave does not need) also some levels of libdeflate, and inflating.
Results: io_levels.{md,json}.

``fasta``: reading a reference, by threads and compression. Each reading is a process of its own,
from the file (in the page cache) to the text in memory, codes and MD5 of all contigs; time and CPU
are from within, without the start and with code that is compiled. All must give the same text and
the same contigs; exit status 1 if they do not. Results: io_fasta.{md,json}.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pysam
from isal import igzip, isal_zlib

from benchmarks.common import harness
from mapper.cli.main import set_up_process
from mapper.io.bgzf import BLOCK_BYTES, MAX_LEVEL, Compress, compressor
from mapper.params import BATCH_BASES

# --- conversion ---


READ_LEN = 150
QUALITIES = np.frombuffer(b"#,:F", np.uint8)
READS_PER_MEMBER = 250_000


def fastq_member(start: int, n_reads: int, mate: int) -> bytes:
    """Return reads as a current Illumina instrument gives them, as one gzip member.

    Four qualities, long names; level 4, as BCL Convert's files have about that ratio.
    """
    rng = np.random.default_rng((100 + mate, start))
    parts = []
    for first in range(start, start + n_reads, 10_000):
        n = min(10_000, start + n_reads - first)
        bases = np.frombuffer(b"ACGT", np.uint8)[rng.integers(0, 4, (n, READ_LEN))]
        quals = QUALITIES[rng.choice(4, (n, READ_LEN), p=[0.01, 0.03, 0.06, 0.9])]
        for i in range(n):
            number = first + i
            name = b"A00111:123:HXXXXDSXX:%d:%d:%d:%d %d:N:0:ACGTACGT+TTGCATTG" % (
                1 + number % 4, 1101 + number // 5000, number * 7919 % 32000,
                number * 104729 % 37000, mate,
            )  # fmt: skip
            parts.append(b"@%b\n%b\n+\n%b\n" % (name, bases[i].tobytes(), quals[i].tobytes()))
    return gzip.compress(b"".join(parts), 4)


def as_bgzf(member: bytes) -> bytes:
    """Return the data of a gzip member as BGZF blocks of zlib's level 6, as bgzip makes them."""
    from mapper.io.bgzf import compress_blocks, deflater

    return compress_blocks(memoryview(zlib.decompress(member, 31)), deflater(6))


def make_fastq(n_pairs: int, gz: Sequence[Path], bgzf: Sequence[Path], n_processes: int) -> None:
    """Write two files of mates, as gzip of several members and as BGZF."""
    from mapper.io.bgzf import EOF_BLOCK

    starts = range(0, n_pairs, READS_PER_MEMBER)
    sizes = [min(READS_PER_MEMBER, n_pairs - start) for start in starts]
    with ProcessPoolExecutor(n_processes) as pool:
        for mate, (plain, blocked) in enumerate(zip(gz, bgzf, strict=True), 1):
            members = list(pool.map(fastq_member, starts, sizes, [mate] * len(sizes)))
            write_whole(plain, members)
            write_whole(blocked, [*pool.map(as_bgzf, members), EOF_BLOCK])


def write_whole(path: Path, parts: Sequence[bytes]) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(b"".join(parts))
    part.rename(path)


# ------------------------------------------------------------------ what runs in a process


def convert_pysam(paths: list[str], out: str, threads: int) -> None:
    """The same by pysam, a record at a time."""
    import pysam

    level = ["level=1"]
    if len(paths) == 1:
        with (
            pysam.AlignmentFile(paths[0], check_sq=False, threads=threads) as given,
            pysam.AlignmentFile(
                out, "wb", template=given, threads=threads, format_options=level
            ) as bam,
        ):
            for record in given.fetch(until_eof=True):
                bam.write(record)
        return
    header = {"HD": {"VN": "1.6"}}
    with (
        pysam.FastxFile(paths[0]) as first,
        pysam.FastxFile(paths[1]) as second,
        pysam.AlignmentFile(out, "wb", header=header, threads=threads, format_options=level) as bam,
    ):
        for pair in zip(first, second, strict=True):
            for read, flag in zip(pair, (77, 141), strict=True):
                record = pysam.AlignedSegment(bam.header)
                record.query_name, record.flag = read.name, flag
                record.query_sequence = read.sequence
                record.query_qualities = pysam.qualitystring_to_array(read.quality or "")
                bam.write(record)


# ------------------------------------------------------------------------------- measuring


def samtools(command: str, *arguments: str | Path) -> list[str]:
    """Return the command line of samtools, the program or else pysam's."""
    words = [str(argument) for argument in arguments]
    if shutil.which("samtools"):
        return ["samtools", command, *words]
    name = "fqimport" if command == "import" else command  # as pysam calls it
    code = f"import sys, pysam; pysam.{name}(*sys.argv[1:], catch_stdout=False)"
    return [sys.executable, "-c", code, *words]


def command(tool: str, paths: list[Path], out: Path, threads: int, batch_bases: int) -> list[str]:
    """Return the command line of a tool; `threads` counts all of its threads."""
    files = [str(path) for path in paths]
    if tool == "samtools":
        level = ["-O", "bam,level=1", "-@", str(threads - 1), "-o", str(out)]
        if len(files) == 2:
            return samtools("import", *level, "-1", files[0], "-2", files[1])
        return samtools("view", "--no-PG", *level, files[0])
    if tool == "fmwave":
        return [sys.executable, "-m", "benchmarks.common.convert", str(threads), str(batch_bases),
                str(out), *files]  # fmt: skip
    return [sys.executable, "-m", "benchmarks.io", "convert", "--child", tool, "--threads",
            str(threads), "--out", str(out), *files]  # fmt: skip


def compare(outs: dict[str, Path]) -> str:
    """Return a word if the outputs hold the same records, raise if not.

    Their bytes are compared first. pysam's have another `bin`; then all is that a user sees.
    """
    with ThreadPoolExecutor() as pool:
        if len(set(pool.map(digest_bytes, outs.values()))) == 1:
            return "the same bytes"
        digests = dict(zip(outs, pool.map(digest, outs.values()), strict=True))
    if len(set(digests.values())) != 1:
        raise harness.BenchmarkError(f"the outputs differ: {digests}")
    return "the same names, flags, bases, qualities and tags"


def digest_bytes(bam: Path) -> str:
    """Return a digest of the records of a BAM file without contigs."""
    total = hashlib.sha256()
    with igzip.open(bam, "rb") as file:
        magic, text_bytes = struct.unpack("<4si", file.read(8))
        file.read(text_bytes)
        if magic != b"BAM\1" or file.read(4) != bytes(4):
            raise harness.BenchmarkError(f"{bam}: no BAM file without contigs")
        while data := file.read(1 << 20):
            total.update(data)
    return total.hexdigest()


def digest(bam: Path) -> str:
    """Return a digest of name, flag, bases, qualities and tags of every record, in order."""
    total = hashlib.sha256()
    with subprocess.Popen(samtools("view", bam), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            fields = line.rstrip(b"\n").split(b"\t")
            total.update(b"\t".join([fields[0], fields[1], *fields[9:11], *sorted(fields[11:])]))
    if process.returncode:
        raise harness.BenchmarkError(f"samtools view {bam} failed")
    return total.hexdigest()


def run(arguments: argparse.Namespace) -> None:
    """Make the data, run every tool in every round, compare, report."""
    directory = arguments.data
    directory.mkdir(parents=True, exist_ok=True)
    pairs = arguments.reads // 2
    cores = sorted(os.sched_getaffinity(0))
    gz, bgzf, tiny, tiny_bgzf = (
        [directory / f"rw_{n}_R{mate}.{kind}" for mate in (1, 2)]
        for n, kind in ((pairs, "fq.gz"), (pairs, "fq.bgz"), (1, "fq.gz"), (1, "fq.bgz"))
    )
    for n, files, blocked in ((pairs, gz, bgzf), (1, tiny, tiny_bgzf)):
        if not all(path.exists() for path in (*files, *blocked)):
            print(f"making {', '.join(str(path) for path in (*files, *blocked))}")
            # In a process of its own: what this one has taken would count as its children's peak.
            subprocess.run(
                [sys.executable, "-m", "benchmarks.io", "convert", "--child", "make",
                 "--reads", str(n), *files, *blocked], check=True,
            )  # fmt: skip
    ubam = directory / f"rw_{pairs}.u.bam"
    if not ubam.exists():
        part = ubam.with_suffix(".part")
        subprocess.run(
            samtools(
                "import", "-1", gz[0], "-2", gz[1], "--barcode-tag", "BC", "-i", "-r", "ID:a",
                "-O", "bam,level=6", "-@", str(len(cores)), "-o", part,
            ), check=True,
        )  # fmt: skip
        part.rename(ubam)
    # From here on, of this process and all that it starts.
    os.sched_setaffinity(0, cores[: arguments.cores or len(cores)])

    tools = tuple(arguments.tools)
    tasks = {"FASTQ.gz → BAM": gz, "FASTQ in BGZF → BAM": bgzf, "unaligned BAM → BAM": [ubam]}
    rows, report, same = [], {}, {}
    for task, paths in tasks.items():
        costs: dict[str, list[harness.Measurement]] = {tool: [] for tool in tools}
        outs = {tool: directory / f"rw_out.{tool}.bam" for tool in tools}
        log = directory / "rw.log"
        # Compiled code and page cache first; not measured.
        sizes = arguments.threads, arguments.batch_bases
        harness.measure(command("fmwave", paths, outs["fmwave"], *sizes), log)
        starts: dict[str, list[float]] = {tool: [] for tool in tools}
        for number in range(arguments.rounds):
            for tool in tools[number % len(tools) :] + tools[: number % len(tools)]:
                start = harness.measure(command(tool, tiny, outs[tool], *sizes), log)
                starts[tool].append(start.wall_s)
                # To give the memory of an old file back is no part of writing a new one.
                outs[tool].unlink()
                cost = harness.measure(command(tool, paths, outs[tool], *sizes), log)
                if cost.exit_status:
                    raise harness.BenchmarkError(f"{tool}: {harness.tail(log)}")
                costs[tool].append(cost)
        same[task] = compare(outs)
        for tool in tools:
            walls = [cost.wall_s for cost in costs[tool]]
            wall, start_s = statistics.median(walls), statistics.median(starts[tool])
            rows.append([
                task, tool, f"{wall:.2f} ({min(walls):.2f}–{max(walls):.2f})",
                f"{start_s:.2f}", f"{2 * pairs / wall / 1e6:.2f}",
                f"{2 * pairs / (wall - start_s) / 1e6:.2f}",
                f"{statistics.median(cost.cpu_s for cost in costs[tool]):.2f}",
                f"{max(cost.peak_rss_mb for cost in costs[tool]):.0f}",
                f"{outs[tool].stat().st_size / 1e6:.0f}",
            ])  # fmt: skip
            report[f"{task}, {tool}"] = {
                "runs": [cost.__dict__ for cost in costs[tool]], "start_s": starts[tool]
            }  # fmt: skip
    about = harness.provenance({})
    about["versions"] = {"samtools": samtools_version(), **python_versions()}
    n_cores = len(os.sched_getaffinity(0))
    lines = [
        f"# Reading and writing without mapping: {2 * pairs} reads of {READ_LEN} bases, "
        f"{arguments.threads} threads on {n_cores} cores, batches of "
        f"{arguments.batch_bases / 1e6:g} M bases", "", *harness.markdown_provenance(about),
        f"Median (range) of {arguments.rounds} rounds, whole processes; their start is the time "
        "for a pair of reads; compiled code comes from the cache. fmwave's threads are all that "
        "compute; its convert thread waits and writes. The records of the tools: "
        + "; ".join(f"{task}, {word}" for task, word in same.items()) + ".",
        "",
        *harness.table(
            ["task", "tool", "wall s", "start s", "M reads/s", "M reads/s after start", "CPU s",
             "peak MB", "output MB"], rows,
        ),
    ]  # fmt: skip
    print("\n".join(lines))
    harness.write_results(
        arguments.results, f"io_convert_t{arguments.threads}_c{n_cores}",
        {"about": about, "runs": report}, lines,
    )  # fmt: skip


def samtools_version() -> str:
    if shutil.which("samtools"):
        done = subprocess.run(["samtools", "--version"], capture_output=True, check=True)
        return done.stdout.split()[1].decode()
    import pysam

    return f"{pysam.__samtools_version__} (pysam's)"


def python_versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("pysam", "isal", "numba", "numpy")}


@harness.reports_errors
def convert(arguments_given: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reads", type=int, default=1_000_000, help="reads in all, in pairs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cores", type=int, help="use so many of the cores (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--batch-bases", type=int, default=BATCH_BASES,
        help="fmwave's; with a GPU its default is DEVICE_BATCH_BASES (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--tools", nargs="+", choices=("fmwave", "samtools", "pysam"),
        default=["fmwave", "samtools", "pysam"],
    )  # fmt: skip
    parser.add_argument("--data", type=Path, default=harness.DATA)
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    parser.add_argument("--child", choices=("pysam", "make"), help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args(arguments_given)
    if arguments.child == "make":
        paths = [Path(path) for path in arguments.paths]
        make_fastq(arguments.reads, paths[:2], paths[2:], len(os.sched_getaffinity(0)))
        return 0
    if arguments.child:
        set_up_process()
        convert_pysam(arguments.paths, arguments.out, arguments.threads)
        return 0
    run(arguments)
    return 0


# --- levels of BGZF compression ---


N_BLOCKS = 400


def plain_start(path: Path, n_bytes: int) -> memoryview:
    """Return the first plain bytes of a BAM file."""
    with igzip.open(path, "rb") as file:
        return memoryview(file.read(n_bytes))


def best_of(rounds: int, call: Callable[[], int]) -> tuple[float, int]:
    """Return the least CPU time of some calls, and the size that they give."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        size = call()
        times.append(time.thread_time() - start)
    return min(times), size


def size_by(compress: Compress, data: memoryview) -> int:
    return len(compress([data]))


def libdeflate_calls(data: memoryview) -> dict[str, Callable[[], int]]:
    """Return what libdeflate does: its levels, and inflating blocks of level 1 beside ISA-L."""
    import deflate

    blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    packed = [isal_zlib.compress(block, 1, -15) for block in blocks]

    def pack(level: int) -> int:
        return sum(len(deflate.deflate_compress(block, level)) for block in blocks)

    def unpack() -> int:
        for block, plain in zip(packed, blocks, strict=True):
            deflate.deflate_decompress(block, len(plain))
        return sum(map(len, packed))

    def unpack_by_isa_l() -> int:
        for block, plain in zip(packed, blocks, strict=True):
            isal_zlib.decompress(block, -15, len(plain))
        return sum(map(len, packed))

    levels = {f"libdeflate {level}": partial(pack, level) for level in (1, 2, 4, 6)}
    return {**levels, "inflate, libdeflate": unpack, "inflate, ISA-L": unpack_by_isa_l}


def by_htslib(data: memoryview, level: int, path: Path) -> int:
    mode: Any = f"wb{level}"  # pysam's types know modes without a level only
    with pysam.BGZFile(str(path), mode, None) as file:
        file.write(bytes(data))
    return path.stat().st_size


def levels(arguments_given: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("bam", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libdeflate", action="store_true")
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args(arguments_given)
    scratch = harness.DATA / "levels.gz"
    scratch.parent.mkdir(parents=True, exist_ok=True)
    rows, report = [], {}
    for path in arguments.bam:
        data = plain_start(path, N_BLOCKS * BLOCK_BYTES)
        calls: dict[str, Callable[[], int]] = {}
        for level in range(MAX_LEVEL + 1):
            compress = compressor(level)
            compress([data[:BLOCK_BYTES]])  # compiled now
            calls[str(level)] = partial(size_by, compress, data)
        if arguments.libdeflate:
            calls.update(libdeflate_calls(data))
        for level in (1, 6):
            calls[f"htslib {level}"] = partial(by_htslib, data, level, scratch)
        for name, call in calls.items():
            seconds, size = best_of(arguments.rounds, call)
            speed, ratio = len(data) / seconds / 1e6, len(data) / size
            rows.append([path.name, name, f"{speed:.0f}", f"{ratio:.2f}"])
            report[f"{path.name}, {name}"] = {"cpu_s": seconds, "plain": len(data), "packed": size}
    scratch.unlink(missing_ok=True)
    versions = {name: __import__(name).__version__ for name in ("isal", "pysam")}
    about = harness.provenance(versions)
    lines = [
        "# Levels of BGZF compression", "", *harness.markdown_provenance(about),
        f"The first {N_BLOCKS} blocks of {BLOCK_BYTES} bytes of each file, one thread, CPU time, "
        f"best of {arguments.rounds}.", "",
        *harness.table(["file", "level", "MB/s", "ratio"], rows),
    ]  # fmt: skip
    print("\n".join(lines))
    harness.write_results(arguments.results, "io_levels", {"about": about, "runs": report}, lines)
    return 0


# --- reading a reference ---


_CHILD = """
import hashlib, json, resource, sys, tempfile, time
from pathlib import Path
from mapper.index.build import read_text
from mapper.io.reference_fasta import plain_bytes
path, n_threads = Path(sys.argv[1]), int(sys.argv[2])
def read(path):
    return read_text(path, n_threads, plain_bytes(path))
with tempfile.NamedTemporaryFile("wb", suffix=path.suffix) as small:
    import gzip
    text = b">a\\nACGT\\n"
    small.write(gzip.compress(text) if path.suffix == ".gz" else text)
    small.flush()
    read(Path(small.name))
if path.suffix == ".gz":
    from mapper.io import isal
    isal.usable()
before = time.process_time(), time.perf_counter()
contigs, text = read(path)
cpu_s, wall_s = time.process_time() - before[0], time.perf_counter() - before[1]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
digest = hashlib.md5(text)
digest.update(repr((contigs.names, contigs.md5, contigs.lengths.tolist())).encode())
print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "peak_gb": peak, "n": len(text),
                  "digest": digest.hexdigest()}))
"""


def read_once(fasta: Path, n_threads: int) -> dict[str, Any]:
    """Read a file in a process of its own; return time, memory and a digest of the text."""
    run = subprocess.run(
        [sys.executable, "-c", _CHILD, str(fasta.resolve()), str(n_threads)], cwd=harness.ROOT,
        env={**os.environ, "PYTHONPATH": str(harness.ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if run.returncode:
        raise harness.BenchmarkError(f"{fasta}: {run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def fasta(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("fasta", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4], help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="[%(default)s]")
    options = parser.parse_args(arguments)
    about = harness.provenance({name: version(name) for name in ("numba", "isal", "numpy")})
    ways = [(n, f"{n} threads") for n in options.threads]
    rows, report, same = [], [], True
    for fasta in options.fasta:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for _, name in ways}
        for n_threads, name in [way for _ in range(options.rounds) for way in ways]:
            runs[name].append(read_once(fasta, n_threads))
            print(fasta.name, name, runs[name][-1], flush=True)
        same &= len({run["digest"] for found in runs.values() for run in found}) == 1
        for name, found in runs.items():
            wall, cpu, peak = (median(run[key] for run in found)
                               for key in ("wall_s", "cpu_s", "peak_gb"))  # fmt: skip
            best = min(run["wall_s"] for run in found)
            rows.append(
                [fasta.name, f"{found[0]['n'] / 1e6:.0f}", name, f"{wall:.2f}", f"{best:.2f}",
                 f"{cpu:.2f}", f"{peak:.2f}"]
            )  # fmt: skip
            report.append({"file": fasta.name, "way": name, "runs": found})
    head = ["file", "Mbp", "reading", "wall, s (median)", "best", "CPU, s", "peak memory, GB"]
    text = "All readings of a file gave the same text." if same else "THE READINGS DIFFER."
    lines = ["# Reading a reference FASTA", "", *harness.markdown_provenance(about)]
    lines += [text, "", *harness.table(head, rows)]
    harness.write_results(options.results, "io_fasta", {"about": about, "rows": report}, lines)
    print("\n".join(lines))
    return 0 if same else 1


main = harness.subcommands(__doc__, {"convert": convert, "levels": levels, "fasta": fasta})
"""Run the part that the first argument names."""


if __name__ == "__main__":
    sys.exit(main())
