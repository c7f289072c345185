"""Files of substitution matrices, as BLAST, EMBOSS and Biopython write them.

Lines that begin with ``#`` are comments. The first other line names the letters of the columns;
each that follows, the letter of a row and its scores.
"""

from __future__ import annotations

import io

from mapper.errors import InputFormatError
from mapper.io.fastq_errors import show
from mapper.io.input_file import BrokenStreamError, ByteSource

_MAX_BYTES = 1 << 20
"""More than any matrix of letters takes; what is longer is something else."""


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
