"""CUDA driver of pieces of long reads: one warp a piece, whose lanes share the rows of a band.

Most pieces are short: their sequences and the differences of their band lie in shared memory, only
the origins of its cells do not. Pieces that do not fit are aligned once more with larger workspaces
in the device's memory, by fewer warps. Those that do not fit there either, and those whose sides
differ by a long gap, have no result: a core of the CPU is faster at a large band than a warp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mapper.cigar import base_at
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import Workspace, multiprocessors
from mapper.cuda.warp import WARP, WarpLanes
from mapper.cuda.worklist import PoolSize, columns, first_capacity, threads_for
from mapper.dna import n_words
from mapper.extend.piece_plan import NO_PIECES, DonePieces, PiecePlan, Pieces
from mapper.extend.pieces import PieceScratch
from mapper.extend.two_piece import PIECE_OK, PIECE_UNPROVEN, PieceSpace, extend_piece, fill_piece
from mapper.jit.accelerate import core
from mapper.jit.lanes import lane_max, lanes_meet
from mapper.params import LongParams, TwoPieceScoring
from mapper.seed.cuda import DeviceReads
from mapper.two_piece_band import BandSpace, difference_type

SMALL_LEN = 192
"""Bases of each side of a piece that is aligned in shared memory."""

SMALL_SYMBOLS = SMALL_LEN + 2 * 64 + 1
"""Rows and columns there: those of a band of 64 rows of an antidiagonal."""

SMALL_OPS = 256
"""Operations there."""

# Of arrays in shared memory, whose size must be a constant.
_BAND_SYMBOLS, _CODES, _DIFFERENCES = 2 * SMALL_SYMBOLS, 2 * SMALL_LEN, 6 * SMALL_SYMBOLS

SMALL_CELLS = 1 << 14
"""Bytes for the origins of a band, of a warp."""

RESIDENT = 12
"""Warps of a multiprocessor at a time: with more, numbers would go to local memory."""

WARPS_PER_MULTIPROCESSOR = 2 * RESIDENT
"""That take the pieces in turn."""

LARGE_LEN, LARGE_CELLS = 3000, 1 << 20
"""The same where workspaces are in the device's memory."""

LARGE_SYMBOLS = LARGE_LEN + 1024

OPS_AT_FIRST = 8
"""Operations of a piece for which there is memory in the first batch of a stream."""


class DoneColumns(NamedTuple):
    """What became of pieces, on the device; as of DonePieces."""

    start: Any  # int64
    count: Any  # int32
    on_query: Any  # int32
    on_text: Any  # int32


_DONE_COLUMNS = ("i8", "i4", "i4", "i4")


class Targets(NamedTuple):
    """Where results go."""

    done: DoneColumns
    pool: Any  # uint32: operations
    n_pool: Any  # int64 (1,): how many
    retry: Any  # int32: pieces that did not fit
    n_retry: Any  # int64 (1,): how many


class LargeSpace(NamedTuple):
    """Workspaces of warps, one behind the other."""

    symbols: Any  # uint8: two of a band and two of a piece
    differences: Any  # int8: six
    scores: Any  # int32
    ops: Any  # uint32
    cells: Any  # uint8


# --- kernels ---


@core
def _load(planes, word, start, n, codes, lanes):
    for i in range(lanes.lane, n, lanes.n_lanes):
        codes[i] = base_at(planes, word, start + i)


@core
def _align_piece(text_planes, reads, pieces, i, ends, z_drop, scoring, space, scratch, targets,
                 lanes):  # fmt: skip
    """Align one piece, if it fits; return True if it did. `ends` is None for a piece to be filled.

    Heads and tails of reads are extended, all other pieces filled.
    """
    n, m = np.int64(pieces.query_len[i]), np.int64(pieces.text_len[i])
    if n > len(scratch.query) or m > len(scratch.ref):
        return False
    read = pieces.read[i]
    word = reads.word_offsets[read]
    if pieces.strand[i]:
        word += n_words(reads.base_offsets[read + 1] - reads.base_offsets[read])
    _load(reads.planes, word, np.int64(pieces.query_start[i]), n, scratch.query, lanes)
    _load(text_planes, np.int64(0), pieces.text_start[i], m, scratch.ref, lanes)
    lanes_meet(lanes)
    on_query, on_text = n, m
    if ends is None:
        status, n_ops, _ = fill_piece(
            scratch.query, 0, n, scratch.ref, 0, m, scoring, space, scratch.ops, lanes
        )
    else:
        status, n_ops, _, on_query, on_text = extend_piece(
            scratch.query, 0, n, scratch.ref, 0, m, pieces.backward[i] != 0, z_drop,
            pieces.bonus[i], scoring, space, scratch.ops, lanes,
        )  # fmt: skip
    lanes_meet(lanes)  # the first lane has written the operations
    if status != PIECE_OK and status != PIECE_UNPROVEN:
        return False
    start = np.int64(-1)
    if lanes.lane == 0:
        start = cuda.atomic.add(targets.n_pool, 0, n_ops)
        targets.done.start[i] = start
        targets.done.count[i] = n_ops
        targets.done.on_query[i] = on_query
        targets.done.on_text[i] = on_text
    start = lane_max(start, lanes)
    if start + n_ops <= len(targets.pool):
        for j in range(lanes.lane, n_ops, lanes.n_lanes):
            targets.pool[start + j] = scratch.ops[j]
    lanes_meet(lanes)
    return True


