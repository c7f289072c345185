"""Gap-affine alignment: against the full matrix, pywfa, and what the CIGARs say."""

from __future__ import annotations

import gzip
from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.align.affine import low_memory
from mapper.align.affine.api import align_affine
from mapper.align.affine.cpu import ROWS_BEFORE_BAND
from mapper.align.affine.wavefront import AffinePenalties, Band
from mapper.align.edit.wavefront import Ends
from mapper.align.matches import pair_at
from mapper.align.packing import pack_pairs
from mapper.align.pairs import batch_of
from mapper.align.result import HEURISTIC, NO_MEMORY, OK, OVER_LIMIT
from mapper.errors import MapperError
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import (
    adversarial_pairs,
    check_cigars,
    edited,
    fasta_sequence,
    random_pairs,
    suite_file,
    suite_pairs,
)
from tests.naive.pairwise import RULES, free_ends, lowest_penalty

SPANS = ["global", "semiglobal", "prefix", (3, 0, 0, 5), (99, 99, 99, 99)]
PENALTIES = [(4, 6, 2), (1, 0, 1), (3, 1, 4), (5, 3, 2), (1, 9, 1), (7, 0, 3), (40, 60, 20)]


def both(pairs, **options):
    """Align with and without CIGARs; scores and statuses agree."""
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    found = align_affine(queries, refs, threads=1, cigar=True, **options)
    alone = align_affine(queries, refs, threads=2, cigar=False, **options)
    for a, b in zip((0, 1, 3, 5), (0, 1, 3, 5), strict=True):
        assert (found[a] == alone[b]).all()
    check_cigars(found, pairs, span=options.get("span", "global"),
                 symbols=options.get("symbols", "dna"),
                 penalties=options.get("penalties", (4, 6, 2)))  # fmt: skip
    return found


@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
def test_penalty_is_that_of_the_full_matrix(span, penalties) -> None:
    rng = np.random.default_rng(2)
    pairs = random_pairs(rng, 24, 35) + random_pairs(rng, 8, 25, "ACGTNR")
    found = both(pairs, span=span, penalties=penalties)
    for i, (query, ref) in enumerate(pairs):
        free = free_ends(span, ref)
        expected = lowest_penalty(query, ref, RULES["dna"], penalties, free)
        assert found.score[i] == expected, pairs[i]


@given(
    st.text("ACGTN", max_size=60), st.text("ACGTN", max_size=60), st.sampled_from(SPANS),
    st.sampled_from(PENALTIES), st.sampled_from(sorted(RULES)),
)  # fmt: skip
def test_any_two_strings(query: str, ref: str, span, penalties, symbols: str) -> None:
    found = both([(query, ref)], span=span, penalties=penalties, symbols=symbols)
    free = free_ends(span, ref)
    assert found.score[0] == lowest_penalty(query, ref, RULES[symbols], penalties, free)


def test_unit_penalties_are_edits() -> None:
    from mapper.align.edit.api import edit_distance

    pairs = [*adversarial_pairs(300), *random_pairs(np.random.default_rng(6), 20, 800)]
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    found = both(pairs, penalties=(1, 0, 1))
    assert (found.score == edit_distance(queries, refs).score).all()


@pytest.mark.parametrize("length", [150, 1000, 10_000])
def test_long_pairs_equal_pywfa(length: int) -> None:
    pywfa = pytest.importorskip("pywfa", reason="pywfa is not installed")
    rng = np.random.default_rng(length)
    pairs = []
    for rate in (0, 0.01, 0.05, 0.2, 0.6)[: 3 if length > 1000 else 5]:
        ref = random_letters(rng, length)
        pairs.append((edited(rng, ref, rate), ref))
    pairs.append((random_letters(rng, 1), random_letters(rng, length)))
    pairs.append((random_letters(rng, length), random_letters(rng, 3)))
    for penalties in ((4, 6, 2), (1, 2, 1), (5, 3, 2)):
        x, o, e = penalties
        peer = pywfa.WavefrontAligner(
            mismatch=x, gap_opening=o, gap_extension=e, span="end-to-end", scope="score"
        )
        found = both(pairs, penalties=penalties)
        assert [-peer.wavefront_align(q, r) for q, r in pairs] == found.score.tolist()


