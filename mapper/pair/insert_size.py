"""The insert-size model: estimated once from the first pairs of a sample, then frozen.

The insert size is signed: the 5' end of the reverse-strand mate minus the 5' end of the
forward-strand mate, soft clips included. Ordinary (FR) libraries give positive numbers,
mate-pair (RF) libraries negative ones; the code is the same. Pairs with both mates on
one strand are never proper.

Of pairing, only this module uses floating point: the model holds integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import AlignmentBatch
from mapper.extend.ungapped import lowest_score
from mapper.index.reference import NO_GROUPS
from mapper.jit.accelerate import core, driver
from mapper.pair.contig_groups import is_apart
from mapper.params import ExtendParams

SCALE = 4
"""Pair scores are in quarters of a score unit, so that insert-size penalties fit integers."""

ESTIMATION_PAIRS = 16384
"""Pairs at the start of the sample from which the model is estimated."""

ESTIMATION_READS = 4 * ESTIMATION_PAIRS
"""Reads at the start of the sample that are searched for these pairs: a file may mix pairs and
single reads."""

MIN_PAIRS = 16
"""Fewer confident pairs than this give no estimate."""

USUAL_DEVIATIONS = 4
"""Standard deviations from the mean: sizes up to there are proper at least, and the cost of
fragments shorter than the mean grows no further."""

CONFIDENT_GAP = 12
"""Lead, in matches, of the best alignment of a mate that counts for the estimate."""


class InsertSizeModel(NamedTuple):
    """Range of proper signed insert sizes, and the cost of each."""

    low: int
    """Smallest proper insert size."""
    high: int
    """Largest proper insert size."""
    penalty: np.ndarray
    """int32 (high - low + 1,): cost of each size, in 1 / SCALE of a score unit."""
    mean: float
    std: float
    n_pairs: int
    """Confident pairs of the estimate; 0 if the model was given or assumed."""


def model_from(mean: float, std: float, low: int, high: int, n_pairs: int) -> InsertSizeModel:
    """Build a model in which a size costs the log-probability of a deviation as large or larger.

    A match is worth a likelihood ratio of 4, so costs are in units of ``log(4)``. Shearing, size
    selection and PCR leave more short fragments than a normal distribution has: none costs more
    than a deviation of ``USUAL_DEVIATIONS``.
    """
    sizes = np.arange(low, high + 1)
    deviations = np.abs(sizes - mean) / max(std, 1.0)
    is_short = sizes < mean if mean > 0 else sizes > mean
    deviations[is_short] = np.minimum(deviations[is_short], USUAL_DEVIATIONS)
    tails = np.array([math.erfc(d / math.sqrt(2)) for d in deviations])
    cost = -np.log(np.maximum(tails, 1e-12)) / math.log(4)
    penalty = np.rint(SCALE * cost).astype(np.int32)
    penalty.flags.writeable = False
    return InsertSizeModel(low, high, penalty, mean, std, n_pairs)


def in_score_units(model: InsertSizeModel, match: int) -> InsertSizeModel:
    """Return the model for scores in which a match counts `match` instead of 1."""
    penalty = model.penalty * np.int32(match)
    penalty.flags.writeable = False
    return model._replace(penalty=penalty)


def assumed_model() -> InsertSizeModel:
    """Return the model for samples too small to estimate: any FR insert up to 1000."""
    penalty = np.zeros(1000, np.int32)
    penalty.flags.writeable = False
    return InsertSizeModel(1, 1000, penalty, 0.0, 0.0, 0)


def model_of(numbers: Mapping[str, Any] | None) -> InsertSizeModel:
    """Return the model that :func:`numbers_of` describes; the assumed one for None."""
    if numbers is None or not numbers["mean"]:
        return assumed_model()
    mean, std = float(numbers["mean"]), float(numbers["std"])
    return model_from(mean, std, numbers["low"], numbers["high"], numbers["pairs"])


def numbers_of(model: InsertSizeModel) -> dict[str, float | None]:
    """Return the numbers from which a model in bases follows, bit for bit.

    The assumed model has no mean and deviation: they are None.
    """
    mean, std = (model.mean, model.std) if model.mean else (None, None)
    return {"mean": mean, "std": std, "low": model.low, "high": model.high, "pairs": model.n_pairs}


def estimate(inserts: np.ndarray) -> InsertSizeModel:
    """Estimate the model from signed insert sizes of confident pairs (int64, bases; 0: none).

    The library's orientation is the commoner sign. Outliers are cut at two quartile ranges
    beyond the quartiles before mean and deviation are taken. Sizes are proper up to three
    quartile ranges beyond the upper quartile, and at least ``USUAL_DEVIATIONS`` beyond the mean.
    Shorter fragments are proper whatever their size: of the variants that change inserts, only
    an insertion makes one look shorter, and one pair cannot distinguish it from the short
    fragments that every library has.
    """
    # Zeros are pairs without a confident insert size; they count for neither sign.
    sign = 1 if (inserts > 0).sum() >= (inserts < 0).sum() else -1
    sizes = np.sort(sign * inserts[sign * inserts > 0])
    if len(sizes) < MIN_PAIRS:
        return assumed_model()
    lower, upper = (int(sizes[int(q * (len(sizes) - 1))]) for q in (0.25, 0.75))
    spread = upper - lower
    core = sizes[(sizes >= lower - 2 * spread) & (sizes <= upper + 2 * spread)]
    mean, std = float(core.mean()), float(core.std())
    longest = max(upper + 3 * spread, math.ceil(mean + USUAL_DEVIATIONS * std))
    low, high = (1, longest) if sign > 0 else (-longest, -1)
    return model_from(sign * mean, std, low, high, len(sizes))


@core
def five_prime(alignments, i, read_len):
    """Return the text position of the 5' end of an aligned read, soft clips included."""
    if alignments.strand[i] == 0:
        return alignments.text_start[i] - alignments.query_start[i]
    return alignments.text_end[i] + read_len - alignments.query_end[i]


