"""Which places of two mappers are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.studies.agreement import NEAR, main, rows

HEADER = "@SQ\tSN:a\tLN:9000\n@SQ\tSN:b\tLN:9000\n"


def sam(path: Path, *records: str) -> Path:
    lines = [f"{record}\t*\t0\t0\t*\t*\n".replace(" ", "\t") for record in records]
    path.write_text(HEADER + "".join(lines))
    return path


def test_places_agree_by_their_first_bases_clips_put_back(tmp_path: Path) -> None:
    one = sam(
        tmp_path / "one.sam", "clip 0 a 1011 60 10S90M", "end 16 a 1000 60 90M10S",
        "far 0 a 1 60 100M", "strand 0 a 500 60 100M", "contig 0 a 500 60 100M",
        "low 0 a 500 19 100M", "none 4 * 0 0 *", "mate 65 a 100 60 50M", "mate 129 a 300 60 50M",
        "part 0 a 5 60 50M", "part 2048 b 5 60 50M",
    )  # fmt: skip
    two = sam(
        tmp_path / "two.sam", "clip 0 a 1001 60 100M", "end 16 a 1000 60 100M",
        f"far 0 a {2 + NEAR} 60 100M", "strand 16 a 500 60 100M", "contig 0 b 500 60 100M",
        "low 0 a 500 60 100M", "none 0 a 7 60 100M", "mate 65 a 100 60 50M",
        f"mate 129 a {300 + NEAR} 60 50M", "part 0 a 5 60 50M",
    )  # fmt: skip
    assert rows({"x": one, "y": two}, 20) == [
        ["x", 10, 9, 8, "", "", ""], ["y", 10, 10, 10, 8, 5, 3],
    ]  # fmt: skip


def test_names_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sam(tmp_path / "one.sam")
    for words in ([f"x={path}", f"x={path}"], [str(path)]):
        with pytest.raises(SystemExit):
            main(words)
        assert "NAME=FILE is expected" in capsys.readouterr().err
