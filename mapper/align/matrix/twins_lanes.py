"""Core: what the lanes of a group do for twins, two queries against one reference.

See ``twins_cuda.py``, whose kernel calls these.
"""

from __future__ import annotations

import numpy as np

from mapper.align.matrix.cells import higher, plus
from mapper.align.matrix.dp import LOCAL, next_cell
from mapper.align.matrix.plan_query_pairs import UNIT
from mapper.cuda.warp import four_words
from mapper.jit.accelerate import core


@core
def _score_word(low, high):
    """Two scores as :func:`mapper.align.matrix.cells.plus` takes them."""
    return np.uint32((np.int64(low) + np.int64(high) * 65536) & np.int64(0xFFFFFFFF))


@core
def joined_words(score, gap):
    """Two words of a row between strips as one."""
    return np.uint64(score) | (np.uint64(gap) << np.uint64(32))


@core
def score_of(over):
    """The first of two words that are joined."""
    return np.uint32(over & np.uint64(0xFFFFFFFF))


@core
def in_query(row, k):
    """0xFFFF if row k of those that begin at `row` is in the query, else 0."""
    return np.uint32(0xFFFF) if np.int32(row + k) >= 0 else np.uint32(0)


@core
def fill_profile(words, scores, codes, low, high, strip_row, units, thread, n_threads, lanes,
                 most_units):  # fmt: skip
    """Write the scores of a strip's rows with each letter.

    For a letter there are ``4 * lanes * most_units`` words: of each unit of rows, every lane's
    four. Of fewer units the last ones are used.

    Parameters
    ----------
    low, high
        Of both queries: where its codes start, and how many rows stand above its first.
    """
    n_letters = np.int32(scores.shape[0])
    rows = np.int32(UNIT * units)
    skipped = np.int32(most_units - units) * np.int32(UNIT * lanes)
    for place in range(thread, rows * lanes, n_threads):
        lane = np.int32((place // UNIT) % lanes)
        row = np.int32(strip_row + lane * rows + place // (UNIT * lanes) * UNIT + place % UNIT)
        low_code, high_code = np.uint32(n_letters - 1), np.uint32(n_letters - 1)
        if row >= low[1]:
            low_code = np.uint32(codes[np.uint64(low[0] + row - low[1])])
        if row >= high[1]:
            high_code = np.uint32(codes[np.uint64(high[0] + row - high[1])])
        at = np.uint32(skipped + place)
        for letter in range(n_letters):
            words[at] = _score_word(
                scores[low_code, np.uint32(letter)], scores[high_code, np.uint32(letter)]
            )
            at = np.uint32(at + np.uint32(UNIT * lanes * most_units))


@core
def next_unit(words, at, unit, lanes, diagonal, insertion, highest, scores_of_row, deletions,
              mode, cells):  # fmt: skip
    """Compute a column of a lane's unit of rows, whose scores and deletions are replaced.

    Parameters
    ----------
    words, at
        A profile, and where its words for the letter and the lane begin.
    diagonal, insertion
        H of the row above in the column before; I of the first row.
    highest
        Of the scores before; only a local alignment asks for it.

    Returns
    -------
    The same for the next unit (the diagonal is the last row's), and the bits of all rows.
    """
    substitutions = four_words(words, at, np.uint32(unit * UNIT * lanes))
    bits = np.uint32(0)
    for x in range(UNIT):
        k = unit * UNIT + x
        matched = plus(diagonal, substitutions[x], cells)
        diagonal = scores_of_row[k]
        score, insertion, deletion, origin = next_cell(
            matched, insertion, deletions[k], mode == LOCAL, cells
        )
        scores_of_row[k] = score
        deletions[k] = deletion
        if mode == LOCAL:
            highest = higher(highest, score, cells)
        bits = np.uint32(bits * np.uint32(16) + origin)
    return diagonal, insertion, highest, bits
