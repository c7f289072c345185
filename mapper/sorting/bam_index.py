"""Index a sorted BAM file, as BAI or CSI, from its records and the offsets of its BGZF blocks.

The file is not read again: each piece of sorted records gives an :class:`IndexPart`, in offsets of
the uncompressed records, and :class:`BamIndex` joins the parts when the compressed size of every
block is known. The bytes of an index depend on the records and blocks, not on how they were cut
into parts.

Both kinds of index are in the SAM specification, section 5, and its companion on CSI. A *window*
is 2**14 bases of a contig. A *bin* of level 0 is a window, one of level k spans 8**k of them; a
record belongs to the smallest bin that contains it. A *chunk* is a part of the file with records
of one bin.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.bam_writer import CONSUMES_REF, FIXED_BYTES
from mapper.io.bgzf import BLOCK_BYTES, EOF_BLOCK, compress_blocks, deflater
from mapper.io.samtools import MAX_BAI_LENGTH
from mapper.jit.accelerate import core, driver
from mapper.jit.intrinsics import prefetch
from mapper.jit.simd import get16, get32
from mapper.sam_flags import UNMAPPED

_WINDOW_BITS = 14
_LEVEL_BITS = 3  # a bin has 8 children
_LEVELS = {".bai": 5, ".csi": 6}
"""Levels above the windows. A .csi with 6 holds 2**32 bases, more than BAM; so does htslib's."""

_MAX_END = 1 << 33
"""Bound of a record's end, beyond all indexes: it limits the windows of a damaged record."""

_N_LEVELS = 8  # up to _MAX_END
_REF_AT, _LEVEL_AT = 21, 18  # bits of a bin's code: reference, level and number in the level
_NO_REF = (1 << 30) - 1  # of records without a place, which come last

_SMALL_BIN = 1 << 16
"""Bytes of the file: bins within less are joined with their parent, as in htslib."""

_CSI_DEFLATE_LEVEL = 3
_UNSET = np.iinfo(np.int64).max

_AHEAD = 8  # records that are prefetched
_CACHE_LINE = 64

_OK, _UNSORTED, _BROKEN = range(3)


class IndexPart(NamedTuple):
    """What an index says about consecutive records; offsets are from the first byte of the first.

    All arrays are int64 tables, one row for each item, in the order of the records.
    """

    n_bytes: int  # of the records
    first_place: int  # of the first record: reference << 32 | position + 1
    last_place: int
    contigs: np.ndarray  # reference or -1, start, end, number of mapped and of unmapped records
    chunks: np.ndarray  # bin (reference, level, number in the level), start, end
    windows: np.ndarray  # reference, first and last window, start of the first record in them


_CONTIG_OFFSETS = np.array([0, 1, 1, 0, 0])  # which columns are offsets
_CHUNK_OFFSETS = np.array([0, 1, 1])
_WINDOW_OFFSETS = np.array([0, 0, 0, 1])


def index_part(out: np.ndarray, starts: np.ndarray) -> IndexPart:
    """Return what an index says about consecutive records of a sorted file.

    Parameters
    ----------
    out
        uint8: BAM records, one behind another, in sorted order.
    starts
        Offsets of the records in `out`, the first of them 0: int64, shape (n,).

    Raises
    ------
    InputFormatError
        If a record is shorter than its CIGAR.
    """
    contigs = np.empty((len(starts), len(_CONTIG_OFFSETS)), np.int64)
    chunks = np.empty((len(starts), len(_CHUNK_OFFSETS)), np.int64)
    windows = np.empty((len(starts), len(_WINDOW_OFFSETS)), np.int64)
    sizes = np.zeros(3, np.int64)
    places = np.zeros(2, np.int64)
    latest = np.full(_N_LEVELS, -1, np.int64)
    status, record = _fill_part(out, starts, contigs, chunks, windows, sizes, places, latest)
    if status == _UNSORTED:
        raise RuntimeError(f"record {record} of {len(starts)} is before the one in front of it")
    if status == _BROKEN:
        name = out[starts[record] :][FIXED_BYTES:][:254].tobytes().partition(b"\0")[0]
        raise InputFormatError(
            f"BAM record '{name.decode('latin-1')}' is damaged: it has no valid reference, or is "
            "shorter than its name and CIGAR; make the file again"
        )
    return IndexPart(
        len(out), int(places[0]), int(places[1]),
        contigs[: sizes[0]].copy(), chunks[: sizes[1]].copy(), windows[: sizes[2]].copy(),
    )  # fmt: skip


