"""Packing of letters to symbols of 2, 4 or 8 bits; the packing carries the rule of what matches.

======== ========================================================================= ======
symbols  what matches                                                              bits
======== ========================================================================= ======
dna      A, C, G and T match themselves, U reads as T, case is ignored. N and the  2 or 4
         other IUPAC letters are *ambiguous*: they match nothing, not even
         themselves (the rule of ``fmwave map``).
iupac    The same letters, but each IUPAC letter matches itself (N matches N), as  2 or 4
         other aligners compare letters.
bytes    Equal bytes match: any alphabet, case counts.                             8
======== ========================================================================= ======

A pair that holds nothing but A, C, G, T takes 2 bits a symbol: bits 1 and 2 of ASCII, A 0, C 1,
T 2, G 3 (Aguado-Puig et al. 2022, section III). With other letters it takes 4 bits; for ``dna`` all
ambiguous letters become code 4 in a query and 5 in a reference, which differ from everything.
Comparing is then one XOR in every case (``matches.py``).

Packed pairs that a caller gives are checked at the end of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mapper.align.matches import unaligned_word
from mapper.align.pairs import PairBatch, is_misplaced
from mapper.align.threads import in_slices
from mapper.dna import AMBIGUOUS, CODE_OF_ASCII, NOT_A_BASE
from mapper.errors import InputFormatError, UsageError, refuse_file_name
from mapper.jit.accelerate import core, driver
from mapper.parallel.map import map_in_threads
from mapper.parallel.pool import thread_pool

SYMBOLS = ("dna", "iupac", "bytes")
_QUERY_AMBIGUOUS, _REF_AMBIGUOUS = 4, 5
_PAIRS_A_THREAD = 1 << 14


class PackedPairs(NamedTuple):
    """Packed pairs, with a word of padding before the first sequence and two after the last."""

    query_words: np.ndarray  # uint64, all queries
    query_start: np.ndarray  # int64 (n,): word at which a query begins
    query_len: np.ndarray  # int64 (n,): symbols
    ref_words: np.ndarray  # uint64
    ref_start: np.ndarray  # int64 (n,)
    ref_len: np.ndarray  # int64 (n,)
    shift: np.ndarray  # uint8 (n,): log2 of the bits a symbol takes: 1, 2 or 3

    @property
    def n_pairs(self) -> int:
        return len(self.shift)


NewArray = Callable[[int, np.dtype], np.ndarray]


@core
def differs_from_acgt(word):
    """Return a word that is not 0 in each of 8 letters that is not A C G T U, in either case."""
    ones = np.uint64(0x0101010101010101)
    word &= ~(ones << np.uint64(5))  # upper case
    low = (word >> np.uint64(1)) & ones
    high = (word >> np.uint64(2)) & ones
    is_t = high & ~low
    letter = (ones << np.uint64(6)) | (low << np.uint64(1)) | (high << np.uint64(2))
    letter |= (is_t << np.uint64(4)) | (is_t ^ ones)
    # U is T plus one: with T, the lowest bit is free.
    return (word ^ letter) & ~is_t


@core
def squeezed(word):
    """Return the 2-bit codes of 8 letters, in the low 16 bits."""
    word = (word >> np.uint64(1)) & np.uint64(0x0303030303030303)
    word = (word | (word >> np.uint64(6))) & np.uint64(0x000F000F000F000F)
    word = (word | (word >> np.uint64(12))) & np.uint64(0x000000FF000000FF)
    return (word | (word >> np.uint64(24))) & np.uint64(0xFFFF)


@core
def is_acgt(letters, start, end):
    """Return True if letters start:end are all A, C, G, T or U, in either case."""
    differ = np.uint64(0)
    at = start
    while at < end:
        # One call: numba-cuda 0.30.4 loses the argument of a second one after the loop.
        n_beyond = np.uint64(8 * max(at + 8 - end, np.int64(0)))  # bits beyond the end
        differ |= differs_from_acgt(unaligned_word(letters, at)) << n_beyond
        at += 8
    return differ == 0


@core
def pack_acgt(letters, start, end, words, at):
    """Pack 32 letters a word; letters after `end` may fill the last word."""
    pos = start
    while pos < end:
        word = np.uint64(0)
        for part in range(4):
            if pos + 8 * part < end:
                codes = squeezed(unaligned_word(letters, pos + 8 * part))
                word |= codes << np.uint64(16 * part)
        words[at] = word
        at += 1
        pos += 32


@core
def _pack_codes(letters, start, end, code_of, words, at):
    """Pack 16 letters a word by a table; return the position of the first one without a code."""
    pos = start
    while pos < end:
        word = np.uint64(0)
        for i in range(min(np.int64(16), end - pos)):
            code = code_of[letters[pos + i]]
            if code == NOT_A_BASE:
                return pos + i
            word |= np.uint64(code) << np.uint64(4 * i)
        words[at] = word
        at += 1
        pos += 16
    return np.int64(-1)


@core
def _pack_bytes(letters, start, end, words, at):
    pos = start
    while pos < end:
        words[at] = unaligned_word(letters, pos)
        at += 1
        pos += 8


@driver
def _choose_widths(queries, query_start, query_end, refs, ref_start, ref_end, first, last, shift):
    for i in range(first, last):
        pure = is_acgt(queries, query_start[i], query_end[i]) and is_acgt(
            refs, ref_start[i], ref_end[i]
        )
        shift[i] = 1 if pure else 2


@driver
def _pack_side(letters, starts, ends, first, last, shift, word_starts, code_of, words):
    """Pack one side of pairs first:last.

    Returns
    -------
    Pair and position of the first letter without a code, or -1, -1.
    """
    for i in range(first, last):
        start, end, at = starts[i], ends[i], word_starts[i]
        if shift[i] == 1:
            pack_acgt(letters, start, end, words, at)
        elif shift[i] == 3:
            _pack_bytes(letters, start, end, words, at)
        else:
            bad = _pack_codes(letters, start, end, code_of, words, at)
            if bad >= 0:
                return i, bad - start
    return -1, -1


def check_symbols(symbols: str) -> None:
    """Raise UsageError for a rule that does not exist."""
    if symbols not in SYMBOLS:
        raise UsageError(f"symbols {symbols!r}: one of {', '.join(SYMBOLS)} is expected")


def bad_letter(
    pair: int, letter: int, pos: int, side: str, sequence: bytes = b""
) -> InputFormatError:
    """Return the error of a letter (ASCII) that is no nucleotide, by the number of its pair.

    Raises
    ------
    UsageError
        If the sequence, which may be left out, is the name of a file.
    """
    refuse_file_name(f"pair {pair}, {side}", sequence, "a sequence")
    return InputFormatError(
        f"pair {pair}: character {chr(letter)!r} at position {pos} of the {side} is no "
        "IUPAC nucleotide (for other alphabets compare bytes)"
    )


def pack_pairs(
    batch: PairBatch, symbols: str = "dna", first_pair: int = 0, threads: int = 1,
    numbers: np.ndarray | None = None, new: NewArray = np.empty,
) -> PackedPairs:  # fmt: skip
    """Pack every pair with the fewest bits that hold it.

    Parameters
    ----------
    symbols
        The rule, one of SYMBOLS.
    first_pair
        Number of the batch's first pair in messages.
    threads
        Threads that pack; no effect on the result.
    numbers
        Numbers to add to `first_pair` for each pair, int64 (n,); default 0, 1, ...
    new
        Makes an array of a number of items of a type, uninitialised.

    Raises
    ------
    UsageError
        For a rule that does not exist.
    InputFormatError
        For a character that is no IUPAC nucleotide, unless the rule is ``bytes``.
    """
    check_symbols(symbols)
    shift = new(batch.n_pairs, np.dtype(np.uint8))
    shift[:] = 3
    bounds = np.arange(0, batch.n_pairs + _PAIRS_A_THREAD, _PAIRS_A_THREAD)
    parts = [(int(a), min(int(b), batch.n_pairs)) for a, b in pairwise(bounds)]
    query_codes, ref_codes = code_tables(symbols)
    with thread_pool(threads) as pool:
        for_parts = partial(map_in_threads, items=parts, n_threads=threads, pool=pool)
        if symbols != "bytes":
            for_parts(lambda part: _choose_widths(*batch, *part, shift))
        query = _packed_side(
            for_parts, *batch[:3], shift, query_codes, "query", first_pair, numbers, new
        )
        ref = _packed_side(
            for_parts, *batch[3:], shift, ref_codes, "reference", first_pair, numbers, new
        )
    return PackedPairs(*query, *ref, shift)


def code_tables(symbols: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables of the 4-bit code of each byte, for queries and for references."""
    if symbols != "dna":
        return CODE_OF_ASCII, CODE_OF_ASCII
    ambiguous = (CODE_OF_ASCII >= AMBIGUOUS) & (CODE_OF_ASCII != NOT_A_BASE)
    tables = [np.where(ambiguous, c, CODE_OF_ASCII) for c in (_QUERY_AMBIGUOUS, _REF_AMBIGUOUS)]
    return tables[0].astype(np.uint8), tables[1].astype(np.uint8)


