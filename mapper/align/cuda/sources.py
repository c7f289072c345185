"""Sources of chunks: pairs as letters, or packed already, written to staging buffers by threads.

A chunk is *staged* in one array of words, which one copy takes to the device: four columns (int32,
one row a pair: first symbol of query and reference, counted from the start of the array, and their
lengths, -1 for a pair that the device shall not align), then the symbols of both sides, 32 a word.

- Letters are packed as they lie in memory, whatever the bounds of the sequences
  (``pack_letters.py``). Packing then takes no longer than copying, and a quarter of the bytes goes
  over the link. The thread that stages the last part of a chunk removes the pairs with other
  letters than A, C, G, T.
- Words of packed pairs are copied.

Several threads stage the parts of a chunk (``work_queue.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mapper.align.cuda.chunks import (
    TAIL_WORDS,
    Chunk,
    chunk_of,
    chunks_of,
    cut_letters,
    cut_words,
    round_to_line,
    round_to_line_compiled,
    table_of,
)
from mapper.align.cuda.pack_letters import (
    blocks_of,
    is_acgt_where_noted,
    is_streamable,
    pack_blocks,
    stream_line,
    streams_done,
)
from mapper.align.cuda.work_queue import (
    ALL,
    WorkQueue,
    finish_job,
    is_invalid,
    mark_invalid,
    mark_ready,
    take_job,
    try_take_job,
)
from mapper.align.edit.wavefront import MAX_SMALL_LENGTH
from mapper.align.packing import PackedPairs, check_places, is_any_misplaced
from mapper.align.pairs import OUTSIDE, PADDING, PairBatch, are_lengths_wrong, check_lengths
from mapper.errors import UsageError
from mapper.jit.accelerate import core, driver

Stager = Callable[[WorkQueue, int], int]
"""Takes jobs of a queue and does them: all remaining ones (ALL), waiting for buffers; or at most a
number of those whose chunks have a buffer. Returns how many."""


def _stager(
    batch: PairBatch | None, packed: PackedPairs | None, chunks: Sequence[Chunk],
    buffers: np.ndarray, noted: np.ndarray | None,
) -> Stager:  # fmt: skip
    """Return a function that stages chunks, in any threads; chunk i in buffer ``i % n_buffers``."""
    table, streamed = table_of(chunks), is_streamable(buffers)

    def stage(queue: WorkQueue, most: int) -> int:
        return int(_stage(batch, packed, table, buffers, noted, streamed, queue, most))

    return stage


@driver
def _stage(batch, packed, chunks, buffers, noted, streamed, queue, most):
    """Stage parts as a `Stager` does.

    Parameters
    ----------
    batch, packed
        Letters or packed pairs; the other one is None, and its branches are not compiled.
    noted
        bool (n_buffers, 2, n_blocks), for blocks with other letters than A, C, G, T; None for
        packed pairs.
    streamed
        As for :func:`pack_blocks`.
    """
    done = 0
    while done != most:
        job = take_job(queue) if most == ALL else try_take_job(queue)
        if job < 0:
            break
        c, part = divmod(job, queue.n_parts)
        chunk = chunk_of(chunks, c)
        b = c % len(buffers)
        is_bad = False
        if batch is not None:
            is_bad = _stage_letters(
                batch, chunk, buffers[b], noted[b], streamed, part, queue.n_parts
            )
        if packed is not None:
            is_bad = _stage_words(packed, chunk, buffers[b], streamed, part, queue.n_parts)
        if is_bad:
            mark_invalid(queue)
        streams_done()
        if finish_job(queue, c):
            # With an invalid pair, sequences may lie anywhere.
            if batch is not None and not is_invalid(queue):
                _remove_other_letters(batch, chunk, noted[b], buffers[b].view(np.int32))
            mark_ready(queue, c)
        done += 1
    return done


@core
def _remove_too_long(query_len, ref_len):
    """Set the lengths of pairs that are too long for a device to -1."""
    for j in range(len(query_len)):
        fits = max(query_len[j], ref_len[j]) <= MAX_SMALL_LENGTH
        query_len[j] = query_len[j] if fits else np.int32(-1)
        ref_len[j] = ref_len[j] if fits else np.int32(-1)


# --- letters ---


class LetterSource:
    """Pairs as letters, which staging packs.

    Parameters
    ----------
    batch
        Lengths may be invalid: staging finds that, and :meth:`check` raises the error.
    """

    def __init__(self, batch: PairBatch) -> None:
        self._batch = batch
        self.n_pairs = batch.n_pairs

    def check(self, threads: int) -> None:
        """Raise UsageError unless all lengths are valid."""
        check_lengths(self._batch, threads)

    def chunks(self, most_pairs: int) -> list[Chunk]:
        """Cut the batch into chunks.

        Raises
        ------
        UsageError
            If a chunk has letters outside the arrays.
        """
        table = cut_letters(self._batch, most_pairs)
        ends = len(self._batch.queries), len(self._batch.refs)
        if (table[:, 2::2] < 0).any() or (table[:, 3::2] > ends).any() or (
            table[:, 2::2] > table[:, 3::2]
        ).any():  # fmt: skip
            self.check(1)
            raise UsageError(f"pairs: {OUTSIDE}")
        return chunks_of(table)

    def n_words(self, chunk: Chunk) -> int:
        """Return the words of a staged chunk."""
        n_query = (chunk.query_end - chunk.query_begin + 31) >> 5
        n_ref = (chunk.ref_end - chunk.ref_begin + 31) >> 5
        ref_at = round_to_line(round_to_line(2 * chunk.n_pairs) + n_query)
        return ref_at + n_ref + TAIL_WORDS

    def stager(self, chunks: Sequence[Chunk], buffers: np.ndarray) -> Stager:
        """Return a function that stages chunks, in any thread; chunk i in buffer ``i % n_buffers``.

        `buffers`: uint64 (n_buffers, at least the words of the largest).
        """
        table = table_of(chunks)
        most = (table[:, 3::2] - table[:, 2::2]).max(initial=0)
        noted = np.empty((len(buffers), 2, blocks_of(0, most)), np.bool_)
        return _stager(self._batch, None, chunks, buffers, noted)

    def selected(self, pairs: np.ndarray) -> PairBatch:
        """Return some pairs (int64) with no other letters."""
        return selected(self._batch, pairs)


@driver
def _stage_letters(batch, chunk, buffer, noted, streamed, part, n_parts):
    """Pack a part of a chunk's letters, and write its rows; return True if a length is invalid."""
    n = chunk.last - chunk.first
    codes, columns = buffer.view(np.uint8), buffer.view(np.int32)
    # Words at which the letters of both sides begin.
    query_at = round_to_line_compiled(2 * n)
    ref_at = round_to_line_compiled(query_at + ((chunk.query_end - chunk.query_begin + 31) >> 5))
    n_blocks = blocks_of(chunk.query_begin, chunk.query_end)
    pack_blocks(
        batch.queries, chunk.query_begin, chunk.query_end, n_blocks * part // n_parts,
        n_blocks * (part + 1) // n_parts, codes[8 * query_at :], noted[0],
        streamed,
    )  # fmt: skip
    n_blocks = blocks_of(chunk.ref_begin, chunk.ref_end)
    pack_blocks(
        batch.refs, chunk.ref_begin, chunk.ref_end, n_blocks * part // n_parts,
        n_blocks * (part + 1) // n_parts, codes[8 * ref_at :], noted[1], streamed,
    )  # fmt: skip
    begin, end = n * part // n_parts, n * (part + 1) // n_parts
    first, last = chunk.first + begin, chunk.first + end
    if are_lengths_wrong(batch.query_start[first:last], batch.query_end[first:last]) or (
        are_lengths_wrong(batch.ref_start[first:last], batch.ref_end[first:last])
    ):
        return True
    _write_rows(
        batch.query_start, batch.query_end, batch.ref_start, batch.ref_end, chunk.first,
        chunk.query_begin - 32 * query_at, chunk.ref_begin - 32 * ref_at, begin, end, n, columns,
    )  # fmt: skip
    return False


