"""Batches of pairs: lists, arrays or files of sequences become flat arrays of letters, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mapper.align.threads import in_slices, thread_count
from mapper.errors import UsageError
from mapper.jit.accelerate import core, driver

MAX_LENGTH = 2**30
"""Longest sequence: offsets are int32 with room for sums, and null values."""

OFFSETS_RULE = "offsets must begin with 0, not fall, and lie in the array"
OUTSIDE = "sequences must lie in their arrays"
TOO_LONG = f"a sequence is longer than {MAX_LENGTH} symbols"


def limit_of(name: str, limit: int | None, most: int) -> int:
    """Return `limit`, or `most` for None; raise UsageError unless it is a whole number >= 0."""
    if limit is None:
        return most
    try:
        if limit >= 0 and limit == limit // 1:
            return int(min(limit, most))
    except TypeError:  # no number
        pass
    raise UsageError(f"{name} {limit!r}: a whole number, 0 or more, is expected")


def check_side(start: np.ndarray, end: np.ndarray, side: str, threads: int) -> None:
    """Raise UsageError unless lengths are 0 to MAX_LENGTH.

    Parameters
    ----------
    start, end
        int64 (n,): half-open bounds, in symbols.
    side
        Name of these sequences in messages.
    threads
        Threads that check; no effect on the result.
    """
    wrong = in_slices(
        len(start), threads,
        lambda first, last: bool(_wrong_lengths(start[first:last], end[first:last])),
    )  # fmt: skip
    if any(wrong):
        falls = any(in_slices(len(start), 1, lambda a, b: bool((end[a:b] < start[a:b]).any())))
        raise UsageError(f"{side}: {OFFSETS_RULE if falls else TOO_LONG}")


@core
def are_lengths_wrong(start, end):
    """Return True if any length is below 0 or above MAX_LENGTH."""
    signs = np.int64(0)
    for i in range(len(start)):
        length = end[i] - start[i]
        signs |= length | (np.int64(MAX_LENGTH) - length)
    return signs < 0


@driver
def _wrong_lengths(start, end):
    return are_lengths_wrong(start, end)


@core
def is_misplaced(start, length, shift, end):
    """Return True if a packed sequence does not lie between word 1 and word `end`, excluded."""
    bits = length << np.int64(shift & 3)  # other shifts are wrong in any case
    wrong = (start < 1) | (length < 0) | (length > MAX_LENGTH) | (shift < 1) | (shift > 3)
    return wrong | (start + ((bits + 63) >> 6) > end)


PADDING = 8
"""Bytes after the last sequence of a batch, so that eight can be loaded at a time."""

_PIECE = 1 << 16
"""Letters that are joined and encoded at a time, in the cache: all at once, or one sequence after
the other, takes five times as long."""


class PairBatch(NamedTuple):
    """Pairs as letters; query i is ``queries[query_start[i]:query_end[i]]``.

    Both sides may lie in one array. 8 bytes of padding must follow the last sequence.
    """

    queries: np.ndarray  # uint8, ASCII
    query_start: np.ndarray  # int64 (n,)
    query_end: np.ndarray  # int64 (n,)
    refs: np.ndarray  # uint8, ASCII
    ref_start: np.ndarray  # int64 (n,)
    ref_end: np.ndarray  # int64 (n,)

    @property
    def n_pairs(self) -> int:
        return len(self.query_start)


Sequences = Sequence[str] | Sequence[bytes] | tuple[np.ndarray, np.ndarray] | Path


def batch_of(
    queries: Sequences, refs: Sequences, padded: bool = True, checked: bool = True
) -> PairBatch:
    """Return a batch of pairs.

    Parameters
    ----------
    queries, refs
        Lists of str or bytes, or tuples of a flat uint8 array of ASCII and its offsets
        (int64, n + 1 values, first 0), or the path of a FASTA or FASTQ file.
    padded
        Copy arrays, to add the padding; otherwise they are used directly.
    checked
        Check all lengths; otherwise the caller does (:func:`check_lengths`).

    Raises
    ------
    UsageError
        If the numbers of both sides differ, a sequence is longer than MAX_LENGTH, text is
        not ASCII, or arrays are not of this form.
    """
    query_bytes, query_offsets = sequence_set(queries, "queries", padded=padded, checked=checked)
    ref_bytes, ref_offsets = sequence_set(refs, "refs", padded=padded, checked=checked)
    check_numbers(len(query_offsets) - 1, len(ref_offsets) - 1)
    return PairBatch(
        query_bytes, query_offsets[:-1], query_offsets[1:],
        ref_bytes, ref_offsets[:-1], ref_offsets[1:],
    )  # fmt: skip


def check_numbers(n_queries: int, n_refs: int) -> None:
    """Raise UsageError unless there are as many queries as references."""
    if n_queries != n_refs:
        raise UsageError(
            f"{n_queries} queries and {n_refs} references: each query needs its reference"
        )


def sequence_set(
    sequences: Sequences, side: str, *, padded: bool = True, checked: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences as a flat array of ASCII and their offsets.

    `side` names them in messages; errors, `padded` and `checked` are as for :func:`batch_of`.
    """
    if isinstance(sequences, (str, bytes)):
        raise UsageError(
            f"{side}: a list of sequences is expected, not one sequence (a file is a pathlib.Path)"
        )
    if isinstance(sequences, Path):
        from mapper.io.sequences import read_sequences

        sequences = list(read_sequences(str(sequences)))
    if isinstance(sequences, tuple) and len(sequences) == 2 and isinstance(
        sequences[0], np.ndarray
    ):  # fmt: skip
        given, offsets = sequences
        offsets = np.ascontiguousarray(offsets, np.int64)
        if given.dtype != np.uint8 or given.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0:
            raise UsageError(f"{side}: a flat uint8 array and its int64 offsets are expected")
        if offsets[0] != 0 or not 0 <= offsets[-1] <= len(given):
            raise UsageError(f"{side}: {OFFSETS_RULE}")
        if checked:
            check_side(offsets[:-1], offsets[1:], side, thread_count(None))
        letters = np.ascontiguousarray(given[: offsets[-1]])
        if padded:
            letters = np.concatenate([letters, np.zeros(PADDING, np.uint8)])
    else:
        letters, lengths = _joined(as_list(sequences, side), side)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if lengths.max(initial=0) > MAX_LENGTH:
            raise UsageError(f"{side}: {TOO_LONG}")
    return letters, offsets


