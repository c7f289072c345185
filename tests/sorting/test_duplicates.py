"""Duplicates: the oracle, samtools markdup, cuts of ranges and of the genome, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.errors import InputFormatError
from mapper.sorting.duplicate_keys import find_entries
from mapper.sorting.libraries import Libraries
from mapper.sorting.marked_records import DuplicateNames, merge_names
from mapper.sorting.options import MarkOptions
from tests.helpers.duplicate_sets import (
    CONTIGS,
    LIBRARIES,
    READ_GROUPS,
    Kind,
    read_records,
    write_set,
)
from tests.helpers.mapping_runs import DATA, build_index, map_to
from tests.helpers.marking import BamBytes, bam_bytes, mark, records_of, sam_lines
from tests.helpers.shared_data import shared_file
from tests.naive.duplicates import Verdict, coordinate, find_duplicates, is_examined

GROUPS = ("a", "b", "c", "d", "", "elsewhere")

seeds = st.integers(0, 2**32 - 1)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
same_folder_less = settings(same_folder, max_examples=40)


def verdicts(lines: Iterable[str]) -> list[Verdict]:
    """Return the flag and the type of duplicates of SAM lines."""
    fields = [line.split("\t") for line in lines]
    return [(bool(int(f[1]) & 0x400), "dt:Z:SQ" in f) for f in fields]


def markdup(path: Path, options: MarkOptions) -> tuple[list[str], dict[str, Any]]:
    """Return the records and the counts of samtools markdup."""
    target, counts = path.with_name("markdup.bam"), path.with_name("markdup.json")
    arguments = ["--no-PG", "-l", "100000", "--json", "-f", str(counts)]
    if options.supplementary:
        arguments.append("-S")
    if options.remove:
        arguments.append("-r")
    if options.clear:
        arguments.append("-c")
    if options.optical_distance:
        arguments += ["-d", str(options.optical_distance)]
    if options.barcode_tag:
        arguments += ["--barcode-tag", options.barcode_tag]
    pysam.markdup(*arguments, str(path), str(target))
    return sam_lines(target), json.loads(counts.read_text())


def check_like_markdup(path: Path, options: MarkOptions, cuts: Sequence[int] = ()) -> None:
    """Compare records and counts with those of samtools."""
    bam = bam_bytes(path)
    marked = mark(bam, options, [cut for cut in cuts if cut <= len(bam.starts)])
    records, counts = markdup(path, options)
    own = records_of(marked, path.with_name("own.bam"))
    assert own == records
    if options.remove and options.supplementary:
        counts["WRITTEN"] = len(records)  # samtools counts records that it leaves out
    del counts["COMMAND"]
    assert marked.counts == {"COMMAND": "fmwave", **counts}


# --- random templates ---


@pytest.mark.medium
@same_folder
@given(
    seeds, st.integers(1, 60), st.sampled_from([0, 0, 8, 30]), st.booleans(),
    st.sampled_from(["usual", "any"]),
    st.lists(st.integers(0, 100), max_size=3), st.lists(st.integers(95, 130), max_size=3),
)  # fmt: skip
def test_marks_what_the_oracle_says_wherever_it_is_cut(
    tmp_path, seed, n, distance, barcodes, names, percents, places
):
    kind = Kind(groups=GROUPS, barcodes=barcodes, names=names)
    path = write_set(np.random.default_rng(seed), n, kind, tmp_path)
    bam, records = bam_bytes(path), read_records(path)
    tag = "RX" if barcodes else ""
    expected = find_duplicates(records, distance, tag, LIBRARIES, supplementary=True)
    range_cuts = sorted(percent * len(records) // 100 for percent in percents)
    place_cuts = sorted({*places, 1 << 32 | places[0]} if places else ())
    options = MarkOptions(distance, tag, supplementary=True)
    marked = mark(bam, options, range_cuts, place_cuts)
    assert verdicts(records_of(marked, tmp_path / "own.bam")) == expected
    assert mark(bam, options).bam == marked.bam
    examined = [record for record in records if is_examined(record)]
    clips = [record.reference_start - coordinate(record) for record in examined]
    assert marked.reach >= max([0, *clips])


@pytest.mark.medium
@same_folder
@given(
    seeds, st.integers(1, 120), st.sampled_from([0, 8, 30]), st.booleans(), st.booleans(),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_writes_what_samtools_markdup_writes(
    tmp_path, seed, n, distance, barcodes, remove, supplementary, marked, clear
):
    """All but what the docstrings state: names of several shapes, and single reads of far trees."""
    kind = Kind(barcodes=barcodes, marked=marked, same_strand=not distance)
    path = write_set(np.random.default_rng(seed), n, kind, tmp_path)
    tag = "RX" if barcodes else ""
    check_like_markdup(path, MarkOptions(distance, tag, remove, supplementary, clear))


@same_folder_less
@given(seeds, st.integers(1, 80), st.sampled_from([8, 30]))
def test_the_oracle_says_what_samtools_says(tmp_path, seed, n, distance):
    path = write_set(np.random.default_rng(seed), n, Kind(), tmp_path)
    expected = find_duplicates(read_records(path), distance, supplementary=True, whole_trees=True)
    lines, _ = markdup(path, MarkOptions(distance, supplementary=True))
    assert verdicts(lines) == expected


@pytest.mark.medium
@same_folder
@given(seeds, st.integers(1, 80))
def test_only_names_with_equal_beginnings_are_neighbours(tmp_path, seed, n):
    """samtools finds all that are optical, and others: it compares names of different shapes."""
    path = write_set(np.random.default_rng(seed), n, Kind(names="shapes"), tmp_path)
    options = MarkOptions(30, supplementary=True)
    own = verdicts(records_of(mark(bam_bytes(path), options), tmp_path / "own.bam"))
    found = verdicts(markdup(path, options)[0])
    assert [a for a, _ in own] == [a for a, _ in found]
    assert all(theirs for (_, ours), (_, theirs) in zip(own, found, strict=True) if ours)


@pytest.mark.medium
@same_folder_less
@given(seeds, st.integers(1, 80), st.sampled_from([0, 30]))
def test_libraries_are_marked_as_files_of_their_own(tmp_path, seed, n, distance):
    kind = Kind(groups=GROUPS, same_strand=False)
    path = write_set(np.random.default_rng(seed), n, kind, tmp_path)
    options = MarkOptions(distance, supplementary=True)
    marked = mark(bam_bytes(path), options)
    lines = records_of(marked, tmp_path / "own.bam")
    counts = {library.pop("LIBRARY"): library for library in marked.counts.pop("LIBRARIES")}
    assert "ESTIMATED_LIBRARY_SIZE" not in marked.counts
    sums = {key: sum(library[key] for library in counts.values()) for key in marked.counts
            if key != "COMMAND"}  # fmt: skip
    assert marked.counts == {"COMMAND": "fmwave", **sums}
    for library in ("one", "two", "unknown"):
        own = [line for line in lines if _library(line) == library]
        part = tmp_path / "part.bam"
        text = tmp_path / "part.sam"
        unmarked = [line for line in sam_lines(path) if _library(line) == library]
        text.write_text(CONTIGS + READ_GROUPS + "".join(f"{line}\n" for line in unmarked))
        pysam.view("--no-PG", "-b", "-o", str(part), str(text), catch_stdout=False)
        expected, expected_counts = markdup(part, options)
        assert own == expected
        del expected_counts["COMMAND"]
        assert counts.get(library, dict.fromkeys(expected_counts, 0)) == expected_counts


def _library(line: str) -> str:
    groups = [field[5:] for field in line.split("\t")[11:] if field.startswith("RG:Z:")]
    return LIBRARIES.get(groups[0], "unknown") if groups else "unknown"


# --- records made for one purpose ---


def bam_of(lines: Sequence[str], path: Path, header: str = CONTIGS) -> Path:
    """Write records, in the order given, to a BAM file."""
    text = path.with_suffix(".sam")
    text.write_text(header + "".join(f"{line}\n" for line in lines))
    pysam.view("--no-PG", "-b", "-o", str(path), str(text), catch_stdout=False)
    return path


def pair(name: str, flag: int, pos: int, mate_pos: int, quality: str = "I", tags: str = "") -> str:
    """Return one record of a pair of reads of 20 bases on c1; mates have the same quality."""
    score = 20 * (ord(quality) - 33)
    return (
        f"{name}\t{flag}\tc1\t{pos}\t60\t20M\t=\t{mate_pos}\t0\t{'A' * 20}\t{quality * 20}"
        f"\tMC:Z:20M\tms:i:{score}{tags}"
    )


def single(name: str, flag: int, pos: int, quality: str = "I", cigar: str = "20M") -> str:
    return f"{name}\t{flag}\tc1\t{pos}\t60\t{cigar}\t*\t0\t0\t{'A' * 20}\t{quality * 20}"


def marked_names(lines: Sequence[str], tmp_path: Path, **options: Any) -> dict[str, list[str]]:
    """Return the tags of the duplicates among records, by name."""
    marked = mark(bam_bytes(bam_of(lines, tmp_path / "in.bam")), MarkOptions(**options))
    fields = [line.split("\t") for line in records_of(marked, tmp_path / "own.bam")]
    return {f[0]: f[11:] for f in fields if int(f[1]) & 0x400}


@pytest.mark.parametrize(
    ("lacking", "words"), [("MC:Z:20M", "no tag MC"), ("ms:i:800", "no tag ms")]
)
def test_a_pair_without_the_tags_of_fixmate_is_an_error(tmp_path, lacking, words):
    lines = [pair("fine", 0x63, 100, 200), pair("bare", 0x63, 101, 200).replace(f"\t{lacking}", "")]
    with pytest.raises(InputFormatError, match=rf"'bare'.*{words}.*samtools fixmate -m"):
        marked_names(lines, tmp_path)


@pytest.mark.parametrize(("at", "value"), [(-2, ord("?")), (20, 200)], ids=["type", "bases"])
def test_a_malformed_record_is_an_error(tmp_path, at, value):
    bam = bam_bytes(bam_of([single("broken", 0, 100) + "\tXX:i:3"], tmp_path / "in.bam"))
    data = bam.data.copy()
    data[at] = value  # the type of the tag, or the number of bases
    with pytest.raises(InputFormatError, match=r"'broken'.*malformed"):
        find_entries(data, bam.starts, Libraries(bam.header), MarkOptions())


def test_pairs_are_better_by_score_then_name_then_order(tmp_path):
    by_score = [
        pair("b", 0x63, 100, 200, "5"),
        pair("a", 0x63, 100, 200, "/"),
        pair("c", 0x63, 100, 200, "I"),
    ]
    assert set(marked_names(by_score, tmp_path)) == {"a", "b"}
    by_name = [pair(name, 0x63, 100, 200) for name in ("ab", "a", "b")]
    assert set(marked_names(by_name, tmp_path)) == {"ab", "b"}
    same = [pair("a", 0x63, 100, 200, tags="\txi:i:1"), pair("a", 0x63, 100, 200, tags="\txi:i:2")]
    assert marked_names(same, tmp_path)["a"][-1] == "xi:i:2"


def test_single_reads_are_better_by_score_then_order(tmp_path):
    lines = [single("c", 0, 100, "5"), single("b", 0, 100), single("a", 0, 100)]
    assert set(marked_names(lines, tmp_path)) == {"a", "c"}


def test_coordinates_before_a_contig(tmp_path):
    """Records whose clipped bases begin before the contig share a place, not a coordinate."""
    lines = [
        single(name, 0, 1, cigar=f"{n}S{20 - n}M") for name, n in (("a", 5), ("b", 7), ("c", 5))
    ]
    bam = bam_bytes(bam_of(lines, tmp_path / "in.bam"))
    assert set(marked_names(lines, tmp_path)) == {"c"}
    rows, _ = find_entries(bam.data, bam.starts, Libraries(""), MarkOptions())
    assert rows.place.tolist() == [0, 0, 0] and rows.coordinate.tolist() == [-5, -7, -5]
    assert rows.reach == 7


def test_a_cigar_of_more_than_65535_operations(tmp_path):
    """BAM has it in a tag, and a clip over the whole read and a gap in its place."""
    ops = "7S" + "1M1I" * 40_000 + "3H"
    bases = "A" * (7 + 80_000)
    lines = [f"{name}\t16\tc1\t{pos}\t60\t{ops}\t*\t0\t0\t{bases}\t*"
             for name, pos in (("a", 100), ("b", 101))]  # fmt: skip
    end = 100 - 1 + 40_000 - 1 + 3
    lines.append(single("c", 16, end + 1 - 19))
    lines.append(single("d", 16, end + 1 - 19, "5"))
    wide = CONTIGS.replace("5000", "500000")
    path = bam_of(lines, tmp_path / "in.bam", wide)
    check_like_markdup(path, MarkOptions())
    bam = bam_bytes(path)
    rows, _ = find_entries(bam.data, bam.starts, Libraries(bam.header), MarkOptions())
    assert rows.coordinate.tolist() == [end, end + 1, end, end]
    ours = mark(bam, MarkOptions())
    assert [a for a, _ in verdicts(records_of(ours, tmp_path / "own.bam"))] == [
        False,
        False,
        True,
        True,
    ]


def test_a_single_read_of_a_far_pair_is_compared_with_that_pair_only(tmp_path):
    """The reverse read on the left of two: its own end is not the end of the template."""
    close, near, far = "M:1:F:1:11:500:500", "M:1:F:1:11:505:500", "M:1:F:1:11:900:900"
    lines = [pair(far, 0x71, 100, 200, "5"), pair(close, 0x71, 100, 200), single(near, 16, 100)]
    types = marked_names(lines, tmp_path, optical_distance=10)
    assert set(types) == {far, near} and types[near][-1] == "dt:Z:LB"
    path = tmp_path / "in.bam"
    records = read_records(path)
    assert find_duplicates(records, 10)[2] == (True, False)
    assert find_duplicates(records, 10, whole_trees=True)[2] == (True, True)
    theirs, _ = markdup(path, MarkOptions(optical_distance=10))
    assert theirs[2].endswith("dt:Z:SQ")


def types_of(lines: Sequence[str], tmp_path: Path) -> dict[str, str]:
    """Return the types of duplicates by the last part of their names, which are samtools', too."""
    types = {
        name.split(":")[-1]: tags[-1].removeprefix("dt:Z:")
        for name, tags in marked_names(lines, tmp_path, optical_distance=10).items()
    }
    check_like_markdup(tmp_path / "in.bam", MarkOptions(10))
    return types


