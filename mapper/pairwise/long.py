"""Edit distance and path of two very long strings, in memory that grows with the distance.

The middle of a shortest path is searched in slices of rows, between which progress is
reported, rows are widened, and the state may be saved. The path is found by divide and
conquer: both halves of a part are independent, so several threads share them.

References
----------
Castells-Rufas (2023), Parallel Computing, 103019: distance in O(d) memory. The path, which
that paper leaves open, by divide and conquer on wavefronts: Marco-Sola et al. (2023),
doi:10.1093/bioinformatics/btad074.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mapper import cigar
from mapper.accelerate import driver
from mapper.device.choose import CPU, DeviceChoice, choose_device
from mapper.errors import UsageError
from mapper.io.sequence_strings import only_sequence
from mapper.pairwise.checkpoint import Checkpoint, Part, Work
from mapper.pairwise.compare import Pair
from mapper.pairwise.edit_cpu import (
    LEAF_CELLS,
    LEAF_ROWS,
    global_path,
    new_rows,
)
from mapper.pairwise.lengths import MAX_LENGTH
from mapper.pairwise.long_search import Search
from mapper.pairwise.middle import N_STATE
from mapper.pairwise.packing import PackedPairs, batch_of, pack_pairs, pair_at, part_of
from mapper.pairwise.run import thread_count
from mapper.pairwise.wavefront_edit import EXCEEDED, FINISHED, GOING
from mapper.threads import aside

MAX_PATH_LENGTH = 2**28 - 1
"""Longest run that a CIGAR operation in BAM's packing holds."""

_WHOLE_PART = 4096
"""Parts with this distance or less are not divided in slices, nor by a device."""

Progress = Callable[[int, int], None]
"""Told from time to time how far the work is: edits whose place in the path is known, and
edits known to be needed."""


