"""Text of alignments: a table of pairs; for sets a table, PAF, or FASTA with gaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from mapper.align.pairs import PairBatch
from mapper.align.result import STATUS_NAMES, PairAlignments
from mapper.cigar import EQUAL, D, I
from mapper.io.sam import put_int
from mapper.jit.accelerate import driver

# --- table of pairs ---

PAIR_COLUMNS = ("pair", "query_length", "ref_length", "score", "status", "cigar")
SPAN_COLUMNS = ("query_start", "query_end", "ref_start", "ref_end")
"""Further columns, for spans with free ends."""

_TAB, _NEWLINE, _STAR = b"\t\n*"
CIGAR_LETTERS = np.frombuffer(b"MIDNSHP=X???????", np.uint8).copy()
STATUSES = np.frombuffer(b"".join(name.ljust(16).encode() for name in STATUS_NAMES), np.uint8)
STATUSES = STATUSES.reshape(-1, 16).copy()
_PAIR_FIXED = 200
"""Most characters of the numbers and the status of a line."""


def pair_header(with_spans: bool) -> bytes:
    """Return the line of column names."""
    names = PAIR_COLUMNS + (SPAN_COLUMNS if with_spans else ())
    return ("\t".join(names) + "\n").encode()


def encode_rows(
    first_pair: int, batch: PairBatch, found: PairAlignments, with_spans: bool
) -> np.ndarray:
    """Return one line for each pair: uint8, shape (n_bytes,).

    A missing score, CIGAR or coordinate is ``*``.
    """
    if found.cigar_ops is None or found.cigar_offsets is None:
        ops, offsets = np.empty(0, np.uint32), np.zeros(found.n_pairs + 1, np.int64)
    else:
        ops, offsets = found.cigar_ops, found.cigar_offsets
    out = np.empty(found.n_pairs * _PAIR_FIXED + 11 * len(ops), np.uint8)
    spans = np.stack(found[2:6], axis=1)
    n = _fill_pairs(
        first_pair, batch.query_end - batch.query_start, batch.ref_end - batch.ref_start,
        found.score, found.status, found.has_results(), offsets, ops, spans, with_spans, out,
    )  # fmt: skip
    return out[:n]


@driver
def put_status(out, at, status):
    """Write the name of a status; return the position after it."""
    for letter in STATUSES[status]:
        if letter != 32:
            out[at] = letter
            at += 1
    return at


@driver
def put_cigar(out, at, ops, start, end):
    """Write operations start:end, or ``*`` if there are none; return the position after them."""
    if start == end:
        out[at] = _STAR
        return at + 1
    for j in range(start, end):
        at = put_int(out, at, ops[j] >> 4)
        out[at] = CIGAR_LETTERS[ops[j] & 15]
        at += 1
    return at


@driver
def _fill_pairs(first_pair, query_lens, ref_lens, scores, status, has_result, cigar_offsets,
                cigar_ops, spans, with_spans, out):  # fmt: skip
    at = 0
    for i in range(len(scores)):
        for value in (first_pair + i, query_lens[i], ref_lens[i]):
            at = put_int(out, at, value)
            out[at] = _TAB
            at += 1
        at = put_known(out, at, scores[i], has_result[i])
        out[at] = _TAB
        at += 1
        at = put_status(out, at, status[i])
        out[at] = _TAB
        at = put_cigar(out, at + 1, cigar_ops, cigar_offsets[i], cigar_offsets[i + 1])
        if with_spans:
            for j in range(4):
                out[at] = _TAB
                at = put_known(out, at + 1, spans[i, j], spans[i, j] >= 0)
        out[at] = _NEWLINE
        at += 1
    return at


@driver
def put_known(out, at, value, known):
    """Write a number, or ``*`` if it is unknown; return the position after it."""
    if known:
        return put_int(out, at, value)
    out[at] = _STAR
    return at + 1


# --- alignments of sets ---

FORMATS = ("tsv", "paf", "fasta")
SET_COLUMNS = (
    "query",
    "ref",
    "query_length",
    "ref_length",
    "score",
    "status",
    "cigar",
    *SPAN_COLUMNS,
)

_PLUS, _GAP, _SPACE, _GREATER = b"+- >"
_SET_FIXED = 256
"""Most characters of a pair without names, CIGAR and letters."""

_SCORE, _CIGAR = (np.frombuffer(text, np.uint8).copy() for text in (b"AS:i:", b"cg:Z:"))
_NO_MAPQ = 255


class NamedSet(NamedTuple):
    """Named sequences; sequence i is ``letters[offsets[i]:offsets[i + 1]]``, its name likewise."""

    names: np.ndarray  # uint8, ASCII
    name_offsets: np.ndarray  # int64 (n + 1,)
    letters: np.ndarray  # uint8, ASCII
    offsets: np.ndarray  # int64 (n + 1,)

    @property
    def n_sequences(self) -> int:
        return len(self.offsets) - 1


def named_set(records: Iterable[tuple[bytes, bytes]]) -> NamedSet:
    """Return a set of names and sequences."""
    names, sequences = bytearray(), bytearray()
    name_ends, ends = [0], [0]
    for name, sequence in records:
        names += name
        sequences += sequence
        name_ends.append(len(names))
        ends.append(len(sequences))
    return NamedSet(
        np.frombuffer(names, np.uint8), np.array(name_ends, np.int64),
        np.frombuffer(sequences, np.uint8), np.array(ends, np.int64),
    )  # fmt: skip


def set_header(form: str) -> bytes:
    """Return the header of a file of a format."""
    return ("\t".join(SET_COLUMNS) + "\n").encode() if form == "tsv" else b""


def is_written(form: str, found: PairAlignments) -> np.ndarray:
    """Return True for each pair that a format contains: bool (n,).

    A table contains every pair; PAF and FASTA those with aligned symbols.
    """
    if form == "tsv":
        return np.ones(found.n_pairs, bool)
    counts = np.zeros(found.n_pairs, np.int64)
    if found.cigar_offsets is not None:
        counts = np.diff(found.cigar_offsets)
    return found.has_results() & (counts > 0)


def encode_alignments(
    form: str, queries: NamedSet, refs: NamedSet, query: np.ndarray, ref: np.ndarray,
    found: PairAlignments,
) -> np.ndarray:  # fmt: skip
    """Return the text of alignments: uint8, shape (n_bytes,).

    Parameters
    ----------
    form
        ``tsv``, a line a pair after :func:`set_header`; ``paf``, PAF's twelve columns, the
        score and the CIGAR; ``fasta``, two records a pair, the aligned parts with gaps. The last
        two need CIGARs, and contain the pairs of :func:`is_written` only.
    query, ref
        Index of each pair's sequences, int64.
    """
    if found.cigar_ops is None or found.cigar_offsets is None:
        ops, offsets = np.empty(0, np.uint32), np.zeros(found.n_pairs + 1, np.int64)
    else:
        ops, offsets = found.cigar_ops, found.cigar_offsets
    names = np.diff(queries.name_offsets)[query] + np.diff(refs.name_offsets)[ref]
    size = found.n_pairs * _SET_FIXED + int(names.sum())
    size += 2 * int((ops >> 4).sum()) if form == "fasta" else 11 * len(ops)
    out = np.empty(size, np.uint8)
    n = _fill_sets(
        FORMATS.index(form), queries, refs, query, ref, found.score, found.status,
        found.has_results(), is_written(form, found), np.stack(found[2:6], axis=1), offsets, ops,
        out,
    )  # fmt: skip
    return out[:n]


@driver
def _fill_sets(form, queries, refs, query, ref, scores, status, has_result, written, spans, offsets,
          ops, out):  # fmt: skip
    at = 0
    for i in range(len(query)):
        if not written[i]:
            continue
        start, end = offsets[i], offsets[i + 1]
        if form == 0:
            at = _put_row(queries, refs, query[i], ref[i], out, at)
            at = put_known(out, at, scores[i], has_result[i])
            out[at] = _TAB
            at = put_status(out, at + 1, status[i])
            out[at] = _TAB
            at = put_cigar(out, at + 1, ops, start, end)
            for j in range(4):
                out[at] = _TAB
                at = put_known(out, at + 1, spans[i, j], spans[i, j] >= 0)
        elif form == 1:
            at = _put_paf(
                queries, refs, query[i], ref[i], scores[i], spans[i], ops[start:end], out, at
            )
        else:
            for side in range(2):
                sequences, x = (queries, query[i]) if side == 0 else (refs, ref[i])
                out[at] = _GREATER
                at = _put_name(sequences, x, out, at + 1)
                for value in (spans[i, 2 * side], spans[i, 2 * side + 1], scores[i]):
                    out[at] = _SPACE
                    at = put_int(out, at + 1, value)
                out[at] = _NEWLINE
                first = sequences.offsets[x] + spans[i, 2 * side]
                at = _put_gapped(sequences.letters, first, ops, start, end, side, out, at + 1)
                if side == 0:
                    out[at] = _NEWLINE
                    at += 1
        out[at] = _NEWLINE
        at += 1
    return at


@driver
def _put_name(sequences, x, out, at):
    for letter in sequences.names[sequences.name_offsets[x] : sequences.name_offsets[x + 1]]:
        out[at] = letter
        at += 1
    return at


@driver
def _put_row(queries, refs, query, ref, out, at):
    """Write names and lengths, each followed by a tab."""
    at = _put_name(queries, query, out, at)
    out[at] = _TAB
    at = _put_name(refs, ref, out, at + 1)
    out[at] = _TAB
    at = put_int(out, at + 1, queries.offsets[query + 1] - queries.offsets[query])
    out[at] = _TAB
    at = put_int(out, at + 1, refs.offsets[ref + 1] - refs.offsets[ref])
    out[at] = _TAB
    return at + 1


@driver
def _put_paf(queries, refs, query, ref, score, span, ops, out, at):
    n_equal = n_columns = np.int64(0)
    for op in ops:
        n_columns += op >> 4
        if op & 15 == EQUAL:
            n_equal += op >> 4
    for side in range(2):
        sequences, x = (queries, query) if side == 0 else (refs, ref)
        at = _put_name(sequences, x, out, at)
        length = sequences.offsets[x + 1] - sequences.offsets[x]
        for value in (length, span[2 * side], span[2 * side + 1]):
            out[at] = _TAB
            at = put_int(out, at + 1, value)
        out[at] = _TAB
        at += 1
        if side == 0:
            out[at] = _PLUS
            out[at + 1] = _TAB
            at += 2
    at = put_int(out, at, n_equal)
    out[at] = _TAB
    at = put_int(out, at + 1, n_columns)
    out[at] = _TAB
    at = put_int(out, at + 1, _NO_MAPQ)
    out[at] = _TAB
    at += 1
    for letter in _SCORE:
        out[at] = letter
        at += 1
    at = put_int(out, at, score)
    out[at] = _TAB
    at += 1
    for letter in _CIGAR:
        out[at] = letter
        at += 1
    return put_cigar(out, at, ops, 0, len(ops))


@driver
def _put_gapped(letters, at_letter, ops, start, end, side, out, at):
    """Write the letters of one side, with gaps where operations consume only the other."""
    gap = D if side == 0 else I
    for op in ops[start:end]:
        for _ in range(op >> 4):
            if op & 15 == gap:
                out[at] = _GAP
            else:
                out[at] = letters[at_letter]
                at_letter += 1
            at += 1
    return at
