"""Pieces of long reads with two-piece gap costs, against the full matrix and planted gaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper import dna
from mapper.cigar import to_text
from mapper.errors import UsageError
from mapper.extend.two_piece import (
    MOST_CELLS,
    PIECE_NO_OPS,
    PIECE_NO_ROOM,
    PIECE_OK,
    PIECE_UNPROVEN,
    extend_piece,
    fill_piece,
    new_piece_space,
)
from mapper.jit.lanes import ONE_LANE
from mapper.params import TwoPieceScoring
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import adversarial_pairs, edited, random_pairs
from tests.naive.two_piece import Scoring, best_extension, best_score, replay

SCORINGS = [
    Scoring(),  # minibwa's for long reads
    Scoring(2, 4, 4, 2, 24, 1),  # minimap2's
    Scoring(1, 19, 39, 3, 81, 1),  # asm5
    Scoring(1, 4, 6, 1, 6, 1),  # one piece
    Scoring(1, 1, 0, 2, 3, 1),
    Scoring(3, 200, 60, 9, 150, 1),  # exceeds eight bits
]
EACH_SCORING = pytest.mark.parametrize("scoring", SCORINGS, ids=str)


class Filled(NamedTuple):
    status: int
    score: int
    cigar: str


class Extended(NamedTuple):
    status: int
    score: int
    cigar: str
    query_len: int
    ref_len: int


def space_for(scoring: Scoring, longest: int = 1000, n_cells: int = 1 << 22):
    return new_piece_space(longest, longest, TwoPieceScoring(*scoring), n_cells)


SPACES = {scoring: space_for(scoring) for scoring in SCORINGS}


def placed(letters: str) -> tuple[np.ndarray, int, int]:
    """Codes with other bases on both sides, and where the letters lie."""
    return dna.encode("ACA" + letters + "TGTG"), 3, 3 + len(letters)


def fill(query: str, ref: str, scoring: Scoring = SCORINGS[0], space=None) -> Filled:
    ops = np.zeros(len(query) + len(ref) + 4, np.uint32)
    space = SPACES[scoring] if space is None else space
    status, n_ops, score = fill_piece(
        *placed(query), *placed(ref), TwoPieceScoring(*scoring), space, ops, ONE_LANE
    )
    return Filled(status, score, to_text(ops[:n_ops]))


def extend(
    query: str, ref: str, scoring: Scoring = SCORINGS[0], *, backward: bool = False,
    z_drop: int = -1, end_bonus: int = 5, space=None,
) -> Extended:  # fmt: skip
    ops = np.zeros(len(query) + len(ref) + 4, np.uint32)
    status, n_ops, score, query_len, ref_len = extend_piece(
        *placed(query), *placed(ref), backward, z_drop, end_bonus, TwoPieceScoring(*scoring),
        SPACES[scoring] if space is None else space, ops, ONE_LANE,
    )  # fmt: skip
    return Extended(status, score, to_text(ops[:n_ops]), query_len, ref_len)


def check_filled(query: str, ref: str, scoring: Scoring, found: Filled) -> None:
    told = replay(found.cigar, query, ref, scoring)
    assert told == (found.score, len(query), len(ref)), (query, ref)


def check_extended(query: str, ref: str, scoring: Scoring, backward: bool, found: Extended) -> None:
    n, m = found.query_len, found.ref_len
    parts = (query[len(query) - n :], ref[len(ref) - m :]) if backward else (query[:n], ref[:m])
    assert replay(found.cigar, *parts, scoring) == (found.score, n, m), (query, ref)


# --- fill_piece ---


@EACH_SCORING
def test_filled_score_is_that_of_the_full_matrix(scoring: Scoring) -> None:
    rng = np.random.default_rng(3)
    for query, ref in random_pairs(rng, 60, 90) + random_pairs(rng, 30, 50, "ACGTN"):
        found = fill(query, ref, scoring)
        assert (found.status, found.score) == (PIECE_OK, best_score(query, ref, scoring))
        check_filled(query, ref, scoring, found)


@given(st.text("ACGTN", max_size=60), st.text("ACGTN", max_size=60), st.sampled_from(SCORINGS))
def test_any_two_pieces(query: str, ref: str, scoring: Scoring) -> None:
    found = fill(query, ref, scoring)
    assert (found.status, found.score) == (PIECE_OK, best_score(query, ref, scoring))
    check_filled(query, ref, scoring, found)
    assert fill(ref, query, scoring).score == found.score
    assert fill(query[::-1], ref[::-1], scoring).score == found.score


@given(st.text("AC", max_size=70), st.integers(0, 70), st.integers(0, 40), st.data())
def test_few_letters_and_a_gap(query: str, at: int, size: int, data) -> None:
    """Many alignments are equally good; gaps of both pieces occur."""
    at = min(at, len(query))
    ref = query[:at] + data.draw(st.text("AC", min_size=size, max_size=size)) + query[at:]
    for one, other in ((query, ref), (ref, query)):
        found = fill(one, other)
        assert (found.status, found.score) == (PIECE_OK, best_score(one, other, Scoring()))
        check_filled(one, other, Scoring(), found)


def test_awkward_pieces() -> None:
    for query, ref in adversarial_pairs(70):
        found = fill(query, ref)
        assert (found.status, found.score) == (PIECE_OK, best_score(query, ref, Scoring()))
        check_filled(query, ref, Scoring(), found)


@pytest.mark.parametrize(
    ("query", "ref", "cigar"),
    [
        ("", "", "*"),
        ("", "ACGT", "4D"),
        ("ACGT", "", "4I"),
        ("A", "A", "1="),
        ("N", "N", "1X"),
        ("A", "C", "1X"),
        ("GAAAAC", "GAAAAAAC", "1=2D5="),
        ("GAAAAAAC", "GAAAAC", "1=2I5="),
        ("ACACAC", "ACACACAC", "2D6="),
        ("TTTTACGTACCA", "TTTTACCTACCA", "6=1X5="),
        ("TTTTACGACCCC", "TTTTCCCC", "4=4I4="),
        # On either side of a mismatch.
        ("GCAAAAT", "GTAAAAAT", "1=1D1X5="),
    ],
)
def test_gaps_are_as_far_left_as_they_can(query: str, ref: str, cigar: str) -> None:
    assert fill(query, ref).cigar == cigar


@pytest.mark.parametrize("scoring", [SCORINGS[0], SCORINGS[2]], ids=str)
@pytest.mark.parametrize("beside", ["N", "ACGTTGCA"])
def test_ambiguous_bases_lie_beside_as_many(scoring: Scoring, beside: str) -> None:
    """Between the contigs of a scaffold."""
    left, right = "ACGTTGCATCAGTTG", "CCATGACTTAGCAAT"
    query, ref = f"{left}{'N' * 104}{right}", left + beside * (104 // len(beside)) + right
    score = 30 * scoring.match - 104
    for one, other in ((query, ref), (ref, query)):
        assert fill(one, other, scoring) == (PIECE_OK, score, "15=104X15=")
        found = extend(one, other, scoring)
        assert found.score == max(score, 15 * scoring.match)
    longer = left + "N" * 160 + right
    found = fill(query, longer, scoring)
    assert found.score == score - scoring.gap(56) and found.status == PIECE_OK
    check_filled(query, longer, scoring, found)


def test_an_ambiguous_base_costs_no_more_than_a_mismatch() -> None:
    scoring = Scoring(2, 0, 3, 1, 5, 1)
    found = fill("ACNTA", "ACGTA", scoring, space_for(scoring))
    assert found == (PIECE_OK, 8, "2=1X2=")


def test_a_gap_takes_the_cheaper_piece() -> None:
    """12 + 2 n up to 11 bases, 23 + n from there on."""
    for size in (1, 10, 11, 12, 40):
        ref = "ACGTTGCATCAG" + "C" * size + "TTGACATGACCA"
        found = fill("ACGTTGCATCAGTTGACATGACCA", ref)
        assert found.score == 2 * 24 - min(12 + 2 * size, 23 + size)
        assert f"{size}D" in found.cigar


@pytest.mark.parametrize("length", [300, 1000, 2000])
def test_long_pieces_equal_pywfa(length: int) -> None:
    pywfa = pytest.importorskip("pywfa", reason="pywfa is not installed")
    rng = np.random.default_rng(length)
    a, b, o1, e1, o2, e2, _ = SCORINGS[0]
    # score = (a (n + m) - penalty) / 2 of the match-bonus transformation
    peer = pywfa.WavefrontAligner(
        distance="affine2p", mismatch=2 * (a + b), gap_opening=2 * o1, gap_extension=2 * e1 + a,
        gap_opening2=2 * o2, gap_extension2=2 * e2 + a, span="end-to-end", scope="score",
    )  # fmt: skip
    space = space_for(SCORINGS[0], 3000, 1 << 24)
    for rate in (0.01, 0.05, 0.2, 0.2, 0.5):
        ref = random_letters(rng, length)
        query = edited(rng, ref, rate)
        size = int(rng.integers(1, length // 4))
        for pair in ((query, ref), (query[: length // 2] + query[length // 2 + size :], ref)):
            found = fill(*pair, space=space)
            check_filled(*pair, SCORINGS[0], found)
            assert found.status == PIECE_OK
            penalty = -peer.wavefront_align(*pair)
            assert found.score == (a * (len(pair[0]) + len(pair[1])) - penalty) // 2


@pytest.mark.parametrize("size", [50, 511, 513, 700, 3000, 50_000])
@pytest.mark.parametrize("flanks", [(40, 25), (0, 30), (500, 700), (6000, 5000)])
@pytest.mark.parametrize("kind", "ID")
def test_one_long_gap_is_found_where_it_is(size: int, flanks: tuple[int, int], kind: str) -> None:
    rng = np.random.default_rng(size)
    left, right = (random_letters(rng, n) for n in flanks)
    # The gap's place is ambiguous by as much as its start repeats behind it, here not at all.
    behind = right[0]
    first = "ACGT"[("ACGT".index(behind) + 1) % 4]
    last = "C" if left[-1:] != "C" else "G"
    gap = first + random_letters(rng, size - 2) + last
    long, short = left + gap + right, left + right
    space = space_for(SCORINGS[0], max(len(long), len(short)), 1 << 24)
    found = fill(*((long, short) if kind == "I" else (short, long)), space=space)
    expected = f"{len(left)}={size}{kind}{len(right)}=" if left else f"{size}{kind}{len(right)}="
    assert found == (PIECE_OK, 2 * len(short) - 23 - size, expected)


@pytest.mark.parametrize("size", [600, 20_000])
@pytest.mark.parametrize("kind", "ID")
def test_a_long_gap_among_errors(size: int, kind: str) -> None:
    """The score is at least that of the two flanks by themselves, joined by the gap."""
    rng = np.random.default_rng(size)
    space = space_for(SCORINGS[0], 30_000, 1 << 24)
    for length, rate in ((100, 0.05), (900, 0.1), (3000, 0.05)):
        left, right = random_letters(rng, length), random_letters(rng, length)
        short = (edited(rng, left, rate), edited(rng, right, rate))
        flanks = [fill(a, b, space=space).score for a, b in zip(short, (left, right), strict=True)]
        one, other = "".join(short), left + random_letters(rng, size) + right
        pair = (other, one) if kind == "I" else (one, other)
        found = fill(*pair, space=space)
        check_filled(*pair, SCORINGS[0], found)
        assert found.score >= sum(flanks) - 23 - size
        assert any(f"{n}{kind}" in found.cigar for n in range(size - 150, size + 150))


def test_the_join_over_a_long_gap_is_proven_where_it_says_so() -> None:
    """Without errors and with few; with many the band decides. All against the full matrix."""
    rng = np.random.default_rng(14)
    for rate in (0, 0.04, 0.5):
        for _ in range(3):
            left, right = random_letters(rng, 40), random_letters(rng, 30)
            ref = left + random_letters(rng, 520) + right
            query = edited(rng, left + right, rate)
            for pair in ((query, ref), (ref, query)):
                found = fill(*pair)
                assert (found.status, found.score) == (PIECE_OK, best_score(*pair, Scoring()))
                check_filled(*pair, Scoring(), found)


def test_large_pieces_are_aligned_in_a_workspace_of_limited_size() -> None:
    """20 kb on 20 kb with 10 % errors, in 16 MB; as good as the errors that were made."""
    rng = np.random.default_rng(21)
    ref = random_letters(rng, 20_000)
    query = edited(rng, ref, 0.1)
    space = space_for(SCORINGS[0], 21_000, 1 << 24)
    assert sum(part.nbytes for part in (*space.band, *space[1:])) < 20 << 20
    found = fill(query, ref, space=space)
    assert found.status == PIECE_UNPROVEN
    check_filled(query, ref, SCORINGS[0], found)
    assert found.score > 2 * 20_000 - 2000 * 16


def test_large_pieces_with_few_errors_are_proven() -> None:
    rng = np.random.default_rng(24)
    ref = random_letters(rng, 5000)
    query = edited(rng, ref, 0.01)
    for pair in ((query, ref), (query[:2000] + query[2300:], ref)):
        found = fill(*pair, space=space_for(SCORINGS[0], 5000, 1 << 23))
        assert found.status == PIECE_OK
        check_filled(*pair, SCORINGS[0], found)


@pytest.mark.parametrize("lengths", [(90_000, 90_500), (100_000, 90_000), (30_000, 130_000)])
def test_the_workspace_that_always_suffices(lengths: tuple[int, int]) -> None:
    rng = np.random.default_rng(25)
    query, ref = (random_letters(rng, n) for n in lengths)
    space = space_for(SCORINGS[0], max(lengths), max(MOST_CELLS, 288 * sum(lengths)))
    found = fill(query, ref, space=space)
    assert found.status == PIECE_UNPROVEN
    check_filled(query, ref, SCORINGS[0], found)
    extended = extend(query, ref, space=space)
    assert extended.status == PIECE_UNPROVEN
    check_extended(query, ref, SCORINGS[0], False, extended)


def test_the_workspace_does_not_matter_once_it_is_large_enough() -> None:
    rng = np.random.default_rng(22)
    ref = random_letters(rng, 400)
    for query in (edited(rng, ref, 0.2), edited(rng, ref[:100] + ref[250:], 0.1)):
        expected, statuses = fill(query, ref), []
        extended = extend(query, ref)
        for n_cells in (1 << 10, 1 << 14, 1 << 18, 1 << 20):
            space = space_for(SCORINGS[0], 400, n_cells)
            found, one = fill(query, ref, space=space), extend(query, ref, space=space)
            statuses.append(found.status)
            assert found.status == PIECE_NO_ROOM or found == expected
            assert one.status == PIECE_NO_ROOM or one == extended
        assert statuses[0] == PIECE_NO_ROOM and statuses[-1] == PIECE_OK


def test_operations_that_do_not_fit() -> None:
    scoring = TwoPieceScoring(*SCORINGS[0])
    rng = np.random.default_rng(23)
    ref = random_letters(rng, 300)
    for query in (edited(rng, ref, 0.3), ref[:100] + ref[120:], ref[:90] + "N" + ref[91:]):
        whole = np.zeros(700, np.uint32)
        places = (*placed(query), *placed(ref))
        status, n_ops, _ = fill_piece(*places, scoring, SPACES[SCORINGS[0]], whole, ONE_LANE)
        assert status == PIECE_OK
        for size in range(n_ops + 4):
            ops = np.full(size + 1, 77, np.uint32)
            found = fill_piece(*places, scoring, SPACES[SCORINGS[0]], ops[:size], ONE_LANE)
            assert ops[size] == 77
            assert found[0] == PIECE_NO_OPS or (ops[:n_ops] == whole[:n_ops]).all()
            assert found[0] == PIECE_NO_OPS or size >= n_ops
        assert found[0] == PIECE_OK


def test_scores_that_no_difference_holds_are_refused() -> None:
    with pytest.raises(UsageError, match="exceed what alignment with 16 bits can hold"):
        new_piece_space(10, 10, TwoPieceScoring(1, 4, 40_000, 1, 60_000, 1))
    with pytest.raises(UsageError, match="the second piece of a gap's cost is the flatter one"):
        new_piece_space(10, 10, TwoPieceScoring(1, 4, 23, 1, 12, 2))


# --- extend_piece ---

DIRECTIONS = pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])


@DIRECTIONS
@EACH_SCORING
@pytest.mark.parametrize("end_bonus", [0, 5, 30])
def test_extension_is_that_of_the_full_matrix(
    backward: bool, scoring: Scoring, end_bonus: int
) -> None:
    rng = np.random.default_rng(5)
    for query, ref in random_pairs(rng, 30, 80) + random_pairs(rng, 10, 40, "ACGTN"):
        found = extend(query, ref, scoring, backward=backward, end_bonus=end_bonus)
        letters = (query[::-1], ref[::-1]) if backward else (query, ref)
        best, is_whole = best_extension(*letters, scoring, end_bonus)
        assert (found.status, found.score) == (PIECE_OK, best)
        assert (found.query_len == len(query)) == is_whole
        check_extended(query, ref, scoring, backward, found)


@given(
    st.text("ACN", max_size=50), st.text("ACN", max_size=50), st.booleans(),
    st.integers(0, 25), st.sampled_from(SCORINGS),
)  # fmt: skip
def test_any_extension(
    query: str, ref: str, backward: bool, end_bonus: int, scoring: Scoring
) -> None:
    found = extend(query, ref, scoring, backward=backward, end_bonus=end_bonus)
    letters = (query[::-1], ref[::-1]) if backward else (query, ref)
    best, is_whole = best_extension(*letters, scoring, end_bonus)
    assert (found.status, found.score) == (PIECE_OK, best)
    assert (found.query_len == len(query)) == is_whole
    check_extended(query, ref, scoring, backward, found)
    mirrored = extend(query[::-1], ref[::-1], scoring, backward=not backward, end_bonus=end_bonus)
    assert mirrored.score == found.score


@DIRECTIONS
def test_extensions_of_equal_letters(backward: bool) -> None:
    rng = np.random.default_rng(6)
    text = random_letters(rng, 300)
    query, ref = (text[-200:], text) if backward else (text[:200], text)
    assert extend(query, ref, backward=backward, z_drop=100) == (PIECE_OK, 400, "200=", 200, 200)
    at = 150 if backward else 50
    for letter, score in (("ACGT"["TGCA".index(query[at])], 390), ("N", 397)):
        other = query[:at] + letter + query[at + 1 :]
        found = extend(other, ref, backward=backward, z_drop=100)
        assert found == (PIECE_OK, score, f"{at}=1X{199 - at}=", 200, 200)


@DIRECTIONS
def test_gaps_of_an_extension_are_as_far_left_as_they_can(backward: bool) -> None:
    sides = "CGTAGTCCGATCGATTCTGA", "GTCTAGCTACGGATCAGTCAT"
    query, ref = (sides[0] + run + sides[1] for run in ("AAAA", "AAAAAAA"))
    assert extend(query, ref, backward=backward).cigar == "19=3D26="
    assert extend(ref, query, backward=backward).cigar == "19=3I26="


def test_nothing_to_extend() -> None:
    for backward in (False, True):
        assert extend("", "ACGT", backward=backward) == (PIECE_OK, 0, "*", 0, 0)
        assert extend("ACGT", "", backward=backward) == (PIECE_OK, 0, "*", 0, 0)
        # The bonus pays for an insertion up to the end.
        found = extend("ACGT", "", backward=backward, end_bonus=20)
        assert found == (PIECE_OK, -20, "4I", 4, 0)


# --- z-drop ---


@DIRECTIONS
def test_z_drop_ends_before_a_stretch_without_similarity(backward: bool) -> None:
    rng = np.random.default_rng(8)
    near, far = random_letters(rng, 200), random_letters(rng, 900)
    query = near + random_letters(rng, 300) + far
    ref = near + random_letters(rng, 300) + far
    if backward:
        query, ref = query[::-1], ref[::-1]
    space = space_for(SCORINGS[0], 2000, 1 << 24)
    options = {"backward": backward, "space": space, "end_bonus": 10}
    dropped = extend(query, ref, z_drop=100, **options)
    assert dropped.status == PIECE_UNPROVEN
    assert 195 <= dropped.query_len <= 230 and dropped.score >= 400
    check_extended(query, ref, SCORINGS[0], backward, dropped)
    whole = extend(query, ref, z_drop=-1, **options)
    assert whole.query_len == len(query) and whole.score > dropped.score
    # A drop that large does not occur.
    assert extend(query, ref, z_drop=5000, **options).score == whole.score


@DIRECTIONS
@pytest.mark.parametrize("kind", "ID")
def test_z_drop_does_not_count_the_length_of_a_gap(backward: bool, kind: str) -> None:
    rng = np.random.default_rng(9)
    near, gap, far = (random_letters(rng, n) for n in (150, 90, 200))
    query, ref = near + far, near + gap + far
    if kind == "I":
        query, ref = ref, query
    if backward:
        query, ref = query[::-1], ref[::-1]
    # Less than the gap costs, and more than what random bases on other diagonals lose.
    found = extend(query, ref, backward=backward, z_drop=112)
    assert found.score == 2 * 350 - 23 - 90 and f"90{kind}" in found.cigar
    check_extended(query, ref, SCORINGS[0], backward, found)


def test_z_drop_of_any_size_gives_a_valid_alignment() -> None:
    rng = np.random.default_rng(10)
    for query, ref in random_pairs(rng, 20, 150):
        free = extend(query, ref)
        for z_drop in (0, 5, 20, 60, 400):
            found = extend(query, ref, z_drop=z_drop)
            assert found.status in (PIECE_OK, PIECE_UNPROVEN)
            assert found.score + 5 * (found.query_len == len(query)) <= free.score + 5
            check_extended(query, ref, SCORINGS[0], False, found)
        assert extend(query, ref, z_drop=5000).score == free.score
