"""What jobs used of what they asked for: the table, and the page made of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import (
    CONFIG,
    PHIX,
    SAMPLES_HEADER,
    UNITS_HEADER,
    copied,
    needs_snakemake,
    project,
    script_module,
    snakemake,
)

USED = {"s": "600.0", "max_rss": "500.00", "cpu_time": "1200.00"}
LOG = "host a\nSLURM_JOB_ID=7\nasked threads=4 mem_mb=1000 runtime=20\n"
ON_GPU = LOG + "asked gpus=1/2xA\nfmwave: computing on cuda:0 (NVIDIA A)\n"


@pytest.fixture(scope="module")
def script():
    return script_module("efficiency")


def test_shares_are_of_what_the_log_says_was_asked_for(script):
    row = script.job_row("map", "s-u.1-of-1", USED, ON_GPU)
    assert list(row) == script.COLUMNS
    assert (row["seconds_asked"], row["mem_mb_asked"], row["threads_asked"]) == (
        "1200",
        "1000",
        "4",
    )
    assert (row["time"], row["memory"], row["cores"]) == ("0.500", "0.500", "0.500")
    assert (row["gpus_asked"], row["device"], row["low"]) == ("1/2xA", "cuda:0 (NVIDIA A)", "")


def statistics(**other):
    stages = {"pack": 30.0, "seed": 60.0, "chain": 30.0, "extend": 120.0, "rescue": 60.0}
    seconds = {"wall": 550.0, "start": 20.0, "compile": 30.0, "writing": 0.0}
    return {"seconds": {**seconds, "stages": {**stages, "wait": 900.0, "encode": 7.0}}, **other}


def test_a_gpu_is_used_while_it_has_reads(script):
    """Three streams, of 1200 s in all, worked for 300: a fourth of the 500 s of mapping."""
    row = script.job_row("map", "a", USED, ON_GPU, statistics())
    assert row["gpu"] == f"{125 / 600:.3f}"
    assert row["low"] == "gpu"
    assert script.job_cells(row)["GPU"] == "21 %"
    assert script.rule_cells("map", [row])["gpu, median"] == "21 %"
    for log, counted in (
        (LOG, statistics()),  # on the CPU
        (ON_GPU, statistics(resumed=1)),
        (ON_GPU, None),
    ):
        row = script.job_row("map", "a", USED, log, counted)
        assert (row["gpu"], row["low"]) == ("NA", "")
        assert script.job_cells(row)["GPU"] == "–"


@pytest.mark.parametrize(
    ("used", "low"),
    [
        ({"max_rss": "249"}, "memory"),
        ({"max_rss": "250"}, ""),
        ({"cpu_time": "590", "max_rss": "9"}, "memory, cores"),
        ({"s": "130", "cpu_time": "500"}, "time"),
        ({"s": "119", "cpu_time": "0", "max_rss": "9"}, ""),  # too short to matter
    ],
)
def test_long_jobs_that_used_little_are_noted(script, used, low):
    assert script.job_row("map", "a", USED | used, LOG)["low"] == low


def test_what_is_not_known_is_missing(script):
    """Of jobs too short to be measured, and of logs of an earlier version."""
    short = script.job_row("map", "a", {"s": "0.1", "max_rss": "NA", "cpu_time": "NA"}, LOG)
    assert (short["time"], short["memory"], short["cores"]) == ("0.000", "NA", "NA")
    early = script.job_row("map", "a", USED, "host a\n")
    assert [early[name] for name in script.SHARES] == ["NA"] * 4
    assert early["low"] == ""
    cells = script.rule_cells("map", [short, early])
    assert (cells["jobs"], cells["time, most"], cells["memory, median"]) == ("2", "0 %", "–")
    assert script.job_cells(early)["memory"] == "500 of – MB"
    assert script.job_cells(short)["memory"] == "– of 1,000 MB"


def test_files_of_earlier_settings_are_left_out(script, tmp_path: Path):
    for name in ("map/s-u.1-of-1", "map/s-u.1-of-2", "map/gone", "index", "plots"):
        for folder, ending, text in (
            ("benchmarks", "tsv", "s\tmax_rss\tcpu_time\n600\t900\t60\n"),
            ("logs", "log", LOG),
        ):
            path = tmp_path / folder / f"{name}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    rows = script.rows_of(
        tmp_path / "benchmarks", tmp_path / "logs", ["s", "s-u", "s-u.1-of-1", "index"]
    )
    assert [(row["rule"], row["job"]) for row in rows] == [("index", ""), ("map", "s-u.1-of-1")]
    assert {row["low"] for row in rows} == {"cores"}


@pytest.mark.medium
@needs_snakemake
def test_one_more_sample_is_all_that_a_finished_run_maps(tmp_path):
    """The job that compiles is not made again, for which all mapping jobs would be."""
    one, two = (
        "\t".join([name, "u", copied(tmp_path, name, *PHIX), "", ""]) + "\n"
        for name in ("one", "two")
    )
    samples, units = SAMPLES_HEADER + "one\t\n", UNITS_HEADER + one
    directory = project(tmp_path, CONFIG, samples, units)
    run = snakemake(directory)
    assert run.returncode == 0, run.stdout
    (directory / "samples.tsv").write_text(samples + "two\t\n")
    (directory / "units.tsv").write_text(units + two)
    run = snakemake(directory, "--dry-run", "--printshellcmds")
    assert run.returncode == 0, run.stdout
    assert re.findall(r"-o results/mapped/(\S+)\.bam", run.stdout) == ["two"]


@pytest.mark.medium
@needs_snakemake
def test_every_job_of_a_run_has_a_line_with_its_request(tmp_path):
    units = UNITS_HEADER + (
        "\t".join(["one", "u", copied(tmp_path, "one", *PHIX), "", ""])
        + "\n"
        + "\t".join(["cut", "u", copied(tmp_path, "cut", *PHIX), "", "2"])
        + "\n"
    )
    directory = project(tmp_path, CONFIG, SAMPLES_HEADER + "one\t\ncut\t\n", units)
    run = snakemake(directory)
    assert run.returncode == 0, run.stdout
    rows = script_module("html_tables").read_table(directory / "results" / "efficiency.tsv")
    assert [(row["rule"], row["job"]) for row in rows] == [
        ("alignment_statistics", "cut"), ("alignment_statistics", "one"),
        ("estimate_insert_size", "cut-u"), ("finish_sample", "cut"), ("index", ""),
        ("map", "cut-u.1-of-2"), ("map", "cut-u.2-of-2"), ("map", "one"), ("split_reads", "cut-u"),
    ]  # fmt: skip
    asked = {
        (row["rule"], row["job"]): (row["threads_asked"], row["seconds_asked"]) for row in rows
    }
    assert asked["map", "one"] == ("2", "180")  # small
    assert asked["map", "cut-u.1-of-2"] == ("2", "960")
    assert asked["split_reads", "cut-u"] == ("1", "960")
    assert asked["estimate_insert_size", "cut-u"] == ("2", "1800")
    assert all(int(row["mem_mb_asked"]) >= 1000 for row in rows)
    page = (directory / "results" / "efficiency.html").read_text()
    assert "<td>cut-u.2-of-2</td>" in page
    assert "Nothing to be done" in snakemake(directory).stdout
