"""Make an open index faster where memory allows: a longer k-mer table, the full suffix array.

A table of k-mers follows from that of (k - 1)-mers by one backward search step for each
entry: what sorts before ``a y`` are the suffixes that begin with a smaller base than a, and
those that begin with a and go on with what sorts before y. A machine with memory to spare
(a GPU above all) starts its searches several bases further on that way.

The suffix array follows from its samples: LF-mapping leads from a sampled row to the row of
the position before, and so on to the next sampled row. Locating is then one access instead
of p - 1 steps on average. Only a device has the memory to spare (:mod:`mapper.index.cuda`).
"""

from __future__ import annotations

import numpy as np

from mapper.index.fm import FMIndex, lf, occ
from mapper.jit.accelerate import core, driver
from mapper.parallel.map import map_in_threads, parts


@core
def table_entry(fm, starts, shorter_len, kmer):
    """First row whose suffix does not sort before `kmer`, of ``shorter_len + 1`` bases.

    Parameters
    ----------
    starts
        The table of k-mers one base shorter.
    kmer
        Bases coded 2 bits each, the first highest; 4**k for the end of the table.
    """
    if kmer >> (2 * shorter_len + 2):
        return np.int64(fm.n_rows)
    code = kmer >> (2 * shorter_len)
    rest = kmer & ((np.int64(1) << (2 * shorter_len)) - 1)
    return fm.first_row[code] + occ(fm, code, np.int64(starts[rest]))


@core
def fill_from_sample(fm, sample, suffix_array):
    """Fill the full suffix array at a sampled row and, walking left, up to the next one.

    The walks from all samples visit every row once: each row's walk to the right ends at a
    sampled row, that of the sentinel (row 0) at the latest.
    """
    row = sample << fm.sa_shift
    text_pos = np.int64(fm.sa_samples[sample])
    suffix_array[row] = text_pos
    while row != fm.primary:
        row = lf(fm, row)
        text_pos -= 1
        if row & ((1 << fm.sa_shift) - 1) == 0:
            return
        suffix_array[row] = text_pos


@driver
def _lengthen(fm, starts, shorter_len, first, end, longer):
    for kmer in range(first, end):
        longer[kmer] = table_entry(fm, starts, shorter_len, kmer)


def _longer(fm: FMIndex, starts: np.ndarray, length: int, n_threads: int) -> np.ndarray:
    longer = np.empty(4 ** (length + 1) + 1, starts.dtype)

    def fill(part: tuple[int, int]) -> None:
        _lengthen(fm, starts, length, *part, longer)

    n_parts = 8 * n_threads if len(longer) > 100_000 else 1
    map_in_threads(fill, parts(len(longer), n_parts), n_threads)
    return longer


def with_table(fm: FMIndex, kmer_len: int, n_threads: int = 1) -> FMIndex:
    """Return the index with a table of k = `kmer_len`, made from its own or from nothing.

    One Occ count for each entry of each table on the way: a table of 10-mers takes
    some hundredths of a second.
    """
    if kmer_len == fm.kmer_len:
        return fm
    row = fm.sa_samples.dtype
    if 0 < fm.kmer_len < kmer_len:
        starts, length = fm.kmer_starts, fm.kmer_len
    else:
        starts, length = np.array([0, fm.n_rows], row), 0
    while length < kmer_len:
        starts, length = _longer(fm, starts, length, n_threads), length + 1
    starts.flags.writeable = False
    return fm._replace(kmer_starts=starts if kmer_len else np.zeros(1, row), kmer_len=kmer_len)
