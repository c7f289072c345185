"""CUDA kernels that find the reads to be looked at again (``doubt.py``): a thread for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace
from mapper.extend.cuda import DeviceAlignments
from mapper.extend.doubt import is_doubtful, is_doubtful_pair
from mapper.params import ExtendParams
from mapper.seed.cuda import DeviceReads, PerRead


@kernel(128)
def _doubt(reads, alignments, guarantee, paired, scores, n_reads, doubtful):
    read = cuda.grid(1)
    if read < n_reads:
        doubtful[read] = is_doubtful(
            reads.base_offsets, alignments, guarantee, read, paired, scores
        )


@kernel(128)
def _doubt_pairs(reads, alignments, seeds, scores, n_reads, doubtful):
    read = 2 * cuda.grid(1)
    if read < n_reads:
        found = is_doubtful_pair(
            reads.base_offsets, alignments, seeds.guarantee, seeds.thinned, read, scores
        )
        doubtful[read] = found
        doubtful[read + 1] = found


def doubtful_reads(
    space: Workspace, reads: DeviceReads, paired: bool, guarantee: Any, found: DeviceAlignments,
    scores: ExtendParams,
) -> Any:  # fmt: skip
    """Return which reads are to be looked at again: :func:`mapper.extend.doubt.doubtful_reads`.

    Returns
    -------
    uint8 (n_reads,), on the device, valid until `space` is used for another batch.
    """
    n_reads = len(reads.base_offsets) - 1
    doubtful = space.device("doubtful", n_reads, np.uint8)
    _doubt.launch(
        n_reads, space.stream, reads, found.batch, guarantee, paired, scores, n_reads, doubtful
    )
    return doubtful


def mates_of_doubtful_pairs(
    space: Workspace, reads: DeviceReads, seeds: PerRead, found: DeviceAlignments,
    scores: ExtendParams,
) -> Any:  # fmt: skip
    """Return the mates for a third look: :func:`mapper.extend.doubt.mates_of_doubtful_pairs`.

    Returns
    -------
    As :func:`doubtful_reads`.
    """
    n_reads = len(reads.base_offsets) - 1
    doubtful = space.device("doubtful", n_reads, np.uint8)
    _doubt_pairs.launch(
        n_reads // 2, space.stream, reads, found.batch, seeds, scores, n_reads, doubtful
    )
    return doubtful
