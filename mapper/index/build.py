"""Build an index: FASTA → text → sorted suffixes → BWT, Occ blocks, samples, k-mer table.

The text (uint8, shape (n,)) holds the contigs one after another, each followed by a separator. The
stored BWT leaves out the sentinel: its character i belongs to row i below ``primary`` and to row
i + 1 from there.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mapper import __version__, dna
from mapper.dna import AMBIGUOUS
from mapper.index import packed_text as packed
from mapper.index.fm import SUPERBLOCK_SHIFT, FMIndex, with_table
from mapper.index.marks import NO_MARKS, Marks
from mapper.index.packed_text import PackedText
from mapper.index.plan import LIBRARY, BuildPlan, choose_route, plan_cpu, sort_suffixes
from mapper.index.reference import Contigs, IndexData, IndexMeta, make_contigs
from mapper.index.storage import columns, row_dtype
from mapper.index.suffix_sort import SortedText
from mapper.io.contig_md5 import md5_of_contigs
from mapper.io.fasta_codes import WRITTEN_OTHERWISE
from mapper.io.reference_fasta import FastaCodes, plain_bytes, read_fasta
from mapper.jit.accelerate import driver
from mapper.jit.hashing import splitmix64
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.map import map_in_threads, parts
from mapper.parallel.pool import WRITE, PriorityPool, ordered_calls
from mapper.params import IndexParams

log = logging.getLogger(__name__)


# --- build ---


def build_index(
    fasta: str | Path,
    params: IndexParams | None = None,
    *,
    check_memory: bool = True,
    device: str = "auto",
    memory: int | None = None,
    n_threads: int | None = None,
    marks: Marks = NO_MARKS,
) -> IndexData:
    """Index the contigs of a FASTA file (plain, gzip or BGZF).

    The index is the same, byte for byte, whatever the options below, but for `marks`.

    Parameters
    ----------
    check_memory
        Refuse to start if less memory is available than the build needs.
    device
        ``auto``, ``cpu``, ``cuda`` or ``cuda:0``: the device that sorts the suffixes.
    memory
        Bytes that the process may take; None: the available memory.
    n_threads
        Threads; None: all cores of the process.
    marks
        ALT contigs, groups of contigs and masked regions.

    Raises
    ------
    InputFormatError
        If the file is not a valid FASTA file, or marks are not of its contigs.
    ResourceError, DeviceError
        If memory does not suffice, or the device cannot be used.
    """
    fasta = Path(fasta)
    params = params or IndexParams()
    n_threads = n_threads or len(os.sched_getaffinity(0))
    options = (params, device, memory, n_threads)
    what = f"{fasta}: the index"
    choose = partial(choose_route, what, check=check_memory, masks=marks.mask is not None)
    most = plain_bytes(fasta)
    if most is None:
        # Refuse at once if not even the smallest text can be indexed.
        choose(1, *options, say=False)
    else:
        plan = choose(most, *options)
    with _phase("reading"):
        contigs, text = read_text(
            fasta, n_threads, most,
            lambda n: choose(n, *options, n_held=n, say=False),
        )  # fmt: skip
    contigs = marks.group(contigs, fasta)
    regions = marks.masked_regions(contigs, fasta)
    if most is None:
        plan = choose(len(text), *options, n_held=len(text))
    n = len(text)
    params = replace(params, sa_sampling=params.sampling(n), kmer_len=params.table_kmer_len(n))
    unmasked_planes = mask_text(text, regions, n_threads)
    packed_text = pack_text(text, n_threads)
    unpacked = text if plan.route == LIBRARY else None
    del text  # the other routes do not need it
    gc.collect()  # compiling pack_text leaves its arguments to the garbage collector
    fm = index_text(packed_text, unpacked, params, plan, n_threads)
    n_masked = int((regions[:, 1] - regions[:, 0]).sum())
    meta = IndexMeta(fasta.name, fasta.stat().st_size, params, __version__, n_masked)
    return IndexData(fm, contigs, meta, unmasked_planes)


def build_fm(
    text: np.ndarray, params: IndexParams, plan: BuildPlan | None = None, n_threads: int = 1
) -> FMIndex:
    """Index a text.

    Parameters
    ----------
    text
        uint8 (n,), n > 0, codes of mapper.dna. Overwritten: ambiguous bases are replaced.
    plan
        The route; None: on the CPU (:func:`mapper.index.plan.plan_cpu`).
    """
    plan = plan or plan_cpu(len(text), params, n_threads, None)
    return index_text(pack_text(text, n_threads), text, params, plan, n_threads)


def mask_text(text: np.ndarray, regions: np.ndarray, n_threads: int = 1) -> np.ndarray | None:
    """Make the bases of regions ambiguous in a text, in place.

    Parameters
    ----------
    text
        uint8 (n,), n > 0, codes of mapper.dna.
    regions
        int64 (n_regions, 2): half-open, in text positions.

    Returns
    -------
    The bit planes of the text as it was; None without regions.
    """
    if not len(regions):
        return None
    planes = _empty_planes(len(text))

    def pack(part: tuple[int, int]) -> None:
        first, end = part
        dna.pack_strand(text, first << 6, min(len(text), end << 6), 0, planes, first)

    with _phase("masking"):
        map_in_threads(pack, parts(len(planes) - 2, 8 * n_threads), n_threads)
        for start, end in regions.tolist():
            text[start:end] = AMBIGUOUS
    planes.flags.writeable = False
    return planes


def _empty_planes(n: int) -> np.ndarray:
    """Return bit planes for a text of `n` bases, with two rows beyond it, marked ambiguous."""
    n_rows = int(dna.n_words(n))
    planes = np.zeros((n_rows + 2, 3), np.uint64)
    planes[n_rows:, 2] = ~np.uint64(0)
    return planes


def pack_text(text: np.ndarray, n_threads: int = 1) -> PackedText:
    """Pack a text, and replace its ambiguous bases in place.

    Parameters
    ----------
    text
        uint8 (n,), n > 0, codes of mapper.dna.

    Returns
    -------
    Words of two bits a base for the sort, and bit planes, with two rows beyond the text that are
    marked ambiguous.
    """
    n = len(text)
    planes = _empty_planes(n)
    words = np.zeros(packed.n_words(n), np.uint64)

    def pack(part: tuple[int, int]) -> None:
        first, end = part  # rows of 64 bases, two words each
        start, stop = first << 6, min(n, end << 6)
        dna.pack_strand(text, start, stop, 0, planes, first)
        replace_ambiguous(text, start, stop)
        packed.pack_words(text, 2 * first, min(len(words), 2 * end), words)

    with _phase("packing"):
        map_in_threads(pack, parts(len(planes) - 2, 8 * n_threads), n_threads)
    return PackedText(words, planes, n)


def index_text(
    text: PackedText,
    unpacked: np.ndarray | None,
    params: IndexParams,
    plan: BuildPlan,
    n_threads: int,
) -> FMIndex:
    """Index a packed text, and free its words.

    Parameters
    ----------
    unpacked
        The text as codes 0 to 3, uint8 (n,), for the library's route; None for the others.
    plan
        The route, and the number of suffixes of a block.
    """
    n = text.n
    sa_shift = params.sampling(n).bit_length() - 1
    no_table = np.zeros(1, row_dtype(n))
    with _phase("sorting the suffixes"):
        sorted_text = sort_suffixes(plan, text, unpacked, no_table.dtype, sa_shift, n_threads)
    text.release_words()
    gc.collect()  # compiling their readers leaves them to the garbage collector
    with _phase("BWT"):
        blocks, super_counts, first_row = make_blocks(sorted_text, n, params, n_threads)
    samples, primary = sorted_text.sa_samples, sorted_text.primary
    del sorted_text  # with the BWT of a byte a base
    gc.collect()  # compiling its readers leaves it to the garbage collector
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
        fill_blocks(bwt, primary, n, occ_shift, *part, blocks)

    map_in_threads(fill, parts(len(blocks), 8 * n_threads), n_threads)
    super_counts = np.zeros(shapes["super_counts"].shape, np.int64)
    counts = accumulate_counts(blocks, occ_shift, super_counts)
    first_row = np.concatenate([[1], 1 + np.cumsum(counts)]).astype(np.int64)
    return blocks, super_counts, first_row


@contextmanager
def _phase(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    log.info("%s: %.1f s", name, time.perf_counter() - start)


# --- text of a FASTA file ---

SEGMENT_BYTES = 1 << 26
"""Size of a segment of a text whose length is unknown until it has been read."""

_FIRST_CHECK = 1 << 24
_BLOCKS_AHEAD = 8


def read_text(
    fasta: Path,
    n_threads: int = 1,
    most: int | None = None,
    check: Callable[[int], object] = lambda n: None,
) -> tuple[Contigs, np.ndarray]:
    """Read contigs and text.

    Parameters
    ----------
    fasta
        FASTA, plain, gzip or BGZF.
    most
        Largest number of bases and separators; None: unknown.
    check
        If `most` is unknown, called with the number read so far whenever it has doubled, to
        refuse a text that is too large before it fills the memory.

    Returns
    -------
    contigs
    text
        uint8 (n,), codes of mapper.dna; one ambiguous base follows each contig.

    Raises
    ------
    InputFormatError
        See :func:`mapper.io.reference_fasta.read_fasta`.
    """
    segments = _Text(most, check)
    names: list[str] = []
    lengths: list[int] = [0]  # of the sequence before the first contig: none
    otherwise = False

    def copies(blocks: Iterator[FastaCodes]) -> Iterator[Callable[[], None]]:
        nonlocal otherwise
        for block in blocks:
            runs = block.pieces()
            lengths[-1] += len(runs[0])
            lengths.extend(len(run) for run in runs[1:])
            names.extend(block.names)
            otherwise |= block.otherwise
            yield partial(_copy, runs, segments.reserve(runs))

    pool = PriorityPool(n_threads - 1) if n_threads > 1 else None
    try:
        copying = pool.at(WRITE) if pool is not None else None
        with closing(read_fasta(fasta, pool)) as blocks:
            for _ in ordered_calls(copies(blocks), copying, _BLOCKS_AHEAD):
                pass
    finally:
        if pool is not None:
            pool.shutdown()
        RECYCLER.clear()  # of the buffers of file blocks
    text = segments.joined(n_threads)
    ends = list(itertools.accumulate(n + 1 for n in lengths[1:]))
    starts = [0, *ends[:-1]]
    contigs = [text[start : end - 1] for start, end in zip(starts, ends, strict=True)]
    md5 = md5_of_contigs(contigs, n_threads)
    if otherwise:
        text &= np.uint8(WRITTEN_OTHERWISE - 1)
    return make_contigs(names, md5, lengths[1:]), text


def _copy(runs: list[np.ndarray], targets: list[np.ndarray]) -> None:
    """Copy codes to the text, whose pages are first touched here, in a task of the thread pool."""
    for run, target in zip(runs, targets, strict=True):
        target[:] = run


class _Text:
    """Memory for a text: one array if its length is known, else segments.

    A separator precedes each contig, so that the first byte does not belong to the text.
    """

    def __init__(self, most: int | None, check: Callable[[int], object]) -> None:
        self._n = 0
        self._check = check
        self._next_check = _FIRST_CHECK
        self._segments = [np.empty(SEGMENT_BYTES if most is None else most + 1, np.uint8)]
        self._used = [0]

    def reserve(self, runs: list[np.ndarray]) -> list[np.ndarray]:
        """Return memory for these sequences; all but the first are preceded by a separator."""
        n = sum(len(run) for run in runs) + len(runs) - 1
        if self._used[-1] + n + 1 > len(self._segments[-1]):
            self._add_segment(n + 1)
        at = self._used[-1]
        self._used[-1] += n
        self._n += n
        targets = []
        for run in runs:
            targets.append(self._segments[-1][at : at + len(run)])
            at += len(run) + 1
            self._segments[-1][at - 1] = AMBIGUOUS  # or the next call overwrites it
        return targets

    def _add_segment(self, least: int) -> None:
        if self._n >= self._next_check:
            self._check(self._n)
            self._next_check = 2 * self._n
        self._segments.append(np.empty(max(least, SEGMENT_BYTES), np.uint8))
        self._used.append(0)

    def joined(self, n_threads: int) -> np.ndarray:
        """Return the text in one array; frees the segments, if no other reference holds them."""
        self._used[-1] += 1  # the last separator
        ends = list(itertools.accumulate(self._used))
        if len(self._segments) == 1:
            return self._segments[0][1 : ends[0]]
        text = np.empty(ends[-1], np.uint8)

        def move(number: int) -> None:
            n = self._used[number]
            text[ends[number] - n : ends[number]] = self._segments[number][:n]
            self._segments[number] = text[:0]  # frees the segment

        map_in_threads(move, range(len(self._segments)), n_threads)
        return text[1:]


# --- arrays of the index, each loop over the part of a thread ---


@driver
def replace_ambiguous(text, first, end):
    """Replace ambiguous bases (codes above 3) of ``text[first:end]`` by hashed bases, in place.

    Runs of N replaced by a single base would be the text's longest repeats, slow to sort and
    matched by every search for that base.
    """
    for i in range(first, end):
        if text[i] > 3:
            text[i] = np.uint8(splitmix64(i, 1) & np.uint64(3))


@driver
def fill_blocks(bwt, primary, n, occ_shift, first_block, end_block, blocks):
    """Fill blocks with the BWT, and their first two words with each block's own counts.

    `bwt` is uint8 (n + 1,): the base of each row; the sentinel's row, `primary`, is skipped.
    """
    for block in range(first_block, end_block):
        counts = np.zeros(4, np.uint64)
        start = block << occ_shift
        end = min(n, start + (1 << occ_shift))
        blocks[block, 2:] = np.uint64(0)
        for i in range(start, end):
            row = i if i < primary else i + 1
            code = np.uint64(bwt[row])
            counts[code] += np.uint64(1)
            word = 2 + (((i - start) >> 6) << 1)
            bit = np.uint64(i & 63)
            blocks[block, word] |= (code & np.uint64(1)) << bit
            blocks[block, word + 1] |= (code >> np.uint64(1)) << bit
        blocks[block, 0] = counts[0] | counts[1] << np.uint64(32)
        blocks[block, 1] = counts[2] | counts[3] << np.uint64(32)


@driver
def accumulate_counts(blocks, occ_shift, super_counts):
    """Turn each block's own counts into counts before it, within its superblock.

    Returns
    -------
    int64 (4,): the number of each base in the text.
    """
    total = np.zeros(4, np.int64)
    before = np.zeros(4, np.uint64)
    low = np.uint64(0xFFFFFFFF)
    per_superblock = 1 << (SUPERBLOCK_SHIFT - occ_shift)
    for block in range(len(blocks)):
        if block % per_superblock == 0:
            super_counts[block // per_superblock] = total
            before[:] = np.uint64(0)
        for half in range(2):
            own = blocks[block, half]
            first = own & low
            second = own >> np.uint64(32)
            blocks[block, half] = before[2 * half] | before[2 * half + 1] << np.uint64(32)
            before[2 * half] += first
            before[2 * half + 1] += second
            total[2 * half] += np.int64(first)
            total[2 * half + 1] += np.int64(second)
    return total
