"""Core: inversions that an alignment runs through, as alignments of their own.

A short inversion has no chain, or one that loses against the read's: the alignment goes through it,
by mismatches and gaps. Its score dips there. Where it drops by more than ``inversion_drop`` and
recovers, the other strand of that part of the read is aligned with the same part of the text. If
that scores more than half of what was lost, the alignment is cut there, and the inverted part is
one as well. Half, because a dip costs as much as a deletion and an insertion, whatever its length:
with the scores of ``asm`` more than the bases of a short inversion score.

References
----------
minimap2's test of z-drops for inversions (its option ``-z``); Li (2018),
doi:10.1093/bioinformatics/bty191, section 2.2.2.
"""

from __future__ import annotations

import numpy as np

from mapper.dna import n_words
from mapper.extend.pieces import (
    Path,
    Sides,
    add_alignment,
    add_parts,
    begin_path,
    behind_op,
    behind_ops,
    fill_gap,
    op_score,
    part_gaps,
)
from mapper.extend.read import OPS_FULL
from mapper.jit.accelerate import core


@core
def find_dip(ops, first, end, query, text, sides, scoring, least):
    """Find where the score drops by more than `least` below its highest so far, and recovers.

    Operation `first` begins at `query` and `text`.

    Returns
    -------
    start, stop
        Operations from behind the highest score to behind the lowest; `end` if there are none.
    drop
        What is lost between them.
    """
    run = highest = lowest = np.int64(0)
    start, stop = np.int64(first), np.int64(first)
    for i in range(first, end):
        run += op_score(ops[i], query, text, sides, scoring)
        query, text = behind_op(ops[i], query, text)
        if run > highest:
            if highest - lowest > least:
                return start, stop, highest - lowest
            highest = lowest = run
            start = stop = np.int64(i) + 1
        elif run < lowest:
            lowest, stop = run, np.int64(i) + 1
    return np.int64(end), np.int64(end), np.int64(0)


@core
def _align_inverted(ops, n_ops, query, text, query_end, text_end, strand, ref_id, sides, scoring,
                    params, space, scratch, found, n_found, most):  # fmt: skip
    """Append what aligns of the other strand of a part of the read; return n_found and n_ops.

    n_found is OPS_FULL if `ops` is too small.
    """
    length = np.int64(sides.query_len)
    words = n_words(length)
    other = Sides(
        sides.query_planes, sides.query_word - words if strand else sides.query_word + words,
        length, sides.text_planes, sides.text_start, sides.text_end,
    )  # fmt: skip
    begin = begin_path(ops, n_ops)
    path = Path(begin, length - query_end, text)
    is_filled, path = fill_gap(other, path, length - query, text_end, scoring, space, scratch, ops)
    if path.n_ops >= 0 and is_filled:
        path = part_gaps(ops, begin, path, other)
    if path.n_ops < 0:
        return np.int64(OPS_FULL), np.int64(n_ops)
    if not is_filled:
        return np.int64(n_found), np.int64(n_ops)
    n_all = add_parts(
        ops, begin, path.n_ops, length - query_end, text, 1 - np.int64(strand), ref_id, other,
        scoring, params, found, n_found, most,
    )  # fmt: skip
    return np.int64(n_all), path.n_ops


@core
def split_at_inversions(ops, n_ops, row, n_found, sides, scoring, params, space, scratch, found,
                        most):  # fmt: skip
    """Cut an alignment where a part of the read is inverted, and append the parts.

    Parameters
    ----------
    ops, n_ops
        uint32; operations of inverted parts are appended.
    row
        The alignment: a row of `found`, which gets its first part.
    sides
        :class:`mapper.extend.pieces.Sides` of its strand.
    most
        Alignments of a read, at most.

    Returns
    -------
    n_found, n_ops
        n_found is OPS_FULL if `ops` is too small.
    """
    first, end = np.int64(found.cigar_start[row]), np.int64(found.cigar_end[row])
    query, text = np.int64(found.query_start[row]), np.int64(found.text_start[row])
    strand, ref_id = np.int64(found.strand[row]), found.ref_id[row]
    after = first
    at_query, at_text = query, text
    while True:
        start, stop, drop = find_dip(
            ops, after, end, at_query, at_text, sides, scoring, params.inversion_drop
        )
        if stop == end:
            return np.int64(n_found), np.int64(n_ops)
        dip_query, dip_text = behind_ops(ops, after, start, at_query, at_text)
        at_query, at_text = behind_ops(ops, start, stop, dip_query, dip_text)
        after = stop
        longest = max(at_query - dip_query, at_text - dip_text)
        if longest > params.max_extension or n_found + 2 > most:
            continue
        n_with, n_ops_with = _align_inverted(
            ops, n_ops, dip_query, dip_text, at_query, at_text, strand, ref_id, sides, scoring,
            params, space, scratch, found, n_found, most,
        )  # fmt: skip
        if n_with < 0:
            return n_with, n_ops_with
        gained = np.int64(0)
        for i in range(n_found, n_with):
            gained += found.score[i]
        if 2 * gained <= drop or n_with == most:
            continue
        n_found, n_ops = n_with, n_ops_with
        add_alignment(ops, first, start, query, text, strand, ref_id, sides, scoring, found, row)
        row = n_found
        n_found += 1
        add_alignment(ops, stop, end, at_query, at_text, strand, ref_id, sides, scoring, found, row)
        first, query, text = stop, at_query, at_text
