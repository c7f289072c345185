"""Sides of anchors for the tests of extension: from letters, run through the core."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper import cigar
from mapper.extend.banded_screen import highest_objective, new_banded_screen
from mapper.extend.block_losses import fill_losses
from mapper.extend.locus import search_side
from mapper.extend.wavefront import Side, backtrace_side, new_wavefronts, wavefront_penalties
from mapper.jit.lanes import ONE_LANE
from mapper.params import ExtendParams
from tests.helpers.read_batches import mutated, packed_reads, random_letters, text_planes
from tests.naive.gotoh import Scoring

SCORINGS = [
    Scoring(),
    Scoring(end_bonus=0),
    Scoring(1, 1, 1, 1, 2),
    Scoring(2, 8, 12, 2, 10),
    Scoring(1, 9, 16, 1, 5),
    Scoring(3, 2, 0, 4, 1),
]


def params_of(scoring: Scoring, **others: int) -> ExtendParams:
    return ExtendParams(
        match=scoring.match,
        mismatch=scoring.mismatch,
        gap_open=scoring.gap_open,
        gap_extend=scoring.gap_extend,
        end_bonus=scoring.end_bonus,
    )._replace(**others)


class Case(NamedTuple):
    """A read with a corner, and the reference of its contig with the corresponding corner.

    The side to extend is right of the corner (forward) or left of it.
    """

    read: str
    corner: int
    ref: str
    ref_corner: int
    forward: bool

    def side_letters(self) -> tuple[str, str]:
        """Read and reference of the side, from the corner outwards."""
        if self.forward:
            return self.read[self.corner :], self.ref[self.ref_corner :]
        return self.read[: self.corner][::-1], self.ref[: self.ref_corner][::-1]


class Extension(NamedTuple):
    """Result of extend_side; `cigar` from the corner outwards, empty for s = -1."""

    objective: int
    s: int
    read_used: int
    ref_used: int
    cigar: str
    most_gapped: int = 2**30
    """With `bounded`: the doubled objective that no extension with a gap may exceed."""


CONTIG_START = 70


def planes_and_side(case: Case) -> tuple[np.ndarray, np.ndarray, Side]:
    """Return the bit planes of text and read, and the side.

    The contig is between two others, which the core must not read.
    """
    before, after = "ACGT" * 17 + "CN", "N" + "CATG" * 40
    planes = text_planes(before + case.ref + after)
    _, packed = packed_reads([case.read])
    side = Side(
        query_word=0,
        query_pos=case.corner,
        query_room=len(case.read) - case.corner if case.forward else case.corner,
        text_pos=CONTIG_START + case.ref_corner,
        text_room=len(case.ref) - case.ref_corner if case.forward else case.ref_corner,
        forward=case.forward,
    )
    return planes, packed.planes, side


def screen_in_used_workspace(
    case: Case, scoring: Scoring, floor: int, insertions: int, deletions: int
) -> int:
    """Run :func:`mapper.extend.banded_screen.highest_objective` in the workspace of another
    read."""
    params = params_of(scoring)
    space = new_banded_screen(len(case.read), params)
    other = case._replace(read="T" * len(case.read), ref="T" * len(case.ref))
    most = 0
    for this in (other, case):
        planes, query_planes, side = planes_and_side(this)
        most = highest_objective(
            query_planes, planes, side, params, floor, insertions, deletions, space
        )
    return most


def extend(
    case: Case, scoring: Scoring, *, floor: int = 0, band: int = 100, bounded: bool = False,
    reserve: int = 2**30, spared: bool = False,
) -> Extension:  # fmt: skip
    """Run the core.

    `bounded`: with the least losses within the band, for which the read must lie in the contig
    on every diagonal of it. `spared`: only where gaps reach beyond the floor.
    """
    planes, query_planes, side = planes_and_side(case)
    losses = np.zeros(3 * (len(case.read) // 8 + 3), np.int32)
    diagonal = CONTIG_START + case.ref_corner - case.corner
    penalties = wavefront_penalties(params_of(scoring))
    if bounded:
        assert diagonal - band >= CONTIG_START
        assert diagonal + band + len(case.read) <= CONTIG_START + len(case.ref)
        losses[:] = 77  # what another read left there
        loss = fill_losses(
            query_planes, 0, len(case.read), planes, diagonal, case.corner, case.forward, band,
            band, penalties, 2 * scoring.end_bonus, 2**30, losses, ONE_LANE,
        )  # fmt: skip
    wavefronts = new_wavefronts(len(case.read), max(band, 1), penalties, scoring.end_bonus)
    for array in wavefronts:
        array[:] = 7  # what another read left there
    screen = new_banded_screen(len(case.read), params_of(scoring)) if spared else None
    objective, s, k, offset = search_side(
        query_planes, planes, side, params_of(scoring), penalties, reserve, floor, band, band,
        losses, wavefronts, screen, ONE_LANE,
    )  # fmt: skip
    most = 2**30
    if bounded:
        most = 2 * (scoring.match * side.query_room + scoring.end_bonus) - loss
    if s < 0:
        return Extension(objective, -1, 0, 0, "", most)
    ops = np.zeros(2 * len(case.read) + band + 4, np.uint32)
    n_ops = backtrace_side(wavefronts, penalties, side, s, k, offset, ops, 0)
    return Extension(objective, s, offset - k, offset, cigar.to_text(ops[:n_ops][::-1]), most)


def random_case(
    rng: np.random.Generator, *, forward: bool, overhang: int = 40, max_len: int = 60
) -> Case:
    """Return a read with a few differences, of any kind, from a reference.

    `overhang`: reference bases beyond the read on both sides; negative, the read reaches
    beyond the contig.
    """
    letters = ["ACGT", "AC", "AACGTN"][rng.integers(3)]
    template = random_letters(rng, int(rng.integers(8, max_len)), letters)
    read = mutated(rng, template, rng.choice([0, 0.03, 0.1, 0.3]))
    for _ in range(rng.choice([0, 1, 1, 2])):
        at, size = int(rng.integers(len(read))), int(rng.integers(1, 9))
        if rng.random() < 0.5:
            read = read[:at] + random_letters(rng, size, "ACGT") + read[at:]
        else:
            read = read[:at] + read[at + size :]
    read = read or "A"
    flank = max(overhang, 0)
    ref = random_letters(rng, flank, letters) + template + random_letters(rng, flank, letters)
    corner = int(rng.choice([0, len(read), rng.integers(0, len(read) + 1)]))
    if rng.random() < 0.7:
        corner = 0 if forward else len(read)
    ref_corner = flank + (min(corner, len(template)) if corner < len(read) else len(template))
    if overhang < 0:
        cut = min(-overhang, len(template) // 2)
        ref, ref_corner = ref[cut : len(ref) - cut], max(ref_corner - cut, 0)
        ref_corner = min(ref_corner, len(ref))
    return Case(read, corner, ref, ref_corner, forward)
