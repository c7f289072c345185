"""The interface between a mapping run and the hardware that aligns its reads; the CPU backend.

A run submits batches in input order and takes futures of their results. On which threads a batch
is parsed and aligned, and whether several batches are aligned as one, is up to the backend. The
backend of CUDA devices is :class:`mapper.mapping.device_batches.CudaBackend`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import numpy as np

from mapper import batch_ops
from mapper.batch import ReadBatch
from mapper.index.huge_pages import IndexInUse
from mapper.io.batch_reader import FastqText
from mapper.mapping.stages import (
    Aligned,
    AlignedBatch,
    EncodedReads,
    LongAligned,
    align_long_reads,
    align_reads,
)
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import InsertSizeModel
from mapper.pair.records import Names
from mapper.parallel.buffers import RECYCLER
from mapper.parallel.pool import MAP, READ, PriorityPool
from mapper.params import BATCH_BASES, MapParams

Result = TypeVar("Result")


class Backend(ABC):
    """Aligns the batches of one run. Called by one thread."""

    n_streams: int = 0
    """CUDA streams of all devices; 0 on the CPU."""

    process_bytes: int = 0
    """Memory of the processes that it has started."""

    input_memory: Callable[[int], np.ndarray] = staticmethod(RECYCLER.empty)
    """Returns memory (uint8) of a number of bytes, where the text of the input is to lie."""

    default_batch_bases: int = BATCH_BASES
    """Bases of a batch if the user names no number."""

    @property
    def parses_fastq(self) -> bool:
        """True if FASTQ need not be parsed by the host; a device may still leave some to it."""
        return False

    def member_bases(self, batch_bases: int, n_threads: int, input_bytes: int) -> int:
        """Return the bases of the batches to submit, if there is memory for them.

        Parameters
        ----------
        batch_bases
            Bases of the batches to align.
        n_threads
            Size of the pool.
        input_bytes
            Bytes of the files of reads, as far as that is known.
        """
        return batch_bases

    @abstractmethod
    def enable_records(self, names: Names, reads_fastq: bool) -> None:
        """Let batches come back as BAM records, where the hardware can; before :meth:`warm_up`.

        Parameters
        ----------
        names
            Of contigs and read group, for the records.
        reads_fastq
            The input has FASTQ, which the hardware may parse, too.
        """

    @abstractmethod
    def warm_up(self, reads: ReadBatch) -> Aligned:
        """Align a few reads in every way that a run does, so that all code is compiled."""

    @abstractmethod
    def start(self, pool: PriorityPool, n_threads: int, group_size: int) -> None:
        """Prepare for batches.

        Parameters
        ----------
        pool
            Runs the tasks of the CPU.
        n_threads
            Size of the pool.
        group_size
            Batches to align at a time, if that is done by groups.
        """

    @property
    @abstractmethod
    def most_pending(self) -> int:
        """Batches to keep in flight so that nothing waits for another's slow batch."""

    @abstractmethod
    def submit(
        self, parse: Callable[[], ReadBatch], model: InsertSizeModel | None,
        finish: Callable[[AlignedBatch | EncodedReads], Result], text: FastqText | None = None,
    ) -> Future[Result]:  # fmt: skip
        """Queue the next batch; return the future of what `finish` returns for it.

        Parameters
        ----------
        parse
            Returns the batch; called by a thread of the pool.
        model
            None if mates are not to be rescued yet: the insert size is still to be estimated.
        finish
            Takes the aligned batch; called by a thread of the pool.
        text
            The batch for a device, which may take it in place of what `parse` returns.
        """

    @abstractmethod
    def flush(self) -> None:
        """Start batches that wait to be aligned together with later ones."""

    @abstractmethod
    def close(self) -> None:
        """End the backend's own threads; wait for batches in work, and drop the others."""

    @abstractmethod
    def free_memory(self) -> None:
        """Free the memory that is kept for later batches; called after :meth:`close`."""


class CpuBackend(Backend):
    """Parses, aligns and finishes each batch in one task of the pool."""

    def __init__(
        self, in_use: IndexInUse, params: MapParams, stats: RunStats, *, may_copy: bool,
        input_bytes: int,
    ) -> None:  # fmt: skip
        self._in_use, self._params, self._stats = in_use, params, stats
        self._may_copy, self._input_bytes = may_copy, input_bytes
        self._pool: PriorityPool
        self._n_threads = 0

    def enable_records(self, names: Names, reads_fastq: bool) -> None:
        pass  # batches are finished by the run

    def warm_up(self, reads: ReadBatch) -> Aligned:
        return align_reads(self._in_use.index, reads, self._params, RunStats())

    def start(self, pool: PriorityPool, n_threads: int, group_size: int) -> None:
        self._pool, self._n_threads = pool, n_threads
        if self._may_copy:
            self._in_use.expect(self._input_bytes, pool.at(READ))

    @property
    def most_pending(self) -> int:
        return self._n_threads + 2

    def submit(
        self, parse: Callable[[], ReadBatch], model: InsertSizeModel | None,
        finish: Callable[[AlignedBatch | EncodedReads], Result], text: FastqText | None = None,
    ) -> Future[Result]:  # fmt: skip
        # `finish` rescues the mates, as for every batch of which that has not been done.
        return self._pool.submit(MAP, partial(self._map, parse, finish))

    def _map(
        self, parse: Callable[[], ReadBatch],
        finish: Callable[[AlignedBatch | EncodedReads], Result],
    ) -> Result:  # fmt: skip
        return finish(self.align(parse()))

    def flush(self) -> None:
        pass  # no batch waits for others

    def close(self) -> None:
        pass  # the session's pool has the only threads

    def free_memory(self) -> None:
        pass  # there is none but the recycler's, which the run clears

    def align(self, reads: ReadBatch) -> AlignedBatch:
        """Align pairs, single reads and long reads of a batch apart."""
        parts = batch_ops.split_mixed(reads, self._params.longest_short)
        aligned: list[Aligned | LongAligned] = []
        for part in parts:
            align = align_long_reads if part.is_long else align_reads
            aligned.append(align(self._in_use.index, part.reads, self._params, self._stats))
        if self._may_copy:
            self._in_use.has_mapped(len(reads.bases), self._pool.at(READ))
        return AlignedBatch(reads, [part.rows for part in parts], aligned)
