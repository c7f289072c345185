"""Long reads, whole runs: places, valid records, same bytes, mixed files, odd reads."""

from __future__ import annotations

import re
import shutil
import subprocess
from array import array
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam
import pytest

import mapper
from mapper.index.index import Index
from mapper.mapping.options import map_params
from mapper.params import PRESETS, MapParams
from mapper.sorting.options import SortOptions
from tests.end_to_end.test_valid_output import needs_picard, validate
from tests.helpers.mapping_runs import build_index, map_to, records_of
from tests.helpers.read_batches import mutated, random_letters
from tests.helpers.simulate import Place, Read, write_fasta, write_fastq
from tests.naive.differences import apply
from tests.naive.paf import paf_line
from tests.naive.sam_check import Checker
from tests.naive.seeds import opposite, oriented
from tests.naive.two_piece import Scoring


class LongWorld(NamedTuple):
    """A genome with repeats, its index, and long reads of known origin."""

    genome: dict[str, str]
    index: Index
    reads: list[Read]
    places: list[Place]
    fastq: str


def with_errors(rng: np.random.Generator, letters: str, rate: float) -> str:
    """Substitute, insert and delete bases, each at a third of a rate."""
    out = []
    for letter in letters:
        kind = rng.random() / rate
        if kind < 1 / 3:
            out.append(rng.choice([c for c in "ACGT" if c != letter]))
        elif kind < 2 / 3:
            out.append(letter + random_letters(rng, 1 + int(rng.geometric(0.5))))
        elif kind >= 1:
            out.append(letter)
    return "".join(out)


def read_of(name: str, letters: str) -> Read:
    return Read(name, letters, "5" * len(letters))


@pytest.fixture(scope="module")
def long_world(tmp_path_factory: pytest.TempPathFactory) -> LongWorld:
    directory = tmp_path_factory.mktemp("long")
    rng = np.random.default_rng(5)
    family = random_letters(rng, 600)

    def stretch(n: int) -> str:
        return random_letters(rng, n) + oriented(mutated(rng, family, 0.08), int(rng.integers(2)))

    genome = {
        "c1": "".join(stretch(3000) for _ in range(8)) + "CAGT" * 50 + random_letters(rng, 3000),
        "c2": random_letters(rng, 9000) + "N" * 300 + stretch(9000) + random_letters(rng, 5000),
        "tiny": random_letters(rng, 700),
    }
    write_fasta(directory / "g.fa", genome)
    index = build_index(directory / "g.fa", directory / "g.fmw")
    reads, places = [], []
    for i in range(60):
        contig = "c1" if i % 2 else "c2"
        length = int(rng.integers(1100, 7000))
        start = int(rng.integers(0, len(genome[contig]) - length))
        strand = int(rng.integers(2))
        letters = genome[contig][start : start + length].replace("N", "A")
        letters = oriented(with_errors(rng, letters, (0.005, 0.03, 0.1)[i % 3]), strand)
        reads.append(read_of(f"r{i}", letters))
        places.append(Place(contig, start, start + length, strand))
    return LongWorld(genome, index, reads, places, write_fastq(directory / "r.fq", reads))


def preset(name: str, **options: Any) -> MapParams:
    return map_params({"preset": name, **options})


def checked(
    world: LongWorld, tmp_path: Path, reads: list[Read], name: str = "sr", **options: Any
) -> list[Any]:
    """Map reads, all of them long, check the records, and return them."""
    fastq = write_fastq(tmp_path / "in.fq", reads)
    params = preset(name, **options)
    map_to(world.index, tmp_path / "out.sam", fastq, params=params)
    scoring = Scoring(*params.long.scoring)
    checker = Checker(world.genome, reads, paired=False, long_scoring=scoring)
    assert checker.check_file(tmp_path / "out.sam") == []
    return records_of(tmp_path / "out.sam")


