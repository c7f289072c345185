"""``fmwave align --all-vs-all``: sets of sequences to a table, PAF or gapped FASTA."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from mapper.align.files import align_sets
from mapper.align.matrix.api import align_all
from mapper.cli.main import main
from mapper.cuda.devices import find_devices
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited
from tests.naive.pairwise import parse_cigar

OPTIONS = ["--metric", "matrix", "--matrix", "2,-3", "--gaps", "4,2"]
MATRIX = {"matrix": (2, -3), "gaps": (4, 2)}


@pytest.fixture(scope="module")
def sets() -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(23)
    ref = random_letters(rng, 70)
    own = [edited(rng, ref, 0.2) for _ in range(6)] + ["", "A", "GGGG"]
    return own, [edited(rng, ref[20:], 0.3) for _ in range(4)] + ["CCCC"]


def write_fasta(path: Path, prefix: str, sequences: list[str]) -> Path:
    path.write_text("".join(f">{prefix}{i} some text\n{s}\n" for i, s in enumerate(sequences)))
    return path


def files(tmp_path: Path, sets, n: int) -> list[Path]:
    both = [
        write_fasta(tmp_path / "a.fa", "a", sets[0]),
        write_fasta(tmp_path / "b.fa", "b", sets[1]),
    ]
    return both[:n]


def align(tmp_path: Path, paths: list[Path], *argv: str) -> str:
    out = tmp_path / "out.txt"
    words = ["align", "--all-vs-all", *map(str, paths), *OPTIONS, *argv, "-o", str(out)]
    assert main([*words, "--quiet", "-t", "1", "--device", "cpu"]) == 0
    return out.read_text()


def expected(sets, n: int, **options):
    """Return names, sequences and result of each pair, from the public function."""
    own, others = sets[0], sets[0] if n == 1 else sets[1]
    found = align_all(
        own, None if n == 1 else others, device="cpu", **{"cigar": True} | MATRIX | options
    )
    for window in found:
        for x, (i, j) in enumerate(zip(window.query, window.ref, strict=True)):
            name = f"a{j}" if n == 1 else f"b{j}"
            yield f"a{i}", name, own[i], others[j], window.found.pair(x)


@pytest.mark.medium
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("span", ["global", "local"])
def test_the_table_has_every_pair(n: int, span: str, tmp_path: Path, sets) -> None:
    text = align(tmp_path, files(tmp_path, sets, n), "--span", span)
    rows = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    pairs = list(expected(sets, n, span=span))
    assert len(rows) == len(pairs) == (36 if n == 1 else 45)
    for row, (query_name, ref_name, query, ref, one) in zip(rows, pairs, strict=True):
        assert (row["query"], row["ref"]) == (query_name, ref_name)
        assert (int(row["query_length"]), int(row["ref_length"])) == (len(query), len(ref))
        assert (int(row["score"]), row["status"]) == (one.score, "ok")
        assert row["cigar"] == (one.cigar or "*")
        spans = [int(row[name]) for name in ("query_start", "query_end", "ref_start", "ref_end")]
        assert spans == list(one[3:])


def test_scores_alone(tmp_path: Path, sets) -> None:
    text = align(tmp_path, files(tmp_path, sets, 2), "--span", "local", "--score-only")
    rows = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    pairs = expected(sets, 2, span="local")
    assert [int(row["score"]) for row in rows] == [one.score for *_, one in pairs]
    assert {(row["cigar"], row["query_start"]) for row in rows} == {("*", "*")}


def test_paf(tmp_path: Path, sets) -> None:
    text = align(tmp_path, files(tmp_path, sets, 2), "--span", "local", "--format", "paf")
    lines = [line.split("\t") for line in text.splitlines()]
    pairs = [row for row in expected(sets, 2, span="local") if row[4].cigar]
    assert 0 < len(lines) == len(pairs) < 45
    for line, (query_name, ref_name, query, ref, one) in zip(lines, pairs, strict=True):
        ops = parse_cigar(one.cigar)
        n_equal = sum(length for length, op in ops if op == "=")
        columns = [query_name, len(query), *one[3:5], "+", ref_name, len(ref), *one[5:7], n_equal,
                   sum(length for length, _ in ops), 255]  # fmt: skip
        assert line == [*map(str, columns), f"AS:i:{one.score}", f"cg:Z:{one.cigar}"]


@pytest.mark.parametrize("span", ["global", "semiglobal"])
def test_fasta(span: str, tmp_path: Path, sets) -> None:
    text = align(tmp_path, files(tmp_path, sets, 1), "--span", span, "--format", "fasta")
    lines = text.splitlines()
    pairs = [row for row in expected(sets, 1, span=span) if row[4].cigar]
    assert 0 < len(lines) == 4 * len(pairs)
    for x, (query_name, ref_name, query, ref, one) in enumerate(pairs):
        first, top, second, bottom = lines[4 * x : 4 * x + 4]
        assert first == f">{query_name} {one.query_start} {one.query_end} {one.score}"
        assert second == f">{ref_name} {one.ref_start} {one.ref_end} {one.score}"
        marks = "".join(
            "I" if b == "-" else "D" if a == "-" else "=" if a == b else "X"
            for a, b in zip(top, bottom, strict=True)
        )
        assert marks == "".join(op * length for length, op in parse_cigar(one.cigar))
        assert top.replace("-", "") == query[one.query_start : one.query_end]
        assert bottom.replace("-", "") == ref[one.ref_start : one.ref_end]


@pytest.mark.parametrize("form", ["tsv", "paf", "fasta"])
def test_windows_do_not_matter(form: str, tmp_path: Path, sets) -> None:
    paths = [str(path) for path in files(tmp_path, sets, 1)]
    texts = set()
    for window in (1, 7, 1000):
        out = tmp_path / f"{window}.txt"
        done = align_sets(paths, str(out), form=form, window=window, device="cpu", **MATRIX)
        assert done == (36, {"ok": 36})
        texts.add(out.read_text())
    assert len(texts) == 1


@pytest.mark.gpu
def test_a_device_writes_the_same(tmp_path: Path, sets) -> None:
    found = find_devices()
    if found.problem:
        pytest.skip(found.problem)
    few = [[s[:25] for s in own[:3]] for own in sets]  # the simulator is slow
    paths = [str(path) for path in files(tmp_path, few, 2)]
    for form, span in (("tsv", "global"), ("paf", "local"), ("fasta", "semiglobal")):
        texts = []
        for device in ("cpu", "cuda:0,0"):
            out = tmp_path / "out.txt"
            words = ["align", "--all-vs-all", *paths, *OPTIONS, "--format", form, "--span", span]
            assert main([*words, "-o", str(out), "--quiet", "--device", device]) == 0
            texts.append(out.read_text())
        assert texts[0] == texts[1]
        assert texts[0].count("\n") >= 9


@pytest.mark.parametrize("form", ["tsv", "paf", "fasta"])
def test_sets_without_pairs(form: str, tmp_path: Path) -> None:
    (tmp_path / "none.fa").write_text("")
    (tmp_path / "one.fa").write_text(">only\nACGT\n")
    header = 1 if form == "tsv" else 0
    for names in (["none.fa"], ["one.fa"], ["one.fa", "none.fa"]):
        text = align(tmp_path, [tmp_path / name for name in names], "--format", form)
        assert len(text.splitlines()) == header


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["--all-vs-all"], 2, "--all-vs-all belongs to --metric matrix"),
        (["--format", "paf"], 2, "--format belongs to --all-vs-all"),
        (
            [*OPTIONS, "--all-vs-all", "--format", "paf", "--score-only"],
            2,
            "scores alone go with tsv",
        ),
        ([*OPTIONS, "--all-vs-all", "--span", "prefix"], 2, "--span prefix"),
        (
            [*OPTIONS, "--all-vs-all"],
            1,
            "a.fa: sequence 1 of the set: the matrix has no scores for 'E'",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    argv: list[str], status: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_fasta(tmp_path / "a.fa", "a", ["ACGT", "ACE"])
    words = ["align", str(path), *argv, "-o", str(tmp_path / "out"), "--device", "cpu"]
    assert main(words) == status
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.fa"]
