"""Real reads: what is mapped and how well, and the speed, of fmwave and its peers.

    python -m benchmarks.real_reads checks
    python -m benchmarks.real_reads speed --rounds 3

There is no truth for these reads: the peers are the measure, and none of them is right by
definition.

``checks`` maps each set once. fmwave's sorted BAM goes through samtools quickcheck, mapeval.py's
rules and Picard ValidateSamFile, each skipped with a line where it is absent. Any problem: exit
status 1; Picard's warnings are listed only (the empty reads of phix cannot but raise one).
Results: benchmarks/results/real_reads.{md,json}.

``speed`` writes each file several times into one, as the shared data hold some thousand pairs of
each kind, and runs all mappers in turn, round after round, on the same machine and number of
threads. A million reads a set are the least that a sequencer's run has; of short runs (``--times
30``) the start is a good part, for every mapper. CPU seconds (user and system, of the whole run)
bear a busy machine better than wall seconds. Not measured: index construction, and a first run
on the reads as they are, in which fmwave may compile.
Results: benchmarks/results/real_reads_speed.{md,json}.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pysam

from benchmarks.common import data, harness, mappers
from benchmarks.common.compare_tables import speed_rows
from benchmarks.common.data import unpack
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.mappers import Mapper

# --- checks ---


PICARD_LAUNCHERS = ("PicardCommandLine", "picard")  # Debian's name, bioconda's name


@dataclass(frozen=True)
class RealSet:
    """Read pairs of the shared data and the reference they are mapped to."""

    reference: str
    reads: str
    what: str

    def files(self) -> tuple[Path, tuple[Path, ...]]:
        reads = tuple(data.shared_file(f"reads/{self.reads.format(mate)}") for mate in (1, 2))
        return data.shared_file(f"ref/{self.reference}"), reads


SETS = {
    "phix": RealSet("phix174.fa", "phix_R{}.fq", "301 bp pairs, awkward on purpose"),
    "ecoli1k": RealSet("ecoli_k12.fa.gz", "ecoli1k_R{}.fq.gz", "trimmed pairs, one deep kilobase"),
    "sarscov2": RealSet("sarscov2.fa", "sarscov2_R{}.fq.gz", "220 bp pairs, amplicons"),
    "portiera": RealSet("portiera.fa.gz", "portiera_R{}.fq.gz", "101/99 bp pairs, AT-rich genome"),
    "shigella": RealSet(
        "ecoli_k12.fa.gz", "shigella_R{}.fq.gz", "150 bp pairs on a relative; a fifth has no place"
    ),
}


def flagstat(alignments: Path) -> dict[str, float]:
    """Count the primary records: mapped and proper in per cent of them, MAPQ 0 of the mapped."""
    n_primary = n_mapped = n_proper = n_mapq0 = n_supplementary = edits = 0
    with pysam.AlignmentFile(str(alignments), check_sq=False) as records:
        for record in records.fetch(until_eof=True):
            n_supplementary += record.is_supplementary
            if record.is_supplementary or record.is_secondary:
                continue
            n_primary += 1
            if record.is_mapped:
                n_mapped += 1
                n_proper += record.is_proper_pair
                n_mapq0 += record.mapping_quality == 0
                edits += int(record.get_tag("NM"))
    return {
        "reads": n_primary,
        "mapped_pct": 100 * n_mapped / max(n_primary, 1),
        "proper_pct": 100 * n_proper / max(n_primary, 1),
        "mapq0_pct": 100 * n_mapq0 / max(n_mapped, 1),
        "mean_nm": edits / max(n_mapped, 1),
        "supplementary": n_supplementary,
    }


def quickcheck(bam: Path) -> list[str]:
    run = subprocess.run(
        ["samtools", "quickcheck", "-v", str(bam)], capture_output=True, text=True, check=False
    )
    return [f"quickcheck: {run.stdout.strip()} {run.stderr.strip()}"] if run.returncode else []


def picard(bam: Path, reference: Path) -> list[str]:
    """Return what ValidateSamFile says, one line for each kind of error or warning."""
    launcher = next(filter(shutil.which, PICARD_LAUNCHERS))
    command = [launcher, "ValidateSamFile", "-I", str(bam), "-R", str(reference)]
    run = subprocess.run(
        [*command, "-MODE", "SUMMARY", "--QUIET", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "No errors found" in run.stdout + run.stderr:
        return []
    found = re.findall(r"^((?:ERROR|WARNING):\S+)\s+(\d+)", run.stdout, re.MULTILINE)
    if not found:
        return [f"Picard did not run: {(run.stderr.strip().splitlines() or ['?'])[-1]}"]
    return [f"Picard {kind} ({n})" for kind, n in found]


def checks_available() -> list[str]:
    """Return the names of the checks that can run; say which cannot."""
    there = []
    for name, programs in (("samtools", ("samtools",)), ("picard", PICARD_LAUNCHERS)):
        if any(map(shutil.which, programs)):
            there.append(name)
        else:
            print(f"{name}: not on the PATH, its check is skipped")
    try:
        harness.kit("mapeval.py")
        there.append("mapeval")
    except BenchmarkError as error:
        print(f"mapeval: its check is skipped: {error}")
    return there


def with_invented_truth(bam: Path, sam: Path) -> Path:
    """Write the records as SAM, mates together, under names that mapeval.py accepts.

    It reads a place out of each name. All reads get the same one: its accuracy means nothing
    then, its check of CIGAR, NM, MD, mates and clips does not look at names.
    """
    collated = sam.with_suffix(".collated.bam")
    pysam.collate("-o", str(collated), str(bam))
    last, n_templates = None, 0
    with pysam.AlignmentFile(str(collated)) as records:
        contig = records.references[0]
        with pysam.AlignmentFile(str(sam), "wh", template=records) as out:
            for record in records:
                if record.query_name != last:
                    last, n_templates = record.query_name, n_templates + 1
                record.query_name = f"S{n_templates}!{contig}!0_0!1_1!+-"
                out.write(record)
    # The order is no longer what @HD says.
    text = sam.read_text()
    sam.write_text(text.replace("SO:coordinate", "SO:unsorted", 1))
    return sam


def count_reads(paths: Sequence[Path]) -> int:
    """Count four-line FASTQ records; the sets hold no others."""
    n_lines = 0
    for path in paths:
        with data.open_plain(path) as lines:
            n_lines += sum(1 for _ in lines)
    return n_lines // 4


def problems_of(
    bam: Path, reference: Path, reads: Sequence[Path], checks: Sequence[str]
) -> list[str]:
    """Return all that the validators say about fmwave's output."""
    found: list[str] = []
    n_in, n_out = count_reads(reads), int(flagstat(bam)["reads"])
    if n_in != n_out:
        found.append(f"{n_in} reads in, {n_out} primary records out")
    if "samtools" in checks:
        found += quickcheck(bam)
    if "mapeval" in checks:
        sam = with_invented_truth(bam, bam.with_suffix(".sam"))
        kit_says = harness.evaluate(sam, reference)["problems"]
        found += [f"mapeval: {what} ({n})" for what, n in kit_says.items()]
    if "picard" in checks:
        found += picard(bam, reference)
    return found