@pytest.mark.parametrize("name", PRESETS)
def test_reads_lie_where_they_come_from_and_records_are_valid(
    long_world: LongWorld, tmp_path: Path, name: str
) -> None:
    reads, places = long_world.reads, long_world.places
    # The presets are for reads of fewer errors: contigs have hardly any.
    kept = [i for i in range(len(reads)) if i % 3 <= {"asm": 0, "hifi": 1}.get(name, 2)]
    reads, places = [reads[i] for i in kept], [places[i] for i in kept]
    records = [r for r in checked(long_world, tmp_path, reads, name) if not r.flag & 0x900]
    good = 0
    for record, place in zip(records, places, strict=True):
        overlap = min(record.reference_end, place.end) - max(record.reference_start, place.start)
        good += (
            record.reference_name == place.contig
            and record.is_reverse == place.strand
            and overlap > 0.7 * (place.end - place.start)
            and record.mapping_quality >= 30
        )
    assert good >= 0.97 * len(reads)


@pytest.mark.parametrize(
    "scores",
    [
        {"match": 3, "mismatch": 6, "gap_open": (5, 30), "gap_extend": (3, 1)},
        {"gap_open": 9, "gap_extend": 2, "end_bonus": 0},
        {"match": 15, "mismatch": 200, "gap_open": (200, 200), "gap_extend": (200, 100)},
    ],
)
def test_scores_are_those_given(
    long_world: LongWorld, tmp_path: Path, scores: dict[str, Any]
) -> None:
    reads = [read for i, read in enumerate(long_world.reads) if i % 3 < 2][:20]
    records = checked(long_world, tmp_path, reads, "ont", **scores)
    assert sum(not record.is_unmapped for record in records) >= 20
    plain = checked(long_world, tmp_path, reads, "ont")
    assert [r.get_tag("AS") for r in records] != [r.get_tag("AS") for r in plain]


def test_the_lowest_score_is_that_given(long_world: LongWorld, tmp_path: Path) -> None:
    reads = long_world.reads[:20]
    plain = checked(long_world, tmp_path, reads, "ont")
    scores = sorted(record.get_tag("AS") for record in plain if not record.flag & 0x900)
    assert scores[0] < scores[10]
    records = checked(long_world, tmp_path, reads, "ont", min_score=scores[10])
    found = sorted(r.get_tag("AS") for r in records if not r.is_unmapped)
    assert found == scores[10:]


def test_secondary_records_and_soft_clips(long_world: LongWorld, tmp_path: Path) -> None:
    copy = long_world.genome["c1"][3000 - 100 : 3600 + 100]
    checked(
        long_world, tmp_path, [read_of("a", copy * 2)], "hifi", all_alignments=True,
        extended_cigar=True, soft_clip_supplementary=True, cs="short", ds=True,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["short", "long"])
def test_cs_and_ds(long_world: LongWorld, tmp_path: Path, form: str) -> None:
    reads = long_world.reads[:30]
    records = checked(long_world, tmp_path, reads, "ont", cs=form, ds=True)
    assert all(record.has_tag("cs") and record.has_tag("ds") for record in records)
    spelled = "".join(record.get_tag("cs") for record in records)
    assert ("=" in spelled) == (form == "long") and (":" in spelled) == (form == "short")
    assert "[" in "".join(record.get_tag("ds") for record in records)
    for record in records:
        text = long_world.genome[record.reference_name][record.reference_start :]
        text = text[: record.reference_end - record.reference_start]
        for tag in ("cs", "ds"):
            assert apply(record.get_tag(tag), text) == record.query_alignment_sequence


def test_cs_and_ds_of_short_reads(long_world: LongWorld, tmp_path: Path) -> None:
    reads = [
        read_of(read.name, with_errors(np.random.default_rng(i), read.letters[:200], 0.03))
        for i, read in enumerate(long_world.reads)
    ]
    map_to(long_world.index, tmp_path / "x.sam", write_fastq(tmp_path / "in.fq", reads),
           params=preset("sr", cs="short", ds=True))  # fmt: skip
    checker = Checker(long_world.genome, reads, paired=False)
    assert checker.check_file(tmp_path / "x.sam") == []
    mapped = [record for record in records_of(tmp_path / "x.sam") if not record.is_unmapped]
    assert len(mapped) >= 55 and all(r.has_tag("cs") and r.has_tag("ds") for r in mapped)