def test_a_single_read_is_worse_than_a_pair_of_a_lower_score(tmp_path):
    best, second, alone = (f"M:1:F:1:11:{x}:{y}" for x, y in ((9, 900), (500, 1), (505, 2)))
    lines = [
        pair(best, 0x63, 100, 200), pair(second, 0x63, 100, 200, "0"), single(alone, 0, 100)
    ]  # fmt: skip
    assert types_of(lines, tmp_path) == {"1": "LB", "2": "SQ"}


def test_the_best_single_read_is_not_optical_whatever_its_name(tmp_path):
    lines = [single(f"M:1:F:1:11:5:{y}", 0, 100) for y in (9, 1, 2)]
    assert types_of(lines, tmp_path) == {"1": "SQ", "2": "SQ"}


def test_a_best_read_without_coordinates_ends_the_search(tmp_path):
    """Duplicates are compared only with the best one so far."""
    one, two = "M:1:F:1:11:5:1", "M:1:F:1:11:5:2"
    pairs = [pair(one, 0x63, 100, 200, "5"), pair(two, 0x63, 100, 200, "0")]
    best = pair("plain", 0x63, 100, 200)
    assert types_of([best, *pairs], tmp_path) == {"1": "LB", "2": "LB"}
    assert types_of([*pairs, best], tmp_path) == {"1": "LB", "2": "SQ"}


