"""Core: where the cells of gap-affine wavefronts came from, and the path they tell.

Each cell leaves a byte. From the end back these bytes give the mismatches and gaps of the
path; a second walk, from the start, finds the matches between them again by running along
both sequences (the *piggybacked* backtrace of Aguado-Puig et al. 2023, section 3.3, with one
byte a cell in place of linked blocks).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.matches import run_of_matches
from mapper.cigar import EQUAL, D, I, X, append_op
from mapper.jit.accelerate import core

# Bits of a cell's byte.
_FROM_DELETION = np.uint8(1)
_FROM_INSERTION = np.uint8(2)
INSERTION_OPENED = np.uint8(4)
DELETION_OPENED = np.uint8(8)


class Origins(NamedTuple):
    """A byte a cell of every row: row s is ``cells[at[s]:]``, from diagonal lo[s] on."""

    cells: np.ndarray  # uint8
    at: np.ndarray  # int64
    lo: np.ndarray  # int64


@core
def gap_origin(opened, extended, flag):
    """A cell's byte for a gap: `flag` where it was opened; of equals it was."""
    return flag if opened >= extended else np.uint8(0)


@core
def match_origin(match, insertion, deletion):
    """A cell's byte for M: of equals a mismatch before a deletion, that before an insertion."""
    if match >= max(insertion, deletion):
        return np.uint8(0)
    return _FROM_DELETION if deletion >= insertion else _FROM_INSERTION


@core
def trace_rows(origins, penalties, first, s, k, gap, length, events, n):
    """Go back from a cell as long as rows are there; those before `first` are not.

    Parameters
    ----------
    s, k
        The cell.
    gap, length
        The gap that the cell is in (I or D; 0 for none), and its symbols so far.
    events, n
        Where to append events, last first: ``length << 4 | op``; one gap, one event.

    Returns
    -------
    n, s, k, gap, length
        At a row before `first`, or at row 0.
    """
    e = penalties.gap_extend
    while s > 0 and s >= first:
        origin = origins.cells[origins.at[s] + k - origins.lo[s]]
        if gap == 0:
            if origin & _FROM_INSERTION:
                gap = np.int64(I)
            elif origin & _FROM_DELETION:
                gap = np.int64(D)
            else:
                events[n] = np.uint32((1 << 4) | X)
                n += 1
                s -= penalties.mismatch
                continue
        opened = origin & (INSERTION_OPENED if gap == I else DELETION_OPENED)
        length += 1
        k += 1 if gap == I else -1
        if opened:
            events[n] = np.uint32((length << 4) | gap)
            n += 1
            gap = length = np.int64(0)
            s -= penalties.gap_open + e
        else:
            s -= e
    return n, s, k, gap, length


@core
def trace_back(origins, penalties, s, k, events):
    """Write mismatches and gaps from a cell of M back to row 0, last first.

    Returns
    -------
    n_events, k
        Number of events, and the diagonal on which the path starts.
    """
    zero = np.int64(0)
    n, _, k, _, _ = trace_rows(origins, penalties, zero, s, k, zero, zero, events, zero)
    return n, k


@core
def replay(pair, events, n_events, v, h, end_h, ops):
    """Write the operations of a path from (v, h) on: its events, and matches between them."""
    n_ops = np.int64(0)
    for j in range(n_events):
        room = min(pair.query_len - v, pair.ref_len - h)
        run = run_of_matches(pair, v, h, room, True)
        n_ops = append_op(ops, n_ops, EQUAL, run)
        event = events[n_events - 1 - j]
        code = np.int64(event & 15)
        length = np.int64(event >> 4)
        v += run + (0 if code == D else length)
        h += run + (0 if code == I else length)
        n_ops = append_op(ops, n_ops, code, length)
    return append_op(ops, n_ops, EQUAL, end_h - h)
