"""A pair of two strings: its letters go to compiled code at once, its result comes as a scalar.

What a call of a list costs in Python, some 100 microseconds, is many times the alignment of two
short sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mapper.align.packing import bad_letter, check_symbols, code_tables
from mapper.align.result import (
    HEURISTIC,
    NO_SCORE,
    OK,
    STATUS_NAMES,
    Columns,
    PairAlignment,
    PairAlignments,
)
from mapper.cigar import to_text
from mapper.cuda.devices import AUTO, CPU, check_device_name
from mapper.errors import UsageError
from mapper.jit.accelerate import driver

MOST_LETTERS = 1 << 14
"""Of both strings: longer ones are aligned by a thread, where no signal meets compiled code
(:func:`mapper.parallel.pool.dedicated_thread`)."""

N_ROW = 8
SCORE, STATUS, QUERY_START, QUERY_END, REF_START, REF_END, N_OPS, BAD = range(N_ROW)
"""Items of a row of results: those of PairAlignments, the number of operations, and the position
of a letter without a code, or -1."""


@driver
def columns_of_row(row):
    """Return the columns of one pair that lie in a row, without a result; the status lies apart."""
    for i in range(N_OPS):
        row[i] = NO_SCORE
    row[N_OPS] = 0
    status = np.empty(1, np.int8)
    status[0] = OK
    return Columns(
        row[SCORE : SCORE + 1], status, row[QUERY_START : QUERY_START + 1],
        row[QUERY_END : QUERY_END + 1], row[REF_START : REF_START + 1], row[REF_END : REF_END + 1],
    )  # fmt: skip


PairResult = int | None | PairAlignment
"""Result of two strings: the score, None without one, or with a CIGAR an alignment."""


def is_single(queries: object, refs: object) -> bool:
    """Return True for two strings, or two bytes; raise UsageError for one beside something else."""
    if isinstance(queries, str | bytes) and isinstance(refs, str | bytes):
        return True
    if isinstance(queries, str | bytes) or isinstance(refs, str | bytes):
        one, other = (
            ("queries", "refs") if isinstance(queries, str | bytes) else ("refs", "queries")
        )
        raise UsageError(
            f"{one} is one sequence, and {other} is not; give two strings, or two lists (a file is "
            "a pathlib.Path)"
        )
    return False


def is_cpu(device: str) -> bool:
    """Return True unless a device is asked for by name: for two strings the CPU is faster."""
    check_device_name(device)
    return device in (CPU, AUTO)


def scalar_of(found: PairAlignments) -> PairResult:
    """Return the only pair of some results."""
    if found.cigar_ops is None:
        return int(found.score[0]) if found.has_result(0) else None
    return found.pair(0)


@cache
def _tables(symbols: str) -> tuple[np.ndarray, np.ndarray]:
    check_symbols(symbols)
    return code_tables(symbols)


def joined_letters(query: str | bytes, ref: str | bytes) -> tuple[np.ndarray, int] | None:
    """Return the letters of both (uint8) and the length of the first; None if they are not few."""
    if len(query) + len(ref) > MOST_LETTERS:
        return None
    try:
        one = query.encode("ascii") if isinstance(query, str) else query
        other = ref.encode("ascii") if isinstance(ref, str) else ref
    except UnicodeEncodeError as error:
        side = "queries" if error.object is query else "refs"
        raise UsageError(f"{side}: {error.object[error.start]!r} is not ASCII") from error
    # An array that may be written to, as all others: compiled code is made for such ones.
    return np.frombuffer(bytearray(one + other), np.uint8), len(one)


Align = Callable[..., np.ndarray]
"""Takes letters, length of the query, two tables of codes, True for bytes, True for a path, and a
row to be filled; returns the operations (uint32)."""


def align_one(
    align: Align, letters: tuple[np.ndarray, int], symbols: str, cigar: bool, first_pair: int
) -> PairResult:
    """Align two strings.

    Raises
    ------
    InputFormatError
        For a character that is no IUPAC nucleotide, unless `symbols` is ``bytes``.
    """
    flat, n_query = letters
    tables = _tables(symbols)
    row = np.empty(N_ROW, np.int64)
    ops = align(flat, n_query, *tables, symbols == "bytes", cigar, row)
    bad = int(row[BAD])
    if bad >= 0:
        pos, side = (bad, "query") if bad < n_query else (bad - n_query, "reference")
        raise bad_letter(first_pair, int(flat[bad]), pos, side)
    return result_of(row, ops, cigar)


def result_of(row: np.ndarray, ops: np.ndarray, cigar: bool) -> PairResult:
    """Return the result of two strings from their row and their operations."""
    values: list[int] = row.tolist()
    status = values[STATUS]
    score = values[SCORE] if status in (OK, HEURISTIC) else None
    if not cigar:
        return score
    text = None
    if score is not None:
        text = to_text(ops) if len(ops) else ""
    return PairAlignment(score, STATUS_NAMES[status], text, *values[QUERY_START : REF_END + 1])
