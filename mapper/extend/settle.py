"""Core: the loci of a read aligned side by side, with the result of one after the other.

What gaps must win at a locus (its *target*) depends on the best alignment at the loci before
it (:func:`mapper.extend.read.target_of`). A device aligns the first locus of every read, then
all others at once with the target that the first leaves: seldom less than what
:func:`mapper.extend.read.extend_read` would ask. What was found with a lower target tells what
would have been found with a higher (:func:`mapper.extend.locus.align_gapped`), so going
through the loci in order with the true targets settles the read. Where the true target is
lower, the locus has to be aligned again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.extend.bounds import gaps_may_win
from mapper.extend.filter import as_given
from mapper.extend.read import Found, lowest_doubled, target_of, ungapped_of
from mapper.extend.ungapped import ungapped_score
from mapper.jit.accelerate import core

UNSPELT = -1
"""``cigar_end`` of an ungapped alignment whose operations are wanted and not written yet."""


class PerLocus(NamedTuple):
    """What is known of each locus; a read has the rows of its loci, from its first on."""

    ungapped: Any  # int32 (n_loci, 8): the fields of Ungapped
    order: Any  # int32: rows (from the read's first) by ungapped objective
    kept: Any  # int32: rows of alignments, in the order found, then best first
    target: Any  # int32: what `total` had to exceed
    total: Any  # int32: doubled objective with gaps; 0 where the ungapped alignment stands
    found: Found
    """The alignment; ``score`` is doubled. Without meaning before the read is settled, where
    the ungapped alignment stands."""


@core
def propose(rows, row, target, read_len, params):
    """Set the target of a locus; say whether gaps have to be tried there."""
    rows.target[row] = target
    rows.total[row] = 0
    rows.found.cigar_start[row] = 0
    rows.found.cigar_end[row] = 0
    return gaps_may_win(ungapped_of(rows.ungapped[row]), read_len, target, params)


@core
def let_ungapped_stand(rows, row, diagonal, read_len, params):
    """Make the ungapped alignment the one found at a locus."""
    u = ungapped_of(rows.ungapped[row])
    rows.total[row] = 0
    rows.found.score[row] = ungapped_score(u, read_len, params)
    rows.found.query_start[row] = u.start
    rows.found.query_end[row] = u.end
    rows.found.text_start[row] = diagonal + u.start
    rows.found.text_end[row] = diagonal + u.end
    rows.found.cigar_start[row] = 0
    rows.found.cigar_end[row] = 0


@core
def target_after(rows, loci, lead, row, read_len, params):
    """Target of a locus when the read's first, `lead`, is all that is known."""
    u = ungapped_of(rows.ungapped[lead])
    best, start, end = ungapped_score(u, read_len, params), u.start, u.end
    if rows.total[lead] > 0:
        best = np.int64(rows.found.score[lead])
        start = np.int64(rows.found.query_start[lead])
        end = np.int64(rows.found.query_end[lead])
    if best < lowest_doubled(read_len, params):
        best = start = end = np.int64(0)
    start, end = as_given(start, end, loci.strand[lead], read_len)
    return target_of(
        ungapped_of(rows.ungapped[row]), loci.strand[row], read_len, best, start, end, params
    )


@core
def settle_read(rows, loci, first, n_loci, read_len, params):
    """Go through the loci of a read in order, with their true targets.

    Parameters
    ----------
    first, n_loci
        Which rows are the read's.

    Returns
    -------
    n_found
        How many alignments there are; ``rows.kept`` has their rows, counted from `first`.
    row, target
        The first locus that was aligned with too high a target, and its true target; `row`
        is -1 if there is none, and the read is settled.
    """
    bar = lowest_doubled(read_len, params)
    best = best_start = best_end = np.int64(0)
    n_found = np.int64(0)
    for i in range(n_loci):
        row = first + rows.order[first + i]
        u = ungapped_of(rows.ungapped[row])
        target = target_of(u, loci.strand[row], read_len, best, best_start, best_end, params)
        if target < rows.target[row]:
            return n_found, row, target
        if rows.total[row] <= target:
            let_ungapped_stand(rows, row, loci.diagonal[row], read_len, params)
        doubled = np.int64(rows.found.score[row])
        if doubled < bar:
            continue
        if doubled > best:
            best = doubled
            best_start, best_end = as_given(
                rows.found.query_start[row], rows.found.query_end[row], loci.strand[row], read_len
            )
        rows.kept[first + n_found] = row - first
        n_found += 1
    return n_found, np.int64(-1), np.int64(0)
