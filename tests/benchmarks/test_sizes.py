"""Tables and plots against genome size, from results as the benchmarks write them."""

from __future__ import annotations

import json

import pytest

from benchmarks.common import sizes

CPU = {
    "about": {}, "threads": 2,
    "sizes": [{"bases": 10**8, "builds": [
        {"route": route, "wall_s": wall, "cpu_s": 20.0, "peak_mb": 860.0}
        for route, wall in (("blocks", 17.0), ("library", 30.0), ("blocks", 19.0))
    ]}],
}  # fmt: skip
WHOLE = {
    "about": {"gpus": ["NVIDIA H200, 143771 MiB, 580"]},
    "options": {"size": 3_100_000_000, "threads": 16, "pairs": 10**6},
    "steps": [
        {"step": "fmwave index --device cuda", "wall_s": 31.0, "cpu_s": 62.0, "peak_rss_mb": 12e3},
        {"step": "fmwave map --device cuda", "wall_s": 10.0, "cpu_s": 40.0, "peak_rss_mb": 9e3},
        {"step": "minimap2 -ax sr", "wall_s": 20.0, "cpu_s": 300.0, "peak_rss_mb": 20e3},
    ],
    "runs": {"cuda": [{"reads_per_second": 10}, {"reads_per_second": 30}], "cpu": []},
}  # fmt: skip


def test_points_are_medians_by_machine_and_route():
    assert sizes.index_points(CPU) == [
        (10**8, "CPU machine, 2 threads, blocks", 18.0, 20.0, 860e6),
        (10**8, "CPU machine, 2 threads, library", 30.0, 20.0, 860e6),
    ]
    assert sizes.map_points(CPU) == []
    (point,) = sizes.index_points(WHOLE)
    assert point == (3_100_000_000, "H200 host, 16 threads, --device cuda", 31.0, 62.0, 12e9)
    assert sizes.map_points(WHOLE) == [
        (3_100_000_000, "H200 host, 16 threads, fmwave --device cuda", 20, 4.0),
        (3_100_000_000, "H200 host, 16 threads, minimap2", 100_000, 15.0),
    ]


def test_the_page_and_the_plot_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    paths = []
    for name, report in (("index_cpu", CPU), ("whole_genome_3.1G", WHOLE)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(report))
    page = tmp_path / "index-format.md"
    page.write_text("a\n<!-- table sizes-index -->\nold\n<!-- end -->\nb\n")
    for _ in range(2):
        command = [*map(str, paths), "--plot", str(tmp_path / "x.svg"), "--docs", str(tmp_path)]
        assert sizes.main(command) == 0
        text = page.read_text()
        assert "old" not in text and text.startswith("a\n") and text.endswith("<!-- end -->\nb\n")
        assert (
            "| 3,100 | H200 host, 16 threads, --device cuda | 31.0 | 100.0 | 20 | 12.00 | 3.9 |"
            in text
        )
        assert "whole_genome_3.1G.md" in text
    assert "<svg" in (tmp_path / "x.svg").read_text()


def test_a_peer_that_mapped_a_part_has_no_rate():
    options = WHOLE["options"] | {"peer_pairs": 1000}
    assert len(sizes.map_points(WHOLE | {"options": options})) == 1