def as_list(sequences: Any, side: str) -> list[Any]:
    """Return sequences as a list; raise UsageError for what has no items, or none in order."""
    if type(sequences) is list:
        return sequences
    if isinstance(sequences, Mapping):
        raise UsageError(f"{side}: a dict is no list of sequences; give list(d.values())")
    if isinstance(sequences, set | frozenset):
        raise UsageError(f"{side}: a set has no order to pair sequences by; give a list")
    try:
        return list(sequences)
    except TypeError as error:
        raise UsageError(f"{side}: {sequences!r:.60} is no list of sequences") from error


def _joined(sequences: list[Any], side: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the letters of all sequences, with padding, and their lengths (int64)."""
    try:
        return _in_pieces(sequences, lambda texts: "".join(texts).encode("ascii"))
    except (TypeError, UnicodeEncodeError):  # not all are str of ASCII
        return _in_pieces(bytes_of_each(sequences, side), b"".join)


def _in_pieces(
    sequences: list[Any], join: Callable[[list[Any]], bytes]
) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    letters = np.empty(int(lengths.sum()) + PADDING, np.uint8)
    step = max(1, _PIECE * len(sequences) // len(letters))
    at = 0
    for first in range(0, len(sequences), step):
        piece = join(sequences[first : first + step])
        letters[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    letters[at:] = 0
    return letters, lengths


def bytes_of_each(sequences: list[Any], side: str) -> list[bytes]:
    """Return sequences as bytes; raise UsageError for the first that is none, by its index."""
    return [bytes_of(sequence, side, i) for i, sequence in enumerate(sequences)]


def bytes_of(sequence: object, argument: str, index: int | None = None) -> bytes:
    """Return a sequence, str of ASCII or flat bytes of any kind, as bytes.

    Raises
    ------
    UsageError
        For anything else; names `argument`, and `index` in it.
    """
    if isinstance(sequence, bytes):
        return sequence
    if isinstance(sequence, str):
        try:
            return sequence.encode("ascii")
        except UnicodeEncodeError as error:
            raise not_ascii(error, argument, index) from error
    if isinstance(sequence, bytearray):
        return bytes(sequence)
    if isinstance(sequence, memoryview) and sequence.itemsize == sequence.ndim == 1:
        return sequence.tobytes()
    if isinstance(sequence, np.ndarray) and sequence.dtype == np.uint8 and sequence.ndim == 1:
        return sequence.tobytes()
    what = f"{sequence!r:.40}"
    if isinstance(sequence, np.ndarray | memoryview):
        kind = sequence.dtype if isinstance(sequence, np.ndarray) else repr(sequence.format)
        what = f"an array of shape {sequence.shape} and type {kind}"
    raise UsageError(
        f"{_place(argument, index)}: {what} is no sequence; str, bytes or flat uint8 arrays are "
        "expected (a file is a pathlib.Path, not in a list)"
    )


def not_ascii(error: UnicodeEncodeError, argument: str, index: int | None = None) -> UsageError:
    """Return the error of a str that is not ASCII."""
    return UsageError(
        f"{_place(argument, index)}: {error.object[error.start]!r} is not ASCII (position "
        f"{error.start}); calls that have symbols='bytes' compare other text as bytes (s.encode())"
    )


def _place(argument: str, index: int | None) -> str:
    return argument if index is None else f"{argument}[{index}]"


def check_lengths(batch: PairBatch, threads: int) -> None:
    """Raise UsageError unless all lengths are 0 to MAX_LENGTH."""
    check_side(batch.query_start, batch.query_end, "queries", threads)
    check_side(batch.ref_start, batch.ref_end, "refs", threads)


def checked_batch(batch: PairBatch, padded: bool, checked: bool = True) -> PairBatch:
    """Return a batch of a caller's arrays: compiled code reads them at any bounds it is given.

    Parameters
    ----------
    padded
        Copy the letters where the padding is missing.
    checked
        Check all bounds; otherwise the caller does.

    Raises
    ------
    UsageError
        If columns differ in length, a sequence does not lie in its array, or is longer than
        MAX_LENGTH.
    """
    if len({len(column) for column in (*batch[1:3], *batch[4:])}) > 1:
        raise UsageError("pairs: the columns of bounds differ in length")
    sides = [batch[:3], batch[3:]]
    for i, name in enumerate(("queries", "refs")):
        letters, start, end = sides[i]
        if checked:
            start, end = (np.ascontiguousarray(column, np.int64) for column in (start, end))
            threads = thread_count(None)
            check_side(start, end, name, threads)
            if any(in_slices(len(start), threads, partial(_is_outside, start, end, len(letters)))):
                raise UsageError(f"{name}: {OUTSIDE}")
        if padded and end.max(initial=0) + PADDING > len(letters):
            letters = np.concatenate([letters, np.zeros(PADDING, np.uint8)])
        sides[i] = letters, start, end
    return PairBatch(*sides[0], *sides[1])


@driver
def _are_outside(start, end, n):
    signs = np.int64(0)
    for i in range(len(start)):
        signs |= start[i] | (n - end[i])
    return signs < 0


def _is_outside(start: np.ndarray, end: np.ndarray, n: int, first: int, last: int) -> bool:
    """Return True if a sequence of first:last does not lie in an array of n letters."""
    return bool(_are_outside(start[first:last], end[first:last], n))
