"""Compiling every stage, or loading it compiled, before the work starts.

A first run's helpers: processes that compile some stages while the run compiles the others.

Numba compiles one function at a time in a process. What helpers compile goes through the cache on
disk, so nothing depends on them: the run takes what is there, and compiles what is not.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numba
import numpy as np

from mapper.batch import PackedReads, ReadBatch, RecordBatch, SeedSummary, no_alignments
from mapper.dna import reverse_complement
from mapper.extend.merge import merge_alignments
from mapper.index.fm import FMIndex
from mapper.index.reference import Index, IndexMeta, make_contigs
from mapper.index.storage import columns
from mapper.io.bam_writer import encode_bam
from mapper.io.fastq import TextBatch, TextPart
from mapper.io.fastq_parser import SINGLE
from mapper.io.input_tags import copy_input_tags, with_tag
from mapper.io.output import RecordOutput
from mapper.io.record_ends import FASTQ, few_line_ends, whole_records
from mapper.jit.accelerate import CACHE_DIR, is_compiled
from mapper.mapping.stages import Aligned, align_reads, place_batch
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import assumed_model, confident_inserts
from mapper.pair.placement import tally
from mapper.pair.records import Names, make_names
from mapper.params import IndexParams, MapParams

if TYPE_CHECKING:
    from mapper.mapping.stages_cuda import DeviceStages

log = logging.getLogger(__name__)

READING, FINISHING = "reading", "finishing"

_MODULES = {READING: "mapper.io.fastq_parser", FINISHING: "mapper.pair.placement"}
"""One of those that each part of the stages compiles."""


class Helpers:
    """Processes that compile; a context manager that ends them.

    Parameters
    ----------
    parts
        Of READING and FINISHING, those that the run will need.
    threads
        Of the run, which itself is one of them: the processes are fewer.
    """

    def __init__(self, parts: Sequence[str], threads: int) -> None:
        wanted = [part for part in parts if not is_compiled(_MODULES[part])]
        n = 0 if numba.config.DISABLE_JIT else min(threads - 1, len(wanted))
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for i in range(n):
                self._processes.append(_start(wanted[i::n]))
        except OSError as error:  # no process to be had, or no memory for one
            log.debug("no process to help compiling: %s", error)

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()
        self.wait()

    def __bool__(self) -> bool:
        return bool(self._processes)

    def wait(self) -> None:
        """Wait until all have ended, in whatever way."""
        for process in self._processes:
            process.wait()
            log.debug("process %d, compiling, ended with %d", process.pid, process.returncode)
            assert process.stdin is not None
            process.stdin.close()
        self._processes.clear()


def _start(parts: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process that ends when this one does, as its standard input ends with it."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "mapper.mapping.warm_up", *parts],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def main(parts: Sequence[str]) -> None:
    """Compile those parts: what a helper does."""
    from mapper.cli.main import set_up_process

    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up_process()

    compile_part = {READING: compile_reading, FINISHING: compile_finishing}
    for part in parts:
        compile_part[part]()


WINDOW = 128
"""Bases of the text that the made-up reads are cut from: two words of its bit planes."""

SEARCHED_WORDS = 1 << 20
"""Words of the text that are searched for such bases; genomes can begin with millions of N."""


def compile_stages(
    index: Index, params: MapParams, names: Names, output: RecordOutput,
    device: DeviceStages | None = None, *, from_text: bool = True, helpers: Helpers | None = None,
) -> float:  # fmt: skip
    """Compile every stage, or load it compiled, by mapping two made-up pairs.

    Reading is included if it is `from_text`, FASTQ or FASTA; the reader of BAM is small.

    Done before the work starts, so that its time is known and no thread waits in the
    middle of a batch.

    Parameters
    ----------
    helpers
        Processes that compile the first and the last stages meanwhile.

    Returns
    -------
    Seconds that it took.
    """
    start = time.perf_counter()
    if not is_compiled("mapper.pair.placement"):
        log.info("compiling for this machine, once (up to a minute); kept in %s", CACHE_DIR)
    if helpers:
        align_reads(index, _made_up_reads(index.fm, True), params, RunStats(), device)
        helpers.wait()
    if from_text:
        compile_reading()
    for paired in (False, True):
        reads = _made_up_reads(index.fm, paired)
        quiet = RunStats()
        aligned = align_reads(index, reads, params, quiet, device)
        if device is not None:
            align_reads(index, reads, params, quiet, device, assumed_model())
        _finish(index, aligned, params, names, output.encode)
    return time.perf_counter() - start


def compile_reading() -> None:
    """Compile the reading of FASTQ and FASTA."""
    text = np.frombuffer(bytearray(b"@r\nACGT\n+\nIIII\n"), np.uint8)
    whole_records(FASTQ, text, False, 1, -1)
    whole_records(FASTQ, text, False, 2, -1)
    few_line_ends(text)
    TextBatch((TextPart("", FASTQ, text, 1),), SINGLE, keep_comments=False, first_read=0).parse()


def compile_finishing() -> None:
    """Compile all that follows extension, up to BAM, with reads that align nowhere."""
    index = _made_up_index()
    reads = _made_up_reads(index.fm, paired=True)
    n = reads.n_reads
    seeds = SeedSummary(np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.bool_))
    n_words = int(2 * ((np.diff(reads.base_offsets) + 63) // 64).sum())
    packed = PackedReads(np.zeros((n_words + 1, 3), np.uint64), np.zeros(n + 1, np.int64))
    aligned = Aligned(reads, packed, seeds, no_alignments(n), rescued=False)
    names = make_names(index.contigs.names, index.contigs.starts, "")
    _finish(index, aligned, MapParams(), names, encode_bam)


def _finish(
    index: Index, aligned: Aligned, params: MapParams, names: Names,
    encode: Callable[[RecordBatch, ReadBatch], np.ndarray],
) -> None:  # fmt: skip
    reads = aligned.reads
    merged = merge_alignments(aligned.alignments, aligned.alignments)
    confident_inserts(reads.base_offsets, merged, params.extend)
    placements, records = place_batch(index, aligned, assumed_model(), params, names, RunStats())
    tally(placements)
    encode(copy_input_tags(records, with_tag(reads, b"XXi\0\0\0\0")), reads)


def _made_up_index() -> Index:
    """Return an index of WINDOW bases that has the arrays of one, without their content."""
    params = IndexParams()
    arrays = {
        name: np.zeros(column.shape, column.dtype)
        for name, column in columns(WINDOW + 1, params).items()
    }
    for array in arrays.values():
        array.flags.writeable = False
    fm = FMIndex(
        **arrays, n_rows=WINDOW + 2, primary=0, occ_shift=params.occ_spacing.bit_length() - 1,
        sa_shift=params.sampling(WINDOW + 1).bit_length() - 1,
        kmer_len=params.table_kmer_len(WINDOW + 1),
    )  # fmt: skip
    source = IndexMeta("", 0, params, "")
    return Index(fm, make_contigs(["made up"], [""], [WINDOW]), source)


def _made_up_reads(fm: FMIndex, paired: bool) -> ReadBatch:
    """Two pairs: one cut from the text, so that no stage has nothing to do, one half random."""
    length = 100
    random = np.random.default_rng(1).integers(0, 4, 2 * WINDOW).astype(np.uint8)
    window = _clean_window(fm)
    if window is None:
        window = random[WINDOW:]
    first, second = window[:length], reverse_complement(window[-length:])
    reads = (first, second, first, random[:length])
    return ReadBatch(
        bases=np.concatenate(reads),
        quals=np.full(len(reads) * length, 30, np.uint8),
        base_offsets=np.arange(len(reads) + 1, dtype=np.int64) * length,
        names=np.frombuffer(b"aabb", np.uint8).copy(),
        name_offsets=np.arange(len(reads) + 1, dtype=np.int64),
        first_read=0,
        paired=paired,
    )


def _clean_window(fm: FMIndex) -> np.ndarray | None:
    """Return the codes of the first WINDOW bases of the text without an ambiguous one, if any."""
    planes = fm.ref_planes[:SEARCHED_WORDS]
    clean = planes[:, 2] == 0
    starts = np.flatnonzero(clean[:-1] & clean[1:])
    if not len(starts):
        return None
    words = planes[starts[0] : starts[0] + 2]
    low, high = (
        np.unpackbits(np.ascontiguousarray(words[:, plane]).view(np.uint8), bitorder="little")
        for plane in (0, 1)
    )
    return low | high << 1


if __name__ == "__main__":
    main(sys.argv[1:])
