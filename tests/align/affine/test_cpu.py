"""The CPU's choice between wavefronts and a band of the matrix, and its estimate of penalties."""

from __future__ import annotations

import numpy as np
import pytest

from mapper import align_affine
from mapper.align.affine import cpu
from mapper.align.affine.cpu import Usual
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited


def usual_of(rates: list[float], symbols: int = 2000) -> Usual:
    """Return what is usual after pairs whose penalties are these parts of their symbols."""
    usual = Usual(0, 0)
    for rate in rates:
        usual = cpu._usual_after(usual, round(rate * symbols), symbols)
    return usual


def test_pairs_that_are_alike_deviate_little() -> None:
    usual = usual_of([0.08] * 50)
    assert usual.penalty == pytest.approx(0.08 * cpu._USUAL_SYMBOLS, rel=0.01)
    assert usual.deviation < usual.penalty // 50


def test_pairs_that_differ_deviate_by_their_difference() -> None:
    usual = usual_of([0.04, 0.12] * 50)
    assert usual.penalty == pytest.approx(0.08 * cpu._USUAL_SYMBOLS, rel=0.1)
    assert usual.deviation == pytest.approx(0.04 * cpu._USUAL_SYMBOLS, rel=0.1)


@pytest.mark.parametrize("band", [None, (12, 4)])
@pytest.mark.parametrize("cigar", [True, False])
def test_results_are_those_of_each_pair_alone(cigar: bool, band: tuple[int, int] | None) -> None:
    """What the pairs before have cost decides how a pair is aligned, not how it comes out."""
    rng = np.random.default_rng(8)
    refs = [random_letters(rng, length) for length in (60, 400, 1000, 700, 1000) * 8]
    rates = rng.choice([0.01, 0.06, 0.1, 0.25], len(refs))
    queries = [edited(rng, ref, rate) for ref, rate in zip(refs, rates, strict=True)]
    options = {"penalties": (4, 6, 2), "band": band, "device": "cpu", "threads": 1}
    together = align_affine(queries, refs, cigar=cigar, **options)
    for i, pair in enumerate(zip(queries, refs, strict=True)):
        alone = align_affine([pair[0]], [pair[1]], cigar=cigar, **options)
        assert together.score[i] == alone.score[0]
        assert together.status[i] == alone.status[0]
        if cigar:
            assert together.cigar(i) == alone.cigar(0)
