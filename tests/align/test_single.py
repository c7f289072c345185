"""Two strings give what lists of one pair give."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

import mapper
from mapper.align import single
from mapper.align.affine import api as affine_api
from mapper.align.edit import api as edit_api
from mapper.align.matrix import api as matrix_api
from mapper.align.result import PairAlignment
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import adversarial_pairs, edited

CALLS: list[tuple[Any, dict[str, Any]]] = [
    (mapper.edit_distance, {}),
    (mapper.edit_distance, {"max_distance": 3}),
    (mapper.edit_distance, {"span": "semiglobal"}),
    (mapper.edit_distance, {"span": (2, 0, 0, 3), "symbols": "iupac"}),
    (mapper.edit_distance, {"symbols": "bytes"}),
    (mapper.align_affine, {}),
    (mapper.align_affine, {"penalties": (4, 12, 2), "span": "prefix"}),
    (mapper.align_affine, {"max_penalty": 20, "band": (4, 1)}),
    (mapper.align_affine, {"memory": 1 << 16, "symbols": "bytes"}),
    (mapper.align_affine, {"penalties": (4, 6, 2, 24, 1)}),
    (mapper.align_affine, {"penalties": (4, 6, 2, 24, 1), "max_penalty": 30, "symbols": "iupac"}),
    (mapper.align_extension, {}),
    (mapper.align_extension, {"x_drop": 4, "symbols": "iupac"}),
    (mapper.align_matrix, {"span": "local"}),
    (mapper.align_matrix, {"matrix": (2, -3), "gaps": [1, 1]}),
    (mapper.align_matrix, {"span": "semiglobal", "memory": 20_000}),
]


def pairs() -> list[tuple[str, str]]:
    rng = np.random.default_rng(7)
    ref = random_letters(rng, 150)
    long = random_letters(rng, 20_000)
    found = [(edited(rng, ref, rate), ref) for rate in (0, 0.01, 0.05, 0.3)]
    found += [("", ""), ("", "A"), ("A", ""), ("ACGTN", "ACNTN"), ("acgu", "ACGT")]
    found += list(itertools.islice(adversarial_pairs(), 12))
    return [*found, (edited(rng, long, 0.001), long)]


@pytest.mark.parametrize(("call", "options"), CALLS)
def test_two_strings_are_a_list_of_one_pair(call, options) -> None:
    for query, ref in pairs():
        if len(ref) > 5000 and call in (mapper.align_matrix, mapper.align_extension):
            continue
        for cigar in (False, True):
            whole = call([query], [ref], cigar=cigar, device="cpu", **options)
            expected = whole.pair(0) if cigar else whole.pair(0).score
            assert call(query, ref, cigar=cigar, **options) == expected
            assert call(query.encode(), ref.encode(), cigar=cigar, **options) == expected


def test_types() -> None:
    assert type(mapper.edit_distance("ACGT", "ACCT")) is int
    assert isinstance(mapper.edit_distance("ACGT", "ACCT", cigar=True), PairAlignment)
    assert mapper.edit_distance("ACGT", "TTTT", max_distance=1) is None
    assert mapper.align_affine("ACGT", "AC", cigar=True).status == "ok"


def test_pairs_are_counted_from_the_end_by_negative_numbers() -> None:
    queries, refs = ["GATTACA", "ACGT", "ACT"], ["GAATA", "ACGA", "ACTGTACT"]
    found = mapper.edit_distance(queries, refs, cigar=True, device="cpu")
    places = mapper.edit_locations(queries, refs)
    for i in range(3):
        assert found.cigar(i - 3) == found.cigar(i)
        assert found.pair(i - 3) == found.pair(i)
        assert places.pair(i - 3) == places.pair(i)
    for i in (-4, 3):
        for get in (found.cigar, found.pair, places.pair):
            with pytest.raises(IndexError):
                get(i)


def test_long_strings_go_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no signal meets compiled code."""
    monkeypatch.setattr(single, "MOST_LETTERS", 7)
    for module in (edit_api, affine_api):
        monkeypatch.setattr(module, "align_one", lambda *_: "at once")
    monkeypatch.setattr(matrix_api, "result_of", lambda *_: "at once")
    for call, expected in (
        (mapper.edit_distance, 1), (mapper.align_affine, 4), (mapper.align_extension, 2),
        (mapper.align_matrix, 11),
    ):  # fmt: skip
        assert call("ACGT", "ACCT") == expected
        assert call("ACG", "ACCT") == "at once"


@pytest.mark.parametrize(
    "call",
    [mapper.edit_distance, mapper.align_affine, mapper.align_extension, mapper.align_matrix],
)
def test_errors_are_those_of_lists(call) -> None:
    for query, ref in (("ACX", "ACG"), ("ACG", "ACG!"), ("N" * 9 + "*", "A"), ("AC", "AJJ")):
        with pytest.raises(mapper.InputFormatError) as of_list:
            call([query], [ref], first_pair=7)
        with pytest.raises(mapper.InputFormatError) as of_one:
            call(query, ref, first_pair=7)
        assert str(of_one.value) == str(of_list.value)
    for arguments, options, message in (
        (("ACGT", ["ACGT"]), {}, "queries is one sequence, and refs is not"),
        ((["ACGT"], "ACGT"), {}, "refs is one sequence, and queries is not"),
        (("ACGT",), {}, "queries is one sequence, and refs is not"),
        (("é", "A"), {}, r"queries: 'é' is not ASCII .* as bytes \(s\.encode\(\)\)"),
        (("A", "Aé"), {}, r"refs: 'é' is not ASCII \(position 1\)"),
        (("A", "A"), {"symbols": "protein"}, "symbols 'protein'"),
        (("A", "A"), {"device": "gpu"}, "device='gpu'"),
        (("A", "A"), {"threads": 0}, "threads"),
        (("A", "A"), {"span": "half"}, "span 'half'"),
    ):
        if set(options) <= set(inspect.signature(call).parameters):
            with pytest.raises(mapper.UsageError, match=message):
                call(*arguments, **options)


def test_indel_and_linear_penalties() -> None:
    """A mismatch of twice a gap's symbol is no cheaper than an insertion and a deletion."""
    rng = np.random.default_rng(3)
    ref = random_letters(rng, 60)
    for rate in (0.05, 0.3):
        query = edited(rng, ref, rate)
        table = np.zeros((len(query) + 1, len(ref) + 1), int)
        for i, a in enumerate(query):
            for j, b in enumerate(ref):
                table[i + 1, j + 1] = (
                    table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
                )
        indels = len(query) + len(ref) - 2 * table[-1, -1]
        assert mapper.align_affine(query, ref, penalties=(2, 0, 1)) == indels


def test_one_default_of_cigar() -> None:
    for name in ("edit_distance", "align_affine", "align_extension", "align_matrix", "align_all"):
        assert inspect.signature(getattr(mapper, name)).parameters["cigar"].default is False
