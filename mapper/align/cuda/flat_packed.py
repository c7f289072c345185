"""Chunks of pairs that are packed already on their way to a device; see ``flat_batch.py``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mapper.align.cuda.chunks import (
    BEHIND,
    Chunk,
    chunk_of,
    chunks_of,
    cut_words,
    line_words,
    table_of,
    whole_lines,
)
from mapper.align.cuda.flat_stream import is_streamable, stream_line, streams_done
from mapper.align.cuda.sources import Stager, take_out_long
from mapper.align.cuda.work_queue import (
    ALL,
    Tickets,
    is_last_part,
    next_ticket,
    note_ready,
    note_wrong,
    ticket_at_hand,
)
from mapper.align.edit.small_rows import MAX_SMALL_LENGTH
from mapper.align.packed_check import check_places, is_any_misplaced
from mapper.align.packing import PackedPairs
from mapper.jit.accelerate import core, driver


class PackedSource:
    """Pairs whose words are copied; those of more than 2 bits a symbol are not given to a device.

    Parameters
    ----------
    packed
        Sequences of each side lie one behind the other; :meth:`check` says if they do.
    """

    def __init__(self, packed: PackedPairs) -> None:
        self.packed = packed
        self.n_pairs = packed.n_pairs

    def check(self, threads: int) -> None:
        """Raise UsageError unless sequences lie one behind the other."""
        check_places(self.packed, threads)

    def chunks(self, most_pairs: int) -> list[Chunk]:
        """Cut the pairs into runs.

        Raises
        ------
        UsageError
            If the spans of runs are not inside the arrays, or not one behind the other.
        """
        table = cut_words(self.packed, most_pairs)
        if not _in_turn(table, len(self.packed.query_words), len(self.packed.ref_words)):
            self.check(1)
        return chunks_of(table)

    def n_words(self, chunk: Chunk) -> int:
        """Words of a staged chunk."""
        _, ref_at = sides_at(chunk)
        return ref_at + chunk.ref_behind - chunk.ref_begin + BEHIND

    def stager(self, chunks: Sequence[Chunk], places: np.ndarray) -> Stager:
        """As that of :class:`mapper.align.cuda.sources.LetterSource`."""
        table, streamed = table_of(chunks), is_streamable(places)

        def stage(tickets: Tickets, most: int) -> int:
            return int(_stage(self.packed, table, places, streamed, tickets, most))

        return stage

    def selected(self, pairs: np.ndarray) -> PackedPairs:
        """Return some pairs (int64, rising)."""
        packed = self.packed
        return packed._replace(
            query_start=packed.query_start[pairs], query_len=packed.query_len[pairs],
            ref_start=packed.ref_start[pairs], ref_len=packed.ref_len[pairs],
            shift=packed.shift[pairs],
        )  # fmt: skip


def _in_turn(chunks: np.ndarray, *n_words: int) -> bool:
    """Whether the spans of both sides lie one behind the other, between the paddings."""
    for begin, behind, n in zip(chunks[:, 2::2].T, chunks[:, 3::2].T, n_words, strict=True):
        bounds = np.concatenate([[1], np.stack([begin, behind], 1).ravel(), [n - 2]])
        if (np.diff(bounds) < 0).any():
            return False
    return True


def sides_at(chunk: Chunk) -> tuple[int, int]:
    """Return the words of a staged chunk at which queries and references begin."""
    query_at = line_words(2 * chunk.n_pairs)
    return query_at, line_words(query_at + chunk.query_behind - chunk.query_begin)


@driver
def _stage(packed, chunks, places, streamed, tickets, most):
    """Stage parts as a `Stager` does."""
    done = 0
    while done != most:
        ticket = next_ticket(tickets) if most == ALL else ticket_at_hand(tickets)
        if ticket < 0:
            break
        c, part = divmod(ticket, tickets.n_parts)
        chunk = chunk_of(chunks, c)
        if _stage_part(packed, chunk, places[c % len(places)], streamed, part, tickets.n_parts):
            note_wrong(tickets)
        streams_done()
        if is_last_part(tickets, c):
            note_ready(tickets, c)
        done += 1
    return done


@driver
def _stage_part(packed, chunk, place, streamed, part, n_parts):
    """Copy a part of a chunk's words, and write a part of its rows; say if any is wrong."""
    n = chunk.last - chunk.first
    n_query, n_ref = chunk.query_behind - chunk.query_begin, chunk.ref_behind - chunk.ref_begin
    query_at = whole_lines(2 * n)
    ref_at = whole_lines(query_at + n_query)
    _copy_part(packed.query_words, chunk.query_begin, n_query, part, n_parts, place, query_at,
               streamed)  # fmt: skip
    _copy_part(packed.ref_words, chunk.ref_begin, n_ref, part, n_parts, place, ref_at, streamed)
    begin, end = n * part // n_parts, n * (part + 1) // n_parts
    if begin < end and _are_misplaced(packed, chunk, chunk.first + begin, chunk.first + end):
        return True
    _stage_rows(
        packed.query_start, packed.query_len, packed.ref_start, packed.ref_len, packed.shift,
        chunk.first, chunk.query_begin - query_at, chunk.ref_begin - ref_at, begin, end, n,
        place.view(np.int32),
    )  # fmt: skip
    return False


