"""Encode bases, reverse complement and bit planes, against letters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper import dna
from tests.naive.seeds import opposite

IUPAC = "ACGTNMRSVWYHKDB"
ANY = st.text(IUPAC, max_size=200)
MOSTLY_BASES = st.text("ACGTACGTACGTN", max_size=200)


def packed(letters: str, strand: int = 0) -> np.ndarray:
    planes = np.zeros((len(letters) // 64 + 2, 3), np.uint64)
    dna.pack_strand(dna.encode(letters), 0, len(letters), strand, planes, 0)
    return planes


def bit(planes: np.ndarray, plane: int, i: int) -> int:
    return int(planes[i >> 6, plane]) >> (i & 63) & 1


@given(ANY)
def test_letters_survive(letters: str) -> None:
    assert dna.decode(dna.encode(letters)) == letters
    assert dna.decode(dna.encode(letters.lower())) == letters
    assert dna.encode(letters.encode()).tolist() == dna.encode(letters).tolist()


def test_codes_sort_as_letters_and_others_are_ambiguous() -> None:
    assert dna.encode("ACGT").tolist() == [0, 1, 2, 3]
    assert dna.encode("acguU.n").tolist() == [0, 1, 2, 3, 3, 4, 4]
    assert (dna.encode(IUPAC[4:]) >= dna.AMBIGUOUS).all()
    assert len(set(dna.encode(IUPAC).tolist())) == len(IUPAC)


@pytest.mark.parametrize(("text", "where"), [("ACX", 2), ("-", 0), ("AC GT", 2), ("A\n", 1)])
def test_what_is_no_base_is_named(text: str, where: int) -> None:
    with pytest.raises(ValueError, match=f"position {where} "):
        dna.encode(text)


@given(ANY)
def test_reverse_complement(letters: str) -> None:
    codes = dna.encode(letters)
    assert dna.decode(dna.reverse_complement(codes)) == opposite(letters)
    assert dna.reverse_complement(dna.reverse_complement(codes)).tolist() == codes.tolist()


@given(ANY, st.sampled_from([0, 1]))
def test_planes_hold_the_strand(letters: str, strand: int) -> None:
    planes = packed(letters, strand)
    codes = dna.encode(opposite(letters) if strand else letters).tolist()
    for i, code in enumerate(codes):
        bits = [bit(planes, plane, i) for plane in range(3)]
        assert bits == ([0, 0, 1] if code > 3 else [code & 1, code >> 1, 0])
    used = (len(letters) + 63) // 64
    assert used == dna.n_words(len(letters))
    for i in range(len(letters), 64 * used):
        assert bit(planes, 2, i) == 1
    assert not planes[used:].any()


@given(MOSTLY_BASES, st.data())
def test_a_part_packs_like_a_read_of_its_own(letters: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(letters)))
    end = data.draw(st.integers(start, len(letters)))
    for strand in (0, 1):
        planes = np.zeros((len(letters) // 64 + 4, 3), np.uint64)
        dna.pack_strand(dna.encode(letters), start, end, strand, planes, 1)
        alone = packed(letters[start:end], strand)
        assert not planes[0].any()
        assert (planes[1 : 1 + len(alone)] == alone).all()


@given(st.text("ACGTN", min_size=1, max_size=150), st.text("ACGTN", min_size=1, max_size=150),
       st.data())  # fmt: skip
def test_64_bases_compare_at_any_offsets(a: str, b: str, data: st.DataObject) -> None:
    a_pos = data.draw(st.integers(0, len(a) - 1))
    b_pos = data.draw(st.integers(0, len(b) - 1))
    differ = int(dna.mismatch_word(packed(a), 0, a_pos, packed(b), 0, b_pos))
    for i in range(min(64, len(a) - a_pos, len(b) - b_pos)):
        match = a[a_pos + i] == b[b_pos + i] != "N"
        assert differ >> i & 1 == (not match)
