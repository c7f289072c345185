"""Placement and mapping quality on simulated reads: weights of MAPQ, and ties with bwa mem.

    python -m benchmarks.accuracy weights --synth-size 20M --weights 3.6/1.8/10 5/1.8/20
    python -m benchmarks.accuracy ties

Reads, donors and errors are those of ``benchmarks.common.data``: its seeds and options are the
recipe.

``weights``: each set goes through the stages once; each combination of weights then places and
grades the same alignments. The table shows reads mapped and wrong from MAPQ thresholds on: choose
weights that put no more wrong reads above 10, 20 and 30 than ``compare`` shows for bwa mem, on
*every* set. Results: benchmarks/results/accuracy_weights.{md,json}.

``ties``: fmwave and bwa mem map the same reads. Every template's primary alignments are rescored
from CIGAR and NM (bwa's defaults, 5 for a clipped end), whatever the mappers say in AS. Where both
reached the same score, which of the places is right is luck; where fmwave's is lower, it lost
something. Written: benchmarks/results/accuracy_ties.{md,json}; the committed table is a section of
accuracy.md.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

from benchmarks.common import data, harness, mappers, strata
from benchmarks.common.harness import BenchmarkError
from mapper.batch import ReadBatch
from mapper.index.index import Index
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from mapper.mapping.pipeline import LENGTH_LIMITS
from mapper.mapping.stages import Aligned, align_reads, rescue_mates
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel, assumed_model, confident_inserts, estimate
from mapper.pair.placement import PlacementBatch, place_reads
from mapper.params import BATCH_BASES, MapParams
from mapper.seed.exact import resolve_all

# --- weights ---


THRESHOLDS = (1, 10, 20, 30, 60)


class Weights(NamedTuple):
    """The weights of ``PairParams`` that are tried."""

    in_pair: float
    alone: float
    of_rivals: float


def weights_of(text: str) -> Weights:
    """Parse ``3.6/1.8/10``."""
    return Weights(*map(float, text.split("/")))


class Graded(NamedTuple):
    """A batch that only has to be placed."""

    aligned: Aligned
    model: InsertSizeModel
    truths: list[strata.Truth]


def truths_of(reads: ReadBatch) -> list[strata.Truth]:
    """Return where each read comes from, out of its name."""
    names = reads.names.tobytes().decode()
    bounds = itertools.pairwise(reads.name_offsets.tolist())
    return [
        strata.truth_of(names[start:end], reads.paired and i % 2 == 1)
        for i, (start, end) in enumerate(bounds)
    ]


def aligned_batches(index: Index, files: data.Files, params: MapParams) -> Iterator[Graded]:
    """Take a set through the stages up to placement; the first batch gives the insert size."""
    options = ReadOptions(
        interleaved=False, keep_comments=False, tag_groups=False, reference=None, threads=1,
        limits=LENGTH_LIMITS, batch_bases=BATCH_BASES,
    )  # fmt: skip
    reader = ReadsReader([Lane(tuple(map(str, files.reads)), None)], options)
    model = None
    stats = RunStats()
    try:
        while (reads := reader.next_batch()) is not None:
            aligned = align_reads(index, reads, params, stats)
            if model is None:
                model = assumed_model()
                if reads.paired:
                    inserts = confident_inserts(
                        reads.base_offsets, aligned.alignments, params.extend
                    )
                    model = estimate(inserts[inserts != 0])
            if reads.paired:
                alignments = rescue_mates(index, aligned, model, params, stats)
                aligned = aligned._replace(alignments=alignments, rescued=True)
            yield Graded(aligned, model, truths_of(reads))
    finally:
        reader.close()


def count(index: Index, batch: Graded, placements: PlacementBatch, counts: np.ndarray) -> None:
    """Add a batch's primary alignments to `counts`, (256, 2): mapped and wrong by MAPQ."""
    alignments, contigs = batch.aligned.alignments, index.contigs
    for row, truth in zip(placements.primary.tolist(), batch.truths, strict=True):
        if row < 0:
            continue
        contig = int(alignments.ref_id[row])
        start = int(contigs.starts[contig])
        right = strata.is_correct(
            truth, contigs.names[contig], int(alignments.text_start[row]) - start,
            int(alignments.text_end[row]) - start, bool(alignments.strand[row]),
        )  # fmt: skip
        counts[placements.mapq[row]] += (1, not right)