def test_paf_has_the_tags(long_world: LongWorld, tmp_path: Path) -> None:
    fastq = write_fastq(tmp_path / "in.fq", long_world.reads[:30])
    params = preset("ont", cs="short", ds=True, all_alignments=True)
    for name in ("x.sam", "x.paf"):
        map_to(long_world.index, tmp_path / name, fastq, params=params)
    lengths = {name: len(text) for name, text in long_world.genome.items()}
    sam = [line for line in (tmp_path / "x.sam").read_text().splitlines() if line[0] != "@"]
    read_lens = {read.name: len(read.letters) for read in long_world.reads}
    wanted = [
        paf_line(line, read_lens[line.split("\t")[0]], lengths)
        for line in sam
        if not int(line.split("\t")[1]) & 4
    ]
    found = (tmp_path / "x.paf").read_text().splitlines()
    assert [decimals(line) for line in found] == [decimals(line) for line in wanted]
    assert all(re.search(r"\tcm:i:\d+\tde:f:(0|0\.\d{4})\t", line) for line in found)


def decimals(line: str) -> str:
    """Return a line of PAF with de as a number: SAM's text leaves zeros at its end out."""
    return re.sub(r"(?<=de:f:)[0-9.]+", lambda text: f"{float(text[0]):.4f}", line)


@pytest.mark.skipif(shutil.which("minimap2") is None, reason="needs minimap2")
def test_minimap2_writes_the_same_tags(long_world: LongWorld, tmp_path: Path) -> None:
    """Of alignments that both find, cs, de and NM are the same."""
    write_fasta(tmp_path / "g.fa", long_world.genome)
    command = ["minimap2", "-cxmap-ont", "--cs", "-s80", str(tmp_path / "g.fa"), long_world.fastq]
    theirs = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    map_to(long_world.index, tmp_path / "x.paf", long_world.fastq,
           params=preset("ont", cs="short"))  # fmt: skip
    lines: list[dict[tuple[str, ...], dict[str, str]]] = []
    for text in (theirs, (tmp_path / "x.paf").read_text()):
        found = {}
        for fields in (line.split("\t") for line in text.splitlines()):
            tags = {tag[:2]: tag[5:] for tag in fields[12:]}
            # Left out: where its ambiguous bases count as equal.
            if "n" not in tags["cs"]:
                found[(*fields[:9], tags["cg"])] = tags
        lines.append(found)
    both = lines[0].keys() & lines[1].keys()
    assert len(both) >= 30
    for key in both:
        for tag in ("cs", "NM", "tp"):
            assert lines[0][key][tag] == lines[1][key][tag]
        assert float(lines[0][key]["de"]) == pytest.approx(float(lines[1][key]["de"]), abs=1.01e-4)


@pytest.mark.parametrize("output", ["x.bam", "x.sam", "x.paf"])
def test_same_bytes_for_any_threads_and_batches(
    long_world: LongWorld, tmp_path: Path, output: str
) -> None:
    wanted = None
    for threads, batch_bases in ((1, None), (2, 10_000), (2, 1)):
        target = tmp_path / output
        map_to(long_world.index, target, long_world.fastq, threads=threads, batch_bases=batch_bases)
        if wanted is None:
            wanted = target.read_bytes()
        assert target.read_bytes() == wanted
    assert wanted is not None and len(wanted) > 1000


