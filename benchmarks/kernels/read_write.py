"""Reading and writing without mapping: FASTQ.gz → BAM and unaligned BAM → BAM, beside others.

    python -m benchmarks.kernels.read_write --reads 4000000 --threads 2 --cores 2 --rounds 3
    python -m benchmarks.kernels.read_write --reads 24000000 --threads 16 --rounds 2 \
        --batch-bases 12000000 --tools fmwave samtools --data /dev/shm/read_write

fmwave's readers and writers are driven as `mapper.mapping.pipeline` drives them (`convert`);
every read leaves as an unmapped record. Beside it, on the same files and in the same rounds:
samtools (`import`, `view`; the program, or pysam's where there is none) and pysam (a loop over
records). All write BAM at level 1; fmwave's is made by ISA-L, the others' by zlib or libdeflate.
The outputs are compared.
The data are made first, in `--data`.

One thread at a time can inflate a gzip file, so two files of mates in plain gzip are bounded by two
threads' inflating; with many threads it is BGZF and BAM that show what reading and writing can do.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import statistics
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from isal import igzip

from benchmarks import harness
from mapper.cli.main import set_up_process
from mapper.params import BATCH_BASES

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
        return [sys.executable, "-m", "benchmarks.kernels.convert", str(threads), str(batch_bases),
                str(out), *files]  # fmt: skip
    return [sys.executable, "-m", "benchmarks.kernels.read_write", "--child", tool, "--threads",
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
                [sys.executable, "-m", "benchmarks.kernels.read_write", "--child", "make",
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
    # Modules come compiled, as from an installed package; without, a start takes 0.25 s more.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

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
        "compute; its main thread waits and writes. The records of the tools: "
        + "; ".join(f"{task}, {word}" for task, word in same.items()) + ".",
        "",
        *harness.table(
            ["task", "tool", "wall s", "start s", "M reads/s", "M reads/s after start", "CPU s",
             "peak MB", "output MB"], rows,
        ),
    ]  # fmt: skip
    print("\n".join(lines))
    harness.write_results(
        arguments.results, f"read_write_t{arguments.threads}_c{n_cores}",
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


def main() -> None:
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
    arguments = parser.parse_args()
    if arguments.child == "make":
        paths = [Path(path) for path in arguments.paths]
        make_fastq(arguments.reads, paths[:2], paths[2:], len(os.sched_getaffinity(0)))
        return
    if arguments.child:
        set_up_process()
        convert_pysam(arguments.paths, arguments.out, arguments.threads)
        return
    try:
        run(arguments)
    except harness.BenchmarkError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