def measure(files: data.Files, work: Path, grid: Sequence[Weights]) -> dict[str, Any]:
    """Return, for each of the weights, what :func:`benchmarks.common.strata.summary` says."""
    index_path, _ = mappers.build_index(mappers.MAPPERS["fmwave"], files.reference, work)
    index = Index.open(index_path)
    params = MapParams()
    params = resolve_all(params, index.fm.n_rows - 1)
    counts = {weights: np.zeros((256, 2), np.int64) for weights in grid}
    n_reads = 0
    for batch in aligned_batches(index, files, params):
        n_reads += len(batch.truths)
        for weights in grid:
            pair = params.pair._replace(
                quality_in_pair=weights.in_pair, quality_alone=weights.alone,
                quality_of_rivals=weights.of_rivals,
            )  # fmt: skip
            placements = place_reads(
                batch.aligned.reads, batch.aligned.seeds, batch.aligned.alignments, batch.model,
                pair, params.extend, index.fm.n_rows - 1,
            )  # fmt: skip
            count(index, batch, placements, counts[weights])
    return {
        "/".join(f"{weight:g}" for weight in weights): strata.summary(found, n_reads)
        for weights, found in counts.items()
    }


def weights_markdown(report: dict[str, Any]) -> list[str]:
    rows = []
    for name, part in report["data_sets"].items():
        for weights, score in part.items():
            levels = [strata.at_least(score, threshold) for threshold in THRESHOLDS]
            cells = [f"{mapped:,} / {wrong}" for mapped, wrong in levels]
            rows.append([name, weights, f"{score['correct_pct']:.4f}", *cells])
    header = ["set", "in pair / alone / of rivals", "correct %"]
    return [
        "# Mapping quality under other weights",
        "",
        *harness.markdown_provenance(report["about"]),
        "Reads mapped and reads wrong from each MAPQ on.",
        "",
        *harness.table([*header, *(f"MAPQ ≥ {t}" for t in THRESHOLDS)], rows),
    ]


@harness.reports_errors
def weights(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--weights", nargs="+", type=weights_of, metavar="P/A/R", default=[],
        help="in a pair, alone, of rivals (PairParams); those in use come first",
    )  # fmt: skip
    parser.add_argument("--data-sets", nargs="+", metavar="NAME", help="some, by name [all]")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    data.add_options(parser)
    options = parser.parse_args(arguments)
    sets = data.data_sets_of(options)
    names = options.data_sets or [n for n in sets if not data.is_real(sets[n])]
    pair = MapParams().pair
    in_use = Weights(pair.quality_in_pair, pair.quality_alone, pair.quality_of_rivals)
    grid = list(dict.fromkeys([in_use, *options.weights]))
    if unknown := [name for name in names if name not in sets]:
        raise BenchmarkError(f"No data set {unknown[0]}. There are: {', '.join(sets)}")
    report: dict[str, Any] = {"about": harness.provenance({}), "data_sets": {}}
    for name in names:
        print(name, flush=True)
        files = data.make(sets[name], options.data)
        with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as work:
            report["data_sets"][name] = measure(files, Path(work), grid)
    harness.write_results(options.out, "accuracy_weights", report, weights_markdown(report))
    return 0


# --- ties ---


PAIR = ("fmwave", "bwa mem")
CLIPS = (4, 5)
INDELS = (1, 2)
ORDER = ("fmwave's higher", "equal", "fmwave's lower")


class Template(NamedTuple):
    """The primary alignments of a read or pair."""

    name: str
    score: int
    n_right: int


