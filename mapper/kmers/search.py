"""Core of k-mer search: all text positions where a k-mer matches with at most two mismatches.

The *right part* of a k-mer is as long as the k-mer table's k. Its exact form and its
neighbours, all patterns within d mismatches, are looked up in the table, and each interval
is extended to the left over the *left part* with the remaining mismatches, depth first.
As soon as few rows are left, they are located and compared with the text instead: 64 bases
take a few instructions. In a text with repeats most of these rows are no matches; where the
contexts of rows are in memory, they rule rows out eight at a time, and the limit for "few" is
ten times higher.

The patterns with the full number of mismatches in the right part are many, and all of
them leave the left part without any. Where the left part alone is rare, its occurrences are
therefore compared with the text instead (pigeonhole), and the right part is searched with
one mismatch less: for 30-mers with two mismatches and a table of 16-mers 49 lookups for
1129, and about one text comparison each.

The comparison with the text decides what is reported, never the index, which holds
random bases in place of ambiguous ones: an ambiguous base of the reference mismatches
everything, and a match lies within one contig. Each match is found once: either the right
part has the full number of mismatches (first search) or fewer (second), and the patterns of
the second are all different.

**Contexts.** Comparing a k-mer with the text at a row takes two accesses to memory, the
second one anywhere in the text. Repeats have thousands of rows near a k-mer that are none of
its matches. With the 16 bases before each suffix, and the 16 at the start of a k-mer's right
part, kept in the order of rows, the rows of an interval are compared eight to an access. A
context is a word of 32 bits: the low bits of 16 codes (:mod:`mapper.dna` planes) in its lower
half, the high bits in its upper half, the first base lowest. It decides nothing alone: an
ambiguous base has some code here, so that a context shows at most as many mismatches as the
text has.

References
----------
Liu, Schmidt (2012), "Evaluation of GPU-based seed generation for computational genomics using
Burrows-Wheeler transform", IPDPS Workshops, 684-690, section 3.3: a depth-first search with a
lower bound; the set of matches is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import plane_word
from mapper.index.fm import extend_left, locate
from mapper.index.reference import contig_bounds, find_contig
from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import popcount, reversed_bits, trailing_zeros
from mapper.kmers.hits import (
    BUFFERED,
    CHANGES_OF_PART,
    EXACT_PART,
    LEFT_PART,
    WHOLE,
    buffer_hit,
    defer_row,
    flush_hits,
    take_item,
)

# --- text bounds ---


class TextBounds(NamedTuple):
    """Contig bounds, and a bitmap of the words of the text with an ambiguous base."""

    contig_starts: np.ndarray  # int64 (n_contigs,)
    contig_lengths: np.ndarray  # int64 (n_contigs,)
    unclean_words: np.ndarray
    """uint64: bit w is set where word w of the text (64 bases) holds an ambiguous base, a
    separator or the end. 2 MB for a billion bases: it stays in the cache of a GPU."""


@driver
def _mark_words(ref_planes, unclean_words):
    for word in range(len(ref_planes)):
        if ref_planes[word, 2]:
            unclean_words[word >> 6] |= np.uint64(1) << np.uint64(word & 63)


def make_text_bounds(
    contig_starts: np.ndarray, contig_lengths: np.ndarray, ref_planes: np.ndarray
) -> TextBounds:
    """Return the bounds and the bitmap of a reference; `ref_planes` as in FMIndex."""
    unclean_words = np.zeros((len(ref_planes) >> 6) + 1, np.uint64)
    _mark_words(ref_planes, unclean_words)
    return TextBounds(contig_starts, contig_lengths, unclean_words)


@core
def surely_clean(bounds, text_pos, length):
    """Return True if none of the words that hold `length` bases (1 to 64) is marked.

    The bases then lie in one contig and none is ambiguous; otherwise they must be compared.
    """
    if text_pos < 0:
        return False
    first = text_pos >> 6
    last = (text_pos + length - 1) >> 6
    marks = (bounds.unclean_words[first >> 6] >> np.uint64(first & 63)) | (
        bounds.unclean_words[last >> 6] >> np.uint64(last & 63)
    )
    return (marks & np.uint64(1)) == 0


# --- k-mers ---

NO_MATCH = 128
"""Number of mismatches at a position where the k-mer is not within one contig."""


class KmerQuery(NamedTuple):
    """One k-mer on one strand, as bit planes; base i in bit i."""

    low: np.uint64
    high: np.uint64
    right_mask: np.uint64  # bits of the right part
    left_mask: np.uint64


@core
def make_query(low, high, strand, params, left_len):
    """Orient a k-mer: as it is for strand 0, its reverse complement for strand 1."""
    k = params.kmer_len
    mask = ~np.uint64(0) >> np.uint64(64 - k)
    if strand == 1:
        # A complement is 3 - code: both bits flip.
        low = reversed_bits(~low) >> np.uint64(64 - k)
        high = reversed_bits(~high) >> np.uint64(64 - k)
    left_mask = (np.uint64(1) << np.uint64(left_len)) - np.uint64(1)
    return KmerQuery(low & mask, high & mask, mask & ~left_mask, left_mask)


@core
def query_base(query, i):
    """Return the code of base `i`."""
    one, bit = np.uint64(1), np.uint64(i)
    return np.int32(((query.low >> bit) & one) | (((query.high >> bit) & one) << one))


@core
def table_index(query, start, length):
    """Return bases start:start+length, 16 at most, coded 2 bits each, the first highest."""
    kmer = np.uint32(0)  # a search may lengthen its table to 16 bases, all 32 bits
    for i in range(np.int32(length)):
        kmer = np.uint32((kmer << np.uint32(2)) | np.uint32(query_base(query, np.int32(start + i))))
    return np.int64(kmer)


@core
def change_base(kmer, change, kmer_len):
    """Change a base of a table index: change m puts code ^ (m % 3 + 1) at base m // 3."""
    if change < 0:
        return kmer
    return kmer ^ ((change % 3 + 1) << (2 * (kmer_len - 1 - change // 3)))


@core
def compare_at(fm, bounds, query, kmer_len, text_pos):
    """Count mismatches of the left and the right part at a position of the text.

    Returns
    -------
    Two counts; NO_MATCH twice where the k-mer is not within one contig.
    """
    if text_pos < 0 or text_pos + kmer_len >= fm.n_rows:
        return np.int64(NO_MATCH), np.int64(NO_MATCH)
    ambiguous = plane_word(fm.ref_planes, 0, text_pos, 2)
    differ = (
        (plane_word(fm.ref_planes, 0, text_pos, 0) ^ query.low)
        | (plane_word(fm.ref_planes, 0, text_pos, 1) ^ query.high)
        | ambiguous
    )
    if ambiguous & (query.left_mask | query.right_mask):
        # An N is a mismatch, but the separator after a contig is no base at all.
        ref_id = find_contig(bounds.contig_starts, text_pos)
        _, end = contig_bounds(bounds.contig_starts, bounds.contig_lengths, ref_id)
        if text_pos + kmer_len > end:
            return np.int64(NO_MATCH), np.int64(NO_MATCH)
    return popcount(differ & query.left_mask), popcount(differ & query.right_mask)


# --- contexts of rows ---

BASES = 16
"""Bases of a context."""

BEFORE, AFTER = range(2)
"""Rows of the array of contexts, uint32 (2, n_rows): the bases before the suffix of each row, and
the bases from ``left_len`` (of a k-mer's left part) after its start."""

AT_A_TIME = 8
"""Rows compared in a step: 32 bytes, the least that an access to a device's memory fetches."""

_HALF = np.uint64(0xFFFF)


@core
def _join(low, high):
    return np.uint32((low & _HALF) | ((high & _HALF) << np.uint64(BASES)))


@core
def context_before(fm, text_pos):
    """Return bases ``text_pos - 16`` to ``text_pos`` of the text; A before its start."""
    start = text_pos - BASES
    shift = np.uint64(0)
    if start < 0:
        shift = np.uint64(-start)
        start = np.int64(0)
    return _join(
        plane_word(fm.ref_planes, 0, start, 0) << shift,
        plane_word(fm.ref_planes, 0, start, 1) << shift,
    )


@core
def context_after(fm, text_pos, left_len):
    """Return base ``text_pos + left_len`` and the 15 after it; beyond the text, anything."""
    start = text_pos + left_len
    if start >= fm.n_rows:
        return np.uint32(0)
    return _join(plane_word(fm.ref_planes, 0, start, 0), plane_word(fm.ref_planes, 0, start, 1))


@core
def fill_contexts(fm, left_len, row, contexts):
    """Write both contexts of a row."""
    text_pos = locate(fm, row)
    contexts[BEFORE, row] = context_before(fm, text_pos)
    contexts[AFTER, row] = context_after(fm, text_pos, left_len)


@core
def bases_before(query, end):
    """Return the context that a k-mer requires before its base `end`, and its mask."""
    if end >= BASES:
        shift = np.uint64(end - BASES)
        return _join(query.low >> shift, query.high >> shift), np.uint32(_HALF)
    shift = np.uint64(BASES - end)
    return _join(query.low << shift, query.high << shift), np.uint32((_HALF << shift) & _HALF)


@core
def bases_after(query, left_len, right_len):
    """Return the context that a k-mer requires from base `left_len` on, and its mask."""
    shift = np.uint64(left_len)
    ones = np.uint32((np.uint64(1) << np.uint64(right_len)) - np.uint64(1))
    return _join(query.low >> shift, query.high >> shift), ones


@core
def context_mismatches(context, wanted, ones):
    """Count the bases of the mask `ones` in which two contexts differ."""
    differ = context ^ wanted
    return popcount(np.uint64((differ | (differ >> np.uint32(BASES))) & ones))


@core
def near_rows(contexts, side, sa_lo, sa_hi, wanted, ones, most):
    """Compare the contexts of AT_A_TIME rows from `sa_lo` on, or up to `sa_hi` (above `sa_lo`).

    Returns
    -------
    uint32: bit i is set where row ``sa_lo + i`` has at most `most` mismatches. All are set where
    `contexts` is None.
    """
    n = min(sa_hi - sa_lo, AT_A_TIME)
    near = np.uint32((1 << n) - 1)
    if contexts is not None:
        for i in range(AT_A_TIME):
            # No branch for each row: then the accesses do not wait for each other.
            row = min(sa_lo + i, sa_hi - 1)
            if context_mismatches(contexts[side, row], wanted, ones) > most:
                near &= ~np.uint32(1 << i)
    return near


@core
def first_near(near):
    """Return the index of the lowest bit set; at least one is."""
    return trailing_zeros(np.uint64(near))


# --- search ---

FETCH, PATTERN, NODE, VERIFY = range(4)
"""States of a thread: take a row, look up a pattern, extend by a base, verify rows."""

COUNTED_AT_A_TIME = 8
"""Rows of repeats located at a time: their accesses do not wait for each other."""


@core
def left_interval(fm, query, left_len):
    """Return the interval of the left part.

    A left part shorter than the table's k is looked up as a range of its extensions. That
    leaves out suffixes shorter than k, which no match of the whole k-mer begins.
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
def rows_of_pattern(fm, exact, first, second, right_len):
    """Look up the interval of the right part with two changes, or fewer where one is -1."""
    kmer = change_base(change_base(np.int64(exact), first, right_len), second, right_len)
    return fm.kmer_starts[kmer], fm.kmer_starts[kmer + 1]


@core
def search_rows(fm, bounds, contexts, low, high, work, params, hits, thread):
    """Find and store all matches of the rows of a worklist, until it is empty.

    A row is a k-mer on a strand. The search of one takes a few steps or thousands, and the
    lanes of a warp wait for each other in loops of different lengths. It is therefore written
    as one loop of short steps (one table lookup, one base, a few rows), and a thread that has
    finished a row takes the next one. Lanes also wait for lanes that take another kind of step:
    in a turn of the loop each takes all the kinds that follow each other, and rare kinds are
    taken only in some turns (``work.step_masks``), by many lanes at once.

    Parameters
    ----------
    fm
        FMIndex with 0 < ``kmer_len`` <= 16 and k (:func:`mapper.index.fm.with_table`).
    bounds
        TextBounds of its text.
    contexts
        uint32 (2, rows of the index), or None: with them only rows are located whose contexts
        have few enough mismatches.
    low, high
        Columns of KmerBatch.
    work
        KmerWork, shared by all threads.
    params
        KmerParams.
    hits
        HitStore, shared; ``row_hits`` exceeds ``max_hits`` where the search stopped early.
    thread
        Number of the thread, which selects its buffer in ``hits``.
    """
    row_type = fm.sa_samples.dtype.type
    right_len = np.int32(fm.kmer_len)
    left_len = np.int32(params.kmer_len - right_len)
    n_changes = np.int32(3 * right_len)
    n_patterns = n_changes  # with the full number of mismatches in the right part
    if params.max_mismatches == 2:
        n_patterns = np.int32(n_changes * (n_changes - 3) // 2)
    most_rows = np.int32(n_patterns if contexts is None else AT_A_TIME * n_patterns)
    max_hits = np.int32(params.max_hits)
    most = np.int32(params.max_mismatches)
    state = np.int32(FETCH)
    row = np.int32(-1)
    n_turns = np.int32(0)  # of the loop, since the row was taken
    turns = np.int32(0)  # of the loop, modulo a power of two; the same for all lanes
    n_hits = n_flushed = np.int32(0)
    query = make_query(np.uint64(0), np.uint64(0), 0, params, left_len)
    exact = np.uint32(0)  # the right part, at most 16 bases
    first = second = end = np.int32(-1)  # its changes to look up next; where the first ends
    pattern_lo = pattern_hi = row_type(0)  # rows of that pattern, loaded a turn before
    right = max_right = np.int32(0)  # mismatches of the pattern; of any pattern
    sa_lo = sa_hi = np.int64(0)
    depth = np.int32(0)  # bases of the left part in the interval
    level = turn = np.int32(0)  # mismatches in them; change to try next: 1, 2, 3, then 0
    lo_0 = hi_0 = lo_1 = hi_1 = row_type(0)  # where to return to, for each mismatch
    depth_0 = depth_1 = turn_0 = turn_1 = np.int32(0)
    storing = False  # rows are stored, not only counted
    n_before = np.int32(0)
    verify_lo = row_type(0)
    whole_right = np.int32(0)  # mismatches of the right part in the first search; 0: the second
    near = np.uint32(0)  # bit mask of the rows to verify, of the AT_A_TIME before sa_lo
    while True:
        n_turns = np.int32(n_turns + 1)
        turns = np.int32((turns + 1) & 255)
        if n_turns > work.max_turns and n_flushed == 0 and state != FETCH:
            defer_row(work, row)
            row = np.int32(-1)
            state = np.int32(FETCH)
        if state == FETCH and turns & work.step_masks.fetch == 0:
            if row >= 0:
                flush_hits(hits, thread, row, n_hits - n_flushed, max_hits)
            item_row, part = take_item(work)
            if item_row < 0:
                return
            row = np.int32(item_row)
            if part == WHOLE:
                hits.row_hits[row] = 0
            query = make_query(low[row >> 1], high[row >> 1], row & 1, params, left_len)
            exact = np.uint32(table_index(query, left_len, right_len))
            n_hits = n_flushed = n_turns = np.int32(0)
            near = np.uint32(0)
            level = np.int32(0)
            whole_right = np.int32(0)
            max_right = most
            state = np.int32(PATTERN)
            if max_right > 0 and left_len > 0:
                sa_lo, sa_hi = left_interval(fm, query, left_len)
                if sa_hi - sa_lo <= most_rows:
                    max_right = np.int32(max_right - 1)
                    if part == WHOLE or part == LEFT_PART:
                        storing = True
                        depth = left_len
                        whole_right = np.int32(max_right + 1)
                        state = np.int32(VERIFY)
            first, second = np.int32(-1), np.int32(-1)
            end = np.int32(n_changes if max_right > 0 else 0)
            if part == EXACT_PART:
                end = np.int32(0)
            elif part == LEFT_PART:
                first = end
            elif part != WHOLE:
                first = np.int32(CHANGES_OF_PART * part)
                end = np.int32(min(first + CHANGES_OF_PART, end))
            if first < end:
                pattern_lo, pattern_hi = rows_of_pattern(fm, exact, first, second, right_len)
        if state == PATTERN:
            whole_right = np.int32(0)
            if first >= end:
                state = np.int32(FETCH)
            else:
                sa_lo, sa_hi = np.int64(pattern_lo), np.int64(pattern_hi)
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
                if first < end:
                    pattern_lo, pattern_hi = rows_of_pattern(fm, exact, first, second, right_len)
                if sa_lo < sa_hi:
                    depth = np.int32(0)
                    turn = np.int32(1)
                    state = np.int32(NODE)
        if state == NODE:
            few = np.int64(params.verify_rows)
            if contexts is not None:
                # The more mismatches remain, the more ways a search goes on.
                few <<= 2 * (most - level - right)
            if depth == left_len or sa_hi - sa_lo <= few:
                # Rows of a repeat are counted first: most often they are too many to store.
                storing = depth < left_len or n_hits + sa_hi - sa_lo <= max_hits
                verify_lo, n_before = row_type(sa_lo), n_hits
                state = np.int32(VERIFY)
            elif turns & work.step_masks.node == 0:
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
        if state == VERIFY:
            if not storing:
                for i in range(COUNTED_AT_A_TIME):
                    if sa_lo + i < sa_hi and surely_clean(
                        bounds, locate(fm, sa_lo + i), params.kmer_len
                    ):
                        n_hits = np.int32(n_hits + 1)
                sa_lo += COUNTED_AT_A_TIME
            elif near != 0 or sa_lo < sa_hi:
                if whole_right > 0:
                    side, allowed = AFTER, np.int64(most)
                    wanted, ones = bases_after(query, left_len, right_len)
                else:
                    side, allowed = BEFORE, np.int64(most - level - right)
                    wanted, ones = bases_before(query, left_len - depth)
                if near == 0:
                    near = near_rows(contexts, side, sa_lo, sa_hi, wanted, ones, allowed)
                    sa_lo += AT_A_TIME
                if near != 0 and turns & work.step_masks.look == 0:
                    at = sa_lo - AT_A_TIME + first_near(near)
                    near &= near - np.uint32(1)
                    text_pos = locate(fm, at) - (left_len - depth)
                    n_left, n_right = np.int64(level), np.int64(right)
                    known = depth == left_len and whole_right == 0  # rows of the whole k-mer
                    if contexts is not None:
                        # Or rows whose contexts hold all the rest of it.
                        apart = context_mismatches(contexts[side, at], wanted, ones)
                        if whole_right > 0:
                            n_left, n_right, known = np.int64(0), apart, True
                        elif left_len - depth <= BASES:
                            n_left, known = n_left + apart, True
                    if not (known and surely_clean(bounds, text_pos, params.kmer_len)):
                        n_left, n_right = compare_at(fm, bounds, query, params.kmer_len, text_pos)
                    own = n_right == whole_right if whole_right > 0 else n_right <= max_right
                    if own and n_left + n_right <= most:
                        n_buffered = np.int32(n_hits - n_flushed)
                        if n_buffered == BUFFERED:
                            flush_hits(hits, thread, row, n_buffered, max_hits)
                            n_flushed, n_buffered = n_hits, np.int32(0)
                        buffer_hit(hits, thread, n_buffered, text_pos, n_left + n_right)
                        n_hits = np.int32(n_hits + 1)
            if n_hits > max_hits:
                state = np.int32(FETCH)
            elif near == 0 and sa_lo >= sa_hi:
                if not storing:
                    # Few enough, or uncertain: go through the interval again and store.
                    sa_lo, n_hits, storing = np.int64(verify_lo), n_before, True
                elif level == 0:
                    state = np.int32(PATTERN)
                else:
                    level = np.int32(level - 1)
                    state = np.int32(NODE)
                    if level == 0:
                        sa_lo, sa_hi = np.int64(lo_0), np.int64(hi_0)
                        depth, turn = depth_0, turn_0
                    else:
                        sa_lo, sa_hi = np.int64(lo_1), np.int64(hi_1)
                        depth, turn = depth_1, turn_1
