"""Build an FM-index of a text on the GPU, for benchmarks on large texts; needs CuPy.

The suffix array comes from one radix sort of the first 32 bases of every suffix, and prefix
doubling of what is still tied: 32, 64, 128, ... bases. It takes 60 bytes of device memory a
base: about 2 Gbp on 141 GB.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mapper.device.seam import cuda
from mapper.index.build import pack_text
from mapper.index.fm import SUPERBLOCK_SHIFT, FMIndex

WORD_BASES = 32


def suffix_array(text: Any) -> Any:
    """Return the suffix array, without the sentinel's row, of uint8 codes 0 to 3 (CuPy)."""
    n = len(text)
    keys = text.astype(cp.uint64)
    width = 1
    while width < WORD_BASES:
        shifted = cp.zeros(n, cp.uint64)
        shifted[: n - width] = keys[width:]
        keys <<= cp.uint64(2 * width)
        keys |= shifted
        del shifted
        width *= 2
    order = cp.argsort(keys).astype(cp.uint32)
    keys = keys[order]
    heads = cp.ones(n + 1, cp.bool_)
    heads[1:n] = keys[1:] != keys[:-1]
    del keys
    cp.get_default_memory_pool().free_all_blocks()
    # Rank: 1 + first row of the group; 0 stands for what is beyond the end.
    rank = cp.empty(n, cp.uint32)
    rank[order] = _first_rows(heads[:n]) + cp.uint32(1)
    rows = cp.flatnonzero(~(heads[:n] & heads[1:]))
    del heads
    while len(rows):
        starts = order[rows].astype(cp.int64)
        after = starts + width
        inside = after < n
        second = cp.where(inside, rank[cp.minimum(after, n - 1)], cp.uint32(0))
        keys = rank[starts].astype(cp.uint64) << cp.uint64(32) | second
        by_key = cp.argsort(keys)
        starts, keys = starts[by_key], keys[by_key]
        order[rows] = starts.astype(cp.uint32)
        heads = cp.ones(len(rows) + 1, cp.bool_)
        heads[1:-1] = keys[1:] != keys[:-1]
        rank[starts] = (rows[_first_rows(heads[:-1])] + 1).astype(cp.uint32)
        rows = rows[~(heads[:-1] & heads[1:])]
        width *= 2
    return order


def _first_rows(heads: Any) -> Any:
    """Return, for each item, where its group begins; `heads` marks the first of each."""
    groups = cp.cumsum(heads, dtype=cp.uint32)
    return cp.flatnonzero(heads).astype(cp.uint32)[groups - 1]


def build_on_device(given_text: np.ndarray) -> FMIndex:
    """Return an index with q = 64, p = 1 and no k-mer table; its arrays are on the device.

    Parameters
    ----------
    given_text
        uint8 (n,), codes of mapper.dna, n below 2**31. Ambiguous bases are replaced in it.
    """
    n = len(given_text)
    ref_planes = pack_text(given_text).ref_planes
    text = cp.asarray(given_text)
    order = suffix_array(text)
    primary = int(cp.flatnonzero(order == 0)[0]) + 1
    bwt = cp.zeros((n // 64 + 1) * 64, cp.uint8)
    before = text[cp.maximum(order, 1) - cp.uint32(1)]  # of position 0: any base, it is left out
    bwt[0] = text[n - 1]
    bwt[1:primary] = before[: primary - 1]
    bwt[primary:n] = before[primary:]
    del before, text
    blocks = cp.empty((n // 64 + 1, 4), cp.uint64)
    for plane in range(2):
        bits = cp.packbits(bwt >> plane & 1, bitorder="little").view(cp.uint64)
        blocks[:, 2 + plane] = bits
    n_valid = cp.full(n // 64 + 1, 64, cp.int64)
    n_valid[-1] = n % 64
    first_row = np.zeros(5, np.int64)
    first_row[0] = 1
    assert n < 1 << SUPERBLOCK_SHIFT
    counts = []
    for code in range(4):
        own = (bwt.reshape(-1, 64) == code).sum(axis=1)
        if code == 0:
            own -= 64 - n_valid  # the padding of the last block
        first_row[code + 1] = first_row[code] + int(own.sum())
        counts.append((cp.cumsum(own) - own).astype(cp.uint64))
    blocks[:, 0] = counts[0] | counts[1] << cp.uint64(32)
    blocks[:, 1] = counts[2] | counts[3] << cp.uint64(32)
    rows = cp.empty(n + 1, cp.uint32)
    rows[0] = n
    rows[1:] = order
    fm = FMIndex(
        blocks=_kept(blocks),
        super_counts=cuda.to_device(np.zeros((1, 4), np.int64)),
        first_row=cuda.to_device(first_row),
        sa_samples=_kept(rows),
        kmer_starts=cuda.to_device(np.zeros(1, np.uint32)),
        ref_planes=cuda.to_device(ref_planes),
        n_rows=n + 1,
        primary=primary,
        occ_shift=6,
        sa_shift=0,
        kmer_len=0,
    )
    del blocks, rows, order, bwt, counts
    cp.get_default_memory_pool().free_all_blocks()
    return fm


def _kept(array: Any) -> Any:
    """Copy a CuPy array into memory of numba's, so that CuPy can free all of its own."""
    held = cuda.device_array(array.shape, array.dtype)
    cp.asarray(held)[...] = array
    return held


def to_host(fm: FMIndex, sa_shift: int) -> FMIndex:
    """Return the index in host memory, its suffix array sampled."""
    arrays = {
        name: column.copy_to_host()
        for name, column in fm._asdict().items()
        if hasattr(column, "copy_to_host") and name != "sa_samples"
    }
    samples = cp.asnumpy(cp.asarray(fm.sa_samples)[:: 1 << sa_shift])
    arrays["sa_samples"] = np.ascontiguousarray(samples)
    for array in arrays.values():
        array.flags.writeable = False
    return fm._replace(**arrays, sa_shift=sa_shift)
