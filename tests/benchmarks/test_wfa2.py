"""WFA2-lib as a peer: its driver, where the library is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.align_cpu import make_pairs, wfa2
from benchmarks.common.wfa2 import VARIABLE, Wfa2, build, why_missing
from mapper import align_affine, edit_distance


def test_without_the_library_the_benchmark_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert wfa2(["--results", str(tmp_path)]) == 0
    assert f"skipped: {VARIABLE} names no checkout" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert "libwfa.a is not there" in (why_missing() or "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("penalties", [None, (4, 6, 2)])
def test_the_driver_finds_the_same_scores(
    penalties: tuple[int, int, int] | None, tmp_path: Path
) -> None:
    if reason := why_missing():
        pytest.skip(reason)
    pairs = make_pairs(100, 0.1, 200)
    path = tmp_path / "pairs.seq"
    path.write_text("".join(f">{query}\n<{ref}\n" for query, ref in pairs))
    queries, refs = [query for query, _ in pairs], [ref for _, ref in pairs]
    if penalties is None:
        expected = edit_distance(queries, refs, device="cpu")
    else:
        expected = align_affine(queries, refs, penalties=penalties, device="cpu", cigar=True)
    with Wfa2(build(tmp_path), path, 2, penalties) as peer:
        assert peer.seconds() > 0
        assert peer.scores() == expected.score.tolist()
