"""What matches, as a relation of letters: the rules of ``packing.py``, and pairs declared equal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mapper.align.packing import check_symbols
from mapper.dna import AMBIGUOUS, CODE_OF_ASCII, LETTERS, NOT_A_BASE
from mapper.errors import UsageError

Equalities = Sequence[tuple[str, str] | str]
"""Pairs of letters that match each other, in either order: ``[("N", "A"), "NC"]``."""


NO_LETTER = -1


class Relation(NamedTuple):
    """Which letters match: letter c those of ``others[first_other[c]:first_other[c + 1]]``."""

    letter_of: np.ndarray  # int16 (256,): number of each byte, or NO_LETTER
    first_other: np.ndarray  # int64 (n_letters + 1,)
    others: np.ndarray  # uint8


def relation_of(symbols: str, equalities: Equalities) -> Relation:
    """Return the relation of a rule and of pairs that match in addition.

    A pair does not make other letters match: of N = A and N = C does not follow A = C.

    Raises
    ------
    UsageError
        For a rule that does not exist, or what is no pair of letters of the rule.
    """
    try:
        pairs = tuple(tuple(pair) for pair in equalities)
    except TypeError as error:
        raise UsageError(
            f"equalities: {equalities!r:.60} is no list of pairs of letters, such as ('N', 'A')"
        ) from error
    return _relation(symbols, pairs)


@lru_cache(maxsize=16)
def _relation(symbols: str, equalities: tuple[tuple[str, ...], ...]) -> Relation:
    check_symbols(symbols)
    if symbols == "bytes":
        letter_of = np.arange(256, dtype=np.int16)
        matches = np.eye(256, dtype=np.bool_)
    else:
        letter_of = CODE_OF_ASCII.astype(np.int16)
        letter_of[CODE_OF_ASCII == NOT_A_BASE] = NO_LETTER
        matches = np.eye(len(LETTERS), dtype=np.bool_)
        if symbols == "dna":
            matches[AMBIGUOUS:] = False
    for pair in equalities:
        a, b = (_number(letter_of, letter, pair, symbols) for letter in _checked(pair))
        matches[a, b] = matches[b, a] = True
    first_other = np.zeros(len(matches) + 1, np.int64)
    np.cumsum(matches.sum(axis=1), out=first_other[1:])
    return Relation(letter_of, first_other, np.nonzero(matches)[1].astype(np.uint8))


def _checked(pair: tuple[str, ...]) -> tuple[str, ...]:
    if len(pair) != 2 or any(not isinstance(a, str) or len(a) != 1 for a in pair):
        raise UsageError(f"equalities: {pair!r:.60} is no pair of letters, such as ('N', 'A')")
    return pair


def _number(letter_of: np.ndarray, letter: str, pair: tuple[str, ...], symbols: str) -> int:
    number = int(letter_of[ord(letter)]) if letter.isascii() else NO_LETTER
    if number == NO_LETTER:
        hint = "" if symbols == "bytes" else "; other letters go with symbols='bytes'"
        what = "no IUPAC nucleotide" if letter.isascii() else "not ASCII"
        raise UsageError(f"equalities: {letter!r} of {pair} is {what}{hint}")
    return number
