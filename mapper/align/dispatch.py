"""Dispatch of pairs to the CPU or to CUDA devices, for every metric.

Global pairs of nucleotides go through the streamed pass of a device (``cuda/stream.py``); what that
cannot solve, and all other pairs, go to the devices in chunks by :func:`run_on_devices`: each chunk
to the next idle device, results in input order. A chunk for which a device has no memory is halved.
Pairs that a device does not solve are aligned on the CPU by the same cores, with the same result,
while the device goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from mapper.align.coding import LetterPairs
from mapper.align.packing import (
    PackedPairs,
    check_columns,
    check_places,
    check_symbols,
    pack_pairs,
)
from mapper.align.pairs import PairBatch, Sequences, batch_of, checked_batch
from mapper.align.parts import CpuPairs, cpu_pairs
from mapper.align.result import Columns, PairAlignments, new_columns
from mapper.align.threads import chunk_bounds, thread_count
from mapper.cuda.devices import AUTO, CPU, DeviceChoice, check_device_name, choose_device
from mapper.cuda.halving import Halves, in_halves
from mapper.errors import UsageError, option
from mapper.jit.accelerate import driver
from mapper.parallel.map import any_idle, ordered_map
from mapper.parallel.pool import thread_pool

if TYPE_CHECKING:
    from mapper.align.cuda.launch_plan import LaunchPlan

PairInput = Sequences | PairBatch | PackedPairs


def packed_pairs(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    symbols: str = "dna",
    threads: int | None = None,
    first_pair: int = 0,
    device: str = "cpu",
) -> PackedPairs:
    """Pack pairs for :func:`mapper.edit_distance` or :func:`mapper.align_affine`.

    Parameters
    ----------
    queries, refs, symbols, threads, first_pair
        As for :func:`mapper.edit_distance`. The packing carries the rule of what matches.
    device
        Where the pairs will be aligned, as for :func:`mapper.edit_distance`. For CUDA devices they
        are packed into page-locked memory, which devices copy directly. Locking memory takes
        longer than packing; it is reused once nothing refers to it.

    Returns
    -------
    The words of both sides, each sequence from the start of a word on: 2 bits a symbol for pairs of
    A, C, G and T (A 0, C 1, T 2, G 3), the first in the lowest bits; else 4 or 8.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`.

    Examples
    --------
    >>> import mapper
    >>> packed = mapper.packed_pairs(["GATTACA", "ACGT"], ["GAATA", "ACGA"])
    >>> mapper.edit_distance(packed).score.tolist()
    [3, 1]
    """
    choice = choose_device(device)
    if choice.backend == CPU:
        return pack_pairs(as_batch(queries, refs), symbols, first_pair, thread_count(threads))
    from mapper.cuda.api import device_context
    from mapper.cuda.memory import page_locked

    with device_context(choice.ordinals[0]):
        return pack_pairs(
            as_batch(queries, refs), symbols, first_pair, thread_count(threads), new=page_locked
        )


def as_batch(
    queries: Sequences | PairBatch, refs: Sequences | None, padded: bool = True,
    checked: bool = True,
) -> PairBatch:  # fmt: skip
    """Return a batch: the one given, or one of two sets or of a file of pairs.

    `padded`, `checked` and errors are as for :func:`batch_of`, with a batch as for
    :func:`checked_batch`; UsageError, too, if references are missing, or given in addition to a
    batch.
    """
    if isinstance(queries, PairBatch):
        _check_alone(refs)
        return checked_batch(queries, padded, checked)
    if isinstance(queries, Path) and refs is None:
        from mapper.align.pair_reader import read_all_pairs

        return read_all_pairs(str(queries))
    if refs is None:
        raise UsageError("references are missing (a file of pairs is a pathlib.Path)")
    return batch_of(queries, refs, padded, checked)


def _check_alone(refs: Sequences | None) -> None:
    if refs is not None:
        raise UsageError("pairs hold the references already; give no others")


def align_pairs(
    queries: PairInput,
    refs: Sequences | None,
    *,
    choice: DeviceChoice,
    symbols: str,
    first_pair: int,
    threads: int | None,
    cigar: bool,
    on_cpu: Callable[[CpuPairs], PairAlignments],
    on_device: Callable[[int], Worker],
    plan: Callable[[], LaunchPlan] | None,
) -> PairAlignments:
    """Align pairs on the CPU or on the devices of `choice`, with the functions of a metric.

    Parameters
    ----------
    on_cpu
        Aligns pairs on the CPU.
    on_device
        Returns a worker for a device, by ordinal.
    plan
        Returns the launch plan of the streamed pass; None for alignments that are not global: such
        pairs go to the workers at once.
    """
    if choice.backend == CPU:
        return on_cpu(pairs_on_cpu(queries, refs, symbols, first_pair, threads))
    pairs: PairBatch | PackedPairs
    if isinstance(queries, PackedPairs):
        _check_alone(refs)
        check_columns(queries)
        pairs = queries
        streamed = plan is not None and _has_two_bits(pairs.shift)
        if not streamed:  # else the streamed pass checks them
            check_places(pairs, thread_count(threads))
    else:
        # The streamed pass needs no padding, and checks lengths while staging.
        streamed = plan is not None and symbols in ("dna", "iupac")
        pairs = as_batch(queries, refs, padded=not streamed, checked=not streamed)
        if not streamed:
            pairs = pack_pairs(pairs, symbols, first_pair, thread_count(threads))
    workers = [on_device(ordinal) for ordinal in choice.ordinals]

    def fallback(unsolved: PairBatch | PackedPairs, numbers: np.ndarray) -> PairAlignments:
        if isinstance(unsolved, PairBatch):
            unsolved = pack_pairs(unsolved, symbols, first_pair, thread_count(threads), numbers)
        return run_on_devices(workers, unsolved, cigar, on_cpu)

    if plan is None or (isinstance(pairs, PackedPairs) and not streamed):
        assert isinstance(pairs, PackedPairs)
        return run_on_devices(workers, pairs, cigar, on_cpu)
    from mapper.align.cuda.sources import LetterSource, PackedSource
    from mapper.align.cuda.stream import align_streamed

    source = PackedSource(pairs) if isinstance(pairs, PackedPairs) else LetterSource(pairs)
    return align_streamed(choice.ordinals, plan(), source, cigar, thread_count(threads), fallback)


def cpu_only(device: str, what: str) -> str:
    """Return the name of the CPU; raise UsageError if a CUDA device is asked for by name.

    `what` begins the message: what is done, as "two-piece gaps are aligned".
    """
    check_device_name(device)
    if device not in (CPU, AUTO):
        raise UsageError(
            f"{option('device', device)}: {what} by the CPU only, so far; "
            f"leave {option('device')} out, or give cpu"
        )
    return CPU


def pairs_on_cpu(
    queries: PairInput, refs: Sequences | None, symbols: str, first_pair: int, threads: int | None
) -> CpuPairs:
    """Return the pairs of a call for the CPU."""
    if isinstance(queries, PackedPairs):
        _check_alone(refs)
        check_columns(queries)
        check_places(queries, thread_count(threads))
        return queries
    if refs is None or isinstance(queries, PairBatch):
        check_symbols(symbols)
        return LetterPairs(as_batch(queries, refs, padded=False), symbols, first_pair)
    return cpu_pairs(queries, refs, symbols, first_pair)


def _has_two_bits(shift: np.ndarray) -> bool:
    """Return True if any pair takes 2 bits a symbol; the first one most often does."""
    return bool((shift[:1] == 1).any() or (shift == 1).any())


# --- chunks of packed pairs over devices ---


CHUNK_PAIRS = 1 << 18
CHUNK_SYMBOLS = 1 << 27
"""Most pairs and symbols of a chunk."""


class Worker(Protocol):
    """Aligns packed pairs on one device."""

    def align(
        self, packed: PackedPairs, want_path: bool, columns: Columns, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Fill the rows of the pairs that the device solves.

        Returns
        -------
        unsolved, done, ops
            Unsolved pairs, solved pairs in the order of their operations, and all operations
            (uint32).
        """

    def release(self) -> None:
        """Free the device's memory."""


CpuFallback = Callable[[PackedPairs], PairAlignments]
"""Aligns pairs on the CPU."""


def run_on_devices(
    workers: Sequence[Worker], packed: PackedPairs, want_path: bool, on_cpu: CpuFallback
) -> PairAlignments:
    """Align all pairs, in chunks, by several workers.

    The pairs of a chunk that a worker does not solve go to the CPU while it goes on with the next.
    """
    bounds = chunk_bounds(packed.query_len + packed.ref_len, CHUNK_SYMBOLS, CHUNK_PAIRS)
    chunks = [packed_part(packed, first, last) for first, last in bounds]
    # One thread: the CPU's driver takes all cores by itself.
    with thread_pool(1, abandon=True) as cpu:

        def align(worker: Worker, chunk: PackedPairs) -> list[Future[PairAlignments]]:
            return [
                cpu.submit(_completed, part, want_path, on_cpu)
                for part in _on_device(worker, chunk, want_path)
            ]

        work = any_idle([partial(align, worker) for worker in workers])
        begun = list(ordered_map(work, chunks, len(workers)))
        return joined([future.result() for parts in begun for future in parts], want_path)


def packed_part(packed: PackedPairs, first: int, last: int) -> PackedPairs:
    """Return pairs first:last with their words only."""
    query_words, query_start = _words(packed.query_words, packed.query_start, first, last)
    ref_words, ref_start = _words(packed.ref_words, packed.ref_start, first, last)
    rows = slice(first, last)
    return PackedPairs(
        query_words, query_start, packed.query_len[rows], ref_words, ref_start,
        packed.ref_len[rows], packed.shift[rows],
    )  # fmt: skip


def _words(
    words: np.ndarray, starts: np.ndarray, first: int, last: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of some sequences, with one before and two after, and their starts."""
    begin = int(starts[first]) - 1
    end = int(starts[last]) + 2 if last < len(starts) else len(words)
    return words[begin:end], starts[first:last] - begin


class _Part(NamedTuple):
    """A chunk, or half of one, with the results of a worker."""

    packed: PackedPairs
    columns: Columns
    counts: np.ndarray  # int64 (n,): operations of each pair
    unsolved: np.ndarray  # int64
    done: np.ndarray  # int64: the other pairs, in the order of their operations
    ops: np.ndarray  # uint32


def _on_device(worker: Worker, packed: PackedPairs, want_path: bool) -> list[_Part]:
    """Align one chunk; in halves if the device has too little memory."""

    def align(packed: PackedPairs) -> list[_Part]:
        n = len(packed.shift)
        columns, counts = new_columns(n), np.zeros(n, np.int64)
        return [_Part(packed, columns, counts, *worker.align(packed, want_path, columns, counts))]

    def halve(packed: PackedPairs) -> Halves[PackedPairs, list[_Part]] | None:
        n = len(packed.shift)
        if n == 1:
            return None
        return Halves([packed_part(packed, 0, n // 2), packed_part(packed, n // 2, n)], _flat)

    return in_halves(align, packed, halve, worker.release)


def _flat(parts: list[list[_Part]]) -> list[_Part]:
    return [part for parts_of_half in parts for part in parts_of_half]


def _completed(part: _Part, want_path: bool, on_cpu: CpuFallback) -> PairAlignments:
    """Align the unsolved pairs on the CPU, and put all operations in the order of the pairs."""
    packed, columns, counts, unsolved, done, ops = part
    all_pairs, all_ops = [done], [ops]
    if len(unsolved):
        found = on_cpu(
            packed._replace(
                query_start=packed.query_start[unsolved], query_len=packed.query_len[unsolved],
                ref_start=packed.ref_start[unsolved], ref_len=packed.ref_len[unsolved],
                shift=packed.shift[unsolved],
            )
        )  # fmt: skip
        for column, values in zip(columns, found[:6], strict=True):
            column[unsolved] = values
        if found.cigar_offsets is not None and found.cigar_ops is not None:
            counts[unsolved] = np.diff(found.cigar_offsets)
            all_pairs.append(unsolved)
            all_ops.append(found.cigar_ops)
    if not want_path:
        return PairAlignments(*columns, None, None)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    flat = np.empty(int(offsets[-1]), np.uint32)
    scatter_ops(np.concatenate(all_pairs), np.concatenate(all_ops), offsets, flat)
    return PairAlignments(*columns, offsets, flat)


@driver
def scatter_ops(pairs, ops, offsets, flat):
    """Copy the operations of each pair, consecutive in `ops`, to its offset in `flat`."""
    at = 0
    for i in range(len(pairs)):
        start, end = offsets[pairs[i]], offsets[pairs[i] + 1]
        for x in range(start, end):
            flat[x] = ops[at + x - start]
        at += end - start


def joined(parts: list[PairAlignments], want_path: bool) -> PairAlignments:
    """Return the results of several chunks as one."""
    if not parts:
        nothing = np.zeros(1, np.int64), np.empty(0, np.uint32)
        return PairAlignments(*new_columns(0), *(nothing if want_path else (None, None)))
    columns = [np.concatenate([part[i] for part in parts]) for i in range(6)]
    if not want_path:
        return PairAlignments._make([*columns, None, None])
    counts = [np.diff(part.cigar_offsets) for part in parts if part.cigar_offsets is not None]
    ops = [part.cigar_ops for part in parts if part.cigar_ops is not None]
    offsets = np.zeros(len(columns[0]) + 1, np.int64)
    np.cumsum(np.concatenate(counts), out=offsets[1:])
    return PairAlignments._make([*columns, offsets, np.concatenate(ops)])
