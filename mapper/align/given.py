"""Pairs as callers give them, on their way to the CPU or to devices, whatever the metric."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mapper.align.packed_check import check_columns, check_places
from mapper.align.packing import PackedPairs, pack_pairs
from mapper.align.pairs import PairBatch, Sequences, batch_of
from mapper.align.result import PairAlignments
from mapper.align.threads import thread_count
from mapper.cuda.devices import CPU, DeviceChoice, choose_device
from mapper.errors import UsageError

if TYPE_CHECKING:
    from mapper.align.cuda.launch_plan import FlatMetric
    from mapper.align.dispatch import Worker

Given = Sequences | PairBatch | PackedPairs


def packed_pairs(
    queries: Sequences | PairBatch,
    refs: Sequences | None = None,
    *,
    symbols: str = "dna",
    threads: int | None = None,
    first_pair: int = 0,
    device: str = "cpu",
) -> PackedPairs:
    """Pack pairs, to be given to :func:`mapper.edit_distance` or :func:`mapper.align_affine`.

    Parameters
    ----------
    queries, refs, symbols, threads, first_pair
        As for :func:`mapper.edit_distance`. The packing carries the rule of what matches.
    device
        Where the pairs are to be aligned, as for :func:`mapper.edit_distance`. For CUDA devices
        they are packed into page-locked memory, which devices copy without the host's help. To
        lock memory takes longer than to pack; it is used again when nothing refers to it any more.

    Returns
    -------
    The words of both sides, a sequence from a word's start on: 2 bits a symbol for pairs of A, C,
    G and T (A 0, C 1, T 2, G 3), the first in the lowest bits; else 4 or 8.

    Raises
    ------
    UsageError, InputFormatError, DeviceError
        As for :func:`mapper.edit_distance`.
    """
    choice = choose_device(device)
    if choice.backend == CPU:
        return pack_pairs(as_batch(queries, refs), symbols, first_pair, thread_count(threads))
    from mapper.cuda.api import cuda
    from mapper.cuda.memory import page_locked

    with cuda.gpus[choice.ordinals[0]]:
        return pack_pairs(
            as_batch(queries, refs), symbols, first_pair, thread_count(threads), new=page_locked
        )


def as_batch(
    queries: Sequences | PairBatch, refs: Sequences | None, padded: bool = True,
    checked: bool = True,
) -> PairBatch:  # fmt: skip
    """Return a batch, made of two sets or of a file of pairs if it is none yet.

    `padded`, `checked` and what is raised are as for :func:`batch_of`; UsageError, too, for
    references that are missing, or that are given beside a batch.
    """
    if isinstance(queries, PairBatch):
        _check_alone(refs)
        return queries
    if isinstance(queries, Path) and refs is None:
        from mapper.align.pair_reader import read_all_pairs

        return read_all_pairs(str(queries))
    if refs is None:
        raise UsageError("references are missing (a file of pairs is a pathlib.Path)")
    return batch_of(queries, refs, padded, checked)


def _check_alone(refs: Sequences | None) -> None:
    if refs is not None:
        raise UsageError("pairs hold the references already; give no others")


def align_given(
    queries: Given,
    refs: Sequences | None,
    *,
    choice: DeviceChoice,
    symbols: str,
    first_pair: int,
    threads: int | None,
    cigar: bool,
    is_global: bool,
    on_cpu: Callable[[PackedPairs], PairAlignments],
    on_device: Callable[[int], Worker],
    metric: Callable[[], FlatMetric],
) -> PairAlignments:
    """Align pairs where `choice` says, by what a metric brings along for that.

    Parameters
    ----------
    is_global
        Whether no end is free: such pairs go through the first pass of a device.
    on_cpu, on_device
        Aligns packed pairs on the CPU; makes what does so on a device (of this ordinal).
    metric
        Makes what the first pass launches.
    """
    pairs: PairBatch | PackedPairs
    if isinstance(queries, PackedPairs):
        _check_alone(refs)
        check_columns(queries)
        pairs = queries
        flat = choice.backend != CPU and is_global and _has_two_bits(pairs.shift)
        if not flat:  # else it is found out on the way
            check_places(pairs, thread_count(threads))
    else:
        # A device takes most pairs as they lie in memory, and lengths are looked at on the way.
        flat = choice.backend != CPU and is_global and symbols in ("dna", "iupac")
        pairs = as_batch(queries, refs, padded=not flat, checked=not flat)
        if not flat:
            pairs = pack_pairs(pairs, symbols, first_pair, thread_count(threads))
    if choice.backend == CPU and isinstance(pairs, PackedPairs):
        return on_cpu(pairs)
    from mapper.align.cuda.flat_packed import PackedSource
    from mapper.align.cuda.flat_rest import align_flat
    from mapper.align.cuda.sources import LetterSource
    from mapper.align.dispatch import run_on_devices

    workers = [on_device(ordinal) for ordinal in choice.ordinals]

    def rest(left: PairBatch | PackedPairs, numbers: np.ndarray) -> PairAlignments:
        if isinstance(left, PairBatch):
            left = pack_pairs(left, symbols, first_pair, thread_count(threads), numbers)
        return run_on_devices(workers, left, cigar, on_cpu)

    if isinstance(pairs, PackedPairs) and not flat:
        return run_on_devices(workers, pairs, cigar, on_cpu)
    source = PackedSource(pairs) if isinstance(pairs, PackedPairs) else LetterSource(pairs)
    return align_flat(choice.ordinals, metric(), source, cigar, thread_count(threads), rest)


def _has_two_bits(shift: np.ndarray) -> bool:
    """Whether any pair takes 2 bits a symbol; the first most often does."""
    return bool((shift[:1] == 1).any() or (shift == 1).any())
