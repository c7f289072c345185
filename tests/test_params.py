"""Defaults that depend on the reference or the preset."""

from __future__ import annotations

import pytest

from mapper.errors import UsageError
from mapper.mapping.options import LONG_SCORES, WHOLE_NUMBERS, map_params
from mapper.params import COPIES, KEEP_ALL, PRESETS, IndexParams, MapParams, TwoPieceScoring


def test_default_table_sizes() -> None:
    # Bases of the text → k: a quarter of an entry a base at most, or up to 64 MB.
    expected = {
        0: 0, 1: 1, 100: 4, 29_904: 8, 358_242: 10, 4**10 - 1: 10, 4**10: 11, 4_641_652: 12,
        10**8: 12, 4**14 - 1: 12, 4**14: 13, 3_100_000_000: 14, 2**40: 14,
    }  # fmt: skip
    assert {n: IndexParams().table_kmer_len(n) for n in expected} == expected
    assert IndexParams(kmer_len=5).table_kmer_len(4_641_652) == 5


def test_default_sampling() -> None:
    expected = {
        0: 1, 4_641_652: 1, 2**24: 1, 2**24 + 1: 2, 133_025_450: 2, 2**28: 2, 2**28 + 1: 4,
        3_100_000_000: 4,
    }  # fmt: skip
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
    for seeds in (alt.seed, alt.second_look, alt.third_look):  # and limits that leave room for them
        assert seeds.extend_over < seeds.max_occ <= seeds.max_hits


@pytest.mark.parametrize("preset", ["hifi", "ont", "asm"])
@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_options_are_of_short_reads_or_of_long_ones(preset: str, name: str) -> None:
    assert map_params({"preset": "sr", name: 15}).long == PRESETS["sr"]
    assert map_params({"preset": preset, name: None}).long == PRESETS[preset]
    if name not in LONG_SCORES:
        with pytest.raises(UsageError, match=f"{name}=15 and preset=.*is of short reads"):
            map_params({"preset": preset, name: 15})
        return
    found = map_params({"preset": preset, name: 15})
    assert found.long != PRESETS[preset]
    assert found.extend == MapParams().extend  # of pairs


def test_scores_of_long_reads() -> None:
    given = {"match": 3, "mismatch": 7, "gap_open": (5, 30), "gap_extend": [3, 2], "end_bonus": 4}
    found = map_params({"preset": "ont", **given, "min_score": 50}).long
    assert found.scoring == TwoPieceScoring(3, 7, 5, 3, 30, 2)
    assert (found.pieces.end_bonus, found.pieces.min_score) == (4, 50)
    assert (
        found._replace(scoring=PRESETS["ont"].scoring, pieces=PRESETS["ont"].pieces)
        == (PRESETS["ont"])
    )
    one_piece = map_params({"preset": "hifi", "gap_open": 8, "gap_extend": 2}).long.scoring
    assert one_piece == TwoPieceScoring(1, 4, 8, 2, 8, 2)
    others = map_params({"preset": "hifi", "match": 2}).long
    assert others.scoring == PRESETS["hifi"].scoring._replace(match=2)
    assert others.pieces == PRESETS["hifi"].pieces


@pytest.mark.parametrize(
    ("preset", "name", "value", "message"),
    [
        ("ont", "match", 16, "match=16: 1 to 15 is expected"),
        ("ont", "match", (1, 2), r"match=\(1, 2\): 1 to 15 is expected"),
        ("ont", "gap_open", (4, 201), r"gap_open=\(4, 201\): 0 to 200, or two such numbers, are"),
        ("ont", "gap_extend", (4, 24, 5), "two such numbers"),
        ("ont", "gap_extend", (1, 2), "gap extensions 1 and 2: the second piece"),
        ("ont", "gap_extend", (2, 0), r"gap_extend=\(2, 0\): 1 to 200"),
        ("ont", "min_score", 0, "min_score=0: 1 to 1000000 is expected"),
        ("hifi", "mismatch", "4", "mismatch='4': 1 to 200 is expected"),
        ("sr", "gap_open", (4, 24), "gaps of short reads have one number"),
        ("sr", "gap_extend", (2, 1), r"gap_extend=\(2, 1\): gaps of short reads have one"),
    ],
)  # fmt: skip
def test_scores_that_are_refused(preset: str, name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        map_params({"preset": preset, name: value})
