"""Count records and duplicates, under the names of ``samtools markdup --json``."""

from __future__ import annotations

import math

import numpy as np

from mapper.jit.accelerate import driver
from mapper.jit.simd import get16
from mapper.sam_flags import DUPLICATE as DUPLICATE_FLAG
from mapper.sorting.duplicate_keys import has_mate, is_examined
from mapper.sorting.duplicates import DUPLICATE
from mapper.sorting.libraries import UNKNOWN, Libraries
from mapper.sorting.optical import OPTICAL
from mapper.sorting.record_order import prefetch_record

COUNTS = (
    "READ", "WRITTEN", "EXCLUDED", "EXAMINED", "PAIRED", "SINGLE", "DUPLICATE PAIR",
    "DUPLICATE SINGLE", "DUPLICATE PAIR OPTICAL", "DUPLICATE SINGLE OPTICAL",
    "DUPLICATE NON PRIMARY", "DUPLICATE NON PRIMARY OPTICAL",
)  # fmt: skip
(_READ, _WRITTEN, _EXCLUDED, _EXAMINED, _PAIRED, _SINGLE, _PAIR_DUPLICATE, _SINGLE_DUPLICATE,
 _PAIR_OPTICAL, _SINGLE_OPTICAL, _OTHER_DUPLICATE, _OTHER_OPTICAL) = range(len(COUNTS))  # fmt: skip


@driver
def count_records(data, starts, libraries, verdicts, remove, clear, counts):
    """Add the records of a range to counts.

    Parameters
    ----------
    data, starts
        BAM records (uint8) and their offsets (int64), as they were before marking.
    libraries, verdicts
        Library of each record (int32), and what it is written with (uint8).
    remove, clear
        Of :class:`mapper.sorting.options.MarkOptions`. A removed record is not WRITTEN; samtools
        counts it there if only its option -S marks it.
    counts
        int64, shape (libraries, len(COUNTS)).
    """
    for i in range(len(starts)):
        prefetch_record(data, starts, i)
        at = starts[i]
        flag = get16(data, at + 18)
        own = counts[libraries[i]]
        is_duplicate = (verdicts[i] & DUPLICATE) != 0
        is_optical = (verdicts[i] & OPTICAL) != 0
        own[_READ] += 1
        if not (remove and (is_duplicate or (not clear and flag & DUPLICATE_FLAG))):
            own[_WRITTEN] += 1
        if not is_examined(flag):
            own[_EXCLUDED] += 1
            own[_OTHER_DUPLICATE] += is_duplicate
            own[_OTHER_OPTICAL] += is_optical
            continue
        own[_EXAMINED] += 1
        if has_mate(data, at):
            own[_PAIRED] += 1
            own[_PAIR_DUPLICATE] += is_duplicate
            own[_PAIR_OPTICAL] += is_optical
        else:
            own[_SINGLE] += 1
            own[_SINGLE_DUPLICATE] += is_duplicate
            own[_SINGLE_OPTICAL] += is_optical


def library_size(pairs: int, duplicates: int, optical: int) -> int:
    """Return the estimated number of different molecules in a library; 0 if it cannot be told.

    Parameters
    ----------
    pairs, duplicates, optical
        Reads with a mapped mate; duplicates among them; optical ones among these.

    Notes
    -----
    A library of X molecules, of which N are drawn with replacement, shows C = X (1 - exp(-N / X))
    different ones (Lander-Waterman). X / C is found by 40 bisections, as in Picard and samtools,
    whose steps and rounding this function follows, so that numbers are equal.
    """
    drawn = (pairs - optical) // 2
    unique = (pairs - duplicates) // 2
    repeated = (duplicates - optical) // 2
    if not (unique and repeated and drawn > repeated):
        return 0

    def excess(ratio: float) -> float:
        return unique / (ratio * unique) - 1 + math.exp(-drawn / (ratio * unique))

    low, high = 1.0, 100.0
    if excess(low) < 0:
        return 0
    while excess(high) > 0:
        high *= 10
    for _ in range(40):
        middle = (low + high) / 2
        value = excess(middle)
        if value == 0:
            break
        if value > 0:
            low = middle
        else:
            high = middle
    return int(unique * (low + high) / 2)


def _named(counts: np.ndarray, has_size: bool) -> dict[str, int]:
    """Return counts by their names, with the sums and the size of the library."""
    numbers = [int(number) for number in counts]
    primary = numbers[_PAIR_DUPLICATE] + numbers[_SINGLE_DUPLICATE]
    named = dict(zip(COUNTS, numbers, strict=True))
    named["DUPLICATE PRIMARY TOTAL"] = primary
    named["DUPLICATE TOTAL"] = primary + numbers[_OTHER_DUPLICATE]
    if has_size:
        named["ESTIMATED_LIBRARY_SIZE"] = library_size(
            numbers[_PAIRED], numbers[_PAIR_DUPLICATE], numbers[_PAIR_OPTICAL]
        )
    return named


def report(
    counts: np.ndarray, libraries: Libraries, command: str
) -> dict[str, str | int | list[dict[str, str | int]]]:
    """Return the counts as ``samtools markdup --json`` writes them, to be written as JSON.

    With several libraries, each has its own counts under LIBRARIES, and the sum has no
    ESTIMATED_LIBRARY_SIZE, as sizes cannot be added. The library "unknown" is listed if it has
    records.

    Parameters
    ----------
    counts
        Sum of the arrays from :func:`count`.
    command
        Value of COMMAND.
    """
    listed = [
        number for number, name in enumerate(libraries.names)
        if name != UNKNOWN or counts[number, _READ] or len(libraries.names) == 1
    ]  # fmt: skip
    several = len(listed) > 1
    result: dict[str, str | int | list[dict[str, str | int]]] = {"COMMAND": command}
    result |= _named(counts.sum(axis=0), not several)
    if several:
        result["LIBRARIES"] = [
            {"LIBRARY": libraries.names[number]} | _named(counts[number], True) for number in listed
        ]
    return result