def test_a_name_is_optical_if_any_of_its_duplicates_is():
    parts = [
        DuplicateNames(np.array(high, np.uint64), np.array(low, np.uint64), np.array(optical, bool))
        for high, low, optical in (([1, 1], [1, 2], [False, True]), ([1, 1], [1, 2], [True, False]))
    ]
    merged = merge_names([*parts, parts[0]])
    assert [column.tolist() for column in merged] == [[1, 1], [1, 2], [True, True]]


def test_no_records():
    bam = BamBytes(b"", CONTIGS, np.zeros(0, np.uint8), np.zeros(0, np.int64))
    marked = mark(bam, MarkOptions(30, supplementary=True))
    assert marked.bam == b"" and marked.counts["READ"] == 0
    assert "LIBRARIES" not in marked.counts


# --- libraries ---


def test_libraries_of_a_header():
    assert Libraries(CONTIGS).names == ("unknown",)
    assert Libraries(CONTIGS + READ_GROUPS).names == ("one", "two", "unknown")
    assert Libraries(CONTIGS + "@RG\tID:a\tLB:unknown\n@RG\tID:b\n").names == ("unknown",)


def test_many_read_groups_are_told_apart(tmp_path):
    """IDs that begin alike, of lengths up to that of two hashed words, in more slots than one."""
    ids = [f"{'lane' * (i % 4)}{i}" for i in range(300)]
    header = CONTIGS + "".join(f"@RG\tID:{name}\tLB:{name}\n" for name in ids)
    lines = [single(f"{copy}{name}", 0, 100) + f"\tRG:Z:{name}" for copy in "ab" for name in ids]
    bam = bam_bytes(bam_of(lines, tmp_path / "in.bam", header))
    marked = mark(bam, MarkOptions())
    own = records_of(marked, tmp_path / "own.bam")
    assert [a for a, _ in verdicts(own)] == [False] * 300 + [True] * 300
    libraries = marked.counts["LIBRARIES"]
    assert [library["LIBRARY"] for library in libraries] == ids
    assert {(library["READ"], library["DUPLICATE SINGLE"]) for library in libraries} == {(2, 1)}