@core
def _reference_bases(out, at, n_ops):
    span = np.int64(0)
    for i in range(n_ops):
        op = get32(out, at + 4 * i) & 0xFFFFFFFF
        if CONSUMES_REF[op & 15]:
            span += op >> 4
    return span


@core
def _put_contig(contigs, row, end, n_mapped, n_unmapped):
    contigs[row, 2] = end
    contigs[row, 3] = n_mapped
    contigs[row, 4] = n_unmapped


@driver
def _fill_part(out, starts, contigs, chunks, windows, sizes, places, latest):
    """Write the tables of an IndexPart; return a status and the record that it is about.

    Parameters
    ----------
    out, starts
        See :func:`index_part`.
    contigs, chunks, windows
        Tables with a row for each record, more than enough.
    sizes
        Rows that were written of each: int64, shape (3,).
    places
        Those of the first and last record: int64, shape (2,).
    latest
        Workspace, -1 everywhere: the last chunk of each level.
    """
    n_contigs, n_chunks, n_windows = np.int64(0), np.int64(0), np.int64(0)
    ref, last_place = np.int64(-2), np.int64(-1)
    reached = np.int64(-1)  # last window of the contig with a record
    n_mapped, n_unmapped = np.int64(0), np.int64(0)
    end = np.int64(0)
    n = len(starts)
    for i in range(n):
        at = starts[i]
        if i + _AHEAD < n:
            prefetch(out, starts[i + _AHEAD])
            prefetch(out, starts[i + _AHEAD] + _CACHE_LINE)
        end = starts[i + 1] if i + 1 < n else np.int64(len(out))
        if end - at < FIXED_BYTES:
            return _BROKEN, i
        new_ref, pos = get32(out, at + 4), get32(out, at + 8)
        if new_ref < -1:
            return _BROKEN, i
        place = (_NO_REF if new_ref < 0 else new_ref) << 32 | (pos + 1)
        if place < last_place:
            return _UNSORTED, i
        if i == 0:
            places[0] = place
        last_place = place
        if new_ref != ref:
            if n_contigs:
                _put_contig(contigs, n_contigs - 1, at, n_mapped, n_unmapped)
            ref = new_ref
            reached, n_mapped, n_unmapped = -1, 0, 0
            contigs[n_contigs, 0] = ref
            contigs[n_contigs, 1] = at
            n_contigs += 1
        is_unmapped = (get16(out, at + 18) & UNMAPPED) != 0
        n_unmapped += is_unmapped
        n_mapped += not is_unmapped
        if ref < 0:
            continue

        span = np.int64(0)
        if not is_unmapped:
            cigar_at = at + FIXED_BYTES + out[at + 12]
            n_ops = get16(out, at + 16)
            if cigar_at + 4 * n_ops > end:
                return _BROKEN, i
            span = _reference_bases(out, cigar_at, n_ops)
        # A record without alignment counts as one base; one without position lies at the start.
        first = max(pos, 0) >> _WINDOW_BITS
        last = (min(max(pos + max(span, 1), 1), _MAX_END) - 1) >> _WINDOW_BITS
        if last > reached:
            windows[n_windows, 0] = ref
            windows[n_windows, 1] = max(first, reached + 1)
            windows[n_windows, 2] = last
            windows[n_windows, 3] = at
            n_windows += 1
            reached = last

        level, differing = np.int64(0), first ^ last
        while differing:
            differing >>= _LEVEL_BITS
            level += 1
        code = ref << _REF_AT | level << _LEVEL_AT | first >> (_LEVEL_BITS * level)
        chunk = latest[level]
        if chunk >= 0 and chunks[chunk, 0] == code and at - chunks[chunk, 2] < BLOCK_BYTES:
            chunks[chunk, 2] = end
        else:
            chunks[n_chunks, 0] = code
            chunks[n_chunks, 1] = at
            chunks[n_chunks, 2] = end
            latest[level] = n_chunks
            n_chunks += 1
    if n_contigs:
        _put_contig(contigs, n_contigs - 1, end, n_mapped, n_unmapped)
    places[1] = last_place
    sizes[0], sizes[1], sizes[2] = n_contigs, n_chunks, n_windows
    return _OK, np.int64(0)


