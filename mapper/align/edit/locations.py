"""Edit distance under any relation of letters, and all places of a query: CPU drivers, public call.

By whole columns of bit vectors (``columns.py``); for the most frequent case, one end and letters
that match themselves, wavefronts are faster (``api.py``).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np

from mapper.align.coding import LetterPairs, code_one, coded_first
from mapper.align.dispatch import cpu_only, pairs_on_cpu
from mapper.align.edit.columns import scan_columns, trace_columns
from mapper.align.edit.relation import NO_LETTER, Equalities, Relation, relation_of
from mapper.align.matches import codes_of, letters_in
from mapper.align.packing import PackedPairs, bad_letter
from mapper.align.pairs import MAX_LENGTH, PairBatch, Sequences, bytes_of, limit_of
from mapper.align.parts import CpuPairs, StringPairs, run_pairs
from mapper.align.result import (
    NO_MEMORY,
    OK,
    OVER_LIMIT,
    STATUS_NAMES,
    PairAlignments,
)
from mapper.align.single import (
    BAD,
    N_OPS,
    N_ROW,
    SCORE,
    STATUS,
    PairResult,
    cigar_text,
    columns_of_row,
    is_single,
    joined_letters,
    result_of,
    scalar_of,
)
from mapper.align.spans import SPANS
from mapper.align.threads import check_threads
from mapper.errors import UsageError
from mapper.jit.accelerate import core, driver, grown

PATH_MEMORY = 1 << 30
"""Most bytes that a thread uses for the traceback of a pair."""

_BAD_QUERY, _BAD_REF = -1, -2
"""Statuses of a pair with a letter that is none; its score is the position."""


class Search(NamedTuple):
    """What a driver searches, in numbers."""

    free_begin: bool  # of the reference
    free_end: bool
    max_distance: int


# --- drivers ---


class Room(NamedTuple):
    """Workspace of a thread."""

    query: np.ndarray  # uint8: numbers of the letters
    ref: np.ndarray  # uint8
    equal: np.ndarray  # uint64 (letters, words)
    plus: np.ndarray  # uint64 (words,)
    minus: np.ndarray  # uint64 (words,)
    ends: np.ndarray  # int64
    back_ends: np.ndarray  # int64


@driver
def _new_room(n, m, n_letters):
    n_words = (n + 63) >> 6
    return Room(
        np.empty(n, np.uint8), np.empty(m, np.uint8), np.empty((n_letters, n_words), np.uint64),
        np.empty(n_words, np.uint64), np.empty(n_words, np.uint64), np.empty(m + 1, np.int64),
        np.empty(m + 1, np.int64),
    )  # fmt: skip


@core
def _number_letters(letters, n, letter_of, numbers):
    """Write the numbers of n letters; return the first position without one, or -1."""
    for i in range(n):
        number = letter_of[letters[i]]
        if number == NO_LETTER:
            return np.int64(i)
        numbers[i] = number
    return np.int64(-1)


@core
def _fill_equal(query, n, at, step, relation, equal):
    """Write for each letter which rows of a query match it; the query begins at `at`."""
    n_words = (n + 63) >> 6
    for letter in range(len(relation.first_other) - 1):
        for w in range(n_words):
            equal[letter, w] = 0
    for i in range(n):
        letter = query[at + step * i]
        for x in range(relation.first_other[letter], relation.first_other[letter + 1]):
            equal[relation.others[x], i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@driver
def _scan(letters, n, m, relation, search, room, columns, i):
    """Find the ends of a pair; return the room, which may be a larger one, and their number.

    Writes distance and status; those of a letter without a number, too.
    """
    if n > len(room.query) or m > len(room.ref):
        room = _new_room(
            max(n, len(room.query)) * 3 // 2, max(m, len(room.ref)) * 3 // 2, len(room.equal)
        )
    query, ref = room.query, room.ref
    columns.status[i] = _BAD_QUERY
    columns.score[i] = _number_letters(letters.query, n, relation.letter_of, query)
    if columns.score[i] >= 0:
        return room, np.int64(0)
    columns.status[i] = _BAD_REF
    columns.score[i] = _number_letters(letters.ref, m, relation.letter_of, ref)
    if columns.score[i] >= 0:
        return room, np.int64(0)
    _fill_equal(query, n, 0, 1, relation, room.equal)
    distance, n_ends = scan_columns(
        room.equal, n, ref, 0, 1, m, search.free_begin, search.free_end, room.plus, room.minus,
        room.ends, None,
    )  # fmt: skip
    columns.status[i] = OVER_LIMIT if distance > search.max_distance else OK
    if distance > search.max_distance:
        return room, np.int64(0)
    columns.score[i] = distance
    return room, n_ends


@driver
def locate_pairs(coded, relation, search, columns, counts):
    """Find all ends of the pairs of a part, and where alignments that end there begin.

    `coded` has the letters themselves (``symbols="bytes"``); `columns` are without results,
    `counts` 0.

    Returns
    -------
    Start and end of each place in turn (uint32); a pair has ``counts[i]`` such numbers.
    """
    codes = codes_of(coded)
    room = _new_room(256, 1024, len(relation.first_other) - 1)
    places = np.empty(64, np.uint32)
    n_places = 0
    for i in range(len(coded.shift)):
        n, m = np.int64(coded.query_len[i]), np.int64(coded.ref_len[i])
        letters = letters_in(codes, coded, i)
        room, n_ends = _scan(letters, n, m, relation, search, room, columns, i)
        if n_places + 2 * n_ends > len(places):
            places = grown(places, 2 * (n_places + 2 * n_ends))
        counts[i] = 2 * n_ends
        # An alignment without edits is as long as the query: of repeats there can be many.
        is_searched = search.free_begin and n_ends > 0 and columns.score[i] > 0
        if is_searched:
            _fill_equal(room.query, n, n - 1, -1, relation, room.equal)
        for x in range(n_ends):
            end = room.ends[x]
            length = n if search.free_begin else end
            if is_searched:
                # Backward from the end, as far as an alignment of this distance can reach.
                _, n_lengths = scan_columns(
                    room.equal, n, room.ref, end - 1, -1, min(end, n + columns.score[i]), False,
                    True, room.plus, room.minus, room.back_ends, None,
                )  # fmt: skip
                length = room.back_ends[n_lengths - 1]
            places[n_places] = end - length
            places[n_places + 1] = end
            n_places += 2
    return places[:n_places]


@driver
def align_by_relation(coded, relation, search, max_bytes, want_path, columns, counts):
    """Align the pairs of a part, as ``edit/cpu.py`` but under any relation of letters.

    `coded`, `columns` and `counts` as for :func:`locate_pairs`.

    Returns
    -------
    The operations of all these pairs (uint32), in order.
    """
    codes = codes_of(coded)
    room = _new_room(256, 1024, len(relation.first_other) - 1)
    ops = np.empty(512, np.uint32)
    all_ops = np.empty(512 if want_path else 0, np.uint32)
    n_all = 0
    for i in range(len(coded.shift)):
        n, m = np.int64(coded.query_len[i]), np.int64(coded.ref_len[i])
        letters = letters_in(codes, coded, i)
        room, n_ends = _scan(letters, n, m, relation, search, room, columns, i)
        if n_ends == 0:
            continue
        end = room.ends[0]
        # Farther back no path of this distance begins.
        first = max(end - n - columns.score[i], 0) if search.free_begin else 0
        width, n_words = end - first, (n + 63) >> 6
        if want_path and 16 * n_words * width > max_bytes:
            columns.status[i] = NO_MEMORY
            continue
        columns.query_end[i], columns.ref_end[i] = n, end
        if want_path or m == 0 or not search.free_begin:  # else only a path shows the start
            columns.query_start[i] = columns.ref_start[i] = 0
        if not want_path:
            continue
        moves = np.empty((width, n_words, 2), np.uint64)
        scan_columns(
            room.equal, n, room.ref, first, 1, width, search.free_begin, False, room.plus,
            room.minus, room.ends, moves,
        )  # fmt: skip
        if n + width + 2 > len(ops):
            ops = np.empty(2 * (n + width + 2), np.uint32)
        n_ops, start = trace_columns(moves, n, width, search.free_begin, ops)
        columns.ref_start[i] = first + start
        counts[i] = n_ops
        if n_all + n_ops > len(all_ops):
            all_ops = grown(all_ops, 2 * (n_all + n_ops))
        for x in range(n_ops):
            all_ops[n_all + x] = ops[n_ops - 1 - x]
        n_all += n_ops
    return all_ops[:n_all]


locate_source = coded_first(locate_pairs)
align_by_relation_source = coded_first(align_by_relation)


@driver
def locate_one(letters, n_query, letter_of, first_other, others, free_begin, free_end,
               max_distance, row):  # fmt: skip
    """Find all places of one string in another (``single.py``)."""
    coded, row[BAD] = code_one(letters, n_query, letters, letters, True)  # no codes
    columns = columns_of_row(row)
    places = locate_pairs(
        coded, Relation(letter_of, first_other, others),
        Search(free_begin, free_end, max_distance), columns, row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return places


@driver
def align_one_by_relation(letters, n_query, letter_of, first_other, others, free_begin, free_end,
                          max_distance, max_bytes, want_path, row):  # fmt: skip
    """Align two strings (``single.py``)."""
    coded, row[BAD] = code_one(letters, n_query, letters, letters, True)  # no codes
    columns = columns_of_row(row)
    ops = align_by_relation(
        coded, Relation(letter_of, first_other, others),
        Search(free_begin, free_end, max_distance), max_bytes, want_path, columns,
        row[N_OPS : N_OPS + 1],
    )  # fmt: skip
    row[STATUS] = columns.status[0]
    return cigar_text(ops)


# --- host ---


_LOCATED = "all places of a query and equalities of letters are found"


class PairLocations(NamedTuple):
    """All places of a query in a reference with the lowest distance."""

    score: int | None
    status: str
    locations: list[tuple[int, int]]  # start and end (excluded) in the reference, by end


class EditLocations(NamedTuple):
    """All places of n queries in their references, in input order.

    The places of pair i are items ``offsets[i]`` to ``offsets[i + 1]``, by ascending end; their
    bounds are 0-based and half-open, in symbols.
    """

    score: np.ndarray  # int64 (n,): distance, or -1
    status: np.ndarray  # int8 (n,): index of STATUS_NAMES
    offsets: np.ndarray  # int64 (n + 1,)
    start: np.ndarray  # int64
    end: np.ndarray  # int64

    @property
    def n_pairs(self) -> int:
        return len(self.score)

    def pair(self, i: int) -> PairLocations:
        """Return the places of pair i in readable form; negative numbers count from the end."""
        i = range(self.n_pairs)[i]
        rows = slice(self.offsets[i], self.offsets[i + 1])
        places = list(zip(self.start[rows].tolist(), self.end[rows].tolist(), strict=True))
        has_score = self.status[i] == OK
        return PairLocations(
            int(self.score[i]) if has_score else None, STATUS_NAMES[self.status[i]], places
        )


@overload
def edit_locations(  # type: ignore[overload-overlap]
    queries: str | bytes,
    refs: str | bytes,
    *,
    span: str = "semiglobal",
    max_distance: int | None = None,
    symbols: str = "dna",
    equalities: Equalities = (),
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> PairLocations: ...


@overload
def edit_locations(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    span: str = "semiglobal",
    max_distance: int | None = None,
    symbols: str = "dna",
    equalities: Equalities = (),
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> EditLocations: ...


def edit_locations(
    queries: Any,
    refs: Any = None,
    *,
    span: str = "semiglobal",
    max_distance: int | None = None,
    symbols: str = "dna",
    equalities: Equalities = (),
    device: str = "auto",
    threads: int | None = None,
    first_pair: int = 0,
) -> EditLocations | PairLocations:
    """Find all places of queries in references with the lowest edit distance, pair by pair.

    Parameters
    ----------
    queries, refs, symbols, max_distance, threads, first_pair
        As for :func:`mapper.edit_distance`, without packed pairs.
    span
        ``semiglobal``, the whole query anywhere in the reference; ``prefix``, at its start; or
        ``global``, which has one place.
    equalities
        Pairs of letters that match in addition to the rule of `symbols`, in either order and case:
        ``[("N", "A"), ("N", "C")]``. They do not make A and C match.
    device
        ``auto`` or ``cpu``: this is done on the CPU only.

    Returns
    -------
    All ends of alignments with the lowest distance, each with the start of the longest alignment
    that ends there: of two strings :class:`PairLocations`, a tuple of ``score``, ``status`` (a
    name) and ``locations``; else :class:`EditLocations`, the columns ``score`` (int64) and
    ``status`` (int8) of one row a pair, as for :func:`mapper.edit_distance`, and ``start`` and
    ``end`` (int64) of one row a place, those of pair i from ``offsets[i]`` to ``offsets[i + 1]``
    (int64); ``pair(i)`` is one of them as PairLocations. An end 0 means that the query lies before
    the reference, which costs its length.

    Raises
    ------
    UsageError
        As for :func:`mapper.edit_distance`; for another span, for equalities that are no pairs of
        letters, and for a CUDA device by name.
    InputFormatError
        For a character that is no nucleotide letter, unless `symbols` is ``bytes``.

    Notes
    -----
    O(n m / 64) time for lengths n and m, and O(n (n + d) / 64) for each end at distance d > 0 of a
    semiglobal span; O(n + m) memory.

    References
    ----------
    Myers (1999), J. ACM 46:395; Šošić and Šikić (2017), doi:10.1093/bioinformatics/btw753: all
    places, and additional equalities.

    Examples
    --------
    >>> edit_locations("ACT", "ACTGTACT").locations
    [(0, 3), (5, 8)]
    >>> edit_locations("ANT", "ACTGTACG", equalities=[("N", "C")])
    PairLocations(score=0, status='ok', locations=[(0, 3)])
    """
    search = _search_of(span, max_distance)
    relation = relation_of(symbols, equalities)
    cpu_only(device, _LOCATED)
    if is_single(queries, refs):
        letters = joined_letters(queries, refs)
        if letters is not None:
            check_threads(threads)
            row = np.empty(N_ROW, np.int64)
            places = locate_one(*letters, *relation, *search, row).tolist()
            status = int(row[STATUS])
            if status >= 0:
                return PairLocations(
                    int(row[SCORE]) if status == OK else None, STATUS_NAMES[status],
                    list(zip(places[::2], places[1::2], strict=True)),
                )  # fmt: skip
        queries, refs = [queries], [refs]
        return _locate(queries, refs, relation, search, threads, first_pair).pair(0)
    return _locate(queries, refs, relation, search, threads, first_pair)


def _locate(
    queries: Any, refs: Any, relation: Relation, search: Search, threads: int | None,
    first_pair: int,
) -> EditLocations:  # fmt: skip
    # Numbers of places pass through threads as operations do, which are uint32 as well.
    others = relation, search
    found = _in_parts(locate_source, others, queries, refs, True, threads, first_pair)
    assert found.cigar_offsets is not None and found.cigar_ops is not None
    places = found.cigar_ops.astype(np.int64)
    return EditLocations(
        found.score, found.status, found.cigar_offsets // 2, places[::2], places[1::2]
    )


def distance_by_relation(
    queries: Any, refs: Any, *, span: object, cigar: bool, max_distance: int | None, symbols: str,
    equalities: Equalities, device: str, threads: int | None, first_pair: int,
) -> PairAlignments | PairResult:  # fmt: skip
    """Compute edit distances with equalities, as :func:`mapper.edit_distance`."""
    search = _search_of(span, max_distance)
    relation = relation_of(symbols, equalities)
    cpu_only(device, _LOCATED)

    others = relation, search, PATH_MEMORY, cigar
    in_parts = partial(
        _in_parts, align_by_relation_source, others, cigar=cigar, threads=threads,
        first_pair=first_pair,
    )  # fmt: skip
    if is_single(queries, refs):
        letters = joined_letters(queries, refs)
        if letters is not None:
            check_threads(threads)
            row = np.empty(N_ROW, np.int64)
            ops = align_one_by_relation(*letters, *relation, *search, PATH_MEMORY, cigar, row)
            if row[STATUS] >= 0:
                return result_of(row, ops, cigar)
        return scalar_of(in_parts([queries], [refs]))
    return in_parts(queries, refs)


def _search_of(span: object, max_distance: int | None) -> Search:
    if not isinstance(span, str) or span not in SPANS:
        raise UsageError(f"span {span!r}: one of {', '.join(SPANS)} is expected here")
    free = SPANS[span]
    limit = limit_of("max_distance", max_distance, MAX_LENGTH)
    return Search(free.ref_begin > 0, free.ref_end > 0, limit)


def _sequence(pairs: CpuPairs, i: int, is_query: bool) -> bytes:
    """Return a sequence of pairs that are not packed."""
    if isinstance(pairs, StringPairs):
        side, name = (pairs.queries, "queries") if is_query else (pairs.refs, "refs")
        return bytes_of(side[i], name, i)
    assert isinstance(pairs, LetterPairs)
    letters, start, end = pairs.batch[:3] if is_query else pairs.batch[3:]
    return letters[start[i] : end[i]].tobytes()


def _in_parts(
    align: Any, others: tuple[Any, ...], queries: Any, refs: Any, cigar: bool, threads: int | None,
    first_pair: int,
) -> PairAlignments:  # fmt: skip
    """Align the letters of pairs part by part, as :func:`run_pairs`.

    Raises
    ------
    UsageError
        For packed pairs: their codes do not tell the letters.
    InputFormatError
        For a letter without a number.
    """
    if isinstance(queries, PackedPairs):
        raise UsageError("packed pairs do not go with places or equalities; give the sequences")
    pairs = pairs_on_cpu(queries, refs, "bytes", first_pair, threads)
    found = run_pairs(align, others, pairs, cigar, threads)
    bad = np.flatnonzero(found.status < 0)
    if len(bad):
        i = int(bad[0])
        pos, is_query = int(found.score[i]), found.status[i] == _BAD_QUERY
        sequence = _sequence(pairs, i, is_query)
        side = "query" if is_query else "reference"
        raise bad_letter(first_pair + i, sequence[pos], pos, side, sequence)
    return found
