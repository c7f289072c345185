"""Edit distance and path of two very long strings, in memory that grows with the distance.

The middle of a shortest path is searched in slices of wavefronts, between which progress is
reported, rows are widened, and the state may be saved. It divides the path, which ``search.py``
finds part by part.

References
----------
Castells-Rufas (2023), Parallel Computing, 103019: distance in O(d) memory. The path, which that
paper leaves open, by divide and conquer on wavefronts: Marco-Sola et al. (2023),
doi:10.1093/bioinformatics/btad074.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mapper import cigar
from mapper.align.edit.wavefront import EXCEEDED, FINISHED, GOING
from mapper.align.long.search import (
    Checkpoint,
    MakeSearch,
    Part,
    Progress,
    Report,
    Search,
    Work,
    align_one_long,
    find_path,
    joined_ops,
    n_edits,
)
from mapper.align.matches import Pair, pair_at
from mapper.align.packing import PackedPairs, pack_pairs
from mapper.align.pairs import MAX_LENGTH, batch_of, bytes_of, limit_of
from mapper.align.result import OK
from mapper.align.single import SCORE, STATUS, is_cpu, joined_letters, row_and_cigar
from mapper.align.threads import check_threads, thread_count
from mapper.cuda.devices import CPU, DeviceChoice, choose_device
from mapper.errors import UsageError
from mapper.io.sequences import only_sequence
from mapper.parallel.pool import dedicated_thread

MAX_PATH_LENGTH = 2**28 - 1
"""Longest run that a CIGAR operation in BAM's packing holds."""


_UNKNOWN = -1
"""Status of a running or failed search."""


class LongAlignment(NamedTuple):
    """Distance and, on request, path of two long strings."""

    distance: int | None  # None: above the limit
    cigar_ops: np.ndarray | None  # uint32, length << 4 | op; operations = X I D

    @property
    def cigar(self) -> str | None:
        return None if self.cigar_ops is None else cigar.to_text(self.cigar_ops)


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
        Called a few times a second with the number of edits whose position in the path is known
        and the number of edits known to be needed.
    checkpoint
        File to which the state is saved from time to time and when KeyboardInterrupt ends the
        search, and from which an interrupted search resumes; removed when all is done.
    checkpoint_seconds
        Time between saved states; None: a minute.

    Returns
    -------
    :class:`LongAlignment`: ``distance``, an int, or None above `max_distance`; ``cigar_ops``, the
    path as operations of BAM (uint32), or None without one; ``cigar``, the same as text.

    Raises
    ------
    UsageError
        For what is no string, strings that are too long, or a checkpoint of other strings or
        options.
    InputFormatError
        For a character that is no nucleotide letter, unless `symbols` is ``bytes``.
    DeviceError
        For a device that cannot be used, or whose memory does not suffice.

    Notes
    -----
    About d²/2 cells for a distance of d, and as many again for the path; memory O(d), and
    half a byte a symbol for packed DNA, on a device one byte. A checkpoint does not depend
    on where it was made.

    Examples
    --------
    >>> found = long_edit_distance("GATTACA" * 1000, "GATTAC" * 1000, path=True)
    >>> found.distance, found.cigar[:12]
    (1000, '6=1I6=1I6=1I')
    """
    is_alone = is_cpu(device) and progress is None and checkpoint is None
    letters = _few_letters(query, ref) if is_alone else None
    if letters is not None:
        check_threads(threads)
        longest = max(letters[1], len(letters[0]) - letters[1])
        bound = min(limit_of("max_distance", max_distance, MAX_LENGTH), longest)
        row, found = row_and_cigar(partial(_align_one, bound), letters, symbols, path, 0)
        if row[STATUS] != OK:
            return LongAlignment(None, None)
        return LongAlignment(int(row[SCORE]), found if path else None)
    choice = choose_device(device)
    packed = pack_pairs(batch_of([_bytes(query, "query")], [_bytes(ref, "ref")]), symbols)
    pair = pair_at(packed, 0)
    longest = max(pair.query_len, pair.ref_len)
    if path and longest > MAX_PATH_LENGTH:
        raise UsageError(
            f"a path of {longest} symbols: at most {MAX_PATH_LENGTH} are supported; ask for the "
            "distance only"
        )
    limit = limit_of("max_distance", max_distance, MAX_LENGTH)
    whole = Part(0, 0, int(pair.query_len), int(pair.ref_len), min(limit, int(longest)))
    n_threads = thread_count(threads)
    digest = "" if checkpoint is None else _digest(packed, path, whole.bound)
    saved = Checkpoint(checkpoint, digest, checkpoint_seconds)
    makers = _searches_on_devices(choice, pair)
    work = saved.load() or Work([whole], {}, None)
    report = Report(progress)
    if whole in work.pending:
        search = (makers or [Search])[0](pair, whole)
        status, work = _first_middle(search, whole, work, saved, report)
        if status == EXCEEDED:
            saved.remove()
            return LongAlignment(None, None)
    distance = sum(part.bound for part in work.pending)
    distance += sum(n_edits(ops) for ops in work.done.values())
    ops = None
    if path:
        find_path(pair, work, saved, n_threads, makers, report)
        ops = joined_ops(work.done)
    saved.remove()
    return LongAlignment(distance, ops)


def _few_letters(query: object, ref: object) -> tuple[np.ndarray, int] | None:
    """Return the letters of two strings that one call of compiled code compares, or None."""
    if isinstance(query, str | bytes) and isinstance(ref, str | bytes):
        return joined_letters(query, ref, ("query", "ref"))
    return None


def _align_one(bound: int, *arguments: Any) -> np.ndarray:
    ops: np.ndarray = align_one_long(*arguments, bound)
    return ops


def _bytes(sequence: object, argument: str) -> bytes:
    if isinstance(sequence, Path):
        return only_sequence(str(sequence))
    return bytes_of(sequence, argument)


def _digest(packed: PackedPairs, path: bool, bound: int) -> str:
    """Return a digest of sequences and options."""
    digest = hashlib.sha256(repr((path, bound, *map(int, packed.query_len))).encode())
    digest.update(repr([*map(int, packed.ref_len), *map(int, packed.shift)]).encode())
    digest.update(packed.query_words.data)
    digest.update(packed.ref_words.data)
    return digest.hexdigest()


def _searches_on_devices(choice: DeviceChoice, pair: Pair) -> list[MakeSearch]:
    """Upload the pair to all devices; return a function for each that makes a search there."""
    if choice.backend == CPU:
        return []
    from mapper.align.long.cuda import LongPair

    return [LongPair(ordinal, pair).search for ordinal in choice.ordinals]


def _first_middle(
    search: Search, whole: Part, work: Work, saved: Checkpoint, report: Report
) -> tuple[int, Work]:
    """Search the middle of the whole pair, saving now and then; divide the work there."""
    if work.search is not None:
        search.restore(work.search)
    status = _UNKNOWN

    def advance() -> None:
        nonlocal status
        status = _UNKNOWN  # an error or a signal may end the slice early
        status = search.slice()

    def state() -> Work:
        return work._replace(search=search.saved())

    with (
        saved.kept_by_signals(lambda: state() if status == GOING else None),
        dedicated_thread() as call,
    ):
        call(advance)
        while status == GOING:
            report.add(0, search.edits)
            saved.save_if_due(state)
            call(advance)
    if status == EXCEEDED or search.edits > whole.bound:
        return EXCEEDED, work
    return FINISHED, Work(search.halves(whole), {}, None)
