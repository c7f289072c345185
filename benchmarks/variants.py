"""Variants called from fmwave's and bwa mem's alignments of a donor with known variants.

    python -m benchmarks.variants

Pairs of 2 × 150 bases come from a haploid donor (SNPs 0.1 %, indels of 1 to 50 bases 0.02 %), at
30-fold depth unless the donor's name says otherwise; those of real sequence take part by name.
Each mapper's sorted records go through ``bcftools mpileup`` and ``call`` at their defaults; calls
and truth are left-aligned (``bcftools norm``) and compared as (contig, position, REF, ALT).
Results: benchmarks/results/variants.{md,json}; exit status 1 if a mapper failed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pysam

from benchmarks.common import data, harness, mappers
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.mappers import Mapper

READ_LEN = 150
MIN_QUALITY = 20  # of a call; bcftools' own advice
MAPPERS = ("fmwave", "bwa mem")


class Donor(NamedTuple):
    """A donor's reference and reads."""

    reference: str
    n_bases: int  # of the reference
    seed: int  # of donor and reads
    depth: int = 30

    def data_set(self) -> data.DataSet:
        n_pairs = self.depth * self.n_bases // (2 * READ_LEN)
        name = f"{self.reference.partition('_')[0]}_{self.depth}x"
        return data.DataSet(name, self.reference, n_pairs, READ_LEN, True, self.seed)


DONORS = {
    "ecoli": Donor("ecoli_k12", 4_641_652, 21),
    "synth4": Donor("synth4M", 4_000_000, 22),
    "human20_10x": Donor("human20", 63_025_520, 23, 10),
    "human20_30x": Donor("human20", 63_025_520, 24),
}
SMALL = ("ecoli", "synth4")


class Variant(NamedTuple):
    """A normalised variant; equal ones are the same change."""

    contig: str
    pos: int
    ref: str
    alt: str

    @property
    def kind(self) -> str:
        return "SNP" if len(self.ref) == len(self.alt) == 1 else "indel"


def run(command: Sequence[object], stdout: Path) -> None:
    """Run a tool; its standard output goes to a file."""
    words = list(map(str, command))
    with stdout.open("wb") as out:
        done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BenchmarkError(f"{' '.join(words[:2])}: exit status {done.returncode}: {last}")


def normalised(vcf: Path, reference: Path) -> set[Variant]:
    """Return the variants of a file, left-aligned, one for each alternative allele."""
    # The kit's VCF has its contigs in order of the reference, but an indel may follow a SNP
    # of the same position; norm wants a sorted file.
    sorted_vcf = vcf.with_suffix(".sorted.vcf")
    run(["bcftools", "sort", vcf], sorted_vcf)
    norm = vcf.with_suffix(".norm.vcf")
    run(["bcftools", "norm", "-f", reference, "-m", "-any", sorted_vcf], norm)
    found = set()
    with pysam.VariantFile(str(norm)) as records:
        for record in records:
            if record.qual is not None and record.qual < MIN_QUALITY:
                continue
            for alt in record.alts or ():
                found.add(Variant(record.chrom, record.pos, str(record.ref), alt))
    return found


def call(alignments: Path, reference: Path, threads: int) -> set[Variant]:
    """Sort alignments and call variants from them, haploid."""
    bam = alignments.with_suffix(".sorted.bam")
    pysam.sort("-@", str(threads - 1), "-o", str(bam), str(alignments))
    pysam.index(str(bam))
    pileup = bam.with_suffix(".pileup.bcf")
    run(["bcftools", "mpileup", "-Ou", "--threads", threads, "-f", reference, bam], pileup)
    calls = bam.with_suffix(".vcf")
    run(["bcftools", "call", "-mv", "--ploidy", 1, "-Ov", pileup], calls)
    return normalised(calls, reference)


