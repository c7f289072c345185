"""Matrix alignment: against a plain recurrence, parasail, and the scores of the CIGARs."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.matrix import scoring
from mapper.align.matrix.api import align_all, align_matrix
from mapper.align.matrix.scoring import substitution_matrix
from mapper.align.result import NO_MEMORY, OK
from mapper.errors import InputFormatError, MapperError
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs
from tests.naive.matrix import best_score, score_of

MODES = ["global", "semiglobal", "local"]
PROTEIN = "ARNDCQEGHILKMFPSTWYV"
GAPS = [(10, 1), (4, 2), (0, 3), (5, 0)]


def scorer(matrix):
    table = substitution_matrix(matrix)
    return lambda a, b: int(
        table.scores[table.letters.index(a.upper()), table.letters.index(b.upper())]
    )


def check(pairs, matrix, gaps, span):
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    options = {"matrix": matrix, "gaps": gaps, "span": span}
    found = align_matrix(queries, refs, threads=1, cigar=True, **options)
    alone = align_matrix(queries, refs, threads=2, cigar=False, **options)
    for column in (0, 1, 3, 5):
        assert (found[column] == alone[column]).all()
    score = scorer(matrix)
    for i, (query, ref) in enumerate(pairs):
        one = found.pair(i)
        v, end_v, h, end_h = one[3:]
        assert one.cigar is not None
        assert score_of(one.cigar, query[v:end_v], ref[h:end_h], score, gaps) == one.score
        if span == "global":
            assert (v, end_v, h, end_h) == (0, len(query), 0, len(ref))
        if span == "semiglobal" and query and ref:
            assert (v == 0 or h == 0) and (end_v == len(query) or end_h == len(ref))
    return found


@pytest.mark.parametrize("span", MODES)
@pytest.mark.parametrize("gaps", GAPS, ids=str)
def test_score_is_that_of_the_plain_recurrence(span: str, gaps) -> None:
    rng = np.random.default_rng(1)
    pairs = [*random_pairs(rng, 25, 18, "ACGTNacg"), ("", ""), ("A", ""), ("", "ACG"), ("A", "C")]
    for matrix in ((2, -3), (1, -1)):
        found = check(pairs, matrix, gaps, span)
        for i, (query, ref) in enumerate(pairs):
            expected = best_score(query, ref, scorer(matrix), gaps, span)
            assert found.score[i] == expected, (pairs[i], matrix)


@pytest.mark.parametrize("span", MODES)
@pytest.mark.parametrize("gaps", [(10, 1), (0, 0)], ids=str)
def test_scores_and_costs_times_forty_change_no_alignment(span: str, gaps) -> None:
    rng = np.random.default_rng(5)
    pairs = [*random_pairs(rng, 20, 100), ("", "A"), ("AC", "")]
    for n in (31, 32, 33, 64, 65):  # columns are computed in blocks of 32
        ref = random_letters(rng, n)
        pairs.append((edited(rng, ref, 0.1), ref))
    ref = random_letters(rng, 700)
    pairs.append((edited(rng, ref, 0.05), ref))
    small, large = (
        scoring.check_scoring((2 * by, -3 * by), (gaps[0] * by, gaps[1] * by), span, True, 1 << 30)
        for by in (1, 40)
    )
    kinds = [scoring.numbers_for(200, options).dtype for options in (small, large)]
    assert kinds == [np.int16, np.int32]
    for query, ref in pairs:
        one = align_matrix(query, ref, matrix=(2, -3), gaps=gaps, span=span, cigar=True)
        other = align_matrix(
            query, ref, matrix=(80, -120), gaps=(40 * gaps[0], 40 * gaps[1]), span=span, cigar=True
        )
        assert other == one._replace(score=40 * one.score), (query, ref)


@pytest.mark.parametrize("span", MODES)
@pytest.mark.parametrize("gaps", [(10, 1), (8, 2)], ids=str)
def test_proteins_equal_parasail(span: str, gaps) -> None:
    parasail = pytest.importorskip("parasail", reason="parasail is not installed")
    peer = {"global": parasail.nw_scan_32, "semiglobal": parasail.sg_scan_32,
            "local": parasail.sw_scan_32}[span]  # fmt: skip
    rng = np.random.default_rng(2)
    pairs = [(q, r) for q, r in random_pairs(rng, 60, 150, PROTEIN) if q and r]
    for name in ("BLOSUM62", "pam250"):
        table = getattr(parasail, name.lower())
        found = check(pairs, name, gaps, span)
        # parasail's gap open is what the first symbol costs.
        expected = [peer(q, r, sum(gaps), gaps[1], table).score for q, r in pairs]
        assert found.score.tolist() == expected


@pytest.mark.parametrize("span", MODES)
def test_long_dna_equals_parasail(span: str) -> None:
    parasail = pytest.importorskip("parasail", reason="parasail is not installed")
    peer = {"global": parasail.nw_scan_32, "semiglobal": parasail.sg_scan_32,
            "local": parasail.sw_scan_32}[span]  # fmt: skip
    rng = np.random.default_rng(3)
    ref = random_letters(rng, 1500)
    pairs = [(edited(rng, ref, 0.3), ref), (ref[200:900], ref), (random_letters(rng, 1200), ref),
             ("A", ref), (ref[700:] + random_letters(rng, 600), ref)]  # fmt: skip
    found = check(pairs, (2, -3), (4, 2), span)
    table = parasail.matrix_create("ACGT", 2, -3)
    assert found.score.tolist() == [peer(q, r, 6, 2, table).score for q, r in pairs]


def test_own_matrix_and_directions() -> None:
    """Rows are the query's letters, columns the reference's."""
    scores = [[5, -1], [-7, 4]]
    found = align_matrix(
        ["XY", "YX"], ["YX", "XY"], matrix=("XY", scores), gaps=(50, 50), cigar=True
    )
    assert found.score.tolist() == [-8, -8]
    found = align_matrix(["X", "Y"], ["Y", "X"], matrix=("XY", scores), cigar=True)
    assert found.score.tolist() == [-1, -7]


def test_all_with_all() -> None:
    rng = np.random.default_rng(4)
    ref = random_letters(rng, 60)
    sequences = [edited(rng, ref, 0.2) for _ in range(9)]
    others = [edited(rng, ref, 0.3) for _ in range(4)]
    options = {"matrix": (2, -3), "gaps": (4, 2), "span": "local", "cigar": True}
    for rest, expected in (
        (None, [(i, j) for i in range(9) for j in range(i + 1, 9)]),
        (others, [(i, j) for i in range(9) for j in range(4)]),
    ):
        second = sequences if rest is None else rest
        alone = align_matrix(
            [sequences[i] for i, _ in expected], [second[j] for _, j in expected], **options
        )
        for window in (1, 5, 8, 1000):
            places, rows = [], []
            for part in align_all(sequences, rest, window=window, **options):
                assert len(part.query) <= window
                places += list(zip(part.query.tolist(), part.ref.tolist(), strict=True))
                rows += [part.found.pair(i) for i in range(part.found.n_pairs)]
            assert places == expected
            assert rows == [alone.pair(i) for i in range(alone.n_pairs)]
    assert list(align_all([], cigar=True)) == []
    with pytest.raises(MapperError, match="window 0"):
        next(align_all(sequences, window=0, **options))


def test_too_little_memory_gives_a_status() -> None:
    queries, refs = ["A" * 300, "A" * 200], ["A" * 300, "A" * 200]
    found = align_matrix(queries, refs, matrix=(1, -1), memory=40_000, cigar=True)
    assert found.status.tolist() == [NO_MEMORY, OK]
    assert found.pair(0)[:3] == (None, "no_memory", None)
    scores = align_matrix(queries, refs, matrix=(1, -1), memory=40_000, cigar=False)
    assert scores.score.tolist() == [300, 200]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matrix": "NONSENSE"}, "NONSENSE is neither known nor a file here; known are NUC"),
        ({"matrix": __file__}, r"matrix: a str is the name .* pathlib\.Path\('"),
        ({"matrix": ("AC", [[1, 2]])}, "one row and column for each letter"),
        ({"matrix": ("AA", [[1, 2], [3, 4]])}, "each letter once"),
        ({"matrix": (1.5, -1)}, "whole numbers"),
        ({"matrix": (1, 2, 3)}, r"matrix \(1, 2, 3\): a name, a path"),
        ({"matrix": 5}, "matrix 5: a name, a path"),
        ({"matrix": (1, -1), "gaps": (-1, 2)}, "open and extend"),
        ({"matrix": (1, -1), "gaps": (1,)}, "open and extend"),
        ({"matrix": (1, -1), "span": "prefix"}, "span 'prefix'"),
        ({"matrix": (1, -1), "device": "tpu"}, "device='tpu'"),
        ({"matrix": ("CG", [[1, 0], [0, 1]])}, "no scores for 'A' at position 1 of the query"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message: str) -> None:
    with pytest.raises(MapperError, match=message):
        align_matrix(["CA"], ["C"], **options)


def test_scores_that_could_overflow_are_refused() -> None:
    with pytest.raises(MapperError, match="must not exceed"):
        align_matrix(["A" * 600_000], ["A"], matrix=(1000, -1), cigar=True)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_letter_without_scores_is_named(threads: int, monkeypatch) -> None:
    """Whatever slices of the letters are looked at by threads."""
    monkeypatch.setattr(scoring, "_LETTERS_A_SLICE", 8)
    queries = ["ACGT", "", "ACGT", "ACJT", "ACGT", "JJJJ"]
    with pytest.raises(InputFormatError, match=r"pair 3: .* 'J' at position 2 of the query"):
        align_matrix(queries, ["A"] * 6, matrix=(1, -1), threads=threads, device="cpu", cigar=True)
    queries = [query.replace("J", "A") for query in queries]
    found = align_matrix(
        queries, ["A"] * 6, matrix=(1, -1), threads=threads, device="cpu", cigar=True
    )
    assert found.query_end.tolist() == [4, 0, 4, 4, 4, 4]