@driver
def _write_rows(query_start, query_end, ref_start, ref_end, first, query_origin, ref_origin, begin,
                end, n, columns):  # fmt: skip
    """Write rows begin:end of the four columns of a chunk of n pairs."""
    query_start, query_end = query_start[first + begin :], query_end[first + begin :]
    ref_start, ref_end = ref_start[first + begin :], ref_end[first + begin :]
    # LLVM vectorises short loops over few arrays, counted from 0; no others.
    _subtract_number(query_start, query_origin, columns[begin:end])
    _subtract_number(ref_start, ref_origin, columns[n + begin : n + end])
    query_len, ref_len = columns[2 * n + begin : 2 * n + end], columns[3 * n + begin : 3 * n + end]
    _subtract(query_end, query_start, query_len)
    _subtract(ref_end, ref_start, ref_len)
    _remove_too_long(query_len, ref_len)


@core
def _subtract_number(values, number, out):
    for j in range(len(out)):
        out[j] = values[j] - number


@core
def _subtract(values, others, out):
    for j in range(len(out)):
        out[j] = values[j] - others[j]


@driver
def _remove_other_letters(batch, chunk, noted, columns):
    """Set the lengths of pairs with other letters than A, C, G, T to -1."""
    if not (
        _any(noted[0, : blocks_of(chunk.query_begin, chunk.query_end)])
        or _any(noted[1, : blocks_of(chunk.ref_begin, chunk.ref_end)])
    ):
        return
    n = chunk.last - chunk.first
    for j in range(n):
        i = chunk.first + j
        if not is_acgt_where_noted(
            batch.queries, batch.query_start[i], batch.query_end[i], chunk.query_begin, noted[0]
        ) or not is_acgt_where_noted(
            batch.refs, batch.ref_start[i], batch.ref_end[i], chunk.ref_begin, noted[1]
        ):
            columns[2 * n + j] = -1
            columns[3 * n + j] = -1


