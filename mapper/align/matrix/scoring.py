"""Scoring of matrix alignment: substitution matrices, gap costs, and pairs in codes of letters.

A substitution matrix comes by name from the package's tables or from Biopython, from a file (as
BLAST, EMBOSS and Biopython write them), from an array, or from two scores. In a file, lines that
begin with ``#`` are comments; the first other line names the letters of the columns, and each
further line has the letter of a row and its scores.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper.align.matrix.cells import OneCell, TwoCells, joined_halves, words_of_scores
from mapper.align.matrix.dp import BLOCK, GLOBAL, LOCAL, NEVER, SEMIGLOBAL, Gaps
from mapper.align.pairs import PairBatch
from mapper.align.threads import in_slices
from mapper.errors import InputFormatError, UsageError, refuse_file_name
from mapper.io.fastq_errors import show
from mapper.io.input_file import BrokenStreamError, ByteSource
from mapper.jit.accelerate import core, driver
from mapper.parallel.buffers import RECYCLER

# --- files of matrices ---

_MAX_BYTES = 1 << 20
"""More than any matrix of letters takes; a longer file is something else."""


def read_matrix(path: str) -> tuple[str, list[list[float]]]:
    """Return the letters and the scores of a file, rows in the order of the columns.

    Raises
    ------
    InputFormatError
        If the file cannot be read, or is no square matrix of letters; names file and line.
    """
    rows: dict[str, list[float]] = {}
    letters: list[str] = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if not letters:
            letters = words
            if any(len(letter) != 1 for letter in letters) or len(set(letters)) != len(letters):
                raise _wrong(path, number, line, "the letters of the columns, each once,")
            continue
        if words[0] not in letters or words[0] in rows:
            raise _wrong(path, number, line, "one of the columns' letters that had no row yet")
        try:
            rows[words[0]] = [float(word) for word in words[1:]]
        except ValueError:
            raise _wrong(path, number, line, "a letter and numbers") from None
        if len(words) != len(letters) + 1:
            raise _wrong(path, number, line, f"a letter and {len(letters)} scores")
    missing = [letter for letter in letters if letter not in rows]
    if missing or not letters:
        raise InputFormatError(
            f"{path}: no matrix of scores: "
            + (
                f"the row of {missing[0]!r} is missing"
                if missing
                else "it holds no line of letters"
            )
        )
    return "".join(letters), [rows[letter] for letter in letters]


def _text(path: str) -> str:
    source = ByteSource(path)
    try:
        data = bytearray(_MAX_BYTES + 1)
        end = 0
        while end < len(data) and (n := source.readinto(memoryview(data)[end:])):
            end += n
    except BrokenStreamError as error:
        raise InputFormatError(f"{path}: {error}") from error
    finally:
        source.close()
    if end > _MAX_BYTES:
        raise InputFormatError(f"{path}: longer than {_MAX_BYTES} bytes, so no matrix of letters")
    return io.TextIOWrapper(io.BytesIO(data[:end]), "latin-1").read()


def _wrong(path: str, number: int, line: str, expected: str) -> InputFormatError:
    return InputFormatError(
        f"{path}: line {number} is {show(line[:40].encode('latin-1'))}; {expected} is expected "
        "there (a matrix as BLAST's: a line of letters, then a line for each of them)"
    )


# --- matrices ---

NAMED = (
    "NUC.4.4", "BLOSUM45", "BLOSUM50", "BLOSUM62", "BLOSUM80", "BLOSUM90", "PAM30", "PAM70",
    "PAM250",
)  # fmt: skip
"""Matrices whose tables, by NCBI, are files of the package; Biopython has more."""

_TABLES = Path(__file__).with_name("tables")

NO_LETTER = 255
MAX_SCORE = 1000
"""Greatest absolute score or gap cost."""

_LETTERS_A_SLICE = 1 << 18
"""Letters that a thread encodes at a time, in a quarter of a millisecond."""


_NUCLEOTIDES = frozenset("ACGTURYSWKMBDHVN")
_AMINO_ACIDS = frozenset("ARNDCQEGHILKMFPSTWYVBZX*")


class SubstitutionMatrix(NamedTuple):
    """Scores of pairs of letters; higher is better."""

    letters: str
    scores: np.ndarray  # int32 (n, n): row of the query's letter, column of the reference's
    code_of: np.ndarray  # uint8 (256,): index of each ASCII letter in either case, or NO_LETTER


def substitution_matrix(
    matrix: str | Path | tuple[int, int] | tuple[str, Sequence[Sequence[int]] | np.ndarray],
) -> SubstitutionMatrix:
    """Return a substitution matrix.

    Parameters
    ----------
    matrix
        A name in NAMED (``NUC.4.4``, ``BLOSUM62``...), or another one that Biopython knows, if
        the package biopython is installed; the path of a file
        (:mod:`mapper.align.matrix.scoring`); two numbers, the scores of equal and of different
        letters of ``ACGTN`` (N scores as different, even with N); or n letters and their scores,
        whole numbers (n, n), the row for the query's letter.

    Returns
    -------
    The matrix. A matrix of nucleotides without U reads U as T, as the other metrics do; in one of
    amino acids U would be selenocysteine, and has no scores.

    Raises
    ------
    UsageError
        For an unknown name, or scores that are not whole numbers or too large.
    InputFormatError
        For a file that holds no matrix.
    """
    if isinstance(matrix, str):
        letters, scores = _named(matrix)
    elif isinstance(matrix, Path):
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
    """Return True if the package or Biopython has a matrix of this name."""
    return name.upper() in NAMED or name.upper() in _biopythons()


def _biopythons() -> dict[str, str]:
    """Return Biopython's name of each of its matrices, by upper case; empty without Biopython."""
    try:
        from Bio.Align import substitution_matrices
    except ImportError:
        return {}
    return {name.upper(): name for name in substitution_matrices.load()}


