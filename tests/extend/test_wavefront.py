"""Wavefront extension of one side, against the full matrix."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.extension_sides import SCORINGS, Case, Extension, extend, random_case
from tests.helpers.read_batches import random_letters
from tests.naive.gotoh import Scoring, best_extension, replay

DIRECTIONS = pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])


def check_alignment(case: Case, scoring: Scoring, found) -> None:
    """The backtrace tells the truth and is worth the objective."""
    read, ref = case.side_letters()
    told = replay(found.cigar, read, ref, scoring)
    assert (told.read_used, told.ref_used) == (found.read_used, found.ref_used)
    bonus = scoring.end_bonus if found.read_used == len(read) else 0
    assert 2 * (told.score + bonus) == found.objective


@DIRECTIONS
@pytest.mark.parametrize("scoring", SCORINGS, ids=str)
@pytest.mark.parametrize("overhang", [40, 3, -4])
def test_objective_is_that_of_the_full_matrix(
    forward: bool, scoring: Scoring, overhang: int
) -> None:
    rng = np.random.default_rng(5)
    for _ in range(25):
        case = random_case(rng, forward=forward, overhang=overhang)
        best = best_extension(*case.side_letters(), scoring)
        found = extend(case, scoring)
        assert found.objective == 2 * best, case
        assert (found.s >= 0) == (best > 0)
        if found.s >= 0:
            check_alignment(case, scoring, found)


@DIRECTIONS
@pytest.mark.parametrize("band", [0, 1, 3, 8])
def test_no_alignment_leaves_its_band(forward: bool, band: int) -> None:
    rng = np.random.default_rng(band)
    for _ in range(40):
        case = random_case(rng, forward=forward)
        for scoring in SCORINGS[:3]:
            found = extend(case, scoring, band=band)
            best = best_extension(*case.side_letters(), scoring, band)
            assert found.objective == 2 * best, case
            if found.s >= 0:
                check_alignment(case, scoring, found)


@DIRECTIONS
def test_only_what_exceeds_the_floor_is_found(forward: bool) -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        case = random_case(rng, forward=forward)
        best = 2 * best_extension(*case.side_letters(), Scoring())
        for floor in (best - 1, best, best + 1, best // 2):
            found = extend(case, Scoring(), floor=floor)
            if floor < best:
                assert found.objective == best
                check_alignment(case, Scoring(), found)
            else:
                assert found == Extension(floor, -1, 0, 0, "")


@pytest.mark.medium
@DIRECTIONS
@pytest.mark.parametrize("scoring", SCORINGS[:3], ids=str)
def test_nothing_lies_behind_the_loss_of_all_there_was(forward: bool, scoring: Scoring) -> None:
    rng = np.random.default_rng(7)
    n_cut = 0
    for _ in range(60):
        case = random_case(rng, forward=forward)
        free = 2 * best_extension(*case.side_letters(), scoring)
        for reserve in (1, 8, 20, 40):
            best = 2 * best_extension(*case.side_letters(), scoring, reserve=reserve)
            n_cut += best < free
            # Whatever has to be exceeded, the same is found.
            for floor in (0, best // 2, best - 1, best):
                found = extend(case, scoring, floor=floor, reserve=reserve)
                assert found.objective == max(best, floor), case
                if found.s >= 0:
                    check_alignment(case, scoring, found)
    assert n_cut > 10


@DIRECTIONS
def test_a_contig_is_never_left(forward: bool) -> None:
    """The bases beyond the contig would match; the alignment must do without."""
    rng = np.random.default_rng(8)
    for room in (0, 1, 7, 20, 63, 64, 65):
        outside = "CATG" * 20 if forward else "GCAT" * 20
        inside = random_letters(rng, room)
        read = inside + outside if forward else outside + inside
        corner = 0 if forward else len(read)
        case = Case(read, corner, inside, 0 if forward else room, forward)
        found = extend(case, Scoring())
        assert found.ref_used <= room
        assert found.objective == 2 * best_extension(*case.side_letters(), Scoring())


@DIRECTIONS
@pytest.mark.parametrize("size", [1, 5, 20, 60, 100])
@pytest.mark.parametrize("kind", "ID")
def test_a_long_gap_is_crossed_where_it_pays(forward: bool, size: int, kind: str) -> None:
    rng = np.random.default_rng(size)
    near, far, extra = (random_letters(rng, n) for n in (20, 260, size))
    long, short = near + extra + far, near + far
    read, ref = (long, short) if kind == "I" else (short, long)
    if not forward:
        read, ref = read[::-1], ref[::-1]
    case = Case(read, 0 if forward else len(read), ref, 0 if forward else len(ref), forward)
    found = extend(case, Scoring())
    # At most this: a longer match may start in the gap by chance.
    assert found.objective >= 2 * (280 - 6 - size + 5)
    assert kind in found.cigar
    check_alignment(case, Scoring(), found)


@DIRECTIONS
def test_nothing_to_extend(forward: bool) -> None:
    for ref in ("", "ACGT"):
        case = Case("ACGT", 4 if forward else 0, ref, 0, forward)
        assert extend(case, Scoring()).objective == 10  # the bonus: the end is here already
        assert extend(case, Scoring(), floor=10).s == -1
