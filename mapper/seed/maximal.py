"""Core of seeding long reads: maximal exact matches, from windows spread evenly over the read.

A *window* of ``seed_len`` bases starts every ``step`` bases of the read (more often in shorter
reads), and one ends at the end of each stretch without ambiguous bases. Its pattern is searched
backwards on both strands until it has a single row; one with more than ``extend_over`` rows is
lengthened beyond the window while that leaves any. Rows are located, and each place grows, by
comparing read and text 64 bases at a time, into the maximal exact match around it: an *anchor*, if
it has ``seed_len`` bases.

Every match of at least ``seed_len + step - 1`` bases thus has an anchor, unless its windows are
frequent in the text: of these the longer patterns are kept, so copies that differ from the read
fall away. Patterns of more than ``max_occ`` rows are left out; the number of their bases lowers the
mapping quality. Unlike super-maximal matches, anchors need no second, shorter search for
other copies of a repeat: each place of a window grows by itself.

Windows are independent of each other, so a read can be cut anywhere among threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import AMBIGUOUS, matching_run, n_words
from mapper.index.fm import extend_left, locate_together
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount
from mapper.jit.lanes import lane_mask, lanes_meet
from mapper.seed.exact import (
    begin_seed,
    lengthen_seed,
    lengthen_together,
    narrow_together,
    pattern_base,
    rows_compared,
    table_kmer,
)
from mapper.seed.rounds import SEARCHED_TOGETHER


class WindowScratch(NamedTuple):
    """Workspace for the windows that are searched together: the columns of a SeedScratch."""

    start: np.ndarray  # int32 (SEARCHED_TOGETHER,), on the codes of the batch
    length: np.ndarray  # int32
    strand: np.ndarray  # uint8
    sa_lo: np.ndarray  # int64
    sa_hi: np.ndarray  # int64
    order: np.ndarray  # int32


class AnchorColumns(NamedTuple):
    """The columns of an AnchorBatch that have a row for each anchor."""

    strand: np.ndarray  # uint8
    query_start: np.ndarray  # int32
    text_pos: np.ndarray  # int64
    length: np.ndarray  # int32


def new_window_scratch() -> WindowScratch:
    """Allocate the workspace of one thread."""
    types = ("i4", "i4", "u1", "i8", "i8", "i4")
    return WindowScratch(*(np.empty(SEARCHED_TOGETHER, np.dtype(t)) for t in types))


@core
def maximal_match(fm, planes, word, read_len, query_start, text_pos):
    """Return the maximal exact match through a place: query_start, text_pos and length."""
    right = matching_run(
        planes, word, np.int32(query_start), fm.ref_planes, 0, text_pos,
        np.int32(read_len - query_start), True,
    )  # fmt: skip
    left = matching_run(
        planes, word, np.int32(query_start), fm.ref_planes, 0, text_pos,
        np.int32(min(np.int64(query_start), text_pos)), False,
    )  # fmt: skip
    return query_start - left, text_pos - left, np.int64(left) + right


@core
def step_of(read_len, params):
    """Return the distance of windows: shorter reads have at least ``least_windows``."""
    return min(np.int64(params.step), max(np.int64(1), read_len // params.least_windows))


@core
def search_windows(fm, codes, first, clean, clean_end, step, n, params, scratch):
    """Search `n` windows of one stretch, from row 0 of `scratch` on, on both strands.

    Parameters
    ----------
    first
        Start of the first window on `codes`.
    clean, clean_end
        Bounds of the stretch without ambiguous bases.
    step
        Distance of windows.
    scratch
        Rows ``2 i`` and ``2 i + 1`` get window i on strand 0 and strand 1: the rows of its
        pattern's last ``length`` bases.
    """
    last = clean_end - params.seed_len
    for i in range(n):
        start = min(first + i * step, last)
        for strand in range(2):
            scratch.start[2 * i + strand] = start
            scratch.strand[2 * i + strand] = strand
    narrow_together(fm, codes, params.seed_len, scratch, 0, 2 * n)
    lengthen_together(
        fm, codes, params.seed_len, clean, clean_end, params.extend_over, scratch, 0, 2 * n
    )


@core
def search_window(fm, codes, clean, clean_end, start, strand, params):
    """Search one window on one strand, as :func:`search_windows` does many.

    Returns
    -------
    sa_lo, sa_hi, length
        The rows of its pattern's last `length` bases.
    """
    end = start + params.seed_len
    sa_lo, sa_hi, length = begin_seed(fm, table_kmer(fm, codes, start, end, strand))
    most_rows = rows_compared(fm, params.seed_len)
    while length < params.seed_len and sa_lo + most_rows < sa_hi:
        base = pattern_base(codes, start, end, strand, length)
        sa_lo, sa_hi = extend_left(fm, base, sa_lo, sa_hi)
        length += 1
    if length == params.seed_len and sa_hi - sa_lo > max(params.extend_over, 1):
        room = start - clean if strand == 0 else clean_end - end
        sa_lo, sa_hi, length = lengthen_seed(
            fm, codes, start, end, strand, sa_lo, sa_hi, room, params.extend_over
        )
    return sa_lo, sa_hi, length


@core
def windows_of(clean, clean_end, step, params):
    """Return the number of windows of a stretch: one every `step` bases, and one at its end."""
    last = clean_end - params.seed_len
    return (last - clean + step - 1) // step + 1 if last >= clean else np.int64(0)


@core
def locate_windows(fm, n, params, scratch, working):
    """Locate the rows of the first `n` rows of `scratch` that are not too frequent.

    Returns
    -------
    n_rows
        Places in ``working.rows``: those of row 0 of `scratch`, of row 1, ...
    n_frequent
        Windows and strands left out; their ``sa_hi`` is set to ``sa_lo``.
    """
    n_rows = n_frequent = np.int64(0)
    for i in range(n):
        if scratch.sa_hi[i] - scratch.sa_lo[i] > params.max_occ:
            scratch.sa_hi[i] = scratch.sa_lo[i]
            n_frequent += 1
        for row in range(scratch.sa_lo[i], scratch.sa_hi[i]):
            working.rows[n_rows] = row
            n_rows += 1
    locate_together(fm, working, n_rows)
    return n_rows, n_frequent


@core
def add_anchors(fm, planes, word, read_start, read_end, n, params, scratch, working, columns,
                n_anchors):  # fmt: skip
    """Append the anchors of located windows, which `columns` have room for; return their number.

    A match that is found again by the next window of its strand is left out; farther duplicates
    are not.

    Parameters
    ----------
    planes, word
        The read's bit planes: strand 0 from row `word` on, followed by strand 1.
    """
    read_len = read_end - read_start
    last_0 = last_1 = np.int64(-1)  # anchors
    at = np.int64(0)
    for i in range(n):
        strand = np.int64(scratch.strand[i])
        start, length = np.int64(scratch.start[i]), np.int64(scratch.length[i])
        if strand == 0:
            query_start = start + params.seed_len - length - read_start
        else:
            query_start = read_end - start - length
        strand_word = word + strand * n_words(read_len)
        for _ in range(scratch.sa_hi[i] - scratch.sa_lo[i]):
            text_pos = working.rows[at]
            at += 1
            last = last_1 if strand else last_0
            if (
                last >= 0
                and text_pos - query_start == columns.text_pos[last] - columns.query_start[last]
                and query_start >= columns.query_start[last]
                and query_start + length <= columns.query_start[last] + columns.length[last]
            ):
                continue
            found_start, found_pos, found_len = maximal_match(
                fm, planes, strand_word, read_len, query_start, text_pos
            )
            if found_len < params.seed_len:
                continue
            columns.strand[n_anchors] = strand
            columns.query_start[n_anchors] = found_start
            columns.text_pos[n_anchors] = found_pos
            columns.length[n_anchors] = found_len
            if strand:
                last_1 = n_anchors
            else:
                last_0 = n_anchors
            n_anchors += 1
    return n_anchors


@core
def next_stretch(codes, start, end):
    """Return the bounds of the first stretch without ambiguous bases in ``codes[start:end]``."""
    while start < end and codes[start] >= AMBIGUOUS:
        start += 1
    stretch_end = start
    while stretch_end < end and codes[stretch_end] < AMBIGUOUS:
        stretch_end += 1
    return start, stretch_end


@core
def anchor_key(strand, text_pos, query_start, length):
    """Return a key by which the anchors of a read are sorted: strand, end in the text, end on it.

    Reads have fewer than 2**27 bases, texts fewer than 2**35.
    """
    return (np.int64(strand) << 62) | ((text_pos + length) << 27) | (np.int64(query_start) + length)


@core
def _put_in_order(keys, lengths, a, b):
    """Exchange the anchors a and b if they are out of order."""
    if keys[b] < keys[a]:
        keys[a], keys[b] = keys[b], keys[a]
        lengths[a], lengths[b] = lengths[b], lengths[a]


@core
def sort_together(keys, lengths, n, lanes):
    """Sort the first `n` anchors by their keys: a bitonic network, whose steps lanes share.

    All exchanges put the smaller key first, so the network may be cut at any size: anchors behind
    the last would have the largest keys. Equal anchors are interchangeable.

    Parameters
    ----------
    keys, lengths
        int64, by :func:`anchor_key`; int32.

    References
    ----------
    Batcher (1968), doi:10.1145/1468075.1468121.
    """
    size = np.int64(1)  # of sorted runs
    while size < n:
        # Two runs, the second backward: each pair is as far from the middle on either side.
        for i in range(lanes.lane, n, lanes.n_lanes):
            b = i ^ (2 * size - 1)
            if i < b < n:
                _put_in_order(keys, lengths, i, b)
        lanes_meet(lanes)
        step = size >> 1
        while step > 0:
            for i in range(lanes.lane, n, lanes.n_lanes):
                if not i & step and i + step < n:
                    _put_in_order(keys, lengths, i, i + step)
            lanes_meet(lanes)
            step >>= 1
        size *= 2


@core
def drop_duplicates(keys, lengths, n, lanes):
    """Drop all but the first of equal keys among `n` sorted ones, in place; return how many stay.

    No key is overwritten before it is compared: rows are written when all lanes have read theirs,
    and the last row of those read so far only by its own key, if no duplicate came before it.
    """
    n_kept = np.int64(0)
    before = (np.int64(1) << lanes.lane) - 1  # the lanes before this one
    for first in range(0, n, lanes.n_lanes):
        i = first + lanes.lane
        stays = i < n and (i == 0 or keys[i] != keys[i - 1])
        key = keys[i] if stays else np.int64(0)
        length = lengths[i] if stays else np.int32(0)
        staying = lane_mask(stays, lanes)
        if stays:
            row = n_kept + np.int64(popcount(np.uint64(staying & before)))
            keys[row] = key
            lengths[row] = length
        lanes_meet(lanes)
        n_kept += np.int64(popcount(np.uint64(staying)))
    return n_kept


@core
def anchor_of(key, length):
    """Return what :func:`anchor_key` was made of: strand, query_start and text_pos."""
    query_end = key & ((np.int64(1) << 27) - 1)
    text_end = (key >> 27) & ((np.int64(1) << 35) - 1)
    return key >> 62, query_end - length, text_end - length
