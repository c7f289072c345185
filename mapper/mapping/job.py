"""The request to a mapping run: files, options and limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mapper.cuda.devices import CPU, DeviceChoice
from mapper.io.reads import Lane
from mapper.mapping.device_io import AUTO, HOST
from mapper.pair.insert_size import InsertSizeModel
from mapper.params import RESUME_SECONDS, MapParams
from mapper.sorting.options import SortOptions


class Resume(NamedTuple):
    """How a run goes on where a process before it was killed; see :mod:`mapper.mapping.resume`."""

    index_checksum: str
    """See :func:`mapper.index.storage.checksum`."""
    restarts: bool = False
    """Begin anew where the state is of another run or damaged, instead of refusing it."""
    seconds: float = RESUME_SECONDS
    """Between two states."""


@dataclass(frozen=True)
class MapJob:
    """The reads to map, and how to write their records."""

    reads: Sequence[str] = ()
    """The files of the only sequencing lane; empty if there are several ``lanes``."""
    output: str = ""
    output_format: str = "bam"
    interleaved: bool = False
    orphans: str = "map"
    """See :attr:`mapper.io.reads.ReadOptions.orphans`."""
    read_group: str | None = None
    """Read group line of the only lane."""
    lanes: Sequence[Lane] = ()
    keep_comments: bool = False
    reference: str | None = None
    """FASTA file of the indexed reference, for CRAM output."""
    input_reference: str | None = None
    """FASTA file to which CRAM input was compressed."""
    command_line: str = "fmwave map"
    sort: SortOptions | None = None
    compression: int = 1
    compress_on: str = AUTO
    """Where BAM is compressed: see :data:`mapper.mapping.device_io.COMPRESS_ON`."""
    threads: int = 1
    """Threads of all processes of the run."""
    memory: int | None = None
    """Bytes of all processes of the run; None for no bound."""
    batch_bases: int | None = None
    """Bases of a batch; None for BATCH_BASES or, with a device, for as many as fit its memory."""
    insert_size: InsertSizeModel | None = None
    resume: Resume | None = None
    """None for a run that leaves nothing behind if it is ended."""
    progress: bool = False
    """Show a bar on standard error."""
    report: Callable[[int], None] | None = None
    """Called with the number of reads written so far, by the thread that runs the job."""
    params: MapParams = field(default_factory=MapParams)
    device: DeviceChoice = field(default_factory=lambda: DeviceChoice(CPU))
    compile_command: Sequence[str] = ()
    """Command that compiles the parts of the stages named behind it, and ends when its standard
    input does: the first run of this version starts it to compile faster. Empty for none."""

    @property
    def compressor(self) -> str:
        """One of COMPRESS_ON, for this run.

        AUTO is the host with ``resume``: the start that goes on may find no nvCOMP, or no device,
        and the file's bytes would be of both.
        """
        if self.output_format != "bam" or (self.compress_on == AUTO and self.resume is not None):
            return HOST
        return self.compress_on
