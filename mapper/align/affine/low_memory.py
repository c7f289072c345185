"""Gap-affine paths of long pairs by checkpoints: stretches of wavefronts are computed again.

The origins of a search take a byte a cell, which grows with the square of the penalty. Where that
exceeds the memory, a checkpoint of the rows of offsets is saved whenever the memory for origins is
full, and the search continues with the memory empty. From the end back, each stretch of rows is
then computed once more from its checkpoint, with origins, and traced. When there are more than
MAX_SAVED checkpoints every other is dropped; a stretch that is too long for the memory is divided
in the same way in its turn. Memory is thus a multiple of the penalty, at the price of computing
every row twice (and again for every time that checkpoints were halved). The path is that of a
search with all memory, cell by cell.

References
----------
Grice, Hughey, Speck (1997), Comput. Appl. Biosci. 13:45: checkpoints for alignment.
Bidirectional wavefronts (Marco-Sola et al. 2023, doi:10.1093/bioinformatics/btad074) compute
about half as many cells, but choose between paths of the same penalty in another way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapper.align.affine.cpu import BLOCK, FIRST_MARGIN, columns_within, new_rows, rows_on
from mapper.align.affine.wavefront import (
    ALL_ROWS,
    NO_COLUMNS,
    AffinePenalties,
    AffineRows,
    Band,
    Origins,
    end_offset,
    highest_bound,
    look_back,
    replay,
    trace_rows,
)
from mapper.align.dispatch import scatter_ops
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, NO_ROOM, Ends, ends_within
from mapper.align.matches import Pair, letters_of, no_letters, pair_at
from mapper.align.parts import CpuPairs, packed_rows
from mapper.align.result import HEURISTIC, NO_MEMORY, OK, OVER_LIMIT, PairAlignments
from mapper.jit.accelerate import driver
from mapper.parallel.map import map_in_threads

MAX_SAVED = 24


class Problem(NamedTuple):
    """Options of a call; penalties and limit are divided by `scale`."""

    free: Ends
    penalties: AffinePenalties
    scale: int
    band: Band
    max_penalty: int
    memory: int  # bytes for origins


class _Saved(NamedTuple):
    """Checkpoint: the state of a search before a row."""

    row: int
    bound: int
    cut: bool
    column: int  # of the first that is saved
    offsets: tuple[np.ndarray, np.ndarray, np.ndarray]
    lo: np.ndarray
    hi: np.ndarray


class LongPath(NamedTuple):
    """One alignment; no operations where there is no score."""

    status: int
    score: int
    span: tuple[int, int, int, int]  # of query and reference
    ops: np.ndarray


@driver
def _trace(origins, penalties, first, s, k, gap, length, events, n):
    return trace_rows(origins, penalties, first, s, k, gap, length, events, n)


@driver
def _replayed(pair, events, n_events, v, h, end_h):
    ops = np.empty(2 * n_events + 1, np.uint32)
    return ops[: replay(pair, events, n_events, v, h, end_h, ops)].copy()


@driver
def _end(rows, centre, s, k):
    return end_offset(rows, centre, s, k)


@driver
def _highest(pair, penalties):
    return highest_bound(pair, penalties)


class _Stretches:
    """A search that holds the origins of one stretch of rows, and checkpoints of all."""

    def __init__(
        self, pair: Pair, ends: Ends, problem: Problem, band: Band, margin: int, bound: int
    ) -> None:
        self._pair, self._ends, self._band = pair, ends, band
        self._letters = letters_of(pair, no_letters())
        self._penalties = problem.penalties
        self.centre, n_columns = columns_within(pair, ends, margin)
        self.rows: AffineRows = new_rows(look_back(problem.penalties), n_columns)
        self.rows.lo[:], self.rows.hi[:] = 0, -1
        n_rows = 1 << 12
        self.origins = Origins(
            np.empty(problem.memory, np.uint8), np.empty(n_rows, np.int64),
            np.empty(n_rows, np.int64),
        )  # fmt: skip
        self._saved = [self._save(0, bound, False)]

    @property
    def first(self) -> int:
        """First row of the stretch whose origins are held."""
        return self._saved[-1].row

    def drop(self) -> None:
        """Drop the stretch that has been traced, and its checkpoint."""
        self._saved.pop()

    def search(self, last: int = ALL_ROWS) -> tuple[int, int, int, bool]:
        """Search from the last checkpoint to the end, or to row `last`, with origins.

        Returns
        -------
        status, s, k, cut
            As of ``affine_rows_on``; NO_ROOM if not even one row fits.
        """
        s, bound, cut = self._restore(self._saved[-1])
        while True:
            status, s, k, bound, cut = rows_on(
                self._pair, self._letters, self._ends, self.rows, self.origins, self._penalties,
                self._band, self.centre, s, last, bound, cut,
            )  # fmt: skip
            if status != NO_ROOM:
                return int(status), int(s), int(k), bool(cut)
            if s + 1 >= len(self.origins.at):
                grown = (np.concatenate([column, column]) for column in self.origins[1:])
                self.origins = Origins(self.origins.cells, *grown)
                continue
            if s == self.first:
                return NO_ROOM, int(s), int(k), bool(cut)
            self._saved.append(self._save(int(s), int(bound), bool(cut)))
            self.origins.at[s] = 0
            if len(self._saved) > MAX_SAVED:
                del self._saved[1:-1:2]

    def _save(self, row: int, bound: int, cut: bool) -> _Saved:
        used = self.rows.lo <= self.rows.hi
        column = int(self.rows.lo[used].min(initial=0)) + self.centre - BLOCK
        behind = int(self.rows.hi[used].max(initial=0)) + self.centre + 1 + BLOCK
        match, insertion, deletion = (offsets[:, column:behind].copy() for offsets in self.rows[:3])
        return _Saved(
            row, bound, cut, column, (match, insertion, deletion), self.rows.lo.copy(),
            self.rows.hi.copy(),
        )  # fmt: skip

    def _restore(self, saved: _Saved) -> tuple[int, int, bool]:
        for offsets, held in zip(self.rows[:3], saved.offsets, strict=True):
            offsets[:, saved.column : saved.column + held.shape[1]] = held
        self.rows.lo[:], self.rows.hi[:] = saved.lo, saved.hi
        self.origins.at[saved.row] = 0
        return saved.row, saved.bound, saved.cut


def path_in_stretches(pair: Pair, problem: Problem) -> LongPath:
    """Align one pair, with as many bytes for origins as the problem says.

    Returns
    -------
    The same as with memory for all origins; NO_MEMORY if not even one row fits.
    """
    none = np.empty(0, np.uint32)
    ends = ends_within(problem.free, pair.query_len, pair.ref_len)
    bound = min(problem.max_penalty, int(_highest(pair, problem.penalties)))
    margin, band = FIRST_MARGIN, problem.band
    while True:
        stretches = _Stretches(pair, ends, problem, band, margin, bound)
        status, score, k, cut = stretches.search()
        if status == NO_COLUMNS:
            margin *= 4
        elif status == EXCEEDED and cut:
            band = Band(0, 1)  # cells that the band cut off might lead to an end in the bound
        else:
            break
    if status != FINISHED:
        what = OVER_LIMIT if status == EXCEEDED else NO_MEMORY
        return LongPath(what, -1, (-1, -1, -1, -1), none)
    end_h = int(_end(stretches.rows, stretches.centre, score, k))
    end_v = end_h - k
    events = np.empty(1 << 10, np.uint32)
    s, gap, length, n = score, 0, 0, 0
    while True:
        room = n + s - stretches.first + 1  # an event for each row at most
        if room > len(events):
            events = np.concatenate([events[:n], np.empty(2 * room - n, np.uint32)])
        n, s, k, gap, length = _trace(
            stretches.origins, problem.penalties, stretches.first, s, k, gap, length, events, n
        )
        if s == 0:
            break
        while s < stretches.first:  # a gap's opening may lead over a whole stretch
            stretches.drop()
        stretches.search(s)
    v, h = max(0, -k), max(0, k)
    ops = _replayed(pair, events, n, v, h, end_h)
    return LongPath(HEURISTIC if cut else OK, score * problem.scale, (v, end_v, h, end_h), ops)


def with_long_paths(
    found: PairAlignments, all_pairs: CpuPairs, problem: Problem, threads: int
) -> PairAlignments:
    """Return the alignments with those added that had status NO_MEMORY."""
    pairs = np.flatnonzero(found.status == NO_MEMORY)
    if len(pairs) == 0 or found.cigar_offsets is None or found.cigar_ops is None:
        return found
    packed = packed_rows(all_pairs, pairs)
    paths = map_in_threads(
        lambda row: path_in_stretches(pair_at(packed, row), problem), range(len(pairs)),
        min(threads, len(pairs)),
    )  # fmt: skip
    counts = np.diff(found.cigar_offsets)
    for i, path in zip(pairs, paths, strict=True):
        found.status[i], found.score[i], counts[i] = path.status, path.score, len(path.ops)
        for column, place in zip(found[2:6], path.span, strict=True):
            column[i] = place
    offsets = np.zeros(found.n_pairs + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    ops = np.empty(int(offsets[-1]), np.uint32)
    others = np.flatnonzero(~np.isin(np.arange(found.n_pairs), pairs))
    scatter_ops(others, found.cigar_ops, offsets, ops)
    scatter_ops(pairs, np.concatenate([path.ops for path in paths]), offsets, ops)
    return found._replace(cigar_offsets=offsets, cigar_ops=ops)