@cache
def _named(name: str) -> tuple[str, np.ndarray]:
    if name.upper() in NAMED:
        letters, rows = read_matrix(str(_TABLES / f"{name.upper()}.txt"))
        return letters, np.array(rows)
    others = _biopythons()
    if name.upper() not in others:
        known = dict.fromkeys([*NAMED, *others.values()])
        more = "" if others else "; more come with pip install 'fmwave[matrices]' (Biopython's)"
        refuse_file_name("matrix", name, "the name of a known matrix")
        raise UsageError(
            f"matrix {name} is neither known nor a file here; known are {', '.join(known)}{more}"
        )
    from Bio.Align import substitution_matrices

    table = substitution_matrices.load(others[name.upper()])
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
    if _is_of_nucleotides(letters) and code_of[ord("U")] == NO_LETTER:
        code_of[ord("U")] = code_of[ord("u")] = code_of[ord("T")]
    return SubstitutionMatrix(letters, np.ascontiguousarray(scores, np.int32), code_of)


def _is_of_nucleotides(letters: str) -> bool:
    return set(letters.upper()) <= _NUCLEOTIDES


def encode_letters(
    matrix: SubstitutionMatrix, letters: np.ndarray, starts: np.ndarray, ends: np.ndarray,
    side: str, first_pair: int, unit: str = "pair", threads: int = 1,
) -> np.ndarray:  # fmt: skip
    """Return the codes (uint8) of sequences in a flat array of ASCII.

    `side` ("the query", "the set"), `first_pair` and `unit` name a sequence in messages;
    `threads` has no effect on the result.

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
        place, of_side = f"{unit} {first_pair + i}", f" of {side}"
        if unit != "pair":
            place, of_side = place + of_side, ""
        refuse_file_name(place, letters[starts[i] : ends[i]].tobytes(), "a sequence")
        what = f"the matrix has no scores for {chr(letters[at])!r} at position {at - starts[i]}"
        it_has = f"(it has {matrix.letters})"
        if _is_of_nucleotides(matrix.letters) and chr(letters[at]).upper() in _AMINO_ACIDS:
            it_has += "; for amino acids choose another one, such as BLOSUM62"
        raise InputFormatError(f"{place}: {what}{of_side} {it_has}")
    return codes


@driver
def _encode(code_of, letters, starts, ends, first, last, codes):
    """Write codes of sequences first:last; return the first with an unknown letter, or -1."""
    for i in range(first, last):
        greatest = np.uint8(0)
        for at in range(starts[i], ends[i]):
            code = code_of[letters[at]]
            codes[at] = code
            greatest = max(greatest, code)
        if greatest == NO_LETTER:
            return i
    return -1


# --- numbers of kernels ---

GREATEST_HALF, GREATEST_BYTE = 2**15 - 1, 127
PAD_OF_BYTE, PAD_OF_SHORT = -128, -(2**15) + 1
"""Score of the extra letter with any other, for bytes and int16; below every gap cost."""


def costs_of(gaps: Gaps, mode: int, halves: int) -> OneCell | TwoCells:
    """Return the costs of gaps for cells of one or two `halves`."""
    opening, extend = -sum(gaps), -gaps.gap_extend
    if halves == 1:
        floor = 0 if mode == LOCAL else NEVER
        return OneCell(*(np.int32(cost) for cost in (opening, extend, floor, extend)))
    floor = int(bias_of(0, 0, gaps, mode, 0)) if mode == LOCAL else 0
    return TwoCells(
        words_of_scores(opening, opening), words_of_scores(extend, extend),
        words_of_scores(floor, floor), joined_halves(extend, extend),
    )  # fmt: skip


@core
def bias_of(n, m, gaps, mode, lanes):
    """Return the bias of scores in halves, with which no score less a cost is negative.

    The cost is that of the lowest score of two letters, or of a gap's first symbol.
    """
    lowest = 1 - PAD_OF_BYTE + gaps.gap_open + gaps.gap_extend
    if mode == LOCAL:
        return np.int64(lowest)
    return np.int64(lowest + 2 * gaps.gap_open + (n + m + 2 * lanes + 2) * gaps.gap_extend)


@core
def fits_halves(n, m, highest, gaps, mode, lanes):
    """Return True if all biased scores fit 16 bits; `highest` score of two letters, at least 0."""
    return bias_of(n, m, gaps, mode, lanes) + (min(n, m) + 1) * highest <= GREATEST_HALF


def halves_possible(scores: np.ndarray, gaps: Gaps) -> bool:
    """Return True if scores fit a query profile's bytes, and gaps cost less than its padding."""
    return int(np.abs(scores).max()) <= GREATEST_BYTE and sum(gaps) < -PAD_OF_BYTE