@pytest.mark.parametrize(
    ("file", "penalties"),
    [("affine", (4, 6, 2)), ("affine.p0", (1, 2, 1)), ("affine.p1", (3, 1, 4)),
     ("affine.p2", (5, 3, 2))],
)  # fmt: skip
def test_wfa_suite(file: str, penalties) -> None:
    found = both(suite_pairs(), penalties=penalties)
    with gzip.open(suite_file(f"wfa_utest.{file}.alg.gz"), "rt") as lines:
        assert found.score.tolist() == [-int(line.split("\t")[0]) for line in lines]


@pytest.mark.parametrize(
    ("file", "scores"), [("p3", (5, 1, 2, 1)), ("p4", (2, 3, 1, 4)), ("p5", (3, 5, 3, 2))]
)
def test_wfa_suite_with_a_match_score(file: str, scores) -> None:
    """By the transformation of ``extend/wavefront.py``: score = (a (v + h) - penalty) / 2."""
    a, x, o, e = scores
    pairs = suite_pairs()
    found = both(pairs, penalties=(2 * (a + x), 2 * o, 2 * e + a))
    lengths = np.array([len(q) + len(r) for q, r in pairs])
    with gzip.open(suite_file(f"wfa_utest.affine.{file}.alg.gz"), "rt") as lines:
        expected = [int(line.split("\t")[0]) for line in lines]
    assert ((a * lengths - found.score) // 2).tolist() == expected


def test_limit_gives_a_status_and_no_score() -> None:
    pairs = random_pairs(np.random.default_rng(4), 30, 60)
    exact = both(pairs)
    for limit in (0, 4, 7, 30, int(exact.score.max())):
        found = both(pairs, max_penalty=limit)
        over = exact.score > limit
        assert (found.status == np.where(over, OVER_LIMIT, OK)).all()
        assert (found.score == np.where(over, -1, exact.score)).all()


@pytest.mark.parametrize("max_saved", [24, 3])
@pytest.mark.parametrize("span", ["global", (300, 0, 40, 900)])
def test_little_memory_gives_the_same_paths(
    span, max_saved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a dozen stretches; with every other saved row dropped again and again."""
    monkeypatch.setattr(low_memory, "MAX_SAVED", max_saved)
    rng = np.random.default_rng(9)
    ref = random_letters(rng, 1500)
    pairs = [(edited(rng, ref, 0.2), ref), (ref, ref), (edited(rng, ref, 0.01), ref), ("", ref),
             (random_letters(rng, 500), ref), (edited(rng, ref[:900], 0.3), ref)]  # fmt: skip
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    stretches = []
    search = low_memory._Stretches.search
    monkeypatch.setattr(
        low_memory._Stretches, "search", lambda *args: stretches.append(1) or search(*args)
    )
    for penalties, band in (((4, 6, 2), None), ((1, 9, 1), None), ((4, 6, 2), (120, 7))):
        options = {
            "penalties": penalties,
            "band": band,
            "span": span,
            "device": "cpu",
            "cigar": True,
        }
        found = align_affine(queries, refs, memory=1 << 16, **options)
        whole = align_affine(queries, refs, **options)
        for a, b in zip(found, whole, strict=True):
            assert (a == b).all()
    assert len(stretches) > 12
    check_cigars(whole, pairs, penalties=(4, 6, 2), span=span)


def test_too_little_memory_gives_a_status() -> None:
    rng = np.random.default_rng(9)
    ref = random_letters(rng, 200)
    packed = pack_pairs(batch_of([edited(rng, ref, 0.3)], [ref]))
    problem = low_memory.Problem(
        Ends(0, 0, 0, 0), AffinePenalties(2, 3, 1), 2, Band(0, 1), 2**60, memory=20
    )
    path = low_memory.path_in_stretches(pair_at(packed, 0), problem)
    assert (path.status, path.score, path.span, len(path.ops)) == (NO_MEMORY, -1, (-1,) * 4, 0)


def test_a_band_is_told_and_valid() -> None:
    rng = np.random.default_rng(10)
    pairs = []
    for _ in range(60):
        ref = random_letters(rng, 400)
        pairs.append((edited(rng, ref, 0.15), ref))
    gap = random_letters(rng, 300)
    pairs.append((pairs[0][1][:200] + gap + pairs[0][1][200:], pairs[0][1]))
    exact = both(pairs)
    for band in ((10, 1), (24, 5), (500, 10)):
        queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
        found = align_affine(queries, refs, band=band, cigar=True)
        check_cigars(found, pairs, penalties=(4, 6, 2))
        assert (found.score >= exact.score).all()
        sure = found.status == OK
        assert (found.score[sure] == exact.score[sure]).all()
        assert ((found.status == HEURISTIC) | sure).all()
        assert sure.all() == (band[0] == 500)
    few = align_affine(queries, refs, band=(10, 1), max_penalty=120, cigar=True)
    assert (few.status[exact.score > 120] == OVER_LIMIT).all()
    assert (few.status[exact.score <= 120] != OVER_LIMIT).all()  # the exact search decides


def test_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs(np.random.default_rng(5), 50, 300)
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    whole = align_affine(queries, refs, threads=1, cigar=True)
    monkeypatch.setattr("mapper.align.threads.CHUNK_SYMBOLS", 900)
    cut = align_affine(queries, refs, threads=2, cigar=True)
    assert all((a == b).all() for a, b in zip(whole, cut, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalties": (0, 6, 2)}, "mismatch and gap extend from 1"),
        ({"penalties": (4, 6, 0)}, "mismatch and gap extend from 1"),
        ({"penalties": (4, -1, 2)}, "gap open from 0"),
        ({"penalties": (4, 6, 2000)}, "up to 1000"),
        ({"penalties": (4, 6)}, "three whole numbers"),
        ({"penalties": (4, 6.5, 2)}, "three whole numbers"),
        ({"max_penalty": -1}, "max_penalty -1"),
        ({"max_penalty": 0.5}, "max_penalty 0.5: a whole number"),
        ({"band": (1, 1)}, "a width of at least 2"),
        ({"memory": 10}, "memory 10"),
        ({"device": "tpu"}, "device='tpu'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message: str) -> None:
    with pytest.raises(MapperError, match=message):
        align_affine(["A"], ["A"], **options)


def test_real_mitochondria() -> None:
    pywfa = pytest.importorskip("pywfa", reason="pywfa is not installed")
    human, chimp = fasta_sequence("mt_human.fa"), fasta_sequence("mt_chimp.fa")
    found = both([(human, chimp)], symbols="iupac")
    peer = pywfa.WavefrontAligner(mismatch=4, gap_opening=6, gap_extension=2, scope="score")
    assert found.score[0] == -peer.wavefront_align(human, chimp)


@pytest.mark.parametrize("penalties", [(4, 6, 2), (3, 1, 2)])
def test_what_a_band_bounds_is_found_without_it(penalties) -> None:
    """Pairs whose end is far: a band goes ahead on the CPU, but not where memory is short."""
    rng = np.random.default_rng(11)
    pairs = []
    for rate in (0.3, 0.5, 0.9):
        ref = random_letters(rng, 260)
        # A long gap leads the band astray.
        pairs += [(edited(rng, ref, rate), ref), (edited(rng, ref[:40] + ref[150:], rate), ref)]
    pairs.append((random_letters(rng, 200), random_letters(rng, 220)))
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    found = align_affine(queries, refs, penalties=penalties, device="cpu", cigar=True)
    stretched = align_affine(
        queries, refs, penalties=penalties, memory=1 << 16, device="cpu", cigar=True
    )
    for a, b in zip(found, stretched, strict=True):
        assert (a == b).all()
    expected = [lowest_penalty(q, r, RULES["dna"], penalties) for q, r in pairs]
    assert found.score.tolist() == expected
    assert max(expected) // gcd(*penalties) > 2 * ROWS_BEFORE_BAND
    limit = int(np.median(expected))
    limited = align_affine(
        queries, refs, penalties=penalties, max_penalty=limit, device="cpu", cigar=True
    )
    assert (limited.score == np.where(found.score <= limit, found.score, -1)).all()
