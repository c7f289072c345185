"""The first wavefronts from masks: cell by cell those of letter_rows.py."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.coding import code_one
from mapper.align.edit.api import edit_distance
from mapper.align.edit.cpu import LEAF_DISTANCE, new_rows
from mapper.align.edit.letter_rows import new_letterwise, search_by_letters
from mapper.align.edit.short_rows import LAST_ROW, LONGEST, new_masks
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, Rows
from mapper.align.matches import FENCED, PLAIN, codes_of, letters_in
from mapper.align.packing import code_tables
from tests.naive.pairwise import lowest_penalty, same_dna


def row(rows: Rows, s: int) -> tuple[int, list[int]]:
    at, lo, hi = (int(column[s]) for column in (rows.at, rows.lo, rows.hi))
    return lo, rows.cells[at : at + hi - lo + 1].tolist()


def searched(
    query: str, ref: str, bound: int, rows: Rows, masks: object, *, by_masks: bool
) -> tuple[int, int, list[tuple[int, list[int]]]]:
    """Return status, row, and all rows of a search."""
    letters = np.frombuffer((query + ref).encode(), np.uint8)
    coded, bad = code_one(letters, len(query), *code_tables("dna"), False)
    assert bad < 0 and coded.shift[0] == 3 | FENCED | PLAIN
    rows.cells[:] = -77
    status, s = search_by_letters(
        letters_in(codes_of(coded), coded, 0), by_masks, np.int64(len(query)), np.int64(len(ref)),
        np.int64(bound), rows, np.int64(LEAF_DISTANCE), new_letterwise(), masks,
    )  # fmt: skip
    done = s if status == FINISHED else s - 1
    return int(status), int(s), [row(rows, r) for r in range(done + 1)]


def test_pairs_at_the_end_of_the_room_for_codes() -> None:
    """The masks read behind a pair; with bounds checks, not behind the room of a piece."""
    lengths = [129] * 1818 + [152, 129]
    sequence = "".join(np.random.default_rng(5).choice(list("ACGT"), 152))
    queries = [sequence[:n] for n in lengths]
    refs = [query[:60] + query[61:] + "A" for query in queries]
    found = edit_distance(queries, refs, device="cpu", threads=1)
    assert set(found.score.tolist()) == {2}


def edited(rng: np.random.Generator, text: str, n_edits: int) -> str:
    letters = list(text)
    for _ in range(n_edits):
        at = int(rng.integers(len(letters) + 1))
        kind = rng.integers(3)
        if kind == 0:
            letters[at : at + 1] = "ACGT"[rng.integers(4)]
        elif kind == 1:
            letters.insert(at, "ACGT"[rng.integers(4)])
        else:
            del letters[at : at + int(rng.integers(1, 4))]
    return "".join(letters)


@pytest.mark.parametrize("alphabet", ["A", "AC", "ACGT"])
def test_rows_are_those_of_the_general_search(alphabet: str) -> None:
    rng = np.random.default_rng(len(alphabet))
    rows, masks = new_rows(1 << 18, 300), new_masks()
    n_finished = n_beyond = 0
    for _ in range(400):
        n = int(rng.choice([0, 1, 2, 7, 31, 63, 64, 65, 127, 128, 150, 200, 254, LONGEST]))
        query = "".join(rng.choice(list(alphabet), n))
        ref = edited(rng, query, int(rng.integers(0, 45)))[:LONGEST]
        bound = int(rng.choice([0, 3, 10, LAST_ROW, 60, 300]))
        known = searched(query, ref, bound, rows, masks, by_masks=False)
        found = searched(query, ref, bound, rows, masks, by_masks=True)
        assert found == known
        if found[0] == FINISHED:
            if n < 64:
                assert found[1] == lowest_penalty(query, ref, same_dna)
            n_finished += 1
            n_beyond += found[1] > LAST_ROW
        else:
            assert found[0] == EXCEEDED
    assert n_finished > 100 and (n_beyond > 5 or alphabet == "A")
