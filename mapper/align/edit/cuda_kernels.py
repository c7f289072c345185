"""CUDA kernel of edit distance of long pairs: a block of threads a pair.

The threads share out the diagonals of a row. The last two rows lie in shared memory, 16 bits a
cell, diagonal k in column ``k mod width``, two null cells on each side. For the path every row
goes to global memory, too; one thread traces it. Cells from which the end cannot be reached within
the bound are left out, which falls as the rows advance (``wavefront_edit``).

References
----------
Aguado-Puig et al. (2022), IEEE Access 10:63782. Castells-Rufas (2023), Parallel Computing, 103019,
section 3 (the dynamic diamond).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from mapper.align.cuda.kernels import strings_of, two_bits
from mapper.align.cuda.retry import DONE, LEFT
from mapper.align.cuda.worklist import (
    IN_SLOT,
    NO_PLACE,
    WIDE_BLOCK,
    blocks_with_room,
    note_place,
    place_of_path,
    take_left,
)
from mapper.align.edit.cpu import LEAF_ROWS, fits_leaf
from mapper.align.edit.strip import slide
from mapper.align.edit.wavefront import (
    EXCEEDED,
    FINISHED,
    GOING,
    NO_ROOM,
    PAD,
    Rows,
    next_offset,
    trace_edit,
)
from mapper.cuda.api import cuda, device_function, kernel
from mapper.cuda.memory import Workspace

_NULL = np.int32(-(2**15))
_STATE_WORDS = 2


class EditBlockShape(NamedTuple):
    """The room of a block."""

    bound: int  # greatest distance
    width: int  # columns of a row, a power of two
    cells: int  # offsets of a pair

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * _STATE_WORDS + 4 * self.width


def edit_block_shape(width: int, want_path: bool) -> EditBlockShape:
    """Return the room for rows of up to `width` cells, a power of two, padding included."""
    bound = width // 2 - PAD
    if want_path:
        bound = min(bound, most_with_path())
    return EditBlockShape(bound, width, (bound + 1) ** 2)


def most_with_path() -> int:
    """Return the greatest distance whose path the CPU traces as a whole, to find the same."""
    distance = LEAF_ROWS
    while not fits_leaf(distance):
        distance -= 1
    return distance


def edit_block_space(
    space: Workspace, name: str, shape: EditBlockShape, n_pairs: int, want_path: bool
) -> tuple[int, Rows]:
    """Return how many blocks to launch for up to `n_pairs`, and room for all rows of each."""
    cells, rows = (shape.cells, shape.bound + 1) if want_path else (1, 1)
    n_blocks = blocks_with_room(n_pairs, shape.shared_bytes, 12, 2 * cells + 24 * rows)
    columns: list[Any] = [space.device(f"{name} cells", n_blocks * cells, np.int16)]
    columns += [
        space.device(f"{name} {what}", n_blocks * rows, np.int64) for what in Rows._fields[1:]
    ]
    return n_blocks, Rows(*columns)


@device_function
def _offset(cells, row_at, k, mask):
    """The offset of a row on diagonal k."""
    return cells[np.uint32(row_at + (k & mask))]


@device_function
def _search(strings, bound, shape, cells, first_cell, rows, keep, lane):
    """Search the end, row after row; called by all threads of a block alike.

    Parameters
    ----------
    cells, first_cell
        int16, shared: the last two rows, from that item on.
    rows
        Where every row goes, if it is to be kept.

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
            h = np.int32(slide(strings, h, k, _NULL))
            cells[np.uint32(here + (k & mask))] = np.int16(h)
            if keep:
                rows.cells[np.uint64(cell_at + np.int32(k - lo))] = np.int16(h)
            k = np.int32(k + np.int32(WIDE_BLOCK))
        if lane < PAD:
            below, above = np.int32(lo - np.int32(1) - lane), np.int32(hi + np.int32(1) + lane)
            cells[np.uint32(here + (below & mask))] = np.int16(_NULL)
            cells[np.uint32(here + (above & mask))] = np.int16(_NULL)
        if keep and lane == 0:
            rows.at[s] = cell_at
            rows.lo[s] = lo
            rows.hi[s] = hi
        # The only wait of a row: the next one is written over the one before this.
        cuda.syncthreads()
        cell_at += n
        if lo <= goal <= hi:
            offset = np.int32(_offset(cells, here, goal, mask))
            if offset == strings.ref_len:
                status = np.int32(FINISHED)
                break
            if offset >= 0:
                # Mismatches to the end of both sequences would cost so much.
                bound = min(bound, np.int32(s + np.int32(strings.ref_len - offset)))
        lo, hi = np.int32(lo - np.int32(1)), np.int32(hi + np.int32(1))
        s = np.int32(s + np.int32(1))
    cuda.syncthreads()  # the cells are free for another search
    return status, s


@device_function
def _write_path(rows, s, strings, i, slot, left, out):
    """Write the operations of a path, last one first; return how many, -1 without room."""
    goal, end = np.int64(strings.ref_len - strings.query_len), np.int64(strings.ref_len)
    s = np.int64(s)
    first = place_of_path(left, out, slot, 2 * s + 1)
    if first == NO_PLACE:
        return np.int64(-1)
    if first == IN_SLOT:
        n_ops, _ = trace_edit(rows, s, goal, end, out.slots[i * slot :], 0)
        return np.int64(n_ops)
    n_ops, _ = trace_edit(rows, s, goal, end, out.long_ops[first:], 0)
    note_place(out, i, slot, first, n_ops)
    return np.int64(n_ops)


@kernel(WIDE_BLOCK)
def wide_edit_kernel(staged, n, max_distance, shape, want_path, rows, left, slot, out):
    """Find global edit distances of the listed pairs, by WIDE_BLOCK threads each."""
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
        i = take_left(left, state, lane)
        if i < 0:
            break
        strings = strings_of(staged, n, i)
        most = min(max_distance, np.int64(max(strings.query_len, strings.ref_len)))
        status, s = _search(
            strings, min(most, np.int64(shape.bound)), shape, cells, np.int32(2 * _STATE_WORDS),
            own, keep, lane,
        )  # fmt: skip
        if lane == 0:
            # Above the limit if the room did not lower it.
            found = np.int32(DONE if status == EXCEEDED and most <= shape.bound else LEFT)
            n_ops = np.int64(0)
            if status == FINISHED:
                if want_path:
                    n_ops = _write_path(own, s, strings, i, slot, left, out)
                found = np.int32(LEFT if n_ops < 0 else DONE)
            is_found = status == FINISHED and found == DONE
            out.score[i] = s if is_found else -1
            out.n_ops[i] = n_ops if is_found else 0
            out.status[i] = found