def rescored(record: Any) -> int:
    """Score of a record from its CIGAR and NM, a clipped end at 5; unmapped: 0."""
    if record.is_unmapped:
        return 0
    cigar = record.cigartuples
    gaps = [length for op, length in cigar if op in INDELS]
    aligned = sum(length for op, length in cigar if op in (0, 7, 8))
    mismatches = int(record.get_tag("NM")) - sum(gaps)
    n_clips = sum(cigar[end][0] in CLIPS for end in (0, -1))
    return aligned - 5 * mismatches - sum(6 + length for length in gaps) - 5 * n_clips


def templates(alignments: Path) -> Iterator[Template]:
    """Return the templates of a file whose records come in the order of the reads."""
    with pysam.AlignmentFile(str(alignments), check_sq=False) as records:
        last = None
        for record in records.fetch(until_eof=True):
            if record.flag & 0x900:
                continue
            name = str(record.query_name)
            right = not record.is_unmapped and strata.is_correct(
                strata.truth_of(name, record.is_read2), str(record.reference_name),
                record.reference_start, int(record.reference_end or 0), record.is_reverse,
            )  # fmt: skip
            if last is not None and last.name == name:
                last = last._replace(
                    score=last.score + rescored(record), n_right=last.n_right + right
                )
                continue
            if last is not None:
                yield last
            last = Template(name, rescored(record), int(right))
        if last is not None:
            yield last


def compare_templates(mine: Path, peers: Path) -> dict[str, dict[str, int]]:
    """Count templates by whose score is higher, and by whose place is right."""
    counts = {key: Counter[str]() for key in ORDER}
    for a, b in zip(templates(mine), templates(peers), strict=True):
        if a.name != b.name:
            raise BenchmarkError(f"{a.name} in {mine} stands where {b.name} is in {peers}")
        order = ORDER[1 + (a.score < b.score) - (a.score > b.score)]
        counts[order]["templates"] += 1
        counts[order]["only fmwave right"] += a.n_right > b.n_right
        counts[order]["only bwa mem right"] += a.n_right < b.n_right
    return {order: dict(found) for order, found in counts.items()}


def ties_markdown(report: dict[str, Any]) -> list[str]:
    rows = []
    for name, counts in report["data_sets"].items():
        for order, found in counts.items():
            rows.append([name, order, *(f"{number:,}" for number in found.values())])
    header = ["set", "score", "templates", "fmwave nearer the truth", "bwa mem nearer the truth"]
    return [
        "# Places of equal and of unequal score, fmwave and bwa mem",
        "",
        *harness.markdown_provenance(report["about"]),
        *harness.table(header, rows),
    ]


@harness.reports_errors
def ties(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--data-sets", nargs="+", metavar="NAME", help="some, by name [all]")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    data.add_options(parser)
    options = parser.parse_args(arguments)
    sets = data.data_sets_of(options)
    names = options.data_sets or list(sets)
    if unknown := [name for name in names if name not in sets]:
        raise BenchmarkError(f"No data set {unknown[0]}. There are: {', '.join(sets)}")
    tools = [mappers.MAPPERS[name] for name in PAIR]
    about = harness.provenance(mappers.versions_of(tools))
    report: dict[str, Any] = {"about": about, "data_sets": {}}
    for name in names:
        print(name, flush=True)
        files = data.make(sets[name], options.data)
        with tempfile.TemporaryDirectory(prefix="fmwave-bench-") as folder:
            work = Path(folder)
            outs = []
            for tool in tools:
                index, _ = mappers.build_index(tool, files.reference, work)
                out = work / f"{tool.program}{tool.suffix}"
                cost, log = mappers.run_mapper(tool, index, files.reads, options.threads, out)
                if cost.exit_status:
                    raise BenchmarkError(f"{tool.name} failed:\n{harness.tail(log)}")
                outs.append(out)
            report["data_sets"][name] = compare_templates(*outs)
    harness.write_results(options.out, "accuracy_ties", report, ties_markdown(report))
    return 0


main = harness.subcommands(__doc__, {"weights": weights, "ties": ties})
"""Run the part that the first argument names."""


if __name__ == "__main__":
    sys.exit(main())
