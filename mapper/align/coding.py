"""Pairs for the CPU's aligners: cut into parts, whose letters a thread codes as it comes to them.

A code takes a byte, and behind each sequence comes a *fence* (``matches.py``): the aligners compare
such codes where they lie. Letters are read where the caller has them, in arrays or in Python's
strings. A thread holds the GIL only to take its slice of a list; coding and aligning a part is one
compiled call (:func:`coded_first`).

A pair of nothing but A, C, G, T and U has bits 1 and 2 of ASCII as its codes; other pairs have
those of the tables of ``packing.py``, and compared as bytes, the letters themselves, without a
fence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
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
    PairBatch,
    as_list,
    batch_of,
    bytes_of,
    bytes_of_each,
    check_numbers,
)
from mapper.align.result import Columns, PairAlignments
from mapper.align.threads import (
    AT_ONCE,
    CHUNK_PAIRS,
    chunk_bounds,
    clear_row,
    most_symbols,
    run_parts,
    thread_count,
)
from mapper.dna import CODE_OF_ASCII, NOT_A_BASE
from mapper.errors import InputFormatError, MapperError, UsageError, refuse_file_name
from mapper.jit.accelerate import core, disjoint_core, driver, grown, step
from mapper.jit.addresses import address_of, bytes_at, word_at
from mapper.jit.strings import (
    Layout,
    ascii_place,
    layout,
    note_items,
    prefetch_items,
    prefetch_objects,
)

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


class CodeTable(NamedTuple):
    """Codes of letters."""

    query: np.ndarray  # uint8 (256,): of each byte
    ref: np.ndarray
    as_bytes: bool  # the letters themselves


_NOT_ASCII = -2


@core
def _code_pair(queries, query, n, refs, ref, m, table, row, query_at, ref_at, coded):
    """Code a pair, n and m letters, as pair `row` of `coded`.

    Returns
    -------
    Position of the first letter without a code, and True if it is the query's; or -1.
    """
    coded.query_start[row], coded.query_len[row] = query_at, n
    coded.ref_start[row], coded.ref_len[row] = ref_at, m
    if table.as_bytes:
        coded.shift[row] = 3
        _copy_letters(queries, query, n, coded.query_words, query_at)
        _copy_letters(refs, ref, m, coded.ref_words, ref_at)
        return np.int64(-1), False
    differ = _code_acgt(queries, query, n, QUERY_FENCE, coded.query_words, query_at)
    differ |= _code_acgt(refs, ref, m, REF_FENCE, coded.ref_words, ref_at)
    coded.shift[row] = 3 | FENCED | PLAIN
    if differ == 0:
        return np.int64(-1), False
    coded.shift[row] = 3 | FENCED
    bad = _code_by_table(queries, query, n, table.query, QUERY_FENCE, coded.query_words, query_at)
    if bad >= 0:
        return bad, True
    bad = _code_by_table(refs, ref, m, table.ref, REF_FENCE, coded.ref_words, ref_at)
    return bad, False


@core
def _words_of(n):
    """Return the words of n letters: eight bytes can be loaded from the fence on."""
    return (n >> 3) + 2


_BEHIND = 6
"""Words behind those of a pair: unpacking writes 31 codes more than there are, and the masks of
short pairs (``edit/short_rows.py``) read up to 63 more."""


@core
def _has_room(coded, row, query_at, n, ref_at, m):
    """Return True if a pair fits, of n and m symbols, and what is written and read behind it."""
    return (
        row < len(coded.shift)
        and query_at + _words_of(n) + _BEHIND <= len(coded.query_words)
        and ref_at + _words_of(m) + _BEHIND <= len(coded.ref_words)
    )


LETTERS, STRINGS, PACKED = range(3)


class Source(NamedTuple):
    """Some pairs, for compiled code; addresses, as the memory is a caller's."""

    kind: int
    begin: int
    """Number of the first pair."""
    letters: tuple[int, int]
    """LETTERS: of the letters of queries and references."""
    bounds: tuple[int, int, int, int]
    """LETTERS: of int64 numbers, where queries start and end, and references."""
    lists: tuple[int, int]
    """STRINGS: of lists of strings that no other thread knows."""
    layout: Layout
    packed: PackedPairs
    """PACKED."""
    table: CodeTable


@core
def _side(source, side, i):
    """Return where letters of a side begin, and how many pair i has, or -1 for no string."""
    if source.kind == STRINGS:
        return ascii_place(source.lists[side], i, source.layout)
    start = word_at(source.bounds[2 * side] + 8 * i)
    end = word_at(source.bounds[2 * side + 1] + 8 * i)
    return source.letters[side] + start, end - start


