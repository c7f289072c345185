"""A pair of two strings: its letters go to compiled code at once, its result comes as a scalar.

What a call of a list costs in Python, some 100 microseconds, is many times the alignment of two
short sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mapper.align.packing import bad_letter, check_symbols, code_tables
from mapper.align.pairs import not_ascii
from mapper.align.result import (
    HEURISTIC,
    NO_SCORE,
    OK,
    STATUS_NAMES,
    Columns,
    PairAlignment,
    PairAlignments,
)
from mapper.align.tables import put_cigar
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


@driver
def cigar_text(ops):
    """Return operations (uint32) as SAM text (uint8), empty for none."""
    text = np.empty(11 * len(ops), np.uint8)
    n_letters = 0
    if len(ops) > 0:  # put_cigar() writes a star for none
        n_letters = put_cigar(text, 0, ops, 0, len(ops))
    return text[:n_letters]


PairResult = int | None | PairAlignment
"""Result of two strings: the score, None without one, or with a CIGAR an alignment."""


def is_single(queries: object, refs: object) -> bool:
    """Return True for two strings, or two bytes; raise UsageError for one beside something else."""
    is_query, is_ref = isinstance(queries, (str, bytes)), isinstance(refs, (str, bytes))
    if is_query and is_ref:
        return True
    if is_query or is_ref:
        one, other = ("queries", "refs") if is_query else ("refs", "queries")
        raise UsageError(
            f"{one} is one sequence, and {other} is not; give two strings, or two lists (a file is "
            "a pathlib.Path)"
        )
    return False


def is_cpu(device: str) -> bool:
    """Return True unless a device is asked for by name: for two strings the CPU is faster."""
    if device in (CPU, AUTO):
        return True
    check_device_name(device)
    return False


def scalar_of(found: PairAlignments) -> PairResult:
    """Return the only pair of some results."""
    if found.cigar_ops is None:
        return int(found.score[0]) if found.has_result(0) else None
    return found.pair(0)


@cache
def _tables(symbols: str) -> tuple[np.ndarray, np.ndarray]:
    check_symbols(symbols)
    return code_tables(symbols)


def joined_letters(
    query: str | bytes, ref: str | bytes, names: tuple[str, str] = ("queries", "refs")
) -> tuple[np.ndarray, int] | None:
    """Return the letters of both (uint8) and the length of the first; None if they are not few.

    `names` are those of the arguments, for messages.
    """
    if len(query) + len(ref) > MOST_LETTERS:
        return None
    try:
        one = query.encode("ascii") if isinstance(query, str) else query
        other = ref.encode("ascii") if isinstance(ref, str) else ref
    except UnicodeEncodeError as error:
        raise not_ascii(error, names[0 if error.object is query else 1]) from error
    # An array that may be written to, as all others: compiled code is made for such ones.
    letters = bytearray(one)
    letters += other
    return np.frombuffer(letters, np.uint8), len(one)


Align = Callable[..., np.ndarray]
"""Takes letters, length of the query, two tables of codes, True for bytes, True for a path, and a
row to be filled; returns the CIGAR, as text (uint8) or as operations (uint32)."""


def align_one(
    align: Align, letters: tuple[np.ndarray, int], symbols: str, cigar: bool, first_pair: int
) -> PairResult:
    """Align two strings.

    Raises
    ------
    InputFormatError
        For a character that is no IUPAC nucleotide, unless `symbols` is ``bytes``.
    """
    return result_of(*row_and_cigar(align, letters, symbols, cigar, first_pair), cigar)


def row_and_cigar(
    align: Align, letters: tuple[np.ndarray, int], symbols: str, cigar: bool, first_pair: int
) -> tuple[np.ndarray, np.ndarray]:
    """Align two strings as :func:`align_one`; return their row and CIGAR."""
    flat, n_query = letters
    tables = _tables(symbols)
    row = np.empty(N_ROW, np.int64)
    found = align(flat, n_query, *tables, symbols == "bytes", cigar, row)
    bad = int(row[BAD])
    if bad >= 0:
        is_query = bad < n_query
        sequence = (flat[:n_query] if is_query else flat[n_query:]).tobytes()
        pos, side = (bad, "query") if is_query else (bad - n_query, "reference")
        raise bad_letter(first_pair, sequence[pos], pos, side, sequence)
    return row, found


def result_of(row: np.ndarray, text: np.ndarray, cigar: bool) -> PairResult:
    """Return the result of two strings from their row and the text of their CIGAR (uint8)."""
    values: list[int] = row.tolist()
    status = values[STATUS]
    score = values[SCORE] if status in (OK, HEURISTIC) else None
    if not cigar:
        return score
    letters = None if score is None else text.tobytes().decode("ascii")
    return PairAlignment._make(
        (score, STATUS_NAMES[status], letters, *values[QUERY_START : REF_END + 1])
    )
