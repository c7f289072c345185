r"""Real long reads of ``../shared/data`` beside minimap2: reads mapped, bases aligned, scores.

    python -m benchmarks.studies.real_long_reads --work DIR [--binary minimap2=PATH]

Both write SAM. Scores are of the bases of all primary and supplementary alignments by the same
rule, whatever the mapper weighed: matches less 2 for each base of a mismatch and for the first
10 bases of a gap. Prints a table in Markdown; results: benchmarks/results/long_reads.md.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mapper
from benchmarks.common import harness
from benchmarks.common.map_runs import fmwave
from benchmarks.long_reads import tools_of, version_of

SETS = {
    "E. coli, nanopore": ("ecoli_ont.fa.gz", "ecoli_k12.fa.gz", "ont", "map-ont"),
    "moth mitochondrion, HiFi": ("moth_hifi.fa.gz", "moth_mt.fa", "hifi", "map-hifi"),
    "SARS-CoV-2, nanopore": ("sarscov2_ont.fq.gz", "sarscov2.fa", "ont", "map-ont"),
    "HG002, nanopore over 64 kb": (
        "hg002_ont_over64kb.fq.gz", "hg002_chr6_72kb.fa.gz", "ont", "map-ont",
    ),
}  # fmt: skip
"""Reads and reference of ``../shared/data``, presets of fmwave and of minimap2."""


def counts(path: Path) -> dict[str, int]:
    """Return what a SAM file says of its reads, with NM for mismatches."""
    import pysam

    found = dict.fromkeys(("reads", "mapped", "supplementary", "aligned", "score"), 0)
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        for record in file.fetch(until_eof=True):
            if record.flag & 0x100:
                continue
            found["supplementary"] += record.is_supplementary
            if not record.is_supplementary:
                found["reads"] += 1
                found["mapped"] += not record.is_unmapped
            if record.is_unmapped:
                continue
            ops: Any = record.cigartuples
            gaps = sum(n for op, n in ops if op in (1, 2))
            columns = sum(n for op, n in ops if op in (0, 7, 8))
            mismatches = int(record.get_tag("NM")) - gaps
            found["aligned"] += columns
            found["score"] += columns - 3 * mismatches
            found["score"] -= 2 * sum(min(n, 10) for op, n in ops if op in (1, 2))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--binary", nargs="*", default=[], metavar="NAME=PATH")
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    binaries = dict(text.split("=", 1) for text in options.binary)
    minimap2 = binaries.get("minimap2", "minimap2")
    tool = next(tool for tool in tools_of(binaries) if tool.name == "minimap2")
    about = harness.provenance({"fmwave": mapper.__version__, "minimap2": version_of(tool)})
    rows: list[list[object]] = []
    for name, (reads, ref, preset, theirs) in SETS.items():
        data = harness.SHARED / "data"
        fasta, fastq = data / "ref" / ref, data / "reads" / reads
        index = options.work / f"{ref.split('.')[0]}.fmw"
        if not index.exists():
            _run([*fmwave(), "index", fasta, "-o", index, "--quiet"], options.work, None)
        stem = reads.split(".")[0]
        written = [options.work / f"{stem}.{mapper_}.sam" for mapper_ in ("fmwave", "minimap2")]
        _run(
            [*fmwave(), "map", index, fastq, "--preset", preset, "-o", written[0], "--device",
             "cpu", "--quiet"], options.work, None,
        )  # fmt: skip
        _run([minimap2, "-ax", theirs, fasta, fastq], options.work, written[1])
        for program, path in zip(("fmwave", "minimap2"), written, strict=True):
            found = counts(path)
            rows.append([name, program, *found.values()])
    header = ["set", "mapper", "reads", "mapped", "supplementary", "bases aligned", "score"]
    print("\n".join([*harness.markdown_provenance(about), *harness.table(header, rows)]))
    return 0


def _run(command: Sequence[object], work: Path, out: Path | None) -> None:
    words = [str(word) for word in command]
    cost = harness.measure(words, work / "log", out)
    if cost.exit_status:
        raise harness.BenchmarkError(f"{shlex.join(words)}:\n{harness.tail(work / 'log')}")


if __name__ == "__main__":
    sys.exit(main())
