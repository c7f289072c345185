"""Is anything lost but luck? fmwave and bwa mem, read by read, by the scores of their places.

    python -m benchmarks.end_to_end.ties

Both map the same simulated reads. Every template's primary alignments are rescored from CIGAR
and NM (bwa's defaults, 5 for a clipped end), whatever the mappers say in AS. Where both reached
the same score, which of the places is right is luck; where fmwave's is lower, it lost something.
Results: benchmarks/results/ties-DATE-COMMIT.{md,json}.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pysam

from benchmarks import data, harness, mappers, strata
from benchmarks.harness import BenchmarkError

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


def compare(mine: Path, peers: Path) -> dict[str, dict[str, int]]:
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


def markdown(report: dict[str, Any]) -> list[str]:
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
def main(arguments: Sequence[str] | None = None) -> int:
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
            report["data_sets"][name] = compare(*outs)
    stem = f"ties-{about['date'][:10]}-{about['commit']}"
    harness.write_results(options.out, stem, report, markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
