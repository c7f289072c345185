"""Two-piece gap costs: against the full matrix, pywfa, WFA2-lib's suite, and what CIGARs say."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.align.affine.api import align_affine
from mapper.align.dispatch import packed_pairs
from mapper.align.result import NO_MEMORY, OK, OVER_LIMIT
from mapper.cli.main import main
from mapper.errors import UsageError
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import (
    adversarial_pairs,
    edited,
    random_pairs,
    suite_file,
    suite_pairs,
)
from tests.naive.pairwise import RULES, free_ends
from tests.naive.two_piece import Scoring, best_end, best_score, replay

WFA2 = (4, 6, 2, 24, 1)
"""WFA2-lib's default penalties."""
PENALTIES = [
    WFA2, (1, 0, 3, 5, 1), (3, 8, 1, 4, 2), (2, 5, 1, 5, 1), (40, 60, 20, 240, 10),
    (999, 900, 800, 1000, 7),
]  # fmt: skip


def scoring_of(penalties: tuple[int, ...]) -> Scoring:
    return Scoring(0, *penalties, ambiguous=None)


def both(pairs, penalties=WFA2, symbols: str = "dna", **options):
    """Align with and without CIGARs; they agree, and the CIGARs tell the truth."""
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    options = {"penalties": penalties, "symbols": symbols, **options}
    found = align_affine(queries, refs, threads=1, cigar=True, **options)
    alone = align_affine(queries, refs, threads=2, **options)
    assert (found.score == alone.score).all() and (found.status == alone.status).all()
    for i, (query, ref) in enumerate(pairs):
        if found.has_result(i):
            one = found.pair(i)
            check_pair(one, query, ref, penalties, symbols, options.get("span", "global"))
            if free_ends(options.get("span", "global"), ref)[::2] == (0, 0):
                assert alone.pair(i)[3:] == one[3:]
            else:
                assert alone.pair(i)[4::2] == one[4::2]
    return found


def check_pair(one, query: str, ref: str, penalties, symbols: str, span) -> None:
    """The CIGAR has its score, fills its part, and only free ends are left out."""
    query_start, query_end, ref_start, ref_end = one[3:]
    part = query[query_start:query_end], ref[ref_start:ref_end]
    told = replay(one.cigar, *part, scoring_of(penalties), RULES[symbols])
    assert told == (-one.score, len(part[0]), len(part[1])), (query, ref)
    left = (query_start, len(query) - query_end, ref_start, len(ref) - ref_end)
    assert all(a <= b for a, b in zip(left, free_ends(span, ref), strict=True)), left
    assert query_start == 0 or ref_start == 0
    assert query_end == len(query) or ref_end == len(ref)


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
def test_penalty_is_that_of_the_full_matrix(penalties) -> None:
    rng = np.random.default_rng(2)
    pairs = random_pairs(rng, 24, 60) + random_pairs(rng, 8, 30, "ACGTN")
    found = both(pairs, penalties)
    expected = [-best_score(*pair, scoring_of(penalties)) for pair in pairs]
    assert found.score.tolist() == expected


@given(
    st.text("ACGTN", max_size=50), st.text("ACGTN", max_size=50), st.sampled_from(PENALTIES),
    st.sampled_from(sorted(RULES)),
)  # fmt: skip
def test_any_two_strings(query: str, ref: str, penalties, symbols: str) -> None:
    found = both([(query, ref)], penalties, symbols)
    assert found.score[0] == -best_score(query, ref, scoring_of(penalties), RULES[symbols])
    alone = align_affine(query, ref, penalties=penalties, symbols=symbols)
    assert alone == found.score[0]


SPANS = ["semiglobal", "prefix", (0, 0, 7, 3), (9, 4, 0, 20), (6, 300, 300, 2), (50, 0, 0, 50)]


@pytest.mark.parametrize("span", SPANS, ids=str)
def test_free_ends_are_those_of_the_full_matrix(span) -> None:
    rng = np.random.default_rng(12)
    pairs = random_pairs(rng, 16, 50) + random_pairs(rng, 8, 30, "ACGTN")
    pairs += [("", ""), ("", "ACGT"), ("ACGTACGTACGTACGT", ""), ("A" * 40, "T" * 70)]
    for penalties in PENALTIES:
        found = both(pairs, penalties, span=span)
        expected = [
            best_end(q, r, scoring_of(penalties), free_ends(span, r), RULES["dna"])
            for q, r in pairs
        ]
        assert [(-p.score, p.query_end, p.ref_end) for p in map(found.pair, range(len(pairs)))] == (
            expected
        )


