"""Substitution matrices: from Biopython by name, of a file, given, or made of two scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.align.threads import in_slices
from mapper.errors import InputFormatError, UsageError
from mapper.jit.accelerate import driver

NO_LETTER = 255
MAX_SCORE = 1000
"""Greatest absolute score or gap cost."""

_LETTERS_A_SLICE = 1 << 18
"""Letters that a thread encodes at a time, in a quarter of a millisecond."""


_NUCLEOTIDES = frozenset("ACGTURYSWKMBDHVN")


class SubstitutionMatrix(NamedTuple):
    """Scores of pairs of letters; higher is better."""

    letters: str
    scores: np.ndarray  # int32 (n, n): row of the query's letter, column of the reference's
    code_of: np.ndarray  # uint8 (256,): index of each ASCII letter in either case, or NO_LETTER


def substitution_matrix(
    matrix: str | Path | tuple[int, int] | tuple[str, Sequence[Sequence[int]] | np.ndarray],
) -> SubstitutionMatrix:
    """Return a matrix.

    Parameters
    ----------
    matrix
        A name that Biopython knows (``BLOSUM62``, ``PAM250``, ``NUC.4.4``...; needs the
        package biopython); the path of a file (:mod:`mapper.align.matrix.matrix_file`); two
        numbers, the scores of equal and of different letters of ``ACGTN`` (N scores as different,
        even with N); or n letters and their scores, whole numbers (n, n), the row for the query's
        letter.

    Returns
    -------
    The matrix. One of nucleotides without U reads U as T, as the other metrics do; in one of
    amino acids U would be selenocysteine, and is a letter without scores.

    Raises
    ------
    UsageError
        For a name that is not known, or scores that are not whole or too large.
    InputFormatError
        For a file that is no matrix.
    """
    if isinstance(matrix, str):
        letters, scores = _named(matrix)
    elif isinstance(matrix, Path):
        from mapper.align.matrix.matrix_file import read_matrix

        letters, rows = read_matrix(str(matrix))
        scores = np.array(rows)
    elif not isinstance(matrix, tuple | list) or len(matrix) != 2:
        raise UsageError(
            f"matrix {matrix!r:.60}: a name, a path, the scores of equal and of different letters, "
            "or letters and their scores are expected"
        )
    elif isinstance(matrix[0], str):
        letters, scores = matrix[0], np.asarray(matrix[1])
    else:
        match, mismatch = matrix
        letters = "ACGTN"
        scores = np.full((5, 5), float(mismatch))
        scores[range(4), range(4)] = match
    return _checked(letters, np.asarray(scores))


def is_known(name: str) -> bool:
    """Say whether Biopython is there and has a matrix of this name."""
    try:
        from Bio.Align import substitution_matrices
    except ImportError:
        return False
    return name.upper() in (known.upper() for known in substitution_matrices.load())


@cache
def _named(name: str) -> tuple[str, np.ndarray]:
    try:
        from Bio.Align import substitution_matrices
    except ImportError as error:
        raise UsageError(
            f"matrix {name}: the tables come from the package biopython, which is missing; "
            "install it with pip install 'fmwave[matrices]'"
        ) from error
    names = substitution_matrices.load()
    known = {known.upper(): known for known in names}
    if name.upper() not in known:
        raise UsageError(f"matrix {name} is not known; there are {', '.join(names)}")
    table = substitution_matrices.load(known[name.upper()])
    if not isinstance(table.alphabet, str):
        raise UsageError(f"matrix {name} scores words, not letters")
    return table.alphabet, np.array(table)


def _checked(letters: str, scores: np.ndarray) -> SubstitutionMatrix:
    n = len(letters)
    if scores.shape != (n, n) or n == 0 or len(set(letters.upper())) != n or not letters.isascii():
        raise UsageError(
            f"a matrix of {scores.shape} scores for {n} letters: one row and column for each "
            "letter, and each letter once, are expected"
        )
    if (scores != np.round(scores)).any() or np.abs(scores).max() > MAX_SCORE:
        raise UsageError(f"matrix scores must be whole numbers within {MAX_SCORE}")
    code_of = np.full(256, NO_LETTER, np.uint8)
    for code, letter in enumerate(letters):
        code_of[ord(letter.upper())] = code_of[ord(letter.lower())] = code
    if set(letters.upper()) <= _NUCLEOTIDES and code_of[ord("U")] == NO_LETTER:
        code_of[ord("U")] = code_of[ord("u")] = code_of[ord("T")]
    return SubstitutionMatrix(letters, np.ascontiguousarray(scores, np.int32), code_of)


def encode_letters(
    matrix: SubstitutionMatrix, letters: np.ndarray, starts: np.ndarray, ends: np.ndarray,
    side: str, first_pair: int, unit: str = "pair", threads: int = 1,
) -> np.ndarray:  # fmt: skip
    """Return the codes (uint8) of sequences in a flat array of ASCII.

    `side` ("the query", "the set"), `first_pair` and `unit` say in messages which one is meant;
    `threads` have no effect on the result.

    Raises
    ------
    InputFormatError
        At the first letter of a sequence that the matrix does not score.
    """
    codes = np.zeros(len(letters), np.uint8)
    found = in_slices(
        len(starts), threads,
        lambda first, last: _encode(matrix.code_of, letters, starts, ends, first, last, codes),
        rows=len(starts) * _LETTERS_A_SLICE // max(len(letters), 1),
    )  # fmt: skip
    i = next((i for i in found if i >= 0), -1)
    if i >= 0:
        at = int(starts[i] + np.argmax(codes[starts[i] : ends[i]] == NO_LETTER))
        what = f"the matrix has no scores for {chr(letters[at])!r} at position {at - starts[i]}"
        it_has = f"(it has {matrix.letters})"
        if unit == "pair":
            raise InputFormatError(f"pair {first_pair + i}: {what} of {side} {it_has}")
        raise InputFormatError(f"{unit} {first_pair + i} of {side}: {what} {it_has}")
    return codes


@driver
def _encode(code_of, letters, starts, ends, first, last, codes):
    """Write codes of sequences first:last; return the first with a letter that has none, or -1."""
    for i in range(first, last):
        greatest = np.uint8(0)
        for at in range(starts[i], ends[i]):
            code = code_of[letters[at]]
            codes[at] = code
            greatest = max(greatest, code)
        if greatest == NO_LETTER:
            return i
    return -1
