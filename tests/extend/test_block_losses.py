"""Lost blocks: counted by their definition, and never at the cost of an alignment."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.block_losses import (
    BUT_ONE,
    FIRST_FOUR,
    FIVE,
    LAST_FOUR,
    MATCHED,
    block_marks,
    byte_popcounts,
    marks_on,
    unmatched_blocks,
)
from mapper.jit.lanes import ONE_LANE
from tests.helpers.extension_sides import SCORINGS, Case, extend, random_case
from tests.helpers.read_batches import mutated, packed_reads, random_letters, text_planes
from tests.naive.gotoh import Scoring, best_extension, same

DIRECTIONS = pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])


def naive_marks(differs: list[bool]) -> set[int]:
    """Marks of a block of 8 on one diagonal."""
    deserved = {
        MATCHED: not any(differs),
        BUT_ONE: sum(differs) <= 1,
        FIVE: not any(differs[:5]) or not any(differs[3:]),
        FIRST_FOUR: not any(differs[:4]),
        LAST_FOUR: not any(differs[4:]),
    }
    return {mark for mark, is_given in deserved.items() if is_given}


def marks_in(word: int, block: int) -> set[int]:
    byte = word >> 8 * block & 255
    found = {mark for mark in (MATCHED, BUT_ONE, FIVE, FIRST_FOUR, LAST_FOUR) if byte & mark}
    assert sum(found) == byte
    return found


def test_block_marks() -> None:
    """All bytes there are, beside others that may not matter."""
    rng = np.random.default_rng(1)
    for byte in range(256):
        expected = naive_marks([bool(byte >> i & 1) for i in range(8)])
        for word in (byte * 0x0101_0101_0101_0101, 0, 2**64 - 1, int(rng.integers(0, 2**63))):
            for at in range(8):
                mixed = word & ~(255 << 8 * at) | byte << 8 * at
                assert marks_in(int(block_marks(np.uint64(mixed))), at) == expected


@pytest.mark.parametrize("read_len", [1, 7, 8, 63, 64, 65, 72, 127, 128, 150])
def test_blocks_are_marked_by_all_diagonals(read_len: int) -> None:
    """Of a band, whatever its width and wherever it starts in a word."""
    rng = np.random.default_rng(read_len)
    n_unmatched = 0
    for rate in (0, 0.05, 0.3):
        text = random_letters(rng, read_len + 60, "ACGTACGTACGTN")
        at = 20
        read = mutated(rng, text[at : at + read_len].replace("N", "A"), rate)
        shift = int(rng.integers(-4, 5))
        read = read[: read_len // 2] + text[at + shift + read_len // 2 :][: (read_len + 1) // 2]
        _, packed = packed_reads([read])
        planes = text_planes(text)
        for width in (0, 1, 5, 20):
            for word in range((read_len + 63) // 64):
                marks = marks_on(
                    packed.planes, word, planes, at - width + 64 * word, 2 * width + 1, ONE_LANE
                )
                unmatched = unmatched_blocks(
                    packed.planes, word, planes, at - width + 64 * word, 2 * width + 1
                )
                for block in range(min(8, read_len // 8 - 8 * word)):
                    start = 64 * word + 8 * block
                    expected = set().union(
                        *(
                            naive_marks(
                                [not same(read[start + i], text[k + start + i]) for i in range(8)]
                            )
                            for k in range(at - width, at + width + 1)
                        )
                    )
                    assert marks_in(int(marks), block) == expected
                    # Diagonals beside the band may match as well.
                    if int(unmatched) >> (8 * block + 7) & 1:
                        assert MATCHED not in expected
                        n_unmatched += 1
    assert n_unmatched > 0 or read_len < 8


def test_byte_popcounts() -> None:
    rng = np.random.default_rng(2)
    for word in [0, 2**64 - 1, *(int(w) for w in rng.integers(0, 2**63, 100))]:
        expected = sum((word >> 8 * i & 255).bit_count() << 8 * i for i in range(8))
        assert int(byte_popcounts(np.uint64(word))) == expected


@pytest.mark.medium
@DIRECTIONS
@pytest.mark.parametrize("scoring", SCORINGS, ids=str)
def test_the_bound_never_changes_the_optimum(forward: bool, scoring: Scoring) -> None:
    rng = np.random.default_rng(9)
    n_gapped = n_bounded = 0
    for _ in range(160):
        band = int(rng.choice([0, 2, 8]))
        case = random_case(rng, forward=forward)
        # Only where the read stays within the contig throughout the band is there a bound.
        room = case.ref_corner - case.corner, len(case.ref) - case.ref_corner
        if room[0] < band or room[1] - (len(case.read) - case.corner) < band:
            continue
        best = 2 * best_extension(*case.side_letters(), scoring, band)
        found = extend(case, scoring, band=band, bounded=True)
        assert found.objective == best, case
        if "I" in found.cigar or "D" in found.cigar:
            n_gapped += 1
            assert best <= found.most_gapped, case
        n_bounded += found.most_gapped < best
        if best:
            found = extend(case, scoring, band=band, bounded=True, floor=best - 1)
            assert found.objective == best, case
    assert n_gapped > 2
    assert n_bounded > 10  # and often it says that no gap can pay


@pytest.mark.medium
@DIRECTIONS
@pytest.mark.parametrize("scoring", SCORINGS[:5], ids=str)
def test_wide_bands_with_and_without_the_bound(forward: bool, scoring: Scoring) -> None:
    """Reads of several blocks, many with a foreign or a noisy end; found without: the oracle."""
    rng = np.random.default_rng(10)
    n_gapped = n_cut = 0
    for _ in range(250):
        band, reserve = int(rng.choice([8, 20, 40])), int(rng.choice([20, 60, 2**30]))
        case = random_case(rng, forward=forward, overhang=100, max_len=140)
        kind = rng.random()
        if kind < 0.3:
            noisy = [
                random_letters(rng, 1) if rng.random() < 0.35 * abs(i - case.corner) / 70 else base
                for i, base in enumerate(case.read)
            ]
            case = case._replace(read="".join(noisy))
        elif kind < 0.6:
            at = int(rng.integers(len(case.read) + 1))
            foreign = random_letters(rng, len(case.read) - at)
            case = case._replace(read=case.read[:at] + foreign)
        room = case.ref_corner - case.corner, len(case.ref) - case.ref_corner
        if room[0] < band or room[1] - (len(case.read) - case.corner) < band:
            continue
        free = extend(case, scoring, band=band, reserve=reserve)
        for floor in (0, free.objective // 2, free.objective - 1):
            if floor < 0 or free.s < 0:
                continue
            found = extend(case, scoring, band=band, reserve=reserve, bounded=True, floor=floor)
            assert found[:5] == free[:5], case
        if "I" in free.cigar or "D" in free.cigar:
            n_gapped += 1
            assert free.objective <= found.most_gapped, case
        elif free.s >= 0:
            n_cut += found.most_gapped <= free.objective
    assert n_gapped > 5 and n_cut > 3


@pytest.mark.slow
@DIRECTIONS
@pytest.mark.parametrize("scoring", SCORINGS, ids=str)
def test_an_insertion_that_ends_just_inside_a_block_is_not_cut_off(
    forward: bool, scoring: Scoring
) -> None:
    """One gap touches two blocks, the second with its last base only.

    Going on with a gap is cheaper than a mismatch, so that block costs less than one.
    """
    rng = np.random.default_rng(12)
    for _ in range(10):
        near, far, flank = (random_letters(rng, n) for n in (24, 40, 40))
        for size in range(2, 7):
            for inside in (1, 2):
                for rest in (7, 8, 15, 23):
                    # The read's corner is at a multiple of 8 from either end.
                    matched = near[: 24 - size + inside]
                    read = matched + random_letters(rng, size) + far[: rest + 1 - inside]
                    ref = matched + far + flank
                    if not forward:
                        read, ref = read[::-1], ref[::-1]
                        pad = -len(read) % 8
                        read, ref = read + "A" * pad, ref + "A" * pad + flank
                    else:
                        ref = flank + ref
                        pad = 0
                    corner = 0 if forward else len(read) - pad
                    at = len(flank) if forward else len(ref) - len(flank) - pad
                    case = Case(read, corner, ref, at, forward)
                    best = 2 * best_extension(*case.side_letters(), scoring, size)
                    found = extend(case, scoring, band=size, bounded=True)
                    assert found.objective == best, case
