"""Core of seeding: find the located seeds of one read, in up to three rounds.

Both backends compile this code. The CPU takes a read in each thread, with a workspace that fits any
read of the batch; so does a device, with a small workspace, and then a warp, with a large one, for
each read that did not fit (status ``SEEDS_FULL``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import AMBIGUOUS, n_words
from mapper.index.fm import locate
from mapper.index.kmer_filter import consecutive_present, mark_present
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import trailing_zeros
from mapper.jit.lanes import lanes_meet
from mapper.seed.diagonals import DIAGONALS_FULL, find_diagonals, seed_matches
from mapper.seed.exact import (
    complete_unique,
    lengthen_seeds,
    lengthen_together,
    n_disjoint,
    narrow_seeds,
    narrow_together,
    seed_start,
)

SEEDS_FULL = DIAGONALS_FULL
"""Status: the seeds or diagonals of a read do not fit the workspace."""


SEARCHED_TOGETHER = 16
"""Seeds of both strands that are searched together, step by step."""

ROWS_FULL = -1
"""Status: the seeds to be searched do not fit the workspace."""

NO_DIAGONAL = -(2**62)
"""No diagonal."""


class SeedColumns(NamedTuple):
    """The columns of a SeedBatch that have a row for each seed."""

    strand: np.ndarray  # uint8
    query_start: np.ndarray  # int32
    text_pos: np.ndarray  # int64
    seed_len: np.ndarray  # int32


def most_seeds(max_len: int) -> int:
    """Return the most seeds of a read of up to `max_len` bases: 3 rounds, 2 strands."""
    return 6 * max(max_len, 1)


@core
def choose_seeds(fm, present, codes, read_start, first, stretch, seed_len, step, n_starts, done,
                 scratch, n_seeds):  # fmt: skip
    """List the next seeds to search, each with its strand, by start.

    Parameters
    ----------
    present
        :class:`mapper.index.kmer_filter.KmerFilter`, marked for the read; None for a search of
        all seeds.
    first, stretch
        Start on `codes` of a stretch without ambiguous bases, and its length.
    step, n_starts, done
        Distance of seeds, 0 for disjoint ones; the number of seeds, and of those listed.
    scratch, n_seeds
        Rows from `n_seeds` on get ``start`` and ``strand``.

    Returns
    -------
    done, n_listed
        n_listed is ROWS_FULL if `scratch` is too small.
    """
    n_listed = np.int32(0)
    capacity = np.int32(len(scratch.start))
    done, n_starts, step = np.int32(done), np.int32(n_starts), np.int32(step)
    n_kmers = np.int64(0)  # of a seed, all of which the text must have
    if present is not None and step > 0 and len(present.kmers) > 0:
        n_kmers = min(np.int64(64), np.int64(seed_len) - fm.kmer_len + 1)
    row = np.int64(-1)
    runs_0 = runs_1 = ~np.uint64(0)
    while done < n_starts and n_listed <= SEARCHED_TOGETHER - 2:
        start = np.int32(first + seed_start(stretch, seed_len, step, n_starts, done))
        worth_0 = worth_1 = True
        if n_kmers > 0 and present is not None:
            pos = start - read_start
            if pos >> 6 != row:
                row = pos >> 6
                runs_0 = consecutive_present(present.in_read, row, 0, n_kmers)
                runs_1 = consecutive_present(present.in_read, row, 1, n_kmers)
            left = (runs_0 | runs_1) >> np.uint64(pos & 63)
            if not left & np.uint64(1):
                # Skip to the next start where either strand has all, or to the next row.
                ahead = 64 - (pos & 63)
                if left:
                    ahead = trailing_zeros(left)
                done = np.int32(done + (ahead + step - 1) // step)
                continue
            worth_0 = (runs_0 >> np.uint64(pos & 63)) & np.uint64(1) != np.uint64(0)
            worth_1 = (runs_1 >> np.uint64(pos & 63)) & np.uint64(1) != np.uint64(0)
        done = np.int32(done + 1)
        for strand in range(2):
            if worth_1 if strand else worth_0:
                seed = np.int32(n_seeds + n_listed)
                if seed >= capacity:
                    return done, np.int32(ROWS_FULL)
                scratch.start[np.uint32(seed)] = start
                scratch.strand[np.uint32(seed)] = strand
                n_listed = np.int32(n_listed + 1)
    return min(done, n_starts), n_listed


@core
def count_absent(first, last, step, seed_len, n_disjoint, last_end):
    """Count seeds that do not occur, one every `step` bases from `first` to `last`.

    Parameters
    ----------
    n_disjoint, last_end
        Disjoint seeds of the strand counted so far, and the end of the last one.

    Returns
    -------
    n_disjoint, last_end
        The same with the absent seeds that are disjoint, taken greedily.
    """
    last_end = min(last_end, first + seed_len)
    start = first + max(np.int64(0), last_end - first + step - 1) // step * step
    if start > last:
        return n_disjoint, last_end
    period = (seed_len + step - 1) // step * step
    n_more = (last - start) // period
    return n_disjoint + n_more + 1, start + n_more * period + seed_len


@core
def count_forward(start, seed_len, length, n_disjoint, last_end):
    """Count a located seed of strand 0 if it lies behind `last_end`; return both counts anew."""
    # Lengthened to the left: ends stay in order, the first that fits is kept.
    if start + seed_len - length >= last_end:
        return n_disjoint + 1, start + seed_len
    return n_disjoint, last_end


@core
def count_reverse(start, length, n_disjoint, last_end):
    """Count a located seed of strand 1 if it lies behind `last_end`; return both counts anew."""
    if start >= last_end:
        return n_disjoint + 1, start + length
    return n_disjoint, min(last_end, start + length)


@core
def _place_unique(fm, codes, start, end, strand, planes, word, query_start, row, length, anchor,
                  other_anchor):  # fmt: skip
    """Find the occurrence of a seed whose last `length` bases have a single row.

    The rest of the seed is not searched: if it equals the text on the anchor's diagonal, the
    seed occurs there. Without an anchor on either strand the row is located and the text
    compared there.

    Returns
    -------
    row, text_pos
        `text_pos` is -1 if it is not known yet; `row` is -1 if the seed does not occur.
    """
    seed_len = end - start
    if anchor != NO_DIAGONAL and seed_matches(fm, planes, word, query_start, seed_len, anchor):
        return row, anchor + query_start
    if anchor == NO_DIAGONAL and other_anchor == NO_DIAGONAL:
        text_pos = locate(fm, row) - (seed_len - length)
        if seed_matches(fm, planes, word, query_start, seed_len, text_pos - query_start):
            return row, text_pos
        return np.int64(-1), np.int64(-1)
    return complete_unique(fm, codes, start, end, strand, row, length), np.int64(-1)


@core
def _finish_seed(fm, codes, read_start, read_len, seed_len, planes, word, anchor, other_anchor,
                 params, scratch, row, n_seeds, lanes):  # fmt: skip
    """Complete the searched seed of a row of `scratch`; store it as seed `n_seeds` if it occurs.

    Parameters
    ----------
    planes, word
        The bit planes of the read on the seed's strand.
    anchor, other_anchor
        The diagonal of a seed that occurs once, on this strand and on the other;
        NO_DIAGONAL if none is known yet.

    Returns
    -------
    n_seeds, length, located, anchor
        Seeds stored so far, the seed's final length, true if all its occurrences will be
        located, and the strand's anchor.
    """
    strand = scratch.strand[row]
    start = np.int64(scratch.start[row])
    end = start + seed_len
    sa_lo, sa_hi = scratch.sa_lo[row], scratch.sa_hi[row]
    length = np.int64(scratch.length[row])
    lanes_meet(lanes)  # all have the row, which may be `n_seeds`
    text_pos = np.int64(-1)
    if sa_hi - sa_lo == 1 and length <= seed_len:
        query_start = start - read_start if strand == 0 else read_start + read_len - end
        sa_lo, text_pos = _place_unique(
            fm, codes, start, end, strand, planes, word, query_start, sa_lo, length, anchor,
            other_anchor,
        )  # fmt: skip
        if text_pos >= 0:
            anchor = text_pos - query_start
        sa_hi = sa_lo + 1
        length = np.int64(seed_len)
    if sa_lo >= sa_hi or sa_lo < 0:
        return n_seeds, np.int64(seed_len), True, anchor
    if text_pos >= 0:
        sa_lo, sa_hi = ~text_pos, -text_pos
    # The pattern of strand 0 ends with the seed. That of strand 1 begins with it on the forward
    # read, and ends with it on the reverse complement.
    if strand == 0:
        scratch.start[n_seeds] = end - length - read_start
    else:
        scratch.start[n_seeds] = read_start + read_len - (start + length)
    scratch.length[n_seeds] = length
    scratch.strand[n_seeds] = strand
    scratch.sa_lo[n_seeds] = sa_lo
    scratch.sa_hi[n_seeds] = sa_hi
    return n_seeds + 1, length, sa_hi - sa_lo <= params.max_occ, anchor


@core
def _search_round(fm, present, codes, read_start, read_end, planes, word, seed_len, step, params,
                  scratch, n_seeds, lanes):  # fmt: skip
    """Search one round of seeds on both strands, in addition to the `n_seeds` stored so far.

    With `step` 0 seeds are disjoint, else one starts every `step` bases.

    Returns
    -------
    n_seeds, n_tried
        Seeds and strands that occur (in `scratch`), or SEEDS_FULL; seeds tried.
    guarantee
        The most located seeds of one strand that are disjoint after lengthening; the lesser of
        the two strands'. A locus is missed only if it differs from the read in each of them.
    thinned
        True if some seed was lengthened or is too frequent.
    """
    n_tried = 0
    thinned = False
    n_seeds = np.int64(n_seeds)
    # Disjoint seeds of each strand, greedily: seeds are in order of start, and of overlapping
    # seeds the first to end is kept.
    disjoint_0 = disjoint_1 = np.int64(0)
    last_end_0 = last_end_1 = np.int64(read_start)
    anchor_0 = anchor_1 = np.int64(NO_DIAGONAL)
    n_strand_words = n_words(read_end - read_start)
    clean = read_start
    while clean < read_end:
        if codes[clean] >= AMBIGUOUS:
            clean += 1
            continue
        stretch, left = np.int32(0), np.int32(read_end - clean)
        while stretch < left and codes[np.uint64(clean + stretch)] < AMBIGUOUS:
            stretch = np.int32(stretch + 1)
        stretch_end = clean + stretch
        n_starts = 0
        if stretch >= seed_len:
            n_starts = (
                n_disjoint(stretch, seed_len) if step == 0 else (stretch - seed_len) // step + 1
            )
        done = np.int64(0)
        next_0 = next_1 = clean
        while done < n_starts:
            done, n_listed = choose_seeds(
                fm, present, codes, read_start, clean, stretch, seed_len, step, n_starts, done,
                scratch, n_seeds,
            )  # fmt: skip
            if n_listed < 0:
                return np.int64(SEEDS_FULL), n_tried, np.int64(0), thinned
            if present is None:
                narrow_seeds(fm, codes, seed_len, scratch, n_seeds, n_listed, lanes)
                lengthen_seeds(
                    fm, codes, seed_len, clean, stretch_end, params.extend_over, scratch, n_seeds,
                    n_listed, lanes,
                )  # fmt: skip
                lanes_meet(lanes)
            else:
                narrow_together(fm, codes, seed_len, scratch, n_seeds, n_listed)
                lengthen_together(
                    fm, codes, seed_len, clean, stretch_end, params.extend_over, scratch, n_seeds,
                    n_listed,
                )  # fmt: skip
            for row in range(n_seeds, n_seeds + n_listed):
                start = np.int64(scratch.start[row])
                strand = np.int64(scratch.strand[row])
                n_seeds, length, located, anchor = _finish_seed(
                    fm, codes, read_start, read_end - read_start, seed_len, planes,
                    word + n_strand_words * strand, anchor_1 if strand else anchor_0,
                    anchor_0 if strand else anchor_1, params, scratch, row, n_seeds, lanes,
                )  # fmt: skip
                if strand:
                    anchor_1 = anchor
                    if next_1 < start and step > 0:
                        disjoint_1, last_end_1 = count_absent(
                            next_1, start - step, step, seed_len, disjoint_1, last_end_1
                        )
                    next_1 = start + step
                else:
                    anchor_0 = anchor
                    if next_0 < start and step > 0:
                        disjoint_0, last_end_0 = count_absent(
                            next_0, start - step, step, seed_len, disjoint_0, last_end_0
                        )
                    next_0 = start + step
                if length > seed_len or not located:
                    thinned = True
                if not located:
                    continue
                if strand == 0:
                    disjoint_0, last_end_0 = count_forward(
                        start, seed_len, length, disjoint_0, last_end_0
                    )
                else:
                    disjoint_1, last_end_1 = count_reverse(start, length, disjoint_1, last_end_1)
        last = clean + (n_starts - 1) * step
        if next_0 <= last and step > 0:
            disjoint_0, last_end_0 = count_absent(
                next_0, last, step, seed_len, disjoint_0, last_end_0
            )
        if next_1 <= last and step > 0:
            disjoint_1, last_end_1 = count_absent(
                next_1, last, step, seed_len, disjoint_1, last_end_1
            )
        n_tried += n_starts
        clean = stretch_end
    return n_seeds, n_tried, min(disjoint_0, disjoint_1), thinned


@core
def seed_read(fm, present, codes, read_start, read_end, planes, word, params, max_hits, scratch,
              working, lanes):  # fmt: skip
    """Find the diagonals of the exact seeds of one read and leave them in `scratch`.

    Parameters
    ----------
    present
        The k-mers of the text (:class:`mapper.index.kmer_filter.KmerFilter`), or None; no effect
        on the result.
    codes
        uint8 base codes, the read's at ``read_start:read_end``.
    planes, word
        Its bit planes: strand 0 from row `word` on, followed by strand 1.
    params
        SeedParams with its lengths filled in.
    working, lanes
        As in :func:`mapper.seed.diagonals.find_diagonals`.

    Returns
    -------
    n_diags
        Diagonals in `scratch`; or SEEDS_FULL: the workspace is too small, no result is valid.
    guarantee, thinned
        As in :class:`mapper.batch.SeedBatch`.
    """
    n_diags = np.int64(0)
    n_seeds = np.int64(0)
    guarantee = np.int64(0)
    thinned = False
    for round_number in range(params.first_round, 3):
        if round_number == 0:
            length, step = params.seed_len, np.int64(0)
        elif round_number == 1:
            length, step = params.seed_len, np.int64(params.dense_step)
            if present is not None and len(present.kmers) > 0:
                mark_present(present, fm.kmer_len, codes, read_start, read_end)
        else:
            length, step = params.last_len, np.int64(1)
        n_seeds, n_tried, guarantee, thinned = _search_round(
            fm, present, codes, read_start, read_end, planes, word, length, step, params, scratch,
            n_seeds, lanes,
        )  # fmt: skip
        if n_seeds < 0:
            return n_seeds, guarantee, thinned
        if n_seeds:
            n_diags, n_over_budget = find_diagonals(
                fm, scratch, n_seeds, params.max_occ, max_hits, working, lanes
            )
            if n_diags < 0:
                return n_diags, guarantee, thinned
            guarantee = max(np.int64(0), guarantee - n_over_budget)
            thinned = thinned or n_over_budget > 0
        # One seed of many can occur by chance; if two occur, the read belongs to the text.
        if n_diags and (round_number > 0 or n_seeds > 1 or n_tried < 2):
            break
    return n_diags, guarantee, thinned


@core
def write_seeds(scratch, n_diags, columns, row, lanes):
    """Write the seeds of a read's diagonals from `row` on."""
    for i in range(np.int32(lanes.lane), np.int32(n_diags), np.int32(lanes.n_lanes)):
        d, to = np.uint32(i), np.uint64(row + i)
        seed = np.uint32(scratch.diag_seed[d])
        diagonal, start = scratch.diag[d], scratch.start[seed]
        columns.strand[to] = diagonal & 1
        columns.query_start[to] = start
        columns.text_pos[to] = (diagonal >> 1) + start
        columns.seed_len[to] = scratch.length[seed]