@step
def _code(source, first, last, coded, columns, counts):
    """Code pairs from `first` on, up to `last` or as many as there is room for.

    They become pairs 0, 1, ... of `coded`, and their rows are cleared.

    Returns
    -------
    The pair after the last coded; the position of a letter of that pair that has no code, or -1, or
    _NOT_ASCII for a string that is not of ASCII, or too long; True if it is the query's; symbols of
    query and of reference.
    """
    query_at = ref_at = np.int64(1)
    n = m = np.int64(0)
    queries, refs = coded.query_words.view(np.uint8), coded.ref_words.view(np.uint8)
    for i in range(first, last):
        row = i - first
        if source.kind == PACKED:
            packed = source.packed
            n, m, shift = packed.query_len[i], packed.ref_len[i], np.int64(packed.shift[i])
            if not _has_room(coded, row, query_at, n, ref_at, m):
                return i, np.int64(-1), False, n, m
            coded.query_start[row], coded.query_len[row] = query_at, n
            coded.ref_start[row], coded.ref_len[row] = ref_at, m
            coded.shift[row] = 3
            if shift < 3:
                coded.shift[row] |= FENCED if shift > 1 else FENCED | PLAIN
            unpack(packed.query_words, packed.query_start[i], n, shift, queries[8 * query_at :])
            unpack(packed.ref_words, packed.ref_start[i], m, shift, refs[8 * ref_at :])
            if shift < 3:
                queries[8 * query_at + n], refs[8 * ref_at + m] = QUERY_FENCE, REF_FENCE
        else:
            query, n = _side(source, 0, i - source.begin)
            ref, m = _side(source, 1, i - source.begin)
            if min(n, m) < 0 or max(n, m) > MAX_LENGTH:
                return i, np.int64(_NOT_ASCII), False, n, m
            if not _has_room(coded, row, query_at, n, ref_at, m):
                return i, np.int64(-1), False, n, m
            bad, is_query = _code_pair(
                bytes_at(query, n), 0, n, bytes_at(ref, m), 0, m, source.table, row, query_at,
                ref_at, coded,
            )  # fmt: skip
            if bad >= 0:
                return i, bad, is_query, n, m
        clear_row(columns, counts, i)
        query_at += _words_of(n)
        ref_at += _words_of(m)
    return last, np.int64(-1), False, n, m


_PIECE_WORDS = 1 << 15
_PIECE_PAIRS = 1 << 11
"""Pairs that are coded and then aligned, and words of their codes on each side: with what aligning
takes, they stay in a core's own cache. A longer pair has memory of its own."""


@driver
def _room(n_words, n_pairs):
    """Return uninitialised memory for codes."""
    places = np.empty((4, n_pairs), np.int64)
    words = np.empty((2, n_words), np.uint64)
    words[:, 0] = 0
    return PackedPairs(
        words[0], places[0], places[1], words[1], places[2], places[3], np.empty(n_pairs, np.uint8)
    )


@driver
def _first_pairs(coded, n):
    return PackedPairs(
        coded.query_words, coded.query_start[:n], coded.query_len[:n],
        coded.ref_words, coded.ref_start[:n], coded.ref_len[:n], coded.shift[:n],
    )  # fmt: skip


@driver
def _rows(columns, first, last):
    return Columns(
        columns.score[first:last], columns.status[first:last], columns.query_start[first:last],
        columns.query_end[first:last], columns.ref_start[first:last], columns.ref_end[first:last],
    )  # fmt: skip


