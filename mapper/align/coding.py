"""Pairs for the CPU's aligners, whose letters a thread codes as it comes to them.

A code takes a byte, and behind each sequence comes a *fence* (``matches.py``): the aligners compare
such codes where they lie. Letters are read where the caller has them, in arrays or in Python's
strings. Coding and aligning parts of a call is one compiled call (:func:`coded_first`), which takes
part after part (``parts.py``).

A pair of nothing but A, C, G, T and U has bits 1 and 2 of ASCII as its codes; other pairs have
those of the tables of ``packing.py``, and compared as bytes, the letters themselves, without a
fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np

from mapper.align.matches import FENCED, PLAIN, QUERY_FENCE, REF_FENCE, unaligned_word, unpack
from mapper.align.packing import PackedPairs, differs_from_acgt
from mapper.align.pairs import MAX_LENGTH, PairBatch
from mapper.align.result import Columns
from mapper.align.threads import clear_row
from mapper.dna import NOT_A_BASE
from mapper.jit.accelerate import core, disjoint_core, driver, grown, step
from mapper.jit.addresses import bytes_at, word_at
from mapper.jit.intrinsics import atomic_add, atomic_read, fetch_add_at
from mapper.jit.strings import (
    N_ENTERED,
    N_LEFT,
    N_WANTING,
    Layout,
    ascii_place,
    begin_reading,
    end_reading,
    n_items,
    new_gate,
    prefetch_item,
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


_NOT_HERE = -2


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


LETTERS, STRINGS, KEPT_STRINGS, PACKED, OBJECTS = range(5)
"""What pairs are: letters in arrays; strings in the caller's lists, read in turns of the thread
that keeps them (``jit/strings.py``), or in lists that no other thread knows; packed; or sequences
that compiled code cannot read, and its caller has to join."""


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
    """Addresses of lists of strings; the caller's may change between two turns."""
    layout: Layout
    packed: PackedPairs
    """PACKED."""
    table: CodeTable


@core
def _side(source, side, i):
    """Return where letters of a side begin, and how many pair i has, or -1 for no string."""
    if source.kind == OBJECTS:
        return np.int64(0), np.int64(-1)
    if source.kind == STRINGS or source.kind == KEPT_STRINGS:
        if i >= n_items(source.lists[side], source.layout):
            return np.int64(0), np.int64(-1)
        return ascii_place(source.lists[side], i, source.layout)
    start = word_at(source.bounds[2 * side] + 8 * i)
    end = word_at(source.bounds[2 * side + 1] + 8 * i)
    return source.letters[side] + start, end - start


_PAIRS_AHEAD = 4
"""Whose strings are prefetched: each lies somewhere else in memory."""


@step
def _code(source, first, last, coded, columns, counts):
    """Code pairs from `first` on, up to `last` or as many as there is room for.

    They become pairs 0, 1, ... of `coded`, and their rows are cleared.

    Returns
    -------
    The pair after the last coded; the position of a letter of that pair that has no code, or -1, or
    _NOT_HERE for what cannot be read where it is, or is too long; True if it is the query's;
    symbols of query and of reference.
    """
    query_at = ref_at = np.int64(1)
    n = m = np.int64(0)
    queries, refs = coded.query_words.view(np.uint8), coded.ref_words.view(np.uint8)
    n_strings = np.int64(0)  # that may be prefetched
    if source.kind == STRINGS or source.kind == KEPT_STRINGS:
        n_strings = min(n_items(source.lists[0], source.layout), last)
        n_strings = min(n_items(source.lists[1], source.layout), n_strings)
    for i in range(first, last):
        row = i - first
        if i + _PAIRS_AHEAD < n_strings:
            prefetch_item(source.lists[0], i + _PAIRS_AHEAD, source.layout)
            prefetch_item(source.lists[1], i + _PAIRS_AHEAD, source.layout)
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
                return i, np.int64(_NOT_HERE), False, n, m
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


class Parts(NamedTuple):
    """The parts of a call, in order, and what its threads tell each other of them."""

    bounds: np.ndarray
    """int64 (n, 2): first pair of a part, and the one after its last."""
    found: np.ndarray
    """int64 (n, 6): what became of a part, see below."""
    state: np.ndarray
    """int64 (3,): the first part that is not taken (``NEXT``), or more than there are; not 0 if no
    more are to be taken (``ENDED``); about how many pairs come to a thread (``SHARE``)."""
    gate: np.ndarray
    """Of the thread that keeps the strings (``jit/strings.py``)."""


NEXT, ENDED, SHARE = range(3)
BY_CALL, OPS_AT, N_OPS, END, BAD_LETTER, IN_QUERY = range(6)
"""Number of the compiled call, or -1 as long as a part is not aligned; where its operations are
among those of the call, and how many; the pair after the last that is aligned, and why it is that
one, as :func:`_code` has it."""