def test_one_library_is_not_listed_and_has_a_size(tmp_path):
    lines = [single("a", 0, 100) + "\tRG:Z:x"]
    header = CONTIGS + "@RG\tID:x\tLB:only\n"
    counts = mark(bam_bytes(bam_of(lines, tmp_path / "in.bam", header)), MarkOptions()).counts
    assert "LIBRARIES" not in counts and counts["ESTIMATED_LIBRARY_SIZE"] == 0
    lines.append(single("b", 0, 100))
    counts = mark(bam_bytes(bam_of(lines, tmp_path / "in.bam", header)), MarkOptions()).counts
    assert [library["LIBRARY"] for library in counts["LIBRARIES"]] == ["only", "unknown"]
    assert counts["DUPLICATE TOTAL"] == 0


# --- larger sets ---


def test_simulated_pairs_with_a_third_of_duplicates(tmp_path):
    """Sums of qualities differ here, and the library has a size that can be estimated."""
    rng = np.random.default_rng(5)
    lines, spots = [], []
    names = iter(rng.permutation(30_000).tolist())
    for _ in range(2000):
        if not spots or rng.random() > 0.3:
            spots.append((int(rng.integers(1, 4000)), int(rng.integers(60, 400))))
        start, size = spots[rng.integers(len(spots))] if rng.random() < 0.4 else spots[-1]
        number = next(names)
        name = f"M:1:F:1:{1101 + number % 3}:{number // 100}:{number % 100}"
        for flag, pos, cigar in ((0x63, start, "4S46M"), (0x93, start + size - 50, "50M")):
            quals = "".join(chr(33 + q) for q in rng.integers(2, 41, 50))
            lines.append(f"{name}\t{flag}\tc1\t{pos}\t60\t{cigar}\t*\t0\t0\t{'C' * 50}\t{quals}")
    fixed, path = tmp_path / "fixed.bam", tmp_path / "in.bam"
    pysam.fixmate("-m", "--no-PG", str(bam_of(lines, tmp_path / "raw.bam")), str(fixed))
    pysam.sort("--no-PG", "-o", str(path), str(fixed))
    check_like_markdup(path, MarkOptions(), [1000, 2500])
    check_like_markdup(path, MarkOptions(20, supplementary=True), [7])
    check_like_markdup(path, MarkOptions(20, remove=True, supplementary=True))


