"""Mate rescue: propose loci for a read near the alignments of its mate.

The read is compared, without gaps, with every diagonal in the window that the insert-size
model allows, 64 bases at a time, and the diagonal with the fewest mismatches is proposed.
A gap in the middle leaves half of the read on one diagonal, with far fewer mismatches than
chance; extension then finds the gap. Diagonals on which the read already has an alignment are not
proposed. The extend stage takes the proposed loci like any others.

Nearly all of the hundreds of diagonals are random. :func:`least_mismatches` rules out up to 64 at
once, those that start in one word of the text, by a loop of shifts and logic that the compiler
vectorises. Two words of a random diagonal mostly have more mismatches than a whole read may have,
so these are counted first.
"""

from __future__ import annotations

import numpy as np

from mapper.batch import AlignmentBatch, LocusBatch, PackedReads, ReadBatch, SeedSummary
from mapper.dna import mismatch_word, n_words
from mapper.extend.doubt import hidden_score
from mapper.index.reference import ContigBounds
from mapper.jit.accelerate import core, driver, grown
from mapper.jit.intrinsics import popcount
from mapper.jit.lanes import ONE_LANE, lane_mask, lane_max, lanes_meet
from mapper.pair.insert_size import SCALE, InsertSizeModel, five_prime
from mapper.pair.mapq import unseen_score
from mapper.pair.pairing import best_pair_score
from mapper.params import ExtendParams, PairParams

LONGEST = 256
"""Bases of the longest read for :func:`least_mismatches`: four words."""

MOST_BY_TWO = 84
"""Mismatches in two words that the best of 64 random diagonals mostly exceeds: 96 ± 5 each."""


@core
def word_of_read(planes, first_word, read_len, i):
    """Return word i of a read: low and high bits, and a mask of its unambiguous bases."""
    row = min(first_word + i, np.int64(len(planes) - 1))
    n_left = min(np.int64(64), max(np.int64(0), read_len - 64 * i))
    bases = np.uint64(0)
    if n_left > 0:
        bases = ~np.uint64(0) >> np.uint64(64 - n_left)
    return planes[row, 0], planes[row, 1], bases & ~planes[row, 2]


@core
def word_of_text(planes, row):
    """Return low and high bits of a word; beyond the last word, those of the last."""
    row = min(row, np.int64(len(planes) - 1))
    return planes[row, 0], planes[row, 1]


@core
def differing(read, text, following, shift):
    """Return a mask of the bases of a read's word that differ from the text `shift` bases on."""
    left = np.uint64(63) - shift
    one = np.uint64(1)
    differ = read[0] ^ ((text[0] >> shift) | ((following[0] << one) << left))
    differ |= read[1] ^ ((text[1] >> shift) | ((following[1] << one) << left))
    return differ & read[2]


@core
def least_mismatches(read_planes, read_word, read_len, text_planes, first, n, most):
    """Return a lower bound of a read's mismatches on n diagonals from `first` on.

    Parameters
    ----------
    read_len
        Up to LONGEST.
    first, n
        All of these diagonals start in the same word of the text: ``(first & 63) + n <= 64``.
    most
        Callers compare the result with it.

    Returns
    -------
    The fewest mismatches on any of the diagonals, without those at ambiguous bases of read or
    text. Where these exceed `most`, the result may be lower, but exceeds it too.
    """
    read_0 = word_of_read(read_planes, read_word, read_len, 0)
    read_1 = word_of_read(read_planes, read_word, read_len, 1)
    row = first >> 6
    text_0 = word_of_text(text_planes, row)
    text_1 = word_of_text(text_planes, row + 1)
    text_2 = word_of_text(text_planes, row + 2)
    least = np.int64(read_len)
    start = first & 63
    if read_len <= 128 or most < MOST_BY_TWO:
        for i in range(start, start + n):
            shift = np.uint64(i)
            mismatches = popcount(differing(read_0, text_0, text_1, shift))
            mismatches += popcount(differing(read_1, text_1, text_2, shift))
            least = min(least, mismatches)
        if read_len <= 128 or least > most:
            return least
        least = np.int64(read_len)
    read_2 = word_of_read(read_planes, read_word, read_len, 2)
    read_3 = word_of_read(read_planes, read_word, read_len, 3)
    text_3 = word_of_text(text_planes, row + 3)
    text_4 = word_of_text(text_planes, row + 4)
    for i in range(start, start + n):
        shift = np.uint64(i)
        mismatches = popcount(differing(read_0, text_0, text_1, shift))
        mismatches += popcount(differing(read_1, text_1, text_2, shift))
        mismatches += popcount(differing(read_2, text_2, text_3, shift))
        mismatches += popcount(differing(read_3, text_3, text_4, shift))
        least = min(least, mismatches)
    return least


