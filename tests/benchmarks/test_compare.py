"""The comparison of mappers: results that are scored again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare
from benchmarks.common import harness

RESULT = harness.RESULTS / "compare.json"


def test_a_mapper_is_scored_again_on_the_same_reads(tmp_path: Path) -> None:
    earlier = tmp_path / "result.json"
    report: dict[str, Any] = json.loads(RESULT.read_text())
    earlier.write_text(json.dumps(report))
    name, part = next(iter(report["data_sets"].items()))
    scores = part["results"]["fmwave"]["accuracy"] | {"correct_pct": 12.3456}
    again = {
        "about": {"date": "2026-01-02", "commit": "abc"},
        "data_sets": {name: part | {"results": {"fmwave": {"accuracy": scores}}}},
    }
    compare.score_again(earlier, again)
    results = json.loads(earlier.read_text())["data_sets"][name]["results"]
    assert results["fmwave"]["accuracy"]["correct_pct"] == 12.3456
    assert results["fmwave"]["runs"] == part["results"]["fmwave"]["runs"]
    assert results["bwa mem"] == part["results"]["bwa mem"]
    table = earlier.with_suffix(".md").read_text()
    assert "Accuracy of fmwave: of 2026-01-02, abc, the same reads." in table
    assert "| 12.346 |" in table


def test_other_reads_are_refused(tmp_path: Path) -> None:
    earlier = tmp_path / "result.json"
    report = json.loads(RESULT.read_text())
    earlier.write_text(json.dumps(report))
    name, part = next(iter(report["data_sets"].items()))
    other = {"about": {}, "data_sets": {name: part | {"seed": -1}}}
    with pytest.raises(harness.BenchmarkError, match=f"no {name} of the same reads"):
        compare.score_again(earlier, other)
