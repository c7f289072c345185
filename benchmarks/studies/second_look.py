"""What the second look at reads in doubt brings, and what it costs, on the CPU.

    python -m benchmarks.studies.second_look --data-sets human_pe150 human_se75

Each set goes through the stages up to placement twice, in one thread: as if no read were in doubt,
and with the second look. The table shows the share of the reads that are in doubt, CPU
time of seeding and extension, and reads mapped and wrong from MAPQ thresholds on. Results:
OUT/second_look.{md,json}; the .md is committed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.accuracy import THRESHOLDS, Graded, count, truths_of
from benchmarks.common import data, harness, mappers, strata
from benchmarks.common.harness import BenchmarkError
from mapper.extend.doubt import doubtful_reads
from mapper.index.index import Index
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from mapper.mapping.pipeline import LENGTH_LIMITS
from mapper.mapping.stages import align_reads, rescue_mates
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import assumed_model, confident_inserts, estimate
from mapper.pair.placement import place_reads
from mapper.params import BATCH_BASES, MapParams
from mapper.seed.exact import resolve_all

ONE, TWO = "one look", "two"
LOOKS = (ONE, TWO)
OPTIONS = ReadOptions(
    interleaved=False, keep_comments=False, tag_groups=False, reference=None, threads=1,
    limits=LENGTH_LIMITS, batch_bases=BATCH_BASES,
)  # fmt: skip


def measure(index: Index, files: data.Files, most: int) -> dict[str, Any]:
    """Map up to `most` reads of a set both ways; the first batch only compiles."""
    params = resolve_all(MapParams(), index.fm.n_rows - 1)
    counts = {look: np.zeros((256, 2), np.int64) for look in LOOKS}
    stats = {look: RunStats() for look in LOOKS}
    n_reads = n_doubtful = 0
    model = None
    reader = ReadsReader([Lane(tuple(map(str, files.reads)), None)], OPTIONS)
    try:
        while n_reads < most and (reads := reader.next_batch()) is not None:
            if model is None:
                aligned = align_reads(index, reads, params, RunStats())
                model = assumed_model()
                if reads.paired:
                    found = confident_inserts(reads.base_offsets, aligned.alignments, params.extend)
                    model = estimate(found[found != 0])
                continue
            truths = truths_of(reads)
            n_reads += reads.n_reads
            for look in LOOKS:
                if look == ONE:
                    nobody = np.zeros(reads.n_reads, np.bool_)
                    with patch("mapper.mapping.stages.doubtful_reads", lambda *_, n=nobody: n):
                        aligned = align_reads(index, reads, params, stats[look])
                    doubtful = doubtful_reads(
                        reads, aligned.seeds.guarantee, aligned.alignments, params.extend
                    )
                    n_doubtful += int(doubtful.sum())
                else:
                    aligned = align_reads(index, reads, params, stats[look])
                if reads.paired:
                    rescued = rescue_mates(index, aligned, model, params, RunStats())
                    aligned = aligned._replace(alignments=rescued, rescued=True)
                placements = place_reads(
                    reads, aligned.seeds, aligned.alignments, model, params.pair, params.extend,
                    index.fm.n_rows - 1,
                )  # fmt: skip
                count(index, Graded(aligned, model, truths), placements, counts[look])
    finally:
        reader.close()
    return {
        "n_reads": n_reads,
        "doubtful_pct": 100 * n_doubtful / max(n_reads, 1),
        "looks": {
            look: {
                "score": strata.summary(counts[look], n_reads),
                "us": {
                    stage: 1e6 * stats[look].stage_cpu_seconds[stage] / max(n_reads, 1)
                    for stage in ("seed", "extend")
                },
            }
            for look in LOOKS
        },
    }


def markdown(report: dict[str, Any]) -> list[str]:
    rows = []
    for name, part in report["data_sets"].items():
        for look, found in part["looks"].items():
            levels = [strata.at_least(found["score"], threshold) for threshold in THRESHOLDS]
            rows.append(
                [
                    name if look == ONE else "",
                    f"{part['doubtful_pct']:.2f}" if look == ONE else "",
                    look,
                    *(f"{found['us'][stage]:.1f}" for stage in ("seed", "extend")),
                    f"{found['score']['correct_pct']:.3f}",
                    *(
                        f"{100 * mapped / part['n_reads']:.2f} / {wrong}"
                        for mapped, wrong in levels
                    ),
                ]
            )
    header = ["set", "in doubt %", "", "seed µs", "extend µs", "correct %"]
    return [
        "# The second look at reads in doubt",
        "",
        *harness.markdown_provenance(report["about"]),
        "CPU time of a read in one thread; reads with at least a MAPQ, % of all, / wrong ones.",
        "",
        *harness.table([*header, *(f"MAPQ ≥ {t}" for t in THRESHOLDS)], rows),
    ]


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-sets", nargs="+", metavar="NAME", required=True)
    parser.add_argument("--reads", type=int, default=400_000, help="of a set [%(default)s]")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    data.add_options(parser)
    options = parser.parse_args(arguments)
    sets = data.data_sets_of(options)
    if unknown := [name for name in options.data_sets if name not in sets]:
        raise BenchmarkError(f"No data set {unknown[0]}. There are: {', '.join(sets)}")
    report: dict[str, Any] = {"about": harness.provenance({}), "data_sets": {}}
    with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
        indexes: dict[Path, Index] = {}
        for name in options.data_sets:
            print(name, flush=True)
            files = data.make(sets[name], options.data)
            if files.reference not in indexes:
                path, _ = mappers.build_index(
                    mappers.MAPPERS["fmwave"], files.reference, Path(work)
                )
                indexes[files.reference] = Index.open(path)
            report["data_sets"][name] = measure(indexes[files.reference], files, options.reads)
    harness.write_results(options.out, "second_look", report, markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
