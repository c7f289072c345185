r"""Assemblies against references beside minimap2: variants' ends, bases of an alignment, memory.

    python -m benchmarks.assemblies --work DIR --binary minimap2=PATH --paftools "k8 paftools.js"

*planted*: contigs of a donor, SPAN of human chromosome 20 with substitutions, indels and larger
deletions and insertions, on random strands; variants are read from the cs tags of PAF and compared
with the planted ones, both shifted as far left as they go. *chimp*: chromosome 22 of the chimpanzee
on that of human; truth is Ensembl's EPO alignment, base by base. *arenosa*: chromosomes 1 and 2 of
one assembly of Arabidopsis arenosa on another; there is no truth, so what was found stands beside
what minimap2 finds. Runs are whole processes; genomes come from ``common/real_genomes.py``.

Results: OUT.md and OUT.json.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import harness, primates
from benchmarks.common.map_runs import fmwave
from benchmarks.common.real_genomes import fetch, fetch_alignment
from benchmarks.long_reads import Tool, run, version_of

SETS = {
    "planted": "Planted variants",
    "chimp": "Chimpanzee on human chromosome 22",
    "arenosa": "Two assemblies of A. arenosa",
}
MINIMAP2 = {"planted": ("asm5",), "chimp": ("asm5", "asm20"), "arenosa": ("asm5", "asm20")}
"""minimap2's presets by set; nearly equal sequence is asm5's, chimpanzee and arenosa lie between
asm5 and asm20."""
SCORES = {"asm5": "", "asm20": "-B 4 -G 6,26 -E 2,1"}
"""fmwave's options for the scores of a preset of minimap2; those of ``--preset asm`` are asm5's."""
SPAN = (5_000_000, 25_000_000)
CONTIG = 2_000_000
SUBSTITUTIONS, INDELS, LARGE = 1e-3, 2e-4, 60
"""A base, and in all; large ones are deletions and insertions of 50 to 20 000 bases."""
NEAR = 1000
FIRST = 100_000
"""Bases of a contig that are mapped before, so that code is compiled."""
SEED = 53
_COMPLEMENT = bytes.maketrans(b"ACGTacgt", b"TGCAtgca")
_OP = re.compile(r":(\d+)|\*([a-z])([a-z])|\+([a-z]+)|-([a-z]+)")


class Alignment(NamedTuple):
    """A primary or supplementary alignment of PAF; half-open, on both forward strands."""

    query: str
    query_start: int
    query_end: int
    reverse: bool
    ref: str
    ref_start: int
    ref_end: int
    n_matches: int
    mapq: int
    cs: str


class Variant(NamedTuple):
    """A difference: at `pos` of the reference `removed` bases give way to `added`."""

    ref: str
    pos: int
    removed: str
    added: str


class Planted(NamedTuple):
    contigs: dict[str, bytes]
    variants: set[Variant]


# --- what mappers say ---


def alignments(path: Path) -> Iterator[Alignment]:
    """Yield the alignments of a PAF file, without secondary ones."""
    with path.open() as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            tags = {field[:2]: field[5:] for field in fields[12:]}
            if fields[5] == "*" or tags.get("tp", "P") == "S":
                continue
            yield Alignment(
                fields[0], int(fields[2]), int(fields[3]), fields[4] == "-", fields[5],
                int(fields[7]), int(fields[8]), int(fields[9]), int(fields[11]), tags["cs"],
            )  # fmt: skip


def leftmost(genome: dict[str, bytes], ref: str, pos: int, removed: str, added: str) -> Variant:
    """Return a variant, of an indel the leftmost of its equal places."""
    letters = genome[ref]
    if removed and added:
        return Variant(ref, pos, removed, added)
    moved = removed or added
    n_removed = len(removed)
    while pos > 0 and letters[pos - 1 : pos].decode() == moved[-1]:
        moved = moved[-1] + moved[:-1]
        pos -= 1
    return Variant(ref, pos, moved if n_removed else "", "" if n_removed else moved)


def variants_of(genome: dict[str, bytes], found: Sequence[Alignment]) -> set[Variant]:
    """Return the variants in cs tags."""
    variants = set()
    for one in found:
        pos = one.ref_start
        for match in _OP.finditer(one.cs):
            same, old, new, added, removed = match.groups()
            if same:
                pos += int(same)
                continue
            removed = (removed or old or "").upper()
            added = (added or new or "").upper()
            variants.add(leftmost(genome, one.ref, pos, removed, added))
            pos += len(removed)
    return variants


def columns_of(one: Alignment) -> Iterator[tuple[int, int, int]]:
    """Yield runs without gaps: starts in the query, as it is aligned, and reference, and length."""
    query, pos = 0, one.ref_start
    for match in _OP.finditer(one.cs):
        same, old, _, added, removed = match.groups()
        if added:
            query += len(added)
        elif removed:
            pos += len(removed)
        else:
            length = int(same) if same else len(old)
            yield query, pos, length
            query, pos = query + length, pos + length


# --- truth ---


def letters_of(path: Path) -> dict[str, bytes]:
    """Return the sequences of a FASTA file, upper-case."""
    import pysam

    with pysam.FastxFile(str(path), persist=False) as file:
        return {str(r.name): str(r.sequence).upper().encode() for r in file}


def planted(genome: dict[str, bytes], contig: str) -> Planted:
    """Return contigs of a donor, and its variants."""
    rng = np.random.default_rng(SEED)
    letters = genome[contig].decode()
    start, end = SPAN
    kinds = rng.random(end - start)
    at = start + np.flatnonzero(kinds < SUBSTITUTIONS + INDELS)
    large = set(rng.choice(np.arange(start, end, 1000), LARGE, replace=False).tolist())
    places = sorted({*at.tolist(), *large})
    parts: list[str] = []
    variants = set()
    done = start
    for pos in places:
        if pos < done + 2 or "N" in letters[pos - 100 : pos + 100] or pos + 20_001 > end:
            continue
        size = 0
        if pos in large:
            size = int(np.exp(rng.uniform(np.log(50), np.log(20_000))))
        elif kinds[pos - start] >= SUBSTITUTIONS:
            size = min(int(rng.geometric(0.3)), 49)
        if "N" in letters[pos : pos + size]:
            continue
        if size == 0:
            removed = letters[pos]
            added = str(rng.choice([c for c in "ACGT" if c != removed]))
        elif rng.integers(2):
            removed, added = letters[pos : pos + size], ""
        else:
            removed, added = "", "".join(rng.choice(list("ACGT"), size))
        parts += [letters[done:pos], added]
        done = pos + len(removed)
        variants.add(leftmost(genome, contig, pos, removed, added))
    donor = "".join([*parts, letters[done:end]]).encode()
    contigs = {}
    for i in range(0, len(donor), CONTIG):
        piece = donor[i : i + CONTIG]
        contigs[f"contig{i // CONTIG}"] = piece if rng.integers(2) else reverse(piece)
    return Planted(contigs, variants)


def reverse(letters: bytes) -> bytes:
    return letters.translate(_COMPLEMENT)[::-1]


def write_fasta(contigs: dict[str, bytes], path: Path) -> None:
    with path.open("wb") as fasta:
        for name, letters in contigs.items():
            fasta.write(b">%s\n%s\n" % (name.encode(), letters))


# --- scores ---


def score_variants(truth: set[Variant], found: set[Variant]) -> dict[str, list[int]]:
    """Return by kind how many are planted, found exactly, and found beside those."""

    def kind(variant: Variant) -> str:
        size = max(len(variant.removed), len(variant.added))
        if variant.removed and variant.added:
            return "substitutions"
        return "indels of 1 to 49 bases" if size < 50 else "indels of 50 bases and more"

    names = ("substitutions", "indels of 1 to 49 bases", "indels of 50 bases and more")
    return {
        name: [
            sum(kind(v) == name for v in truth), sum(kind(v) == name for v in truth & found),
            sum(kind(v) == name for v in found - truth),
        ]
        for name in names
    }  # fmt: skip


def score_columns(places: np.ndarray, found: Sequence[Alignment]) -> dict[str, float]:
    """Return shares of the bases with a true place: right, aligned, and far from it.

    `places`: int64, by base of the only contig, its place on the reference, or -1.
    """
    right = np.zeros(len(places), bool)
    aligned = np.zeros(len(places), bool)
    far = np.zeros(len(places), bool)
    for one in found:
        for query, pos, length in columns_of(one):
            here = np.arange(pos, pos + length)
            first = one.query_start + query
            part = slice(first, first + length)
            if one.reverse:
                part = slice(one.query_end - query - length, one.query_end - query)
                here = here[::-1]
            right[part] |= places[part] == here
            far[part] |= np.abs(places[part] - here) > NEAR
            aligned[part] = True
    known = places >= 0
    return {
        "right": 100 * float(right[known].mean()),
        "aligned": 100 * float(aligned[known].mean()),
        "far": 100 * float((far & ~right)[known].mean()),
    }


def score_coverage(found: Sequence[Alignment]) -> dict[str, Any]:
    """Return what alignments of 10 000 bases or more, with MAPQ 5, cover and how they differ."""
    used = [one for one in found if one.ref_end - one.ref_start >= 10_000 and one.mapq >= 5]
    lengths = sorted((one.ref_end - one.ref_start for one in used), reverse=True)
    half = np.searchsorted(np.cumsum(lengths), sum(lengths) / 2)
    covered = 0
    for name in {one.ref for one in used}:
        end = 0
        for start, stop in sorted((a.ref_start, a.ref_end) for a in used if a.ref == name):
            covered += max(0, stop - max(start, end))
            end = max(end, stop)
    ops = [op for one in used for op in _OP.finditer(one.cs)]
    return {
        "alignments": len(used), "n50": int(lengths[half]) if lengths else 0, "covered": covered,
        "matches": sum(one.n_matches for one in used),
        "substitutions": sum(bool(op[2]) for op in ops),
        "gaps": sum(bool(op[4] or op[5]) for op in ops),
        "long_gaps": sum(len(op[4] or op[5] or "") >= 50 for op in ops),
    }  # fmt: skip


def paftools_call(words: Sequence[str], paf: Path) -> list[str]:
    """Return what ``paftools.js call`` says of a PAF file on standard error."""
    rows = sorted(
        (line.split("\t") for line in paf.read_text().splitlines()),
        key=lambda fields: (fields[5], int(fields[7]) if fields[7].isdigit() else 0),
    )
    text = "".join("\t".join(row) + "\n" for row in rows if row[5] != "*")
    done = subprocess.run(
        [*words, "call", "-"], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise harness.BenchmarkError(f"{shlex.join(words)} call: {done.stderr[-500:]}")
    return done.stderr.splitlines()


# --- the comparison ---


def tools_of(name: str, binaries: dict[str, str]) -> list[Tool]:
    """Return the mappers of a set, and how each writes PAF with cs."""
    own = shlex.join(fmwave())
    minimap2 = binaries.get("minimap2", "minimap2")
    tools = []
    for preset in MINIMAP2[name]:
        tools.append(
            Tool(f"fmwave {preset}", f"{own} --version",
                 f"{own} index {{ref}} -o {{index}} --force",
                 f"{own} map {{index}} {{reads}} --preset asm {SCORES[preset]} --cs -t {{threads}} "
                 "-o {out} --device cpu", ".paf")
        )  # fmt: skip
        tools.append(
            Tool(f"minimap2 {preset}", f"{minimap2} --version", "",
                 f"{minimap2} -cx {preset} --cs -t {{threads}} -o {{out}} {{ref}} {{reads}}",
                 ".paf")
        )  # fmt: skip
    return tools


def inputs(name: str, options: argparse.Namespace) -> tuple[Path, Path, Any]:
    """Make reference, contigs and truth of a set."""
    ref, contigs = options.work / f"{name}.ref.fa", options.work / f"{name}.fa"
    if name == "planted":
        genome = letters_of(fetch("human126", options.data))
        contig = next(iter(genome))
        genome = {contig: genome[contig]}
        truth = planted(genome, contig)
        write_fasta(genome, ref)
        write_fasta(truth.contigs, contigs)
        return ref, contigs, (genome, truth)
    if name == "chimp":
        write_fasta(letters_of(fetch("human22", options.data)), ref)
        write_fasta(letters_of(fetch("chimp22", options.data)), contigs)
        return ref, contigs, primates.partners_of(
            fetch_alignment(options.data), "chimp22", "human22"
        )  # fmt: skip
    for genome_name, path in (("arenosa12", ref), ("arenosa12b", contigs)):
        with gzip.open(fetch(genome_name, options.data)) as fasta:
            path.write_bytes(fasta.read())
    return ref, contigs, None


def measured(name: str, options: argparse.Namespace, binaries: dict[str, str]) -> dict[str, Any]:
    """Map a set with each mapper, and score."""
    ref, contigs, truth = inputs(name, options)
    results: dict[str, Any] = {}
    for tool in tools_of(name, binaries):
        stem = f"{name}.{tool.name.replace(' ', '_')}"
        index = options.work / f"{name}.fmw"
        written = options.work / f"{stem}.paf"
        values: dict[str, object] = {
            "ref": ref, "reads": contigs, "index": index, "out": written,
            "threads": options.threads,
        }  # fmt: skip
        if tool.index:
            if not index.exists():
                run(tool, tool.words(tool.index, values), options.work, None)
            first = options.work / f"{name}.first.fa"
            write_fasta({"first": next(iter(letters_of(contigs).values()))[:FIRST]}, first)
            run(tool, tool.words(tool.map, values | {"reads": first}), options.work, None)
        cost = run(tool, tool.words(tool.map, values), options.work, None)
        found = list(alignments(written))
        results[tool.name] = {"cost": asdict(cost), **score_coverage(found)}
        if name == "planted":
            genome, made = truth
            results[tool.name]["variants"] = score_variants(
                made.variants, variants_of(genome, found)
            )
        elif name == "chimp":
            results[tool.name]["columns"] = score_columns(truth, found)
        if options.paftools:
            results[tool.name]["paftools"] = paftools_call(shlex.split(options.paftools), written)
        print(f"  {name} {tool.name}: {cost.cpu_s:.1f} s CPU", flush=True)
    return results


def markdown(report: dict[str, Any]) -> list[str]:
    lines = [
        "# Assemblies against references beside minimap2", "",
        *harness.markdown_provenance(report["about"]),
        "What each set is: `benchmarks/assemblies.py`. CPU and memory are of the whole process;",
        "minimap2's makes its index, fmwave's is made before. fmwave asm20 is `--preset asm` with",
        f"asm20's scores, `{SCORES['asm20']}`. Covered: reference bases in alignments of 10,000",
        "bases or more with a MAPQ of 5 or more.", "",
    ]  # fmt: skip
    for name, results in report["sets"].items():
        lines += [f"## {SETS[name]}", ""]
        header = ["mapper", "CPU, s", "GB", "alignments", "N50, kb", "covered, Mb", "matches, Mb"]
        header += ["substitutions", "gaps", "gaps ≥ 50"]
        rows = [
            [tool, f"{found['cost']['cpu_s']:.0f}", f"{found['cost']['peak_rss_mb'] / 1000:.2f}",
             found["alignments"], f"{found['n50'] / 1e3:.0f}", f"{found['covered'] / 1e6:.3f}",
             f"{found['matches'] / 1e6:.3f}", found["substitutions"], found["gaps"],
             found["long_gaps"]]
            for tool, found in results.items()
        ]  # fmt: skip
        lines += [*harness.table(header, rows), ""]
        if name == "planted":
            lines += [
                "Found exactly (place, bases) of those planted, and differences that were not:", "",
                *harness.table(
                    ["mapper", *next(iter(results.values()))["variants"]],
                    [[tool, *(f"{hit} of {all_}, {more} more"
                              for all_, hit, more in found["variants"].values())]
                     for tool, found in results.items()],
                ), "",
            ]  # fmt: skip
        if name == "chimp":
            lines += [
                "Of the bases with a partner in the EPO alignment "
                f"(far: over {NEAR} bases from it):",
                "",
                *harness.table(
                    ["mapper", "aligned, %", "with that partner, %", "far, %"],
                    [[tool, *(f"{found['columns'][key]:.3f}"
                              for key in ("aligned", "right", "far"))]
                     for tool, found in results.items()],
                ), "",
            ]  # fmt: skip
        for tool, found in results.items():
            if "paftools" in found:
                lines += [
                    f"`paftools.js call` on {tool}:",
                    "",
                    "```",
                    *found["paftools"],
                    "```",
                    "",
                ]
    return lines


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    result.add_argument("--work", type=Path, required=True, help="for genomes, indexes and output")
    result.add_argument("--data", type=Path, default=harness.DATA, help="genomes [%(default)s]")
    result.add_argument("-t", "--threads", type=int, default=2, help="[%(default)s]")
    result.add_argument("--binary", nargs="*", default=[], metavar="NAME=PATH")
    result.add_argument("--paftools", metavar="COMMAND", help="how paftools.js is called")
    result.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="[%(default)s]")
    return result


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 if a mapper failed or something is missing."""
    options = parser().parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    binaries = dict(text.split("=", 1) for text in options.binary)
    tools = {tool.name: tool for name in options.sets for tool in tools_of(name, binaries)}
    report: dict[str, Any] = {
        "about": harness.provenance({tool.name: version_of(tool) for tool in tools.values()}),
        "sets": {},
    }
    for name in options.sets:
        report["sets"][name] = measured(name, options, binaries)
        harness.write_results(options.out, "assemblies", report, markdown(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