RESCUE_MISMATCHES = 0.55
"""Share of mismatches up to which a diagonal is proposed. Chance leaves 0.75, and 0.63 on the best
of 600 diagonals of a 150-base read."""

STRONG_MISMATCHES = 0.08
"""Share of mismatches up to which all diagonals are proposed: copies in one window compete."""

MOST_IN_WINDOW = 16
"""Most diagonals proposed in one window."""

FEW_DIAGONALS = 8
"""Diagonals compared at once where those of a word could not be ruled out."""

HIDDEN_MARGIN = 5
"""Margin, in matches: a paired read is searched for near the mate's alignments with which a
position that seeds may have missed would come this close to the best pair."""


@core
def count_mismatches(read_planes, read_word, read_len, text_planes, diagonal, limit):
    """Count the mismatches of a whole read on a diagonal; stop beyond `limit`."""
    mismatches = np.int64(0)
    pos = 0
    while pos < read_len and mismatches <= limit:
        differ = mismatch_word(read_planes, read_word, pos, text_planes, 0, diagonal + pos)
        left = read_len - pos
        if left < 64:
            differ &= (np.uint64(1) << np.uint64(left)) - np.uint64(1)
        mismatches += popcount(differ)
        pos += 64
    return mismatches


@core
def near_diagonals(read_planes, read_word, read_len, text_planes, first, last, found, lanes):
    """Find the diagonals of first..last (inclusive) on which a read is similar to the text.

    All with up to STRONG_MISMATCHES; if there is none, the one with the fewest mismatches (the
    lowest of equals) if it has up to RESCUE_MISMATCHES.

    Parameters
    ----------
    found
        int64; receives the diagonals, as many as fit.
    lanes
        Each takes every n-th diagonal (:mod:`mapper.jit.lanes`).

    Returns
    -------
    Number of diagonals found.
    """
    limit = np.int64(RESCUE_MISMATCHES * read_len)
    strong = np.int64(STRONG_MISMATCHES * read_len)
    fewest = limit + 1  # of this lane's diagonals
    best = np.int64(first)
    n_found = np.int64(0)
    lane = np.int64(lanes.lane)
    start = np.int64(first)
    compared_to = chunk_end = start
    while start <= last:
        if lanes.n_lanes == 1 and read_len <= LONGEST and start >= compared_to:
            n_together = min(64 - (start & 63), last - start + 1)
            if start < chunk_end:
                n_together = min(np.int64(FEW_DIAGONALS), chunk_end - start)
            compared_to = start + n_together
            most = max(fewest - 1, strong)
            least = least_mismatches(
                read_planes, read_word, np.int64(read_len), text_planes, start, n_together, most
            )
            if least > most:
                start = compared_to
                continue
            if n_together > FEW_DIAGONALS:  # compare smaller groups
                chunk_end = compared_to
                compared_to = start
                continue
        diagonal = start + lane
        mismatches = limit + 1
        if diagonal <= last:
            mismatches = count_mismatches(
                read_planes, read_word, read_len, text_planes, diagonal, max(fewest - 1, strong)
            )
        with_strong = lane_mask(mismatches <= strong, lanes)
        if with_strong:
            before = np.uint64(with_strong) & ((np.uint64(1) << np.uint64(lane)) - np.uint64(1))
            place = n_found + np.int64(popcount(before))
            if mismatches <= strong and place < len(found):
                found[place] = diagonal
            n_found = min(
                np.int64(len(found)), n_found + np.int64(popcount(np.uint64(with_strong)))
            )
        if mismatches < fewest:
            fewest = mismatches
            best = diagonal
        start += lanes.n_lanes
    # Fewest mismatches, then the lowest diagonal, as one number: highest in the best lane.
    width = np.int64(last) - np.int64(first) + 1
    if width <= 0:
        return np.int64(0)
    top = lane_max((limit + 1 - fewest) * width + (width - 1 - (best - first)), lanes)
    fewest = limit + 1 - top // width
    if strong < fewest <= limit:
        found[0] = first + (width - 1 - top % width)
        n_found = np.int64(1)
    return n_found