@core
def _shared_space(cells):
    """Return the workspace of the block's only warp, in shared memory."""
    symbols = cuda.shared.array(_BAND_SYMBOLS, np.uint8)
    codes = cuda.shared.array(_CODES, np.uint8)
    differences = cuda.shared.array(_DIFFERENCES, np.int8)
    scores = cuda.shared.array(SMALL_SYMBOLS, np.int32)
    ops = cuda.shared.array(SMALL_OPS, np.uint32)
    size = SMALL_SYMBOLS
    band = BandSpace(
        symbols[:size], symbols[size:], differences[:size], differences[size : 2 * size],
        differences[2 * size : 3 * size], differences[3 * size : 4 * size],
        differences[4 * size : 5 * size], differences[5 * size :],
    )  # fmt: skip
    warp = cuda.blockIdx.x
    space = PieceSpace(band, scores, None, cells[warp * SMALL_CELLS : (warp + 1) * SMALL_CELLS])
    return space, PieceScratch(codes[:SMALL_LEN], codes[SMALL_LEN:], ops)


@core
def _large_space(spaces):
    """Return the workspace of the block's only warp, in the device's memory."""
    warp = np.int64(cuda.blockIdx.x)
    size, length = LARGE_SYMBOLS, LARGE_LEN
    symbols = spaces.symbols[warp * 2 * (size + length) : (warp + 1) * 2 * (size + length)]
    codes = symbols[2 * size :]
    differences = spaces.differences[warp * 6 * size : (warp + 1) * 6 * size]
    band = BandSpace(
        symbols[:size], symbols[size : 2 * size], differences[:size],
        differences[size : 2 * size], differences[2 * size : 3 * size],
        differences[3 * size : 4 * size], differences[4 * size : 5 * size],
        differences[5 * size :],
    )  # fmt: skip
    space = PieceSpace(
        band, spaces.scores[warp * size : (warp + 1) * size], None,
        spaces.cells[warp * LARGE_CELLS : (warp + 1) * LARGE_CELLS],
    )  # fmt: skip
    n_ops = 2 * LARGE_LEN + 4
    ops = spaces.ops[warp * n_ops : (warp + 1) * n_ops]
    return space, PieceScratch(codes[:length], codes[length:], ops)


@core
def _align_all(text_planes, reads, pieces, ends, z_drop, scoring, space, scratch, n_warps, targets):
    """Align all pieces, each by a warp; list those that do not fit."""
    lanes = WarpLanes(cuda.threadIdx.x, WARP)
    for i in range(cuda.blockIdx.x, len(pieces.read), n_warps):
        fits = _align_piece(
            text_planes, reads, pieces, i, ends, z_drop, scoring, space, scratch, targets, lanes
        )
        if not fits and lanes.lane == 0:
            targets.retry[cuda.atomic.add(targets.n_retry, 0, 1)] = i


@core
def _align_listed(text_planes, reads, pieces, ends, z_drop, scoring, spaces, n_warps, targets):
    """Align the listed pieces, each by a warp; pieces that do not fit have no result."""
    lanes = WarpLanes(cuda.threadIdx.x, WARP)
    space, scratch = _large_space(spaces)
    for item in range(cuda.blockIdx.x, targets.n_retry[0], n_warps):
        i = targets.retry[item]
        fits = _align_piece(
            text_planes, reads, pieces, i, ends, z_drop, scoring, space, scratch, targets, lanes
        )
        if not fits and lanes.lane == 0:
            targets.done.count[i] = -1


@kernel(WARP, blocks_per_sm=RESIDENT)
def fill_small(text_planes, reads, pieces, scoring, cells, n_warps, targets):
    """Fill pieces in shared memory."""
    space, scratch = _shared_space(cells)
    _align_all(text_planes, reads, pieces, None, 0, scoring, space, scratch, n_warps, targets)


@kernel(WARP, blocks_per_sm=RESIDENT)
def extend_small(text_planes, reads, pieces, z_drop, scoring, cells, n_warps, targets):
    """Extend into pieces in shared memory."""
    space, scratch = _shared_space(cells)
    _align_all(text_planes, reads, pieces, True, z_drop, scoring, space, scratch, n_warps, targets)


@kernel(WARP)
def fill_large(text_planes, reads, pieces, scoring, spaces, n_warps, targets):
    """Fill the pieces that did not fit shared memory."""
    _align_listed(text_planes, reads, pieces, None, 0, scoring, spaces, n_warps, targets)