@given(
    st.text("ACGTN", max_size=40), st.text("ACGTN", max_size=40), st.sampled_from(PENALTIES),
    st.tuples(*(st.integers(0, 45) for _ in range(4))), st.sampled_from(sorted(RULES)),
)  # fmt: skip
def test_any_two_strings_with_any_free_ends(query, ref, penalties, free, symbols) -> None:
    found = both([(query, ref)], penalties, symbols, span=free).pair(0)
    score, i, j = best_end(query, ref, scoring_of(penalties), free, RULES[symbols])
    assert (-found.score, found.query_end, found.ref_end) == (score, i, j)
    alone = align_affine(query, ref, penalties=penalties, symbols=symbols, span=free, cigar=True)
    assert alone == found


def part_of(rng: np.random.Generator, ref: str, length: int) -> str:
    at = int(rng.integers(len(ref) - length))
    return edited(rng, ref[at : at + length], 0.05)


@pytest.mark.parametrize("span", ["global", *SPANS, (400, 200, 100, 900)], ids=str)
def test_equal_pieces_with_free_ends_are_one(span) -> None:
    rng = np.random.default_rng(14)
    pairs = [*adversarial_pairs(120), *random_pairs(rng, 20, 600)]
    ref = random_letters(rng, 3000)
    pairs += [(part_of(rng, ref, 150), ref), (ref, part_of(rng, ref, 150))]
    one = align_affine([q for q, _ in pairs], [r for _, r in pairs], penalties=(4, 6, 2), span=span)
    two = both(pairs, (4, 6, 2, 6, 2), span=span)
    for column in ("score", "status", "query_end", "ref_end"):
        assert (getattr(one, column) == getattr(two, column)).all()


def test_a_long_gap_in_a_read_somewhere_in_the_reference() -> None:
    rng = np.random.default_rng(15)
    left, right, around = (random_letters(rng, 300) for _ in range(3))
    ref = around + left + random_letters(rng, 200) + right + around
    found = align_affine(left + right, ref, penalties=WFA2, span="semiglobal", cigar=True)
    assert found[0] == 24 + 200 and found[3:] == (0, 600, 300, 1100)
    assert "200D" in found.cigar


def test_limit_with_free_ends() -> None:
    pairs = random_pairs(np.random.default_rng(16), 40, 60)
    exact = both(pairs, span="semiglobal")
    for limit in (0, 7, 30):
        found = both(pairs, span="semiglobal", max_penalty=limit)
        over = exact.score > limit
        assert (found.score == np.where(over, -1, exact.score)).all()
        assert (found.ref_end == np.where(over, -1, exact.ref_end)).all()


@pytest.mark.parametrize("span", ["semiglobal", "prefix", (20, 20, 20, 20)], ids=str)
def test_wfa_suite_with_free_ends_equals_pywfa(span) -> None:
    pywfa = pytest.importorskip("pywfa", reason="pywfa is not installed")
    pairs = suite_pairs()
    x, o1, e1, o2, e2 = WFA2
    expected = []
    for query, ref in pairs:
        query_begin, query_end, ref_begin, ref_end = free_ends(span, ref)
        # WFA2-lib's pattern is the reference here.
        peer = pywfa.WavefrontAligner(
            ref, distance="affine2p", mismatch=x, gap_opening=o1, gap_extension=e1,
            gap_opening2=o2, gap_extension2=e2, span="ends-free", scope="score",
            pattern_begin_free=min(ref_begin, len(ref)), pattern_end_free=min(ref_end, len(ref)),
            text_begin_free=min(query_begin, len(query)), text_end_free=min(query_end, len(query)),
        )  # fmt: skip
        expected.append(-peer(query).score)
    assert both(pairs, span=span).score.tolist() == expected


def test_equal_pieces_are_one() -> None:
    pairs = [*adversarial_pairs(200), *random_pairs(np.random.default_rng(6), 20, 600)]
    one = align_affine([q for q, _ in pairs], [r for _, r in pairs], penalties=(4, 6, 2))
    assert (both(pairs, (4, 6, 2, 6, 2)).score == one.score).all()
    # A second piece that never pays.
    assert (both(pairs, (4, 6, 2, 900, 2)).score == one.score).all()


def test_the_order_of_the_pieces_does_not_matter() -> None:
    pairs = random_pairs(np.random.default_rng(7), 30, 200)
    assert (both(pairs, (4, 24, 1, 6, 2)).score == both(pairs).score).all()


def test_wfa_suite() -> None:
    found = both(suite_pairs())
    with gzip.open(suite_file("wfa_utest.affine2p.alg.gz"), "rt") as lines:
        assert found.score.tolist() == [-int(line.split("\t")[0]) for line in lines]


