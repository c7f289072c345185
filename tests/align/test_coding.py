"""Codes of the CPU's aligners, from letters wherever they lie."""

from __future__ import annotations

import ctypes
import mmap
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest

from mapper import edit_distance, packed_pairs
from mapper.align import coding, parts
from mapper.align.coding import Parts, Source
from mapper.align.matches import FENCED, PLAIN, QUERY_FENCE, REF_FENCE
from mapper.align.parts import CpuPairs, cpu_pairs, run_pairs
from mapper.align.result import PairAlignments
from mapper.errors import InputFormatError, UsageError
from mapper.jit.strings import N_LEFT, count_in_gate, keep_strings
from mapper.parallel import pool

only_compiled = pytest.mark.skipif(
    numba.config.DISABLE_JIT, reason="compiled code reads strings where they are"
)
LENGTHS = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 150]


def strings(seed: int, letters: str = "ACGT") -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(letters, k=length)) for length in LENGTHS]


def flat(sequences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, sequences)])
    return np.frombuffer("".join(sequences).encode(), np.uint8), offsets


def codes(pairs: CpuPairs) -> list[tuple[list[int], list[int], int]]:
    """Return the codes of query and reference, with what follows them, and the shift."""
    found = []

    def align(source: Source, of: Parts, call: int, others: object, *rows: object) -> object:
        if of.state[coding.ENDED] or (part := int(of.state[coding.NEXT])) == len(of.found):
            count_in_gate(of.gate, N_LEFT, 1)
            return np.empty(0, np.uint32), len(of.found)
        of.state[coding.NEXT] += 1
        first, last = of.bounds[part]
        assert first == len(found)
        coded = coding._room(1 << 12, last - first)
        end, bad, is_query, _, _ = coding._code(source, first, last, coded, *rows)
        for i in range(end - first):
            sides = []
            for words, start, length in (coded[:3], coded[3:6]):
                at = 8 * int(start[i])
                sides.append(words.view(np.uint8)[at : at + int(length[i]) + 1].tolist())
            found.append((sides[0], sides[1], int(coded.shift[i])))
        of.found[part] = call, 0, 0, end, bad, is_query
        if end < last:  # without the JIT strings are joined, and come as letters
            return np.empty(0, np.uint32), part
        return align(source, of, call, others, *rows)

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
    monkeypatch.setattr(parts, "CHUNK_PAIRS", 4)
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
    monkeypatch.setattr(parts, "CHUNK_PAIRS", 4)
    with pytest.raises(UsageError, match=r"refs\[8\]: .* is not ASCII"):
        edit_distance(["A"] * 9, [*["A"] * 8, bad], device="cpu")
    with pytest.raises(UsageError, match=r"refs\[8\]: 3 is no sequence"):
        edit_distance(["A"] * 9, [*["A"] * 8, 3], device="cpu")  # type: ignore[list-item]


def test_a_bad_letter_is_named_with_its_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CHUNK_PAIRS", 4)
    queries, refs = ["ACGT"] * 9, [*["ACGT"] * 7, "ACGTACGTA!", "ACGT"]
    for given in ((queries, refs), (flat(queries), flat(refs))):
        with pytest.raises(
            InputFormatError, match="pair 107: character '!' at position 9 of the r"
        ):
            edit_distance(*given, first_pair=100, device="cpu", threads=2)


