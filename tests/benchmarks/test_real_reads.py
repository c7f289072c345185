"""Real reads repeated: what is written is gzip, and ratios are of medians."""

from __future__ import annotations

import gzip

from benchmarks.real_reads import cpu_ratios, repeat, speed_markdown, times_for


def runs(*cpu_s: float) -> dict:
    return {"runs": [{"cpu_s": s, "wall_s": s / 2, "peak_rss_mb": 90.0} for s in cpu_s]}


def test_a_file_several_times_in_one(tmp_path):
    once = tmp_path / "once.fq.gz"
    once.write_bytes(gzip.compress(b"@r\nACGT\n+\nIIII\n"))
    target = repeat(once, 3, tmp_path / "thrice.fq.gz")
    assert gzip.decompress(target.read_bytes()) == 3 * b"@r\nACGT\n+\nIIII\n"


def test_as_often_as_gives_a_million_reads():
    assert times_for(8000, 1_000_000) == 125
    assert times_for(7999, 1_000_000) == 126
    assert times_for(2_000_000, 1_000_000) == 1


def test_ratios_are_over_the_own_median():
    results = {"fmwave": runs(9.0, 2.0, 3.0), "bwa mem": runs(12.0, 1.0, 6.0)}
    assert cpu_ratios(results) == {"bwa mem": 2.0}
    assert cpu_ratios({"bwa mem": runs(1.0)}) == {}


def test_the_page_has_a_table_for_each_set():
    about = {
        "date": "2026-11-21", "commit": "abc", "command": "c", "versions": {"bwa mem": "0.7"},
        "machine": {"cpu": "C", "cores": 4, "memory_gb": 9, "system": "L", "python": "3.11",
                    "load_before": 1.0},
    }  # fmt: skip
    results = {"fmwave": runs(4.0), "bwa mem": runs(8.0)}
    found = {"n_reads": 100, "times": 20, "results": results}
    report = {"about": about, "threads": 2, "rounds": 1, "data_sets": {"shigella": found}}
    page = "\n".join(speed_markdown(report))
    assert "## shigella: 100 reads (20 times)" in page
    assert "| fmwave | 2.0 (2.0–2.0) | 4.0 | 50 | 25 | 2.00× | 90 |" in page
    assert "CPU seconds over fmwave's: bwa mem 2.00." in page
