"""Arguments of the wrong type: a message that names the argument, whichever call it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mapper

TWO: tuple[Any, Any] = ("A", "A")
LISTS: tuple[Any, Any] = (["A"], ["A"])
PAIRWISE: list[Callable[..., Any]] = [
    mapper.edit_distance, mapper.align_affine, mapper.align_extension, mapper.align_matrix,
    mapper.edit_locations,
]  # fmt: skip


def refused(expected: str, call: Callable[..., Any], *args: Any, **options: Any) -> None:
    with pytest.raises(mapper.UsageError) as error:
        call(*args, **options)
    assert str(error.value).startswith(expected)


@pytest.mark.parametrize("call", PAIRWISE, ids=lambda call: call.__name__)
def test_arguments_of_every_call(call):
    refused("queries: 5 is no list of sequences", call, 5, 6)
    refused("refs: 6 is no list of sequences", call, ["A"], 6)
    for pair in (TWO, LISTS):
        refused("threads='x': 1 to ", call, *pair, threads="x")
        refused("threads=1.5: 1 to ", call, *pair, threads=1.5)
        if call is not mapper.edit_locations:  # which has no device
            refused("device=5: ", call, *pair, device=5)


@pytest.mark.parametrize("pair", [TWO, LISTS], ids=["two strings", "lists"])
def test_arguments_of_one_call(pair):
    edit, affine, extension, matrix = PAIRWISE[:4]
    refused("max_distance 'x': a whole number", edit, *pair, max_distance="x")
    refused("span 5: four whole numbers", edit, *pair, span=5)
    refused("span ('a', 0, 0, 0): four whole numbers", edit, *pair, span=("a", 0, 0, 0))
    refused("equalities: 5 is no list of pairs", edit, *pair, equalities=5)
    refused("band 5: a width of", affine, *pair, band=5)
    refused("band ('x', 1): a width of", affine, *pair, band=("x", 1))
    refused("penalties 5: three whole numbers", affine, *pair, penalties=5)
    refused("penalties 'xyz': three whole numbers", affine, *pair, penalties="xyz")
    refused("max_penalty 'x': a whole number", affine, *pair, max_penalty="x")
    refused("memory 'x': at least", affine, *pair, memory="x")
    refused("scores 5: four whole numbers", extension, *pair, scores=5)
    refused("x_drop 'x': a whole number", extension, *pair, x_drop="x")
    refused("gaps 5: open and extend", matrix, *pair, gaps=5)
    refused("gaps (1, 2, 3): open and extend", matrix, *pair, gaps=(1, 2, 3))
    for memory in (-1, 0, "x"):
        refused(f"memory {memory!r}: at least 1 byte", matrix, *pair, memory=memory)


def test_gaps_may_be_a_list():
    assert mapper.align_matrix("GATTACA", "GAATA", matrix=(1, -1), gaps=[1, 1]) == 0


def test_arguments_of_an_aligner():
    call, index = mapper.Aligner, "tests/data/phix174.fa"
    refused("threads='x': 1 to ", call, index, threads="x")
    refused("batch_bases='a': a whole number", call, index, batch_bases="a")
    refused("batch_bases=1.5: a whole number", call, index, batch_bases=1.5)
    refused("read_group=5: a line", call, index, read_group=5)


def test_a_missing_index_names_the_call_that_builds_one(tmp_path):
    with pytest.raises(mapper.IndexFormatError, match=r"mapper\.Index\.build\('REF\.fa'\)"):
        mapper.Index.open(tmp_path / "none.fmw")