@pytest.mark.parametrize("length", [150, 1000, 5000])
def test_long_pairs_equal_pywfa(length: int) -> None:
    pywfa = pytest.importorskip("pywfa", reason="pywfa is not installed")
    rng = np.random.default_rng(length)
    pairs = []
    for rate in (0, 0.01, 0.05, 0.2, 0.6)[: 3 if length > 1000 else 5]:
        ref = random_letters(rng, length)
        query = edited(rng, ref, rate)
        pairs += [(query, ref), (query[: length // 4] + query[length // 2 :], ref)]
    for penalties in (WFA2, (5, 3, 3, 40, 1)):
        x, o1, e1, o2, e2 = penalties
        peer = pywfa.WavefrontAligner(
            distance="affine2p", mismatch=x, gap_opening=o1, gap_extension=e1, gap_opening2=o2,
            gap_extension2=e2, span="end-to-end", scope="score",
        )  # fmt: skip
        assert [-peer.wavefront_align(q, r) for q, r in pairs] == both(
            pairs, penalties
        ).score.tolist()


def test_limit_gives_a_status_and_no_score() -> None:
    pairs = [*random_pairs(np.random.default_rng(4), 30, 60), ("", "ACGT"), ("", "")]
    exact = both(pairs)
    for limit in (0, 4, 7, 30, int(exact.score.max())):
        found = both(pairs, max_penalty=limit)
        over = exact.score > limit
        assert (found.status == np.where(over, OVER_LIMIT, OK)).all()
        assert (found.score == np.where(over, -1, exact.score)).all()


def test_too_little_memory_for_a_path_gives_a_status() -> None:
    rng = np.random.default_rng(9)
    ref = random_letters(rng, 1500)
    queries = [edited(rng, ref, 0.3), ref]
    found = align_affine(queries, [ref] * 2, penalties=WFA2, cigar=True, memory=1 << 17)
    assert found.status.tolist() == [NO_MEMORY, OK]
    assert found.cigar(0) is None and found.cigar(1) == "1500="
    scores = align_affine(queries, [ref] * 2, penalties=WFA2, memory=1 << 17)
    assert scores.status.tolist() == [OK, OK]
    assert align_affine(queries[0], ref, penalties=WFA2) == scores.score[0]


def test_every_kind_of_input_and_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs(np.random.default_rng(5), 50, 300)
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    whole = align_affine(queries, refs, penalties=WFA2, threads=1, cigar=True)
    packed = align_affine(packed_pairs(queries, refs), penalties=WFA2, cigar=True)
    monkeypatch.setattr("mapper.align.threads.CHUNK_SYMBOLS", 900)
    cut = align_affine(queries, refs, penalties=WFA2, threads=2, cigar=True)
    for other in (packed, cut):
        assert all((a == b).all() for a, b in zip(whole, other, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalties": (4, 6, 2, 24)}, "three whole numbers x, o, e are expected, or five"),
        ({"penalties": (4, 6, 2, 24, 0)}, "mismatch and gap extend from 1"),
        ({"penalties": (4, 6, 2, -1, 1)}, "gap open from 0"),
        ({"penalties": (4, 6, 2, 2000, 1)}, "up to 1000"),
        ({"span": "local"}, "span 'local': one of"),
        ({"span": (0, 0, -1, 1)}, "four whole numbers of free symbols"),
        ({"band": (32, 8)}, "the search with two-piece gaps is exact"),
        ({"device": "cuda"}, "two-piece gaps are aligned by the CPU only"),
        ({"device": "cuda:0"}, "two-piece gaps are aligned by the CPU only"),
        ({"memory": 10}, "memory 10"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        align_affine(["A"], ["A"], **{"penalties": WFA2, **options})


# --- command line ---


def test_command_line(tmp_path: Path) -> None:
    path, out = tmp_path / "pairs.seq", tmp_path / "out.tsv"
    rng = np.random.default_rng(8)
    left, right = random_letters(rng, 60), random_letters(rng, 60)
    path.write_text(f">{left}{right}\n<{left}{'A' * 50}{right}\n>ACGT\n<ACCT\n")
    options = ["--metric", "affine", "--penalties", "4,6,2,24,1", "-o", str(out)]
    assert main(["align", str(path), *options]) == 0
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert [row[3] for row in rows[1:]] == ["74", "4"]
    assert "50D" in rows[1][5] and rows[2][5] == "2=1X1="
    assert main(["align", str(path), *options, "--span", "semiglobal"]) == 0
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert rows[0][5:] == ["cigar", "query_start", "query_end", "ref_start", "ref_end"]
    assert [row[3] for row in rows[1:]] == ["74", "4"]
    assert rows[1][6:] == ["0", "120", "0", "170"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "--device cuda: two-piece gaps are aligned by the CPU only"),
        (["--band", "32,8"], "the search with two-piece gaps is exact"),
    ],
)
def test_the_command_refuses_before_it_reads(options, message: str, tmp_path, capsys) -> None:
    missing = str(tmp_path / "none.seq")
    arguments = ["align", missing, "--metric", "affine", "--penalties", "4,6,2,24,1", *options]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
