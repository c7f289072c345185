"""Defaults that depend on the reference or the preset."""

from __future__ import annotations

import pytest

from mapper.errors import UsageError
from mapper.mapping.options import WHOLE_NUMBERS, map_params
from mapper.params import COPIES, KEEP_ALL, PRESETS, IndexParams, MapParams


def test_default_table_sizes() -> None:
    # Bases of the text → k: a quarter of an entry a base at most, or up to 64 MB.
    expected = {
        0: 0, 1: 1, 100: 4, 29_904: 8, 358_242: 10, 4**10 - 1: 10, 4**10: 11, 4_641_652: 12,
        10**8: 12, 4**14 - 1: 12, 4**14: 13, 3_100_000_000: 14, 2**40: 14,
    }  # fmt: skip
    assert {n: IndexParams().table_kmer_len(n) for n in expected} == expected
    assert IndexParams(kmer_len=5).table_kmer_len(4_641_652) == 5


def test_default_sampling() -> None:
    expected = {0: 1, 4_641_652: 1, 2**24: 1, 2**24 + 1: 4, 3_100_000_000: 4}
    assert {n: IndexParams().sampling(n) for n in expected} == expected
    assert IndexParams(sa_sampling=8).sampling(4_641_652) == 8


def test_seeds_have_rows_for_the_copies_of_a_reference() -> None:
    params = MapParams()
    assert params.for_contigs(0, False) == params == params.for_contigs(1, False)
    assert params.for_contigs(2, False).seed.extend_over == 2 * params.seed.extend_over
    assert params.for_contigs(90, False).seed.extend_over == COPIES
    alt = params.for_contigs(0, True)
    assert alt.seed.extend_over == COPIES
    assert alt.extend.score_margin > params.extend.score_margin
    assert alt.keep == KEEP_ALL != params.keep
    for seeds in (alt.seed, alt.second_look):  # and limits that leave room for them
        assert seeds.extend_over < seeds.max_occ <= seeds.max_hits


@pytest.mark.parametrize("preset", ["hifi", "ont", "asm"])
@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_presets_of_long_reads_refuse_the_scores_of_short_ones(preset: str, name: str) -> None:
    with pytest.raises(UsageError, match="those of the preset"):
        map_params({"preset": preset, name: 20})
    assert map_params({"preset": "sr", name: 20}).long == PRESETS["sr"]
    assert map_params({"preset": preset, name: None}).long == PRESETS[preset]