@core
def insert_size(alignments, a, a_len, b, b_len):
    """Return the signed insert size of two alignments on opposite strands of one contig."""
    distance = five_prime(alignments, b, b_len) - five_prime(alignments, a, a_len)
    return distance if alignments.strand[a] == 0 else -distance


@driver
def _confident_inserts(base_offsets, alignments, scores, groups):
    gap = CONFIDENT_GAP * scores.match
    offsets = alignments.alignment_offsets
    n_pairs = (len(offsets) - 1) // 2
    inserts = np.zeros(n_pairs, np.int64)
    for pair in range(n_pairs):
        best = np.empty(2, np.int64)
        confident = True
        for mate in range(2):
            read = 2 * pair + mate
            first, end = offsets[read], offsets[read + 1]
            best[mate] = first
            if first == end:
                confident = False
                continue
            read_len = base_offsets[read + 1] - base_offsets[read]
            score = np.int64(alignments.score[first])
            second = score - gap
            for i in range(first + 1, end):
                if not is_apart(groups, alignments, first, i):
                    second = np.int64(alignments.score[i])
                    break
            if score < lowest_score(read_len, scores) or score - second < gap:
                confident = False
        if not confident:
            continue
        a, b = best[0], best[1]
        if alignments.ref_id[a] != alignments.ref_id[b]:
            continue
        if alignments.strand[a] == alignments.strand[b]:
            continue
        len_a = base_offsets[2 * pair + 1] - base_offsets[2 * pair]
        len_b = base_offsets[2 * pair + 2] - base_offsets[2 * pair + 1]
        inserts[pair] = insert_size(alignments, a, len_a, b, len_b)
    return inserts


def confident_inserts(
    base_offsets: np.ndarray,
    alignments: AlignmentBatch,
    scores: ExtendParams,
    groups: np.ndarray = NO_GROUPS,
) -> np.ndarray:
    """Return the signed insert size (int64) of each pair, 0 for a pair that is not confident.

    `groups` are those of the contigs (:class:`mapper.index.reference.Contigs`).
    """
    return _confident_inserts(base_offsets, alignments, scores, groups)
