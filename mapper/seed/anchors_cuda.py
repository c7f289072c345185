"""CUDA driver of seeding long reads: maximal exact matches, as on the CPU.

A thread searches one window on one strand; then one locates its rows; then one takes a few windows
in a row, a *segment*, and makes anchors of their rows, so that a match that is found again by the
next window is looked at once. Segments lie in the order of the reads, and so do their anchors. At
last a warp sorts the anchors of a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import AnchorBatch, PackedReads, ReadBatch
from mapper.batch_ops import join_offsets, offsets_of
from mapper.cuda.api import cuda, kernel
from mapper.cuda.launch import upload_in_place
from mapper.cuda.memory import Workspace
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import columns
from mapper.cuda.worklist import offsets_of as offsets_there
from mapper.dna import n_words, pack_strand
from mapper.index.fm import FMIndex, RowsInWork, locate
from mapper.index.reference import find_contig as row_of  # the last row that starts no later
from mapper.params import AnchorParams
from mapper.seed.cpu import Stretches
from mapper.seed.cuda import DeviceReads
from mapper.seed.maximal import (
    AnchorColumns,
    WindowScratch,
    add_anchors,
    anchor_key,
    anchor_of,
    drop_duplicates,
    search_window,
    sort_together,
    step_of,
)
from mapper.seed.pack import packed_offsets

SEGMENT = 8
"""Windows whose anchors a thread makes."""

_FOUND = ("i4", "i4", "u1", "i8", "i8", "i4")
_ANCHORS = ("u1", "i4", "i8", "i4")


class AnchorKeys(NamedTuple):
    """Anchors as they are sorted."""

    key: Any  # int64: mapper.seed.maximal.anchor_key
    length: Any  # int32


_KEYS = ("i8", "i4")


class Segments(NamedTuple):
    """The stretches of all reads on the device, and their windows and segments."""

    read: Any  # int32 (n_stretches,)
    start: Any  # int64, on the bases of the batch
    end: Any  # int64
    first_window: Any  # int64: of each stretch
    first_segment: Any  # int64


# --- reads ---


@kernel(128)
def _pack_words(reads, n_rows):
    """Pack 64 bases of one strand a thread: reads are long, and few."""
    row = cuda.grid(1)
    if row >= n_rows:
        return
    read = row_of(reads.word_offsets[:-1], row)
    start, end = reads.base_offsets[read], reads.base_offsets[read + 1]
    word = row - reads.word_offsets[read]
    if word < n_words(end - start):
        first = start + 64 * word
        pack_strand(reads.bases, first, min(first + 64, end), 0, reads.planes, row)
    else:
        last = end - 64 * (word - n_words(end - start))
        pack_strand(reads.bases, max(last - 64, start), last, 1, reads.planes, row)


def upload_long_reads(space: Workspace, batches: Sequence[ReadBatch]) -> DeviceReads:
    """Copy long reads to the device and pack them: :func:`mapper.seed.cuda.upload_reads`."""
    base_offsets = join_offsets([reads.base_offsets for reads in batches])
    word_offsets = packed_offsets(base_offsets)
    n_rows = int(word_offsets[-1])
    reads = DeviceReads(
        bases=upload_in_place(space, "bases", [reads.bases for reads in batches]),
        base_offsets=space.upload("base_offsets", base_offsets),
        planes=space.device("planes", 3 * (n_rows + 1), np.uint64).reshape(n_rows + 1, 3),
        word_offsets=space.upload("word_offsets", word_offsets),
    )
    _pack_words.launch(n_rows, space.stream, reads, n_rows)
    return reads


def download_long_packed(
    space: Workspace, reads: DeviceReads, batches: Sequence[ReadBatch]
) -> list[PackedReads]:
    """Queue the copy of the packed reads of each batch to the host, for the caller to keep.

    The row behind the last of a batch is not padding, but whatever follows.
    """
    n_rows = len(reads.planes)
    (flat,) = space.download_results("long packed", [reads.planes.reshape(3 * n_rows)])
    planes = flat.reshape(n_rows, 3)
    shares = []
    first = 0
    for batch in batches:
        word_offsets = packed_offsets(batch.base_offsets)
        end = first + int(word_offsets[-1])
        shares.append(PackedReads(planes[first : end + 1], word_offsets))
        first = end
    return shares


# --- windows ---


@kernel(128)
def _search_windows(fm, reads, segments, params, n_windows, found, count, frequent):
    """Search one window on one strand a thread."""
    row = cuda.grid(1)
    if row >= 2 * n_windows:
        return
    window, strand = row >> 1, row & 1
    stretch = row_of(segments.first_window, window)
    clean, clean_end = segments.start[stretch], segments.end[stretch]
    read = segments.read[stretch]
    step = step_of(reads.base_offsets[read + 1] - reads.base_offsets[read], params)
    start = min(
        clean + (window - segments.first_window[stretch]) * step, clean_end - params.seed_len
    )
    sa_lo, sa_hi, length = search_window(fm, reads.bases, clean, clean_end, start, strand, params)
    if sa_hi - sa_lo > params.max_occ:
        sa_hi = sa_lo
        cuda.atomic.add(frequent, read, np.int32(step))
    found.start[row] = start
    found.length[row] = length
    found.strand[row] = strand
    found.sa_lo[row] = sa_lo
    found.sa_hi[row] = max(sa_lo, sa_hi)
    count[row] = max(np.int64(0), sa_hi - sa_lo)


@kernel(128)
def _locate_rows(fm, found, offsets, n_rows, places):
    """Locate the rows of one window on one strand a thread."""
    row = cuda.grid(1)
    if row < n_rows:
        at = offsets[row]
        for sa_row in range(found.sa_lo[row], found.sa_hi[row]):
            places[at] = locate(fm, sa_row)
            at += 1


@kernel(128)
def _make_anchors(fm, reads, segments, params, n_windows, n_segments, found, offsets, places,
                  anchors, count):  # fmt: skip
    """Make the anchors of one segment a thread, from the place of its first row on."""
    segment = cuda.grid(1)
    if segment >= n_segments:
        return
    stretch = row_of(segments.first_segment, segment)
    window = segments.first_window[stretch]
    window += SEGMENT * (segment - segments.first_segment[stretch])
    end = n_windows
    if stretch + 1 < len(segments.first_window):
        end = segments.first_window[stretch + 1]
    end = min(end, window + SEGMENT)
    read = segments.read[stretch]
    first, last = 2 * window, 2 * end
    mine = WindowScratch(
        found.start[first:last], found.length[first:last], found.strand[first:last],
        found.sa_lo[first:last], found.sa_hi[first:last], found.order[:0],
    )  # fmt: skip
    begin = offsets[first]
    n_anchors = add_anchors(
        fm, reads.planes, reads.word_offsets[read], reads.base_offsets[read],
        reads.base_offsets[read + 1], last - first, params, mine,
        RowsInWork(places[begin : offsets[last]], found.order[:0]), anchors, begin,
    )  # fmt: skip
    count[segment] = n_anchors - begin


@kernel(128)
def _gather_keys(segments, n_segments, offsets, found, anchor_offsets, out):
    """Write the keys of the anchors of one segment a thread to their rows among all."""
    segment = cuda.grid(1)
    if segment < n_segments:
        stretch = row_of(segments.first_segment, segment)
        window = segments.first_window[stretch]
        window += SEGMENT * (segment - segments.first_segment[stretch])
        start = offsets[2 * window] - anchor_offsets[segment]
        for row in range(anchor_offsets[segment], anchor_offsets[segment + 1]):
            i = start + row
            out.key[row] = anchor_key(
                found.strand[i], found.text_pos[i], found.query_start[i], found.length[i]
            )
            out.length[row] = found.length[i]


@kernel(WARP)
def sort_anchors(offsets, keys, count):
    """Sort the anchors of one read a warp, and drop duplicates."""
    read = cuda.blockIdx.x
    first, end = offsets[read], offsets[read + 1]
    key, length = keys.key[first:end], keys.length[first:end]
    lanes = WarpLanes(cuda.threadIdx.x, WARP)
    sort_together(key, length, end - first, lanes)
    n_kept = drop_duplicates(key, length, end - first, lanes)
    if lanes.lane == 0:
        count[read] = n_kept


@kernel(WARP)
def write_anchors(found_offsets, keys, offsets, out):
    """Write the sorted anchors of one read a warp."""
    read = cuda.blockIdx.x
    start = found_offsets[read] - offsets[read]
    for row in range(offsets[read] + cuda.threadIdx.x, offsets[read + 1], WARP):
        length = keys.length[start + row]
        strand, query_start, text_pos = anchor_of(keys.key[start + row], length)
        out.strand[row] = strand
        out.query_start[row] = query_start
        out.text_pos[row] = text_pos
        out.length[row] = length


@kernel(128)
def _read_rows(offsets, rows, out):
    """Copy an offset a thread."""
    i = cuda.grid(1)
    if i < len(rows):
        out[i] = offsets[rows[i]]


def _upload_segments(
    space: Workspace, batches: Sequence[ReadBatch], stretches: Sequence[Stretches]
) -> tuple[Segments, np.ndarray, int, int]:
    """Copy the stretches of joined batches to the device.

    Returns
    -------
    The segments; the first segment of each read, and their number; the number of windows.
    """
    bases = np.cumsum([0, *(len(reads.bases) for reads in batches)])
    reads = np.cumsum([0, *(reads.n_reads for reads in batches)])
    read = np.concatenate([s.read + n for s, n in zip(stretches, reads, strict=False)])
    first_window = offsets_of(np.concatenate([s.n_windows for s in stretches]))
    n_segments = (np.diff(first_window) + SEGMENT - 1) // SEGMENT
    first_segment = offsets_of(n_segments)
    segments = Segments(
        space.upload("stretch.read", read.astype(np.int32)),
        space.upload_joined(
            "stretch.start", [s.start + n for s, n in zip(stretches, bases, strict=False)]
        ),
        space.upload_joined(
            "stretch.end", [s.end + n for s, n in zip(stretches, bases, strict=False)]
        ),
        space.upload("stretch.first_window", first_window[:-1]),
        space.upload("stretch.first_segment", first_segment[:-1]),
    )
    rows = first_segment[np.searchsorted(read, np.arange(reads[-1] + 1))]
    return segments, rows, int(first_segment[-1]), int(first_window[-1])


def find_anchors(
    space: Workspace, fm: FMIndex, reads: DeviceReads, batches: Sequence[ReadBatch],
    stretches: Sequence[Stretches], params: AnchorParams,
) -> AnchorBatch:  # fmt: skip
    """Find maximal exact matches of long reads: :func:`mapper.seed.cpu.find_anchors`.

    Parameters
    ----------
    fm
        With its arrays on the device.
    reads
        The reads of all `batches`, there; `stretches` are those of each batch.

    Returns
    -------
    The anchors of all reads, device arrays. Waits for the stream.
    """
    n_reads = len(reads.base_offsets) - 1
    segments, rows, n_segments, n_windows = _upload_segments(space, batches, stretches)
    n_rows = 2 * n_windows
    frequent = space.upload("anchor.frequent", np.zeros(n_reads, np.int32))
    found = columns(space, "anchor.window", WindowScratch, _FOUND, n_rows)
    count = space.device("anchor.count", n_rows, np.int32)
    _search_windows.launch(
        n_rows, space.stream, fm, reads, segments, params, n_windows, found, count, frequent
    )
    offsets = offsets_there(space, "anchor.offsets", count, n_rows)
    n_places = _last(space, offsets)
    places = space.device("anchor.places", n_places, np.int64)
    _locate_rows.launch(n_rows, space.stream, fm, found, offsets, n_rows, places)
    anchors = columns(space, "anchor.found", AnchorColumns, _ANCHORS, n_places)
    _make_anchors.launch(
        n_segments, space.stream, fm, reads, segments, params, n_windows, n_segments, found,
        offsets, places, anchors, count,
    )  # fmt: skip
    anchor_offsets = offsets_there(space, "anchor.rows", count, n_segments)
    keys = columns(space, "anchor.keys", AnchorKeys, _KEYS, _last(space, anchor_offsets))
    _gather_keys.launch(
        n_segments, space.stream, segments, n_segments, offsets, anchors, anchor_offsets, keys
    )
    found_offsets = space.device("anchor.found_offsets", n_reads + 1, np.int64)
    _read_rows.launch(
        n_reads + 1, space.stream, anchor_offsets, space.upload("anchor.first", rows), found_offsets
    )
    return _sort_anchors(space, found_offsets, keys, n_reads, frequent)


def _sort_anchors(
    space: Workspace, found_offsets: Any, keys: AnchorKeys, n_reads: int, frequent: Any
) -> AnchorBatch:
    """Sort the anchors of each read, without duplicates; waits for the stream."""
    count = space.device("anchor.distinct", n_reads, np.int32)
    sort_anchors.launch_blocks(n_reads, space.stream, found_offsets, keys, count)
    offsets = offsets_there(space, "anchor.sorted_offsets", count, n_reads)
    out = columns(space, "anchor.sorted", AnchorColumns, _ANCHORS, _last(space, offsets))
    write_anchors.launch_blocks(n_reads, space.stream, found_offsets, keys, offsets, out)
    return AnchorBatch._make((offsets, *out, frequent))


def _last(space: Workspace, offsets: Any) -> int:
    """Return the last of offsets on the device; waits for the stream."""
    last = space.download("anchor.last", offsets[len(offsets) - 1 :])
    space.synchronize()
    return int(last[0])