@pytest.mark.parametrize("threads", [1, 4])
def test_of_several_bad_letters_the_first_pairs_is_named(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A late one is met first: its part begins with it, and the first one's ends with it.
    monkeypatch.setattr(parts, "CHUNK_PAIRS", 5000)
    monkeypatch.setattr(parts, "thread_count", lambda given: given or threads)
    queries = ["ACGT" * 5] * 40_000
    refs = list(queries)
    for i in (14_999, 15_000, 20_000, 25_000):
        refs[i] = "ACGT!"
    for given in ((queries, refs), (flat(queries), flat(refs))):
        for _ in range(5):
            with pytest.raises(InputFormatError, match="pair 14999: character '!' at position 4"):
                edit_distance(*given, device="cpu", threads=threads)


@only_compiled
def test_a_list_that_becomes_shorter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, refs = ["A" * 20] * 3000, ["A" * 20] * 3000

    def keep_fewer(gate: np.ndarray, n_threads: int) -> None:
        del refs[1000:]
        keep_strings(gate, n_threads)

    monkeypatch.setattr(parts, "CHUNK_PAIRS", 1000)
    monkeypatch.setattr(parts, "keep_strings", keep_fewer)
    with pytest.raises(UsageError, match="was changed while they were aligned"):
        edit_distance(queries, refs, device="cpu", threads=2)


@only_compiled
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_another_thread_may_change_the_lists_meanwhile(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "thread_count", lambda given: given or threads)
    rng = random.Random(3)
    made = ["".join(rng.choices("ACGT", k=90)) for _ in range(40_000)]
    queries, refs = list(made), [text[:40] + text[41:] for text in made]
    expected = edit_distance(flat(queries), flat(refs), cigar=True, device="cpu", threads=2)
    done: list[bool] = []
    n_changes = 0

    def change() -> None:
        nonlocal n_changes
        while not done:
            for side in (queries, refs):
                i = rng.randrange(len(side))
                side[i] = side[i][:1] + side[i][1:]  # the old one is freed, and written over
            n_changes += 1

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(5):
            n_before = n_changes
            given = edit_distance(queries, refs, cigar=True, device="cpu", threads=threads)
            assert same(given, expected)
            assert n_changes > n_before
    finally:
        done.append(True)
        changing.join()


@pytest.mark.parametrize("n", [20, 3000])
@pytest.mark.parametrize("threads", [1, 2])
def test_lists_that_change_after_they_are_cut_into_parts(
    n: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = parts._cut
    queries, refs = ["ACGT" * 10] * n, ["ACGT" * 10] * n

    def cut_and_grow(*given: Any) -> Any:
        found = cut(*given)
        queries.append("ACGT")
        refs.append("A")
        return found

    def cut_and_clear(*given: Any) -> Any:
        found = cut(*given)
        queries.clear()  # as a list is while it is sorted
        return found

    monkeypatch.setattr(parts, "_cut", cut_and_grow)
    found = edit_distance(queries, refs, cigar=True, device="cpu", threads=threads)
    assert found.score.tolist() == [0] * n
    assert found.cigar(n - 1) == "40="
    monkeypatch.setattr(parts, "_cut", cut_and_clear)
    with pytest.raises(UsageError, match="was changed while they were aligned"):
        edit_distance(queries, refs, device="cpu", threads=threads)


@only_compiled
def test_a_bad_letter_of_a_list_that_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, refs = ["ACGT!" * 10] * 3000, ["ACGT"] * 3000

    def letter_of_cleared(*given: Any) -> int:
        queries.clear()
        return letter_of(*given)

    letter_of = parts.letter_of
    monkeypatch.setattr(parts, "letter_of", letter_of_cleared)
    monkeypatch.setattr(parts, "CHUNK_PAIRS", 1000)
    with pytest.raises(UsageError, match="was changed while they were aligned"):
        edit_distance(queries, refs, device="cpu", threads=2)


def test_calls_may_run_at_once() -> None:
    pairs_of = [(strings(i) * 400, strings(i + 50) * 400) for i in range(6)]
    expected = [edit_distance(flat(q), flat(r), device="cpu") for q, r in pairs_of]
    with ThreadPoolExecutor(6) as several:
        found = several.map(
            lambda i: edit_distance(*pairs_of[i // 2], device="cpu", threads=1 + i % 2), range(12)
        )
        for i, one in enumerate(found):
            assert np.array_equal(one.score, expected[i // 2].score)


@only_compiled
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_signal_or_error_while_threads_align_ends_them(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(gate: np.ndarray, n_threads: int) -> None:
        raise error

    queries = ["ACGT" * 20] * 30_000
    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(parts, "keep_strings", stop)
        edit_distance(queries, queries, device="cpu", threads=3)
    assert not edit_distance(queries, queries, device="cpu", threads=3).score.any()


def test_a_thread_that_cannot_be_started_is_an_error_and_ends_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Pool(ThreadPoolExecutor):
        def submit(self, *args: Any, **options: Any) -> Any:
            if self._threads:
                raise RuntimeError("can't start new thread")
            return super().submit(*args, **options)

    monkeypatch.setattr(pool, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(pool, "_UNUSED", {})
    queries = ["ACGT" * 20] * 30_000
    for given in (queries, flat(queries)):
        with pytest.raises(RuntimeError, match="can't start"):
            edit_distance(given, given, device="cpu", threads=2)
