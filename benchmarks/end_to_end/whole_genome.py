r"""A genome of the size of a human or a wheat one: made, indexed, mapped to, scored.

    python -m benchmarks.end_to_end.whole_genome 3.1G --work /tmp/genome --pairs 4000000 \
        --devices cuda [cpu] [--peer /path/to/minimap2] --limit-s 570

Steps, each a process of its own and timed: a repeat-rich genome of 24 contigs as FASTA and 2x150
pairs of a donor with variants (whole_genome_data.py), ``fmwave index``, loading
(kernels/load_index.py), a first run on few reads that compiles, ``fmwave map`` to BAM on each
device, minimap2, and mapeval.py on the first pairs of each output. When the time limit comes, the
step is ended and what is known is written. `--boundary` is the position of the text from which
on reads are scored apart: 2^32, or a smaller one where the genome is small.

Results: OUT/whole_genome-SIZE-DATE-COMMIT.{md,json}; exit status 1 if a step failed or records
break a rule.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from isal import igzip

from benchmarks import harness
from benchmarks.end_to_end import score_first
from benchmarks.end_to_end.map_on_gpu import fmwave, gpus, records_digest, stage_table
from benchmarks.end_to_end.time_limit import OutOfTimeError, Steps
from benchmarks.genome import contig_ends, contig_names
from benchmarks.harness import BenchmarkError
from mapper.cli.index import size

FIRST_PAIRS = 20_000
"""Of the run that compiles."""
SMALL_BYTES = 18_200_000
"""Of the genome that is indexed first: more than fmwave leaves to the library."""


class WholeGenome:
    """The steps and what they found."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.steps = Steps(options.limit_s)
        self.work: Path = options.work
        self.outputs: Path = options.outputs or options.work
        self.fasta = self.work / "genome.fa"
        self.index = self.work / "genome.fmw"
        self.reads = [self.work / f"reads_{mate}.fq.gz" for mate in (1, 2)]
        self.report: dict[str, Any] = {
            "steps": self.steps.rows, "runs": {}, "load": {}, "scores": {}, "stopped": None,
        }  # fmt: skip

    def run(self) -> None:
        """Do everything, in order; what is found is in the report as soon as it is known."""
        self.prepare()
        self.build()
        for device in self.options.devices:
            self.load(device)
        outputs = {}
        for device in self.options.devices:
            outputs[f"fmwave --device {device}"] = self.map(device)
        with ThreadPoolExecutor() as pool:
            scores = {who: pool.submit(self.score, path) for who, path in outputs.items()}
            try:
                built = self.build_peer() if self.options.peer else None
            finally:
                self.collect(scores)
        if built is not None:
            with ThreadPoolExecutor() as pool:
                self.collect({"minimap2 -ax sr": pool.submit(self.score, self.map_peer(built))})

    def prepare(self) -> None:
        self.module("genome and reads", "benchmarks.end_to_end.whole_genome_data",
                    self.options.size, self.work, "--pairs", self.options.pairs,
                    "-t", self.options.threads, *["--bgzf"] * self.options.bgzf)  # fmt: skip

    def build(self) -> None:
        """Build the index, on the first of the devices; before it a small one, which compiles."""
        device = self.options.devices[0]
        small = first_lines(self.fasta, self.work / "small.fa", SMALL_BYTES)
        self.index_file(f"first index, of {SMALL_BYTES / 1e6:g} Mbp, {device}", device, small)
        log = self.index_file(f"fmwave index --device {device}", device, self.fasta)
        self.report["index_log"] = log.read_text().splitlines()

    def index_file(self, name: str, device: str, fasta: Path) -> Path:
        """Index a FASTA file; return the log."""
        log = fasta.with_suffix(".index.log")
        command = fmwave(
            "index", fasta, "-o", fasta.with_suffix(".fmw"), "--device", device,
            "-t", self.options.threads,
        )  # fmt: skip
        self.steps.run(name, command, log)
        return log

    def load(self, device: str) -> None:
        out = self.work / "load.json"
        self.module(f"load, {device}", "benchmarks.kernels.load_index", self.index,
                    "--device", device, "--json", out)  # fmt: skip
        self.report["load"][device] = json.loads(out.read_text())

    def map(self, device: str) -> Path:
        """Map few reads, which compiles, then all."""
        few = [self.work / f"few_{path.name}" for path in self.reads]
        for source, target in zip(self.reads, few, strict=True):
            if not target.exists():
                with igzip.open(source, "rb") as reads, target.open("wb") as part:
                    part.writelines(islice(reads, 4 * FIRST_PAIRS))
        self.map_files(f"first run of {FIRST_PAIRS} pairs, {device}", device, few, "few")
        stem = f"fmwave_{device.replace(':', '_').replace(',', '_')}"
        name = f"fmwave map --device {device}"
        for turn in range(self.options.rounds):
            found = self.map_files(name, device, self.reads, stem)
            self.report["runs"].setdefault(device, []).append(found)
            self.steps.say(f"{device}, round {turn + 1}: {found['reads_per_second']} reads/s")
        return self.outputs / f"{stem}.bam"

    def map_files(self, name: str, device: str, reads: list[Path], stem: str) -> dict[str, Any]:
        stats = self.work / f"{stem}.json"
        command = fmwave(
            "map", self.index, *reads, "-o", self.outputs / f"{stem}.bam", "--device", device,
            "-t", self.options.threads, "--json-stats", stats,
        )  # fmt: skip
        row = self.steps.run(name, command, self.work / f"{stem}.log")
        found: dict[str, Any] = json.loads(stats.read_text())
        return found | {"process_s": row["wall_s"]}

    def build_peer(self) -> Path:
        """Build minimap2's index, in one part, while fmwave's records are scored."""
        built = self.work / "genome.mmi"
        command = [self.options.peer, "-x", "sr", "-I", "100G", "-t", str(self.options.threads)]
        log = self.work / "peer_index.log"
        self.steps.run("minimap2 -d (while scoring)", [*command, "-d", built, self.fasta], log)
        return built

    def map_peer(self, built: Path) -> Path:
        out = self.outputs / "minimap2.sam"
        command = [self.options.peer, "-ax", "sr", "-t", str(self.options.threads), built]
        log = self.work / "minimap2.log"
        self.steps.run("minimap2 -ax sr", [*command, *self.reads], log, out)
        return out

    def score(self, alignments: Path) -> dict[str, Any]:
        return score_first.score(
            alignments, self.fasta, self.work / "reads.json", self.options.score_pairs,
            far_contigs(self.options.size, self.options.boundary), self.steps.left(),
        )  # fmt: skip

    def collect(self, scores: dict[str, Future[dict[str, Any]]]) -> None:
        for who, future in scores.items():
            self.report["scores"][who] = future.result()
            self.steps.say(f"scored: {who}")
        if len(self.options.devices) > 1:
            self.report["digests"] = {
                path.name: records_digest(path) for path in self.outputs.glob("fmwave_*.bam")
            }

    def module(self, name: str, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self.steps.run(name, command, self.work / f"{module.rpartition('.')[2]}.log")


def first_lines(source: Path, target: Path, n_bytes: int) -> Path:
    """Copy whole lines from the start of a FASTA file, the last of them no contig's name."""
    with source.open("rb") as file:
        lines = file.read(n_bytes).rpartition(b"\n")[0].split(b"\n")
    while lines and lines[-1].startswith(b">"):
        lines.pop()
    target.write_bytes(b"\n".join([*lines, b""]))
    return target


def far_contigs(n: int, boundary: int, n_contigs: int = 24) -> dict[str, int]:
    """Return the first position beyond `boundary` of the text, for each contig that has one."""
    ends = contig_ends(n, n_contigs)
    starts = [0, *ends[:-1]]
    return {
        name: max(0, boundary - start)
        for name, start, end in zip(contig_names(n_contigs), starts, ends, strict=True)
        if end - 1 > boundary
    }


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the report in markdown."""
    options = report["options"]
    lines = [
        f"{options['size']:,} bases in 24 contigs; {options['pairs']:,} pairs 2x150 of a donor "
        f"(seed 1), FASTQ{' in BGZF' if options['bgzf'] else '.gz'} to BAM (SAM for minimap2), "
        f"{options['threads']} threads. Memory is of the largest process; device memory is what "
        "all of the device's users had together.",
        "",
    ]
    if report["stopped"]:
        lines += [f"**Not all was done**: {report['stopped']}.", ""]
    lines += report["step_table"]
    if "index_log" in report:
        lines += ["    " + line for line in report["index_log"]] + [""]
    if report["load"]:
        names = list(next(iter(report["load"].values()))["rows"])
        lines += harness.table(
            ["loading", *report["load"]],
            [[n, *(f"{found['rows'].get(n, '–')}" for found in report["load"].values())]
             for n in names],
        )  # fmt: skip
    runs = {device: found[-1] for device, found in report["runs"].items() if found}
    if runs:
        lines += harness.table(
            ["fmwave map", "reads/s, of each round", "s without start and compilation"],
            [
                [device, ", ".join(f"{r['reads_per_second']:,}" for r in found),
                 f"{found[-1]['seconds']['wall'] - found[-1]['seconds']['compile']:.1f}"]
                for device, found in report["runs"].items()
            ],
        )  # fmt: skip
        lines += stage_table(runs)
    if "digests" in report:
        same = len(set(report["digests"].values())) == 1
        lines += [f"Records of all devices: {'the same bytes' if same else '**DIFFERENT**'}.", ""]
    return lines + score_lines(report)


def score_lines(report: dict[str, Any]) -> list[str]:
    scores, boundary = report["scores"], report["options"]["boundary"]
    if not scores:
        return []
    keys = ("reads", "mapped_pct", "correct_pct", "wrong_pct_of_mapped")
    lines = harness.table(
        ["first pairs, mapeval.py", "reads", "mapped %", "correct %", "wrong % of mapped",
         "MAPQ ≥ 30: mapped %", "wrong %", "problems"],
        [
            [who, *(found[k] for k in keys), found["mapq30"]["mapped_pct"],
             found["mapq30"]["wrong_pct"], found["problems"] or "none"]
            for who, found in scores.items()
        ],
    )  # fmt: skip
    columns = ("reads", "mapped", "right", "mapq30", "mapq30_right")
    lines += harness.table(
        [f"reads from beyond position {boundary:,}", *columns[1:]],
        [
            [who, *(f"{found['far'].get(column, 0):,}" for column in columns[1:])]
            for who, found in scores.items()
        ],
    )
    n_far = max((found["far"].get("reads", 0) for found in scores.values()), default=0)
    return [*lines[:-1], "", f"(of {n_far:,} each)", ""]


def failed(report: dict[str, Any]) -> bool:
    """Say whether fmwave's records break a rule or differ between devices."""
    own = [found for who, found in report["scores"].items() if who.startswith("fmwave")]
    digests = set(report.get("digests", {}).values())
    return any(found["problems"] or found["lost_reads"] for found in own) or len(digests) > 1


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("size", type=size)
    result.add_argument("--devices", nargs="+", default=["cuda"], help="of fmwave map [cuda]")
    result.add_argument("--pairs", type=int, default=4_000_000, help="[%(default)s]")
    result.add_argument("--score-pairs", type=int, default=500_000, help="[%(default)s]")
    result.add_argument("--rounds", type=int, default=1, help="of fmwave map [%(default)s]")
    result.add_argument("--bgzf", action="store_true", help="reads in blocks, as of bcl2fastq")
    result.add_argument("--peer", help="path of a minimap2 program")
    result.add_argument("--boundary", type=size, default=1 << 32, help="[2^32]")
    result.add_argument("--limit-s", type=float, help="seconds for everything")
    cores = len(os.sched_getaffinity(0))
    result.add_argument("-t", "--threads", type=int, default=min(16, cores))
    harness.add_commit(result)
    result.add_argument("--work", type=Path, required=True, help="folder for all that is made")
    result.add_argument("--outputs", type=Path, help="where mappers write to [WORK]")
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    return result


def _stop(*_: object) -> None:
    raise OutOfTimeError("ended from outside")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps; 1 if something fails, 0 also if the time was not enough."""
    options = parser().parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    on_gpu = any(device != "cpu" for device in options.devices)
    about = harness.provenance({}) | {"commit": options.commit, "gpus": gpus() if on_gpu else []}
    genome = WholeGenome(options)
    report = genome.report
    report["about"] = about
    report["options"] = {
        key: value for key, value in vars(options).items()
        if isinstance(value, int | float | str | list)
    }  # fmt: skip
    status = 0
    signal.signal(signal.SIGTERM, _stop)
    try:
        genome.run()
    except (OutOfTimeError, TimeoutError) as late:
        report["stopped"] = f"time limit of {options.limit_s} s: {late}"
        genome.steps.say(report["stopped"])
    except BenchmarkError as error:
        report["stopped"] = str(error)
        genome.steps.say(f"error: {error}")
        status = 1
    report["step_table"] = genome.steps.table()
    heading = [f"# Whole genome: {options.size / 1e9:g} Gbp", ""]
    heading += [*harness.markdown_provenance(about)[:-2], "; ".join(about["gpus"]), ""]
    stem = f"whole_genome-{options.size / 1e9:g}G-{about['date'][:10]}-{options.commit}"
    lines = heading + lines_of(report)
    harness.write_results(options.out, stem, report, lines)
    print("\n".join(lines))
    return 1 if failed(report) else status


if __name__ == "__main__":
    sys.exit(main())
