"""Placement of long reads: primary, supplementary and secondary alignments, and mapping qualities.

Roles are assigned as those of short reads are (:mod:`mapper.pair.placement`), by the alignment
scores as they are. Mapping quality is that of minimap2 (how much the best competing chain and the
best competing alignment are behind, as shares, and how much matches at all), but not less than what
the number of differences between both alignments says.

References
----------
Li (2018), doi:10.1093/bioinformatics/bty191, section 2.1.4, and minimap2's ``mm_set_mapq``.
"""

from __future__ import annotations

import math

import numpy as np

from mapper.batch import AlignmentBatch, ReadBatch
from mapper.cigar import count_events
from mapper.extend.by_length import shortness
from mapper.extend.chains import ChainSupport
from mapper.index.reference import NO_GROUPS
from mapper.jit.accelerate import core, driver
from mapper.jit.lanes import ONE_LANE
from mapper.pair.contig_groups import hide_alt, set_rivals
from mapper.pair.mapq import MAX_MAPQ, PRIMARY, SUPPLEMENTARY
from mapper.pair.pairing import name_key
from mapper.pair.placement import (
    PlacementBatch,
    assign_alt_roles,
    assign_roles,
    best_alone,
    clear_roles,
    keep_to_group,
    new_placements,
)
from mapper.params import SHARES, LongParams

SCALE = 40.0
"""Quality for each e-fold of the score, without competitors."""

SURE_BASES = 190
"""Chains of fewer matched bases are less sure: as ten seeds of 19 bases."""

PER_MATCH = 6.02
"""Most quality for each match's worth of lead: 10 log10(4)."""

PER_DIFFERENCE, PER_DIFFERENCE_SHORT = 5.0, 20.0
"""Least quality for each difference from the second-best alignment that the best one lacks, of long
and of short reads (:mod:`mapper.extend.by_length`), and most quality where it lacks fewer than two.
The share by which scores differ says little where two copies of a repeat differ in few places. The
second is what ``PairParams.quality_alone`` makes of a mismatch; the lead of a long read is what is
left of many differences, some of them for the other copy."""


@core
def long_quality(read_len, score, second, n_near, chain_score, second_chain, identity, unique,
                 match, mismatch):  # fmt: skip
    """Return the mapping quality of an alignment.

    It is 0 where the second-best alignment is at most the score of a match behind: that does not
    tell two copies of a repeat apart. Less than two differences may be errors of the read, and give
    no more than one difference does.

    Parameters
    ----------
    read_len
        Bases of the read.
    score, second, n_near
        Of the alignment, and of the best one that competes with it, or 0; how many of these are
        about as good as itself.
    chain_score, second_chain
        The same of chains, in matched bases.
    identity
        Share of its columns that match, without those of ambiguous bases, and with each gap counted
        as one: a long one is one event.
    unique
        Share of the read's chained bases in those and the ones left out as too frequent.
    match, mismatch
        Score of a match, and what a mismatch takes off.
    """
    if score <= 0 or chain_score <= 0:
        return 0.0
    share = second_chain / chain_score
    if second > 0:
        share *= second / score
        share *= share
    weight = unique * min(1.0, chain_score / SURE_BASES)
    quality = identity * weight * SCALE * (1.0 - share) * math.log(max(score / match, 1.0))
    if second > 0:
        lead = score - second
        if lead <= match:
            return 0.0
        quality = min(quality, PER_MATCH * identity * identity * lead / match)
        share = shortness(read_len) / SHARES
        per_difference = PER_DIFFERENCE + share * (PER_DIFFERENCE_SHORT - PER_DIFFERENCE)
        n_differences = lead / (match + mismatch)
        if n_differences < 2:
            n_differences = min(n_differences, 1.0)
            quality = min(quality, per_difference)
        quality = max(quality, weight * per_difference * n_differences)
    quality -= 4.343 * math.log(n_near + 1.0)
    return min(max(quality, 0.0), np.float64(MAX_MAPQ))


@driver
def _place(names, name_offsets, base_offsets, alignments, support, frequent, params, least_chain,
           scoring, groups, primary, proper, role, head, mapq, sub_score, rival):  # fmt: skip
    """Fill the columns from `primary` on; their contents do not matter."""
    offsets = alignments.alignment_offsets
    hidden = np.zeros(len(head) if len(groups) else 0, np.bool_)
    for read in range(len(offsets) - 1):
        first, end = offsets[read], offsets[read + 1]
        read_len = base_offsets[read + 1] - base_offsets[read]
        key = name_key(names, name_offsets[read], name_offsets[read + 1])
        clear_roles(first, end, role, head, mapq, sub_score, ONE_LANE)
        proper[read] = False
        hide_alt(alignments, first, end, params.min_score, groups, hidden)
        primary[read] = best_alone(alignments, first, end, key, hidden, ONE_LANE)
        chosen = primary[read]
        if chosen < 0:
            continue
        assign_roles(
            alignments, first, end, chosen, read_len, params.min_score, params.overlap, hidden,
            role, head, sub_score, ONE_LANE,
        )  # fmt: skip
        if len(groups):
            keep_to_group(alignments, first, end, chosen, groups, role, head)
            set_rivals(alignments, first, end, groups, head, rival, sub_score)
            assign_alt_roles(
                alignments, first, end, read_len, params.min_score, params.overlap, hidden, role,
                head, rival, sub_score,
            )  # fmt: skip
        chained = np.int64(0)
        for i in range(first, end):
            if role[i] == PRIMARY or role[i] == SUPPLEMENTARY:
                chained += support.chain_score[i]
        for i in range(first, end):
            if role[i] != PRIMARY and role[i] != SUPPLEMENTARY:
                continue
            second_chain = np.int64(0 if len(groups) else support.second_score[i])
            near = np.int64(alignments.score[i]) - 2 * scoring.match - scoring.mismatch
            n_near = 0
            for j in range(first, end):
                if j != i and rival[j] == i:
                    n_near += alignments.score[j] >= near
                    # Among groups, chains on contigs that are apart do not count.
                    second_chain = max(second_chain, np.int64(support.chain_score[j]))
            columns, differences = count_events(
                alignments.cigar_ops, alignments.cigar_offsets[i], alignments.cigar_offsets[i + 1]
            )
            columns -= support.n_ambiguous[i]
            differences -= support.n_ambiguous[i]
            second_chain = max(second_chain, np.int64(least_chain))
            quality = long_quality(
                read_len, np.int64(alignments.score[i]), np.int64(sub_score[i]), n_near,
                np.int64(support.chain_score[i]), second_chain,
                1.0 - differences / columns,
                chained / (chained + frequent[read]), scoring.match, scoring.mismatch,
            )  # fmt: skip
            mapq[i] = np.uint8(quality + 0.5)


def place_long_reads(
    reads: ReadBatch, alignments: AlignmentBatch, support: ChainSupport, frequent: np.ndarray,
    params: LongParams, groups: np.ndarray = NO_GROUPS,
) -> PlacementBatch:  # fmt: skip
    """Choose the placement of each read and assign its mapping quality.

    Parameters
    ----------
    frequent
        int32 (n_reads,): of :class:`mapper.batch.AnchorBatch`.
    groups
        Of the contigs (:class:`mapper.index.reference.Contigs`); int32, empty if all compete.
    """
    placements = new_placements(reads.n_reads, len(alignments.strand), groups)
    _place(
        reads.names, reads.name_offsets, reads.base_offsets, alignments, support, frequent,
        params.pieces, params.chain.min_score, params.scoring, groups, *placements,
    )  # fmt: skip
    return placements
