r"""A genome of the size of a human or a wheat one: made, indexed, mapped to, scored.

    python -m benchmarks.whole_genome 3.1G --work /tmp/genome --pairs 4000000 \
        --devices cuda [cpu] [--peer /path/to/minimap2] --limit-s 570

Steps, each a process of its own and timed: a repeat-rich genome of 24 contigs as FASTA and 2x150
pairs of a donor with variants (common/whole_genome_data.py), ``fmwave index``, a first run on few
reads that compiles, ``fmwave map`` to BAM on each device, mapeval.py on the first pairs of each
output, minimap2 (`--peer-pairs`: on the first pairs only), ``fmwave seed`` of planted k-mers
(common/planted.py), loading (common/load_index.py), more rounds, with `--plain` also of the same
reads as gzip writes them, one member a file. What would not fit the time limit is
left out, and the result says so; when the limit comes all the same, the step is ended and what is
known is written. `--boundary` is the position of the text from which on reads are scored apart and
k-mers planted: 2^32, or a smaller one where the genome is small.

Results: OUT/whole_genome_SIZE.{md,json}; exit status 1 if a step failed or records
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

from benchmarks.common import harness, score_first
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.map_runs import fmwave, gpus, records_digest
from benchmarks.common.time_limit import OutOfTimeError, Steps
from benchmarks.common.whole_genome_data import (
    MADE,
    SEED,
    far_contigs,
    first_lines,
    gzipped,
    made,
)
from benchmarks.common.whole_genome_report import PEER, lines_of
from mapper.cli.sizes import size

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
            "steps": self.steps.rows, "runs": {}, "plain_runs": {}, "load": {}, "scores": {},
            "planted": {}, "dropped": [], "stopped": None,
        }  # fmt: skip

    def run(self) -> None:
        """Do everything, in order; what is found is in the report as soon as it is known.

        First what the rest needs and what is asked for; what would not fit the time is left out.
        """
        self.prepare()
        self.build()
        outputs = {}
        for device in self.options.devices:
            outputs[f"fmwave --device {device}"] = self.map(device)
        built = None
        with ThreadPoolExecutor() as pool:
            scores: dict[str, Future[dict[str, Any]]] = {}
            for who, path in outputs.items():
                if self.fits(f"scores of {who}", "score"):
                    scores[who] = pool.submit(self.score, path)
            try:
                if self.options.peer and self.fits("minimap2", "peer"):
                    built = self.build_peer()
                if self.options.planted and self.fits("planted k-mers", "planted"):
                    self.plant(self.options.devices[0])
            finally:
                self.collect(scores)
        if built is not None and self.fits("minimap2's mapping", "peer map"):
            path = self.map_peer(built)
            if self.fits("scores of minimap2", "score"):
                with ThreadPoolExecutor() as pool:
                    self.collect({PEER: pool.submit(self.score, path)})
        for device in self.options.devices:
            if self.fits(f"loading, {device}", "load"):
                self.load(device)
        for device in self.options.devices:
            for turn in range(1, self.options.rounds):
                if self.fits(f"round {turn + 1}, {device}", "round"):
                    self.map_round(device, turn)
        if self.options.plain and self.fits("reads in plain gzip", "plain"):
            self.map_plain()
        if len(self.options.devices) > 1:
            self.report["digests"] = {path.name: records_digest(path) for path in outputs.values()}

    def fits(self, what: str, kind: str) -> bool:
        """Return True if there is probably time for a step; if not, note its name."""
        left = self.steps.left()
        gbp, million = self.options.size / 1e9, 1e-6 * self.options.score_pairs
        n_peer = 1e-6 * (self.options.peer_pairs or self.options.pairs)
        mapped = [row["wall_s"] for row in self.steps.rows if row["step"].startswith("fmwave map")]
        expected = {
            "score": 10 + 7 * gbp + 130 * million,
            "peer": 10 + 21 * gbp,
            "peer map": 10 + 4 * gbp + 21 * n_peer,
            "planted": 60 + 6 * gbp,
            "load": 5 + 8 * gbp,
            "round": 1.2 * max(mapped, default=0.0),
            "plain": 10 + 3e-6 * self.options.pairs,
        }[kind]
        if left is None or left >= expected:
            return True
        self.report["dropped"].append(f"{what} ({expected:.0f} s expected, {left:.0f} s left)")
        self.steps.say(f"left out: {self.report['dropped'][-1]}")
        return False

    def prepare(self) -> None:
        """Make genome and reads, unless an earlier run with these options has left them."""
        wanted = made(self.options.size, self.options.pairs, SEED, bgzf=self.options.bgzf)
        before = self.work / MADE
        if before.is_file() and json.loads(before.read_text()) == wanted:
            self.steps.say("genome and reads are there")
            return
        self.module("genome and reads", "benchmarks.common.whole_genome_data",
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
        self.module(f"load, {device}", "benchmarks.common.load_index", self.index,
                    "--device", device, "--json", out)  # fmt: skip
        self.report["load"][device] = json.loads(out.read_text())

    def map(self, device: str) -> Path:
        """Map few reads, which compiles, then all, once; return the records."""
        few = self.first_reads(FIRST_PAIRS)
        self.map_files(f"first run of {FIRST_PAIRS} pairs, {device}", device, few, "few")
        return self.map_round(device, 0)

    def map_round(self, device: str, turn: int) -> Path:
        stem = f"fmwave_{device.replace(':', '_').replace(',', '_')}"
        found = self.map_files(f"fmwave map --device {device}", device, self.reads, stem)
        self.report["runs"].setdefault(device, []).append(found)
        self.steps.say(f"{device}, round {turn + 1}: {found['reads_per_second']} reads/s")
        return self.outputs / f"{stem}.bam"

    def map_plain(self) -> None:
        """Map the reads from files of one gzip member each, on the first device, all rounds."""
        self.steps.say("reads in plain gzip ...")
        with ThreadPoolExecutor() as pool:
            plain = list(pool.map(gzipped, self.reads))
        device = self.options.devices[0]
        for turn in range(self.options.rounds):
            if self.fits(f"round {turn + 1} of plain gzip, {device}", "round"):
                name = f"fmwave map --device {device}, plain gzip"
                found = self.map_files(name, device, plain, "plain")
                self.report["plain_runs"].setdefault(device, []).append(found)

    def first_reads(self, n_pairs: int) -> list[Path]:
        """Return files of the first pairs, as plain FASTQ."""
        first = [self.work / f"first_{n_pairs}_{path.stem}" for path in self.reads]
        for source, target in zip(self.reads, first, strict=True):
            if not target.exists():
                with igzip.open(source, "rb") as reads, target.open("wb") as part:
                    part.writelines(islice(reads, 4 * n_pairs))
        return first

    def plant(self, device: str) -> None:
        """Search k-mers planted beyond the boundary, or anywhere in a smaller genome."""
        size, out = self.options.size, self.work / "planted.json"
        first = self.options.boundary if self.options.boundary < size else 0
        self.module(f"fmwave seed of planted k-mers, {device}, and check (while scoring)",
                    "benchmarks.common.planted", self.fasta, self.index, "--size", size,
                    "--from", first, "-n", self.options.planted, "--device", device,
                    "-t", self.options.threads, "--json", out)  # fmt: skip
        self.report["planted"][device] = json.loads(out.read_text())

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
        reads = self.reads
        if self.options.peer_pairs:
            reads = self.first_reads(self.options.peer_pairs)
        self.steps.run(PEER, [*command, *reads], log, out)
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

    def module(self, name: str, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self.steps.run(name, command, self.work / f"{module.rpartition('.')[2]}.log")


def failed(report: dict[str, Any]) -> bool:
    """Return True if fmwave's records break a rule or differ between devices."""
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
    result.add_argument("--plain", action="store_true", help="map from plain gzip, too")
    result.add_argument("--peer", help="path of a minimap2 program")
    result.add_argument("--peer-pairs", type=int, help="that the peer maps: the first ones [all]")
    result.add_argument("--planted", type=int, default=100_000, help="k-mers [%(default)s]")
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
    stem = f"whole_genome_{options.size / 1e9:g}G"
    lines = heading + lines_of(report)
    harness.write_results(options.out, stem, report, lines)
    print("\n".join(lines))
    return 1 if failed(report) else status


if __name__ == "__main__":
    sys.exit(main())
