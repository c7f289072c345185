"""How far gaps reach: never less than the full matrix, and nothing changes by knowing it."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.banded_screen import LOST, STATES, UNKNOWN, ByteLosses, advance, spread
from mapper.jit.accelerate import driver
from tests.helpers.extension_sides import (
    SCORINGS,
    Case,
    extend,
    random_case,
    screen_in_used_workspace,
)
from tests.helpers.read_batches import random_letters
from tests.naive.gotoh import Scoring, best_extension

DIRECTIONS = pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
NARROW, MIDDLE, WIDE = 20, 60, 100


@driver
def _compiled_spread(low, high, ambiguous, shift, codes, at):
    spread(low, high, ambiguous, shift, codes, at)


@driver
def _compiled_advance(band, query, bars, at, ref, ref_at, n_pairs, losses, slack):
    return advance(band, query, bars, at, ref, ref_at, n_pairs, losses, slack)


def test_vectors_write_codes_as_the_plain_function_does() -> None:
    rng = np.random.default_rng(1)
    for shift in (2, 3):
        words = rng.integers(0, 2**64, 3, np.uint64)
        codes = [np.full(80, 77, np.uint8) for _ in range(2)]
        _compiled_spread(*words, shift, codes[0], 9)
        spread(*words, shift, codes[1], 9)
        assert np.array_equal(*codes)
        assert codes[0].max() > 3
        assert (codes[0][:9] == 77).all()
        assert (codes[0][73:] == 77).all()


@pytest.mark.parametrize("n", [32, 64, 128])
def test_vectors_go_on_as_the_plain_function_does(n: int) -> None:
    rng = np.random.default_rng(n)
    flags = []
    for _ in range(20):
        query, ref = (rng.integers(0, 3, 3 * n, np.uint8) for _ in range(2))
        bars = rng.integers(0, 256, 3 * n).astype(np.uint8)
        band = rng.integers(0, 256, STATES * n).astype(np.uint8)
        losses = ByteLosses(*rng.integers(0, 60, 5).astype(np.uint8))
        slack = int(rng.choice([1, 20, 100, LOST]))
        bands = [band.copy(), band.copy()]
        given = (query, bars, n + 9, ref, 5, int(rng.integers(0, 10)), losses, slack)
        flag = _compiled_advance(bands[0], *given)
        assert flag == advance(bands[1], *given)
        assert np.array_equal(*bands)
        flags.append(flag)
    assert 0 < sum(flags) < 20


@DIRECTIONS
@pytest.mark.parametrize("scoring", SCORINGS, ids=str)
@pytest.mark.parametrize("overhang", [40, 3, -4])
def test_it_is_the_objective_of_the_full_matrix(
    forward: bool, scoring: Scoring, overhang: int
) -> None:
    rng = np.random.default_rng(3)
    n_known = 0
    for _ in range(15):
        case = random_case(rng, forward=forward, overhang=overhang, max_len=40)
        best = 2 * best_extension(*case.side_letters(), scoring)
        for floor in {0, best // 2, best - 1, best, best + 1} - {-1}:
            for band in (MIDDLE, WIDE):  # wider than any of these leaves the corner's diagonal
                found = screen_in_used_workspace(case, scoring, floor, band, band)
                n_known += found < UNKNOWN
                if found == UNKNOWN:
                    assert scoring.match * 60 + scoring.end_bonus > LOST
                elif best > floor:
                    assert found >= best
                    # Where the contig ends, an end of the read may seem to be in reach.
                    assert found == best or overhang < 40
                elif overhang == 40:
                    assert found <= floor + 1  # an odd one counts as the even one before
    assert n_known > 50


@DIRECTIONS
@pytest.mark.parametrize("band", [0, 1, NARROW, 31, 62, MIDDLE])
def test_no_diagonal_of_the_band_is_left_out(forward: bool, band: int) -> None:
    """A single gap leads to the last diagonal of the band, and from there all matches."""
    rng = np.random.default_rng(band)
    for insertions, deletions, kind in ((band, 0, "I"), (0, band, "D"), (band, band, "I")):
        near, far, extra = (random_letters(rng, n) for n in (9, 110, band))
        long, short = near + extra + far, near + far
        read, ref = (long, short) if kind == "I" else (short, long)
        best = 2 * best_extension(read, ref, Scoring())
        if not forward:
            read, ref = read[::-1], ref[::-1]
        case = Case(read, 0 if forward else len(read), ref, 0 if forward else len(ref), forward)
        assert screen_in_used_workspace(case, Scoring(), 0, insertions, deletions) == best


def test_what_bytes_cannot_tell_is_unknown() -> None:
    case = Case("A" * 252, 0, "A" * 252, 0, True)
    assert screen_in_used_workspace(case, Scoring(), 0, 3, 3) == UNKNOWN  # 257 may be lost
    assert screen_in_used_workspace(case, Scoring(), 4, 3, 3) == 2 * 257
    assert screen_in_used_workspace(case, Scoring(), 4, 128, 126) == 2 * 257
    assert screen_in_used_workspace(case, Scoring(), 4, 128, 128) == UNKNOWN


@DIRECTIONS
@pytest.mark.parametrize("scoring", SCORINGS, ids=str)
def test_the_same_extension_is_found(forward: bool, scoring: Scoring) -> None:
    """With small reserves and contigs too: what seems in reach may then be lost on the way."""
    rng = np.random.default_rng(5)
    n_found = n_lost = 0
    for _ in range(50):
        case = random_case(rng, forward=forward, overhang=int(rng.choice([40, 3, -4])))
        for reserve in (2**30, 8, 20):
            for floor in (0, 31):
                found = extend(case, scoring, floor=floor, reserve=reserve)
                assert found == extend(case, scoring, floor=floor, reserve=reserve, spared=True)
                n_found += found.s >= 0
                most = screen_in_used_workspace(case, scoring, floor, WIDE, WIDE)
                n_lost += found.objective < most < UNKNOWN
    assert n_found > 10
    assert n_lost > 10
