"""Core: a bound on what a gapped alignment can still score, from blocks of 8 bases.

The read is cut into blocks of 8. A block that matches the reference without error on no
diagonal of the band must contain a difference in every alignment within the band, and
differences in distinct blocks add up (:func:`least_loss`). The number of such *lost*
blocks ahead therefore bounds every extension from above, exactly: nothing optimal is cut
off. A random place loses nearly all of its blocks, a read with two isolated mismatches
two, so most gapped searches end before they start.

The test takes the bytes of 64-base mismatch words: a byte of zeros is a block that matches.

References
----------
Groot Koerkamp, Ivanov (2024), doi:10.1093/bioinformatics/btae032: exact seed heuristic
for A* alignment; this is its banded, bit-parallel form.
"""

from __future__ import annotations

import numpy as np

from mapper.accelerate import core
from mapper.dna import n_words
from mapper.lanes import lane_union

BLOCK = 8


@core
def matching_bytes(differ):
    """Return a word with the high bit set in each byte of `differ` that is zero."""
    low_bits = np.uint64(0x7F7F7F7F7F7F7F7F)
    return ~(((differ & low_bits) + low_bits) | differ | low_bits)


@core
def matching_blocks(read_planes, word, text_planes, text_pos, n_diagonals):
    """Compare 64 bases of a read with the text from `text_pos` on, then one base on, and so on.

    Returns
    -------
    Word with the high bit set in each byte whose 8 bases match on some of the diagonals.
    """
    one, last_bit = np.uint64(1), np.uint64(63)
    read_low, read_high = read_planes[word, 0], read_planes[word, 1]
    read_ambiguous = read_planes[word, 2]
    # The text slides past: two of its words at a time are kept and shifted.
    w = text_pos >> 6
    shift = np.uint64(text_pos & 63)
    low, next_low = text_planes[w, 0], text_planes[w + 1, 0]
    high, next_high = text_planes[w, 1], text_planes[w + 1, 1]
    ambiguous, next_ambiguous = text_planes[w, 2], text_planes[w + 1, 2]
    matched = np.uint64(0)
    for i in range(n_diagonals):
        left = last_bit - shift
        text_low = (low >> shift) | ((next_low << one) << left)
        text_high = (high >> shift) | ((next_high << one) << left)
        text_ambiguous = (ambiguous >> shift) | ((next_ambiguous << one) << left)
        matched |= matching_bytes(
            (read_low ^ text_low) | (read_high ^ text_high) | read_ambiguous | text_ambiguous
        )
        if shift < last_bit:
            shift += one
        elif i + 1 < n_diagonals:
            shift = np.uint64(0)
            w += 1
            low, high, ambiguous = next_low, next_high, next_ambiguous
            next_low, next_high = text_planes[w + 1, 0], text_planes[w + 1, 1]
            next_ambiguous = text_planes[w + 1, 2]
    return matched


@core
def count_lost_blocks(read_planes, read_word, read_len, text_planes, first_diagonal,
                      last_diagonal, lost_before, lanes):  # fmt: skip
    """Count the blocks that match on no diagonal of a band, which the lanes share.

    Parameters
    ----------
    first_diagonal, last_diagonal
        The band, inclusive; the read must lie within the text on both.
    lost_before
        int32, at least ``read_len // 8 + 1`` items: item b gets the number of lost blocks
        among the first b.
    """
    n_blocks = read_len // BLOCK
    n_diagonals = last_diagonal - first_diagonal + 1
    share = (n_diagonals + lanes.n_lanes - 1) // lanes.n_lanes
    first = min(lanes.lane * share, n_diagonals)
    mine = min(share, n_diagonals - first)
    lost = 0
    lost_before[0] = 0
    for word in range(n_words(read_len)):
        matched = np.uint64(0)
        if mine > 0:
            matched = matching_blocks(
                read_planes, read_word + word, text_planes, first_diagonal + first + word * 64,
                mine,
            )  # fmt: skip
        matched = lane_union(matched, lanes)
        for byte in range(min(8, n_blocks - 8 * word)):
            if not (matched >> np.uint64(8 * byte + 7)) & np.uint64(1):
                lost += 1
            lost_before[8 * word + byte + 1] = lost


@core
def block_cost(penalties):
    """What each of many lost blocks takes from the doubled objective at the least.

    A block that the alignment does not pass whole and unchanged has a mismatch, a
    deletion, part of an insertion, or is clipped. An insertion of n bases touches at most
    ``2 + (n - 2) / 8`` blocks: two for its opening and two bases, and another for each 8.
    """
    inserted = penalties.gap_extend + penalties.match  # with the match that it does not earn
    deletion = penalties.gap_open + penalties.gap_extend - penalties.match
    insertion = min(penalties.gap_open // 2 + inserted, BLOCK * inserted)
    clip = 2 * BLOCK * penalties.match
    return min(min(penalties.mismatch, deletion), min(insertion, clip))


@core
def least_loss(lost, penalties, bonus, inserting):
    """What `lost` blocks ahead take from the doubled objective at the least.

    Two of them may be cheaper than the others: where an insertion is open (`inserting`),
    it touches its next block for one base more; and a clip, for the bonus and one base.
    """
    cost = block_cost(penalties)
    loss = lost * cost - max(0, cost - bonus - 2 * penalties.match)
    if inserting:
        loss -= max(0, cost - penalties.gap_extend - penalties.match)
    return max(np.int64(0), loss)


@core
def lost_after(lost_before, pos, read_len):
    """Lost blocks that lie wholly in ``pos:read_len``."""
    first = (pos + BLOCK - 1) // BLOCK
    n_blocks = read_len // BLOCK
    if first >= n_blocks:
        return np.int64(0)
    return np.int64(lost_before[n_blocks] - lost_before[first])


@core
def lost_until(lost_before, pos):
    """Lost blocks that lie wholly in ``0:pos``."""
    return np.int64(lost_before[pos // BLOCK])