@core
def mate_diagonals(alignments, anchor, anchor_len, mate_len, low, high):
    """Return the first and last diagonal on which the anchor's mate makes a proper pair."""
    end = five_prime(alignments, anchor, anchor_len)
    if alignments.strand[anchor] == 0:
        return end + low - mate_len, end + high - mate_len
    return end - high, end - low


@core
def rescue_anchors(base_offsets, alignments, guarantee, read, pair_score, params, scores):
    """Return the alignments of a read's mate near which to search for the read.

    Parameters
    ----------
    guarantee
        Column of the SeedBatch.
    pair_score
        Of their best proper pair (:func:`mapper.pair.pairing.best_pair_score`).

    Returns
    -------
    first, end
        Rows of `alignments`: the best of the mate; none if there is nothing to rescue.
    """
    mate = read ^ 1
    offsets = alignments.alignment_offsets
    first, end = offsets[mate], offsets[mate + 1]
    if first == end or base_offsets[read] == base_offsets[read + 1]:
        return first, first
    here, here_end = offsets[read], offsets[read + 1]
    alone = np.int64(alignments.score[here]) if here < here_end else np.int64(0)
    unpaired = SCALE * (alone + alignments.score[first] - params.unpaired_penalty)
    bar = np.int64(alignments.score[first]) - params.unpaired_penalty
    if pair_score >= max(unpaired, np.int64(0)):
        read_len = base_offsets[read + 1] - base_offsets[read]
        hidden = hidden_score(read_len, guarantee[read], scores.match, scores.mismatch)
        hidden = max(hidden, unseen_score(read_len, scores.match))
        bar = max(bar, pair_score // SCALE - HIDDEN_MARGIN * scores.match - hidden)
    end = min(end, first + params.max_rescue)
    while end > first and alignments.score[end - 1] < bar:
        end -= 1
    return first, end


@core
def drop_known(alignments, first, end, strand, found, n_found, lanes):
    """Drop the diagonals on which an alignment of the read, of rows first:end, begins or ends.

    Extension from there would give the same alignment again.

    Returns
    -------
    Number of diagonals kept in `found`, in their order.
    """
    n_left = np.int64(0)
    lanes_meet(lanes)  # each has written some of the diagonals
    for i in range(n_found):
        diagonal = found[i]
        known = False
        for row in range(first + lanes.lane, end, lanes.n_lanes):
            if alignments.strand[row] == strand and (
                alignments.text_start[row] - alignments.query_start[row] == diagonal
                or alignments.text_end[row] - alignments.query_end[row] == diagonal
            ):
                known = True
                break
        if lane_mask(known, lanes) == 0:
            if lanes.lane == 0:
                found[n_left] = diagonal
            n_left += 1
        lanes_meet(lanes)
    return n_left


@core
def search_near(text_planes, base_offsets, planes, word_offsets, contigs, alignments, model, read,
                anchor, found, lanes):  # fmt: skip
    """Find new diagonals of a read near an alignment of its mate (:func:`near_diagonals`).

    Returns
    -------
    Number of diagonals in `found`, and the strand of the read there.
    """
    mate = read ^ 1
    read_len = base_offsets[read + 1] - base_offsets[read]
    mate_len = base_offsets[mate + 1] - base_offsets[mate]
    contig = alignments.ref_id[anchor]
    start, stop = mate_diagonals(alignments, anchor, mate_len, read_len, model.low, model.high)
    start = max(start, contigs.starts[contig])
    stop = min(stop, contigs.starts[contig] + contigs.lengths[contig] - read_len)
    strand = 1 - np.int64(alignments.strand[anchor])
    word = word_offsets[read] + strand * n_words(read_len)
    n_found = near_diagonals(planes, word, read_len, text_planes, start, stop, found, lanes)
    n_found = drop_known(
        alignments, alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1],
        strand, found, n_found, lanes,
    )  # fmt: skip
    return n_found, strand


