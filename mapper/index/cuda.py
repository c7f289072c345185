"""The index on a CUDA device: upload it, and expand it as far as memory allows."""

from __future__ import annotations

import logging

import numpy as np

from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import device_memory, free_bytes, free_share
from mapper.cuda.upload import bytes_on_device, upload
from mapper.errors import DeviceMemoryError
from mapper.index.fm import FMIndex, fill_from_sample, table_entry

log = logging.getLogger(__name__)

KEEP_FREE = 0.5
"""Share of the free memory that expansion leaves to batches."""


@kernel(256)
def _fill_suffix_array(fm, n_samples, suffix_array):
    sample = cuda.grid(1)
    if sample < n_samples:
        fill_from_sample(fm, sample, suffix_array)


@kernel(256)
def _lengthen_table(fm, starts, shorter_len, n_entries, longer):
    kmer = cuda.grid(1)
    if kmer < n_entries:
        longer[kmer] = table_entry(fm, starts, shorter_len, kmer)


def upload_index(fm: FMIndex) -> FMIndex:
    """Copy an index to the current device, unchanged.

    Raises
    ------
    DeviceMemoryError
        If it does not fit.
    """
    return upload(fm, "the index")


def expand_suffix_array(fm: FMIndex) -> FMIndex:
    """Return a device index with the full suffix array, if it fits half of the free memory.

    The located positions are the same either way; only the speed differs.
    """
    if fm.sa_shift == 0:
        return fm
    n_bytes = fm.n_rows * fm.sa_samples.dtype.itemsize
    room = free_share(bytes_on_device(fm))
    if n_bytes > (1 - KEEP_FREE) * room:
        log.info(
            "the suffix array stays sampled on the device: whole it takes %.1f GB, and %.1f GB "
            "are free", n_bytes / 1e9, room / 1e9,
        )  # fmt: skip
        return fm
    with device_memory("the whole suffix array"):
        suffix_array = cuda.device_array(fm.n_rows, fm.sa_samples.dtype)
    _fill_suffix_array.launch(len(fm.sa_samples), 0, fm, len(fm.sa_samples), suffix_array)
    cuda.synchronize()
    return fm._replace(sa_samples=suffix_array, sa_shift=0)


def table_len_for(n_rows: int, kmer_len: int, row_bytes: int, room: float) -> int:
    """Return the best length of a k-mer table for searches of k-mers.

    The longest with at most five entries for each base (most are empty then, but the others
    save a step or some comparisons), at most `kmer_len` and 16 bases, and of which half of
    `room` bytes hold it and its predecessor, a quarter of its size.
    """
    length = 1
    while (
        length < min(kmer_len, 16)
        and 4 ** (length + 1) <= 5 * n_rows
        and 1.25 * row_bytes * 4 ** (length + 1) <= (1 - KEEP_FREE) * room
    ):
        length += 1
    return length


def fit_table_on_device(fm: FMIndex, kmer_len: int) -> FMIndex:
    """Return a device index with a table for searches of k-mers of `kmer_len` bases.

    Raises
    ------
    DeviceMemoryError
        If not even a small one fits.
    """
    wanted = table_len_for(fm.n_rows, kmer_len, fm.sa_samples.dtype.itemsize, free_bytes())
    if fm.kmer_len <= kmer_len:
        wanted = max(wanted, fm.kmer_len)
    return with_table_on_device(fm, wanted)


def with_table_on_device(fm: FMIndex, kmer_len: int) -> FMIndex:
    """Return a device index with a table of k = `kmer_len` (1 or more)."""
    if kmer_len == fm.kmer_len:
        return fm
    row = fm.sa_samples.dtype
    if 0 < fm.kmer_len < kmer_len:
        starts, length = fm.kmer_starts, fm.kmer_len
    else:
        starts, length = cuda.to_device(np.array([0, fm.n_rows], row)), 0
    while length < kmer_len:
        n_entries = 4 ** (length + 1) + 1
        with device_memory(f"the table of {length + 1}-mers"):
            longer = cuda.device_array(n_entries, row)
        _lengthen_table.launch(n_entries, 0, fm, starts, length, n_entries, longer)
        starts, length = longer, length + 1
    cuda.synchronize()
    return fm._replace(kmer_starts=starts, kmer_len=kmer_len)


def device_index(fm: FMIndex, kmer_len: int) -> FMIndex:
    """Upload an index and expand it for searches of k-mers of `kmer_len` bases."""
    uploaded = fit_table_on_device(upload_index(fm), kmer_len)
    try:
        return expand_suffix_array(uploaded)
    except DeviceMemoryError as error:  # another process took that memory meanwhile
        log.info("the suffix array stays sampled on the device: %s", error)
        return uploaded
