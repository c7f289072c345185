"""Core: every place where a k-mer matches with at most two mismatches.

The *right part* of a k-mer is as long as the k-mer table's k. Its exact form and its
neighbours, all patterns within d mismatches, are looked up in the table, and each interval
is extended to the left over the *left part* with the mismatches that remain, depth first.
As soon as few rows are left, they are located and compared with the text instead: 64 bases
take a few instructions.

Of patterns with the full number of mismatches in the right part there are many, and all of
them leave the left part without any. Where the left part alone is rare, its occurrences are
therefore compared with the text instead (pigeonhole), and the right part is searched with
one mismatch less: for 30-mers with two mismatches and a table of 16-mers 49 lookups for
1129, and about one text comparison each.

What is reported is decided by the comparison with the text, never by the index, which holds
random bases in place of ambiguous ones: an ambiguous base of the reference mismatches
everything, and a match lies within one contig. Each match is found once: either the right
part has the full number of mismatches (first search) or fewer (second), and the patterns of
the second are all different.

References
----------
Paper 3 of ``docs/algorithm.md`` (GPU seed generation), section 3.3, has the depth-first
search with a lower bound; the set of matches is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.atomic import fetch_add
from mapper.index.fm import extend_left, locate
from mapper.seed.kmer_places import surely_clean
from mapper.seed.kmer_query import change_base, compare_at, make_query, query_base, table_index

FETCH, PATTERN, NODE, TAKE = range(4)
"""What a thread does next: take on a row, look up a pattern, take a base, look at a row."""

COUNTED_AT_A_TIME = 8
"""Rows of repeats are located so many at a time: their accesses do not wait for each other."""


class HitStore(NamedTuple):
    """Hits as threads find them: the first of each row apart, the others in a list.

    A row is a k-mer on a strand. List items are in no order; ``more_ordinal`` says which hit
    of its row an item is (1, 2, ...).
    """

    row_hits: np.ndarray  # int32 (n_rows,): their number; above the limit it stops there
    first_pos: np.ndarray  # uint32 or uint64 (n_rows,)
    first_mismatches: np.ndarray  # uint8 (n_rows,)
    more_used: np.ndarray  # int64 (1,): items of the list, also those without room
    more_row: np.ndarray  # int32 (capacity,)
    more_ordinal: np.ndarray  # int32 (capacity,)
    more_pos: np.ndarray  # uint32 or uint64 (capacity,)
    more_mismatches: np.ndarray  # uint8 (capacity,)


@core
def store_hit(hits, row, ordinal, text_pos, mismatches):
    """Keep a hit: the first of its row in its own place, another in the shared list."""
    if ordinal == 0:
        hits.first_pos[row] = text_pos
        hits.first_mismatches[row] = mismatches
        return
    slot = fetch_add(hits.more_used, 1)
    if slot < len(hits.more_row):
        hits.more_row[slot] = row
        hits.more_ordinal[slot] = ordinal
        hits.more_pos[slot] = text_pos
        hits.more_mismatches[slot] = mismatches


@core
def left_interval(fm, query, left_len):
    """Rows of the left part.

    A left part shorter than the table's k is looked up as a range of its extensions. The
    table does not see suffixes shorter than k there, and need not: a match of the whole
    k-mer has at least k bases from its left part on.
    """
    in_table = min(np.int64(left_len), np.int64(fm.kmer_len))
    kmer = table_index(query, left_len - in_table, in_table)
    beyond = 2 * (fm.kmer_len - in_table)
    sa_lo = np.int64(fm.kmer_starts[kmer << beyond])
    sa_hi = np.int64(fm.kmer_starts[(kmer + 1) << beyond])
    i = left_len - in_table
    while i > 0 and sa_lo < sa_hi:
        i -= 1
        sa_lo, sa_hi = extend_left(fm, query_base(query, i), sa_lo, sa_hi)
    return sa_lo, sa_hi


@core
def search_rows(fm, places, low, high, next_row, n_rows, params, hits):
    """Find and keep all matches of rows until none is left to take on.

    A row is a k-mer on a strand. The search of one takes a few steps or thousands, and the
    lanes of a warp wait for each other wherever they loop apart. It is therefore written as
    one loop of short steps (one table lookup, one base, one row), and whoever is done with
    a row takes on the next one.

    Parameters
    ----------
    fm
        FMIndex with 0 < ``kmer_len`` <= 16 and k (:func:`mapper.index.expand.with_table`).
    places
        Places of its text.
    low, high
        Columns of KmerBatch.
    next_row
        int64 (1,): the next row that nobody has taken on; shared by all threads.
    n_rows
        Twice the number of k-mers: 2 i is k-mer i itself, 2 i + 1 its reverse complement.
    params
        KmerParams.
    hits
        HitStore; ``row_hits`` becomes ``max_hits`` + 1 where the search stopped there.
    """
    row_type = fm.sa_samples.dtype.type
    right_len = np.int32(fm.kmer_len)
    left_len = np.int32(params.kmer_len - right_len)
    n_changes = np.int32(3 * right_len)
    n_patterns = n_changes  # with the full number of mismatches in the right part
    if params.max_mismatches == 2:
        n_patterns = np.int32(n_changes * (n_changes - 3) // 2)
    max_hits = np.int32(params.max_hits)
    most = np.int32(params.max_mismatches)
    state = np.int32(FETCH)
    row = np.int32(-1)
    n_hits = np.int32(0)
    query = make_query(np.uint64(0), np.uint64(0), 0, params, left_len)
    exact = np.uint32(0)  # the right part, at most 16 bases
    first = second = np.int32(-1)  # its changes to look up next
    right = max_right = np.int32(0)  # mismatches of the pattern; of any pattern
    sa_lo = sa_hi = np.int64(0)
    depth = np.int32(0)  # bases of the left part that the rows stand for
    level = turn = np.int32(0)  # mismatches taken there; what to take next: 1, 2, 3, then 0
    lo_0 = hi_0 = lo_1 = hi_1 = row_type(0)  # where to come back to, for each mismatch taken
    depth_0 = depth_1 = turn_0 = turn_1 = np.int32(0)
    storing = False  # whether rows are kept, or only counted
    n_before = np.int32(0)
    take_lo = row_type(0)
    whole_right = np.int32(0)  # mismatches that the first search requires there; 0: the second
    while True:
        if state == TAKE:
            if n_hits > max_hits:
                state = np.int32(FETCH)
            elif sa_lo < sa_hi and not storing:
                for i in range(COUNTED_AT_A_TIME):
                    if sa_lo + i < sa_hi and surely_clean(
                        places, locate(fm, sa_lo + i), params.kmer_len
                    ):
                        n_hits = np.int32(n_hits + 1)
                sa_lo += COUNTED_AT_A_TIME
            elif sa_lo < sa_hi:
                text_pos = locate(fm, sa_lo) - (left_len - depth)
                settled = depth == left_len and whole_right == 0  # rows of the whole k-mer
                if settled and surely_clean(places, text_pos, params.kmer_len):
                    n_left, n_right = np.int64(level), np.int64(right)
                else:
                    n_left, n_right = compare_at(fm, places, query, params.kmer_len, text_pos)
                own = n_right == whole_right if whole_right > 0 else n_right <= max_right
                if own and n_left + n_right <= most:
                    store_hit(hits, row, n_hits, text_pos, n_left + n_right)
                    n_hits = np.int32(n_hits + 1)
                sa_lo += 1
            elif not storing:
                # Not that many after all, or not surely: go through them once more.
                sa_lo, n_hits, storing = np.int64(take_lo), n_before, True
            elif level == 0:
                state = np.int32(PATTERN)
            else:
                level = np.int32(level - 1)
                state = np.int32(NODE)
                if level == 0:
                    sa_lo, sa_hi, depth, turn = np.int64(lo_0), np.int64(hi_0), depth_0, turn_0
                else:
                    sa_lo, sa_hi, depth, turn = np.int64(lo_1), np.int64(hi_1), depth_1, turn_1
        elif state == NODE:
            if depth == left_len or sa_hi - sa_lo <= params.verify_rows:
                # Rows of a repeat are counted first: most often they are too many to keep.
                storing = depth < left_len or n_hits + sa_hi - sa_lo <= max_hits
                take_lo, n_before = row_type(sa_lo), n_hits
                state = np.int32(TAKE)
            else:
                change = np.int32(0)
                if turn < 4 and level + right < most:
                    change = turn
                code = query_base(query, left_len - 1 - depth) ^ change
                next_lo, next_hi = extend_left(fm, code, sa_lo, sa_hi)
                turn = np.int32(turn + 1)
                if change == 0 or next_lo < next_hi:
                    if change != 0:
                        if level == 0:
                            lo_0, hi_0 = row_type(sa_lo), row_type(sa_hi)
                            depth_0, turn_0 = depth, turn
                        else:
                            lo_1, hi_1 = row_type(sa_lo), row_type(sa_hi)
                            depth_1, turn_1 = depth, turn
                        level = np.int32(level + 1)
                    sa_lo, sa_hi = next_lo, next_hi
                    depth = np.int32(depth + 1)
                    turn = np.int32(1)
        elif state == PATTERN:
            whole_right = np.int32(0)
            if first >= (n_changes if max_right > 0 else 0):
                state = np.int32(FETCH)
            else:
                kmer = change_base(np.int64(exact), first, right_len)
                kmer = change_base(kmer, second, right_len)
                sa_lo = np.int64(fm.kmer_starts[kmer])
                sa_hi = np.int64(fm.kmer_starts[kmer + 1])
                right = np.int32(0)
                if first >= 0:
                    right = np.int32(1 if second < 0 else 2)
                if first >= 0 and max_right == 2:
                    # A second change is of a later base than the first.
                    second = np.int32(3 * (first // 3 + 1) if second < 0 else second + 1)
                    if second >= n_changes:
                        second = np.int32(-1)
                if second < 0:
                    first = np.int32(first + 1)
                if sa_lo < sa_hi:
                    depth = np.int32(0)
                    turn = np.int32(1)
                    state = np.int32(NODE)
        else:
            if row >= 0:
                hits.row_hits[row] = min(n_hits, np.int32(max_hits + 1))
            taken_on = fetch_add(next_row, 1)
            if taken_on >= n_rows:
                return
            row = np.int32(taken_on)
            query = make_query(low[row >> 1], high[row >> 1], row & 1, params, left_len)
            exact = np.uint32(table_index(query, left_len, right_len))
            first = second = np.int32(-1)
            n_hits = np.int32(0)
            level = np.int32(0)
            whole_right = np.int32(0)
            max_right = most
            state = np.int32(PATTERN)
            if max_right > 0 and left_len > 0:
                sa_lo, sa_hi = left_interval(fm, query, left_len)
                if sa_hi - sa_lo <= n_patterns:
                    storing = True
                    depth = left_len
                    whole_right = max_right
                    max_right = np.int32(max_right - 1)
                    state = np.int32(TAKE)
