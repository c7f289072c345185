"""Matrices from files, and the letters that a matrix reads."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mapper.align.matrix import scoring
from mapper.align.matrix.api import align_matrix
from mapper.align.matrix.scoring import NAMED, substitution_matrix
from mapper.cli.main import main
from mapper.errors import InputFormatError, UsageError

TABLE = """\
# transitions cost less
    A   C   G   T
C  -4   5  -4  -2   # rows in another order
A   5  -4  -2  -4
G  -2  -4   5  -4

T  -4  -2  -4   5
"""


def write(path: Path, text: str = TABLE) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_rows_are_those_of_the_columns_letters(tmp_path: Path) -> None:
    for name in ("own.mat", "own.mat.gz"):
        table = substitution_matrix(write(tmp_path / name))
        assert table.letters == "ACGT"
        assert table.scores.tolist() == [
            [5, -4, -2, -4], [-4, 5, -4, -2], [-2, -4, 5, -4], [-4, -2, -4, 5],
        ]  # fmt: skip
    one_way = substitution_matrix(write(tmp_path / "one_way", " X Y\nX 5 -1\nY -7 4\n"))
    assert one_way.scores.tolist() == [[5, -1], [-7, 4]]  # rows are the query's letters


def test_a_file_as_blast_writes_it_is_the_matrix_of_that_name(tmp_path: Path) -> None:
    biopython = pytest.importorskip("Bio.Align.substitution_matrices", reason="no biopython")
    for name in (*NAMED, "HOXD70"):
        table = substitution_matrix(write(tmp_path / "matrix", str(biopython.load(name))))
        named = substitution_matrix(name)
        assert table.letters == named.letters
        assert (table.scores == named.scores).all()


@pytest.fixture
def plain_install(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide Biopython, as where fmwave is installed without extras."""
    for name in ("Bio", "Bio.Align"):
        monkeypatch.setitem(sys.modules, name, None)
    scoring._named.cache_clear()
    yield
    scoring._named.cache_clear()


def test_common_matrices_need_no_biopython(plain_install: None) -> None:
    """The scores are those printed in the papers; Biopython's are compared where it is."""
    for name in NAMED:
        table = substitution_matrix(name.lower())
        assert (table.scores == table.scores.T).all(), name
        assert (table.scores.diagonal()[:4] > 0).all(), name
    for name, score in (("BLOSUM45", 15), ("BLOSUM62", 11), ("PAM30", 13), ("PAM250", 17)):
        table = substitution_matrix(name)
        assert sorted(table.letters) == sorted("ARNDCQEGHILKMFPSTWYVBZX*")
        w, c = table.letters.index("W"), table.letters.index("C")
        assert table.scores[w, w] == score > table.scores[c, c] > 0 > table.scores[w, c]
    found = align_matrix(["HEAGAWGHEE"], ["PAWHEAE"], matrix="BLOSUM62", span="local", cigar=True)
    assert found.score.tolist() == [17]
    with pytest.raises(UsageError, match=r"HOXD70 is neither known .* PAM250; .*\[matrices\]'"):
        substitution_matrix("HOXD70")
    with pytest.raises(UsageError, match=r"PAM120 is neither known .* NUC.4.4, BLOSUM45, "):
        substitution_matrix("PAM120")


def test_the_default_is_for_nucleotides(
    plain_install: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = align_matrix(["ACGTRNacgu"], ["ACGTANACCT"], cigar=True)
    assert found.score.tolist() == [4 * 5 + 1 - 1 + 3 * 5 - 4]
    (tmp_path / "dna.seq").write_text(">ACGTRNacgu\n<ACGTANACCT\n")
    (tmp_path / "protein.seq").write_text(">PAWHEAE\n<HEAGAWGHEE\n")
    words = ["--metric", "matrix", "--device", "cpu", "--quiet"]
    assert main(["align", str(tmp_path / "dna.seq"), *words]) == 0
    assert capfd.readouterr().out.splitlines()[1].split("\t")[3] == "31"
    protein = ["align", str(tmp_path / "protein.seq"), *words]
    assert main(protein) == 1
    err = capfd.readouterr().err
    assert "no scores for 'P'" in err and "for amino acids choose another one, such as BLO" in err
    assert main([*protein, "--matrix", "BLOSUM62"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds no line of letters"),
        ("# nothing\n", "it holds no line of letters"),
        ("A C\nA 1 2\n", "the row of 'C' is missing"),
        ("A C\nA 1 2\nG 1 2\n", "line 3 is 'G 1 2'; one of the columns' letters"),
        ("A C\nA 1 2\nA 1 2\n", "line 3 is 'A 1 2'; one of the columns' letters"),
        ("A C\nA 1\nC 1 2\n", "line 2 is 'A 1'; a letter and 2 scores"),
        ("A C\nA 1 x\nC 1 2\n", "line 2 is 'A 1 x'; a letter and numbers"),
        ("A A\nA 1 2\n", "line 1 is 'A A'; the letters of the columns, each once"),
        (">read\nACGT\n", "line 1 is '>read'; the letters of the columns"),
        ("\n" * 2_000_000, "longer than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_matrix_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputFormatError, match=message) as caught:
        substitution_matrix(write(tmp_path / "wrong", text))
    assert str(tmp_path / "wrong") in str(caught.value)


def test_files_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.seq").write_text(">ACGU\n<GCGT\n")
    own = write(Path("own.mat"))
    write(Path("NUC.4.4"))  # in the way of a name

    def score(matrix: str) -> str:
        words = ["align", "p.seq", "--metric", "matrix", "--device", "cpu", "--quiet"]
        assert main([*words, "--matrix", matrix]) == 0
        return capfd.readouterr().out.splitlines()[1].split("\t")[3]

    assert score(str(own)) == score(str(own.resolve())) == score("./NUC.4.4") == "13"
    assert score("NUC.4.4") == "11"
    assert main(["align", "p.seq", "--metric", "matrix", "--matrix", "./none"]) == 1
    assert "none: no such file" in capfd.readouterr().err
    assert main(["align", "p.seq", "--metric", "matrix", "--matrix", "p.seq"]) == 1
    assert "p.seq: line 1 is '>ACGU'" in capfd.readouterr().err


def test_u_reads_as_t_among_nucleotides_only() -> None:
    for matrix in ((2, -3), "NUC.4.4"):
        rna = align_matrix(["ACGU", "acgu"], ["ACGT", "UCGT"], matrix=matrix, cigar=True)
        dna = align_matrix(["ACGT", "acgt"], ["ACGT", "TCGT"], matrix=matrix, cigar=True)
        assert [rna.pair(i) for i in (0, 1)] == [dna.pair(i) for i in (0, 1)]
    own = substitution_matrix(("TU", np.array([[1, -1], [-1, 2]])))
    assert align_matrix(["U"], ["U"], matrix=own, cigar=True).score.tolist() == [2]
    for matrix in ("BLOSUM62", ("AC", [[1, 0], [0, 1]])):
        with pytest.raises(InputFormatError, match="no scores for 'U' at position 0 of the query"):
            align_matrix(["U"], ["A"], matrix=matrix, cigar=True)
