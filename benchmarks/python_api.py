"""Calls from Python: reads a second of ``mapper.Aligner``, and calls of two strings.

    python -m benchmarks.python_api map REF.fmw REF.fa R1.fq R2.fq --work DIR [-t 2] [--rounds 3]
    python -m benchmarks.python_api pairs [--repeats 50]

``map``: beside the command and mappy, on the same pairs. All are run by turns in each round;
medians count, those of rates and of ratios within a round. The rates of the command and of map_file
are those of whole runs, from FASTQ to BAM, without compiling and loading code. Of the other rows
the reads are Python's strings already (but for the paths), and time is from the call to the
columns, or to the last object, of which r_st is taken. mappy (``pip install mappy``) has no threads
of its own: threads of Python call it, each for a share of the pairs. Of single calls the first
--few pairs are measured.

``pairs``: microseconds of a call of two strings of 150 bases with 8 edits, after the first, beside
edlib, pywfa and parasail, whose scores are compared: the lowest and the median of some runs of 20
calls, by turns. The rows of one letter each show what a call costs beside its cells.

Results: benchmarks/results/python_api.md; each program adds its table, in place of an older one.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import mapper
from benchmarks.common import harness
from benchmarks.common.harness import BenchmarkError, reports_errors, subcommands, table
from benchmarks.common.map_runs import fmwave

Pairs = list[tuple[str, str]]


def strings_of(path: Path) -> list[tuple[str, str, str | None]]:
    """Return the reads of a file."""
    return list(mapper.fastx_read(path))


def of_mappy(aligner: Any, pairs: Pairs, threads: int) -> int:
    """Map pairs by mappy; return the number of alignments."""
    import mappy

    def work(first: int) -> int:
        buffer = mappy.ThreadBuffer()
        return sum(
            1
            for read, mate in pairs[first::threads]
            for hit in aligner.map(read, mate, buf=buffer)
            if hit.r_st >= 0
        )

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(work, range(threads)))


def runs_of(
    options: argparse.Namespace, aligner: mapper.Aligner, peer: Any
) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Yield name, number of reads, and call of each row."""
    first, second = map(strings_of, options.reads)
    letters = [read[1] for read in first], [read[1] for read in second]
    pairs = list(zip(*letters, strict=True))
    n, few = 2 * len(first), pairs[: options.few]
    stream = lambda: aligner.map(iter(first), iter(second))  # noqa: E731

    def batches(stream: mapper.HitStream) -> int:
        return sum(int(hits.is_mapped.sum()) for hits in stream.batches())

    yield (
        "map_file, FASTQ to BAM",
        n,
        lambda: aligner.map_file(*options.reads, output=options.work / "python.bam"),
    )
    yield "map, paths of FASTQ, columns", n, lambda: batches(aligner.map(*options.reads))
    yield "map, two lists of str, columns", n, lambda: aligner.map(*letters).mapq
    yield (
        "map, two lists with names and qualities, columns",
        n,
        lambda: aligner.map(first, second).mapq,
    )
    yield "map, two iterators of the same, columns", n, lambda: batches(stream())
    yield "map, the same, objects", n, lambda: sum(hit.r_st for hit in stream())
    yield (
        "map, a call for each pair, objects",
        2 * len(few),
        lambda: sum(hit.r_st for read, mate in few for hit in aligner.map(read, mate)),
    )
    if peer is not None:
        for threads in sorted({1, options.threads}):
            name = f"mappy {metadata.version('mappy')}, preset sr, {threads} thread(s)"
            yield name, 2 * len(few), partial(of_mappy, peer, few, threads)


def command(options: argparse.Namespace) -> float:
    """Return the reads a second of the command."""
    stats = options.work / "command.json"
    words = [
        *fmwave(), "map", str(options.index), *map(str, options.reads), "-t", str(options.threads),
        "-o", str(options.work / "command.bam"), "--device", options.device,
        "--json-stats", str(stats), "--quiet",
    ]  # fmt: skip
    cost = harness.measure(words, options.work / "log")
    if cost.exit_status:
        raise BenchmarkError(harness.tail(options.work / "log"))
    return float(json.loads(stats.read_text())["reads_per_second"])


def write(out: Path, title: str, lines: Sequence[str]) -> None:
    """Put a section in place of an older one of its title, or at the end of the results."""
    path = out / "python_api.md"
    text = path.read_text() if path.exists() else "# Calls from Python\n"
    head, *sections = text.split("\n## ")
    kept = [section for section in sections if section.split("\n")[0] != title]
    own = "\n".join([title, "", *lines]).rstrip() + "\n"
    path.write_text("\n## ".join([head.rstrip() + "\n", *(k.rstrip() + "\n" for k in kept), own]))
    print(f"written: {path}")