def padded_scores(scores: np.ndarray, mode: int, halves: int) -> np.ndarray:
    """Return a matrix with an extra letter, which yields the borders: int16.

    Padding rows above the query must reproduce the border's first row, and padding columns its
    first column: by gaps alone if borders cost gaps, by the diagonal if they are free.
    """
    n = len(scores)
    pad = PAD_OF_BYTE if halves == 2 else PAD_OF_SHORT
    padded = np.full((n + 1, n + 1), 0 if mode == SEMIGLOBAL else pad, np.int16)
    padded[:n, :n] = scores
    padded[n, n] = 0
    return padded


# --- scoring and coded pairs ---

MODES = {"global": GLOBAL, "semiglobal": SEMIGLOBAL, "local": LOCAL}
"""Needleman-Wunsch; free ends of both sequences (overlaps); Smith-Waterman."""

DEFAULT_MATRIX = "NUC.4.4"
"""Scores of nucleotides, which EMBOSS calls EDNAFULL: 5 for equal bases, -4 for different ones."""

DEFAULT_GAPS = (10, 1)
"""Gap open and gap extend: a gap of n costs 10 + n."""

DEFAULT_MEMORY = 1 << 30
"""Most cells of a pair whose path is requested."""

_MAX_SUM, _MAX_SHORT_SUM = 2**29, 2**13  # of scores along a path, in int32 and in int16


class Scoring(NamedTuple):
    """Checked options of a matrix alignment."""

    table: SubstitutionMatrix
    gaps: Gaps
    mode: int  # GLOBAL, SEMIGLOBAL, LOCAL
    cigar: bool
    memory: int  # most cells of a pair whose path is requested
    greatest: int  # score or cost of two letters, or of a gap's first symbol

    @property
    def scores(self) -> np.ndarray:
        return self.table.scores

    @property
    def starts_whole(self) -> bool:
        """True if every alignment begins with the first symbols."""
        return self.mode == GLOBAL


