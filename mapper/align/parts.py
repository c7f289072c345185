"""Pairs of a call on the CPU, cut into parts that threads take one after the other.

A thread takes and aligns its parts in one compiled call, without the GIL (``coding.py``). Strings
of lists are read where they are, while the calling thread keeps the GIL so that they stay
(:func:`mapper.jit.strings.keep_strings`); what else lists hold is joined, part by part.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mapper.align.coding import (
    BAD_LETTER,
    BY_CALL,
    END,
    ENDED,
    IN_QUERY,
    KEPT_STRINGS,
    LETTERS,
    N_OPS,
    OBJECTS,
    OPS_AT,
    PACKED,
    STRINGS,
    CodeTable,
    LetterPairs,
    Source,
    new_parts,
)
from mapper.align.packing import (
    PackedPairs,
    bad_letter,
    check_symbols,
    code_tables,
    pack_pairs,
)
from mapper.align.pairs import (
    PairBatch,
    as_list,
    batch_of,
    bytes_of,
    bytes_of_each,
    check_numbers,
)
from mapper.align.result import PairAlignments, empty_columns
from mapper.align.threads import (
    AT_ONCE,
    CHUNK_PAIRS,
    call_in_threads,
    chunk_bounds,
    join_operations,
    most_symbols,
    thread_count,
)
from mapper.dna import CODE_OF_ASCII
from mapper.errors import InputFormatError, MapperError, UsageError, refuse_file_name
from mapper.jit.addresses import address_of
from mapper.jit.strings import (
    IS_GONE,
    N_LEFT,
    N_WANTING,
    Layout,
    count_in_gate,
    keep_strings,
    layout,
)

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

_CHANGED = "a list of sequences was changed while they were aligned"

_LONG = 8000
"""Mean symbols of a pair from which its strings are referred to: that takes some 30 ns a pair."""

_SAMPLE = 64
"""Pairs, or up to twice as many, whose lengths tell how many pairs a part should have."""


def _lengths(pairs: CpuPairs, rows: slice) -> np.ndarray:
    """Return the symbols of some pairs, int64; 1 for what is no sequence."""
    if isinstance(pairs, StringPairs):
        lists = pairs.queries[rows], pairs.refs[rows]
        if not len(lists[0]) == len(lists[1]) == len(range(rows.start, rows.stop, rows.step or 1)):
            raise UsageError(_CHANGED)
        try:
            sides = [np.fromiter(map(len, of), np.int64) for of in lists]
        except TypeError:  # batch_of() has the message
            return np.ones(len(lists[0]), np.int64)
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


class _Call:
    """The pairs of a call, and what its threads have found.

    Parameters
    ----------
    align, others
        As of :func:`run_pairs`.
    """

    def __init__(
        self, align: Any, others: tuple[Any, ...], pairs: CpuPairs,
        bounds: list[tuple[int, int]], n_symbols: int, n_threads: int,
    ) -> None:  # fmt: skip
        n_pairs = bounds[-1][1] if bounds else 0  # as lists may change
        symbols = "dna" if isinstance(pairs, PackedPairs) else pairs.symbols
        source = _NOWHERE._replace(table=CodeTable(*code_tables(symbols), symbols == "bytes"))
        if isinstance(pairs, PackedPairs):
            source = source._replace(kind=PACKED, packed=pairs)
        elif isinstance(pairs, LetterPairs):
            pairs = pairs._replace(batch=_in_order(pairs.batch))
            source = _at_letters(source, pairs.batch, 0)
        elif (of := layout()) and _are_strings(pairs):
            kind = STRINGS
            if n_threads == 1 or len(bounds) < 2 or n_symbols > _LONG * n_pairs:
                kind = KEPT_STRINGS
                pairs = pairs._replace(queries=pairs.queries[:], refs=pairs.refs[:])
            lists = id(pairs.queries), id(pairs.refs)
            source = source._replace(kind=kind, lists=lists, layout=of)
        else:
            source = source._replace(kind=OBJECTS)
        self._pairs, self._source, self._align, self._others = pairs, source, align, others
        # Each thread fills rows of its own: the first access to new memory takes longest.
        self._columns = empty_columns(n_pairs)
        self._offsets = np.empty(n_pairs + 1, np.int64)
        self._offsets[0] = 0
        self._bounds, self._n_threads = bounds, n_threads
        self._parts = new_parts(bounds, n_threads)
        self._call_numbers = itertools.count()
        self._ops: dict[int, np.ndarray] = {}  # by number of the compiled call
        self._ops_of_rests: dict[int, np.ndarray] = {}  # by their first pairs
        self._errors: list[tuple[int, BaseException]] = []  # with numbers of parts
        self._is_abandoned = False

    def run_here(self) -> None:
        """Align all parts in this thread."""
        self._work(0)

    def run(self) -> None:
        """Align all parts in threads."""
        n_threads = min(self._n_threads, len(self._bounds))
        keep = None
        if self._source.kind == STRINGS:
            keep = partial(keep_strings, self._parts.gate, n_threads)
        call_in_threads(self._work, n_threads, self._n_threads, self._abandon, keep)

    def result(self, want_cigar: bool) -> PairAlignments:
        """Return the alignments, or raise the error of the first part that has one."""
        if self._errors:
            raise min(self._errors, key=lambda one: one[0])[1]
        if not want_cigar:
            return PairAlignments(*self._columns, None, None)
        pieces = {}
        for (first, _), found in zip(self._bounds, self._parts.found.tolist(), strict=True):
            begin = found[OPS_AT]
            pieces[first] = self._ops[found[BY_CALL]][begin : begin + found[N_OPS]]
        ops = join_operations(pieces | self._ops_of_rests, self._offsets, self._n_threads)
        return PairAlignments(*self._columns, self._offsets, ops)

    def _abandon(self) -> None:
        """Let no thread take another part, or go on with what it has."""
        self._is_abandoned = True
        self._parts.state[ENDED] = 1
        self._parts.gate[IS_GONE] = 1  # the thread that keeps strings may not have begun

    def _work(self, _: int) -> None:
        """Align parts, as one of the threads, until none is left. Errors are kept."""
        n_parts = len(self._bounds)
        part, failing = 0, n_parts
        try:
            while part < n_parts and not self._is_abandoned:
                number, failing = next(self._call_numbers), n_parts
                self._ops[number], part = self._align(
                    self._source, self._parts, number, self._others, self._columns,
                    self._offsets[1:],
                )  # fmt: skip
                if part < n_parts:
                    count_in_gate(self._parts.gate, N_WANTING, -1)
                if 0 <= part < n_parts and not self._is_abandoned:
                    failing = part
                    self._align_rest(part)
        except BaseException as error:
            # It may have counted itself before: then one that needs the GIL waits a turn for it,
            # or one that reads is told that there are no more turns, and has its pairs joined.
            count_in_gate(self._parts.gate, N_WANTING, -1)
            count_in_gate(self._parts.gate, N_LEFT, 1)
            self._parts.state[ENDED] = 1  # parts before it go on: the first error counts
            self._errors.append((failing, error))

    def _align_rest(self, part: int) -> None:
        """Join and align the pairs of a part from the first that could not be read in place."""
        end, bad, is_query = self._parts.found[part, [END, BAD_LETTER, IN_QUERY]].tolist()
        if bad >= 0:
            raise self._bad_letter(self._pairs, end, end, bad, bool(is_query))
        assert isinstance(self._pairs, StringPairs)
        last = self._bounds[part][1]
        lists = self._pairs.queries[end:last], self._pairs.refs[end:last]
        if not len(lists[0]) == len(lists[1]) == last - end:
            raise UsageError(_CHANGED)
        batch = _in_order(batch_of(*lists))
        joined = LetterPairs(batch, self._pairs.symbols, self._pairs.first_pair + end)
        rest = new_parts([(end, last)], 1)
        self._ops_of_rests[end], _ = self._align(
            _at_letters(self._source, batch, end), rest, 0, self._others, self._columns,
            self._offsets[1:],
        )  # fmt: skip
        pair, bad, is_query = rest.found[0, [END, BAD_LETTER, IN_QUERY]].tolist()
        if bad >= 0:
            raise self._bad_letter(joined, pair, pair - end, bad, bool(is_query))

    def _bad_letter(
        self, of: CpuPairs, pair: int, row: int, at: int, is_query: bool
    ) -> InputFormatError:
        """Return the error of a letter of a pair, which is pair `row` of `of`."""
        first_pair = 0 if isinstance(self._pairs, PackedPairs) else self._pairs.first_pair
        side = "query" if is_query else "reference"
        try:
            letter = letter_of(of, row, at, is_query)
        except (IndexError, TypeError) as error:  # the caller's list, which was read before
            raise UsageError(_CHANGED) from error
        return bad_letter(first_pair + pair, letter, at, side)


def _are_strings(pairs: StringPairs) -> bool:
    """Return True if all sequences of a sample are str of ASCII."""
    step = max(pairs.n_pairs // _SAMPLE, 1)
    sample = pairs.queries[::step] + pairs.refs[::step]
    return all(type(sequence) is str and sequence.isascii() for sequence in sample)


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
    n_threads = thread_count(threads)
    if isinstance(pairs, StringPairs):
        # With more threads than cores, the thread that keeps the strings would wait for a core.
        n_threads = min(n_threads, thread_count(None))
    bounds, n_symbols = _cut(pairs, n_threads)
    call = _Call(align, others, pairs, bounds, n_symbols, n_threads)
    if len(bounds) < 2 and n_symbols <= AT_ONCE:
        call.run_here()
    else:
        call.run()
    try:
        return call.result(want_cigar)
    except (InputFormatError, UsageError) as error:
        if isinstance(pairs, StringPairs):
            _explain(pairs, error)
        raise


def _explain(pairs: StringPairs, error: MapperError) -> None:
    """Raise the better error of lists, as that of a part knows neither index nor list."""
    for side, sequences in (("queries", pairs.queries), ("refs", pairs.refs)):
        if isinstance(error, UsageError):
            bytes_of_each(sequences, side)
        elif sequences and not (first := bytes_of(sequences[0], side, 0)).isalpha():
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
