"""What mapping runs share, one after another: the index, on devices too, and the threads."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from mapper.cuda.devices import CPU, DeviceChoice
from mapper.index.index import Index
from mapper.io.reference_fasta import check_reference
from mapper.io.samtools import check_fasta
from mapper.parallel.pool import READ, Workers

if TYPE_CHECKING:
    from mapper.mapping.stages_cuda import DeviceStages

log = logging.getLogger(__name__)


class Session:
    """Runs with one index, one at a time; a context manager.

    What a run finds here it need not make again: threads, the index in a device's memory, and
    that a FASTA file is the one that was indexed. Compiled code stays with the process anyway.

    Parameters
    ----------
    checks
        Reads the index's files beside the first run, and raises if one is damaged
        (:func:`mapper.index.storage.checks`); none where nobody knows of files.
    """

    def __init__(self, index: Index, checks: Iterator[None] | None = None) -> None:
        self.index = index
        self._checks = checks
        self.pool = Workers(0)
        self._choice = DeviceChoice(CPU)
        self._stages: DeviceStages | None = None
        self._checked: set[tuple[str, int, int, int]] = set()

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
        """Let the threads end, and the devices' memory go."""
        self.pool.shutdown()
        self._stages = None

    def stages_on(self, choice: DeviceChoice) -> DeviceStages | None:
        """Return the stages of devices, the index copied there when they are first asked for.

        Raises
        ------
        DeviceMemoryError
            If the index does not fit.
        """
        if choice.backend == CPU:
            return None
        if self._stages is None or choice != self._choice:
            from mapper.mapping.stages_cuda import DeviceStages

            self._stages = None  # its memory may be needed
            self._stages = DeviceStages(self.index, choice.ordinals)
            self._choice = choice
            held = self._stages.lanes[0].fm
            n_bytes = sum(column.nbytes for column in held if hasattr(column, "nbytes"))
            log.info(
                "the index takes %.2f GB of each device's memory; in the rest batches of %.1f M "
                "bases fit, and are made smaller where they do not",
                n_bytes / 1e9, self._stages.batch_bases / 1e6,
            )  # fmt: skip
        return self._stages

    def check_index(self) -> Future[None]:
        """Have the index's files checked, once, by the pool, in steps between its other tasks.

        Early, as most of it is going to be read anyway, and so nobody waits for it at the end.

        Returns
        -------
        What fails with IndexFormatError if one is damaged; to be asked before a run ends.
        """
        done: Future[None] = Future()
        checks, self._checks = self._checks or iter(()), None

        def go_on() -> None:
            try:
                next(checks)
            except StopIteration:
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)
            else:
                self.pool.submit(READ, go_on)

        self.pool.submit(READ, go_on)
        return done

    def check_reference(self, fasta: str, threads: int = 1) -> None:
        """Compare a FASTA file with the index, contig by contig, unless it has been already.

        Parameters
        ----------
        threads
            Threads of the pool for this.

        Raises
        ------
        MapperError
            See :func:`mapper.io.reference_fasta.check_reference`.
        """
        contigs = self.index.contigs
        check_fasta(Path(fasta))
        try:
            found = Path(fasta).stat()
        except OSError:  # check_reference says it better
            check_reference(Path(fasta), contigs.names, contigs.md5)
            return
        state = (os.path.realpath(fasta), found.st_ino, found.st_size, found.st_mtime_ns)
        if state not in self._checked:
            self.pool.resize(threads)
            check_reference(Path(fasta), contigs.names, contigs.md5, self.pool)
            self._checked.add(state)