def score(called: set[Variant], truth: set[Variant]) -> dict[str, dict[str, float]]:
    """Count by kind; precision and recall in per cent."""
    scores = {}
    for kind in ("SNP", "indel"):
        calls = {variant for variant in called if variant.kind == kind}
        true = {variant for variant in truth if variant.kind == kind}
        right = len(calls & true)
        scores[kind] = {
            "true": len(true),
            "called": len(calls),
            "right": right,
            "precision_pct": 100 * right / max(len(calls), 1),
            "recall_pct": 100 * right / max(len(true), 1),
        }
    return scores


def measure(
    name: str, tools: Sequence[Mapper], threads: int, folder: Path, work: Path
) -> dict[str, Any]:
    """Call one donor's variants from each mapper's records."""
    files = data.make(DONORS[name].data_set(), folder)
    reference = work / "reference.fa"
    shutil.copyfile(files.reference, reference)
    truth = normalised(Path(shutil.copy(files.variants, work / "truth.vcf")), reference)
    results: dict[str, Any] = {}
    for mapper in tools:
        try:
            index, _ = mappers.build_index(mapper, reference, work / "index")
            out = work / f"{mapper.program}{mapper.suffix}"
            cost, log = mappers.run_mapper(mapper, index, files.reads, threads, out)
            if cost.exit_status:
                raise BenchmarkError(f"exit status {cost.exit_status}:\n{harness.tail(log)}")
            results[mapper.name] = score(call(out, reference, threads), truth)
        except BenchmarkError as error:
            results[mapper.name] = {"failed": str(error)}
        print(f"  {mapper.name}: {results[mapper.name]}", flush=True)
    return results


def result_lines(report: dict[str, Any]) -> list[str]:
    """Return the table, for docs/accuracy.md too."""
    rows = []
    for name, part in report["data_sets"].items():
        for mapper, kinds in part["results"].items():
            if "failed" in kinds:
                rows.append([name, mapper, "failed", *["–"] * 6])
                continue
            for kind, n in kinds.items():
                counts = [f"{n[key]:,}" for key in ("true", "called", "right")]
                rates = [f"{n[key]:.3f}" for key in ("precision_pct", "recall_pct")]
                rows.append([name, mapper, kind, *counts, *rates])
    header = ["donor", "mapper", "kind", "true", "called", "right", "precision %", "recall %"]
    return harness.table(header, rows)


def markdown(report: dict[str, Any]) -> list[str]:
    return [
        "# Variants from fmwave's and bwa mem's alignments",
        "",
        *harness.markdown_provenance(report["about"]),
        f"Simulated pairs 2 × {READ_LEN} of a haploid donor, at 30-fold depth unless its name says",
        f"otherwise; {report['bcftools']}, mpileup and call at their defaults, calls of quality",
        f"{MIN_QUALITY} or more, left-aligned; same position and alleles count as right.",
        "",
        *result_lines(report),
    ]


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--donors", nargs="+", default=list(SMALL), choices=list(DONORS))
    parser.add_argument("--data", type=Path, default=harness.DATA, help="[%(default)s]")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    mappers.add_options(parser, MAPPERS)
    options = parser.parse_args(arguments)
    if not shutil.which("bcftools"):
        raise BenchmarkError("bcftools is not on the PATH")
    tools = mappers.chosen(options)
    version = subprocess.check_output(["bcftools", "--version"], text=True)
    report: dict[str, Any] = {
        "about": harness.provenance(mappers.versions_of(tools)),
        "bcftools": version.splitlines()[0],
        "data_sets": {},
    }
    for name in options.donors:
        print(name, flush=True)
        with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
            results = measure(name, tools, options.threads, options.data, Path(work))
        report["data_sets"][name] = {"seed": DONORS[name].seed, "results": results}
    harness.write_results(options.out, "variants", report, markdown(report))
    parts = report["data_sets"].values()
    return int(any("failed" in kinds for part in parts for kinds in part["results"].values()))


if __name__ == "__main__":
    sys.exit(main())
