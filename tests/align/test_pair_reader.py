"""Public calls accept files in place of sequences."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import mapper
from mapper.align import pair_reader as io_pairs
from mapper.errors import InputFormatError, UsageError

QUERIES = ["GATTACA", "", "ACGTNACGT", "TTTT"]
REFS = ["GAATA", "A", "ACGTACG", ""]


def fasta(path: Path, sequences: list[str]) -> Path:
    path.write_text("".join(f">s{i}\n{text}\n" for i, text in enumerate(sequences)))
    return path


@pytest.mark.parametrize("batch_bytes", [8, 1 << 20])
@pytest.mark.parametrize("call", ["edit_distance", "align_affine", "align_extension"])
def test_pairs_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, batch_bytes: int
) -> None:
    monkeypatch.setattr(io_pairs, "BATCH_BYTES", batch_bytes)
    align = getattr(mapper, call)
    wanted = align(QUERIES, REFS, cigar=True, device="cpu")
    text = "".join(f">{q}\r\n<{r}\n" for q, r in zip(QUERIES, REFS, strict=True))
    path = tmp_path / "pairs.seq.gz"
    path.write_bytes(gzip.compress(text.encode()))
    a, b = fasta(tmp_path / "a.fa", QUERIES), fasta(tmp_path / "b.fa", REFS)
    for given in ((path,), (a, b), (QUERIES, b)):
        found = align(*given, cigar=True, device="cpu")
        assert all(map(np.array_equal, found, wanted))


def test_matrices_of_files(tmp_path: Path) -> None:
    a = fasta(tmp_path / "a.fa", ["ACGT", "GG"])
    scores = mapper.align_matrix(a, a, matrix=(2, -3), device="cpu", cigar=True).score
    assert scores.tolist() == [8, 4]
    (window,) = mapper.align_all(a, a, matrix=(2, -3), device="cpu", cigar=True)
    assert window.found.score[[0, 3]].tolist() == [8, 4]


def test_long_strings_of_files(tmp_path: Path) -> None:
    a, b = fasta(tmp_path / "a.fa", ["GATTACA"]), fasta(tmp_path / "b.fa", ["GAATA"])
    assert mapper.long_edit_distance(a, b, device="cpu").distance == 3
    with pytest.raises(InputFormatError, match="more than one sequence"):
        mapper.long_edit_distance(a, fasta(b, ["A", "C"]), device="cpu")


def test_invalid_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert mapper.edit_distance(tmp_path / "empty").n_pairs == 0
    with pytest.raises(InputFormatError, match=r"none\.seq: no such file"):
        mapper.edit_distance(tmp_path / "none.seq")
    with pytest.raises(UsageError, match=r"pathlib\.Path"):
        mapper.edit_distance("pairs.seq")
    a = fasta(tmp_path / "a.fa", ["A"])
    with pytest.raises(InputFormatError, match=r"line 2 begins 'A'; '<' and a reference"):
        mapper.edit_distance(a)
