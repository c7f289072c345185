"""Duplicates: the oracle, samtools markdup, cuts of ranges and of the genome, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pysam
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.sorting.options import MarkOptions
from tests.helpers.duplicate_sets import (
    HEADER,
    LIBRARIES,
    Kind,
    read_records,
    write_set,
)
from tests.helpers.marking import bam_bytes, mark, records_of, sam_lines
from tests.naive.duplicates import Verdict, coordinate, find_duplicates, is_examined

GROUPS = ("a", "b", "c", "d", "", "elsewhere")

seeds = st.integers(0, 2**32 - 1)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def verdicts(lines: Iterable[str]) -> list[Verdict]:
    """Return the flag and the type of duplicates of SAM lines."""
    fields = [line.split("\t") for line in lines]
    return [(bool(int(f[1]) & 0x400), "dt:Z:SQ" in f) for f in fields]


def markdup(path: Path, options: MarkOptions) -> tuple[list[str], dict[str, Any]]:
    """Return the records and the counts of samtools markdup."""
    target, counts = path.with_name("markdup.bam"), path.with_name("markdup.json")
    arguments = ["--no-PG", "--json", "-f", str(counts)]
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


@same_folder
@given(seeds, st.integers(1, 80), st.sampled_from([8, 30]))
def test_the_oracle_says_what_samtools_says(tmp_path, seed, n, distance):
    path = write_set(np.random.default_rng(seed), n, Kind(), tmp_path)
    expected = find_duplicates(read_records(path), distance, supplementary=True, whole_trees=True)
    lines, _ = markdup(path, MarkOptions(distance, supplementary=True))
    assert verdicts(lines) == expected


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


@same_folder
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
        text.write_text(HEADER + "".join(f"{line}\n" for line in unmarked))
        pysam.view("--no-PG", "-b", "-o", str(part), str(text), catch_stdout=False)
        expected, expected_counts = markdup(part, options)
        assert own == expected
        del expected_counts["COMMAND"]
        assert counts.get(library, dict.fromkeys(expected_counts, 0)) == expected_counts


def _library(line: str) -> str:
    groups = [field[5:] for field in line.split("\t")[11:] if field.startswith("RG:Z:")]
    return LIBRARIES.get(groups[0], "unknown") if groups else "unknown"
