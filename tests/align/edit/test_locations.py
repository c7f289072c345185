"""All places of a query, and letters declared equal: against the full matrix and edlib."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapper
from mapper.align.edit import locations
from mapper.align.result import NO_MEMORY, OK, OVER_LIMIT
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import adversarial_pairs, edited, random_pairs
from tests.naive.pairwise import RULES, penalty_of, places, with_equalities

SPANS = ["global", "semiglobal", "prefix"]
IUPAC = [("R", "A"), ("R", "G"), ("Y", "C"), ("Y", "T"), *(("N", base) for base in "ACGT")]


def check(pairs, span: str, symbols: str = "dna", equalities=()) -> None:
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    options = {"span": span, "symbols": symbols, "equalities": equalities}
    found = mapper.edit_locations(queries, refs, threads=2, **options)
    same = with_equalities(RULES[symbols], equalities)
    for i, (query, ref) in enumerate(pairs):
        distance, expected = places(query, ref, same, span)
        assert found.pair(i) == (distance, "ok", expected), (query, ref)
        assert mapper.edit_locations(query, ref, **options) == found.pair(i)


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("symbols", RULES)
def test_places_are_those_of_the_full_matrix(span: str, symbols: str) -> None:
    rng = np.random.default_rng(1)
    alphabet = {"dna": "ACGTNacgtuR", "iupac": "ACGTNnRY", "bytes": "ACxyz~"}[symbols]
    equalities = [("x", "A"), ("~", "y")] if symbols == "bytes" else IUPAC
    pairs = random_pairs(rng, 20, 12, "ACGT") + random_pairs(rng, 15, 12, alphabet)
    check(pairs, span, symbols)
    check(pairs, span, symbols, equalities)


@given(st.text("ACN", max_size=7), st.text("ACN", max_size=12), st.sampled_from(SPANS))
def test_any_two_strings(query: str, ref: str, span: str) -> None:
    check([(query, ref)], span, equalities=["NA"])


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("equalities", [(), IUPAC])
def test_edlib_finds_the_same(span: str, equalities) -> None:
    edlib = pytest.importorskip("edlib", reason="edlib is not installed")
    mode = {"global": "NW", "semiglobal": "HW", "prefix": "SHW"}[span]
    rng = np.random.default_rng(2)
    pairs = []
    for length in (1, 5, 63, 64, 65, 130, 400):
        for rate in (0, 0.1, 0.5):
            ref = random_letters(rng, 3 * length, "ACGTRYN")
            pairs.append((edited(rng, ref[length : 2 * length], rate) or "A", ref))
    pairs += [("A" * 9, "A" * 200), ("CC", "A" * 70), ("AC" * 40, "AC" * 80)]
    for query, ref in pairs:
        for k in (-1, len(query) // 4):
            theirs = edlib.align(
                query, ref, mode=mode, task="locations", k=k, additionalEqualities=equalities
            )
            ours = mapper.edit_locations(
                query, ref, span=span, symbols="bytes", equalities=equalities,
                max_distance=None if k < 0 else k,
            )  # fmt: skip
            distance = theirs["editDistance"]
            assert ours.score == (None if distance < 0 else distance), (query, ref)
            assert ours.status == ("over_limit" if distance < 0 else "ok")
            # edlib's ends are included; before the reference it has the place (0, -1).
            assert ours.locations == [(start, end + 1) for start, end in theirs["locations"]]
            path = mapper.edit_distance(
                query, ref, span=span, symbols="bytes", equalities=[*equalities, "AA"], cigar=True
            )
            assert path.score == edlib.align(
                query, ref, mode=mode, additionalEqualities=equalities
            )["editDistance"]  # fmt: skip
            same = with_equalities(RULES["bytes"], equalities)
            part = ref[path.ref_start : path.ref_end]
            assert penalty_of(path.cigar, query, part, same) == path.score


@pytest.mark.parametrize("span", SPANS)
def test_paths_are_those_of_wavefronts(span: str) -> None:
    """An equality that changes nothing: the same rows, and the same choice of equal paths."""
    rng = np.random.default_rng(3)
    pairs = [*random_pairs(rng, 60, 90, "ACGT"), *random_pairs(rng, 20, 30, "ACGTN")]
    pairs += [*adversarial_pairs(), ("", ""), ("", "ACG"), ("ACG", "")]
    for length, rate in ((150, 0.05), (150, 0.4), (700, 0.1)):
        ref = random_letters(rng, 2 * length)
        pairs.append((edited(rng, ref[length // 2 : length], rate), ref))
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    for options in ({}, {"max_distance": 5}):
        for cigar in (False, True):
            whole = mapper.edit_distance(
                queries, refs, span=span, cigar=cigar, device="cpu", **options
            )
            found = mapper.edit_distance(
                queries, refs, span=span, cigar=cigar, equalities=["AA"], threads=2, **options
            )
            for name in found._fields:
                ours, theirs = getattr(found, name), getattr(whole, name)
                assert (ours is None) == (theirs is None)
                assert ours is None or (ours == theirs).all(), name
            for i in range(0, len(pairs), 7):
                one = mapper.edit_distance(
                    queries[i], refs[i], span=span, cigar=cigar, equalities=["AA"], **options
                )
                assert one == (found.pair(i) if cigar else found.pair(i).score)


def test_equalities_are_symmetric_and_not_transitive() -> None:
    equal = [("N", "A"), ("N", "C")]
    assert mapper.edit_distance("N", "A", equalities=equal) == 0
    assert mapper.edit_distance("A", "n", equalities=equal) == 0
    assert mapper.edit_distance("A", "C", equalities=equal) == 1
    assert mapper.edit_distance("N", "N", equalities=equal) == 1  # the rule of `dna`
    assert mapper.edit_distance("N", "N", equalities=["NN"]) == 0
    assert mapper.edit_distance("\xff".encode("latin-1"), b"a", symbols="bytes",
                                equalities=["ab"]) == 1  # fmt: skip


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = mapper.edit_locations(["ACGT", "ACGT"], ["TTTT", "AACGT"], max_distance=2)
    assert found.status.tolist() == [OVER_LIMIT, OK]
    assert found.pair(0) == (None, "over_limit", [])
    assert found.pair(1) == (0, "ok", [(1, 5)])
    monkeypatch.setattr(locations, "PATH_MEMORY", 2000)
    queries = ["ACGT" * 40, "ACGT"]
    found = mapper.edit_distance(queries, queries, cigar=True, equalities=["NA"])
    assert found.status.tolist() == [NO_MEMORY, OK]
    assert mapper.edit_distance(queries[0], queries[0], equalities=["NA"]) == 0


def test_what_cannot_be_meant_is_refused() -> None:
    for call in (mapper.edit_locations, mapper.edit_distance):
        for options, message in (
            ({"equalities": ["N"]}, "no pair of letters"),
            ({"equalities": [("N", "AC")]}, "no pair of letters"),
            ({"equalities": ["A*"]}, "no IUPAC nucleotide; other letters go with symbols='bytes'"),
            ({"equalities": ["Aé"]}, "not ASCII"),
            ({"equalities": ["NA"], "span": (0, 0, 1, 1)}, "one of global, semiglobal, prefix"),
            ({"equalities": ["NA"], "device": "cuda"}, "by the CPU only"),
            ({"equalities": ["NA"], "symbols": "protein"}, "symbols 'protein'"),
            ({"equalities": ["NA"], "max_distance": -1}, "max_distance -1"),
        ):
            with pytest.raises(mapper.UsageError, match=message):
                call("ACGT", "ACGT", **options)
        packed = mapper.packed_pairs(["ACGT"], ["ACGT"])
        with pytest.raises(mapper.UsageError, match="packed pairs"):
            call(packed, equalities=["NA"])
        for query, ref, message in (
            ("ACGT", "AC!T", "pair 3: character '!' at position 2 of the reference"),
            ("*CGT", "ACGT", r"pair 3: character '\*' at position 0 of the query"),
        ):
            for pair in ((query, ref), ([query], [ref])):
                with pytest.raises(mapper.InputFormatError, match=message):
                    call(*pair, equalities=["NA"], first_pair=3)


def test_a_pair_with_a_bad_letter_is_not_searched() -> None:
    """Its letters have no numbers: memory that held others of an earlier call would be read."""
    for query, ref, place in (
        ("A" * 249 + "*", "ACGT", "position 249 of the query"),
        ("A" * 250, "AC*T", "position 2 of the reference"),
    ) * 20:
        mapper.edit_locations(b"\xff" * 250, b"\xff" * 250, symbols="bytes")
        with pytest.raises(mapper.InputFormatError, match=place):
            mapper.edit_locations(query, ref)


def test_many_pairs_in_threads() -> None:
    random.seed(5)
    refs = ["".join(random.choices("ACGT", k=200)) for _ in range(3000)]
    queries = [ref[50:150] for ref in refs]
    one, two = (mapper.edit_locations(queries, refs, threads=n) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        assert (a == b).all()
    assert (one.score == 0).all()
    assert (one.start[one.offsets[:-1]] <= 50).all()
