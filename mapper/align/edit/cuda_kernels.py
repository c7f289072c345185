"""CUDA kernels of global edit distance: a thread, a group of lanes, or a block for each pair.

- :func:`small_edit_kernel`: a thread a pair, up to SMALL edits, all wavefronts in shared memory.
- :func:`vector_edit_kernel`: a thread a pair, by bit vectors (``bit_vectors.py``). A column of a
  band of the matrix is one word, so the threads of a warp do the same work, each for its own pair,
  and never wait for each other. A word of 32 or 64 bits finds up to 31 or 63 edits. For the path,
  two words a column go to global memory, those of the threads of a block side by side.
- :func:`group_edit_kernel`: a group of 8 or 32 lanes a pair. The lanes share out the diagonals of
  a wavefront; all wavefronts lie in shared memory.
- :func:`wide_edit_kernel`: a block of threads a pair, for long pairs with more edits. The last two
  wavefronts lie in shared memory, 16 bits a cell, diagonal k in column ``k mod width``, with two
  null cells on each side. For the path every wavefront goes to global memory, too, and one thread
  traces it. Diagonals from which the end is out of reach within the bound are left out
  (``wavefront.py``).

The first kernels form a chain (``cuda/kernel_chain.py``): each passes the pairs that it cannot
solve on to the next. Blocks take what remains from a worklist (``cuda/worklist.py``). Operations
are written last one first.

References
----------
Aguado-Puig et al. (2022), IEEE Access 10:63782. Castells-Rufas (2023), Parallel Computing, 103019,
section 3 (the dynamic diamond). Myers (1999), J. ACM 46:395. Hyyrö (2003), Nordic J. Computing
10:29.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from mapper.align.cuda.cooperative import (
    GROUP_BLOCK,
    any_lane,
    blocks_by_shared,
    sync_lanes,
)
from mapper.align.cuda.kernel_chain import is_idle, pass_on, source_of
from mapper.align.cuda.kernels import BLOCK, UNFIT, strings_of, two_bits
from mapper.align.cuda.retry import DONE, UNSOLVED
from mapper.align.cuda.worklist import (
    IN_SLOT,
    NO_SPACE,
    WIDE_BLOCK,
    allocate_path,
    move_path,
    resident_blocks,
    take_pair,
)
from mapper.align.edit.bit_vectors import search_columns, trace_columns
from mapper.align.edit.cpu import LEAF_ROWS, fits_leaf
from mapper.align.edit.wavefront import (
    EXCEEDED,
    FINISHED,
    GOING,
    NO_ROOM,
    PAD,
    Rows,
    next_offset,
    small_search,
    trace_edit,
)
from mapper.align.matches import NULL_16, slide
from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace, multiprocessors, total_bytes

# --- a thread a pair: small distances ---

SMALL = 8
"""Greatest distance of the small kernel: its cells take 21 kB of shared memory a block, so that a
multiprocessor holds as many blocks as its registers allow."""

_SHARED_CELLS = BLOCK * (SMALL + 1) * (SMALL + 1)


@device_function
def align_small(strings, i, max_distance, bound, cells, layout, want_path, slot, out):
    """Align a pair within `bound`, and write its result and operations."""
    most = min(max_distance, max(strings.query_len, strings.ref_len))
    score = small_search(two_bits(strings), min(most, bound), cells)
    n_ops = np.int64(0)
    if score >= 0 and want_path:
        rows = Rows(cells, layout.at, layout.lo, layout.hi)
        goal = np.int64(strings.ref_len - strings.query_len)
        ops = out.slots[i * slot : (i + 1) * slot]
        n_ops, _ = trace_edit(rows, score, goal, np.int64(strings.ref_len), ops, 0)
    out.score[i] = score
    # Above the limit, unless `bound` is lower.
    out.status[i] = DONE if score >= 0 or most <= bound else UNSOLVED
    out.n_ops[i] = n_ops


@kernel(BLOCK)
def small_edit_kernel(staged, n, max_distance, want_path, layout, chain, slot, out):
    """Find global edit distances up to SMALL, and paths; a thread a pair.

    `layout` is that of :func:`small_layout`; its cells are not used. The kernel is the first of its
    `chain`; if idle it passes on all pairs.
    """
    cells = cuda.shared.array(_SHARED_CELLS, np.int16)
    i = cuda.grid(1)
    if i >= n:
        return
    strings = strings_of(staged, n, i)
    if strings.query_len < 0:
        out.score[i] = -1
        out.status[i] = UNFIT
        out.n_ops[i] = 0
        return
    # Every 128th cell, so that the threads of a warp access adjacent ones.
    own = cells[cuda.threadIdx.x :: BLOCK]
    bound = -1 if is_idle(chain, 0) else SMALL
    align_small(strings, i, max_distance, bound, own, layout, want_path, slot, out)
    if out.status[i] == UNSOLVED:
        pass_on(chain, 0, i)


# --- a thread a pair: bit vectors ---

_BLOCKS = 4
"""Blocks of a multiprocessor; twice as many would fit, and wait for memory."""

WORD_TYPES = {32: np.uint32, 64: np.uint64}


class VectorSpace(NamedTuple):
    """Traceback words of all threads of a launch, for references of up to `columns` symbols."""

    moves: Any  # uint32 or uint64 (n_blocks * 2 * columns * BLOCK,)
    columns: int


def vector_space(
    space: Workspace, width: int, columns: int, n_pairs: int, want_path: bool
) -> tuple[int, VectorSpace]:
    """Return how many blocks to launch for up to `n_pairs`, and their workspace.

    Launches of all widths share it; make that of the widest first.
    """
    n_blocks = min((n_pairs + BLOCK - 1) // BLOCK, multiprocessors() * _BLOCKS)
    items = 2 * columns * BLOCK
    if want_path:
        n_blocks = max(1, min(n_blocks, (total_bytes() >> 6) // (items * width // 8)))
    n_items = n_blocks * items if want_path else 1
    moves = space.device("moves", n_items, WORD_TYPES[width])
    return n_blocks, VectorSpace(moves, columns)


@kernel(BLOCK)
def vector_edit_kernel(staged, n, max_distance, width, number, is_widest, want_path, space, chain,
                       slot, out):  # fmt: skip
    """Find global edit distances below `width`, and paths, as kernel `number` of the chain.

    Pairs that are too long are passed on, and, unless this is the widest kernel, those with more
    edits: the groups after it find no more either.
    """
    source = source_of(chain, number)
    n_pairs = np.int32(0) if is_idle(chain, number) else chain.counts[source]
    first = np.int64(0)
    if want_path:
        first = np.int64(cuda.blockIdx.x) * 2 * space.columns * BLOCK + cuda.threadIdx.x
    x, step = np.int32(cuda.grid(1)), np.int32(cuda.gridsize(1))
    while x < n_pairs:
        i = np.int64(chain.pairs[source - 1, x])
        x = np.int32(x + step)
        strings = two_bits(strings_of(staged, n, i))
        if strings.ref_len > space.columns:  # its warp would wait for it
            pass_on(chain, number, i)
            continue
        most = min(max_distance, np.int64(max(strings.query_len, strings.ref_len)))
        last = np.int32(min(most, np.int64(width - 1)))
        score = search_columns(strings, last, width, space.moves, first, BLOCK, want_path)
        if score < 0 and most >= width:
            if not is_widest:
                pass_on(chain, number, i)
            continue
        n_ops = np.int32(0)
        if score >= 0 and want_path:
            ops = out.slots[i * slot : (i + 1) * slot]
            n_ops = trace_columns(strings, width, space.moves, first, BLOCK, ops)
        out.score[i] = score
        out.status[i] = DONE
        out.n_ops[i] = n_ops


# --- a group of lanes a pair ---

_MOST_BLOCKS = 12
"""Most blocks of a multiprocessor, by the registers of a thread."""


class EditShape(NamedTuple):
    """Division of the lanes and the shared memory of a block into groups."""

    log_lanes: int  # of a group
    groups: int  # of a block
    bound: int  # greatest distance
    words: int  # of 32 bits, of a group: cells, then operations
    cell_words: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.groups * self.words

    @property
    def blocks(self) -> int:
        """Blocks that a multiprocessor holds, or somewhat fewer."""
        return blocks_by_shared(self.shared_bytes, _MOST_BLOCKS)


def edit_shape(bound: int, lanes: int) -> EditShape:
    """Return the shape for distances up to `bound` and groups of so many lanes."""
    cell_words = ((bound + 1) ** 2 + 1) // 2
    return EditShape(
        log_lanes=lanes.bit_length() - 1,
        groups=GROUP_BLOCK // lanes,
        bound=bound,
        words=cell_words + 2 * bound + 2,
        cell_words=cell_words,
    )


@device_function
def _write_row(strings, s, lo, hi, cells, first_cell, lane, lanes):
    """Compute the cells of one lane in wavefront s, from lo to hi."""
    before = np.int32(first_cell + (s - np.int32(1)) * s)  # diagonal 0 of wavefront s - 1
    here = np.int32(first_cell + s * s + s)
    strings = two_bits(strings)
    k = np.int32(lo + lane)
    while k <= hi:
        left, middle, right = NULL_16, NULL_16, NULL_16
        # Unsigned, as an index that may be negative would be checked for that.
        if k > np.int32(1) - s:
            left = np.int32(cells[np.uint32(before + k - np.int32(1))])
        if k > -s and k < s:
            middle = np.int32(cells[np.uint32(before + k)])
        if k < s - np.int32(1):
            right = np.int32(cells[np.uint32(before + k + np.int32(1))])
        h = np.int32(0) if s == 0 else np.int32(next_offset(left, middle, right))
        cells[np.uint32(here + k)] = np.int16(slide(strings, h, k, NULL_16))
        k = np.int32(k + lanes)


@kernel(GROUP_BLOCK)
def group_edit_kernel(staged, n, max_distance, shape, number, want_path, layout, chain, slot, out):
    """Find global edit distances, and paths, as kernel `number` of the chain.

    Groups stride over pairs; the groups of a warp are at the same wavefront. `layout` is that of
    :func:`small_layout`; its cells are not used. One lane traces the path, into shared memory, and
    all lanes copy it.
    """
    cells = cuda.shared.array(0, types.int16)
    words = cuda.shared.array(0, types.uint32)
    lanes = np.int32(np.int32(1) << np.int32(shape.log_lanes))
    group = np.int32(np.int32(cuda.threadIdx.x) >> np.int32(shape.log_lanes))
    lane = np.int32(np.int32(cuda.threadIdx.x) & np.int32(lanes - np.int32(1)))
    worker = np.int32(np.int32(cuda.blockIdx.x) * np.int32(shape.groups) + group)
    n_workers = np.int32(np.int32(cuda.gridDim.x) * np.int32(shape.groups))
    first_word = np.int32(group * np.int32(shape.words))
    first_cell = np.int32(first_word + first_word)
    first_op = np.int32(first_word + np.int32(shape.cell_words))
    source = source_of(chain, number)
    n_pairs = np.int32(0) if is_idle(chain, number) else np.int32(chain.counts[source])
    first = np.int32(0)
    while first < n_pairs:
        x = np.int32(first + worker)
        first = np.int32(first + n_workers)
        running = x < n_pairs
        todo = running
        i = np.int64(chain.pairs[source - 1, x if running else np.int32(0)])
        strings = strings_of(staged, n, i)
        most = min(max_distance, np.int64(max(strings.query_len, strings.ref_len)))
        last = np.int32(min(most, np.int64(shape.bound)))
        goal = np.int32(strings.ref_len - strings.query_len)
        s = np.int32(0)
        found = False
        while any_lane(running):
            if running:
                # Cells farther from the end cannot reach it within the bound.
                slack = np.int32(last - s)
                lo = max(np.int32(-s), np.int32(goal - slack))
                hi = min(s, np.int32(goal + slack))
                _write_row(strings, s, lo, hi, cells, first_cell, lane, lanes)
            sync_lanes()
            if running:
                here = np.int32(first_cell + s * s + s)
                if -s <= goal <= s and cells[np.uint32(here + goal)] == strings.ref_len:
                    found = True
                    running = False
                else:
                    s = np.int32(s + np.int32(1))
                    running = s <= last
        if todo and lane == 0:
            n_ops = np.int64(0)
            if found and want_path:
                rows = Rows(cells[first_cell:], layout.at, layout.lo, layout.hi)
                n_ops, _ = trace_edit(
                    rows, np.int64(s), np.int64(goal), np.int64(strings.ref_len),
                    words[first_op:], 0,
                )  # fmt: skip
            out.score[i] = s if found else -1
            out.n_ops[i] = n_ops
            if found or most <= shape.bound:  # above the limit, unless the bound is lower
                out.status[i] = DONE
            else:
                pass_on(chain, number, i)
        sync_lanes()
        if todo and found and want_path:
            n_ops = np.int64(out.n_ops[i])
            j = np.int64(lane)
            while j < n_ops:
                out.slots[i * slot + j] = words[np.uint32(first_op + j)]
                j += lanes
        sync_lanes()


# --- a block of threads a pair ---

_STATE_WORDS = 2


class EditBlockShape(NamedTuple):
    """Size of the wavefronts of a block."""

    bound: int  # greatest distance
    width: int  # columns of a wavefront, a power of two
    cells: int  # offsets of all wavefronts of a pair

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * _STATE_WORDS + 4 * self.width


def edit_block_shape(width: int, want_path: bool) -> EditBlockShape:
    """Return the shape for wavefronts of up to `width` cells, a power of two, with padding."""
    bound = width // 2 - PAD
    if want_path:
        bound = min(bound, most_with_path())
    return EditBlockShape(bound, width, (bound + 1) ** 2)


def most_with_path() -> int:
    """Return the greatest distance whose path the CPU traces without dividing the pair.

    Beyond it the CPU may choose another path of the same cost.
    """
    distance = LEAF_ROWS
    while not fits_leaf(distance):
        distance -= 1
    return distance


def edit_block_space(
    space: Workspace, name: str, shape: EditBlockShape, n_pairs: int, want_path: bool
) -> tuple[int, Rows]:
    """Return how many blocks to launch for up to `n_pairs`, and their global workspace."""
    cells, rows = (shape.cells, shape.bound + 1) if want_path else (1, 1)
    n_blocks = resident_blocks(n_pairs, shape.shared_bytes, 12, 2 * cells + 24 * rows)
    columns: list[Any] = [space.device(f"{name} cells", n_blocks * cells, np.int16)]
    columns += [
        space.device(f"{name} {what}", n_blocks * rows, np.int64) for what in Rows._fields[1:]
    ]
    return n_blocks, Rows(*columns)


@device_function
def _offset(cells, row_at, k, mask):
    """Return the offset of a wavefront on diagonal k."""
    return cells[np.uint32(row_at + (k & mask))]


@device_function
def _search(strings, bound, shape, cells, first_cell, rows, keep, lane):
    """Search the end, wavefront by wavefront; called by all threads of a block.

    Parameters
    ----------
    cells, first_cell
        int16, shared: the last two wavefronts, from that item on.
    rows
        Receives every wavefront if `keep`.

    Returns
    -------
    status, s
        FINISHED and the distance, EXCEEDED or NO_ROOM.
    """
    strings = two_bits(strings)
    width = np.int32(shape.width)
    mask = np.int32(width - np.int32(1))
    goal = np.int32(strings.ref_len - strings.query_len)
    bound = np.int32(bound)
    s, lo, hi = np.int32(0), np.int32(0), np.int32(0)
    cell_at = np.int64(0)
    status = np.int32(GOING)
    while status == GOING:
        slack = np.int32(bound - s)
        lo, hi = max(lo, np.int32(goal - slack)), min(hi, np.int32(goal + slack))
        if lo > hi or slack < 0:
            status = np.int32(EXCEEDED)
            break
        n = np.int32(hi - lo + np.int32(1))
        if s > shape.bound or np.int32(n + 2 * PAD) > width or (
            keep and cell_at + n > shape.cells
        ):  # fmt: skip
            status = np.int32(NO_ROOM)
            break
        here = np.int32(first_cell + (s & np.int32(1)) * width)
        before = np.int32(first_cell + (np.int32(s + np.int32(1)) & np.int32(1)) * width)
        k = np.int32(lo + lane)
        while k <= hi:
            h = np.int32(0)
            if s > 0:
                left = np.int32(_offset(cells, before, np.int32(k - np.int32(1)), mask))
                right = np.int32(_offset(cells, before, np.int32(k + np.int32(1)), mask))
                h = np.int32(next_offset(left, np.int32(_offset(cells, before, k, mask)), right))
            h = np.int32(slide(strings, h, k, NULL_16))
            cells[np.uint32(here + (k & mask))] = np.int16(h)
            if keep:
                rows.cells[np.uint64(cell_at + np.int32(k - lo))] = np.int16(h)
            k = np.int32(k + np.int32(WIDE_BLOCK))
        if lane < PAD:
            below, above = np.int32(lo - np.int32(1) - lane), np.int32(hi + np.int32(1) + lane)
            cells[np.uint32(here + (below & mask))] = np.int16(NULL_16)
            cells[np.uint32(here + (above & mask))] = np.int16(NULL_16)
        if keep and lane == 0:
            rows.at[s] = cell_at
            rows.lo[s] = lo
            rows.hi[s] = hi
        # The only barrier of a wavefront: the next one overwrites the previous one.
        cuda.syncthreads()
        cell_at += n
        if lo <= goal <= hi:
            offset = np.int32(_offset(cells, here, goal, mask))
            if offset == strings.ref_len:
                status = np.int32(FINISHED)
                break
            if offset >= 0:
                # The cost with mismatches up to the end of both sequences.
                bound = min(bound, np.int32(s + np.int32(strings.ref_len - offset)))
        lo, hi = np.int32(lo - np.int32(1)), np.int32(hi + np.int32(1))
        s = np.int32(s + np.int32(1))
    cuda.syncthreads()  # before another search writes the cells
    return status, s


@device_function
def _write_path(rows, s, strings, i, slot, worklist, out):
    """Write the operations of a path, last one first; return their number, -1 without room."""
    goal, end = np.int64(strings.ref_len - strings.query_len), np.int64(strings.ref_len)
    s = np.int64(s)
    first = allocate_path(worklist, out, slot, 2 * s + 1)
    if first == NO_SPACE:
        return np.int64(-1)
    if first == IN_SLOT:
        n_ops, _ = trace_edit(rows, s, goal, end, out.slots[i * slot :], 0)
        return np.int64(n_ops)
    n_ops, _ = trace_edit(rows, s, goal, end, out.long_ops[first:], 0)
    move_path(out, i, slot, first, n_ops)
    return np.int64(n_ops)


@kernel(WIDE_BLOCK)
def wide_edit_kernel(staged, n, max_distance, shape, want_path, rows, worklist, slot, out):
    """Find global edit distances, and paths, of the pairs of a worklist, a block a pair."""
    state = cuda.shared.array(0, types.int32)
    cells = cuda.shared.array(0, types.int16)
    lane, keep = np.int32(cuda.threadIdx.x), np.int32(want_path)
    block = np.int64(cuda.blockIdx.x) if want_path else np.int64(0)
    first_row = block * (shape.bound + 1)
    own = Rows(
        rows.cells[block * shape.cells :], rows.at[first_row:], rows.lo[first_row:],
        rows.hi[first_row:],
    )  # fmt: skip
    while True:
        i = take_pair(worklist, state, lane)
        if i < 0:
            break
        strings = strings_of(staged, n, i)
        most = min(max_distance, np.int64(max(strings.query_len, strings.ref_len)))
        status, s = _search(
            strings, min(most, np.int64(shape.bound)), shape, cells, np.int32(2 * _STATE_WORDS),
            own, keep, lane,
        )  # fmt: skip
        if lane == 0:
            # Above the limit, unless the bound is lower.
            found = np.int32(DONE if status == EXCEEDED and most <= shape.bound else UNSOLVED)
            n_ops = np.int64(0)
            if status == FINISHED:
                if want_path:
                    n_ops = _write_path(own, s, strings, i, slot, worklist, out)
                found = np.int32(UNSOLVED if n_ops < 0 else DONE)
            is_found = status == FINISHED and found == DONE
            out.score[i] = s if is_found else -1
            out.n_ops[i] = n_ops if is_found else 0
            out.status[i] = found