def fastq_with_copies(paths: Sequence[Path], folder: Path) -> list[str]:
    """Write the reads of one or two FASTQ files, and a third of them again with other qualities."""
    targets = []
    for mate, path in enumerate(paths):
        target = folder / f"{mate}.fq"
        with pysam.FastxFile(str(path)) as reads, target.open("w") as out:
            for i, read in enumerate(reads):
                name = read.name.removesuffix("/1").removesuffix("/2")
                copies = 2 if i % 3 == 0 else 1
                for copy in range(copies):
                    quals = (read.quality or "")[: -copy or None] + "5" * copy * bool(read.quality)
                    spot = f"M:1:F:1:{11 + i % 2}:{i % 97}:{(i + 40 * copy) % 101}:{name}"
                    out.write(f"@{spot}.{copy}\n{read.sequence or ''}\n+\n{quals}\n")
        targets.append(str(target))
    return targets


def check_mapped(fasta: Path, reads: Sequence[str], tmp_path: Path, barcode_tag: str = "") -> None:
    """Map reads and compare the marks with those of samtools, with several options."""
    mapped, path = tmp_path / "mapped.bam", tmp_path / "in.bam"
    map_to(build_index(fasta, tmp_path / "ref.fmw"), mapped, *reads)
    pysam.sort("--no-PG", "-o", str(path), str(mapped))
    check_options(path, barcode_tag)