def new_parts(bounds: Sequence[tuple[int, int]], n_threads: int) -> Parts:
    """Return parts that are not taken."""
    n = len(bounds)
    n_pairs = bounds[-1][1] - bounds[0][0] if bounds else 0
    return Parts(
        np.array(bounds, np.int64).reshape(n, 2), np.full((n, 6), -1, np.int64),
        np.array([0, 0, n_pairs // n_threads + 1]), new_gate(),
    )  # fmt: skip


_CALL_OPS, _CALL_ROOM = 1 << 21, 5 << 19
"""Operations after which a thread returns them, and for how many it makes room beforehand at most:
much larger arrays are taken from the system anew each time."""


@driver
def _appended(all_ops, n_all, ops, capacity):
    """Put operations behind the first `n_all`; return their array, with room for `capacity`."""
    if n_all == 0 and len(ops) >= _CALL_OPS:
        return ops
    if n_all + len(ops) > len(all_ops):
        all_ops = grown(all_ops[:n_all], max(2 * (n_all + len(ops)), capacity))
    all_ops[n_all : n_all + len(ops)] = ops
    return all_ops


def coded_first(align: Any) -> Any:
    """Return a driver that takes parts of a call, codes their pairs and aligns them with a driver.

    One call for all of it: each return to Python may wait for the GIL, with 16 threads as long as
    it takes to align thousands of short pairs.

    Parameters
    ----------
    align
        Its arguments are pairs as codes, others, columns and numbers of operations, whose rows are
        cleared; it returns the operations.
    """

    @driver
    def run_part(source, parts, first, last, others, columns, counts, all_ops, n_all):
        """Align pairs first:last, and put their operations behind the first `n_all` of `all_ops`.

        Returns
        -------
        The array of all operations, and their number; as :func:`_code` where it ended.
        """
        n_pairs = min(last - first, np.int64(_PIECE_PAIRS))
        coded = _room(np.int64(_PIECE_WORDS), n_pairs)
        bad, is_query = np.int64(-1), False
        while first < last:
            reads_strings = source.kind == STRINGS
            if reads_strings and not begin_reading(parts.gate):
                break
            end, bad, is_query, n, m = _code(source, first, last, coded, columns, counts)
            if reads_strings:
                end_reading(parts.gate)
            if end == first and bad == -1:  # one pair is too long
                if reads_strings:
                    break  # it would be read for too long
                coded = _room(1 + _words_of(max(n, m)) + _BEHIND, n_pairs)
                continue
            if end > first:
                ops = align(
                    _first_pairs(coded, end - first), *others, _rows(columns, first, end),
                    counts[first:end],
                )  # fmt: skip
                share = len(ops) * parts.state[SHARE] // (end - first)
                all_ops = _appended(all_ops, n_all, ops, min(share, _CALL_ROOM))
                n_all += len(ops)
                first = end
            if bad != -1:
                break
        return all_ops, n_all, first, bad, is_query

    @driver
    def run(source, parts, call, others, columns, counts):
        """Align parts until none is left, there are many operations, or a pair is not for here.

        Parameters
        ----------
        call
            A number to be noted with these parts.

        Returns
        -------
        The operations. The part with such a pair; or -1, if it is to be called again; or how many
        parts there are.
        """
        n_parts = len(parts.found)
        all_ops = np.empty(0, np.uint32)
        n_all = np.int64(0)
        atomic_add(parts.gate, N_ENTERED, 1)
        while atomic_read(parts.state, ENDED) == 0:
            part = fetch_add_at(parts.state, NEXT, 1)
            if part >= n_parts:
                break
            first, last = parts.bounds[part, 0], parts.bounds[part, 1]
            at = n_all
            all_ops, n_all, end, bad, is_query = run_part(
                source, parts, first, last, others, columns, counts, all_ops, n_all
            )
            found = parts.found[part]
            found[BY_CALL], found[OPS_AT], found[N_OPS] = call, at, n_all - at
            found[END], found[BAD_LETTER], found[IN_QUERY] = end, bad, is_query
            if end == last:
                part = np.int64(-1)
            if part >= 0 or n_all >= _CALL_OPS:
                atomic_add(parts.gate, N_WANTING, 1)
                return all_ops[:n_all], part
        atomic_add(parts.gate, N_LEFT, 1)
        return all_ops[:n_all], n_parts

    if not numba.config.DISABLE_JIT:
        for function, name in ((run_part, "a_part"), (run, "coded_first")):
            function.py_func.__qualname__ = f"{align.py_func.__name__}_{name}"
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
