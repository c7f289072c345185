"""Pairs for the CPU's aligners: cut into parts, whose letters a thread codes as it comes to them.

A code takes a byte, and behind each sequence comes a *fence* (``matches.py``): the aligners compare
such codes where they lie. Letters are read where the caller has them, in arrays or in Python's
strings. To look up where those lie is what takes the GIL, part by part.

A pair of nothing but A, C, G, T and U has bits 1 and 2 of ASCII as its codes; other pairs have
those of the tables of ``packing.py``, and compared as bytes, the letters themselves, without a
fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mapper.align.matches import FENCED, PLAIN, QUERY_FENCE, REF_FENCE, unaligned_word, unpack
from mapper.align.packing import (
    PackedPairs,
    bad_letter,
    check_symbols,
    code_tables,
    differs_from_acgt,
    pack_pairs,
)
from mapper.align.pairs import (
    MAX_LENGTH,
    TOO_LONG,
    PairBatch,
    as_list,
    batch_of,
    check_numbers,
)
from mapper.align.threads import CHUNK_PAIRS, Part, chunk_bounds, most_symbols
from mapper.dna import NOT_A_BASE
from mapper.errors import UsageError
from mapper.jit.accelerate import core, disjoint_core, driver
from mapper.jit.strings import ascii_places
from mapper.parallel.buffers import RECYCLER

# --- codes ---


class LetterPairs(NamedTuple):
    """Pairs as letters in arrays."""

    batch: PairBatch
    symbols: str
    first_pair: int  # its number in messages

    @property
    def n_pairs(self) -> int:
        return self.batch.n_pairs


@core
def _last_letters(letters, start, n):
    """Return the last n % 8 (not 0) of n letters in the low bytes, zeros above.

    Nothing behind the sequence is read: it may end where the memory of the process does.
    """
    rest = n & 7
    if n >= 8:
        return unaligned_word(letters, start + n - 8) >> np.uint64(64 - 8 * rest)
    word = np.uint64(0)
    for i in range(n):
        word |= np.uint64(letters[start + i]) << np.uint64(8 * i)
    return word


@disjoint_core
def _code_acgt(letters, start, n, fence, words, at):
    """Write the codes of n letters and a fence; return 0 if all letters are A, C, G, T or U."""
    code_bits = np.uint64(0x0303030303030303)
    differ = np.uint64(0)
    n_whole = n >> 3
    first = np.uint64(at)  # as an index that may be negative would be checked for that
    for i in range(n_whole):
        word = unaligned_word(letters, start + 8 * i)
        differ |= differs_from_acgt(word)
        words[first + np.uint64(i)] = (word >> np.uint64(1)) & code_bits
    rest = n & 7
    last = np.uint64(fence) << np.uint64(8 * rest)
    if rest:
        word = _last_letters(letters, start, n)
        differ |= differs_from_acgt(word) << np.uint64(64 - 8 * rest)
        last |= (word >> np.uint64(1)) & code_bits
    words[first + np.uint64(n_whole)] = last
    return differ


@core
def _code_by_table(letters, start, n, code_of, fence, words, at):
    """Write the codes of n letters and a fence; return the first position without a code, or -1."""
    for first in range(0, n + 1, 8):
        word = np.uint64(0)
        for i in range(min(n - first, np.int64(8))):
            code = code_of[letters[start + first + i]]
            if code == NOT_A_BASE:
                return first + i
            word |= np.uint64(code) << np.uint64(8 * i)
        if n - first < 8:
            word |= np.uint64(fence) << np.uint64(8 * (n - first))
        words[at + (first >> 3)] = word
    return np.int64(-1)


@core
def _copy_letters(letters, start, n, words, at):
    for i in range(n >> 3):
        words[at + i] = unaligned_word(letters, start + 8 * i)
    if n & 7:
        words[at + (n >> 3)] = _last_letters(letters, start, n)


@driver
def _code(batch, first, last, as_bytes, query_codes, ref_codes, coded):
    """Code pairs first:last, as pairs 0, 1, ... of `coded`.

    Returns
    -------
    Pair and position of the first letter without a code, and True if it is the query's; or -1.
    """
    query_at = ref_at = np.int64(1)
    for i in range(first, last):
        query, ref = batch.query_start[i], batch.ref_start[i]
        n, m = batch.query_end[i] - query, batch.ref_end[i] - ref
        row = i - first
        coded.query_start[row], coded.query_len[row] = query_at, n
        coded.ref_start[row], coded.ref_len[row] = ref_at, m
        if as_bytes:
            coded.shift[row] = 3
            _copy_letters(batch.queries, query, n, coded.query_words, query_at)
            _copy_letters(batch.refs, ref, m, coded.ref_words, ref_at)
        else:
            differ = _code_acgt(batch.queries, query, n, QUERY_FENCE, coded.query_words, query_at)
            differ |= _code_acgt(batch.refs, ref, m, REF_FENCE, coded.ref_words, ref_at)
            coded.shift[row] = 3 | FENCED | PLAIN
            if differ != 0:
                coded.shift[row] = 3 | FENCED
                bad = _code_by_table(
                    batch.queries, query, n, query_codes, QUERY_FENCE, coded.query_words, query_at
                )
                if bad >= 0:
                    return i, bad, True
                bad = _code_by_table(
                    batch.refs, ref, m, ref_codes, REF_FENCE, coded.ref_words, ref_at
                )
                if bad >= 0:
                    return i, bad, False
        # Eight bytes can be loaded from the fence on.
        query_at += (n >> 3) + 2
        ref_at += (m >> 3) + 2
    return np.int64(-1), np.int64(-1), False


def _room(n_symbols: int, n_pairs: int) -> PackedPairs:
    """Return uninitialised memory for the codes of so many symbols on each side."""
    # Unpacking writes up to 31 codes behind the last.
    n_words = (n_symbols >> 3) + 2 * n_pairs + 8
    queries, refs = (RECYCLER.empty(8 * n_words, "codes").view(np.uint64) for _ in range(2))
    queries[0] = refs[0] = 0
    places = np.empty((4, n_pairs), np.int64)
    return PackedPairs(
        queries, places[0], places[1], refs, places[2], places[3], np.empty(n_pairs, np.uint8)
    )


@driver
def code_one(letters, n_query, query_codes, ref_codes, as_bytes):
    """Code a pair that is joined, the first `n_query` letters being the query.

    Returns
    -------
    The pair; position in `letters` of the first letter without a code, or -1.
    """
    n_words = (len(letters) >> 3) + 10
    places = np.empty((4, 1), np.int64)
    words = np.empty((2, n_words), np.uint64)
    words[:, 0] = 0
    coded = PackedPairs(
        words[0], places[0], places[1], words[1], places[2], places[3], np.empty(1, np.uint8)
    )
    bounds = np.empty((3, 1), np.int64)
    bounds[0, 0], bounds[1, 0], bounds[2, 0] = 0, n_query, len(letters)
    batch = PairBatch(letters, bounds[0], bounds[1], letters, bounds[1], bounds[2])
    pair, pos, is_query = _code(batch, 0, 1, as_bytes, query_codes, ref_codes, coded)
    bad = np.int64(-1)
    if pair >= 0:
        bad = pos if is_query else pos + n_query
    return coded, bad


def coded_pairs(pairs: LetterPairs, first: int, last: int, n_symbols: int) -> PackedPairs:
    """Return the codes of pairs first:last, of `n_symbols` together.

    Raises
    ------
    InputFormatError
        For a character that is no IUPAC nucleotide, unless `symbols` is ``bytes``.
    """
    batch, symbols, first_pair = pairs
    coded = _room(n_symbols, last - first)
    pair, pos, is_query = _code(
        batch, first, last, symbols == "bytes", *code_tables(symbols), coded
    )
    if pair >= 0:
        side, letters, start = "reference", batch.refs, batch.ref_start
        if is_query:
            side, letters, start = "query", batch.queries, batch.query_start
        raise bad_letter(first_pair + pair, int(letters[start[pair] + pos]), int(pos), side)
    return coded


@driver
def _unpack(packed, first, last, coded):
    """Write the codes of pairs first:last, as pairs 0, 1, ... of `coded`."""
    query_at = ref_at = np.int64(1)
    queries, refs = coded.query_words.view(np.uint8), coded.ref_words.view(np.uint8)
    for i in range(first, last):
        n, m, shift = packed.query_len[i], packed.ref_len[i], np.int64(packed.shift[i])
        row = i - first
        coded.query_start[row], coded.query_len[row] = query_at, n
        coded.ref_start[row], coded.ref_len[row] = ref_at, m
        coded.shift[row] = 3
        if shift < 3:
            coded.shift[row] |= FENCED if shift > 1 else FENCED | PLAIN
        unpack(packed.query_words, packed.query_start[i], n, shift, queries[8 * query_at :])
        unpack(packed.ref_words, packed.ref_start[i], m, shift, refs[8 * ref_at :])
        if shift < 3:
            queries[8 * query_at + n], refs[8 * ref_at + m] = QUERY_FENCE, REF_FENCE
        query_at += (n >> 3) + 2
        ref_at += (m >> 3) + 2


def unpacked_pairs(packed: PackedPairs, first: int, last: int, n_symbols: int) -> PackedPairs:
    """Return the codes of packed pairs first:last, of `n_symbols` together."""
    coded = _room(n_symbols, last - first)
    _unpack(packed, first, last, coded)
    return coded


# --- pairs of a call ---


class StringPairs(NamedTuple):
    """Pairs as lists, of str if they are to be read where they are."""

    queries: list[Any]
    refs: list[Any]
    symbols: str
    first_pair: int

    @property
    def n_pairs(self) -> int:
        return len(self.queries)


CpuPairs = PackedPairs | LetterPairs | StringPairs
"""What the CPU aligns."""


def cpu_pairs(queries: Any, refs: Any, symbols: str, first_pair: int) -> CpuPairs:
    """Return the pairs of two sets of sequences.

    Raises
    ------
    UsageError
        As for :func:`mapper.align.pairs.batch_of`; for lists, when their parts are made.
    """
    check_symbols(symbols)
    if _is_list(queries) and _is_list(refs):
        pairs = StringPairs(
            as_list(queries, "queries"), as_list(refs, "refs"), symbols, first_pair
        )  # fmt: skip
        check_numbers(len(pairs.queries), len(pairs.refs))
        return pairs
    return LetterPairs(batch_of(queries, refs, padded=False), symbols, first_pair)


def _is_list(sequences: Any) -> bool:
    """Return True unless sequences are a file, arrays, or a single one, which is refused later."""
    if isinstance(sequences, (Path, str, bytes)):
        return False
    return not (isinstance(sequences, tuple) and any(isinstance(s, np.ndarray) for s in sequences))


class _Strings:
    """The memory from the first to the last of some strings, which it keeps.

    What lies between them is not theirs, and must not be read.
    """

    def __init__(self, strings: list[str], start: int, end: int) -> None:
        self.__array_interface__ = {
            "shape": (end - start,), "typestr": "|u1", "data": (start, False), "version": 3,
        }  # fmt: skip
        self._strings = strings


def _in_place(strings: list[str], side: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return memory that holds strings, and where they start and end; None if it cannot be read."""
    places = ascii_places(strings) if strings else None
    if places is None:
        return None
    if places.longest > MAX_LENGTH:
        raise UsageError(f"{side}: {TOO_LONG}")
    # A byte more, so that empty strings have memory too.
    letters = np.asarray(_Strings(strings, places.origin, places.origin + places.n_bytes + 1))
    return letters, places.start, places.end