@core
def _are_misplaced(packed, chunk, first, last):
    """Whether any of the pairs first:last of a chunk is not where it should be."""
    query_behind, ref_behind = chunk.query_behind, chunk.ref_behind
    if last < chunk.last:
        query_behind, ref_behind = packed.query_start[last], packed.ref_start[last]
    shift = packed.shift[first:last]
    return is_any_misplaced(
        packed.query_start[first:last], packed.query_len[first:last], shift, query_behind
    ) or is_any_misplaced(
        packed.ref_start[first:last], packed.ref_len[first:last], shift, ref_behind
    )


@core
def _copy_part(words, begin, n, part, n_parts, place, at, streamed):
    """Copy a part of n words from `begin` on to a place, from its word `at` on: whole lines."""
    first = (n * part // n_parts) & ~7
    last = n if part + 1 == n_parts else (n * (part + 1) // n_parts) & ~7
    lines = (last - first) >> 3 if streamed else 0
    for x in range(lines):
        word = first + 8 * x
        stream_line(words, np.int64(8 * (begin + word)), place, np.int64(8 * (at + word)))
    first += 8 * lines
    source, target = words[begin + first : begin + last], place[at + first : at + last]
    for i in range(len(target)):
        target[i] = source[i]


@driver
def _stage_rows(query_start, query_len, ref_start, ref_len, shift, first, query_origin, ref_origin,
                begin, end, n, columns):  # fmt: skip
    """Write rows begin:end of the four columns of a chunk of n pairs."""
    query_start, query_len = query_start[first + begin :], query_len[first + begin :]
    ref_start, ref_len = ref_start[first + begin :], ref_len[first + begin :]
    _symbols_from(query_start, query_origin, columns[begin:end])
    _symbols_from(ref_start, ref_origin, columns[n + begin : n + end])
    lengths = columns[2 * n + begin : 2 * n + end], columns[3 * n + begin : 3 * n + end]
    _lengths(query_len, shift[first + begin :], lengths[0])
    _lengths(ref_len, shift[first + begin :], lengths[1])
    take_out_long(lengths[0], lengths[1])


@core
def _symbols_from(words, origin, out):
    for j in range(len(out)):
        out[j] = (words[j] - origin) << 5


@core
def _lengths(lengths, shift, out):
    """Write lengths, more than the greatest for pairs of more than 2 bits a symbol."""
    for j in range(len(out)):
        out[j] = lengths[j] if shift[j] == 1 else np.int64(MAX_SMALL_LENGTH + 1)