def map_set(
    real_set: RealSet, tools: Sequence[Mapper], threads: int, checks: Sequence[str], work: Path
) -> dict[str, Any]:
    """Map one set with all mappers; returns the numbers by mapper, or why one failed."""
    packed, reads = real_set.files()
    reference = data.unpack(packed, work / "ref" / packed.name.removesuffix(".gz"))
    results: dict[str, Any] = {}
    for mapper in tools:
        out = work / f"{mapper.program}{mapper.suffix}"
        try:
            index, _ = mappers.build_index(mapper, reference, work / "index")
            cost, log = mappers.run_mapper(mapper, index, reads, threads, out, sort=True)
            if cost.exit_status:
                raise BenchmarkError(f"exit status {cost.exit_status}:\n{harness.tail(log)}")
            results[mapper.name] = flagstat(out)
            if mapper.name == "fmwave":
                found = problems_of(out, reference, reads, checks)
                warnings = [line for line in found if line.startswith("Picard WARNING")]
                results[mapper.name]["warnings"] = warnings
                results[mapper.name]["problems"] = [x for x in found if x not in warnings]
        except BenchmarkError as error:
            results[mapper.name] = {"failed": str(error)}
            print(f"  {mapper.name} failed: {error}", flush=True)
    return results


def checks_markdown(report: dict[str, Any]) -> list[str]:
    """Return the report's tables."""
    lines = ["# fmwave and its peers, real reads", ""]
    lines += harness.markdown_provenance(report["about"])
    lines += [
        "Primary records. Mapped and proper in per cent of the reads, MAPQ 0 of the mapped; mean "
        "NM of the mapped. fmwave's sorted BAM is checked with "
        f"{', '.join(report['checks']) or 'nothing: no validator was there'}.",
        "",
    ]
    return lines + result_lines(report)


