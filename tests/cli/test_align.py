"""``fmwave align`` and ``fmwave distance``: input files, tables, usage errors."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from mapper.align.affine.api import align_affine, align_extension
from mapper.align.edit.api import edit_distance
from mapper.align.files import align_files
from mapper.align.matrix.api import align_matrix
from mapper.align.pair_reader import read_pairs
from mapper.cli.main import main
from tests.helpers.sequence_pairs import random_pairs
from tests.naive.pairwise import RULES, penalty_of

Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    rng = np.random.default_rng(17)
    return random_pairs(rng, 60, 90, "ACGTN")


def write_seq(path: Path, pairs: Pairs, end: str = "\n") -> Path:
    text = "".join(f">{q}{end}<{r}{end}" for q, r in pairs)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_fasta(path: Path, sequences: list[str], width: int = 30) -> Path:
    lines = []
    for i, s in enumerate(sequences):
        lines += [f">s{i} text", *(s[at : at + width] for at in range(0, len(s), width))]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_fastq(path: Path, sequences: list[str]) -> Path:
    path.write_text("".join(f"@s{i}\n{s}\n+\n{'I' * len(s)}\n" for i, s in enumerate(sequences)))
    return path


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def align(tmp_path: Path, *argv: str | Path) -> str:
    out = tmp_path / "out.tsv"
    words = ["align", *map(str, argv), "-o", str(out), "--quiet", "-t", "1"]
    assert main(words) == 0
    return out.read_text()


def test_the_table_is_as_specified(tmp_path: Path, pairs: Pairs) -> None:
    text = align(tmp_path, write_seq(tmp_path / "p.seq", pairs))
    assert text.splitlines()[0] == "pair\tquery_length\tref_length\tscore\tstatus\tcigar"
    rows = table(text)
    found = edit_distance([q for q, _ in pairs], [r for _, r in pairs])
    assert len(rows) == len(pairs)
    for i, ((query, ref), row) in enumerate(zip(pairs, rows, strict=True)):
        assert int(row["pair"]) == i
        assert (int(row["query_length"]), int(row["ref_length"])) == (len(query), len(ref))
        assert (int(row["score"]), row["status"]) == (found.score[i], "ok")
        cigar = row["cigar"].replace("*", "")
        assert penalty_of(cigar, query, ref, RULES["dna"]) == found.score[i]


def test_every_form_of_input_gives_the_same_table(tmp_path: Path, pairs: Pairs) -> None:
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    expected = align(tmp_path, write_seq(tmp_path / "p.seq", pairs))
    assert align(tmp_path, write_seq(tmp_path / "p.seq.gz", pairs)) == expected
    assert align(tmp_path, write_seq(tmp_path / "crlf.seq", pairs, "\r\n")) == expected
    unended = tmp_path / "unended.seq"
    unended.write_bytes((tmp_path / "p.seq").read_bytes().replace(b"\n<", b"\n\n<")[:-1])
    assert align(tmp_path, unended) == expected
    fasta = write_fasta(tmp_path / "r.fa", refs)
    assert align(tmp_path, write_fasta(tmp_path / "q.fa", queries, 7), fasta) == expected
    assert align(tmp_path, write_fastq(tmp_path / "q.fq", queries), fasta) == expected


@pytest.mark.parametrize("batch_bytes", [1, 300, 5000])
def test_batches_do_not_matter(batch_bytes: int, tmp_path: Path, pairs: Pairs) -> None:
    seq = write_seq(tmp_path / "p.seq", pairs)
    two = (
        write_fasta(tmp_path / "q.fa", [q for q, _ in pairs]),
        write_fasta(tmp_path / "r.fa", [r for _, r in pairs]),
    )
    expected = align(tmp_path, seq)
    batches = list(read_pairs([str(seq)], batch_bytes))
    assert sum(batch.n_pairs for batch in batches) == len(pairs)
    assert len(batches) > 1
    for paths in ([str(seq)], [str(path) for path in two]):
        out = tmp_path / "cut.tsv"
        align_files(
            paths, str(out), lambda batch, first: edit_distance(batch, cigar=True),
            with_spans=False, batch_bytes=batch_bytes,
        )  # fmt: skip
        assert out.read_text() == expected


def test_spans_limits_and_scores_alone(tmp_path: Path, pairs: Pairs) -> None:
    seq = write_seq(tmp_path / "p.seq", pairs)
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    rows = table(align(tmp_path, seq, "--span", "semiglobal"))
    found = edit_distance(queries, refs, span="semiglobal", cigar=True)
    for i, row in enumerate(rows):
        assert int(row["score"]) == found.score[i]
        assert (int(row["ref_start"]), int(row["ref_end"])) == found.pair(i)[5:]
    rows = table(align(tmp_path, seq, "--ends-free", "2,0,0,5", "--score-only"))
    found = edit_distance(queries, refs, span=(2, 0, 0, 5))
    assert [int(row["score"]) for row in rows] == found.score.tolist()
    assert {row["cigar"] for row in rows} == {"*"}
    rows = table(align(tmp_path, seq, "--max-score", "4", "--symbols", "iupac"))
    found = edit_distance(queries, refs, max_distance=4, symbols="iupac")
    scores = ["*" if d < 0 else str(d) for d in found.score]
    assert [row["score"] for row in rows] == scores
    assert [row["status"] for row in rows] == ["over_limit" if s == "*" else "ok" for s in scores]


def test_affine(tmp_path: Path, pairs: Pairs) -> None:
    seq = write_seq(tmp_path / "p.seq", pairs)
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    rows = table(align(tmp_path, seq, "--metric", "affine", "--penalties", "5,3,2"))
    found = align_affine(queries, refs, penalties=(5, 3, 2), cigar=True)
    assert [int(row["score"]) for row in rows] == found.score.tolist()
    for (query, ref), row in zip(pairs, rows, strict=True):
        cigar = row["cigar"].replace("*", "")
        assert penalty_of(cigar, query, ref, RULES["dna"], (5, 3, 2)) == int(row["score"])
    options = ["--metric", "affine", "--band", "4,1", "--max-score", "90", "--span", "prefix"]
    rows = table(align(tmp_path, seq, *options))
    found = align_affine(queries, refs, band=(4, 1), max_penalty=90, span="prefix", cigar=True)
    assert [row["status"] for row in rows] == [found.pair(i).status for i in range(len(pairs))]
    assert {row["status"] for row in rows} == {"ok", "heuristic", "over_limit"}


def test_extension(tmp_path: Path, pairs: Pairs) -> None:
    seq = write_seq(tmp_path / "p.seq", pairs)
    options = ["--metric", "affine", "--span", "extension", "--scores", "2,3,5,2"]
    rows = table(align(tmp_path, seq, *options, "--x-drop", "4"))
    found = align_extension(
        [q for q, _ in pairs], [r for _, r in pairs], scores=(2, 3, 5, 2), x_drop=4, cigar=True
    )
    assert [row["status"] for row in rows] == [found.pair(i).status for i in range(len(pairs))]
    assert {row["status"] for row in rows} == {"ok", "heuristic"}
    rows = table(align(tmp_path, seq, *options))
    found = align_extension(
        [q for q, _ in pairs], [r for _, r in pairs], scores=(2, 3, 5, 2), cigar=True
    )
    assert [int(row["score"]) for row in rows] == found.score.tolist()
    assert [row["cigar"] for row in rows] == [found.cigar(i) or "*" for i in range(len(pairs))]
    assert [int(row["ref_end"]) for row in rows] == found.ref_end.tolist()


def test_matrix(tmp_path: Path, pairs: Pairs) -> None:
    seq = write_seq(tmp_path / "p.seq", pairs)
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    options = ["--metric", "matrix", "--matrix", "2,-3", "--gaps", "4,2", "--span", "local"]
    rows = table(align(tmp_path, seq, *options))
    found = align_matrix(queries, refs, matrix=(2, -3), gaps=(4, 2), span="local", cigar=True)
    assert [int(row["score"]) for row in rows] == found.score.tolist()
    assert [row["cigar"] for row in rows] == [found.cigar(i) or "*" for i in range(len(pairs))]
    assert [int(row["query_end"]) for row in rows] == found.query_end.tolist()


def test_standard_output_and_an_empty_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.seq").write_text("\n")
    assert main(["align", str(tmp_path / "none.seq"), "--device", "cpu"]) == 0
    out, err = capfd.readouterr()
    assert out == "pair\tquery_length\tref_length\tscore\tstatus\tcigar\n"
    assert err == "fmwave: 0 pairs\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">AC\n<AC\nACGT\n<AC\n", "line 3 begins 'ACGT'; '>' and a query"),
        (">AC\n>AC\n", "line 2 begins '>AC'; '<' and a reference"),
        (">AC\n<AC\n>ACG\n", "ends with line 3, a '>query' line"),
        (">AC\n<AC\n\n>AC\n<A C\n", "pair 1: character ' ' at position 1 of the reference"),
        ("@r\nAC\n+\nII\n", "line 1 begins '@r'"),
    ],
)
def test_bad_pairs_are_named_and_leave_no_output(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.seq").write_text(text)
    assert main(["align", str(tmp_path / "bad.seq"), "-o", str(tmp_path / "out.tsv")]) == 1
    err = capsys.readouterr().err
    assert message in err and "bad.seq" in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.seq"]


@pytest.mark.parametrize(
    ("queries", "refs", "message"),
    [
        (">a\nA\n>b\nC\n", ">a\nA\n", "r ends after 1 records"),
        (">a\nA\n", ">a\nA\n>b\nC\n", "q ends after 1 records"),
        ("ACGT\n", ">a\nA\n", "begins with 'ACGT"),
        ("@a\nAC\n+\nI\n", ">a\nA\n", "q: record 1: 2 bases and 1 qualities"),
        ("@a\nAC\n+\nII\nb\n", ">a\nA\n", "q: record 2: begins with 'b'"),
        ("@a\nAC\nGT\n+\n", ">a\nA\n", "q: record 1: has no third line '+'"),
    ],
)
def test_files_out_of_step_or_broken(
    queries: str, refs: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q").write_text(queries)
    (tmp_path / "r").write_text(refs)
    assert main(["align", str(tmp_path / "q"), str(tmp_path / "r")]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["align", "{p}", "{p}", "{p}"], 2, "3 files"),
        (["align", "-", "-"], 2, "standard input cannot be read twice"),
        (["align", "none.seq"], 1, "none.seq: no such file"),
        (["align", "{p}", "-o", "{p}"], 2, "is a file of sequences"),
        (["align", "{f}", "{two}", "-o", "{two}"], 2, "is a file of sequences"),
        (["align", "{p}", "--metric", "matrix", "--all-vs-all"], 1, "sequence 0 of the set: the"),
        (["distance", "-", "-"], 2, "standard input cannot be read twice"),
        (["distance", "{f}", "{f}", "--checkpoint", "{f}"], 2, "is a sequence; name another"),
        (["distance", "{f}", "{f}", "-t", "0"], 2, "threads 0"),
        (["align", "{p}", "--ends-free", "1,2"], 2, "4 numbers"),
        (["align", "{p}", "--ends-free", "1,2,3,4", "--span", "global"], 2, "exclude each other"),
        (["align", "{p}", "--max-score", "-3"], 2, "--max-score -3"),
        (["align", "{p}", "--band", "9,9"], 2, "--band belongs to --metric affine"),
        (["align", "{p}", "--metric", "affine", "--penalties", "4,6"], 2, "--penalties 4,6: 3"),
        (["align", "{p}", "--metric", "affine", "--penalties", "0,6,2"], 2, "penalties 0,6,2"),
        (["align", "{p}", "--metric", "affine", "--band", "1,1"], 2, "a width of at least 2"),
        (["align", "{p}", "--scores", "1,4,6,1"], 2, "--scores belongs to --metric affine"),
        (["align", "{p}", "--metric", "affine", "--scores", "1,4,6,1"], 2, "--span extension"),
        (["align", "{p}", "--metric", "affine", "--x-drop", "9"], 2, "belongs to --span extension"),
        (
            ["align", "{p}", "--metric", "affine", "--span", "extension", "--x-drop", "-1"],
            2,
            "--x-drop -1: 0 or more",
        ),
        (
            ["align", "{p}", "--metric", "affine", "--span", "extension", "--penalties", "4,6,2"],
            2,
            "--penalties does not go with --span extension",
        ),
        (
            ["align", "{p}", "--metric", "affine", "--span", "extension", "--scores", "0,4,6,1"],
            2,
            "scores 0,4,6,1",
        ),
        (["align", "{p}", "--gaps", "9,9"], 2, "--gaps belongs to --metric matrix"),
        (["align", "{p}", "--span", "local"], 2, "--span local belongs to --metric matrix"),
        (["align", "{p}", "--span", "extension"], 2, "extension belongs to --metric affine"),
        (["align", "{p}", "--metric", "matrix", "--matrix", "x.mat"], 2, "nor a file here"),
        (["align", "{p}", "--metric", "matrix", "--max-score", "3"], 2, "edit or affine"),
        (
            ["align", "{p}", "--metric", "matrix", "--matrix", "1,-1", "--span", "prefix"],
            2,
            "--span prefix: with --metric matrix, global, semiglobal, local",
        ),
        (["align", "{p}", "--metric", "matrix", "--matrix", "1,x"], 2, "two whole numbers"),
        (["align", "{p}", "-t", "0"], 2, "threads 0"),
        (["align", "{p}", "--device", "tpu"], 2, "--device tpu"),
        (["align", "{p}", "-o", "/none/x.tsv"], 4, "does not exist"),
        (["distance", "{p}", "{p}", "--device", "tpu"], 2, "--device tpu"),
        (["distance", "{p}", "{p}", "--max-distance", "-3"], 2, "--max-distance -3"),
        (["distance", "{f}", "{p}"], 1, "p.seq: pair 0: character '<'"),
        (["distance", "{f}", "{two}"], 1, "two.fa: holds more than one sequence"),
        (["distance", "{f}", "{none}"], 1, "none.fa: holds no sequence"),
        (["distance", "{f}", "{f}", "--checkpoint", "/none/x"], 4, "does not exist"),
    ],
)
def test_usage(
    argv: list[str], status: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {name: tmp_path / file for name, file in
              (("p", "p.seq"), ("f", "f.fa"), ("two", "two.fa"), ("none", "none.fa"))}  # fmt: skip
    write_seq(places["p"], [("A", "A")])
    places["f"].write_text(">a\nACGT\n")
    places["two"].write_text(">a\nACGT\n>b\nA\n")
    places["none"].write_text("")
    assert main([word.format(**places) for word in argv]) == status
    out, err = capsys.readouterr()
    assert message in err and "Traceback" not in err
    assert out == ""


def test_limits_above_every_score(tmp_path: Path, pairs: Pairs) -> None:
    source = write_seq(tmp_path / "p.seq", pairs)
    for metric in ("edit", "affine"):
        words: list[str | Path] = [source, "--metric", metric, "--device", "cpu"]
        assert align(tmp_path, *words, "--max-score", str(10**30)) == align(tmp_path, *words)


def test_distance_prints_distance_and_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write_fasta(tmp_path / "a.fa", ["GATTACA" * 9])
    b = write_fasta(tmp_path / "b.fa", ["GATTACA" * 4 + "GAATA" + "GATTACA" * 4])
    assert main(["distance", str(a), str(b), "--quiet"]) == 0
    assert capsys.readouterr().out == "3\n"
    assert main(["distance", str(a), str(b), "--path", "--quiet"]) == 0
    distance, row = capsys.readouterr().out.splitlines()
    fields = row.split("\t")
    assert (distance, fields[:5]) == ("3", ["0", "63", "61", "3", "ok"])
    query, ref = "GATTACA" * 9, "GATTACA" * 4 + "GAATA" + "GATTACA" * 4
    assert penalty_of(fields[5], query, ref, RULES["dna"]) == 3
    options = ["--path", "--max-distance", "2", "--quiet"]
    assert main(["distance", str(a), str(b), *options]) == 0
    assert capsys.readouterr().out == "*\n0\t63\t61\t*\tover_limit\t*\n"