def _packed_side(
    for_parts: Callable[..., list[Any]], letters: np.ndarray, starts: np.ndarray, ends: np.ndarray,
    shift: np.ndarray, code_of: np.ndarray, side: str,
    first_pair: int, numbers: np.ndarray | None, new: NewArray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    lengths = new(len(starts), np.dtype(np.int64))
    np.subtract(ends, starts, out=lengths)
    n_words = ((lengths << shift.astype(np.int64)) + 63) >> 6
    word_starts = new(len(lengths) + 1, np.dtype(np.int64))
    word_starts[0] = 1
    np.cumsum(n_words, out=word_starts[1:])
    word_starts[1:] += 1
    words = new(int(word_starts[-1]) + 2, np.dtype(np.uint64))
    words[0] = 0
    words[-2:] = 0
    packed = for_parts(
        lambda part: _pack_side(letters, starts, ends, *part, shift, word_starts, code_of, words)
    )
    pair, pos = next(((pair, pos) for pair, pos in packed if pair >= 0), (-1, -1))
    if pair >= 0:
        number = first_pair + (pair if numbers is None else int(numbers[pair]))
        sequence = letters[starts[pair] : ends[pair]].tobytes()
        raise bad_letter(number, sequence[pos], pos, side, sequence)
    return words, word_starts[:-1], lengths


# --- checks of packed pairs ---


def check_columns(packed: PackedPairs) -> None:
    """Raise UsageError unless the columns have one length and the right types."""
    expected = ["uint64", "int64", "int64", "uint64", "int64", "int64", "uint8"]
    n_pairs = packed.n_pairs
    for name, column, dtype in zip(packed._fields, packed, expected, strict=True):
        if column.dtype != dtype or column.ndim != 1:
            raise UsageError(f"packed pairs: {name} is no flat array of {dtype}")
        if not name.endswith("words") and len(column) != n_pairs:
            raise UsageError(f"packed pairs: {n_pairs} pairs, but {len(column)} in {name}")


def check_places(packed: PackedPairs, threads: int) -> None:
    """Raise UsageError unless the words of sequences are consecutive, with padding."""
    _check_side("queries", *packed[:3], packed.shift, threads)
    _check_side("references", *packed[3:6], packed.shift, threads)


def _check_side(
    side: str, words: np.ndarray, start: np.ndarray, length: np.ndarray, shift: np.ndarray,
    threads: int,
) -> None:  # fmt: skip
    def wrong_place(first: int, last: int) -> int:
        return int(_wrong_place(len(words), start, length, shift, first, last))

    wrong = [pair for pair in in_slices(len(shift), threads, wrong_place) if pair >= 0]
    if wrong:
        raise UsageError(
            f"packed pairs: {side} must lie one behind the other, with a word before the first and "
            f"two behind the last; that of pair {wrong[0]} does not"
        )


@core
def is_any_misplaced(start, length, shift, end):
    """Return True if sequences (at least one) overlap or are out of order, or exceed `end`."""
    n = len(start) - 1
    wrong = is_misplaced(start[n], length[n], shift[n], end)
    for i in range(n):  # without an exit, so that it becomes vector code
        wrong |= is_misplaced(start[i], length[i], shift[i], start[i + 1])
    return wrong


@driver
def _wrong_place(n_words, start, length, shift, first, last):
    """Return the first misplaced pair of first:last (at least one), or -1."""
    end = n_words - 2 if last == len(start) else start[last]
    start, length, shift = start[first:last], length[first:last], shift[first:last]
    if not is_any_misplaced(start, length, shift, end):
        return -1
    n = len(start) - 1
    for i in range(n):
        if is_misplaced(start[i], length[i], shift[i], start[i + 1]):
            return first + i
    return first + n
