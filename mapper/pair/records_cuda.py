"""CUDA kernels from alignments to BAM records: placement, mapping qualities, records, their bytes.

Placement and records take one thread for each pair or read, with the text of the CPU's loops
(:mod:`mapper.pair.placement`, :mod:`mapper.pair.records`); the few with many alignments, for which
the others would have to wait, are placed by a warp each. Operations and tags of unknown length go
to rooms that are large enough for any; then a warp writes each record's bytes to their place. Names
and qualities are only read here: they need not come back to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mapper.batch import (
    IS_MAPPED,
    IS_PROPER,
    IS_RECORDED,
    IS_SURE,
    EncodedBatch,
    ReadBatch,
)
from mapper.batch_ops import join_offsets
from mapper.cuda.api import cuda, kernel
from mapper.cuda.launch import upload_in_place
from mapper.cuda.memory import Workspace
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import columns, offsets_of, threads_for
from mapper.dna import COMPLEMENT
from mapper.extend.cuda import DeviceAlignments
from mapper.io.bam_writer import (
    FIXED_BYTES,
    NIBBLE_OF_CODE,
    base_bounds,
    check_names,
    put_fixed,
    record_bytes,
    reference_span,
)
from mapper.jit.accelerate import core
from mapper.jit.lanes import THREAD_LANE
from mapper.jit.simd import put32
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.placement import (
    SURE_MAPQ,
    BaseWeights,
    PlacementBatch,
    PlacingParams,
    PlacingSpace,
    RankedAlignments,
    base_weights,
    place_template,
    placing_params,
    rank_read,
)
from mapper.pair.records import (
    CIGAR_EXTRA,
    CLIPS,
    FIELD_TYPES,
    NO_ANCHORS,
    Fields,
    Names,
    mate_quality,
    next_turn,
    put_fields,
    put_tags,
    tag_room,
)
from mapper.params import MapParams
from mapper.sam_flags import NOT_PRIMARY, REVERSE
from mapper.seed.cuda import DeviceReads, DeviceSeeds


class ReadTexts(NamedTuple):
    """The columns of a ReadBatch that only records need, on the device."""

    quals: Any  # uint8
    names: Any  # uint8
    name_offsets: Any  # int64 (n_reads + 1,)


class RecordPlan(NamedTuple):
    """What is known of each read before its records are made."""

    n_records: Any  # int32
    op_room: Any  # int32: an upper bound of the operations of all of its records
    tag_room: Any  # int64: of the bytes of their tags
    mate_score: Any  # int32: the sum that its mate's records have in ms
    state: Any  # uint8: of EncodedBatch


class Rooms(NamedTuple):
    """Where the records of each read, their operations and tags begin; and the end of all."""

    record: Any  # int64 (n_reads + 1,)
    op: Any
    tag: Any


class Records(NamedTuple):
    """Records before they are bytes. An item of `fields` ends where its ``*_offsets`` say."""

    fields: Fields
    op_start: Any  # int64 (n_records,)
    tag_start: Any  # int64
    n_bytes: Any  # int64
    cigar_ops: Any  # uint32
    tags: Any  # uint8


FEW_PLACED = 24
"""Alignments of a pair or single read that one thread places; a warp does more."""

PLACING_WARPS = 4096
"""Warps that take the others in turn; the device holds so many at a time."""


@core
def _rank_and_place(read, paired, reads, texts, seeds, alignments, rankings, weights, settings,
                    hidden, space, placements, lanes):  # fmt: skip
    """Rank the alignments of the pair or single read that begins with `read`, and place it."""
    ranked, plain, doubted = rankings
    for mate in range(2 if paired else 1):
        doubted[read + mate] = rank_read(
            reads.base_offsets, texts.quals, alignments, read + mate, weights, plain.score,
            ranked.score, lanes,
        )  # fmt: skip
    first = alignments.alignment_offsets[read]
    own = PlacingSpace(
        space.values[:, first:], space.plain_values[:, first:], space.alone[first:],
        space.plain_mapq[first:],
    )  # fmt: skip
    place_template(
        texts.names, texts.name_offsets, reads.base_offsets, seeds, alignments, rankings, read,
        paired, settings, hidden, own, placements, lanes,
    )  # fmt: skip


@kernel(128)
def _place_templates(n_templates, paired, reads, texts, seeds, alignments, rankings, weights,
                     settings, hidden, space, placements, listed, n_listed):  # fmt: skip
    """Place a pair or a single read a thread; list those with many alignments."""
    template = cuda.grid(1)
    if template >= n_templates:
        return
    step = 2 if paired else 1
    read = template * step
    offsets = alignments.alignment_offsets
    if offsets[read + step] - offsets[read] > FEW_PLACED:
        listed[cuda.atomic.add(n_listed, 0, 1)] = read
        return
    _rank_and_place(
        read, paired, reads, texts, seeds, alignments, rankings, weights, settings, hidden, space,
        placements, THREAD_LANE,
    )  # fmt: skip


@kernel(128)
def _place_listed(n_warps, paired, reads, texts, seeds, alignments, rankings, weights, settings,
                  hidden, space, placements, listed, n_listed):  # fmt: skip
    """Place the listed pairs or single reads, one a warp at a time."""
    thread = cuda.grid(1)
    warp = thread // WARP
    if warp >= n_warps:
        return
    lanes = WarpLanes(thread % WARP, WARP)
    for item in range(warp, n_listed[0], n_warps):
        _rank_and_place(
            listed[item], paired, reads, texts, seeds, alignments, rankings, weights, settings,
            hidden, space, placements, lanes,
        )  # fmt: skip


@core
def _state_of(placements, read):
    """Return the bits of EncodedBatch.state for a read."""
    primary = placements.primary[read]
    state = 0
    if placements.proper[read]:
        state |= IS_PROPER
    if primary >= 0:
        state |= IS_MAPPED
        if placements.mapq[primary] >= SURE_MAPQ:
            state |= IS_SURE
    return state


@kernel(128)
def _measure_records(n_reads, paired, reads, texts, alignments, placements, n_group, longest_name,
                     params, plan, most_ops):  # fmt: skip
    """Count the records of a read a thread, and bound the room that they need.

    `most_ops`, of one item, is raised to the most operations of an alignment.
    """
    read = cuda.grid(1)
    if read >= n_reads:
        return
    first, end = alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1]
    mate_primary = placements.primary[read ^ 1] if paired else np.int64(-1)
    n_records, op_room, room = 0, np.int64(0), np.int64(0)
    turn = np.int64(first - 1)
    while turn < end:
        this = placements.primary[read] if turn < first else turn
        if this >= 0:
            op_room += alignments.cigar_offsets[this + 1] - alignments.cigar_offsets[this] + CLIPS
        room += tag_room(
            reads.base_offsets, alignments, placements.role, read, this, mate_primary, n_group,
            longest_name, params,
        )  # fmt: skip
        n_records += 1
        turn = next_turn(placements.role, turn, end, params.all_alignments)
    most = np.int64(0)
    for i in range(first, end):
        most = max(most, alignments.cigar_offsets[i + 1] - alignments.cigar_offsets[i])
    cuda.atomic.max(most_ops, 0, most)
    score = np.int64(0)
    for i in range(reads.base_offsets[read], reads.base_offsets[read + 1]):
        score += mate_quality(texts.quals[i])
    plan.n_records[read] = n_records
    plan.op_room[read] = op_room
    plan.tag_room[read] = room
    plan.mate_score[read] = score
    plan.state[read] = _state_of(placements, read)


@kernel(128)
def _write_records(n_reads, n_threads, paired, reads, texts, alignments, placements, names,
                   text_planes, n_anchors, params, plan, rooms, cigars, cigar_room,
                   records):  # fmt: skip
    """Make the records of a read a thread."""
    thread = cuda.grid(1)
    if thread >= n_threads:
        return
    cigar = cigars[thread * cigar_room : (thread + 1) * cigar_room]
    fields = records.fields
    for read in range(thread, n_reads, n_threads):
        first, end = alignments.alignment_offsets[read], alignments.alignment_offsets[read + 1]
        row, n_ops, pos = rooms.record[read], rooms.op[read], rooms.tag[read]
        name_length = texts.name_offsets[read + 1] - texts.name_offsets[read]
        mate_score = np.int64(plan.mate_score[read ^ 1]) if paired else np.int64(0)
        n_primary = 0
        turn = np.int64(first - 1)
        while turn < end:
            this = placements.primary[read] if turn < first else turn
            records.op_start[row] = n_ops
            records.tag_start[row] = pos
            end_of_ops = put_fields(
                reads.base_offsets, alignments, placements, names, paired, read, this, params,
                cigar, fields, row, records.cigar_ops, n_ops,
            )  # fmt: skip
            end_of_tags = put_tags(
                reads.bases, reads.base_offsets, alignments, placements, names, text_planes, paired,
                n_anchors, mate_score, read, this, params, cigar, records.tags, pos,
            )  # fmt: skip
            fields.tag_offsets[row + 1] = end_of_tags
            n_bases = np.int64(fields.query_end[row]) - fields.query_start[row]
            records.n_bytes[row] = record_bytes(
                name_length, n_bases, end_of_ops - n_ops, end_of_tags - pos
            )
            n_primary += (fields.flag[row] & NOT_PRIMARY) == 0
            n_ops, pos = end_of_ops, end_of_tags
            row += 1
            turn = next_turn(placements.role, turn, end, params.all_alignments)
        as_planned = n_ops <= rooms.op[read + 1] and pos <= rooms.tag[read + 1]
        if n_primary == 1 and row == rooms.record[read + 1] and as_planned:
            plan.state[read] |= IS_RECORDED


@kernel(128)
def _find_bounds(n_bounds, ends, record_starts, byte_starts, bounds):
    """Find the record and the byte with which a batch begins, a thread each."""
    i = cuda.grid(1)
    if i < n_bounds:
        record = record_starts[ends[i]]
        bounds[2 * i] = record
        bounds[2 * i + 1] = byte_starts[record]


@core
def _copy_by_warp(out, at, source, start, n, lane):
    """Copy bytes; return the position after them."""
    for i in range(lane, n, WARP):
        out[at + i] = source[start + i]
    return at + n


@core
def _put_bases_by_warp(out, at, bases, start, end, reverse, lane):
    """Write two bases a byte, as :func:`mapper.io.bam_writer.put_bases`."""
    n = end - start
    for i in range(lane, (n + 1) >> 1, WARP):
        byte = np.int64(0)
        for half in range(2):
            j = 2 * i + half
            nibble = np.int64(0)
            if j < n:
                code = bases[start + j]
                if reverse:
                    code = COMPLEMENT[bases[end - 1 - j]]
                nibble = np.int64(NIBBLE_OF_CODE[code])
            byte = byte << 4 | nibble
        out[at + i] = byte
    return at + ((n + 1) >> 1)


@kernel(128)
def _encode_records(n_records, reads, texts, records, byte_starts, out):
    """Write the bytes of a record a warp."""
    thread = cuda.grid(1)
    r, lane = thread // WARP, thread % WARP
    if r >= n_records:
        return
    fields = records.fields
    read = fields.read[r]
    reverse = (fields.flag[r] & REVERSE) != 0
    start, end = base_bounds(
        reads.base_offsets, read, fields.query_start[r], fields.query_end[r], reverse
    )
    name_start = texts.name_offsets[read]
    name_length = texts.name_offsets[read + 1] - name_start
    op_start, op_end = records.op_start[r], fields.cigar_offsets[r + 1]
    tag_start, tag_end = records.tag_start[r], fields.tag_offsets[r + 1]
    at = byte_starts[r]
    if lane == 0:
        span = reference_span(records.cigar_ops, op_start, op_end)
        put_fixed(
            out, at, byte_starts[r + 1] - at, fields, r, name_length, end - start,
            op_end - op_start, span,
        )  # fmt: skip
    at += FIXED_BYTES
    if name_length == 0 and lane == 0:
        out[at] = 42  # "*"
    at = _copy_by_warp(out, at, texts.names, name_start, name_length, lane)
    if name_length == 0:
        at += 1
    if lane == 0:
        out[at] = 0
    at += 1
    for i in range(lane, op_end - op_start, WARP):
        put32(out, at + 4 * i, np.int64(records.cigar_ops[op_start + i]))
    at += 4 * (op_end - op_start)
    at = _put_bases_by_warp(out, at, reads.bases, start, end, reverse, lane)
    if reverse:
        for i in range(lane, end - start, WARP):
            out[at + i] = texts.quals[end - 1 - i]
        at += end - start
    else:
        at = _copy_by_warp(out, at, texts.quals, start, end - start, lane)
    _copy_by_warp(out, at, records.tags, tag_start, tag_end - tag_start, lane)


PLACEMENT_TYPES = ("i8", "u1", "u1", "i8", "u1", "i4", "i8")
"""Of the columns of a PlacementBatch; flags are bytes here."""


def _upload_settings(space: Workspace, settings: PlacingParams) -> PlacingParams:
    model: InsertSizeModel = settings.model
    return settings._replace(
        model=model._replace(penalty=space.upload("place.penalty", model.penalty)),
        rivals_cost=space.upload("place.rivals", settings.rivals_cost),
        groups=space.upload("place.groups", settings.groups),
    )


def _place_reads(
    space: Workspace, paired: bool, reads: DeviceReads, texts: ReadTexts, seeds: DeviceSeeds,
    found: DeviceAlignments, settings: PlacingParams, weights: BaseWeights,
) -> PlacementBatch:  # fmt: skip
    """Queue the placement of all reads; return it on the device."""
    alignments, n_rows = found.batch, found.n_rows
    n_reads = len(reads.base_offsets) - 1
    rankings = RankedAlignments(
        alignments._replace(score=space.device("place.ranked", n_rows, np.int32)),
        alignments._replace(score=space.device("place.plain", n_rows, np.int32)),
        space.device("place.doubted", n_reads, np.uint8),
    )
    has_groups = len(settings.groups) > 0
    placed: dict[str, Any] = {}
    for name, kind in zip(PlacementBatch._fields, PLACEMENT_TYPES, strict=True):
        n = n_reads if name in ("primary", "proper") else n_rows
        if name == "rival" and not has_groups:
            placed[name] = placed["head"]
        else:
            placed[name] = space.device(f"place.{name}", n, np.dtype(kind))
    placements = PlacementBatch(**placed)
    workspace = PlacingSpace(
        space.device("place.values", 2 * n_rows, np.int64).reshape(2, n_rows),
        space.device("place.plain_values", 2 * n_rows, np.int64).reshape(2, n_rows),
        space.device("place.alone", n_rows, np.int64),
        space.device("place.plain_mapq", n_rows, np.uint8),
    )
    hidden = space.device("place.hidden", n_rows if has_groups else 0, np.uint8)
    n_templates = n_reads // 2 if paired else n_reads
    weights = weights._replace(
        refunds=space.upload("place.refunds", weights.refunds),
        discounts=space.upload("place.discounts", weights.discounts),
    )
    both = (
        paired, reads, texts, seeds.per_read, alignments, rankings, weights,
        _upload_settings(space, settings), hidden, workspace, placements,
        space.device("place.listed", n_templates, np.int32),
        space.upload("place.n_listed", np.zeros(1, np.int64)),
    )  # fmt: skip
    _place_templates.launch(n_templates, space.stream, n_templates, *both)
    n_warps = min(n_templates, PLACING_WARPS)
    _place_listed.launch(WARP * n_warps, space.stream, n_warps, *both)
    return placements


def upload_read_texts(space: Workspace, batches: Sequence[ReadBatch]) -> ReadTexts:
    """Copy to the device what only records need of reads; see :func:`upload_reads`.

    Raises
    ------
    OutputError
        If a name is longer than BAM can hold.
    """
    for batch in batches:
        check_names(batch)
    return ReadTexts(
        upload_in_place(space, "quals", [batch.quals for batch in batches]),
        upload_in_place(space, "names", [batch.names for batch in batches]),
        space.upload("name_offsets", join_offsets([batch.name_offsets for batch in batches])),
    )


def encode_on_device(
    space: Workspace, text_planes: Any, sizes: Sequence[int], paired: bool, reads: DeviceReads,
    texts: ReadTexts, seeds: DeviceSeeds, found: DeviceAlignments, model: InsertSizeModel,
    params: MapParams, text_len: int, groups: np.ndarray, names: Names,
) -> list[EncodedBatch]:  # fmt: skip
    """Place reads and return their BAM records, as the host's stages would.

    Parameters
    ----------
    text_planes, names
        On the device.
    sizes
        Reads of each batch.
    reads, texts
        Short reads without tags of their own, on the device.
    found
        Their alignments.
    text_len, groups
        See :func:`mapper.pair.placement.place_reads`.

    Returns
    -------
    The records of each batch, in page-locked memory of the caller's. Waits for the stream.
    """
    stream = space.stream
    n_reads = len(reads.base_offsets) - 1
    settings = placing_params(model, params.pair, params.extend, text_len, groups)
    placements = _place_reads(
        space, paired, reads, texts, seeds, found, settings, base_weights(params.extend)
    )
    plan = columns(space, "records.read", RecordPlan, ("i4", "i4", "i8", "i4", "u1"), n_reads)
    alignments = found.batch
    most_ops = space.upload("records.most_ops", np.zeros(1, np.int64))
    _measure_records.launch(
        n_reads, stream, n_reads, paired, reads, texts, alignments, placements,
        len(names.read_group), names.longest, params.record, plan, most_ops,
    )  # fmt: skip
    rooms = Rooms(
        offsets_of(space, "records.starts", plan.n_records, n_reads),
        offsets_of(space, "records.ops", plan.op_room, n_reads),
        offsets_of(space, "records.tags", plan.tag_room, n_reads),
    )
    ends = [
        space.download(f"records.end {i}", column)
        for i, column in enumerate([*(room[n_reads:] for room in rooms), most_ops])
    ]
    space.synchronize()
    n_records, n_ops, n_tag_bytes, longest_cigar = (int(end[0]) for end in ends)
    fields = Fields(
        *(
            space.device(f"records.{name}", n_records + name.endswith("_offsets"), np.dtype(kind))
            for name, kind in zip(Fields._fields, FIELD_TYPES, strict=True)
        )
    )
    records = Records(
        fields,
        space.device("records.op_start", n_records, np.int64),
        space.device("records.tag_start", n_records, np.int64),
        space.device("records.n_bytes", n_records, np.int64),
        space.device("records.cigar_ops", n_ops, np.uint32),
        space.device("records.tag_bytes", n_tag_bytes, np.uint8),
    )
    room = longest_cigar + CIGAR_EXTRA
    n_threads = threads_for(n_reads, 4 * room)
    cigars = space.device("records.cigars", n_threads * room, np.uint32)
    no_anchors = space.upload("records.n_anchors", NO_ANCHORS)
    _write_records.launch(
        n_threads, stream, n_reads, n_threads, paired, reads, texts, alignments, placements, names,
        text_planes, no_anchors, params.record, plan, rooms, cigars, room, records,
    )  # fmt: skip
    byte_starts = offsets_of(space, "records.bytes", records.n_bytes, n_records)
    ends_of_batches = np.cumsum([0, *sizes])
    bounds = space.device("records.bounds", 2 * len(ends_of_batches), np.int64)
    _find_bounds.launch(
        len(ends_of_batches), stream, len(ends_of_batches),
        space.upload("records.batches", ends_of_batches), rooms.record, byte_starts, bounds,
    )  # fmt: skip
    first_rows = space.download("records.bounds", bounds)  # of records, and their bytes
    space.synchronize()
    first_rows = first_rows.reshape(-1, 2).copy()
    out = space.device("records.out", int(first_rows[-1, 1]), np.uint8)
    _encode_records.launch(
        n_records * WARP, stream, n_records, reads, texts, records, byte_starts, out
    )
    data, state = space.download_results("records", [out, plan.state])
    space.synchronize()
    rows, bytes_before = first_rows.T
    return [
        EncodedBatch(data[byte:end], state[read:end_read], int(end_row - row))
        for (byte, end), (read, end_read), (row, end_row) in zip(
            pairwise(bytes_before), pairwise(ends_of_batches), pairwise(rows), strict=True
        )
    ]