class _Report:
    """Sums up progress; ``stopped`` ends what threads are doing."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._placed = 0
        self.stopped = threading.Event()

    def add(self, placed: int, edits: int) -> None:
        """Report `placed` more edits of so many."""
        self._placed += placed
        if self._progress:
            self._progress(self._placed, edits)


class LongAlignment(NamedTuple):
    """Distance and, if asked for, path of two long strings."""

    distance: int | None  # None: above the limit
    cigar_ops: np.ndarray | None  # uint32, length << 4 | op; operations = X I D

    @property
    def cigar(self) -> str | None:
        return None if self.cigar_ops is None else cigar.to_text(self.cigar_ops)


@driver
def _whole_path(pair, bound):
    """Return the operations of a part that is small enough, in order."""
    rows = new_rows(1 << 12, 2)
    back_rows = new_rows(1 << 12, 2)
    leaf = new_rows(LEAF_CELLS, LEAF_ROWS)
    _, ops, n_ops, _, _ = global_path(
        pair, bound, leaf, rows, back_rows, np.empty(N_STATE, np.int64),
        np.empty(64, np.uint32), 0,
    )  # fmt: skip
    return ops[:n_ops][::-1].copy()


MakeSearch = Callable[[Pair, Part], Search]


def long_edit_distance(
    query: str | bytes | np.ndarray | Path,
    ref: str | bytes | np.ndarray | Path,
    *,
    path: bool = False,
    max_distance: int | None = None,
    symbols: str = "dna",
    device: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_seconds: float | None = None,
) -> LongAlignment:
    """Compute the exact edit distance of two strings of up to 2**30 symbols.

    Parameters
    ----------
    query, ref
        The strings: str, bytes, uint8 arrays of ASCII, or paths of FASTA or FASTQ files that hold
        one sequence each.
    path
        Also find a shortest path; then up to 2**28 - 1 symbols.
    max_distance
        Stop above it; the distance is then None.
    symbols
        What matches (``packing.py``).
    device
        ``auto``, ``cpu``, ``cuda`` (all visible devices) or ``cuda:0,1``. No effect on the
        result. Several devices share the parts of the path; the distance alone takes one.
    threads
        Threads for the parts of the path, with a device for the small ones; the distance
        alone takes one.
    progress
        Called some times a second with the number of edits whose place in the path is known
        and the number of edits known to be needed.
    checkpoint
        File to which the state is saved from time to time, and from which a search that was
        interrupted goes on; removed when all is done.
    checkpoint_seconds
        Time between two states saved; None: a minute.

    Raises
    ------
    UsageError
        For strings that are too long, or a checkpoint of other strings or options.
    InputFormatError
        For a character that is no nucleotide letter, unless `symbols` is ``bytes``.
    DeviceError
        For a device that cannot be used, or whose memory does not suffice.

    Notes
    -----
    About d²/2 cells for a distance of d, and as many again for the path; memory O(d), and
    half a byte a symbol for packed DNA, on a device one byte. A checkpoint does not depend
    on where it was made.
    """
    choice = choose_device(device)
    packed = pack_pairs(batch_of([_bytes(query)], [_bytes(ref)]), symbols)
    pair = pair_at(packed, 0)
    longest = max(pair.query_len, pair.ref_len)
    if path and longest > MAX_PATH_LENGTH:
        raise UsageError(
            f"a path of {longest} symbols: at most {MAX_PATH_LENGTH} are supported; ask for the "
            "distance only"
        )
    limit = MAX_LENGTH if max_distance is None else max_distance
    if limit < 0:
        raise UsageError(f"max_distance {limit}: 0 or more is expected")
    whole = Part(0, 0, int(pair.query_len), int(pair.ref_len), min(limit, int(longest)))
    n_threads = thread_count(threads)
    digest = "" if checkpoint is None else _digest(packed, path, whole.bound)
    saved = Checkpoint(checkpoint, digest, checkpoint_seconds)
    makers = _searches_on_devices(choice, pair)
    work = saved.load() or Work([whole], {}, None)
    report = _Report(progress)
    if whole in work.pending:
        search = (makers or [Search])[0](pair, whole)
        status, work = _first_middle(search, whole, work, saved, report)
        if status == EXCEEDED:
            saved.remove()
            return LongAlignment(None, None)
    distance = sum(part.bound for part in work.pending)
    distance += sum(_edits(ops) for ops in work.done.values())
    ops = None
    if path:
        _finish(pair, work, saved, n_threads, makers, report)
        ops = _joined(work.done)
    saved.remove()
    return LongAlignment(distance, ops)


def _bytes(sequence: str | bytes | np.ndarray | Path) -> bytes:
    if isinstance(sequence, Path):
        return only_sequence(str(sequence))
    if isinstance(sequence, str):
        if not sequence.isascii():
            raise UsageError("a sequence is not ASCII")
        return sequence.encode()
    return sequence.tobytes() if isinstance(sequence, np.ndarray) else sequence


def _digest(packed: PackedPairs, path: bool, bound: int) -> str:
    """Return what tells one problem from another."""
    digest = hashlib.sha256(repr((path, bound, *map(int, packed.query_len))).encode())
    digest.update(repr([*map(int, packed.ref_len), *map(int, packed.shift)]).encode())
    digest.update(packed.query_words.data)
    digest.update(packed.ref_words.data)
    return digest.hexdigest()


def _searches_on_devices(choice: DeviceChoice, pair: Pair) -> list[MakeSearch]:
    """Bring the pair to all devices; return what makes a search on each."""
    if choice.backend == CPU:
        return []
    from mapper.pairwise.long_cuda import LongPair

    return [LongPair(ordinal, pair).search for ordinal in choice.ordinals]


def _first_middle(
    search: Search, whole: Part, work: Work, saved: Checkpoint, report: _Report
) -> tuple[int, Work]:
    """Search the middle of the whole, saving now and then; divide the work there."""
    if work.search is not None:
        search.restore(work.search)
    while (status := aside(search.slice)) == GOING:
        report.add(0, search.edits)
        saved.save_if_due(lambda: work._replace(search=search.saved()))
    if status == EXCEEDED or search.edits > whole.bound:
        return EXCEEDED, work
    return FINISHED, Work(search.halves(whole), {}, None)


class _Task(NamedTuple):
    """What a thread is doing."""

    part: Part
    make_search: MakeSearch | None  # of the device that it keeps busy


def _finish(
    pair: Pair, work: Work, saved: Checkpoint, n_threads: int, makers: list[MakeSearch],
    report: _Report,
) -> None:  # fmt: skip
    """Work off all pending parts, several at a time; fill ``work.done``.

    With devices, each divides one part after the other, and the threads take the small ones.
    """
    running: dict[Future[np.ndarray | list[Part]], _Task] = {}
    waiting = list(work.pending)
    free = list(makers)
    base = sum(part.bound for part in work.pending)
    with ThreadPoolExecutor(n_threads + len(makers)) as pool:
        try:
            while waiting or running:
                for i in reversed(range(len(waiting))):
                    make_search = None
                    if makers and waiting[i].bound > _WHOLE_PART:
                        if not free:
                            continue
                        make_search = free.pop()
                    elif sum(t.make_search is None for t in running.values()) >= n_threads:
                        continue
                    task = _Task(waiting.pop(i), make_search)
                    search = make_search or Search
                    future = pool.submit(_work_on, pair, task.part, search, report.stopped)
                    running[future] = task
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    part, make_search = running.pop(future)
                    if make_search is not None:
                        free.append(make_search)
                    result = future.result()
                    work.pending.remove(part)
                    if isinstance(result, list):
                        work.pending.extend(result)
                        waiting.extend(result)
                    else:
                        work.done[part.v, part.h] = result
                        report.add(part.bound, base)
                saved.save_if_due(lambda: work)
        except BaseException:
            report.stopped.set()
            raise


def _work_on(
    pair: Pair, part: Part, make_search: MakeSearch, stopped: threading.Event
) -> np.ndarray | list[Part]:
    """Return the operations of a part, or its halves."""
    if part.bound <= _WHOLE_PART:
        return _whole_path(part_of(pair, *part[:4]), part.bound)
    search = make_search(pair, part)
    while search.slice() == GOING:
        if stopped.is_set():
            raise InterruptedError
    return search.halves(part)


def _edits(ops: np.ndarray) -> int:
    return int((ops[(ops & 15) != cigar.EQUAL] >> 4).sum(dtype=np.int64))


def _joined(done: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    """Return the operations of all parts in order, runs that meet joined."""
    flat = np.concatenate([done[place] for place in sorted(done)])
    if len(flat) == 0:
        return flat
    first = np.flatnonzero(np.concatenate([[True], (flat[1:] & 15) != (flat[:-1] & 15)]))
    lengths = np.add.reduceat((flat >> 4).astype(np.int64), first)
    return ((lengths << 4) | (flat[first] & 15)).astype(np.uint32)
