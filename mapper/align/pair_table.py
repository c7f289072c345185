"""Pairwise alignments to lines of a table, tab-separated."""

from __future__ import annotations

import numpy as np

from mapper.align.pairs import PairBatch
from mapper.align.result import STATUS_NAMES, PairAlignments
from mapper.io.sam import put_int
from mapper.jit.accelerate import driver

COLUMNS = ("pair", "query_length", "ref_length", "score", "status", "cigar")
SPAN_COLUMNS = ("query_start", "query_end", "ref_start", "ref_end")
"""Follow where a span leaves ends unaligned."""

_TAB, _NEWLINE, _STAR = b"\t\n*"
CIGAR_LETTERS = np.frombuffer(b"MIDNSHP=X???????", np.uint8).copy()
STATUSES = np.frombuffer(b"".join(name.ljust(16).encode() for name in STATUS_NAMES), np.uint8)
STATUSES = STATUSES.reshape(-1, 16).copy()
_FIXED = 200
"""Characters that the numbers and the status of a line take at most."""


def header(with_spans: bool) -> bytes:
    """Return the line of column names."""
    names = COLUMNS + (SPAN_COLUMNS if with_spans else ())
    return ("\t".join(names) + "\n").encode()


def encode_rows(
    first_pair: int, batch: PairBatch, found: PairAlignments, with_spans: bool
) -> np.ndarray:
    """Return one line for each pair: uint8, shape (n_bytes,).

    A score or CIGAR that there is not is ``*``, an unknown coordinate too.
    """
    if found.cigar_ops is None or found.cigar_offsets is None:
        ops, offsets = np.empty(0, np.uint32), np.zeros(found.n_pairs + 1, np.int64)
    else:
        ops, offsets = found.cigar_ops, found.cigar_offsets
    out = np.empty(found.n_pairs * _FIXED + 11 * len(ops), np.uint8)
    spans = np.stack(found[2:6], axis=1)
    n = _fill(
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
def _fill(first_pair, query_lens, ref_lens, scores, status, has_result, cigar_offsets, cigar_ops,
          spans, with_spans, out):  # fmt: skip
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
    """Write a number, or ``*`` if it is not known; return the position after it."""
    if known:
        return put_int(out, at, value)
    out[at] = _STAR
    return at + 1