def result_lines(report: dict[str, Any]) -> list[str]:
    """Return the table and what the sets are, for docs/accuracy.md too."""
    rows = []
    for name, results in report["data_sets"].items():
        for mapper, numbers in results.items():
            if "failed" in numbers:
                rows.append([name, mapper, "failed", *["–"] * 6])
                continue
            checked = "problems" in numbers
            said = [*numbers.get("problems", []), *numbers.get("warnings", [])]
            rows.append(
                [
                    name,
                    mapper,
                    f"{numbers['reads']:,}",
                    *(f"{numbers[key]:.2f}" for key in ("mapped_pct", "proper_pct", "mapq0_pct")),
                    f"{numbers['mean_nm']:.3f}",
                    f"{numbers['supplementary']:,}",
                    ("; ".join(said) or "none") if checked else "not checked",
                ]
            )
    header = ["reads", "mapped %", "proper %", "MAPQ 0 %", "mean NM", "supplementary", "problems"]
    lines = harness.table(["set", "mapper", *header], rows)
    lines += [f"- {name}: {SETS[name].what}" for name in report["data_sets"]]
    return lines


@harness.reports_errors
def checks(arguments: Sequence[str] | None = None) -> int:
    """Map the real reads; 1 if a mapper failed or a validator complains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    mappers.add_options(parser)
    parser.add_argument(
        "--data-sets",
        nargs="+",
        default=list(SETS),
        choices=list(SETS),
        metavar="NAME",
        help=f"of: {', '.join(SETS)} [all]",
    )
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    options = parser.parse_args(arguments)

    tools = mappers.chosen(options)
    checks = checks_available()
    report: dict[str, Any] = {
        "about": harness.provenance(mappers.versions_of(tools)),
        "checks": checks,
        "data_sets": {},
    }
    for name in options.data_sets:
        print(name, flush=True)
        with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
            report["data_sets"][name] = map_set(
                SETS[name], tools, options.threads, checks, Path(work)
            )
    harness.write_results(options.out, "real_reads", report, checks_markdown(report))
    outcomes = [n for results in report["data_sets"].values() for n in results.values()]
    return int(any("failed" in n or n.get("problems") for n in outcomes))


# --- speed ---


LONG_ENOUGH = ("sarscov2", "portiera", "shigella")
"""The sets of ordinary reads from all over a genome."""


LEAST_READS = 1_000_000
"""Reads of a set, both mates counted."""


def times_for(n_reads: int, least: int) -> int:
    """Return how often `n_reads` reads have to be repeated to be at least `least`."""
    return -(-least // max(n_reads, 1))


def repeat(path: Path, times: int, target: Path) -> Path:
    """Write a gzip file several times into one, which is a gzip file, too."""
    packed = path.read_bytes()
    with target.open("wb") as out:
        for _ in range(times):
            out.write(packed)
    return target


def run_once(
    mapper: Mapper, index: Path, reads: Sequence[Path], threads: int, out: Path
) -> dict[str, Any]:
    cost, log = mappers.run_mapper(mapper, index, reads, threads, out)
    if cost.exit_status:
        raise BenchmarkError(f"{mapper.name}: exit {cost.exit_status}:\n{harness.tail(log)}")
    return asdict(cost)


def time_set(
    real_set: RealSet, tools: Sequence[Mapper], times: int | None, rounds: int, threads: int,
    work: Path,
) -> dict[str, Any]:  # fmt: skip
    """Map one set with all mappers by turns; a mapper that fails ends the benchmark."""
    packed, once = real_set.files()
    n_once = count_reads(once)
    times = times or times_for(n_once, LEAST_READS)
    reference = unpack(packed, work / "ref" / packed.name.removesuffix(".gz"))
    reads = [repeat(path, times, work / f"repeated_{path.name}") for path in once]
    indexes: dict[str, Path] = {}
    results: dict[str, Any] = {}
    for mapper in tools:
        indexes[mapper.name], _ = mappers.build_index(mapper, reference, work / "index", threads)
        out = work / f"{mapper.program}{mapper.suffix}"
        first = run_once(mapper, indexes[mapper.name], once, threads, out)
        results[mapper.name] = {"first_run": first, "runs": []}
    for turn in range(rounds):
        # Each round starts with another mapper: none is always first after a pause.
        start = turn % len(tools)
        for mapper in (*tools[start:], *tools[:start]):
            out = work / f"{mapper.program}{mapper.suffix}"
            cost = run_once(mapper, indexes[mapper.name], reads, threads, out)
            results[mapper.name]["runs"].append(cost)
            print(
                f"  {mapper.name}: {cost['wall_s']:.1f} s wall, {cost['cpu_s']:.1f} s CPU",
                flush=True,
            )
    return {"n_reads": times * n_once, "times": times, "results": results}


def cpu_ratios(results: dict[str, Any]) -> dict[str, float]:
    """Return each peer's median CPU seconds over fmwave's."""
    medians = {
        name: statistics.median(run["cpu_s"] for run in result["runs"])
        for name, result in results.items()
    }
    own = medians.pop("fmwave", None)
    return {name: median / own for name, median in medians.items()} if own else {}


def speed_markdown(report: dict[str, Any]) -> list[str]:
    """Return the report's tables."""
    lines = ["# Real reads, repeated", "", *harness.markdown_provenance(report["about"])]
    lines += [
        f"Each file several times in one; {report['threads']} threads, {report['rounds']} rounds "
        "by turns, medians; fmwave writes BAM, the others SAM.",
        "",
    ]
    for name, found in report["data_sets"].items():
        lines += [
            f"## {name}: {found['n_reads']:,} reads ({found['times']} times), {SETS[name].what}",
            "",
        ]
        header = ["mapper", "wall s", "CPU s", "reads/s", "reads/CPU s", "wall, peer's best", "MB"]
        lines += harness.table(header, speed_rows(found["results"], found["n_reads"]))
        said = (f"{peer} {ratio:.2f}" for peer, ratio in cpu_ratios(found["results"]).items())
        lines += [f"CPU seconds over fmwave's: {', '.join(said) or '–'}.", ""]
    return lines


