"""Build an index: FASTA → text → sorted suffixes → BWT, Occ blocks, samples, k-mer table."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from mapper import __version__, dna
from mapper.index import packed_text as packed
from mapper.index import tables
from mapper.index.expand import with_table
from mapper.index.fm import FMIndex
from mapper.index.layout import columns, row_dtype
from mapper.index.packed_text import PackedText
from mapper.index.plan import LIBRARY, BuildPlan
from mapper.index.reference import Index, IndexMeta
from mapper.index.route import choose_route, sort_suffixes
from mapper.index.suffix_sort import SortedText
from mapper.index.text import read_text
from mapper.io.reference_fasta import plain_bytes
from mapper.parallel.map import map_in_threads, parts
from mapper.params import IndexParams

log = logging.getLogger(__name__)


def build_index(
    fasta: str | Path,
    params: IndexParams | None = None,
    *,
    check_memory: bool = True,
    device: str = "auto",
    memory: int | None = None,
    n_threads: int | None = None,
) -> Index:
    """Index the contigs of a FASTA file (plain, gzip or BGZF).

    The index is the same, byte for byte, whatever the options below.

    Parameters
    ----------
    check_memory
        Refuse to start where less memory is available than the build needs.
    device
        ``auto``, ``cpu``, ``cuda`` or ``cuda:0``: where suffixes are sorted.
    memory
        Bytes that the process may take; None: what is available.
    n_threads
        Threads; None: all cores of the process.

    Raises
    ------
    InputFormatError
        If the file is no valid FASTA.
    ResourceError, DeviceError
        If memory would not suffice, or the device cannot be used.
    """
    fasta = Path(fasta)
    params = params or IndexParams()
    n_threads = n_threads or len(os.sched_getaffinity(0))
    options = (params, device, memory, n_threads)
    what = f"{fasta}: the index"
    most = plain_bytes(fasta)
    if most is None:
        # Refuse at once what suits no text.
        choose_route(what, 1, *options, check=check_memory, say=False)
    else:
        plan = choose_route(what, most, *options, check=check_memory)
    with _phase("reading"):
        contigs, text = read_text(
            fasta, n_threads, most,
            lambda n: choose_route(what, n, *options, check=check_memory, n_held=n, say=False),
        )  # fmt: skip
    if most is None:
        plan = choose_route(what, len(text), *options, check=check_memory, n_held=len(text))
    n = len(text)
    params = replace(params, sa_sampling=params.sampling(n), kmer_len=params.table_kmer_len(n))
    packed_text = pack_text(text, n_threads)
    unpacked = text if plan.route == LIBRARY else None
    del text  # the other routes go without it
    gc.collect()  # where packing was compiled, numba left the text to it
    fm = index_text(packed_text, unpacked, params, plan, n_threads)
    meta = IndexMeta(fasta.name, fasta.stat().st_size, params, __version__)
    return Index(fm, contigs, meta)


def build_fm(
    text: np.ndarray, params: IndexParams, plan: BuildPlan | None = None, n_threads: int = 1
) -> FMIndex:
    """Index a text.

    Parameters
    ----------
    text
        uint8 (n,), n > 0, codes of mapper.dna. Overwritten: ambiguous bases are replaced.
    plan
        How; None: by the library.
    """
    packed_text = pack_text(text, n_threads)
    return index_text(packed_text, text, params, plan or BuildPlan(LIBRARY), n_threads)


def pack_text(text: np.ndarray, n_threads: int = 1) -> PackedText:
    """Pack a text, and replace its ambiguous bases in place.

    Parameters
    ----------
    text
        uint8 (n,), n > 0, codes of mapper.dna.

    Returns
    -------
    Two bits a base for the sort, and bit planes, which have two rows beyond the text, marked
    ambiguous.
    """
    n = len(text)
    n_rows = int(dna.n_words(n))
    planes = np.zeros((n_rows + 2, 3), np.uint64)
    planes[n_rows:, 2] = ~np.uint64(0)
    words = np.zeros(packed.n_words(n), np.uint64)

    def pack(part: tuple[int, int]) -> None:
        first, end = part  # rows of 64 bases, two words each
        start, stop = first << 6, min(n, end << 6)
        dna.pack_strand(text, start, stop, 0, planes, first)
        tables.replace_ambiguous(text, start, stop)
        packed.pack_words(text, 2 * first, min(len(words), 2 * end), words)

    with _phase("packing"):
        map_in_threads(pack, parts(n_rows, 8 * n_threads), n_threads)
    return PackedText(words, planes, n)


def index_text(
    text: PackedText,
    unpacked: np.ndarray | None,
    params: IndexParams,
    plan: BuildPlan,
    n_threads: int,
) -> FMIndex:
    """Index a packed text, and let its words go.

    Parameters
    ----------
    unpacked
        The text as codes 0 to 3, uint8 (n,), for the library's route; None for others.
    plan
        The route, and how much of the text is sorted at a time.
    """
    n = text.n
    sa_shift = params.sampling(n).bit_length() - 1
    no_table = np.zeros(1, row_dtype(n))
    with _phase("sorting the suffixes"):
        sorted_text = sort_suffixes(plan, text, unpacked, no_table.dtype, sa_shift, n_threads)
    text.release_words()
    gc.collect()  # where what reads them was compiled, numba left them to it
    with _phase("BWT"):
        blocks, super_counts, first_row = make_blocks(sorted_text, n, params, n_threads)
    samples, primary = sorted_text.sa_samples, sorted_text.primary
    del sorted_text  # with the BWT of a byte a base
    gc.collect()  # where its loops were compiled, numba left that to it
    arrays = (blocks, super_counts, first_row, samples, no_table, text.ref_planes)
    for array in arrays:
        array.flags.writeable = False
    occ_shift = params.occ_spacing.bit_length() - 1
    kmer_len = params.table_kmer_len(n)
    with _phase(f"table of {kmer_len}-mers"):
        fm = FMIndex(*arrays, n + 1, primary, occ_shift, sa_shift, 0)
        return with_table(fm, kmer_len, n_threads)


def make_blocks(
    sorted_text: SortedText, n: int, params: IndexParams, n_threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return blocks, superblock counts and first rows (:class:`mapper.index.fm.FMIndex`)."""
    occ_shift = params.occ_spacing.bit_length() - 1
    shapes = columns(n, params)
    blocks = np.empty(shapes["blocks"].shape, np.uint64)
    bwt, primary = sorted_text.bwt, sorted_text.primary

    def fill(part: tuple[int, int]) -> None:
        tables.fill_blocks(bwt, primary, n, occ_shift, *part, blocks)

    map_in_threads(fill, parts(len(blocks), 8 * n_threads), n_threads)
    super_counts = np.zeros(shapes["super_counts"].shape, np.int64)
    counts = tables.accumulate_counts(blocks, occ_shift, super_counts)
    first_row = np.concatenate([[1], 1 + np.cumsum(counts)]).astype(np.int64)
    return blocks, super_counts, first_row


@contextmanager
def _phase(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    log.info("%s: %.1f s", name, time.perf_counter() - start)
