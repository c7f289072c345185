"""The benchmark of Occ spacing and suffix array sampling: indexes, rows, plot, resuming."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.common import document, harness
from benchmarks.studies import index_trade_off
from mapper.index.build import build_fm
from mapper.params import IndexParams


@pytest.mark.slow
@pytest.mark.parametrize(("q", "p"), [(64, 1), (64, 8), (128, 4), (512, 64)])
def test_a_thinned_index_is_the_one_that_is_built(q: int, p: int) -> None:
    text = np.random.default_rng(1).integers(0, 4, 5000).astype(np.uint8)
    whole = build_fm(text.copy(), IndexParams(64, 1, 4))
    found = index_trade_off.thinned(whole, q, p)
    for name, ours, built in zip(
        found._fields, found, build_fm(text, IndexParams(q, p, 4)), strict=True
    ):
        assert np.array_equal(ours, built), name


def a_report() -> dict:
    rows = [
        {"q": q, "p": p, "bytes_per_base": 1 + 4 / p, "exact_20_per_s": 1e9 / p,
         "exact_20_hits": 7, "reads_per_s": 1e7 / p, "seeds": "-", "took_s": 1.0}
        for q, p in ((64, 4), (64, 1), (128, 4))
    ]  # fmt: skip
    about = harness.provenance({}) | {"gpus": ["a card"], "options": {"reference": "random:9"}}
    return {"about": about, "table": 12, "rows": rows, "left": ["q 512, p 1"], "text_bases": 9}


def test_table_and_plot_get_into_the_documentation(tmp_path, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "benchmarks" / "results" / "index_trade_off.svg"
    plot.parent.mkdir(parents=True)
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    monkeypatch.setattr(index_trade_off, "PLOT", plot)
    monkeypatch.setattr(document, "DOCS", tmp_path)
    page = tmp_path / "performance.md"
    page.write_text("A\n<!-- table index_trade_off -->\nold\n<!-- end -->\nB\n")
    result = tmp_path / "index_trade_off.json"
    result.write_text(json.dumps(a_report()))
    assert document.main([str(result)]) == 0
    text = page.read_text()
    assert "](../benchmarks/results/index_trade_off.svg)" in text
    assert "old" not in text
    assert "| 64 | 1 | 5.00 | 1000 M | 10.00 M | 100 % |\n| 64 | 4 | 2.00 | 250 M" in text
    assert "for want of time**: q 512, p 1." in text
    first = plot.read_bytes()
    assert document.main([str(result)]) == 0
    assert plot.read_bytes() == first


def test_the_page_has_a_place_for_it() -> None:
    assert "<!-- table index_trade_off -->" in (document.DOCS / "index-format.md").read_text()


@pytest.mark.gpu
def test_the_whole_program(device, tmp_path, monkeypatch) -> None:
    """Taken up again after a first row; another seed than before ends it."""
    monkeypatch.setattr(index_trade_off, "P_OF_Q", {64: (1,)})
    monkeypatch.setattr(index_trade_off, "TABLE", 3)
    given = ["random:700", "--build", "cpu", "--reads", "2", "--kmers", "3", "--repeats", "1"]
    given += ["--commit", "0123456", "--out", str(tmp_path)]
    path = tmp_path / "index_trade_off.json"
    assert index_trade_off.main([*given, "--limit-s", "0.0001"]) == 1
    assert not path.exists()
    assert index_trade_off.main(given) == 0
    monkeypatch.setattr(index_trade_off, "P_OF_Q", {64: (1, 4), 128: (8,)})
    assert index_trade_off.main([*given, "--resume", "--limit-s", "0.0001"]) == 0
    assert json.loads(path.read_text())["left"] == ["q 64, p 4", "q 128, p 8"]
    assert index_trade_off.main([*given, "--resume"]) == 0
    report = json.loads(path.read_text())
    assert [(row["q"], row["p"]) for row in report["rows"]] == [(64, 1), (64, 4), (128, 8)]
    assert report["left"] == []
    assert len({row["seeds"] for row in report["rows"]}) == 1
    assert report["rows"][0]["exact_20_hits"] == 3
    report["rows"][0]["seeds"] = "others"
    report["rows"].pop()
    path.write_text(json.dumps(report))
    assert index_trade_off.main([*given, "--resume"]) == 1
    assert index_trade_off.main([*given, "--resume", "--commit", "fedcba9"]) == 1
