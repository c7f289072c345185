"""Whether what is given as packed pairs is what kernels and cores take for granted."""

from __future__ import annotations

import numpy as np

from mapper.align.lengths import is_misplaced
from mapper.align.packing import PackedPairs
from mapper.align.threads import in_slices
from mapper.errors import UsageError
from mapper.jit.accelerate import core, driver


def check_columns(packed: PackedPairs) -> None:
    """Raise UsageError unless these are columns of one length and of the right types."""
    expected = ["uint64", "int64", "int64", "uint64", "int64", "int64", "uint8"]
    n_pairs = packed.n_pairs
    for name, column, dtype in zip(packed._fields, packed, expected, strict=True):
        if column.dtype != dtype or column.ndim != 1:
            raise UsageError(f"packed pairs: {name} is no flat array of {dtype}")
        if not name.endswith("words") and len(column) != n_pairs:
            raise UsageError(f"packed pairs: {n_pairs} pairs, but {len(column)} in {name}")


def check_places(packed: PackedPairs, threads: int) -> None:
    """Raise UsageError unless sequences lie as :func:`mapper.packed_pairs` leaves them."""
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
def is_any_misplaced(start, length, shift, behind):
    """Whether any of some sequences, which are some, does not lie before the next, or `behind`."""
    n = len(start) - 1
    wrong = is_misplaced(start[n], length[n], shift[n], behind)
    for i in range(n):  # to its end, so that it becomes vector code
        wrong |= is_misplaced(start[i], length[i], shift[i], start[i + 1])
    return wrong


@driver
def _wrong_place(n_words, start, length, shift, first, last):
    """Return the first of these pairs, which are some, whose words are not where they should be.

    -1 if there is none.
    """
    behind = n_words - 2 if last == len(start) else start[last]
    start, length, shift = start[first:last], length[first:last], shift[first:last]
    if not is_any_misplaced(start, length, shift, behind):
        return -1
    n = len(start) - 1
    for i in range(n):
        if is_misplaced(start[i], length[i], shift[i], start[i + 1]):
            return first + i
    return first + n