def test_short_reads_are_the_same_beside_long_ones(long_world: LongWorld, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    text = long_world.genome["c1"]
    short = []
    for i in range(40):
        start = int(rng.integers(0, len(text) - 1000))
        letters = mutated(rng, text[start : start + int(rng.integers(40, 1000))], 0.02)
        short.append(read_of(f"s{i}", letters))
    mixed = [read for both in zip(short, long_world.reads, strict=False) for read in both]
    one = write_fastq(tmp_path / "short.fq", short)
    both = write_fastq(tmp_path / "both.fq", mixed)
    map_to(long_world.index, tmp_path / "short.sam", one)
    map_to(long_world.index, tmp_path / "both.sam", both)
    map_to(long_world.index, tmp_path / "long.sam", long_world.fastq)

    def lines(name: str) -> list[str]:
        text = (tmp_path / name).read_text()
        return [line for line in text.splitlines() if not line.startswith("@")]

    mixed_lines = lines("both.sam")
    assert [line for line in mixed_lines if line.startswith("s")] == lines("short.sam")
    wanted = lines("long.sam")
    own = [line for line in mixed_lines if line.startswith("r")]
    assert own == wanted[: len(own)]
    assert [
        line.split("\t")[0] for line in mixed_lines if not int(line.split("\t")[1]) & 0x900
    ] == [read.name for read in mixed]


def test_sorted_output_holds_the_same_records(long_world: LongWorld, tmp_path: Path) -> None:
    map_to(long_world.index, tmp_path / "a.bam", long_world.fastq)
    map_to(long_world.index, tmp_path / "b.bam", long_world.fastq, sort=SortOptions(str(tmp_path)))
    plain, ordered = (
        sorted(record.to_string() for record in records_of(tmp_path / name))
        for name in ("a.bam", "b.bam")
    )
    assert plain == ordered
    assert (tmp_path / "b.bam.bai").exists()


@needs_picard
@pytest.mark.parametrize("name", ["sr", "hifi", "ont", "asm"])
@pytest.mark.parametrize("output", ["x.bam", "x.cram"])
def test_picard_finds_nothing(
    long_world: LongWorld, tmp_path: Path, name: str, output: str
) -> None:
    """Of split reads with hard and soft clips, and reads without a place.

    Picard cannot count the mismatches of secondary records (``-a``), whose SEQ is ``*``.
    """
    rng = np.random.default_rng(9)
    reference = tmp_path / "g.fa"
    write_fasta(reference, long_world.genome)
    pysam.faidx(str(reference))
    pysam.dict("-o", str(reference.with_suffix(".dict")), str(reference), catch_stdout=False)
    c1, c2 = long_world.genome["c1"], long_world.genome["c2"]
    reads = [
        *long_world.reads,
        read_of("split", c2[500:3000] + opposite(c1[500:3000])),
        read_of("inverted", c1[1000:5000] + opposite(c1[5000:6500]) + c1[6500:9000]),
        read_of("copies", c1[2900:3700] * 2),
        read_of("foreign", random_letters(rng, 3000)),
        read_of("short", c1[700:820]),
    ]
    fastq = write_fastq(tmp_path / "in.fq", reads)
    for whole in (False, True):
        params = preset(
            name, soft_clip_supplementary=whole, extended_cigar=whole,
            cs="short" if whole else None,
        )  # fmt: skip
        map_to(
            long_world.index, tmp_path / output, fastq, params=params, reference=str(reference),
            sort=SortOptions(str(tmp_path)), read_group=r"@RG\tID:a\tSM:s\tPL:ONT",
        )  # fmt: skip
        records = pysam.view("-c", "-f2048", "-T", str(reference), str(tmp_path / output))
        assert int(records) >= 2
        assert validate(tmp_path / output, reference) == "No errors found"


def test_odd_reads(long_world: LongWorld, tmp_path: Path) -> None:
    """Empty, tiny, without bases, foreign, over contig ends: one primary record each."""
    rng = np.random.default_rng(7)
    c2, tiny = long_world.genome["c2"], long_world.genome["tiny"]
    foreign = random_letters(rng, 2000)
    cases = {
        "empty": "",
        "two": "AC",
        "n": "N" * 3000,
        "foreign": foreign,
        "over_start": foreign[:900] + c2[:2500],
        "over_end": c2[-2500:] + foreign[:900],
        "whole": tiny,
        "beyond_both": foreign[:500] + tiny + foreign[500:1000],
        "over_n": c2[7000:9000] + "N" * 300 + c2[9300:11_000],
        "with_n": c2[1000:2000] + "NN" + c2[2002:4000],
        "mono": "A" * 5000,
        "chimera": c2[500:3000] + opposite(long_world.genome["c1"][500:3000]),
    }
    reads = [read_of(name, letters) for name, letters in cases.items()]
    records = checked(long_world, tmp_path, reads, "ont")
    by_name: dict[str, list[Any]] = {}
    for record in records:
        by_name.setdefault(record.query_name, []).append(record)
    assert all(by_name[name][0].is_unmapped for name in ("empty", "two", "n", "foreign", "mono"))
    start, end = by_name["over_start"][0], by_name["over_end"][0]
    assert (start.reference_start, start.cigartuples[0]) == (0, (4, 900))
    assert (end.reference_end, end.cigartuples[-1]) == (len(c2), (4, 900))
    assert by_name["whole"][0].cigarstring == "700M"
    assert by_name["beyond_both"][0].cigarstring == "500S700M500S"
    assert by_name["over_n"][0].reference_length == 4000
    assert len(by_name["with_n"]) == 1
    assert by_name["with_n"][0].cigarstring == "3000M"
    assert len(by_name["chimera"]) == 2
    parts = by_name["chimera"]
    assert {r.reference_name for r in parts} == {"c1", "c2"}
    assert parts[1].is_supplementary and 5 in dict(parts[1].cigartuples)


@pytest.mark.parametrize("preset_name", ["hifi", "ont"])
@pytest.mark.parametrize("size", [60, 700, 9000])
def test_deletions_and_insertions_stay_in_one_alignment(
    long_world: LongWorld, tmp_path: Path, size: int, preset_name: str
) -> None:
    rng = np.random.default_rng(size)
    text = long_world.genome["c1"]
    deletion = text[500:6500] + text[6500 + size : 12_500 + size]
    insertion = text[500:6500] + random_letters(rng, size) + text[6500:12_500]
    reads = [
        read_of("d", with_errors(rng, deletion, 0.01)),
        read_of("i", with_errors(rng, insertion, 0.01)),
    ]
    records = checked(long_world, tmp_path, reads, preset_name)
    for record, code in zip(records, (2, 1), strict=True):  # D, I
        longest = max((n, op) for op, n in record.cigartuples if op in (1, 2))
        assert longest[1] == code and abs(longest[0] - size) <= 5 + size // 50
    assert [record.flag & 0x800 for record in records] == [0, 0]


def gaps_not_leftmost(genome: dict[str, str], record: Any) -> list[str]:
    """Return the gaps, behind two matches or more, that could begin one base earlier."""
    text, read = genome[record.reference_name], record.query_sequence
    ops = record.cigartuples
    ref, query, found = record.reference_start, 0, []
    for number, (code, length) in enumerate(ops):
        if code in (1, 2) and ops[number - 1][0] == 7 and ops[number - 1][1] > 1:
            side, at = (read, query) if code == 1 else (text, ref)
            if ops[number + 1][0] in (7, 8) and side[at - 1] == side[at + length - 1]:
                found.append(f"{record.query_name} {ref}")
        query += length if code in (1, 4, 7, 8) else 0
        ref += length if code in (2, 7, 8) else 0
    return found


def test_gaps_are_leftmost(long_world: LongWorld, tmp_path: Path) -> None:
    """Also those that a mismatch follows, which end the exact match before them."""
    rng = np.random.default_rng(8)
    text = long_world.genome["c1"]
    runs = [m.start() for m in re.finditer(r"([ACGT])\1{3}", text[500:-500])]
    reads = list(long_world.reads)
    for i, at in enumerate(runs[:40]):
        start, end = max(at + 500 - 1500, 0), at + 500 + 1500
        behind = at + 504  # of the run, where the read has another base
        other = next(c for c in "ACGT" if c not in (text[behind - 1], text[behind]))
        run = text[at + 500 : behind]
        run = run[1:] if i % 2 else run + run[0]
        reads.append(read_of(f"run{i}", text[start : at + 500] + run + other
                             + with_errors(rng, text[behind + 1 : end], 0.01)))  # fmt: skip
    assert sum(read.name.startswith("run") for read in reads) > 20
    records = [
        r for r in checked(long_world, tmp_path, reads, "ont", extended_cigar=True)
        if not r.is_unmapped and not r.is_supplementary
    ]  # fmt: skip
    assert sum(gap in (1, 2) for r in records for gap, _ in r.cigartuples) > 1000
    assert [gap for r in records for gap in gaps_not_leftmost(long_world.genome, r)] == []


def planted_contig(rng: np.random.Generator, letters: str) -> tuple[str, list[str]]:
    """A contig with variants 200 bases apart and more, and each as ``place operation``.

    Operations are those of cs; indels lie as far left as they can.
    """
    sizes = [1, 2, 7, 30, 49, 90, 150]
    out, variants, done = [], [], 0
    for i, pos in enumerate(range(1500, len(letters) - 2000, 1100)):
        pos += int(rng.integers(-300, 300))
        size = sizes[i // 3 % len(sizes)]
        out.append(letters[done:pos])
        if i % 3 == 0:
            new = str(rng.choice([c for c in "ACGT" if c != letters[pos]]))
            variants.append(f"{pos} *{letters[pos]}{new}".lower())
            out.append(new)
            done = pos + 1
        elif i % 3 == 1:
            done = pos + size
            moved, at = letters[pos:done], pos
            while letters[at - 1] == moved[-1]:
                moved, at = moved[-1] + moved[:-1], at - 1
            variants.append(f"{at} -{moved}".lower())
        else:
            new, done = random_letters(rng, size), pos
            out.append(new)
            moved, at = new, pos
            while letters[at - 1] == moved[-1]:
                moved, at = moved[-1] + moved[:-1], at - 1
            variants.append(f"{at} +{moved}".lower())
    return "".join([*out, letters[done:]]), variants


def test_variants_of_an_assembly_have_their_ends(tmp_path: Path) -> None:
    rng = np.random.default_rng(61)
    genome = {"c": random_letters(rng, 90_000)}
    write_fasta(tmp_path / "g.fa", genome)
    index = build_index(tmp_path / "g.fa", tmp_path / "g.fmw")
    contigs, planted = {}, []
    for name, start, strand in (("a", 1000, 0), ("b", 47_000, 1)):
        letters, variants = planted_contig(rng, genome["c"][start : start + 42_000])
        contigs[name] = oriented(letters, strand)
        for variant in variants:
            place, operation = variant.split()
            planted.append(f"{start + int(place)} {operation}")
    write_fasta(tmp_path / "contigs.fa", contigs)
    params = preset("asm", cs="short")
    map_to(index, tmp_path / "out.paf", str(tmp_path / "contigs.fa"), params=params)
    lines = [line.split("\t") for line in (tmp_path / "out.paf").read_text().splitlines()]
    assert [(x[0], x[4], int(x[3]) - int(x[2]), x[11]) for x in lines] == [
        ("a", "+", len(contigs["a"]), "60"), ("b", "-", len(contigs["b"]), "60"),
    ]  # fmt: skip
    found = []
    for fields in lines:
        place = int(fields[7])
        (cs,) = (tag[5:] for tag in fields[12:] if tag.startswith("cs:Z:"))
        for same, operation in re.findall(r":(\d+)|([*+-][a-z]+)", cs):
            if operation:
                found.append(f"{place} {operation}")
            if operation[:1] in ("*", "-"):
                place += 1 if operation[0] == "*" else len(operation) - 1
            place += int(same or 0)
    assert found == planted and len(planted) > 60


def test_gaps_of_scaffolds_are_aligned_as_mismatches(long_world: LongWorld, tmp_path: Path) -> None:
    """N beside N, as many as there are; more N beside fewer; N beside bases, of any length."""
    with_gap, whole = long_world.genome["c2"], long_world.genome["c1"]
    assert with_gap[9000:9300] == "N" * 300
    left, right = with_gap[2000:9000], with_gap[9300:16_000]
    scaffolds = {
        "same": (left + "N" * 300 + right, {0: 14_000}),
        "fewer": (left + "N" * 100 + right, {0: 13_800, 2: 200}),
        "more": (left + "N" * 450 + right, {0: 14_000, 1: 150}),
        "bases": (whole[1000:6000] + "N" * 100 + whole[6100:12_000], {0: 11_000}),
        "many": (whole[1000:9000] + "N" * 3000 + whole[12_000:20_000], {0: 19_000}),
    }
    reads = [read_of(name, letters) for name, (letters, _) in scaffolds.items()]
    reads += [read_of(f"{read.name}_reverse", opposite(read.letters)) for read in reads]
    for preset_name in ("asm", "hifi", "ont"):
        records = checked(long_world, tmp_path, reads, preset_name)
        assert [r.query_name for r in records] == [read.name for read in reads]
        for record in records:
            _, wanted = scaffolds[record.query_name.removesuffix("_reverse")]
            found: dict[int, int] = {}
            for op, n in record.cigartuples:
                found[op] = found.get(op, 0) + n
            assert found == wanted and record.mapping_quality >= 50
            gaps = [n for op, n in record.cigartuples if op in (1, 2)]
            assert len(gaps) == len(wanted) - 1


def test_long_gaps_of_scaffolds_do_not_lower_qualities(tmp_path: Path) -> None:
    """However long, and however short what lies beside them."""
    rng = np.random.default_rng(14)
    text = random_letters(rng, 130_000)
    write_fasta(tmp_path / "g.fa", {"c": text})
    index = build_index(tmp_path / "g.fa", tmp_path / "g.fmw")
    reads = []
    for flank in (400, 1000, 5000):
        for n in (1, 30, 6000, 33_000, 60_000, 99_000):
            letters = text[2000 : 2000 + flank] + "N" * n
            letters += text[2000 + flank + n : 2000 + 2 * flank + n]
            reads.append(read_of(f"{flank}_{n}", letters if n % 4 else opposite(letters)))
    write_fastq(tmp_path / "r.fq", reads)
    map_to(index, tmp_path / "out.sam", str(tmp_path / "r.fq"), params=preset("asm"))
    records = records_of(tmp_path / "out.sam")
    assert [r.query_name for r in records] == [read.name for read in reads]
    for record, read in zip(records, reads, strict=True):
        assert record.cigarstring == f"{len(read.letters)}M"
        assert record.reference_start == 2000 and record.mapping_quality >= 50


def test_both_sides_of_a_long_deletion_are_found(long_world: LongWorld, tmp_path: Path) -> None:
    """The gap costs more than the bases of one side, but less than those of the other."""
    text = long_world.genome["c1"]
    size = 15_000
    reads = [
        read_of(f"{left}", text[4000 - left : 4000] + text[4000 + size : 8500 + size - left])
        for left in (1000, 3500)
    ]
    for name in ("hifi", "ont"):
        records = checked(long_world, tmp_path, reads, name)
        for read in reads:
            mine = [r for r in records if r.query_name == read.name]
            gaps = [n for r in mine for op, n in r.cigartuples if op == 2 and n > 1000]
            assert gaps == [size] or len(mine) == 2
            assert sum(r.query_alignment_length for r in mine) >= 4490
            assert all(r.mapping_quality >= 50 for r in mine)


@pytest.mark.parametrize("start,end", [(5000, 6500), (3500, 9000)])
def test_inversions_are_split(long_world: LongWorld, tmp_path: Path, start: int, end: int) -> None:
    """The second one is most of its read, and its chain the best."""
    text = long_world.genome["c1"]
    read = text[2000:start] + opposite(text[start:end]) + text[end:11_000]
    for name in ("hifi", "ont"):
        records = checked(long_world, tmp_path, [read_of("inv", read)], name)
        spans = sorted((r.reference_start, r.reference_end, r.is_reverse) for r in records)
        assert [strand for *_, strand in spans] == [False, True, False]
        for found, wanted in zip(spans, ((2000, start), (start, end), (end, 11_000)), strict=True):
            assert abs(found[0] - wanted[0]) <= 10 and abs(found[1] - wanted[1]) <= 10
        assert all(r.mapping_quality >= 50 for r in records)


@pytest.mark.parametrize(
    "preset_name,size,errors",
    [
        ("hifi", 350, 0.01),
        ("ont", 350, 0.01),
        ("asm", 300, 0.005),
        ("ont", 700, 0.01),
        ("asm", 1500, 0.001),
    ],
)
def test_short_inversions_are_split(
    long_world: LongWorld, tmp_path: Path, preset_name: str, size: int, errors: float
) -> None:
    """Too short for a drop that ends an alignment; their own chain, if any, is no rival."""
    rng = np.random.default_rng(size)
    text = long_world.genome["c1"]
    reads = []
    for strand in range(2):
        letters = text[1000:5000] + opposite(text[5000 : 5000 + size]) + text[5000 + size : 9000]
        letters = oriented(letters, strand)
        reads.append(read_of(f"inv{strand}", with_errors(rng, letters, errors)))
    records = checked(long_world, tmp_path, reads, preset_name)
    assert len(records) == 6
    for strand in range(2):
        parts = sorted(records[3 * strand : 3 * strand + 3], key=lambda r: r.reference_start)
        assert [r.is_reverse != bool(strand) for r in parts] == [False, True, False]
        assert abs(parts[1].reference_start - 5000) <= 20
        assert abs(parts[1].reference_end - 5000 - size) <= 20
        assert all(r.mapping_quality >= 30 for r in parts)


def test_tags_of_bases_stay_right(long_world: LongWorld, tmp_path: Path) -> None:
    """MM, ML and MN, and kinetics, on whole records as they are; none on clipped ones."""
    text = long_world.genome["c2"]
    letters = {
        "fwd": text[100:2100],
        "rev": opposite(text[100:2100]),
        "split": text[500:3000] + opposite(long_world.genome["c1"][500:2500]),
    }
    source = tmp_path / "u.bam"
    with pysam.AlignmentFile(str(source), "wb", header={"HD": {"VN": "1.6"}}) as out:
        for name, bases in letters.items():
            record = pysam.AlignedSegment()
            record.query_name, record.flag, record.query_sequence = name, 4, bases
            record.query_qualities = pysam.qualitystring_to_array("5" * len(bases))
            record.set_tag("MM", "C+m,1,2;")
            record.set_tag("ML", array("B", [200, 100]))
            record.set_tag("MN", len(bases))
            record.set_tag("fi", array("B", [7] * len(bases)))
            record.set_tag("np", 7)
            out.write(record)
    map_to(long_world.index, tmp_path / "x.bam", str(source))
    for record in records_of(tmp_path / "x.bam"):
        assert record.get_tag("np") == 7
        if record.is_supplementary:
            assert not any(record.has_tag(tag) for tag in ("MM", "ML", "MN", "fi"))
        else:
            assert record.get_tag("MM") == "C+m,1,2;"
            assert list(record.get_tag("ML")) == [200, 100]
            assert record.get_tag("MN") == len(letters[record.query_name])
            assert len(record.get_tag("fi")) == record.get_tag("MN")


def test_the_other_haplotype_makes_a_read_no_less_sure(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    text = random_letters(rng, 12_000)
    genome = {"a": text, "b": text, "c": random_letters(rng, 3000)}
    write_fasta(tmp_path / "g.fa", genome)
    (tmp_path / "groups").write_text("a\t1\nb\t2\n")
    reads = [read_of(f"r{i}", with_errors(rng, text[i * 900 :][:3000], 0.02)) for i in range(8)]
    fastq = write_fastq(tmp_path / "r.fq", reads)
    for groups, sure in ((None, False), (tmp_path / "groups", True)):
        index = Index.build(tmp_path / "g.fa", groups=groups, device="cpu")
        map_to(index, tmp_path / "x.sam", fastq)
        records = records_of(tmp_path / "x.sam")
        assert len(records) == len(reads)
        assert {record.reference_name for record in records} == {"a", "b"}  # ties, by the hash
        assert all((record.mapping_quality >= 50) == sure for record in records)


def test_from_python(long_world: LongWorld) -> None:
    with mapper.Aligner(long_world.index, preset="ont", device="cpu", threads=1) as aligner:
        hits = aligner.map([(read.name, read.letters, read.quals) for read in long_world.reads])
    primary = [hit for hit in hits if not hit.flag & 0x900]
    for hit, place in zip(primary, long_world.places, strict=True):
        assert (hit.ctg, hit.strand) == (place.contig, -1 if place.strand else 1)
        assert abs(hit.r_st - place.start) < 450  # reads may begin in N
    with pytest.raises(mapper.UsageError, match="preset"):
        mapper.Aligner(long_world.index, preset="map-ont")
