"""The contexts of an index's rows, made on the device where memory allows."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import device_memory, free_bytes
from mapper.errors import DeviceMemoryError
from mapper.index.fm import FMIndex
from mapper.kmers.kmer_contexts import fill_contexts
from mapper.params import KmerParams

log = logging.getLogger(__name__)

MOST = 0.75
"""Part of the free memory that contexts may take: batches need no more than some gigabytes."""


@kernel(256)
def _fill_contexts(fm, left_len, contexts):
    row = cuda.grid(1)
    if row < fm.n_rows:
        fill_contexts(fm, left_len, row, contexts)


def device_contexts(fm: FMIndex, params: KmerParams) -> Any:
    """Return the contexts of all rows, if they serve a search and leave memory to batches.

    They serve searches with mismatches, in an index whose suffix array is whole. The same hits
    are found either way.

    Parameters
    ----------
    fm
        On the current device, with the table with which k-mers are searched.

    Returns
    -------
    uint32 (2, n_rows) on the device (:mod:`mapper.kmers.kmer_contexts`), or None.
    """
    if params.max_mismatches == 0 or fm.sa_shift != 0:
        return None
    n_bytes = 8 * fm.n_rows
    if n_bytes > MOST * free_bytes():
        log.info(
            "k-mers are searched without the rows' contexts: they take %.1f GB, and %.1f GB are "
            "free", n_bytes / 1e9, free_bytes() / 1e9,
        )  # fmt: skip
        return None
    try:
        with device_memory("the contexts of the rows"):
            contexts = cuda.device_array((2, fm.n_rows), np.uint32)
    except DeviceMemoryError as error:  # someone else took what was free a moment ago
        log.info("k-mers are searched without the rows' contexts: %s", error)
        return None
    _fill_contexts.launch(fm.n_rows, 0, fm, params.kmer_len - fm.kmer_len, contexts)
    cuda.synchronize()
    return contexts
