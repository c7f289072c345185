"""Scoring of the benchmarks: strata, MAPQ curves, variants; and how mappers are called."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy, variants
from benchmarks.common import compare_tables, mappers, plots, strata
from benchmarks.common.harness import BenchmarkError
from benchmarks.common.strata import Intervals, Truth
from benchmarks.variants import Variant


def test_names_hold_the_truth() -> None:
    name = "S7!chr!1!100_400!250_550!+-"  # a contig may hold the separator
    assert strata.truth_of(name, False) == Truth("chr!1", 100, 250, False)
    assert strata.truth_of(name, True) == Truth("chr!1", 400, 550, True)
    assert strata.truth_of("S1!c!5!105!-", False) == Truth("c", 5, 105, True)


@pytest.mark.parametrize(
    ("place", "right"),
    [
        (("c", 100, 200, False), True),
        (("d", 100, 200, False), False),
        (("c", 100, 200, True), False),
        (("c", 180, 280, False), True),  # 20 of 180 bases
        (("c", 182, 282, False), False),  # 18 of 182: under a tenth
        (("c", 300, 400, False), False),
    ],
)
def test_correct_is_over_a_tenth_of_the_union(place, right) -> None:
    assert strata.is_correct(Truth("c", 100, 200, False), *place) == right


def test_intervals_touch_as_their_bases_do() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        starts = rng.integers(0, 200, rng.integers(0, 12))
        found = [(int(s), int(s + rng.integers(1, 15))) for s in starts]
        inside = {base for start, end in found for base in range(start, end)}
        intervals = Intervals(found)
        for start in range(0, 230, 7):
            end = start + int(rng.integers(1, 20))
            assert intervals.touch(start, end) == any(b in inside for b in range(start, end))


VCF = """##fileformat=VCFv4.2
##contig=<ID=c,length=1000>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tdonor
c\t100\t.\tA\tC\t.\tPASS\t.\tGT\t1
c\t200\t.\tACG\tA\t.\tPASS\t.\tGT\t1
c\t300\t.\tA\tATT\t.\tPASS\t.\tGT\t1
"""


def test_indels_are_where_bases_are_lost_or_come_in(tmp_path: Path) -> None:
    vcf = tmp_path / "donor.vcf"
    vcf.write_text(VCF)
    places = strata.indels(vcf)["c"]
    assert not places.touch(90, 120)  # a SNP
    assert places.touch(190, 201) and places.touch(201, 202) and not places.touch(202, 220)
    assert places.touch(290, 301) and not places.touch(290, 300) and not places.touch(301, 310)


def test_duplications_are_those_lines_of_the_bed_file(tmp_path: Path) -> None:
    bed = tmp_path / "repeats.bed"
    bed.write_text("c\t0\t50\talu:1\t0.1\nc\t60\t80\tsegdup:2\t0.01\n")
    found = strata.duplications(bed)
    assert found["c"].touch(70, 75) and not found["c"].touch(0, 50)


def test_reads_are_counted_by_kind_and_quality(tmp_path: Path) -> None:
    rows = [
        ("S1!c!100!110!+", 0, 101, 60),  # right
        ("S2!c!200!210!+", 0, 101, 60),  # wrong, touches the kind
        ("S3!c!205!215!+", 0, 206, 0),  # right, touches the kind
        ("S4!c!205!215!+", 4, 0, 0),  # unmapped
        ("S5!c!205!215!+", 256, 1, 0),  # secondary: not counted
    ]
    sam = tmp_path / "out.sam"
    sam.write_text(
        "@SQ\tSN:c\tLN:1000\n"
        + "".join(
            f"{name}\t{flag}\t{'c' if pos else '*'}\t{pos}\t{mapq}\t{'10M' if pos else '*'}"
            f"\t*\t0\t0\tACGTACGTAC\t*\n"
            for name, flag, pos, mapq in rows
        )
    )
    scores = strata.score(sam, {"kind": {"c": Intervals([(200, 220)])}})
    assert scores[strata.ALL] == {
        "reads": 4, "correct_pct": 50.0, "by_mapq": [[60, 2, 1], [0, 1, 0]],
    }  # fmt: skip
    assert scores["kind"]["reads"] == 3 and scores["kind"]["by_mapq"] == [[60, 1, 1], [0, 1, 0]]
    assert strata.at_least(scores[strata.ALL], 60) == (2, 1)
    assert strata.at_least(scores[strata.ALL], 0) == (3, 1)


def test_the_curve_adds_up_from_the_surest_reads() -> None:
    error, placed = plots.roc([[60, 80, 0], [20, 10, 1], [0, 10, 5]], 200)
    assert error == [0.5 / 80, 1 / 90, 6 / 100]
    assert placed == [0.4, 0.45, 0.5]


def report() -> dict:
    score = {"reads": 10, "correct_pct": 90.0, "by_mapq": [[60, 9, 0], [0, 1, 1]]}
    run = {"wall_s": 2.0, "cpu_s": 4.0, "peak_rss_mb": 100.0}
    result = {
        "runs": [run, run | {"wall_s": 3.0}, run | {"wall_s": 2.5}],
        "strata": {strata.ALL: score, strata.INDEL: score},
        "index": run | {"size_mb": 12.0},
        "first_run": run,
    }
    part = {"n_reads": 10, "seed": 1, "results": {"fmwave": result, "peer": result}}
    return {"data_sets": {"small": part}}


def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    result = tmp_path / "compare.json"
    result.write_text(json.dumps(report()))
    (target,) = plots.draw_all(result)
    assert target.name == "compare.small.svg"
    assert "<svg" in target.read_text()


def test_strata_and_index_have_their_rows() -> None:
    results = report()["data_sets"]["small"]["results"]
    rows = compare_tables.strata_rows(results)
    assert rows[0] == [
        "fmwave", strata.INDEL, "10", "90.000", *["90.00 / 0"] * len(compare_tables.THRESHOLDS),
    ]  # fmt: skip
    assert len(rows) == 2
    assert compare_tables.preparation_rows(results)[0] == [
        "fmwave",
        "2.0",
        "4.0",
        "100",
        "12",
        "2.0",
    ]


def test_variants_are_scored_by_kind() -> None:
    truth = {Variant("c", 1, "A", "C"), Variant("c", 5, "A", "AT"), Variant("c", 9, "AT", "A")}
    called = {Variant("c", 1, "A", "C"), Variant("c", 2, "A", "C"), Variant("c", 5, "A", "AT")}
    scores = variants.score(called, truth)
    assert scores["SNP"] == {
        "true": 1, "called": 2, "right": 1, "precision_pct": 50.0, "recall_pct": 100.0,
    }  # fmt: skip
    assert scores["indel"]["recall_pct"] == 50.0 and scores["indel"]["precision_pct"] == 100.0


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    mappers.add_options(parser, ["bowtie2"])
    return parser.parse_args(words)


def test_a_binary_that_is_named_takes_part(tmp_path: Path) -> None:
    program = tmp_path / "bt"
    for name in ("bt", "bt-build"):
        (tmp_path / name).write_text("#!/bin/sh\necho version 9.8.7\n")
        (tmp_path / name).chmod(0o755)
    (mapper,) = mappers.chosen(options("--binary", f"bowtie2={program}"))
    assert mappers.version_of(mapper) == "9.8.7"
    out = tmp_path / "a b.sam"
    assert mapper.index_command(Path("r.fa"), Path("i"), 3, 150)[0] == f"{program}-build"
    one = mapper.map_command(Path("i"), [Path("x")], 2, out, 150)
    two = mapper.map_command(Path("i"), [Path("x"), Path("y")], 2, out, 150)
    assert one[0] == str(program) and one[-2:] == ["-U", "x"]
    assert two[-4:] == ["-1", "x", "-2", "y"]


@pytest.mark.parametrize("given", ["nobody=/bin/sh", "bowtie2=/nowhere/bowtie2", "bowtie2="])
def test_a_binary_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(BenchmarkError, match="--binary"):
        mappers.chosen(options("--binary", given))


def test_values_with_blanks_stay_one_word() -> None:
    mapper = mappers.MAPPERS["SNAP"]
    words = mapper.map_command(Path("an index"), [Path("x 1"), Path("y")], 2, Path("o o"), 150)
    assert words == ["snap-aligner", "paired", "an index", "x 1", "y", "-t", "2", "-o", "o o"]
    assert mapper.index_command(Path("r"), Path("i"), 4, 150)[-1] == "-t4"


def test_an_index_is_all_files_of_its_name(tmp_path: Path) -> None:
    for name, size in (("g.bwa.sa", 5), ("g.bwa.log", 100), ("other", 7)):
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "g.bwa.dir").mkdir()
    (tmp_path / "g.bwa.dir" / "part").write_bytes(bytes(3))
    assert mappers.index_bytes(tmp_path / "g.bwa") == 8


def test_templates_are_compared_by_score_and_place(tmp_path: Path) -> None:
    def sam(name: str, rows: list[tuple[str, int, str, int]]) -> Path:
        path = tmp_path / name
        path.write_text(
            "@SQ\tSN:c\tLN:1000\n"
            + "".join(
                f"{read}\t0\tc\t{pos}\t9\t{cigar}\t*\t0\t0\t{'A' * 20}\t*\tNM:i:{nm}\n"
                for read, pos, cigar, nm in rows
            )
        )
        return path

    names = [f"S{i}!c!100!120!+" for i in range(3)]
    mine = [(101, "20M", 0), (301, "3S17M", 0), (101, "10M2I8M", 2)]  # 20, 12, 10
    peers = [(301, "20M", 0), (101, "20M", 1), (101, "10M2D10M", 3)]  # 20, 15, 7
    found = accuracy.compare_templates(
        sam("a", [(n, *row) for n, row in zip(names, mine, strict=True)]),
        sam("b", [(n, *row) for n, row in zip(names, peers, strict=True)]),
    )
    assert {order: tuple(counts.values()) for order, counts in found.items()} == {
        "fmwave's higher": (1, 0, 0), "equal": (1, 1, 0), "fmwave's lower": (1, 0, 1),
    }  # fmt: skip


def test_weights_are_three_numbers() -> None:
    assert accuracy.weights_of("5/1.8/20") == (5.0, 1.8, 20.0)
    for wrong in ("5", "1/2/3/4", "a/b/c"):
        with pytest.raises((TypeError, ValueError)):
            accuracy.weights_of(wrong)
