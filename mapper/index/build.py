"""Build an index: FASTA → text → suffix array → BWT, Occ blocks, samples, k-mer table."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from mapper import __version__, dna
from mapper.host_memory import require_bytes
from mapper.index import tables
from mapper.index.fm import FMIndex
from mapper.index.layout import columns, index_bytes, row_dtype
from mapper.index.reference import Contigs, Index, IndexMeta, make_contigs
from mapper.io.fasta import FastaSize, read_fasta, scan_fasta
from mapper.params import IndexParams

log = logging.getLogger(__name__)

PROCESS_BYTES = 300_000_000
"""Interpreter, libraries and compiled code: measured 0.25 GB."""


def build_index(
    fasta: str | Path, params: IndexParams | None = None, *, check_memory: bool = True
) -> Index:
    """Index the contigs of a FASTA file (plain, gzip or BGZF), in memory.

    Parameters
    ----------
    check_memory
        Refuse to start where less memory is available than :func:`memory_needed` says.

    Raises
    ------
    InputFormatError
        If the file is no valid FASTA.
    ResourceError
        If memory would not suffice.
    """
    fasta = Path(fasta)
    params = params or IndexParams()
    with _phase("check of the FASTA"):
        size = scan_fasta(fasta)
    n_most = size.n_bytes + size.n_records
    needed = memory_needed(n_most, params)
    log.info("at most %d bases; about %.2f GB of memory are needed", n_most, needed / 1e9)
    if check_memory:
        require_bytes(
            needed,
            f"{fasta}: the index",
            "use a machine or job with more, or --ignore-memory to try all the same",
        )
    with _phase("reading"):
        contigs, text = read_text(fasta, size)
    params = replace(params, kmer_len=params.table_kmer_len(len(text)))
    fm = build_fm(text, params)
    meta = IndexMeta(fasta.name, fasta.stat().st_size, params, __version__)
    return Index(fm, contigs, meta)


def read_text(fasta: Path, size: FastaSize) -> tuple[Contigs, np.ndarray]:
    """Read contigs and text.

    Returns
    -------
    contigs
    text
        uint8 (n,), codes of mapper.dna; one ambiguous base follows each contig.
    """
    text = np.empty(size.n_bytes + size.n_records, np.uint8)
    names, md5, lengths = [], [], []
    end = 0
    for record in read_fasta(fasta):
        length = len(record.codes)
        text[end : end + length] = record.codes
        text[end + length] = dna.AMBIGUOUS
        end += length + 1
        names.append(record.name)
        md5.append(record.md5)
        lengths.append(length)
    return make_contigs(names, md5, lengths), text[:end]


def build_fm(text: np.ndarray, params: IndexParams) -> FMIndex:
    """Index a text.

    Parameters
    ----------
    text
        uint8 (n,), n > 0, codes of mapper.dna. Overwritten: ambiguous bases are replaced.
    """
    n = len(text)
    occ_shift = params.occ_spacing.bit_length() - 1
    sa_shift = params.sa_sampling.bit_length() - 1
    kmer_len = params.table_kmer_len(n)
    shapes = columns(n, params)
    ref_planes = pack_text(text)
    tables.replace_ambiguous(text)
    with _phase(f"table of {kmer_len}-mers"):
        kmer_starts = kmer_table(text, kmer_len)
    with _phase("suffix array"):
        suffix_array = sort_suffixes(text)
    with _phase("BWT"):
        primary = int(tables.find_primary(suffix_array))
        blocks = np.zeros(shapes["blocks"].shape, np.uint64)
        tables.fill_blocks(text, suffix_array, primary, occ_shift, blocks)
        super_counts = np.zeros(shapes["super_counts"].shape, np.int64)
        counts = tables.accumulate_counts(blocks, occ_shift, super_counts)
        first_row = np.concatenate([[1], 1 + np.cumsum(counts)]).astype(np.int64)
        sa_samples = np.empty(shapes["sa_samples"].shape, row_dtype(n))
        sa_samples[0] = n
        sa_samples[1:] = suffix_array[params.sa_sampling - 1 :: params.sa_sampling]
    arrays = (blocks, super_counts, first_row, sa_samples, kmer_starts, ref_planes)
    for array in arrays:
        array.flags.writeable = False
    return FMIndex(*arrays, n + 1, primary, occ_shift, sa_shift, kmer_len)


def pack_text(text: np.ndarray) -> np.ndarray:
    """Return the bit planes of the text, and two rows beyond it, marked ambiguous."""
    n_words = int(dna.n_words(len(text)))
    planes = np.zeros((n_words + 2, 3), np.uint64)
    dna.pack_strand(text, 0, len(text), 0, planes, 0)
    planes[n_words:, 2] = ~np.uint64(0)
    return planes


def kmer_table(text: np.ndarray, kmer_len: int) -> np.ndarray:
    """Return the first row of every k-mer (:func:`mapper.index.fm.kmer_interval`)."""
    if kmer_len == 0:
        return np.zeros(1, row_dtype(len(text)))
    starts = np.zeros(4**kmer_len + 1, row_dtype(len(text)))
    tables.count_kmers(text, kmer_len, starts)
    return np.cumsum(starts, out=starts, dtype=starts.dtype)


def sort_suffixes(text: np.ndarray) -> np.ndarray:
    """Return the suffix array: int32 (n,) below 2**31 bases, else int64.

    The sort is one call into C that can take minutes. It runs in a thread of its own
    (it releases the GIL), so that signals are answered meanwhile.
    """
    from pydivsufsort import divsufsort  # slow to import, and needed only here

    results: list[np.ndarray | BaseException] = []

    def sort() -> None:
        try:
            results.append(divsufsort(text))
        except BaseException as error:  # handed to the caller
            results.append(error)

    thread = threading.Thread(target=sort, daemon=True)
    thread.start()
    thread.join()
    result = results.pop()
    if isinstance(result, BaseException):
        raise result
    return result


def memory_needed(n: int, params: IndexParams) -> int:
    """Return the peak memory of building an index of a text of `n` bases, in bytes.

    The text (1 byte a base), its suffix array (4 bytes a base, 8 from 2**31 bases on)
    and the index itself, all held at the end of the build, and the process.
    """
    suffix_array = n * (4 if n < 2**31 else 8)
    return n + suffix_array + index_bytes(n, params) + PROCESS_BYTES


@contextmanager
def _phase(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    log.info("%s: %.1f s", name, time.perf_counter() - start)
