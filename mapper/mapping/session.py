"""The state that mapping runs share, one after another: the index, on devices too, and threads."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from mapper.cuda.devices import CPU, DeviceChoice
from mapper.index.huge_pages import IndexInUse
from mapper.index.index import Index
from mapper.io.reference_fasta import check_reference
from mapper.io.samtools import check_fasta
from mapper.mapping.backend import Backend, CpuBackend
from mapper.mapping.device_io import DeviceIO, open_device_io
from mapper.mapping.stats import RunStats
from mapper.pair.records import Names, make_names
from mapper.parallel.pool import READ, PriorityPool
from mapper.params import MapParams

if TYPE_CHECKING:
    from mapper.mapping.device_servers import DeviceServers
    from mapper.mapping.stages_cuda import DeviceStages

log = logging.getLogger(__name__)


class Session:
    """Runs with one index, one at a time; a context manager.

    It keeps the threads, the index in a device's memory, and which FASTA files have been compared
    with the index.

    Parameters
    ----------
    checks
        Reads the index's files during the first run, and raises if one is damaged
        (:func:`mapper.index.storage.checks`); None for an index that has no files.
    path
        Of the index; None for one that has no files.
    """

    def __init__(
        self, index: Index, checks: Iterator[None] | None = None, path: str | None = None
    ) -> None:
        self.index = index
        self._path = path
        self._in_use = IndexInUse(index)
        self._checks = checks
        self.pool = PriorityPool(0)
        self._choice = DeviceChoice(CPU)
        self._stages: DeviceStages | DeviceServers | None = None
        self._servers: DeviceServers | None = None  # the stages, if these are of several devices
        self._started = ExitStack()  # ends the servers that this session has started
        self._device_io: dict[tuple[Sequence[int], str, int, int], DeviceIO] = {}
        self._opened = ExitStack()
        self._checked: set[tuple[str, int, int, int]] = set()
        self._names: dict[str, Names] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads, and release the devices' memory."""
        self.pool.shutdown()
        self._opened.close()
        self._device_io.clear()
        self._stages = self._servers = None
        self._started.close()

    def names(self, read_group: str) -> Names:
        """Return the names of the contigs and of a read group's ID, empty for none."""
        if read_group not in self._names:
            self._names[read_group] = make_names(self.index.contigs, read_group)
        return self._names[read_group]

    def beside(self) -> Session:
        """Return a session with threads of its own, and the same index, on devices too."""
        other = Session(self.index, self._checks, self._path)
        other._choice, other._stages, other._names = self._choice, self._stages, self._names
        other._servers, other._in_use = self._servers, self._in_use
        self._checks = None
        return other

    def backend(
        self, choice: DeviceChoice, params: MapParams, stats: RunStats, *, may_copy: bool,
        input_bytes: int, threads: int,
    ) -> Backend:  # fmt: skip
        """Return a run's backend; the first one of a device copies the index there.

        Parameters
        ----------
        may_copy
            Whether a run on the CPU may copy the index to huge pages, memory of its own.
        input_bytes
            Bytes of its files of reads, as far as that is known.
        threads
            Of the run.

        Raises
        ------
        DeviceMemoryError
            If the index does not fit.
        """
        if choice.backend == CPU:
            return CpuBackend(
                self._in_use, params, stats, may_copy=may_copy, input_bytes=input_bytes
            )
        with stats.starting():
            from mapper.mapping.device_batches import CudaBackend

            return CudaBackend(self._stages_on(choice, threads), params, stats)

    def device_io(
        self, choice: DeviceChoice, compress_on: str, level: int, threads: int
    ) -> DeviceIO:
        """Return the streams for BGZF of a run; see :func:`open_device_io`."""
        wanted = choice.ordinals, compress_on, level, threads
        if wanted not in self._device_io:
            self._opened.close()
            ordinal = choice.ordinals[0] if len(choice.ordinals) == 1 else None
            servers = self._servers if len(choice.ordinals) > 1 else None
            io = open_device_io(self._opened, ordinal, *wanted[1:], servers)
            self._device_io = {wanted: io}
        return self._device_io[wanted]

    def _stages_on(self, choice: DeviceChoice, threads: int) -> DeviceStages | DeviceServers:
        if self._stages is None or choice != self._choice:
            self._stages = self._servers = None  # their memory may be needed
            self._opened.close()
            self._device_io.clear()
            self._started.close()
            if len(choice.ordinals) > 1:
                from mapper.cuda.memory import n_sharing
                from mapper.mapping.device_servers import DeviceServers

                self._stages = self._servers = DeviceServers(
                    self.index, self._path, choice.ordinals, n_sharing(), threads
                )
                self._started.callback(self._servers.close)
            else:
                from mapper.mapping.stages_cuda import DeviceStages

                self._stages = DeviceStages(self.index, choice.ordinals[0])
            self._choice = choice
            log.info(
                "the index takes %.2f GB of each device's memory; in the rest batches of %.1f M "
                "bases fit, and are made smaller where they do not",
                self._stages.index_bytes / 1e9, self._stages.batch_bases / 1e6,
            )  # fmt: skip
        return self._stages

    def check_index(self) -> Future[None]:
        """Check the index's files once, by the pool, in steps between its other tasks.

        It starts early, so that no run waits for it at the end.

        Returns
        -------
        A future that raises IndexFormatError if a file is damaged; to be waited for before a run
        ends.
        """
        done: Future[None] = Future()
        checks, self._checks = self._checks or iter(()), None

        def step() -> None:
            try:
                next(checks)
            except StopIteration:
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)
            else:
                self.pool.submit(READ, step)

        self.pool.submit(READ, step)
        return done

    def check_reference(self, fasta: str, threads: int = 1) -> None:
        """Compare a FASTA file with the index, contig by contig, unless that has been done.

        Parameters
        ----------
        threads
            Threads of the pool for the comparison.

        Raises
        ------
        MapperError
            See :func:`mapper.io.reference_fasta.check_reference`.
        """
        contigs = self.index.contigs
        check_fasta(Path(fasta))
        try:
            found = Path(fasta).stat()
        except OSError:  # check_reference has the better message
            check_reference(Path(fasta), contigs.names, contigs.md5)
            return
        state = (os.path.realpath(fasta), found.st_ino, found.st_size, found.st_mtime_ns)
        if state not in self._checked:
            self.pool.resize(threads)
            check_reference(Path(fasta), contigs.names, contigs.md5, self.pool)
            self._checked.add(state)
