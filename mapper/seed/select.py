"""Core: which rows of a read's seeds to locate, rarest seed first.

Locating is the dear part (a walk of LF steps per row), and the seeds of one read mostly
lead to the same diagonals. So before a seed is located, the diagonals known so far are
compared with it in the reference: if as many of them match as the seed has rows, they
are its occurrences, all of them, and nothing needs to be located. The hits are the same
as if every seed had been located.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.accelerate import core
from mapper.dna import mismatch_word
from mapper.index.fm import clean_hit, locate

LOCATED_AT_ONCE = 32
"""Seeds with no more rows than this are located without further ado where the suffix array is
whole: a look at it costs less than comparing the seed with every known diagonal. (A device's
slowest threads spent nearly all their time on that.)"""

DIAGONALS_FULL = -1
"""The diagonals of a read do not fit their work space."""


class SeedScratch(NamedTuple):
    """Work space of one thread, for the seeds and diagonals of one read."""

    start: np.ndarray  # int32, in the oriented read
    length: np.ndarray  # int32
    strand: np.ndarray  # uint8
    sa_lo: np.ndarray  # int64
    sa_hi: np.ndarray  # int64
    text_pos: np.ndarray  # int64: where a seed of one row occurs if that is known, else -1
    order: np.ndarray  # int32
    diag: np.ndarray  # int64: known diagonals
    diag_strand: np.ndarray  # uint8
    diag_seed: np.ndarray  # int32: the seed that led there


@core
def sort_by_rows(scratch, n_seeds):
    """Order the seeds by number of rows; equals keep their order (insertion sort)."""
    for i in range(n_seeds):
        rows = scratch.sa_hi[i] - scratch.sa_lo[i]
        j = i
        while j > 0:
            before = scratch.order[j - 1]
            if scratch.sa_hi[before] - scratch.sa_lo[before] <= rows:
                break
            scratch.order[j] = before
            j -= 1
        scratch.order[j] = i


@core
def seed_matches(fm, planes, word, start, length, diagonal):
    """Whether the read's bases start:start+length equal the text on a diagonal."""
    text_pos = diagonal + start
    if text_pos < 0 or text_pos + length >= fm.n_rows:
        return False
    done = 0
    while done < length:
        differ = mismatch_word(planes, word, start + done, fm.ref_planes, 0, text_pos + done)
        left = length - done
        if left < 64:
            differ &= (np.uint64(1) << np.uint64(left)) - np.uint64(1)
        if differ:
            return False
        done += 64
    return True


@core
def count_known(fm, planes, word, scratch, n_diags, seed):
    """How many known diagonals of the seed's strand match the seed."""
    matches = 0
    for d in range(n_diags):
        if scratch.diag_strand[d] == scratch.strand[seed] and seed_matches(
            fm,
            planes,
            word,
            np.int64(scratch.start[seed]),
            np.int64(scratch.length[seed]),
            scratch.diag[d],
        ):
            matches += 1
    return matches


@core
def add_diagonal(scratch, n_before, n_diags, seed, diagonal):
    """Remember a seed's diagonal; return how many are known now, or DIAGONALS_FULL.

    `n_before` were known before this seed, whose own rows all lead to different ones.
    """
    strand = scratch.strand[seed]
    for d in range(n_before):
        if scratch.diag[d] == diagonal and scratch.diag_strand[d] == strand:
            return n_diags
    if n_diags == len(scratch.diag):
        return np.int64(DIAGONALS_FULL)
    scratch.diag[n_diags] = diagonal
    scratch.diag_strand[n_diags] = strand
    scratch.diag_seed[n_diags] = seed
    return n_diags + 1


@core
def locate_rows(fm, scratch, seed, first, step, n_rows, n_diags):
    """Locate rows first, first + step, ... of a seed and add their diagonals.

    Returns
    -------
    Diagonals known then, or DIAGONALS_FULL.
    """
    n_before = n_diags
    for i in range(n_rows):
        text_pos = locate(fm, first + i * step)
        if clean_hit(fm, text_pos, scratch.length[seed]):
            diagonal = text_pos - scratch.start[seed]
            n_diags = add_diagonal(scratch, n_before, n_diags, seed, diagonal)
            if n_diags < 0:
                break
    return n_diags


@core
def find_diagonals(fm, planes, word, words_per_strand, scratch, n_seeds, max_occ, max_hits):
    """Fill the scratch with the diagonals of a read's seeds.

    Parameters
    ----------
    planes, word, words_per_strand
        The read's bit planes: strand 0 at row `word`, strand 1 `words_per_strand` later.
    scratch
        Seeds 0 to n_seeds - 1, none without rows.

    Returns
    -------
    n_diags
        Number of diagonals found, or DIAGONALS_FULL.
    repeat_bases
        Total length of the seeds that were left out.
    n_over_budget
        How many of these were left out because the read has enough hits already.
    """
    sort_by_rows(scratch, n_seeds)
    n_diags = np.int64(0)
    repeat_bases = np.int64(0)
    n_over_budget = np.int64(0)
    for i in range(n_seeds):
        seed = scratch.order[i]
        n_rows = scratch.sa_hi[seed] - scratch.sa_lo[seed]
        if n_rows > max_occ or n_diags + n_rows > max_hits:
            if n_diags == 0:
                # Nothing rarer: an even sample of the rows, so that the read is placed.
                step = max(np.int64(1), n_rows // max_occ)
                n_sampled = min(n_rows, np.int64(min(max_occ, max_hits)))
                n_diags = locate_rows(
                    fm, scratch, seed, scratch.sa_lo[seed], step, n_sampled, n_diags
                )
                if n_diags < 0:
                    return n_diags, repeat_bases, n_over_budget
            repeat_bases += scratch.length[seed]
            n_over_budget += n_rows <= max_occ
            continue
        if scratch.text_pos[seed] >= 0:
            diagonal = scratch.text_pos[seed] - scratch.start[seed]
            n_diags = add_diagonal(scratch, n_diags, n_diags, seed, diagonal)
        else:
            strand_word = word + words_per_strand * scratch.strand[seed]
            is_dear = fm.sa_shift > 0 or n_rows > LOCATED_AT_ONCE
            if (
                is_dear
                and n_diags >= n_rows
                and count_known(fm, planes, strand_word, scratch, n_diags, seed) == n_rows
            ):
                continue
            n_diags = locate_rows(
                fm, scratch, seed, scratch.sa_lo[seed], np.int64(1), n_rows, n_diags
            )
        if n_diags < 0:
            return n_diags, repeat_bases, n_over_budget
    return n_diags, repeat_bases, n_over_budget