def _batch_of_strings(pairs: StringPairs, first: int, last: int) -> PairBatch:
    """Return pairs first:last, read in place if all are str of ASCII; else joined."""
    sides = pairs.queries[first:last], pairs.refs[first:last]
    if not len(sides[0]) == len(sides[1]) == last - first:
        raise UsageError("a list of sequences was changed while they were aligned")
    queries, refs = _in_place(sides[0], "queries"), _in_place(sides[1], "refs")
    return PairBatch(*queries, *refs) if queries and refs else batch_of(*sides)


_SAMPLE = 64
"""Pairs whose lengths tell how many pairs a part should have."""

_LETTERS_AT_ONCE = 4 * CHUNK_PAIRS
"""Pairs in arrays whose lengths are looked at together."""


def _mean_of(n: int, symbols_of: Callable[[int], int]) -> int:
    """Return the mean of the symbols of some pairs, at least 1."""
    sample = range(0, n, max(n // _SAMPLE, 1))
    return sum(map(symbols_of, sample)) // max(len(sample), 1) + 1


def _always(symbols: int) -> Callable[[int], int]:
    return lambda _: symbols


def _parts_of_strings(pairs: StringPairs, n_threads: int) -> Iterator[Part[PackedPairs]]:
    n = pairs.n_pairs
    try:
        mean = _mean_of(n, lambda i: len(pairs.queries[i]) + len(pairs.refs[i]))
    except TypeError:  # not even a length: batch_of has the message
        mean = 1
    most = most_symbols(n, mean, n_threads)
    first = 0
    while first < n:
        last = min(first + min(max(most(first) // mean, 1), CHUNK_PAIRS), n)
        letters = LetterPairs(
            _batch_of_strings(pairs, first, last), pairs.symbols, pairs.first_pair + first
        )
        for part in _parts_of_letters(letters, _always(2 * most(first))):
            yield part._replace(first=first + part.first, last=first + part.last)
        first = last


def _parts_of_letters(
    pairs: LetterPairs, most: Callable[[int], int]
) -> Iterator[Part[PackedPairs]]:
    batch = pairs.batch
    for begin in range(0, pairs.n_pairs, _LETTERS_AT_ONCE):
        rows = slice(begin, begin + _LETTERS_AT_ONCE)
        lengths = batch.query_end[rows] - batch.query_start[rows]
        lengths += batch.ref_end[rows]
        lengths -= batch.ref_start[rows]
        for first, last in chunk_bounds(lengths, most, CHUNK_PAIRS, begin):
            n_symbols = int(lengths[first - begin : last - begin].sum())
            yield Part(first, last, n_symbols, partial(coded_pairs, pairs, first, last, n_symbols))


def _parts_of_packed(pairs: PackedPairs, n_threads: int) -> Iterator[Part[PackedPairs]]:
    lengths = pairs.query_len + pairs.ref_len
    most = most_symbols(len(lengths), int(lengths.sum()) / max(len(lengths), 1), n_threads)
    for first, last in chunk_bounds(lengths, most, CHUNK_PAIRS):
        n_symbols = int(lengths[first:last].sum())
        yield Part(first, last, n_symbols, partial(unpacked_pairs, pairs, first, last, n_symbols))


def cpu_parts(pairs: CpuPairs, n_threads: int) -> Iterator[Part[PackedPairs]]:
    """Cut pairs into parts that threads take one by one."""
    if isinstance(pairs, StringPairs):
        return _parts_of_strings(pairs, n_threads)
    if isinstance(pairs, LetterPairs):
        b = pairs.batch

        def symbols_of(i: int) -> int:
            return int(b.query_end[i] - b.query_start[i] + b.ref_end[i] - b.ref_start[i])

        mean = _mean_of(pairs.n_pairs, symbols_of)
        return _parts_of_letters(pairs, most_symbols(pairs.n_pairs, mean, n_threads))
    return _parts_of_packed(pairs, n_threads)


def packed_rows(pairs: CpuPairs, rows: np.ndarray) -> PackedPairs:
    """Return some pairs, packed."""
    if isinstance(pairs, PackedPairs):
        return pairs._replace(
            query_start=pairs.query_start[rows], query_len=pairs.query_len[rows],
            ref_start=pairs.ref_start[rows], ref_len=pairs.ref_len[rows], shift=pairs.shift[rows],
        )  # fmt: skip
    queries: list[Any]
    refs: list[Any]
    if isinstance(pairs, StringPairs):
        queries, refs = [pairs.queries[i] for i in rows], [pairs.refs[i] for i in rows]
    else:
        batch = pairs.batch
        queries = [batch.queries[batch.query_start[i] : batch.query_end[i]] for i in rows]
        refs = [batch.refs[batch.ref_start[i] : batch.ref_end[i]] for i in rows]
    return pack_pairs(batch_of(queries, refs), pairs.symbols)
