"""Print, merge and left-align CIGAR operations, against replays from letters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mapper import cigar
from tests.helpers.read_batches import text_planes
from tests.naive.gotoh import Scoring, replay, shift_gaps_left

LENGTHS = st.integers(1, 12)


@st.composite
def alignments(draw: st.DrawFn) -> tuple[str, str, str]:
    """A CIGAR without equal neighbours, and a read and a reference that it fits."""
    kinds = draw(st.lists(st.sampled_from("====XID"), min_size=1, max_size=9))
    ops = [(draw(LENGTHS), op) for op, before in zip(kinds, ["", *kinds], strict=False)
           if op != before]  # fmt: skip
    bases = st.sampled_from(draw(st.sampled_from(["A", "AC", "AACGT"])))
    read = ref = ""
    for length, op in ops:
        letters = "".join(draw(st.lists(bases, min_size=length, max_size=length)))
        if op in "=XI":
            read += letters
        if op == "X":
            ref += letters.translate(str.maketrans("ACGT", "CGTA"))
        elif op in "=D":
            ref += letters
    return "".join(f"{n}{op}" for n, op in ops), read, ref


def left_aligned(text: str, read: str, ref: str) -> str:
    ops = cigar.from_text(text)
    # Both stand behind something else, as they do in a batch and in the text.
    read_planes = np.concatenate([np.zeros((2, 3), np.uint64), text_planes("GAT" + read)])
    cigar.left_align(ops, len(ops), read_planes, 2, 3, text_planes("TTTTTGA" + ref), 7)
    return cigar.to_text(ops)


def parted(text: str, read: str, ref: str, room: int = 9) -> str:
    ops = np.concatenate([cigar.from_text("4=2X" + text), np.zeros(room, np.uint32)])
    read_planes = np.concatenate([np.zeros((2, 3), np.uint64), text_planes("GAT" + read)])
    end = cigar.part_from_mismatches(
        ops, 2, len(ops) - room, read_planes, 2, 3 + len(read), text_planes("TTTTTGA" + ref),
        7 + len(ref),
    )  # fmt: skip
    assert cigar.to_text(ops[:2]) == "4=2X"
    return "" if end < 0 else cigar.to_text(ops[2:end])


@given(st.lists(st.tuples(st.integers(0, 2**28 - 1), st.sampled_from("MIDNSHP=X")), max_size=9))
def test_text_round_trip(ops: list[tuple[int, str]]) -> None:
    text = "".join(f"{n}{op}" for n, op in ops) or "*"
    packed = cigar.from_text(text)
    assert packed.dtype == np.uint32
    assert cigar.to_text(packed) == text
    assert [(int(op) >> 4, "MIDNSHP=X"[int(op) & 15]) for op in packed] == ops


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 2, 7, 8])), max_size=20))
def test_appending_merges_and_skips_what_is_empty(parts: list[tuple[int, int]]) -> None:
    ops = np.zeros(len(parts) + 1, np.uint32)
    n_ops = 0
    for length, code in parts:
        n_ops = cigar.append_op(ops, n_ops, code, length)
    spelled = [cigar.LETTERS[code] for length, code in parts for _ in range(length)]
    merged = cigar.to_text(ops[:n_ops])
    found = [(int(op) >> 4, cigar.LETTERS[int(op) & 15]) for op in ops[:n_ops]]
    assert [op for n, op in found for _ in range(n)] == spelled
    assert all(a[1] != b[1] for a, b in pairwise(found)), merged


@given(st.text("ACGTNR", min_size=1, max_size=150))
def test_base_at_is_the_base(letters: str) -> None:
    planes = text_planes(letters)
    expected = [4 if c in "NR" else "ACGT".index(c) for c in letters]
    assert [cigar.base_at(planes, 0, i) for i in range(len(letters))] == expected


@given(alignments())
def test_left_alignment_is_the_letter_by_letter_one(case: tuple[str, str, str]) -> None:
    text, read, ref = case
    assert left_aligned(text, read, ref) == shift_gaps_left(text, read, ref)


@given(alignments())
def test_left_alignment_keeps_the_alignment_true_and_its_score(case: tuple[str, str, str]) -> None:
    text, read, ref = case
    moved = left_aligned(text, read, ref)
    assert replay(moved, read, ref, Scoring()) == replay(text, read, ref, Scoring())
    kinds = [char for char in text if not char.isdigit()]
    assert [char for char in moved if not char.isdigit()] == kinds
    assert left_aligned(moved, read, ref) == moved


@given(alignments())
def test_gaps_are_parted_from_mismatches_letter_by_letter(case: tuple[str, str, str]) -> None:
    text, read, ref = case
    moved = parted(text, read, ref)
    assert moved == shift_gaps_left(text, read, ref, parting=True)
    assert replay(moved, read, ref, Scoring()) == replay(text, read, ref, Scoring())
    assert parted(moved, read, ref) == moved


def test_gaps_before_a_mismatch_go_to_the_start_of_a_repeat() -> None:
    assert parted("6=1D1X2=", "GAAAAACTT", "GAAAAAAGTT") == "1=1D5=1X2="
    assert parted("7=1I1X2=", "GAAAAAAACTT", "GAAAAAAGTT") == "1=1I6=1X2="
    # Without room nothing is changed.
    assert parted("6=1D1X2=", "GAAAAACTT", "GAAAAAAGTT", room=0) == ""


def test_gaps_of_a_repeat_go_to_its_start_and_not_across_each_other() -> None:
    assert left_aligned("7=2I5=", "GACACACACACATT", "GACACACACATT") == "1=2I11="
    assert left_aligned("5=1D3=1D3=", "GAAAAAAAAAA", "GAAAAAAAAAAAA") == "1=1D1=1D9="
    assert left_aligned("1X3=1I3=", "CAAAAAAA", "GAAAAAA") == "1X1=1I5="
