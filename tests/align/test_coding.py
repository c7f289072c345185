"""Codes of the CPU's aligners, from letters wherever they lie."""

from __future__ import annotations

import ctypes
import mmap
import random
from typing import Any

import numpy as np
import pytest

from mapper import edit_distance, packed_pairs
from mapper.align import coding
from mapper.align.coding import Source, cpu_pairs, run_pairs
from mapper.align.matches import FENCED, PLAIN, QUERY_FENCE, REF_FENCE
from mapper.align.result import PairAlignments
from mapper.errors import InputFormatError, UsageError

LENGTHS = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 150]


def strings(seed: int, letters: str = "ACGT") -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(letters, k=length)) for length in LENGTHS]


def flat(sequences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, sequences)])
    return np.frombuffer("".join(sequences).encode(), np.uint8), offsets


def codes(pairs: coding.CpuPairs) -> list[tuple[list[int], list[int], int]]:
    """Return the codes of query and reference, with what follows them, and the shift."""
    found = []

    def align(source: Source, first: int, last: int, others: object, *rows: object) -> object:
        assert first == len(found)
        coded = coding._room(1 << 12, last - first)
        end, bad, is_query, _, _ = coding._code(source, first, last, coded, *rows)
        assert end == last
        for i in range(coded.n_pairs):
            sides = []
            for words, start, length in (coded[:3], coded[3:6]):
                at = 8 * int(start[i])
                sides.append(words.view(np.uint8)[at : at + int(length[i]) + 1].tolist())
            found.append((sides[0], sides[1], int(coded.shift[i])))
        return np.empty(0, np.uint32), end, bad, is_query

    run_pairs(align, (), pairs, False, 1)
    return found


def test_a_code_and_a_fence_for_each_letter() -> None:
    code_of = {"A": 0, "C": 1, "T": 2, "U": 2, "G": 3}
    queries, refs = strings(1, "ACGTacgtUu"), strings(2)
    expected = [
        ([*(code_of[c] for c in q.upper()), QUERY_FENCE], [*(code_of[c] for c in r), REF_FENCE])
        for q, r in zip(queries, refs, strict=True)
    ]
    packed = packed_pairs(queries, refs)
    for pairs in (
        cpu_pairs(queries, refs, "dna", 0), cpu_pairs(flat(queries), flat(refs), "dna", 0), packed,
    ):  # fmt: skip
        assert [(q, r) for q, r, _ in codes(pairs)] == expected
        assert {shift for _, _, shift in codes(pairs)} == {3 | FENCED | PLAIN}


def test_ambiguous_letters_differ_from_all_or_match_themselves() -> None:
    queries, refs = strings(1, "ACGTN"), strings(1, "ACGTN")
    for query, (q, r, shift) in zip(
        queries, codes(cpu_pairs(queries, refs, "dna", 0)), strict=True
    ):
        assert shift == 3 | FENCED | (0 if "N" in query else PLAIN)
        assert [a == b for a, b in zip(q, r, strict=True)] == [*(c != "N" for c in query), False]
    for q, r, _ in codes(cpu_pairs(queries, refs, "iupac", 0)):
        assert q[:-1] == r[:-1] and q[-1] != r[-1]


def test_bytes_stay_what_they_are() -> None:
    queries, refs = strings(1, "~!x"), strings(2, "~!x")
    for pairs in (
        cpu_pairs(queries, refs, "bytes", 0),
        packed_pairs(queries, refs, symbols="bytes"),
    ):
        for query, ref, (q, r, shift) in zip(queries, refs, codes(pairs), strict=True):
            assert (bytes(q[:-1]).decode(), bytes(r[:-1]).decode(), shift) == (query, ref, 3)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 30])
def test_nothing_behind_a_sequence_is_read(length: int) -> None:
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    letters = np.frombuffer(memory, np.uint8)
    text = "GATTACA" * 5
    letters[page - length : page] = np.frombuffer(text[:length].encode(), np.uint8)
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(letters.ctypes.data + page), page, 0) == 0  # none may
    side = letters[page - length : page], np.array([0, length])
    for symbols in ("dna", "bytes"):
        found = edit_distance(side, side, cigar=True, symbols=symbols, device="cpu", threads=1)
        assert found.cigar(0) == f"{length}="


def same(a: PairAlignments, b: PairAlignments) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("threads", [1, 3])
def test_lists_of_all_kinds_are_aligned_alike(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coding, "CHUNK_PAIRS", 4)
    queries, refs = strings(1), strings(2)

    class Name(str):
        pass

    def aligned(queries: object, refs: object) -> PairAlignments:
        return edit_distance(queries, refs, cigar=True, device="cpu", threads=threads)  # type: ignore[arg-type]

    expected = aligned(flat(queries), flat(refs))
    assert same(aligned(queries, refs), expected)
    assert same(aligned(tuple(queries), map(str, refs)), expected)
    assert same(aligned([Name(q) for q in queries], [r.encode() for r in refs]), expected)
    mixed = [q.encode() if i % 5 == 0 else q for i, q in enumerate(queries)]
    assert same(aligned(mixed, flat(refs)), expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_of_very_unequal_lengths_are_coded_in_pieces(threads: int) -> None:
    # More pairs than a piece has, one that needs memory of its own, and a string that is joined.
    rng = random.Random(7)
    lengths = [*[12] * 2500, 300_000, *[5] * 30, 0, 70_000, 9]
    refs = ["".join(rng.choices("ACGT", k=length)) for length in lengths]
    queries = [ref[:3] + ref[4:] for ref in refs]
    mixed = [query.encode() if len(query) == 69_999 else query for query in queries]

    def aligned(queries: Any, refs: Any = None) -> PairAlignments:
        found: PairAlignments = edit_distance(
            queries, refs, cigar=True, device="cpu", threads=threads
        )
        return found

    expected = aligned(packed_pairs(queries, refs))
    assert expected.score.tolist() == [int(length > 0) for length in lengths]
    assert same(aligned(queries, refs), expected)
    assert same(aligned(flat(queries), flat(refs)), expected)
    assert same(aligned(mixed, refs), expected)


@pytest.mark.parametrize("bad", ["é", "\ud800"])
def test_a_string_that_is_not_ascii_is_refused(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "CHUNK_PAIRS", 4)
    with pytest.raises(UsageError, match=r"refs\[8\]: .* is not ASCII"):
        edit_distance(["A"] * 9, [*["A"] * 8, bad], device="cpu")
    with pytest.raises(UsageError, match=r"refs\[8\]: 3 is no sequence"):
        edit_distance(["A"] * 9, [*["A"] * 8, 3], device="cpu")  # type: ignore[list-item]


def test_a_bad_letter_is_named_with_its_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "CHUNK_PAIRS", 4)
    queries, refs = ["ACGT"] * 9, [*["ACGT"] * 7, "ACGTACGTA!", "ACGT"]
    for given in ((queries, refs), (flat(queries), flat(refs))):
        with pytest.raises(
            InputFormatError, match="pair 107: character '!' at position 9 of the r"
        ):
            edit_distance(*given, first_pair=100, device="cpu", threads=2)


def test_a_list_that_becomes_shorter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shrinking(list[str]):
        def __getitem__(self, rows: Any) -> Any:
            found = super().__getitem__(rows)
            del self[1000:]
            return found

    monkeypatch.setattr(coding, "CHUNK_PAIRS", 1000)
    with pytest.raises(UsageError, match="was changed while they were aligned"):
        edit_distance(["A" * 20] * 3000, Shrinking(["A" * 20] * 3000), device="cpu", threads=2)
