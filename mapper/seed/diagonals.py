"""Core of seeding: find the diagonals of a read's seeds, the longest first, then the rarest.

Locating is the expensive step: a walk of LF steps for each row, each to another place in memory.
Where there is no room for all seeds, these are located. On the CPU the rows of a seed walk together
(:func:`mapper.index.fm.locate_together`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.dna import mismatch_word
from mapper.index.fm import clean_hit, locate, locate_together
from mapper.jit.accelerate import core
from mapper.jit.intrinsics import popcount
from mapper.jit.lanes import lane_mask, lanes_meet, take_slot

DIAGONALS_FULL = -1
"""Status: the diagonals of a read do not fit the workspace."""


class SeedScratch(NamedTuple):
    """Workspace of one thread, for the seeds and diagonals of one read."""

    start: np.ndarray  # int32, in the oriented read
    length: np.ndarray  # int32
    strand: np.ndarray  # uint8
    sa_lo: np.ndarray  # int64; ``~text_pos`` for a seed whose only occurrence is known
    sa_hi: np.ndarray  # int64
    order: np.ndarray  # int32
    diag: np.ndarray  # int64: known diagonals, with their strands: 2 * diagonal + strand
    diag_seed: np.ndarray  # int32: the first seed on each
    slots: np.ndarray  # int32: table of the known diagonals: rows of diag, or -1


def table_size(max_hits: int) -> int:
    """Return the slots of a hash table of up to `max_hits` diagonals: at most half are used.

    Without the table, comparing each new diagonal with all known ones took nearly all the time of
    a device's slowest threads.
    """
    return 1 << (2 * max(max_hits, 1) - 1).bit_length()


@core
def _rank_by_rows(scratch, n_seeds, lanes):
    """Order the seeds by number of rows, stable: each lane counts how many precede its own."""
    for i in range(lanes.lane, n_seeds, lanes.n_lanes):
        rows = scratch.sa_hi[i] - scratch.sa_lo[i]
        rank = np.int32(0)
        for j in range(n_seeds):
            others = scratch.sa_hi[j] - scratch.sa_lo[j]
            rank = np.int32(rank + (others < rows or (others == rows and j < i)))
        scratch.order[rank] = i
    lanes_meet(lanes)


@core
def _longest_first(scratch, n_seeds, lanes):
    """Move the longest of the ordered seeds to the front; of several, the one with fewest rows."""
    longest, at = np.int32(0), np.int32(0)
    for i in range(np.int32(n_seeds)):
        length = np.int32(scratch.length[np.uint32(scratch.order[np.uint32(i)])])
        if length > longest:
            longest, at = length, i
    lanes_meet(lanes)
    if lanes.lane == 0:
        seed = scratch.order[np.uint32(at)]
        while at > 0:
            scratch.order[np.uint32(at)] = scratch.order[np.uint32(at - 1)]
            at = np.int32(at - 1)
        scratch.order[np.uint32(0)] = seed
    lanes_meet(lanes)


@core
def order_seeds(scratch, n_seeds, lanes):
    """Order the seeds by number of rows, but for the longest, which comes first.

    In a repeat a seed may be lengthened to the whole read and still have more rows than others,
    which end in copies that are less like it: without the first there would only be those.
    """
    if n_seeds > 0:
        sort_by_rows(scratch, n_seeds, lanes)
        _longest_first(scratch, n_seeds, lanes)


@core
def sort_by_rows(scratch, n_seeds, lanes):
    """Order the seeds by number of rows (insertion sort, stable)."""
    if lanes.n_lanes > 1:
        _rank_by_rows(scratch, n_seeds, lanes)
        return
    one = np.uint32(1)
    for i in range(np.int32(n_seeds)):
        seed = np.uint32(i)
        rows = scratch.sa_hi[seed] - scratch.sa_lo[seed]
        j = seed
        while j > 0:
            before = np.uint32(scratch.order[np.uint32(j - one)])
            if scratch.sa_hi[before] - scratch.sa_lo[before] <= rows:
                break
            scratch.order[j] = before
            j = np.uint32(j - one)
        scratch.order[j] = i


@core
def seed_matches(fm, planes, word, start, length, diagonal):
    """Return True if the read's bases start:start+length equal the text on a diagonal."""
    text_pos = diagonal + start
    if text_pos < 0 or text_pos + length >= fm.n_rows:
        return False
    done, length = np.int32(0), np.int32(length)
    while done < length:
        differ = mismatch_word(planes, word, start + done, fm.ref_planes, 0, text_pos + done)
        left = np.int32(length - done)
        if left < 64:
            differ &= (np.uint64(1) << np.uint64(left)) - np.uint64(1)
        if differ:
            return False
        done = np.int32(done + 64)
    return True


