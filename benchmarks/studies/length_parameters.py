r"""Compare parameters of long reads that are constant with ones interpolated by read length.

    python -m benchmarks.studies.length_parameters GENOME.fa --work DIR

Reads of 1 001 to some thousand bases, where both differ most, mapped without a preset twice: as
fmwave does, and with the further parameters that minibwa's formula gives for the mean length of the
set, between those of its short and of fmwave's long reads. Counts records that differ, in anything,
and by mapeval.py reads placed right, and wrong ones. Prints a table in Markdown; results:
benchmarks/results/long_reads.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import mapper
from benchmarks.common import harness
from benchmarks.common.data import run_kit
from benchmarks.common.harness import markdown_provenance, provenance, table
from mapper.extend.by_length import by_length
from mapper.index.index import Index
from mapper.mapping.job import MapJob
from mapper.mapping.pipeline import map_reads
from mapper.params import MapParams

LENGTHS = (1100, 1500, 2500, 5000)
ERRORS = (0.01, 0.05, 0.12)
READS = 4000


def interpolated(length: int) -> MapParams:
    """Return parameters between those of short and long reads, by minibwa's formula."""

    def between(of_long: int, of_short: int) -> int:
        return int(by_length(of_short, of_long, length))

    params = MapParams()
    chain, pieces = params.long.chain, params.long.pieces
    chain = chain._replace(
        band=between(chain.band, 100), max_gap=between(chain.max_gap, 100),
        min_score=between(chain.min_score, 25),
    )  # fmt: skip
    pieces = pieces._replace(
        z_drop=between(pieces.z_drop, 80), inversion_drop=between(pieces.inversion_drop, 80),
        min_score=between(pieces.min_score, 60),
    )  # fmt: skip
    return params._replace(long=params.long._replace(chain=chain, pieces=pieces))


def lines_of(sam: Path) -> list[str]:
    return [line for line in sam.read_text().splitlines() if not line.startswith("@")]


def scored(genome: Path, truth: Path, sam: Path) -> str:
    """Return reads placed right, and wrong ones of MAPQ 1 and of 30 or more."""
    report = sam.with_suffix(".json")
    command = [sys.executable, harness.kit("mapeval.py"), "--ref", genome, "--truth", truth]
    command += ["--json", report, "--no-table", sam]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    found = json.loads(report.read_text())
    return f"{found['correct']} / {found['mapq1']['wrong']} / {found['mapq30']['wrong']}"


def compare(genome: Path, index: Index, work: Path, length: int, errors: float) -> list[object]:
    """Make, map and score one set."""
    prefix = work / f"reads_{length}_{errors}"
    run_kit(
        "simulate.py", genome, prefix, "-n", READS, "-p", "ont", "-l", length, "--min-len", 1100,
        "--max-len", 2 * length, "--err", errors, "--snp", 0.002, "--seed", length,
    )  # fmt: skip
    reads, truth = f"{prefix}.fq.gz", prefix.with_name(f"{prefix.name}.json")
    sams = []
    for name, params in (("constant", MapParams()), ("interpolated", interpolated(length))):
        sam = work / f"{name}.sam"
        map_reads(index, MapJob([reads], str(sam), "sam", params=params, threads=2))
        sams.append(sam)
    before, after = (set(lines_of(sam)) for sam in sams)
    return [
        length, f"{errors:.0%}", len(before), len(before - after),
        *(scored(genome, truth, sam) for sam in sams),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("genome", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    about = provenance({"fmwave": mapper.__version__})
    path = options.work / "genome.fmw"
    if not path.exists():
        Index.build(options.genome).save(path)
    index = Index.open(path)
    rows = [
        compare(options.genome, index, options.work, length, errors)
        for length in LENGTHS
        for errors in ERRORS
    ]
    header = ["mean length", "errors", "records", "that differ"]
    header += ["constant: right / wrong at MAPQ ≥ 1 / ≥ 30", "interpolated: the same"]
    print("\n".join([*markdown_provenance(about), *table(header, rows)]))


if __name__ == "__main__":
    main()