@harness.reports_errors
def speed(arguments: Sequence[str] | None = None) -> int:
    """Time the sets; 1 if a mapper failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument(
        "--times", type=int, help=f"how often each file [as often as gives {LEAST_READS:,} reads]"
    )
    mappers.add_options(parser)
    parser.add_argument(
        "--data-sets", nargs="+", default=list(LONG_ENOUGH), choices=list(LONG_ENOUGH),
        metavar="NAME", help=f"of: {', '.join(LONG_ENOUGH)} [all]",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or (options.times is not None and options.times < 1):
        parser.error("--rounds and --times are 1 at least")
    tools = mappers.chosen(options)
    report: dict[str, Any] = {
        "about": harness.provenance(mappers.versions_of(tools)),
        "threads": options.threads,
        "rounds": options.rounds,
        "data_sets": {},
    }
    for name in options.data_sets:
        print(name, flush=True)
        with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
            report["data_sets"][name] = time_set(
                SETS[name], tools, options.times, options.rounds, options.threads, Path(work)
            )
    harness.write_results(options.out, "real_reads_speed", report, speed_markdown(report))
    return 0


main = harness.subcommands(__doc__, {"checks": checks, "speed": speed})
"""Run the part that the first argument names."""


if __name__ == "__main__":
    sys.exit(main())