@core
def _any(flags):
    """Return True if any flag is set; visits all, by vector code."""
    found = np.uint8(0)
    for i in range(len(flags)):
        found |= np.uint8(flags[i])
    return found != 0


def selected(batch: PairBatch, pairs: np.ndarray) -> PairBatch:
    """Return a batch of some pairs (int64), with no other letters."""
    sides: list[np.ndarray] = []
    for letters, start, end in (batch[:3], batch[3:]):
        offsets = np.zeros(len(pairs) + 1, np.int64)
        np.cumsum(end[pairs] - start[pairs], out=offsets[1:])
        own = np.zeros(int(offsets[-1]) + PADDING, np.uint8)
        _select_letters(letters, start, pairs, offsets, own)
        sides += [own, offsets[:-1], offsets[1:]]
    return PairBatch(*sides)


@driver
def _select_letters(letters, start, pairs, offsets, own):
    for j in range(len(pairs)):
        at = start[pairs[j]]
        for i in range(offsets[j + 1] - offsets[j]):
            own[offsets[j] + i] = letters[at + i]


# --- packed pairs ---


class PackedSource:
    """Packed pairs, whose words staging copies; those of more than 2 bits a symbol are left out.

    Parameters
    ----------
    packed
        Sequences of each side should be consecutive: staging finds if they are not, and
        :meth:`check` raises the error.
    """

    def __init__(self, packed: PackedPairs) -> None:
        self.packed = packed
        self.n_pairs = packed.n_pairs

    def check(self, threads: int) -> None:
        """Raise UsageError unless the sequences of each side are consecutive."""
        check_places(self.packed, threads)

    def chunks(self, most_pairs: int) -> list[Chunk]:
        """Cut the pairs into chunks.

        Raises
        ------
        UsageError
            If the spans of chunks exceed the arrays or overlap.
        """
        table = cut_words(self.packed, most_pairs)
        if not _are_adjacent(table, len(self.packed.query_words), len(self.packed.ref_words)):
            self.check(1)
        return chunks_of(table)

    def n_words(self, chunk: Chunk) -> int:
        """Return the words of a staged chunk."""
        _, ref_at = sides_at(chunk)
        return ref_at + chunk.ref_end - chunk.ref_begin + TAIL_WORDS

    def stager(self, chunks: Sequence[Chunk], buffers: np.ndarray) -> Stager:
        """Return a function that stages chunks, as :meth:`LetterSource.stager`."""
        return _stager(None, self.packed, chunks, buffers, None)

    def selected(self, pairs: np.ndarray) -> PackedPairs:
        """Return some pairs (int64, ascending)."""
        packed = self.packed
        return packed._replace(
            query_start=packed.query_start[pairs], query_len=packed.query_len[pairs],
            ref_start=packed.ref_start[pairs], ref_len=packed.ref_len[pairs],
            shift=packed.shift[pairs],
        )  # fmt: skip


