"""The lines of samples and units, and the page made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import script_module


@pytest.fixture(scope="module")
def script():
    return script_module("summary")


@pytest.fixture(scope="module")
def page():
    return script_module("summary_page")


@pytest.mark.parametrize(
    ("mapped", "insert_size", "expected"),
    [
        ("900", "401.5", ("1.5e-03", "401.5")),
        ("900", "0.0", ("1.5e-03", "NA")),  # single reads
        ("0", "0.0", ("NA", "NA")),  # nothing is mapped
    ],
)
def test_what_has_no_value_is_missing_and_not_zero(script, tmp_path, mapped, insert_size, expected):
    path = tmp_path / "x.stats.txt"
    numbers = {
        "reads MQ0": "3", "bases mapped (cigar)": mapped, "error rate": "1.5e-03",
        "insert size average": insert_size,
    }  # fmt: skip
    path.write_text("".join(f"SN\t{key}:\t{value}\t# why\n" for key, value in numbers.items()))
    found = script.stats_numbers(str(path))
    assert (found["error_rate"], found["insert_size_mean"]) == expected
    assert found["mapq0"] == "3"


def test_breadth_is_counted_from_each_depth_on(script, tmp_path):
    path = tmp_path / "x.depth.tsv"
    path.write_text("depth\tpositions\n0\t50\n9\t10\n10\t20\n29\t10\n30\t5\n100000\t5\n")
    found = script.breadths(str(path))
    assert found == {"breadth_10x": "0.4", "breadth_20x": "0.2", "breadth_30x": "0.1"}


def job(reads: int, size: dict | None) -> dict:
    return {"counts": {"reads": reads, "mapped": reads - 1, "mapq_30": 5}, "insert_size": size}


def test_a_unit_is_the_sum_of_its_jobs(script):
    unit = {"sample": "s", "unit": "u", "library": "l", "parts": 2}
    size = {"mean": 300.04, "std": 20.0, "pairs": 9}
    row = script.unit_row(unit, [job(10, None), job(20, size)])
    assert row == {
        "sample": "s", "unit": "u", "library": "l", "reads": "30", "mapped": "28",
        "properly_paired": "0", "mapq30": "10", "insert_size_mean": "300.0",
        "insert_size_sd": "20.0",
    }  # fmt: skip
    for none in (None, {"mean": None, "std": None, "pairs": 0}):
        row = script.unit_row(unit, [job(10, none)])
        assert (row["insert_size_mean"], row["insert_size_sd"]) == ("NA", "NA")


def test_the_page_shows_a_dash_where_there_is_no_value(page):
    cells = page.sample_cells(
        {
            "sample": "s", "reads": "0", "mapped": "0", "properly_paired": "0", "duplicates": "0",
            "mapq0": "0", "error_rate": "NA", "insert_size_mean": "NA", "mean_depth": "0",
            "breadth": "0", "breadth_10x": "0.25",
        }
    )  # fmt: skip
    assert list(cells.values()) == ["s", "0", *6 * ["–"], "0", "0.0 %", "25.0 %"]
    assert list(cells)[-1] == "≥ 10×"
    unit = {
        "sample": "s", "unit": "<b>", "library": "l", "reads": "2000", "mapped": "1000",
        "properly_paired": "0", "mapq30": "500", "insert_size_mean": "NA", "insert_size_sd": "NA",
    }  # fmt: skip
    cells = page.unit_cells(unit)
    assert list(cells.values())[3:] == ["2,000", "50.00 %", "0.00 %", "50.00 %", "–"]
    sized = page.unit_cells({**unit, "insert_size_mean": "301.4", "insert_size_sd": "20.2"})
    assert sized["insert size of the library"] == "301 ± 20"
    assert "<td>&lt;b&gt;</td>" in page.table([cells], "units")


def test_versions_are_those_that_the_files_tell(page, tmp_path: Path):
    """Of all jobs: part of a cohort may have been mapped before an update."""
    files = {
        "a.json": json.dumps({"fmwave": "0.2.0", "versions": {"python": "3.12.1", "numpy": "2.4"}}),
        "b.json": json.dumps({"fmwave": "0.1.0"}),
        "stats.txt": "# This file was produced by samtools stats (1.24 (pysam)+htslib-1.23.1) and",
        "reads.svg": "<dc:title>Matplotlib v3.10.8, https://matplotlib.org/</dc:title>",
        "multiqc.html": '<a href="http://multiqc.info" target="_blank">MultiQC v1.35</a>',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    a, b, stats, plot, multiqc = (str(tmp_path / name) for name in files)
    assert page.versions([a, b], [stats], [plot], [multiqc], "9.27.1") == {
        "fmwave": "0.1.0, 0.2.0", "Python": "3.12.1", "NumPy": "2.4", "samtools": "1.24",
        "htslib": "1.23.1", "Matplotlib": "3.10.8", "MultiQC": "1.35", "Snakemake": "9.27.1",
    }  # fmt: skip
    assert "MultiQC" not in page.versions([a], [stats], [plot], [], "9.27.1")
