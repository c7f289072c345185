"""Alignment along chains of anchors."""

from __future__ import annotations

import numpy as np

from mapper.mapping.stages import align_long_reads
from mapper.mapping.stats import RunStats
from mapper.params import PRESETS, MapParams
from mapper.seed.exact import resolve_all
from tests.helpers.read_batches import genome_of, random_letters, reads_of
from tests.helpers.stage_batches import index_of


def test_the_most_alignments_of_a_read_depend_on_no_other_read() -> None:
    """Each window of the read's A has an anchor of its own, and reaches no other."""
    rng = np.random.default_rng(1)
    text = random_letters(rng, 40_000)
    gap = "N" * 100
    index = index_of(genome_of([text[:20_000] + gap + "A" * 85 + gap + text[20_000:]]))
    params = resolve_all(MapParams(long=PRESETS["ont"]), index.fm.n_rows - 1)
    many = text[:1500] + "A" * 9000
    alone, beside = (
        align_long_reads(index, reads_of(reads), params, RunStats()).alignments
        for reads in ([many], [many, text])
    )
    n = alone.alignment_offsets[1]
    assert n > 40
    assert beside.alignment_offsets[1] == n
    assert np.array_equal(alone.text_start, beside.text_start[:n])
    assert np.array_equal(alone.query_start, beside.query_start[:n])