def coded_first(align: Any) -> Any:
    """Return a driver that codes the pairs of a part, and aligns them with a driver.

    One call for both, and for all pieces of a part: with many threads, each return to Python may
    wait for the GIL.

    Parameters
    ----------
    align
        Its arguments are pairs as codes, others, columns and numbers of operations, whose rows are
        cleared; it returns the operations.
    """

    @driver
    def run(source, first, last, others, columns, counts):
        """Align pairs first:last.

        Returns
        -------
        The operations; the pair after the last, and why it is that one, as of :func:`_code`.
        """
        n_pairs = min(last - first, np.int64(_PIECE_PAIRS))
        coded = _room(np.int64(_PIECE_WORDS), n_pairs)
        all_ops = np.empty(0, np.uint32)
        n_all = np.int64(0)
        while first < last:
            end, bad, is_query, n, m = _code(source, first, last, coded, columns, counts)
            if end == first and bad == -1:  # one pair is too long
                coded = _room(1 + _words_of(max(n, m)) + _BEHIND, n_pairs)
                continue
            if end > first:
                ops = align(
                    _first_pairs(coded, end - first), *others, _rows(columns, first, end),
                    counts[first:end],
                )  # fmt: skip
                if n_all == 0:
                    all_ops = ops
                else:
                    if n_all + len(ops) > len(all_ops):
                        all_ops = grown(all_ops[:n_all], 2 * (n_all + len(ops)))
                    all_ops[n_all : n_all + len(ops)] = ops
                n_all += len(ops)
                first = end
            if bad != -1:
                break
        if source.kind == STRINGS:  # which are given back next, with the GIL
            prefetch_items(source.lists[0], last - source.begin, source.layout)
            prefetch_items(source.lists[1], last - source.begin, source.layout)
        return all_ops[:n_all], first, bad, is_query

    if not numba.config.DISABLE_JIT:
        run.py_func.__qualname__ = f"{align.py_func.__name__}_coded_first"
    return run


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
    n_ref = len(letters) - n_query
    table = CodeTable(query_codes, ref_codes, as_bytes)
    bad, is_query = _code_pair(
        letters, 0, n_query, letters, n_query, n_ref, table, 0, np.int64(1), np.int64(1), coded
    )
    if bad >= 0 and not is_query:
        bad += n_query
    return coded, bad


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


# --- parts of a call ---

_SAMPLE = 64
"""Pairs, or up to twice as many, whose lengths tell how many pairs a part should have."""


def _lengths(pairs: CpuPairs, rows: slice) -> np.ndarray:
    """Return the symbols of some pairs, int64; 1 for what is no sequence."""
    if isinstance(pairs, StringPairs):
        try:
            sides = [
                np.fromiter(map(len, of[rows]), np.int64) for of in (pairs.queries, pairs.refs)
            ]
        except TypeError:  # batch_of() has the message
            return np.ones(len(pairs.queries[rows]), np.int64)
        return sides[0] + sides[1]
    if isinstance(pairs, LetterPairs):
        b = pairs.batch
        return b.query_end[rows] - b.query_start[rows] + b.ref_end[rows] - b.ref_start[rows]
    return pairs.query_len[rows] + pairs.ref_len[rows]