def _are_adjacent(chunks: np.ndarray, *n_words: int) -> bool:
    """Return True if the spans of both sides are consecutive, between the paddings."""
    for begin, end, n in zip(chunks[:, 2::2].T, chunks[:, 3::2].T, n_words, strict=True):
        bounds = np.concatenate([[1], np.stack([begin, end], 1).ravel(), [n - 2]])
        if (np.diff(bounds) < 0).any():
            return False
    return True


def sides_at(chunk: Chunk) -> tuple[int, int]:
    """Return the words of a staged chunk at which queries and references start."""
    query_at = round_to_line(2 * chunk.n_pairs)
    return query_at, round_to_line(query_at + chunk.query_end - chunk.query_begin)


@driver
def _stage_words(packed, chunk, buffer, streamed, part, n_parts):
    """Copy a part of a chunk's words, and write its rows; return True if a pair is misplaced."""
    n = chunk.last - chunk.first
    n_query, n_ref = chunk.query_end - chunk.query_begin, chunk.ref_end - chunk.ref_begin
    query_at = round_to_line_compiled(2 * n)
    ref_at = round_to_line_compiled(query_at + n_query)
    _copy_part(packed.query_words, chunk.query_begin, n_query, part, n_parts, buffer, query_at,
               streamed)  # fmt: skip
    _copy_part(packed.ref_words, chunk.ref_begin, n_ref, part, n_parts, buffer, ref_at, streamed)
    begin, end = n * part // n_parts, n * (part + 1) // n_parts
    if begin < end and _are_misplaced(packed, chunk, chunk.first + begin, chunk.first + end):
        return True
    _write_word_rows(
        packed.query_start, packed.query_len, packed.ref_start, packed.ref_len, packed.shift,
        chunk.first, chunk.query_begin - query_at, chunk.ref_begin - ref_at, begin, end, n,
        buffer.view(np.int32),
    )  # fmt: skip
    return False


@core
def _are_misplaced(packed, chunk, first, last):
    """Return True if any of the pairs first:last of a chunk is misplaced."""
    query_end, ref_end = chunk.query_end, chunk.ref_end
    if last < chunk.last:
        query_end, ref_end = packed.query_start[last], packed.ref_start[last]
    shift = packed.shift[first:last]
    return is_any_misplaced(
        packed.query_start[first:last], packed.query_len[first:last], shift, query_end
    ) or is_any_misplaced(packed.ref_start[first:last], packed.ref_len[first:last], shift, ref_end)


@core
def _copy_part(words, begin, n, part, n_parts, buffer, at, streamed):
    """Copy a part of n words from `begin` on to a buffer, from its word `at` on, by whole lines."""
    first = (n * part // n_parts) & ~7
    last = n if part + 1 == n_parts else (n * (part + 1) // n_parts) & ~7
    lines = (last - first) >> 3 if streamed else 0
    for x in range(lines):
        word = first + 8 * x
        stream_line(words, np.int64(8 * (begin + word)), buffer, np.int64(8 * (at + word)))
    first += 8 * lines
    source, target = words[begin + first : begin + last], buffer[at + first : at + last]
    for i in range(len(target)):
        target[i] = source[i]


@driver
def _write_word_rows(query_start, query_len, ref_start, ref_len, shift, first, query_origin,
                     ref_origin, begin, end, n, columns):  # fmt: skip
    """Write rows begin:end of the four columns of a chunk of n pairs."""
    query_start, query_len = query_start[first + begin :], query_len[first + begin :]
    ref_start, ref_len = ref_start[first + begin :], ref_len[first + begin :]
    _symbols_from(query_start, query_origin, columns[begin:end])
    _symbols_from(ref_start, ref_origin, columns[n + begin : n + end])
    lengths = columns[2 * n + begin : 2 * n + end], columns[3 * n + begin : 3 * n + end]
    _lengths(query_len, shift[first + begin :], lengths[0])
    _lengths(ref_len, shift[first + begin :], lengths[1])
    _remove_too_long(lengths[0], lengths[1])


@core
def _symbols_from(words, origin, out):
    for j in range(len(out)):
        out[j] = (words[j] - origin) << 5


@core
def _lengths(lengths, shift, out):
    """Write lengths; of pairs of more than 2 bits a symbol one above the greatest allowed."""
    for j in range(len(out)):
        out[j] = lengths[j] if shift[j] == 1 else np.int64(MAX_SMALL_LENGTH + 1)
