"""Loci where gaps cannot pay by their bounds: nothing is found there with gaps either."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.extend.bounds import bound_sides, is_hopeless, worth_extending
from mapper.extend.locus import align_gapped, align_ungapped
from mapper.extend.read import scratch_sizes
from mapper.extend.wavefront import new_wavefronts, wavefront_penalties
from mapper.jit.lanes import ONE_LANE, THREAD_LANE
from mapper.params import ExtendParams
from tests.helpers.read_batches import mutated, packed_reads, random_letters, text_planes

WIDEST = 400  # more diagonals than any band has


SCORINGS = [
    ExtendParams(max_gap=30),
    ExtendParams(max_gap=30, match=2, mismatch=3, gap_open=1, gap_extend=2, end_bonus=0),
    ExtendParams(max_gap=30, mismatch=1, gap_open=1, gap_extend=4, end_bonus=9),
    ExtendParams(max_gap=30, mismatch=40, gap_open=30, end_bonus=0),
]


@pytest.mark.medium
@pytest.mark.parametrize("params", SCORINGS, ids=str)
def test_what_is_screened_out_has_no_gaps_worth_it(params: ExtendParams) -> None:
    rng = np.random.default_rng(1)
    penalties = wavefront_penalties(params)
    most = 160
    sizes = scratch_sizes(most, params.max_gap)
    losses, positions = np.empty(sizes.losses, np.int32), np.empty(most, np.int32)
    spare_ops, ops = (np.empty(sizes.ops, np.uint32) for _ in range(2))
    wavefronts = new_wavefronts(most, params.max_gap, penalties, params.end_bonus)
    n_out = n_gapped = n_wide = n_hopeless = 0
    for _ in range(400):
        middle = random_letters(rng, int(rng.integers(60, 140)))
        read = mutated(rng, middle, float(rng.choice([0, 0.02, 0.1, 0.25])))
        cut, gap = int(rng.integers(15, len(read) - 15)), int(rng.choice([0, 1, 4, 12]))
        read = (read[:cut] + read[cut + gap :])[:most]
        flanks = [random_letters(rng, int(rng.choice([0, 3, 40]))) for _ in range(2)]
        ref = flanks[0] + middle + flanks[1]
        _, packed = packed_reads([read])
        text = text_planes("GA" + ref)
        place = (2 + len(flanks[0]), 2, 2 + len(ref))  # diagonal, and the contig's bounds
        u = align_ungapped(packed.planes, 0, len(read), text, *place, params, positions)
        target = int(rng.integers(0, params.match * (2 * len(read) - 40)))
        given = (packed.planes, 0, len(read), text, *place, u, target, params, penalties)
        space = wavefronts, positions, losses, spare_ops, ops, None
        # A thread of a device does not ask whether a locus is hopeless.
        *_, n_ops = asked_nothing = align_gapped(*given, *space, THREAD_LANE)
        *_, n_ops_asked = asked = align_gapped(*given, *space, ONE_LANE)
        assert n_ops >= 0
        assert n_ops_asked == n_ops
        assert n_ops == 0 or asked == asked_nothing
        n_gapped += n_ops > 0
        if is_hopeless(*given):
            assert n_ops == 0
            n_hopeless += 1
        for band in (4, WIDEST):
            bounds = bound_sides(*given, band, losses, ONE_LANE)
            wanted = worth_extending(bounds, u, target, params)
            assert wanted or n_ops == 0
            if band == WIDEST:
                n_out += not wanted
            else:
                n_wide += wanted
    # All kinds there are: screened out, aligned with gaps, and left because the band is wide.
    assert min(n_out, n_gapped, 400 - n_out - n_gapped) > 10
    assert n_wide > 400 - n_out
    assert n_hopeless > 10
