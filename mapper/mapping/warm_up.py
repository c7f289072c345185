"""Warm-up: compile every stage, or load its compiled code, before the work starts.

In the first run of a version, helper processes compile some stages while the run compiles the
others: numba compiles one function at a time in a process. The code passes through the compile
cache on disk, so the run does not depend on helpers: it compiles what is not in the cache.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

import numba
import numpy as np

from mapper.batch import PackedReads, ReadBatch, RecordBatch, SeedSummary, no_alignments
from mapper.dna import reverse_complement
from mapper.extend.merge import merge_alignments
from mapper.index.fm import FMIndex
from mapper.index.index import Index
from mapper.index.reference import IndexMeta, make_contigs
from mapper.index.storage import columns
from mapper.io.bam_writer import encode_bam
from mapper.io.fastq import TextBatch, TextPart
from mapper.io.fastq_parser import SINGLE
from mapper.io.input_tags import copy_input_tags, with_tag
from mapper.io.record_ends import FASTQ, few_line_ends, whole_records
from mapper.jit.accelerate import announce_compiling, is_compiled
from mapper.mapping.backend import Backend
from mapper.mapping.stages import Aligned, LongAligned, align_long_reads, place_batch
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import assumed_model, confident_inserts
from mapper.pair.placement import tally
from mapper.pair.records import Names, make_names
from mapper.parallel.process import package_environment
from mapper.params import IndexParams, MapParams

log = logging.getLogger(__name__)

READING, FINISHING = "reading", "finishing"

_MODULES = {READING: "mapper.io.fastq_parser", FINISHING: "mapper.pair.placement"}
"""For each part of the stages a module that is compiled with it, and only then."""


# --- helper processes ---


class Helpers:
    """Processes that compile; a context manager that ends them.

    Parameters
    ----------
    command
        Compiles the parts named behind it; empty for no helpers.
    parts
        Those of READING and FINISHING that the run needs.
    most
        Processes, at most.
    """

    def __init__(self, command: Sequence[str], parts: Sequence[str], most: int) -> None:
        missing = [part for part in parts if not is_compiled(_MODULES[part])]
        n = 0 if numba.config.DISABLE_JIT or not command else min(most, len(missing))
        self._processes: list[subprocess.Popen[bytes]] = []
        if n:
            announce_compiling()
        try:
            for i in range(n):
                self._processes.append(_start([*command, *missing[i::n]]))
        except OSError as error:  # no process can be started, or there is no memory for one
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
        """Wait until all have ended, successfully or not."""
        for process in self._processes:
            process.wait()
            log.debug("process %d, compiling, ended with %d", process.pid, process.returncode)
            assert process.stdin is not None
            process.stdin.close()
        self._processes.clear()


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process whose standard input ends when this process does."""
    return subprocess.Popen(
        command,
        env=package_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


# --- the stages ---

WINDOW = 128
"""Bases of the text from which the made-up reads are cut: two words of its bit planes."""

SEARCHED_WORDS = 1 << 20
"""Words of the text that are searched for such bases; genomes can begin with millions of N."""


_SEARCHED_AT_ONCE = 1 << 12
"""Words to search at a time: mostly the first are enough."""


class PreparedOutput(Protocol):
    """The part of an output that is compiled before a run."""

    def encode(self, records: RecordBatch, reads: ReadBatch) -> Any: ...

    def prepare(self, encoded: Any) -> None: ...


def compile_stages(
    index: Index, params: MapParams, names: Names, output: PreparedOutput, backend: Backend, *,
    from_text: bool = True, singles: bool = True, pairs: bool = True,
    helpers: Helpers | None = None, begin_reading: Callable[[], object] | None = None,
) -> float:  # fmt: skip
    """Compile every stage, or load its compiled code, by mapping two made-up pairs.

    The stages of long reads are compiled where a preset is for these; else when the first comes.

    This is done before the work starts, so that its time is known and no thread waits for it in the
    middle of a batch.

    Parameters
    ----------
    from_text
        Include the reader of FASTQ and FASTA; the reader of BAM is small.
    singles, pairs
        Include the stages of short reads, of single ones and of pairs.
    helpers
        Processes that compile the first and the last stages meanwhile.
    begin_reading
        Called when the reader is compiled: the first reads can be there when the rest is.

    Returns
    -------
    Seconds that it took.
    """
    start = time.perf_counter()
    if helpers:
        if singles or pairs:
            backend.warm_up(_made_up_reads(index.fm, pairs))
        helpers.wait()
    if from_text:
        compile_reading()
    if begin_reading is not None:
        begin_reading()
    if params.longest_short < 0:
        encoded = _finish_long(index, params, names, output.encode)
    for paired in [False] * singles + [True] * pairs:
        aligned = backend.warm_up(_made_up_reads(index.fm, paired))
        encoded = _finish(index, aligned, params, names, output.encode)
    output.prepare(encoded)
    return time.perf_counter() - start


def compile_part(part: str) -> None:
    """Compile READING or FINISHING."""
    {READING: compile_reading, FINISHING: compile_finishing}[part]()


def compile_reading() -> None:
    """Compile the reader of FASTQ and FASTA."""
    text = np.frombuffer(bytearray(b"@r\nACGT\n+\nIIII\n"), np.uint8)
    whole_records(FASTQ, text, False, 1, -1)
    whole_records(FASTQ, text, False, 2, -1)
    few_line_ends(text)
    part = TextPart("", FASTQ, text, 1)
    TextBatch((part,), SINGLE, keep_comments=False, first_read=0, warnings=count()).parse()


def compile_finishing() -> None:
    """Compile the stages from rescue to encoding BAM, with reads that have no alignment."""
    index = _made_up_index()
    reads = _made_up_reads(index.fm, paired=True)
    n = reads.n_reads
    seeds = SeedSummary(np.zeros(n, np.int32), np.zeros(n, np.bool_))
    n_words = int(2 * ((np.diff(reads.base_offsets) + 63) // 64).sum())
    packed = PackedReads(np.zeros((n_words + 1, 3), np.uint64), np.zeros(n + 1, np.int64))
    aligned = Aligned(reads, packed, seeds, no_alignments(n), rescued=False)
    names = make_names(index.contigs, "")
    _finish(index, aligned, MapParams(), names, encode_bam)


def _finish(
    index: Index, aligned: Aligned, params: MapParams, names: Names,
    encode: Callable[[RecordBatch, ReadBatch], Any],
) -> Any:  # fmt: skip
    """Run the stages after extension; return the encoded records."""
    reads = aligned.reads
    merged = merge_alignments(aligned.alignments, aligned.alignments)
    confident_inserts(reads.base_offsets, merged, params.extend, index.contigs.groups)
    return _place_and_encode(index, aligned, params, names, encode)


def _finish_long(
    index: Index, params: MapParams, names: Names, encode: Callable[[RecordBatch, ReadBatch], Any]
) -> Any:
    """Run the stages of long reads; return the encoded records."""
    reads = _made_up_reads(index.fm, False)
    aligned = align_long_reads(index, reads, params, RunStats())
    return _place_and_encode(index, aligned, params, names, encode)


def _place_and_encode(
    index: Index, aligned: Aligned | LongAligned, params: MapParams, names: Names,
    encode: Callable[[RecordBatch, ReadBatch], Any],
) -> Any:  # fmt: skip
    placements, records = place_batch(index, aligned, assumed_model(), params, names, RunStats())
    tally(placements)
    reads = aligned.reads
    return encode(copy_input_tags(records, with_tag(reads, b"XXi\0\0\0\0")), reads)


def _made_up_index() -> Index:
    """Return an index of WINDOW bases whose arrays have the right shapes and types, all zero."""
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
    """Return two pairs: one cut from the text, so that every stage has work, one half random."""
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
    """Return the codes of the first WINDOW bases without an ambiguous one, or None."""
    planes = fm.ref_planes[:SEARCHED_WORDS]
    start = None
    for at in range(0, len(planes) - 1, _SEARCHED_AT_ONCE):
        clean = planes[at : at + _SEARCHED_AT_ONCE + 1, 2] == 0
        starts = np.flatnonzero(clean[:-1] & clean[1:])
        if len(starts):
            start = at + int(starts[0])
            break
    if start is None:
        return None
    words = planes[start : start + 2]
    low, high = (
        np.unpackbits(np.ascontiguousarray(words[:, plane]).view(np.uint8), bitorder="little")
        for plane in (0, 1)
    )
    return low | high << 1