@driver
def _propose(text_planes, base_offsets, planes, word_offsets, contigs, alignments, guarantee,
             model, params, scores):  # fmt: skip
    n_reads = len(base_offsets) - 1
    locus_offsets = np.zeros(n_reads + 1, np.int64)
    strand = np.empty(64, np.uint8)
    diagonal = np.empty(64, np.int64)
    ref_id = np.empty(64, np.int32)
    found = np.empty(MOST_IN_WINDOW, np.int64)
    most = np.int64(0)
    for read in range(n_reads):
        most = max(
            most, alignments.alignment_offsets[read + 1] - alignments.alignment_offsets[read]
        )
    ends = np.empty(most, np.int64)
    score = np.int64(0)
    total = 0
    for read in range(n_reads):
        if read % 2 == 0:
            score = best_pair_score(base_offsets, alignments, read, model, ends, ONE_LANE)
        first, end = rescue_anchors(
            base_offsets, alignments, guarantee, read, score, params, scores
        )
        for anchor in range(first, end):
            n_found, mate_strand = search_near(
                text_planes, base_offsets, planes, word_offsets, contigs, alignments, model, read,
                anchor, found, ONE_LANE,
            )  # fmt: skip
            if total + n_found > len(strand):
                strand = grown(strand, 2 * (total + n_found))
                diagonal = grown(diagonal, 2 * (total + n_found))
                ref_id = grown(ref_id, 2 * (total + n_found))
            for i in range(n_found):
                strand[total] = mate_strand
                diagonal[total] = found[i]
                ref_id[total] = alignments.ref_id[anchor]
                total += 1
        locus_offsets[read + 1] = total
    return locus_offsets, strand[:total].copy(), diagonal[:total].copy(), ref_id[:total].copy()


def propose_loci(
    text_planes: np.ndarray,
    reads: ReadBatch,
    packed: PackedReads,
    contig_starts: np.ndarray,
    contig_lens: np.ndarray,
    seeds: SeedSummary,
    alignments: AlignmentBatch,
    model: InsertSizeModel,
    params: PairParams,
    scores: ExtendParams,
) -> LocusBatch:
    """Propose loci for reads near the alignments of their mates.

    Where mates have no proper pair that beats two separate alignments, near each of the best
    alignments of a mate (at most ``max_rescue``, within ``unpaired_penalty`` of its best); for
    reads in repeats, near those with which a position that seeds missed could make as good a pair.

    Parameters
    ----------
    text_planes
        uint64 (n_words + 2, 3): bit planes of the indexed text.
    contig_starts, contig_lens
        int64 (n_contigs,): where each contig begins in the text, and its bases.

    Returns
    -------
    Loci of one diagonal each, whose windows are whole contigs.
    """
    locus_offsets, strand, diagonal, ref_id = _propose(
        text_planes, reads.base_offsets, packed.planes, packed.word_offsets,
        ContigBounds(contig_starts, contig_lens), alignments, seeds.guarantee, model, params,
        scores,
    )  # fmt: skip
    return LocusBatch(
        locus_offsets=locus_offsets,
        strand=strand,
        diagonal=diagonal,
        ref_id=ref_id,
        window_start=contig_starts[ref_id],
        window_end=contig_starts[ref_id] + contig_lens[ref_id],
    )
