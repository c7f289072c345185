"""All pairs of a batch on CUDA devices: a first pass, and the pairs that it leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mapper.align.cuda.flat_columns import NOT_DONE
from mapper.align.cuda.flat_cuda import FirstPass, Source, first_pass
from mapper.align.cuda.launch_plan import FlatMetric
from mapper.align.cuda.trace import host_time
from mapper.align.result import PairAlignments
from mapper.jit.accelerate import driver

log = logging.getLogger(__name__)

Rest = Callable[[Any, np.ndarray], PairAlignments]
"""Aligns pairs that are left (what the source gives), of the given numbers."""

_PAIRS_A_JOB = 1 << 18


def align_flat(
    ordinals: Sequence[int], metric: FlatMetric, source: Source, want_path: bool, threads: int,
    rest: Rest,
) -> PairAlignments:  # fmt: skip
    """Align all pairs: those that fit in a first pass, the others by `rest`.

    `threads` stage letters; no effect on the result.
    """
    found = first_pass(ordinals, metric, source, want_path, threads)
    if found.n_left == 0:
        return _result(found)
    with host_time("pairs left"):
        numbers = np.flatnonzero(found.columns.status == NOT_DONE)
        log.debug("%d of %d pairs are left by the first pass", len(numbers), source.n_pairs)
        later = rest(source.selected(numbers), numbers)
        for column, values in zip(found.columns, later[:6], strict=True):
            column[numbers] = values
        if found.offsets is None or later.cigar_offsets is None or later.cigar_ops is None:
            return _result(found)
        n_ops = found.n_ops + len(later.cigar_ops)
        offsets, ops = np.empty(len(found.offsets), np.int64), np.empty(n_ops, np.uint32)
        pieces = range(0, source.n_pairs, _PAIRS_A_JOB)
        with ThreadPoolExecutor(min(threads, len(pieces))) as pool:
            merged = pool.map(
                lambda first: _merge(
                    first, min(first + _PAIRS_A_JOB, source.n_pairs), found.offsets, found.ops(),
                    numbers, later.cigar_offsets, later.cigar_ops, offsets, ops,
                ),
                pieces,
            )  # fmt: skip
            list(merged)
        offsets[-1] = n_ops
        return PairAlignments(*found.columns, offsets, ops)


def _result(found: FirstPass) -> PairAlignments:
    if found.offsets is None:
        return PairAlignments(*found.columns, None, None)
    return PairAlignments(*found.columns, found.offsets, found.ops())


@driver
def _merge(first, last, done_offsets, done_ops, numbers, later_offsets, later_ops, offsets, ops):
    """Write the operations of pairs first:last, of those numbered from `later_ops`."""
    rank = np.searchsorted(numbers, first)
    for i in range(first, last):
        at = done_offsets[i] + later_offsets[rank]
        offsets[i] = at
        if rank < len(numbers) and numbers[rank] == i:
            for x in range(later_offsets[rank], later_offsets[rank + 1]):
                ops[at] = later_ops[x]
                at += 1
            rank += 1
        else:
            for x in range(done_offsets[i], done_offsets[i + 1]):
                ops[at] = done_ops[x]
                at += 1
