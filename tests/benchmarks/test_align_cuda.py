"""The benchmark of pairwise alignment on devices: peers' figures, bars, samples, resuming."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from benchmarks import align_cuda
from benchmarks.align_cpu import OnCores, missing
from benchmarks.common import align_rows, harness
from benchmarks.common.align_peers import (
    AFFINE,
    AFFINE_CIGAR,
    BAND,
    BAND_CIGAR,
    BARS,
    COLUMNS,
    CORES,
    EDIT,
    EDIT_CIGAR,
    GPU,
    best,
)
from benchmarks.common.align_tables import Report, lines_of, row_of
from benchmarks.common.harness import SHARED, BenchmarkError
from benchmarks.common.kernel_time import kernel_times
from mapper.align.edit.api import edit_distance

NAMES = {
    "affine_score": AFFINE, "affine_cigar": AFFINE_CIGAR, "edit_score": EDIT,
    "edit_cigar": EDIT_CIGAR, "wfa_edit_score": EDIT, "wfa_edit_cigar": EDIT_CIGAR,
    "wfa_aff_score": AFFINE, "wfa_aff_cigar": AFFINE_CIGAR, "edlib_score": EDIT,
    "edlib_path": EDIT_CIGAR,
}  # fmt: skip


def millions(text: str) -> float | None:
    """Read a rate of the notes: ``626k``, ``1.07``, ``–``."""
    if text == "–":
        return None
    return float(text[:-1]) / 1000 if text.endswith("k") else float(text)


def test_figures_of_peers_are_those_of_the_notes() -> None:
    notes = SHARED / "gpu-peers.md"
    if not notes.exists():
        pytest.skip(f"{notes} is not there")
    figures = {}
    for line in notes.read_text().splitlines():
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        tool, _, task = first.rpartition(" ")
        if len(cells) == len(COLUMNS) and task in NAMES:
            parts = [[*map(millions, cell.split(" / "))] for cell in cells]
            wall = tuple(part[0] for part in parts)
            kernel = tuple(part[-1] for part in parts) if "CPU cores" not in tool else ()
            figures[tool.partition(",")[0], NAMES[task]] = wall, kernel
    ours = {(tool.tool, tool.task): (tool.wall, tool.kernel) for tool in (*GPU, *CORES)}
    for key, (wall, kernel) in figures.items():
        assert ours[key][0] == pytest.approx(wall), key
        assert ours[key][1] == pytest.approx(kernel), key
    assert ours.keys() == figures.keys()


def test_the_best_peer() -> None:
    assert best(GPU, EDIT_CIGAR, (150, 2), "wall") == ("eWFA-GPU", 36.5)
    assert best(GPU, EDIT, (150, 2), "kernel") == ("eWFA-GPU", 397)  # its score has a CIGAR, too
    assert best(GPU, AFFINE, (150, 5), "wall") == ("GASAL2", 40.7)
    assert best(GPU, BAND, (150, 10), "wall") == ("WFA-GPU", 14.9)
    assert best(CORES, AFFINE_CIGAR, (10_000, 5), "wall") == ("WFA2-lib", 0.00267)
    assert best(GPU, EDIT, (77, 2), "wall") is None
    assert set(BARS) <= {(*column, task) for column in COLUMNS for task in align_cuda.TASKS}


def a_run(**others: object) -> dict:
    return {
        "length": 150, "percent": 2, "task": EDIT_CIGAR, "pairs": 3_000_000, "distinct": 8000,
        "cpu": 2e6, "seconds": {"ASCII": [0.021], "packed": [0.02, 0.03, 0.01],
        "page-locked": [0.01]}, "kernels": {"a": 0.005, "b": 0.005}, "pairs_on_cpu": 0,
        "parts": {"ASCII": {"call": 0.021}}, "library": "edlib", "library_rate": 1.1e6, **others,
    }  # fmt: skip


def test_a_row_says_what_is_met() -> None:
    cells = row_of(a_run())
    assert cells[4:8] == ["143", "150", "300", "300"]
    assert cells[8:12] == ["0", "–", "2", "edlib 1.1"]
    assert cells[12:15] == ["eWFA-GPU 36.5", "eWFA-GPU 397", "WFA2-lib 43.8"]
    assert cells[15:] == ["150: **no**", "150: yes", "**0.76×**"]
    banded = row_of(a_run(task=BAND, suboptimal=4, cut=80, pairs_on_cpu=1_500_000))
    assert banded[7:10] == ["150", "50 %", "0.05 % (1 %)"]
    nothing = row_of(a_run(pairs_on_cpu=3_000_000, percent=3))
    assert nothing[7:9] == ["–", "100 %"]
    assert nothing[12:] == ["–", "–", "–", "", "", ""]


def about(**others: object) -> dict:
    return {
        "date": "2026-11-21T00:00:00+00:00", "commit": "0123456", "command": "-",
        "machine": harness.machine(), "versions": {"device": "none"},
        "options": {"band": [128, 16]}, "lacking": ["edlib"], **others,
    }  # fmt: skip


def test_results_are_kept_and_taken_up_again(tmp_path) -> None:
    report = Report(tmp_path, about(), resume=True)
    report.runs.append(a_run())
    report.left = ["something"]
    report.write()
    text = (tmp_path / "align_cuda.md").read_text()
    assert "**Not measured, for want of time**: something." in text
    assert "left out: edlib" in text
    again = Report(tmp_path, about(date="later"), resume=True)
    assert again.has((150, 2), EDIT_CIGAR)
    assert not again.has((150, 2), EDIT)
    assert "earlier runs: 2026-11-21" in "\n".join(lines_of(again.about, again.runs, []))
    assert not Report(tmp_path, about(), resume=False).runs
    with pytest.raises(BenchmarkError, match="another commit"):
        Report(tmp_path, about(commit="fedcba9"), resume=True)


@pytest.mark.parametrize("text", ["unknown", "", "c8863e4 (its tree)", "main"])
def test_no_commit_is_made_up(monkeypatch, text) -> None:
    monkeypatch.setattr(harness.shutil, "which", lambda _: None)
    monkeypatch.setenv("FMWAVE_COMMIT", text)
    parser = argparse.ArgumentParser()
    harness.add_commit(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert parser.parse_args(["--commit", "c8863e4"]).commit == "c8863e4"


def test_a_repository_around_the_tree_is_not_asked(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FMWAVE_COMMIT", "c8863e4")
    monkeypatch.setattr(harness, "_git", lambda *given: str(tmp_path))
    assert harness.commit() == "c8863e4"


def test_results_have_to_be_the_same_in_every_copy() -> None:
    row = align_rows.row_of(20, 10, 5)
    once = edit_distance(row.queries, row.refs, device="cpu", cigar=True)
    many = edit_distance(
        *(align_rows.repeated(side, 3) for side in (row.queries, row.refs)),
        device="cpu", cigar=True,
    )  # fmt: skip
    align_rows.check(once, many, 3)
    for name in ("score", "cigar_ops", "cigar_offsets"):
        wrong = getattr(many, name).copy()
        wrong[-1] += 1
        with pytest.raises(BenchmarkError, match=name):
            align_rows.check(once, many._replace(**{name: wrong}), 3)


def test_libraries_on_cores_agree_or_say_so() -> None:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    row = align_rows.row_of(30, 10, 7)
    with OnCores(2) as cores:
        for task in (EDIT, AFFINE_CIGAR):
            engine = align_cuda.engine(task, (8, 1))
            scores = engine(row.queries, row.refs, device="cpu").score.tolist()
            assert cores.rate(task, row.pairs, scores, 0.02) > 0
        with pytest.raises(BenchmarkError, match="disagree"):
            cores.rate(EDIT, row.pairs, [score + 1 for score in scores], 0.02)


@pytest.mark.slow_simulated
@pytest.mark.gpu
def test_the_whole_program(device, tmp_path, monkeypatch) -> None:
    """On a device or in the simulator; ended after the first task, and taken up again."""
    monkeypatch.setattr(align_rows, "FEWEST", 2)
    given = ["--rows", "12:10", "--pairs", "2", "--call-s", "0", "--no-libraries"]
    given += ["--band", "4,1", "--repeats", "1", "--commit", "0123456"]
    given += ["--results", str(tmp_path)]
    assert align_cuda.pairs([*given, "--tasks", BAND, BAND_CIGAR, "--limit-s", "0.001"]) == 0
    report = json.loads((tmp_path / "align_cuda.json").read_text())
    assert report["left"] == [f"12 bases, 10 %: {BAND_CIGAR}"]
    (run,) = report["runs"]
    assert set(run["seconds"]) == {"ASCII", "packed", "page-locked"}
    assert set(run["kernels"]) >= {"band_affine_kernel", "finish_kernel"}
    assert (run["task"], run["pairs"], run["pairs_on_cpu"]) == (BAND, 2, 0)
    assert 0 <= run["suboptimal"] <= run["cut"] <= 2
    assert align_cuda.pairs([*given, "--tasks", BAND, "--resume"]) == 0
    report = json.loads((tmp_path / "align_cuda.json").read_text())
    assert (report["left"], report["runs"]) == ([], [run])
    text = (tmp_path / "align_cuda.md").read_text()
    assert len(re.findall(r"^\| 12 \| 10 % \|", text, re.MULTILINE)) == 1


@pytest.mark.gpu
def test_pairs_on_the_cpu_are_counted(device) -> None:
    with kernel_times() as times:  # more than the last rung of the device holds
        found = edit_distance(["A" * 300, "ACGT"], ["", "ACGA"], device="cuda:0")
    assert found.score.tolist() == [300, 1]
    assert times.pairs_on_cpu == 1
    assert {"small_edit_kernel", "group_edit_kernel", "edit_kernel"} <= times.seconds().keys()


@pytest.mark.gpu
def test_the_parts_of_a_call(device) -> None:
    parts = align_cuda.traced_call(
        lambda: edit_distance(["ACGT"], ["ACGA"], cigar=True, device="cuda:0")
    )
    assert set(parts) >= {"call", "host: rest", "device: copy in", "device: kernels"}
    assert parts["call"] > 0
