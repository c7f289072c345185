r"""Alignments of long reads beside minimap2: columns, and breaks at structural variants.

    python -m benchmarks.long_alignments GENOME.fa --work DIR

Reads are copies of random places of GENOME with known errors, so that the true place of each base
is known. *Columns*: of the bases that the truth puts beside a reference base, how many the primary
and supplementary alignments put there. *Variants*: reads across a deletion, an insertion, an
inversion or a translocation; found if the alignments, cut at gaps of LEAST_GAP bases, have each
junction of the read within TOLERANCE bases. They lie in the middle of a read and have given sizes,
or lie anywhere in it and have any size: of these, also how many are found by records that are
sure (MAPQ of at least SURE), and how many sure records lie where no part of their read comes from.
All mappers get the same reads and threads; indexes are those of ``benchmarks.long_reads``, made if
they are not there.

Results: OUT.md and OUT.json.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import harness
from benchmarks.long_reads import Tool, parser_about, run, tools_of, version_of

ERRORS = {"hifi": ("hifi", 0.003), "ont_r10": ("ont", 0.01), "ont": ("ont", 0.06)}
"""Preset, and substitutions, insertions and deletions a base, a third each."""
MINIMAP2 = {"hifi": "map-hifi", "ont": "map-ont"}
KINDS = {
    "deletion": (50, 200, 1000, 5000, 15_000, 50_000),
    "insertion": (50, 200, 1000, 5000, 15_000, 50_000),
    "inversion": (100, 200, 300, 500, 1000, 5000),
    "translocation": (0,),
}
ANYWHERE = {
    "deletion": (1000, 20_000), "insertion": (50, 8000), "inversion": (300, 7000),
    "translocation": (1, 1),
}  # fmt: skip
"""Smallest and largest size; sizes are equally frequent by their logarithm."""
FLANK, LEAST_FLANK = 4000, 500
READ_LEN = 10_000
SURE = 20
LEAST_GAP = 30
TOLERANCE = 50
SEED = 47
COMPLEMENT = str.maketrans("ACGT", "TGCA")


class Segment(NamedTuple):
    """A part of a read, in its order: a place of the genome."""

    contig: str
    start: int
    end: int
    reverse: bool


class SimulatedRead(NamedTuple):
    name: str
    letters: str
    segments: list[Segment]
    columns: np.ndarray
    """int64, by base: its position in the contig of the only segment, or -1 for inserted bases."""


class Genome:
    """Contigs, and random places without ambiguous bases."""

    def __init__(self, path: Path) -> None:
        import pysam

        with pysam.FastxFile(str(path), persist=False) as file:
            self.contigs = {str(r.name): str(r.sequence).upper() for r in file}
        self.rng = np.random.default_rng(SEED)

    def place(self, length: int) -> Segment:
        names = list(self.contigs)
        sizes = np.array([len(self.contigs[name]) for name in names], float)
        while True:
            name = names[self.rng.choice(len(names), p=sizes / sizes.sum())]
            start = int(self.rng.integers(0, len(self.contigs[name]) - length))
            if "N" not in self.contigs[name][start : start + length]:
                return Segment(name, start, start + length, False)

    def letters(self, segment: Segment) -> str:
        text = self.contigs[segment.contig][segment.start : segment.end]
        return text.translate(COMPLEMENT)[::-1] if segment.reverse else text


def with_errors(
    rng: np.random.Generator, letters: str, places: np.ndarray, rate: float
) -> tuple[str, np.ndarray]:
    """Add errors; return the bases and the place of each, -1 for inserted ones."""
    kinds = rng.random(len(letters)) / rate
    out: list[str] = []
    kept: list[np.ndarray] = []
    done = 0
    for i in np.flatnonzero(kinds < 1).tolist():
        out.append(letters[done:i])
        kept.append(places[done:i])
        if kinds[i] < 1 / 3:
            out.append(rng.choice([c for c in "ACGT" if c != letters[i]]))
            kept.append(places[i : i + 1])
        elif kinds[i] < 2 / 3:
            out.append(letters[i] + rng.choice(list("ACGT")))
            kept.append(np.array([places[i], -1]))
        done = i + 1
    out.append(letters[done:])
    kept.append(places[done:])
    return "".join(out), np.concatenate(kept)


def read_of(
    genome: Genome, name: str, segments: Sequence[Segment | str], rate: float
) -> SimulatedRead:
    """Return a read of segments and of inserted letters, with errors, on a random strand."""
    letters, places = "", []
    for part in segments:
        text = part if isinstance(part, str) else genome.letters(part)
        letters += text
        first = 0 if isinstance(part, str) else part.start
        places.append(first + np.arange(len(text)))
    read, columns = with_errors(genome.rng, letters, np.concatenate(places), rate)
    known = [part for part in segments if not isinstance(part, str)]
    if genome.rng.integers(2):
        read, columns = read.translate(COMPLEMENT)[::-1], columns[::-1]
        known = [part._replace(reverse=not part.reverse) for part in reversed(known)]
    return SimulatedRead(name, read, known, columns)


def variant(
    genome: Genome, kind: str, size: int, flanks: tuple[int, int] = (FLANK, FLANK)
) -> list[Segment | str]:
    """Return the parts of a read across a variant, with so many bases on both sides."""
    place = genome.place(sum(flanks) + size)
    middle = place.start + flanks[0]
    left = place._replace(end=middle)
    behind = place._replace(start=middle + size)
    if kind == "deletion":
        return [left, behind]
    if kind == "insertion":
        new = "".join(genome.rng.choice(list("ACGT"), size))
        return [left, new, place._replace(start=middle, end=middle + flanks[1])]
    if kind == "inversion":
        return [left, Segment(place.contig, middle, middle + size, True), behind]
    return [left, genome.place(flanks[1])._replace(reverse=bool(genome.rng.integers(2)))]


def variant_anywhere(genome: Genome, kind: str) -> tuple[int, list[Segment | str]]:
    """Return the size of a variant, and the parts of a read of READ_LEN bases across it."""
    low, high = ANYWHERE[kind]
    size = int(low * (high / low) ** genome.rng.random())
    rest = READ_LEN - (size if kind in ("insertion", "inversion") else 0)
    left = int(genome.rng.integers(LEAST_FLANK, rest - LEAST_FLANK + 1))
    return size, variant(genome, kind, size, (left, rest - left))


# --- what a mapper says ---


class Block(NamedTuple):
    """A part of an alignment without long gaps, on the read as given."""

    query_start: int
    query_end: int
    segment: Segment


def blocks_of(record: Any) -> list[Block]:
    """Return the blocks of a record, cut at gaps of LEAST_GAP bases."""
    ops = record.cigartuples
    before = ops[0][1] if ops[0][0] in (4, 5) else 0
    behind = ops[-1][1] if ops[-1][0] in (4, 5) else 0
    length = before + behind + sum(n for op, n in ops if op in (0, 1, 7, 8))
    query, text = before, record.reference_start
    first = query, text
    found = []
    for op, n in [*ops, (2, LEAST_GAP)]:
        if op in (1, 2) and n >= LEAST_GAP and query > first[0]:
            found.append((first[0], query, first[1], text))
        query += n if op in (0, 1, 7, 8) else 0
        text += n if op in (0, 2, 7, 8) else 0
        if op in (1, 2) and n >= LEAST_GAP:
            first = query, text
    reverse = record.is_reverse
    return [
        Block(
            length - end if reverse else start, length - start if reverse else end,
            Segment(record.reference_name, text_start, text_end, reverse),
        )
        for start, end, text_start, text_end in found
    ]  # fmt: skip


def ends(segment: Segment) -> tuple[tuple[str, bool, int], tuple[str, bool, int]]:
    """Return where a segment begins and ends, in the order of the read."""
    places = segment.start, segment.end
    if segment.reverse:
        places = segment.end, segment.start
    return (segment.contig, segment.reverse, places[0]), (
        segment.contig,
        segment.reverse,
        places[1],
    )


def is_near(a: tuple[str, bool, int], b: tuple[str, bool, int]) -> bool:
    return a[:2] == b[:2] and abs(a[2] - b[2]) <= TOLERANCE


def finds(read: SimulatedRead, records: Iterable[Any], kind: str, size: int) -> bool:
    """Return True if neighbouring blocks have all junctions of a read, and a gap its length."""
    blocks = sorted(block for record in records for block in blocks_of(record))
    for left, right in pairwise(read.segments):
        good = False
        for a, b in pairwise(blocks):
            at = is_near(ends(a.segment)[1], ends(left)[1])
            at = at and is_near(ends(b.segment)[0], ends(right)[0])
            if kind in ("deletion", "insertion"):
                shift = abs(ends(b.segment)[0][2] - ends(a.segment)[1][2])
                gap = b.query_start - a.query_end
                found = shift - gap if kind == "deletion" else gap - shift
                at = at and abs(found - size) <= max(10, size // 10)
            good |= at
        if not good:
            return False
    return True


def is_false(read: SimulatedRead, record: Any) -> bool:
    """Return True if a record lies where no part of the read comes from."""
    return not any(
        record.reference_name == part.contig
        and record.is_reverse == part.reverse
        and record.reference_start < part.end
        and record.reference_end > part.start
        for part in read.segments
    )


def agreement(read: SimulatedRead, records: Iterable[Any]) -> float:
    """Return the share of the true pairs of a base and its place that alignments have."""
    place = read.segments[0]
    right = np.zeros(len(read.letters), bool)
    for record in records:
        if record.reference_name != place.contig or record.is_reverse != place.reverse:
            continue
        ops = record.cigartuples
        query = ops[0][1] if ops[0][0] in (4, 5) else 0
        text = record.reference_start
        columns = read.columns[::-1] if record.is_reverse else read.columns
        for op, n in ops:
            if op in (0, 7, 8):
                same = columns[query : query + n] == text + np.arange(n)
                right[query : query + n] |= same
            query += n if op in (0, 1, 7, 8) else 0
            text += n if op in (0, 2, 7, 8) else 0
    return float(right.sum() / (read.columns >= 0).sum())


def records_of(path: Path) -> dict[str, list[Any]]:
    """Return the primary and supplementary records of each read."""
    import pysam

    found = defaultdict(list)
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        for record in file.fetch(until_eof=True):
            if not record.flag & 0x104:
                found[str(record.query_name)].append(record)
    return found


# --- the comparison ---


def map_with(
    tool: Tool, preset: str, reads: Sequence[SimulatedRead], stem: str, options: argparse.Namespace
) -> dict[str, list[Any]]:
    fastq = options.work / f"{stem}.fq"
    fastq.write_text("".join(f"@{r.name}\n{r.letters}\n+\n{'5' * len(r.letters)}\n" for r in reads))
    written = options.work / f"{stem}.{tool.name}{tool.suffix}"
    values: dict[str, object] = {
        "ref": options.genome, "preset": preset, "theirs": MINIMAP2[preset], "reads": fastq,
        "threads": options.threads, "out": written,
    }  # fmt: skip
    index = tool.index_file(options.work, MINIMAP2[preset])
    values["index"] = index
    if not any(options.work.glob(f"{index.name}*")):
        run(tool, tool.words(tool.index, values), options.work, None)
    out = written if tool.suffix == ".sam" else None
    run(tool, tool.words(tool.map, values), options.work, out)
    return records_of(written)


def found_anywhere(
    kind: str, group: Sequence[tuple[SimulatedRead, int]], records: dict[str, list[Any]]
) -> dict[str, int]:
    """Return how many variants are found, by sure records, and how many sure records are false."""
    sure = {
        read.name: [r for r in records[read.name] if r.mapping_quality >= SURE] for read, _ in group
    }
    return {
        "found": sum(finds(read, records[read.name], kind, size) for read, size in group),
        "sure": sum(finds(read, sure[read.name], kind, size) for read, size in group),
        "false": sum(is_false(read, record) for read, _ in group for record in sure[read.name]),
    }


def measured(name: str, genome: Genome, tools: Sequence[Tool], options: argparse.Namespace) -> Any:
    preset, rate = ERRORS[name]
    plain = [read_of(genome, f"r{i}", [genome.place(READ_LEN)], rate) for i in range(options.reads)]
    planted = {
        (kind, size): [
            read_of(genome, f"{kind}-{size}-{i}", variant(genome, kind, size), rate)
            for i in range(options.each)
        ]
        for kind, sizes in KINDS.items()
        for size in sizes
    }
    anywhere: dict[str, list[tuple[SimulatedRead, int]]] = {}
    for kind in ANYWHERE:
        variants = [variant_anywhere(genome, kind) for _ in range(options.anywhere)]
        anywhere[kind] = [
            (read_of(genome, f"any-{kind}-{i}", parts, rate), size)
            for i, (size, parts) in enumerate(variants)
        ]
    results: dict[str, Any] = {}
    for tool in tools:
        records = map_with(tool, preset, plain, f"columns_{name}", options)
        shares = np.array([agreement(read, records[read.name]) for read in plain])
        reads = [read for group in planted.values() for read in group]
        records = map_with(tool, preset, reads, f"variants_{name}", options)
        results[tool.name] = {
            "mean": float(shares.mean()),
            **{f"least_{least}": int((shares >= least / 100).sum()) for least in (99, 98, 95)},
            "found": {
                f"{kind} {size}": sum(finds(r, records[r.name], kind, size) for r in group)
                for (kind, size), group in planted.items()
            },
        }  # fmt: skip
        reads = [read for group in anywhere.values() for read, _ in group]
        records = map_with(tool, preset, reads, f"anywhere_{name}", options)
        results[tool.name]["anywhere"] = {
            kind: found_anywhere(kind, group, records) for kind, group in anywhere.items()
        }
    return results


def markdown(report: dict[str, Any]) -> list[str]:
    lines = [
        "# Alignments of long reads beside minimap2", "",
        *harness.markdown_provenance(report["about"]),
        f"Random places of {report['genome']}; errors are substitutions, insertions and deletions,",
        f"a third each; {report['reads']} reads of {READ_LEN:,} bases for columns, and",
        f"{report['each']} reads of each variant with {FLANK:,} bases on both sides.", "",
        "## Columns", "",
        "Share of the true pairs of a base and its place that alignments have. An indel in a",
        "repeat has several places that are as good, so that no mapper reaches all.", "",
    ]  # fmt: skip
    rows = [
        [name, f"{100 * ERRORS[name][1]:g}", tool, f"{100 * found['mean']:.3f}",
         *(found[f"least_{least}"] for least in (99, 98, 95))]
        for name, results in report["sets"].items()
        for tool, found in results.items()
    ]  # fmt: skip
    header = ["set", "errors, %", "mapper", "mean, %", "reads ≥ 99 %", "≥ 98 %", "≥ 95 %"]
    lines += harness.table(header, rows)
    lines += [
        "", "## Structural variants", "",
        f"Found: all junctions within {TOLERANCE} bases, of deletions and insertions the length",
        "within a tenth; in one alignment or in parts.", "",
    ]  # fmt: skip
    columns = [(name, tool) for name, results in report["sets"].items() for tool in results]
    rows = [
        [kind, *(report["sets"][name][tool]["found"][kind] for name, tool in columns)]
        for kind in next(iter(report["sets"]["hifi"].values()))["found"]
    ]
    heads = [f"{name} {tool}" for name, tool in columns]
    lines += harness.table(["variant, bases", *heads], rows)
    lines += [
        "", f"Anywhere in {READ_LEN:,} bases, {LEAST_FLANK} from the ends at least,",
        f"{report['anywhere']} reads of each kind, sizes equally frequent by their logarithm:",
        f"found, found by records of MAPQ ≥ {SURE}, and records of MAPQ ≥ {SURE} where no part of",
        "the read comes from.", "",
    ]  # fmt: skip
    rows = [
        ["{} {}–{}".format(kind, *ANYWHERE[kind]) if kind != "translocation" else kind,
         *(
             "{found}, {sure}, {false}".format(**report["sets"][name][tool]["anywhere"][kind])
             for name, tool in columns
         )]
        for kind in ANYWHERE
    ]  # fmt: skip
    lines += harness.table(["variant, bases", *heads], rows)
    return lines


def parser() -> argparse.ArgumentParser:
    result = parser_about(__doc__ or "")
    result.add_argument("--reads", type=int, default=1000, help="for columns [%(default)s]")
    result.add_argument("--each", type=int, default=25, help="reads a variant [%(default)s]")
    result.add_argument(
        "--anywhere", type=int, default=1000, help="reads a kind of variant anywhere [%(default)s]"
    )
    return result


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 if a mapper failed or something is missing."""
    options = parser().parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    tools = tools_of(dict(text.split("=", 1) for text in options.binary))
    genome = Genome(options.genome)
    report: dict[str, Any] = {
        "about": harness.provenance({tool.name: version_of(tool) for tool in tools}),
        "genome": options.genome.name, "reads": options.reads, "each": options.each,
        "anywhere": options.anywhere, "sets": {},
    }  # fmt: skip
    for name in ERRORS:
        report["sets"][name] = measured(name, genome, tools, options)
        print(f"  {name}: done", flush=True)
    harness.write_results(options.out, "long_alignments", report, markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