@driver
def _join_chunks(bins, starts, ends):
    """Join the chunks of a bin that are less than a block apart; return how many are left.

    A reader has to decompress the blocks between them in any case. The arrays (int64) are sorted
    by bin and start; the chunks that are left come first in them.
    """
    n = np.int64(0)
    for i in range(len(bins)):
        if n and bins[n - 1] == bins[i] and starts[i] - ends[n - 1] < BLOCK_BYTES:
            ends[n - 1] = max(ends[n - 1], ends[i])
        else:
            bins[n], starts[n], ends[n] = bins[i], starts[i], ends[i]
            n += 1
    return n


class BamIndex:
    """The index of a sorted BAM file, joined from the parts of consecutive records.

    The records begin in a new BGZF block, and each block but the last has BLOCK_BYTES of them.

    Parameters
    ----------
    contig_names, contig_lengths
        Of the header of the file. A contig longer than MAX_BAI_LENGTH makes the index a CSI.
    """

    def __init__(self, contig_names: Sequence[str], contig_lengths: Sequence[int]) -> None:
        self._names = contig_names
        longest = max(contig_lengths, default=0)
        self.suffix = ".csi" if longest > MAX_BAI_LENGTH else ".bai"
        """Of the name of the index, behind that of the file."""
        self._levels = _LEVELS[self.suffix]
        self._n_bytes = 0
        self._last_place = -1
        self._contigs = [np.empty((0, len(_CONTIG_OFFSETS)), np.int64)]
        self._chunks = [np.empty((0, len(_CHUNK_OFFSETS)), np.int64)]
        self._windows = [np.empty((0, len(_WINDOW_OFFSETS)), np.int64)]

    def add(self, part: IndexPart) -> None:
        """Add the records that come next in the file.

        Raises
        ------
        InputFormatError
            If a record lies on no contig, or ends beyond what the index can hold.
        """
        if part.n_bytes == 0:
            return
        if part.first_place < self._last_place:
            raise RuntimeError("parts of an index are not in the order of the file")
        self._check_bounds(part)
        self._contigs.append(part.contigs + self._n_bytes * _CONTIG_OFFSETS)
        self._chunks.append(part.chunks + self._n_bytes * _CHUNK_OFFSETS)
        self._windows.append(part.windows + self._n_bytes * _WINDOW_OFFSETS)
        self._n_bytes += part.n_bytes
        self._last_place = part.last_place

    def _check_bounds(self, part: IndexPart) -> None:
        worst = int(part.contigs[:, 0].max())
        if worst >= len(self._names):
            raise InputFormatError(
                f"a BAM record lies on contig {worst + 1} and the header has {len(self._names)}; "
                "make the file again"
            )
        too_far = part.windows[:, 2] >= _max_length(self._levels) >> _WINDOW_BITS
        if too_far.any():
            name = self._names[part.windows[too_far.argmax(), 0]]
            raise InputFormatError(
                f"a BAM record ends beyond base {_max_length(self._levels)} of contig {name}, far "
                f"behind the end of the contig, and a {self.suffix} cannot hold it; correct the "
                "record, or the length of the contig in the header"
            )

    def write(self, block_offsets: np.ndarray) -> bytes:
        """Return the bytes of the index.

        Parameters
        ----------
        block_offsets
            Offset in the file of each BGZF block of records, and last the offset behind them:
            int64, shape (n_blocks + 1,).
        """
        if len(block_offsets) != -(-self._n_bytes // BLOCK_BYTES) + 1:
            raise RuntimeError(
                f"{len(block_offsets) - 1} blocks of BGZF for {self._n_bytes} bytes of records"
            )
        contigs, chunks, windows = map(np.concatenate, (self._contigs, self._chunks, self._windows))
        tree = _BinTree(self._levels, len(self._names), windows)
        bins, starts, ends = _joined_bins(chunks, tree, self._virtual(chunks[:, 1:], block_offsets))
        linear = self._virtual(tree.first_records(windows), block_offsets)
        words = _Words(tree, bins, self.suffix == ".csi")
        words.put_chunks(self._virtual(np.stack([starts, ends], axis=1), block_offsets))
        words.put_linear(linear)
        counted = contigs[contigs[:, 0] >= 0]
        words.put_counts(counted, self._virtual(counted[:, 1:3], block_offsets))
        n_no_coor = int(contigs[contigs[:, 0] < 0, 3:].sum())
        body = words.to_bytes() + struct.pack("<Q", n_no_coor)
        n_refs = struct.pack("<i", len(self._names))
        if self.suffix == ".bai":
            return b"BAI\1" + n_refs + body
        data = b"CSI\1" + struct.pack("<iii", _WINDOW_BITS, self._levels, 0) + n_refs + body
        return compress_blocks(memoryview(data), deflater(_CSI_DEFLATE_LEVEL)) + EOF_BLOCK

    def _virtual(self, offsets: np.ndarray, block_offsets: np.ndarray) -> np.ndarray:
        """Return the virtual offsets of offsets in the uncompressed records."""
        block, within = np.divmod(offsets, BLOCK_BYTES)
        inside = block_offsets[block] << 16 | within
        return np.where(offsets == self._n_bytes, block_offsets[-1] << 16, inside)


def _max_length(levels: int) -> int:
    """Return the bases of a contig that an index with some levels above the windows can hold."""
    return 1 << (_WINDOW_BITS + _LEVEL_BITS * levels)


_FIRST_BIN = np.array([(8**level - 1) // 7 for level in range(_N_LEVELS + 1)])
"""Number of the first bin of each level; the largest bin is level 0 here."""


def _offsets_of(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


class _BinTree:
    """All bins of all contigs up to the last window with a record, numbered one after another.

    The numbers (*slots*) ascend by contig, then by level, then by place.
    """

    def __init__(self, levels: int, n_contigs: int, windows: np.ndarray) -> None:
        self.levels = levels
        self.n_windows = np.zeros(n_contigs, np.int64)  # of each contig
        np.maximum.at(self.n_windows, windows[:, 0], windows[:, 2] + 1)
        self.window_offsets = _offsets_of(self.n_windows)
        shifts = _LEVEL_BITS * np.arange(levels + 1)
        sizes = ((self.n_windows[:, None] - 1) >> shifts) + 1  # 0 for a contig without records
        self._slot_offsets = _offsets_of(sizes.ravel())
        self.n_slots = int(self._slot_offsets[-1])

    def slots(self, ref: np.ndarray, level: np.ndarray | int, number: np.ndarray) -> np.ndarray:
        """Return the slots of bins, given by their numbers within their levels."""
        return self._slot_offsets[ref * (self.levels + 1) + level] + number

    def bins(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return contig, level and number in the level of slots."""
        row = np.searchsorted(self._slot_offsets, slots, side="right") - 1
        ref, level = np.divmod(row, self.levels + 1)
        return ref, level, slots - self._slot_offsets[row]

    def first_records(self, windows: np.ndarray) -> np.ndarray:
        """Return the start of the first record in or behind each window; contigs are joined."""
        n = windows[:, 2] - windows[:, 1] + 1
        begin = self.window_offsets[windows[:, 0]] + windows[:, 1] - _offsets_of(n)[:-1]
        starts = np.full(self.window_offsets[-1], _UNSET)
        np.minimum.at(starts, np.repeat(begin, n) + np.arange(n.sum()), np.repeat(windows[:, 3], n))
        # Records are sorted, so the starts ascend, and each contig ends with a window that has one.
        return np.minimum.accumulate(starts[::-1])[::-1]


def _joined_bins(
    chunks: np.ndarray, tree: _BinTree, virtual: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the chunks of an index, sorted by bin and start, as slots, starts and ends.

    Bins that take little of the file are joined with their parent, if it has records.

    Parameters
    ----------
    chunks
        Table of an IndexPart, for the whole file.
    virtual
        Virtual offsets of their starts and ends.
    """
    code = chunks[:, 0]
    ref, level = code >> _REF_AT, code >> _LEVEL_AT & (1 << (_REF_AT - _LEVEL_AT)) - 1
    slots = tree.slots(ref, level, code & (1 << _LEVEL_AT) - 1)
    start = np.full(tree.n_slots, _UNSET)
    end = np.full(tree.n_slots, -1)
    np.minimum.at(start, slots, virtual[:, 0] >> 16)
    np.maximum.at(end, slots, virtual[:, 1] >> 16)
    used = np.flatnonzero(end >= 0)
    ref, level, number = tree.bins(used)
    joined = np.arange(tree.n_slots)
    for lower in range(tree.levels):
        at = level == lower
        bins = used[at]
        parents = tree.slots(ref[at], lower + 1, number[at] >> _LEVEL_BITS)
        joins = (end[parents] >= 0) & (end[bins] - start[bins] < _SMALL_BIN)
        bins, parents = bins[joins], parents[joins]
        joined[bins] = parents
        np.minimum.at(start, parents, start[bins])
        np.maximum.at(end, parents, end[bins])
    for lower in reversed(range(tree.levels)):
        bins = used[level == lower]
        joined[bins] = joined[joined[bins]]
    slots = joined[slots]
    order = np.argsort(slots, kind="stable")
    slots, starts, ends = slots[order], chunks[order, 1], chunks[order, 2]
    n = _join_chunks(slots, starts, ends)
    return slots[:n], starts[:n], ends[:n]


class _Words:
    """The contigs of an index as the 32-bit words of the file.

    Parameters
    ----------
    tree
        The bins of the contigs.
    slots
        Slot of each chunk, ascending.
    is_csi
        True for CSI, False for BAI.
    """

    def __init__(self, tree: _BinTree, slots: np.ndarray, is_csi: bool) -> None:
        self._tree = tree
        self._is_csi = is_csi
        self._head = 4 if is_csi else 2  # words of a bin before its chunks
        self._bins, first, n_chunks = np.unique(slots, return_index=True, return_counts=True)
        ref, level, number = tree.bins(self._bins)
        bin_words = _offsets_of(self._head + 4 * n_chunks)
        n_contigs = len(tree.n_windows)
        first_bins = np.searchsorted(ref, np.arange(n_contigs + 1))  # of each contig
        n_bins = np.diff(first_bins)
        self._count_words = np.where(n_bins > 0, self._head + 8, 0)  # in a bin of their own
        linear_words = np.zeros_like(n_bins) if is_csi else 1 + 2 * tree.n_windows
        sizes = 1 + np.diff(bin_words[first_bins]) + self._count_words + linear_words
        contig_at = _offsets_of(sizes)
        self._words = np.zeros(contig_at[-1], np.uint32)
        self._words[contig_at[:-1]] = n_bins + (n_bins > 0)
        self._linear_at = contig_at[1:] - linear_words
        self._counts_at = self._linear_at - self._count_words
        # Contigs are apart by more words than those of their bins.
        bin_at = bin_words[:-1] + (contig_at[:-1] + 1 - bin_words[first_bins[:-1]])[ref]
        self._words[bin_at] = _FIRST_BIN[tree.levels - level] + number
        self._words[bin_at + self._head - 1] = n_chunks
        self._bin_at = bin_at
        self._bottom = tree.window_offsets[ref] + (number << _LEVEL_BITS * level)
        within = np.arange(len(slots)) - np.repeat(first, n_chunks)
        self._chunk_at = np.repeat(bin_at, n_chunks) + self._head + 4 * within

    def _put(self, at: np.ndarray, values: np.ndarray) -> None:
        """Write 64-bit numbers."""
        self._words[at] = values & 0xFFFFFFFF
        self._words[at + 1] = values >> 32

    def put_chunks(self, virtual: np.ndarray) -> None:
        """Write the virtual offsets of the chunks: int64, shape (n, 2)."""
        self._put(self._chunk_at, virtual[:, 0])
        self._put(self._chunk_at + 2, virtual[:, 1])

    def put_linear(self, virtual: np.ndarray) -> None:
        """Write the virtual offset of the first record in or behind each window."""
        if self._is_csi:
            self._put(self._bin_at + 1, virtual[self._bottom])
            return
        n_windows = self._tree.n_windows
        self._words[self._linear_at] = n_windows
        first = np.repeat(self._linear_at + 1 - 2 * self._tree.window_offsets[:-1], n_windows)
        self._put(first + 2 * np.arange(len(virtual)), virtual)

    def put_counts(self, contigs: np.ndarray, virtual: np.ndarray) -> None:
        """Write the range and number of each contig's records, in a bin beyond all others.

        Parameters
        ----------
        contigs
            Table of an IndexPart, for the whole file, without the records that have no place.
        virtual
            Virtual offsets of their starts and ends.
        """
        ref = contigs[:, 0]
        numbers = np.zeros((len(self._counts_at), 4), np.int64)
        numbers[:, 0] = _UNSET
        np.minimum.at(numbers[:, 0], ref, virtual[:, 0])
        np.maximum.at(numbers[:, 1], ref, virtual[:, 1])
        np.add.at(numbers[:, 2], ref, contigs[:, 3])
        np.add.at(numbers[:, 3], ref, contigs[:, 4])
        present = np.flatnonzero(self._count_words)
        at = self._counts_at[present]
        self._words[at] = _FIRST_BIN[self._tree.levels + 1] + 1
        self._words[at + self._head - 1] = 2
        for column in range(4):
            self._put(at + self._head + 2 * column, numbers[present, column])

    def to_bytes(self) -> bytes:
        """Return the bytes of the contigs, little-endian."""
        return self._words.astype("<u4").tobytes()