def _cut(pairs: CpuPairs, n_threads: int) -> tuple[list[tuple[int, int]], int]:
    """Return the bounds of parts, and the symbols of all pairs, or about as many.

    Where the lengths of a sample differ little, parts are cut by the number of pairs: to look at
    all of a million takes longer than a sixteenth of the time to align short ones.
    """
    n = pairs.n_pairs
    sample = _lengths(pairs, slice(0, n, max(n // _SAMPLE, 1)))
    mean = int(sample.mean()) + 1 if n else 1
    if n * mean <= AT_ONCE or sample.max() > 2 * mean:
        lengths = _lengths(pairs, slice(0, n))
        n_symbols = int(lengths.sum())
        most = most_symbols(n, n_symbols / max(n, 1), n_threads)
        return chunk_bounds(lengths, most, CHUNK_PAIRS), n_symbols
    most = most_symbols(n, mean, n_threads)
    bounds = []
    first = 0
    while first < n:
        last = min(first + min(max(most(first) // mean, 1), CHUNK_PAIRS), n)
        bounds.append((first, last))
        first = last
    return bounds, n * mean


_NOWHERE = Source(
    LETTERS, 0, (0, 0), (0, 0, 0, 0), (0, 0), Layout(*[0] * len(Layout._fields)),
    PackedPairs(*[np.empty(0, np.uint64 if name.endswith("words") else np.uint8
                           if name == "shift" else np.int64) for name in PackedPairs._fields]),
    CodeTable(CODE_OF_ASCII, CODE_OF_ASCII, False),
)  # fmt: skip


def _in_order(batch: PairBatch) -> PairBatch:
    """Return the arrays of a batch, or copies, whose items lie one behind another."""
    kinds = (np.uint8, np.int64, np.int64) * 2
    return PairBatch(*map(np.ascontiguousarray, batch, kinds))


def _at_letters(source: Source, batch: PairBatch, begin: int) -> Source:
    """Return the source of letters in arrays, which the caller keeps; pair `begin` is the first."""
    q, q_start, q_end, r, r_start, r_end = map(address_of, batch)
    return source._replace(
        kind=LETTERS, begin=begin, letters=(q, r), bounds=(q_start, q_end, r_start, r_end)
    )


_FETCHED_PAIRS = 256
"""In fewer, less time is spent with their objects than with asking for them."""


def _fetch(pairs: StringPairs, first: int, last: int, of: Layout) -> None:
    """Bring what counts the references to the strings of some pairs to this core's cache.

    To slice a list writes to each of its objects while the GIL is held. Where these are in main
    memory it takes three to ten times as long, and 16 threads wait for each other.
    """
    addresses = np.empty(2 * (last - first), np.int64)
    n = note_items(id(pairs.queries), first, of, addresses[: last - first])
    n += note_items(id(pairs.refs), first, of, addresses[n:])
    prefetch_objects(addresses[:n])


def run_pairs(
    align: Any, others: tuple[Any, ...], pairs: CpuPairs, want_cigar: bool, threads: int | None
) -> PairAlignments:
    """Align all pairs: threads take parts of them, code and align them.

    Parameters
    ----------
    align, others
        A driver of :func:`coded_first`, and the other arguments of the one it is made of.

    Raises
    ------
    InputFormatError
        For a character that is no IUPAC nucleotide, unless `symbols` is ``bytes``.
    UsageError
        For what is no sequence, by its index in a list; for a list of names of files.
    """
    bounds, n_symbols = _cut(pairs, thread_count(threads))
    symbols = "dna" if isinstance(pairs, PackedPairs) else pairs.symbols
    first_pair = 0 if isinstance(pairs, PackedPairs) else pairs.first_pair
    source = _NOWHERE._replace(table=CodeTable(*code_tables(symbols), symbols == "bytes"))
    if isinstance(pairs, PackedPairs):
        source = source._replace(kind=PACKED, packed=pairs)
    elif isinstance(pairs, LetterPairs):
        pairs = pairs._replace(batch=_in_order(pairs.batch))
        source = _at_letters(source, pairs.batch, 0)

    def aligned(
        source: Source, of: CpuPairs, first: int, last: int, rows: tuple[Columns, np.ndarray]
    ) -> tuple[np.ndarray, int]:
        ops, end, bad, is_query = align(source, first, last, others, *rows)
        if bad >= 0:
            letter = letter_of(of, end - (0 if of is pairs else source.begin), bad, is_query)
            side = "query" if is_query else "reference"
            raise bad_letter(first_pair + end, letter, bad, side)
        return ops, end

    def work(
        first: int, last: int, columns: Columns, counts: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray]]:
        rows = columns, counts
        if not isinstance(pairs, StringPairs):
            yield first, aligned(source, pairs, first, last, rows)[0]
            return
        of = layout()
        if of and last - first >= _FETCHED_PAIRS:
            _fetch(pairs, first, last, of)
        # Lists of this thread's own, which keep the strings.
        lists = pairs.queries[first:last], pairs.refs[first:last]
        if not len(lists[0]) == len(lists[1]) == last - first:
            raise UsageError("a list of sequences was changed while they were aligned")
        if of:
            own = source._replace(
                kind=STRINGS, begin=first, lists=(id(lists[0]), id(lists[1])), layout=of
            )
            ops, end = aligned(own, pairs, first, last, rows)
            yield first, ops
        else:
            end = first
        if end < last:  # there is a string that cannot be read in place
            batch = _in_order(batch_of(lists[0][end - first :], lists[1][end - first :]))
            joined = LetterPairs(batch, symbols, first_pair + end)
            yield end, aligned(_at_letters(source, batch, end), joined, end, last, rows)[0]

    try:
        return run_parts(work, bounds, n_symbols, want_cigar, threads)
    except (InputFormatError, UsageError) as error:
        if isinstance(pairs, StringPairs):
            _explain(pairs, error)
        raise


def _explain(pairs: StringPairs, error: MapperError) -> None:
    """Raise the better error of lists, as that of a part knows neither index nor list."""
    for side, sequences in (("queries", pairs.queries), ("refs", pairs.refs)):
        if isinstance(error, UsageError):
            bytes_of_each(sequences, side)
        elif not (first := bytes_of(sequences[0], side, 0)).isalpha():
            refuse_file_name(f"{side}[0]", first, "a sequence")


def letter_of(pairs: CpuPairs, pair: int, pos: int, is_query: bool) -> int:
    """Return a letter of a pair that is not packed."""
    if isinstance(pairs, StringPairs):
        side = pairs.queries if is_query else pairs.refs
        return int(side[pair][pos]) if isinstance(side[pair], bytes) else ord(side[pair][pos])
    assert isinstance(pairs, LetterPairs)
    queries, query_start, _, refs, ref_start, _ = pairs.batch
    letters, start = (queries, query_start) if is_query else (refs, ref_start)
    return int(letters[start[pair] + pos])


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
