"""Reader of batches of pairs: from ``.seq`` files, or two FASTA or FASTQ files read in step.

A ``.seq`` file has two lines a pair, ``>`` and the query, ``<`` and the reference (as in
WFA2-lib's tests). Blank lines are skipped; a line may be of any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mapper.align.pairs import PADDING, PairBatch, batch_of
from mapper.errors import InputFormatError, UsageError
from mapper.io.fastq_errors import show
from mapper.io.input_file import BrokenStreamError, ByteSource, same_file
from mapper.io.sequences import read_sequences

BATCH_BYTES = 16 << 20
"""Text of a batch; a longer pair makes a batch of its own."""

_MARKS = np.frombuffer(b"><", np.uint8)
_CR, _LF = b"\r\n"


def read_pairs(paths: Sequence[str], batch_bytes: int = BATCH_BYTES) -> Iterator[PairBatch]:
    """Yield the pairs of one ``.seq`` file, or of two FASTA or FASTQ files, in order.

    Needs memory for a few batches, or for the longest pair.

    Raises
    ------
    UsageError
        For an invalid number of files, or standard input twice.
    InputFormatError
        For an invalid file; names it, and line or record.
    """
    if len(paths) == 1:
        return _read_seq(paths[0], batch_bytes)
    if len(paths) != 2:
        raise UsageError(f"{len(paths)} files; give one of pairs, or two to be read in step")
    if "-" in paths and same_file(*paths):
        raise UsageError("standard input cannot be read twice; give two files")
    return _read_in_step(paths[0], paths[1], batch_bytes)


def read_all_pairs(path: str) -> PairBatch:
    """Return all pairs of one ``.seq`` file; raises as :func:`read_pairs`."""
    batches = list(_read_seq(path, BATCH_BYTES))
    if not batches:
        return batch_of([], [])
    sizes = np.array([len(batch.queries) for batch in batches])
    before = np.repeat(np.cumsum(sizes) - sizes, [batch.n_pairs for batch in batches])
    letters = np.concatenate([batch.queries for batch in batches])  # and references
    query_start, query_end, ref_start, ref_end = (
        np.concatenate([getattr(batch, name) for batch in batches]) + before
        for name in ("query_start", "query_end", "ref_start", "ref_end")
    )
    return PairBatch(letters, query_start, query_end, letters, ref_start, ref_end)


def _read_seq(path: str, batch_bytes: int) -> Iterator[PairBatch]:
    source = ByteSource(path)
    data = np.empty(batch_bytes + PADDING, np.uint8)
    end = n_lines = 0
    ended = False
    try:
        while not ended:
            if end == len(data) - PADDING:
                data = np.concatenate([data, np.empty(len(data), np.uint8)])
            room = len(data) - PADDING
            while end < room and not ended:
                n = source.readinto(data.data[end:room])
                end += n
                ended = n == 0
            batch, used, lines = _pairs_of_text(source.name, data, end, n_lines, ended)
            if batch.n_pairs:
                yield batch
            n_lines += lines
            rest = data[used:end]
            data = np.empty(max(batch_bytes, len(rest)) + PADDING, np.uint8)
            data[: len(rest)] = rest
            end = len(rest)
    except BrokenStreamError as error:
        raise InputFormatError(f"{source.name}: {error}; after line {n_lines}") from error
    finally:
        source.close()


def _pairs_of_text(
    name: str, data: np.ndarray, end: int, n_lines: int, ended: bool
) -> tuple[PairBatch, int, int]:
    """Return the whole pairs of ``data[:end]``, the bytes they take, and their lines.

    `n_lines` lines came before; `ended` says that the file ends at `end`.
    """
    newlines = np.flatnonzero(data[:end] == _LF)
    if ended and end and (len(newlines) == 0 or newlines[-1] != end - 1):
        newlines = np.append(newlines, end)
    starts = np.concatenate([[0], newlines[:-1] + 1]) if len(newlines) else newlines
    ends = newlines - ((newlines > starts) & (data[newlines - 1] == _CR))
    solid = np.flatnonzero(ends > starts)
    marks = data[starts[solid]]
    wrong = np.flatnonzero(marks != _MARKS[np.arange(len(solid)) & 1])
    if len(wrong):
        raise _wrong_line(name, data, starts, ends, solid, int(wrong[0]), n_lines)
    if ended and len(solid) & 1:
        raise InputFormatError(
            f"{name}: ends with line {n_lines + solid[-1] + 1}, a '>query' line; the line "
            "'<reference' that belongs to it is missing (a truncated file?)"
        )
    whole = solid[: len(solid) & ~1]
    used_lines = len(newlines) if ended else (int(whole[-1]) + 1 if len(whole) else 0)
    used = 0 if used_lines == 0 else min(int(newlines[used_lines - 1]) + 1, end)
    first, last = starts[whole] + 1, ends[whole]
    queries, refs = (first[::2].copy(), last[::2].copy()), (first[1::2].copy(), last[1::2].copy())
    return PairBatch(data, *queries, data, *refs), used, used_lines


def _wrong_line(
    name: str, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, solid: np.ndarray,
    wrong: int, n_lines: int,
) -> InputFormatError:  # fmt: skip
    line = int(solid[wrong])
    text = show(data[starts[line] : min(ends[line], starts[line] + 20)].tobytes())
    expected = "'<' and a reference" if wrong & 1 else "'>' and a query"
    return InputFormatError(
        f"{name}: line {n_lines + line + 1} begins {text}; {expected} is expected there (two "
        "lines a pair; give FASTA or FASTQ as two files, queries and references)"
    )


def _read_in_step(query_path: str, ref_path: str, batch_bytes: int) -> Iterator[PairBatch]:
    queries: list[bytes] = []
    refs: list[bytes] = []
    n_pairs = n_bytes = 0
    refs_left = read_sequences(ref_path)
    for query in read_sequences(query_path):
        ref = next(refs_left, None)
        if ref is None:
            raise InputFormatError(
                f"{ref_path} ends after {n_pairs} records, {query_path} goes on; each query needs "
                "its reference"
            )
        queries.append(query)
        refs.append(ref)
        n_pairs += 1
        n_bytes += len(query) + len(ref) + 32
        if n_bytes >= batch_bytes:
            yield batch_of(queries, refs)
            queries, refs, n_bytes = [], [], 0
    if next(refs_left, None) is not None:
        raise InputFormatError(
            f"{query_path} ends after {n_pairs} records, {ref_path} goes on; each reference needs "
            "its query"
        )
    if queries:
        yield batch_of(queries, refs)