@core
def find_slot(scratch, diagonal):
    """Return the slot of a diagonal, or the free slot for it (open addressing, linear probing)."""
    mask = np.uint32(len(scratch.slots) - 1)
    # Multiplicative hashing: Knuth (1998), The Art of Computer Programming 3, section 6.4.
    mixed = np.uint64(diagonal & np.int64(0x7FFFFFFF)) * np.uint64(0x9E3779B1)
    slot = np.uint32((mixed >> np.uint64(16)) & np.uint64(0xFFFFFFFF)) & mask
    while True:
        d = scratch.slots[slot]
        if d < 0 or scratch.diag[np.uint32(d)] == diagonal:
            return slot
        slot = np.uint32((slot + np.uint32(1)) & mask)


@core
def clear_diagonals(scratch, lanes):
    """Empty the table."""
    for i in range(np.int32(lanes.lane), np.int32(len(scratch.slots)), np.int32(lanes.n_lanes)):
        scratch.slots[np.uint32(i)] = -1
    lanes_meet(lanes)


@core
def add_diagonals(scratch, n_diags, seed, diagonal, is_hit, lanes):
    """Add diagonals of a seed, one of each lane, all different, in the order of lanes.

    Parameters
    ----------
    diagonal
        With the strand, as in ``SeedScratch.diag``.
    is_hit
        False for a lane that has none.

    Returns
    -------
    The number of known diagonals, or DIAGONALS_FULL.
    """
    is_new = False
    slot = np.uint32(0)
    if is_hit:
        slot = find_slot(scratch, diagonal)
        is_new = scratch.slots[slot] < 0
    new = np.uint64(lane_mask(is_new, lanes))
    n_new = np.int64(popcount(new))
    if n_diags + n_new > len(scratch.diag):
        return np.int64(DIAGONALS_FULL)
    if is_new:
        before = new & ((np.uint64(1) << np.uint64(lanes.lane)) - np.uint64(1))
        row = np.uint32(n_diags + np.int64(popcount(before)))
        scratch.diag[row] = diagonal
        scratch.diag_seed[row] = seed
        while not take_slot(scratch.slots, slot, row, lanes):  # another lane has it
            slot = np.uint32((slot + np.uint32(1)) & np.uint32(len(scratch.slots) - 1))
    lanes_meet(lanes)
    return n_diags + n_new


@core
def locate_rows(fm, scratch, seed, step, n_rows, n_diags, working, located, n_done,
                lanes):  # fmt: skip
    """Locate `n_rows` rows of a seed, every `step`-th, and add their diagonals.

    Parameters
    ----------
    working, located
        As in :func:`collect_diagonals`.
    n_done
        Where the rows have been located already, the first in ``located.rows``; else -1.
    lanes
        Locate a row each.

    Returns
    -------
    The number of known diagonals, or DIAGONALS_FULL.
    """
    row = scratch.sa_lo[seed]
    is_done = n_done >= 0
    if working is not None and row >= 0 and not is_done:
        for i in range(n_rows):
            working.rows[i] = row + i * step
        locate_together(fm, working, n_rows)
    for first in range(np.int64(0), n_rows, np.int64(lanes.n_lanes)):
        i = first + lanes.lane
        text_pos = ~row
        is_hit = i < n_rows
        if row >= 0 and is_hit:
            if working is None:
                text_pos = locate(fm, row + i * step)
            elif is_done:
                text_pos = located.rows[n_done + i]
            else:
                text_pos = working.rows[i]
            is_hit = clean_hit(fm, text_pos, scratch.length[seed])
        diagonal = 2 * (text_pos - scratch.start[seed]) + scratch.strand[seed]
        n_diags = add_diagonals(scratch, n_diags, seed, diagonal, is_hit, lanes)
        if n_diags < 0:
            break
    return n_diags