@reports_errors
def map_reads(arguments: Sequence[str] | None = None) -> int:
    """Measure the mapping of reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("reads", type=Path, nargs=2)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=harness.RESULTS)
    options = parser.parse_args(arguments)
    try:
        import mappy
    except ImportError:
        peer = None
        print("mappy is not installed, and not measured")
    else:
        peer = mappy.Aligner(str(options.reference), preset="sr")
    about = harness.provenance({name: metadata.version(name) for name in ("numba", "numpy")})
    rates: dict[str, list[float]] = {}
    with mapper.Aligner(options.index, device=options.device, threads=options.threads) as aligner:
        rows = list(runs_of(options, aligner, peer))
        for _ in range(options.rounds):
            rates.setdefault(COMMAND, []).append(command(options))
            for name, n_reads, call in rows:
                start = perf_counter()
                call()
                rates.setdefault(name, []).append(n_reads / (perf_counter() - start))
    cells = [
        (
            name, f"{median(found):,.0f}", " ".join(f"{rate / 1000:.1f}" for rate in found),
            f"{median(a / b for a, b in zip(found, rates[COMMAND], strict=True)):.2f}",
        )
        for name, found in rates.items()
    ]  # fmt: skip
    header = ["", "reads/s, median", "all rounds, thousands", "of the command's in its round"]
    what = f"{rows[0][1]:,} reads in pairs; single calls and mappy: {2 * options.few:,} of them."
    lines = [*harness.markdown_provenance(about), what, ""]
    write(options.out, "Mapping beside the command and mappy", lines + table(header, cells))
    return 0


COMMAND = "fmwave map, FASTQ to BAM"


# --- calls of two strings ---


EQUAL = [("N", base) for base in "ACGT"]


def calls_of(
    query: str, ref: str
) -> Iterator[tuple[str, Callable[[], object], str, Callable[[], object]]]:
    """Yield name and call of fmwave, and of the peer with the same score."""
    import edlib
    import parasail
    import pywfa

    yield (
        "edit distance", lambda: mapper.edit_distance(query, ref),
        "edlib", lambda: edlib.align(query, ref)["editDistance"],
    )  # fmt: skip
    yield (
        "edit distance and CIGAR", lambda: mapper.edit_distance(query, ref, cigar=True).score,
        "edlib", lambda: edlib.align(query, ref, task="path")["editDistance"],
    )  # fmt: skip
    aligner = pywfa.WavefrontAligner(ref, mismatch=4, gap_opening=6, gap_extension=2)
    yield (
        "gap-affine and CIGAR", lambda: mapper.align_affine(query, ref, cigar=True).score,
        "pywfa, an aligner that is kept", lambda: -aligner(query).score,
    )  # fmt: skip
    yield "gap-affine", lambda: mapper.align_affine(query, ref), "", lambda: None
    matrix = parasail.matrix_create("ACGT", 5, -4)
    for span, peer in (("global", "nw"), ("semiglobal", "sg"), ("local", "sw")):
        own = partial(mapper.align_matrix, query, ref, span=span)
        score, trace = (getattr(parasail, f"{peer}_{kind}striped_16") for kind in ("", "trace_"))
        other = partial(score, query, ref, 11, 1, matrix)
        yield f"NUC.4.4, {span}", own, "parasail", partial(_score_of, other)
        yield (
            f"NUC.4.4, {span}, and CIGAR", partial(_score_of, partial(own, cigar=True)),
            "parasail, its traceback table",
            partial(_score_of, partial(trace, query, ref, 11, 1, matrix)),
        )  # fmt: skip
    short = query[:30], ref[:30]
    yield (
        "BLOSUM62, local, of 30 letters",
        lambda: mapper.align_matrix(*short, matrix="BLOSUM62", span="local"),
        "parasail", lambda: parasail.sw_striped_16(*short, 11, 1, parasail.blosum62).score,
    )  # fmt: skip
    yield (
        "NUC.4.4, local, one letter each", lambda: mapper.align_matrix("A", "A", span="local"),
        "parasail", lambda: parasail.sw_striped_16("A", "A", 11, 1, matrix).score,
    )  # fmt: skip
    yield (
        "two-piece gaps", lambda: mapper.align_affine(query, ref, penalties=(4, 6, 2, 24, 1)),
        "", lambda: None,
    )  # fmt: skip
    yield (
        "two-piece gaps and CIGAR",
        lambda: mapper.align_affine(query, ref, penalties=(4, 6, 2, 24, 1), cigar=True).score,
        "", lambda: None,
    )  # fmt: skip
    yield (
        "two-piece gaps and CIGAR, one letter each",
        lambda: mapper.align_affine("A", "A", penalties=(4, 6, 2, 24, 1), cigar=True).score,
        "", lambda: None,
    )  # fmt: skip
    yield (
        "all places, 30 letters in 150",
        lambda: mapper.edit_locations(query[60:90], ref).score,
        "edlib",
        lambda: edlib.align(query[60:90], ref, mode="HW", task="locations")["editDistance"],
    )  # fmt: skip
    yield (
        "edit distance and CIGAR, N equals all",
        lambda: mapper.edit_distance(query, ref, cigar=True, equalities=EQUAL).score,
        "edlib",
        lambda: edlib.align(query, ref, task="path", additionalEqualities=EQUAL)["editDistance"],
    )  # fmt: skip
    yield "extension", lambda: mapper.align_extension(query, ref), "", lambda: None
    yield (
        "extension and CIGAR", lambda: mapper.align_extension(query, ref, cigar=True),
        "", lambda: None,
    )  # fmt: skip
    yield "long_edit_distance", lambda: mapper.long_edit_distance(query, ref), "", lambda: None
    yield (
        "long_edit_distance and path", lambda: mapper.long_edit_distance(query, ref, path=True),
        "", lambda: None,
    )  # fmt: skip
    yield (
        "extension with X-drop 20", lambda: mapper.align_extension(query, ref, x_drop=20),
        "", lambda: None,
    )  # fmt: skip


def _score_of(call: Callable[[], Any]) -> object:
    return call().score


def micros(call: Callable[[], object], n: int = 20) -> float:
    """Return the microseconds of a call, of many."""
    start = perf_counter()
    for _ in range(n):
        call()
    return 1e6 * (perf_counter() - start) / n


ROUNDS = 10


@reports_errors
def pairs(arguments: Sequence[str] | None = None) -> int:
    """Measure calls of two strings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--out", type=Path, default=harness.RESULTS)
    options = parser.parse_args(arguments)
    rng = random.Random(4)
    ref = "".join(rng.choices("ACGT", k=150))
    query = edited(rng, ref, 8)
    calls = list(calls_of(query, ref))
    for name, own, peer, other in calls:
        if own() != other() and peer:
            raise BenchmarkError(f"{name}: {own()} and {other()} by {peer}")
    # Round after round of all calls: a machine's slow times meet each of them.
    times: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for found, (_, own, _, other) in zip(times, calls, strict=True):
            found += [(micros(own), micros(other)) for _ in range(options.repeats // ROUNDS)]
    cells = []
    for found, (name, _, peer, _) in zip(times, calls, strict=True):
        ours, theirs = zip(*found, strict=True)
        own_cells = f"{min(ours):.1f}", f"{median(ours):.1f}"
        other_cells = f"{min(theirs):.1f}", f"{median(theirs):.1f}"
        cells.append((name, *own_cells, *(other_cells if peer else ("–", "–")), peer))
    versions = {name: metadata.version(name) for name in ("numba", "edlib", "pywfa", "parasail")}
    lines = harness.markdown_provenance(harness.provenance(versions))
    about = (
        f"Microseconds of a call, of {options.repeats} times 20 in {ROUNDS} rounds, fmwave's and "
        "the peer's by turns."
    )
    lines += [about, ""]
    header = ["two strings of 150 bases, 8 edits", "fmwave, lowest", "median", "peer, lowest"]
    lines += table([*header, "median", "peer"], cells)
    write(options.out, "Calls of two strings", lines)
    return 0


def edited(rng: random.Random, ref: str, n_edits: int) -> str:
    """Return a copy with substitutions, insertions and deletions in turn."""
    letters = list(ref)
    for i in range(n_edits):
        at = rng.randrange(len(letters))
        if i % 3 == 0:
            letters[at] = rng.choice("ACGT".replace(letters[at], ""))
        elif i % 3 == 1:
            letters.insert(at, rng.choice("ACGT"))
        else:
            del letters[at]
    return "".join(letters)


main = subcommands(__doc__, {"map": map_reads, "pairs": pairs})

if __name__ == "__main__":
    raise SystemExit(main())