class CodedPairs(NamedTuple):
    """Pairs in the codes of a matrix; query i is ``query_codes[query_start[i]:query_end[i]]``."""

    query_codes: np.ndarray  # uint8
    query_start: np.ndarray  # int64 (n,)
    query_end: np.ndarray  # int64 (n,)
    ref_codes: np.ndarray  # uint8
    ref_start: np.ndarray  # int64 (n,)
    ref_end: np.ndarray  # int64 (n,)

    @property
    def n_pairs(self) -> int:
        return len(self.query_start)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the length of each query and reference, int64 (n,), for the caller to keep."""
        n, m = (RECYCLER.empty(8 * self.n_pairs).view(np.int64) for _ in range(2))
        np.subtract(self.query_end, self.query_start, out=n)
        np.subtract(self.ref_end, self.ref_start, out=m)
        return n, m

    def cells(self) -> np.ndarray:
        """Return the cells of each matrix."""
        n, m = self.lengths()
        n *= m
        return n

    def part(self, first: int, last: int) -> CodedPairs:
        """Return pairs first:last."""
        rows = slice(first, last)
        return self._replace(
            query_start=self.query_start[rows], query_end=self.query_end[rows],
            ref_start=self.ref_start[rows], ref_end=self.ref_end[rows],
        )  # fmt: skip


def check_scoring(
    matrix: str | Path | tuple | SubstitutionMatrix, gaps: tuple[int, int], span: str, cigar: bool,
    memory: int,
) -> Scoring:  # fmt: skip
    """Return checked options; raise UsageError for impossible ones."""
    table = matrix if isinstance(matrix, SubstitutionMatrix) else substitution_matrix(matrix)
    if span not in MODES:
        raise UsageError(f"span {span!r}: one of {', '.join(MODES)} is expected")
    costs = check_gaps(gaps)
    if not isinstance(memory, (int, np.integer)) or memory < 1:
        raise UsageError(f"memory {memory!r}: at least 1 byte is expected")
    greatest = max(int(np.abs(table.scores).max()), sum(costs))
    return Scoring(table, costs, MODES[span], cigar, memory, greatest)


def check_gaps(gaps: tuple[int, int]) -> Gaps:
    """Return checked gap costs; raise UsageError for impossible ones."""
    try:
        opening, extending = gaps
        if all(int(cost) == cost and 0 <= cost <= MAX_SCORE for cost in gaps):
            return Gaps(int(opening), int(extending))
    except (TypeError, ValueError):  # not two numbers
        pass
    raise UsageError(f"gaps {gaps!r}: open and extend, whole numbers from 0 to {MAX_SCORE}")


def check_lengths(longest: int, scoring: Scoring) -> None:
    """Raise UsageError if scores of two sequences of `longest` symbols could exceed 32 bits."""
    if longest * scoring.greatest > _MAX_SUM:
        raise UsageError(
            f"sequences of {longest} symbols together with scores of up to {scoring.greatest}: "
            f"the product must not exceed {_MAX_SUM}"
        )


_SHORTS, _NUMBERS = np.empty(0, np.int16), np.empty(0, np.int32)


def numbers_for(longest: int, scoring: Scoring) -> np.ndarray:
    """Return an empty array of the type that the CPU computes scores in, int16 or int32.

    `longest` is the length of two sequences together. What is computed of columns beyond the end,
    up to BLOCK, must fit, too.
    """
    return _SHORTS if (longest + 2 * BLOCK) * scoring.greatest <= _MAX_SHORT_SUM else _NUMBERS


def code_pairs(batch: PairBatch, scoring: Scoring, first_pair: int, threads: int = 1) -> CodedPairs:
    """Return a batch in the codes of the matrix; `threads` has no effect on the result.

    Raises
    ------
    UsageError
        If scores could exceed 32 bits.
    InputFormatError
        At the first letter that the matrix does not score.
    """
    if batch.n_pairs:
        lengths = batch.query_end - batch.query_start + batch.ref_end - batch.ref_start
        check_lengths(int(lengths.max()), scoring)
    query_codes = encode_letters(
        scoring.table, batch.queries, batch.query_start, batch.query_end, "the query", first_pair,
        threads=threads,
    )  # fmt: skip
    ref_codes = encode_letters(
        scoring.table, batch.refs, batch.ref_start, batch.ref_end, "the reference", first_pair,
        threads=threads,
    )  # fmt: skip
    return CodedPairs(
        query_codes, batch.query_start, batch.query_end, ref_codes, batch.ref_start, batch.ref_end
    )


def without_memory(pairs: CodedPairs, scoring: Scoring) -> np.ndarray:
    """Return True for each pair whose path would take more memory than allowed: bool (n,)."""
    if not scoring.cigar:
        return np.zeros(pairs.n_pairs, np.bool_)
    over: np.ndarray = pairs.cells() > scoring.memory
    return over
