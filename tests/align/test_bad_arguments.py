"""Arguments of the wrong type: a message that names the argument, whichever call it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
    refused("queries: a dict is no list", call, {"a": "A"}, ["A"])
    refused("refs: a set has no order", call, ["A"], {"A"})
    assert call({"a": "A"}.values(), ["A"]).n_pairs == 1
    for pair in (TWO, LISTS):
        refused("threads='x': 1 to ", call, *pair, threads="x")
        refused("threads=1.5: 1 to ", call, *pair, threads=1.5)
        if call is not mapper.edit_locations:  # which has no device
            refused("device=5: ", call, *pair, device=5)


NO_SEQUENCES = [
    (None, "None is no sequence"),
    (3, "3 is no sequence"),
    ("ACGé", "'é' is not ASCII (position 3); calls that have symbols='bytes'"),
    (np.zeros(3, np.uint16), "an array of shape (3,) and type uint16"),
    (np.zeros(3), "an array of shape (3,) and type float64"),
    (np.zeros((2, 2), np.uint8), "an array of shape (2, 2) and type uint8"),
    (memoryview(np.zeros(3, np.uint16)), "an array of shape (3,) and type 'H'"),
]


@pytest.mark.parametrize(("sequence", "message"), NO_SEQUENCES)
@pytest.mark.parametrize("call", PAIRWISE, ids=lambda call: call.__name__)
def test_what_is_no_sequence_in_a_list(call, sequence, message):
    many = ["A"] * 3000  # in several parts
    refused(f"refs[3000]: {message}", call, [*many, b"A"], [*many, sequence])
    refused(f"queries[1]: {message}", call, ["A", sequence, None], ["A"] * 3)


@pytest.mark.parametrize(("sequence", "message"), NO_SEQUENCES)
def test_what_is_no_long_sequence(sequence, message):
    refused(f"query: {message}", mapper.long_edit_distance, sequence, "A", symbols="bytes")
    refused(f"ref: {message}", mapper.long_edit_distance, "A", sequence, symbols="bytes")


@pytest.mark.parametrize("like", [np.array, bytes, bytearray, memoryview])
def test_long_sequences_may_be_flat_bytes(like):
    letters = np.frombuffer(b"GATTACA", np.uint8)
    assert mapper.long_edit_distance(like(letters), letters).distance == 0


@pytest.mark.parametrize("call", [*PAIRWISE, mapper.long_edit_distance])
def test_a_name_of_a_file_is_no_sequence(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("q.fa").write_text(">a\nA\n")
    hint = "a str is a sequence; for the file give pathlib.Path('q.fa')"
    pairs: list[tuple[Any, Any]] = [("q.fa", "A"), ("A", "q.fa")]
    if call is not mapper.long_edit_distance:
        pairs += [(["q.fa"], ["A"]), (["A"], ["q.fa"])]
    for pair in pairs:
        with pytest.raises(mapper.UsageError) as error:
            call(*pair)
        assert str(error.value).endswith(hint)
        with pytest.raises(mapper.InputFormatError):
            call(*(["no.fa"] if isinstance(side, list) else "no.fa" for side in pair))


def test_sets_of_align_all_are_named():
    def align_all(*sets):
        return list(mapper.align_all(*sets))

    refused("sequences[1]: None is no sequence", align_all, ["A", None])
    refused("others[1]: None is no sequence", align_all, ["A"], ["A", None])


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