@kernel(WARP)
def extend_large(text_planes, reads, pieces, z_drop, scoring, spaces, n_warps, targets):
    """Extend into the pieces that did not fit shared memory."""
    _align_listed(text_planes, reads, pieces, True, z_drop, scoring, spaces, n_warps, targets)


# --- driver ---


def align_pieces(
    space: Workspace, text_planes: Any, reads: DeviceReads, plans: Sequence[PiecePlan],
    n_reads: Sequence[int], params: LongParams,
) -> list[DonePieces]:  # fmt: skip
    """Align the planned pieces of batches that have been joined on the device.

    Parameters
    ----------
    text_planes
        Bit planes of the text, on the device.
    reads
        The reads of all batches there, of which each has `n_reads`.

    Returns
    -------
    What became of the pieces of each batch; its columns are views. Waits for the stream.
    """
    if difference_type(params.scoring) is not np.int8:
        return [NO_PIECES] * len(plans)
    fills, n_fills = _upload(space, "fill", [plan.fills for plan in plans], n_reads)
    ends, n_ends = _upload(space, "end", [plan.ends for plan in plans], n_reads)
    n_pieces = int(n_fills[-1] + n_ends[-1])
    pool_size = PoolSize(space, "piece.ops", first_capacity(n_pieces, OPS_AT_FIRST))
    while True:
        pool = space.device("piece.ops", pool_size.capacity, np.uint32)
        n_pool = space.upload("piece.n_ops", np.zeros(1, np.int64))
        filled = _run(space, "fill", text_planes, reads, fills, None, params.scoring, pool, n_pool)
        extended = _run(
            space, "end", text_planes, reads, ends, params.pieces.z_drop, params.scoring, pool,
            n_pool,
        )  # fmt: skip
        needed = space.download("piece.n_ops", n_pool)
        space.synchronize()
        n_ops = int(needed[0])
        if pool_size.suffices(n_ops):
            break
    host = space.download_results("pieces", [filled.start, filled.count, *extended, pool[:n_ops]])
    space.synchronize()
    shares = []
    for i, plan in enumerate(plans):
        fill, end = slice(*n_fills[i : i + 2]), slice(*n_ends[i : i + 2])
        columns = [column[rows] for column, rows in zip(host, 2 * [fill] + 4 * [end], strict=False)]
        shares.append(DonePieces._make((plan.fill_of, plan.end_of, *columns, host[-1])))
    return shares


def _upload(
    space: Workspace, name: str, parts: Sequence[Pieces], n_reads: Sequence[int]
) -> tuple[Pieces, np.ndarray]:
    """Copy the pieces of joined batches to the device; return the first row of each batch, too."""
    before = np.cumsum([0, *n_reads]).astype(np.int32)
    parts = [part._replace(read=part.read + n) for part, n in zip(parts, before, strict=False)]
    pieces = Pieces(
        *(
            space.upload_joined(f"{name}.{field}", columns)
            for field, columns in zip(Pieces._fields, zip(*parts, strict=True), strict=True)
        )
    )
    return pieces, np.cumsum([0, *(len(part.read) for part in parts)])


def _run(
    space: Workspace, name: str, text_planes: Any, reads: DeviceReads, pieces: Pieces,
    z_drop: int | None, scoring: TwoPieceScoring, pool: Any, n_pool: Any,
) -> DoneColumns:  # fmt: skip
    """Queue the kernels for the pieces of one kind: to be filled, or with a z-drop extended."""
    n = len(pieces.read)
    done = columns(space, f"{name}.done", DoneColumns, _DONE_COLUMNS, n)
    if n == 0:
        return done
    targets = Targets(
        done, pool, n_pool, space.device(f"{name}.retry", n, np.int32),
        space.upload(f"{name}.n_retry", np.zeros(1, np.int64)),
    )  # fmt: skip
    small, large = (fill_small, fill_large) if z_drop is None else (extend_small, extend_large)
    options = (scoring,) if z_drop is None else (z_drop, scoring)
    n_warps = min(n, multiprocessors() * WARPS_PER_MULTIPROCESSOR)
    small.launch_blocks(
        n_warps, space.stream, text_planes, reads, pieces, *options,
        space.device("piece.cells", n_warps * SMALL_CELLS, np.uint8), n_warps, targets,
    )  # fmt: skip
    n_warps = threads_for(n, LARGE_CELLS + 12 * LARGE_SYMBOLS + 10 * LARGE_LEN + 16)
    n_symbols = n_warps * LARGE_SYMBOLS
    spaces = LargeSpace(
        space.device("piece.symbols", 2 * (n_symbols + n_warps * LARGE_LEN), np.uint8),
        space.device("piece.differences", 6 * n_symbols, np.int8),
        space.device("piece.scores", n_symbols, np.int32),
        space.device("piece.warp_ops", n_warps * (2 * LARGE_LEN + 4), np.uint32),
        space.device("piece.large_cells", n_warps * LARGE_CELLS, np.uint8),
    )
    large.launch_blocks(
        n_warps, space.stream, text_planes, reads, pieces, *options, spaces, n_warps, targets
    )
    return done