def check_options(path: Path, barcode_tag: str = "") -> None:
    check_like_markdup(path, MarkOptions(0, barcode_tag, supplementary=True), [50, 100])
    check_like_markdup(path, MarkOptions(50, barcode_tag, supplementary=True))
    check_like_markdup(path, MarkOptions(50, remove=True))
    _, counts = markdup(path, MarkOptions())
    assert counts["DUPLICATE PRIMARY TOTAL"] > 20


@pytest.mark.medium
@pytest.mark.parametrize("name", ["portiera", "phix"])
def test_bundled_reads(tmp_path, name):
    fasta, ending = ("portiera.fa.gz", "fq.gz") if name == "portiera" else ("phix174.fa", "fq")
    paths = [DATA / f"{name}_R{mate}.{ending}" for mate in (1, 2)]
    check_mapped(DATA / fasta, fastq_with_copies(paths, tmp_path), tmp_path)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "fasta"),
    [
        ("sarscov2", "sarscov2.fa"),
        ("ecoli1k", "ecoli_k12.fa.gz"),
        ("shigella", "ecoli_k12.fa.gz"),
    ],
)
def test_pairs_of_the_shared_data(tmp_path, name, fasta):
    paths = [shared_file(f"reads/{name}_R{mate}.fq.gz") for mate in (1, 2)]
    check_mapped(shared_file(f"ref/{fasta}"), fastq_with_copies(paths, tmp_path), tmp_path)


@pytest.mark.medium
def test_barcoded_pairs_of_the_shared_data(tmp_path):
    reads = str(shared_file("bam/human_umi_ubam.bam"))
    check_mapped(shared_file("ref/chr22_40kb.fa"), [reads], tmp_path, "RX")


def test_the_aligned_pairs_of_the_shared_data(tmp_path):
    by_name, fixed, path = (tmp_path / f"{name}.bam" for name in ("by_name", "fixed", "in"))
    pysam.sort("-n", "--no-PG", "-o", str(by_name), str(shared_file("bam/chr22_pe.bam")))
    pysam.fixmate("-m", "--no-PG", str(by_name), str(fixed))
    pysam.sort("--no-PG", "-o", str(path), str(fixed))
    check_options(path)