@core
def list_rarest(scratch, n_seeds, max_occ, max_hits, working, n_rows):
    """List the rows of the first seeds, as many as all have room for, to be located together.

    Returns
    -------
    n_rare, n_rows
        The number of these seeds, the first of ``scratch.order``. Their rows follow the `n_rows`
        that ``working.rows`` has, one after the other, but for those of seeds whose place is known.
    """
    n_hits = np.int64(0)
    n_rare = np.int64(0)
    while n_rare < n_seeds:
        seed = scratch.order[n_rare]
        sa_lo, sa_hi = scratch.sa_lo[seed], scratch.sa_hi[seed]
        n_hits += sa_hi - sa_lo
        if sa_hi - sa_lo > max_occ or n_hits > max_hits:
            break
        if sa_lo >= 0:
            for row in range(sa_lo, sa_hi):
                working.rows[n_rows] = row
                n_rows += 1
        n_rare += 1
    return n_rare, n_rows


@core
def find_diagonals(fm, scratch, n_seeds, max_occ, max_hits, working, lanes):
    """Fill the scratch with the diagonals of a read's seeds.

    Parameters
    ----------
    scratch
        Seeds 0 to n_seeds - 1, none without rows.
    working
        :class:`mapper.index.fm.RowsInWork` for `max_hits` rows, with which they are located
        together; None on a device, whose threads hide the latency. No effect on the result.
    lanes
        Share the rows (:mod:`mapper.jit.lanes`).

    Returns
    -------
    n_diags
        Number of diagonals found, or DIAGONALS_FULL.
    n_over_budget
        Number of seeds that were not located because the read has enough hits already.
    """
    order_seeds(scratch, n_seeds, lanes)
    n_rare = np.int64(0)
    if working is not None:
        n_rare, n_rows = list_rarest(scratch, n_seeds, max_occ, max_hits, working, np.int64(0))
        locate_together(fm, working, n_rows)
    return collect_diagonals(
        fm, scratch, n_seeds, n_rare, max_occ, max_hits, working, working, np.int64(0), lanes
    )


@core
def collect_diagonals(fm, scratch, n_seeds, n_rare, max_occ, max_hits, working, located, n_done,
                      lanes):  # fmt: skip
    """Fill the scratch with the diagonals of a read's seeds, in the order of :func:`order_seeds`.

    Parameters
    ----------
    n_rare, located, n_done
        How many seeds have been located, the first of their rows at ``located.rows[n_done]``.
    scratch, working, lanes
        As in :func:`find_diagonals`, which has the results.
    """
    clear_diagonals(scratch, lanes)
    n_diags = np.int64(0)
    n_over_budget = np.int64(0)
    for i in range(n_seeds):
        seed = scratch.order[i]
        n_rows = scratch.sa_hi[seed] - scratch.sa_lo[seed]
        step, n_located = np.int64(1), n_rows
        if n_rows > max_occ or n_diags + n_rows > max_hits:
            n_over_budget += n_rows <= max_occ
            if n_diags > 0:
                continue
            # The longest, or no seed before it: locate an even sample of its rows.
            step = max(step, n_rows // max_occ)
            n_located = min(n_rows, np.int64(min(max_occ, max_hits)))
        is_done = i < n_rare
        n_diags = locate_rows(
            fm, scratch, seed, step, n_located, n_diags, working, located,
            n_done if is_done else np.int64(-1), lanes,
        )  # fmt: skip
        if n_diags < 0:
            break
        if is_done and scratch.sa_lo[seed] >= 0:
            n_done += n_rows
    return n_diags, n_over_budget
