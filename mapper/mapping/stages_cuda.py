"""The stages on a CUDA device: reads → seeds → loci → alignments → BAM records, as on the CPU.

A thread that brings a batch takes an idle stream with its workspace, waits until the batch is
done, and returns it. With several streams the copies of one batch overlap the kernels of another,
and short kernels share the device.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mapper.batch import (
    AnchorBatch,
    BatchSize,
    EncodedBatch,
    LinkBatch,
    PackedReads,
    ReadBatch,
)
from mapper.batch_ops import (
    DeviceResults,
    ResultSlice,
    join_alignments,
    join_packed,
    join_summaries,
    slice_reads,
)
from mapper.chain.cuda import download_links, find_loci, link_anchors
from mapper.cuda.api import cuda, device_context, knowing_its_device, stay_on
from mapper.cuda.halving import Halves, in_halves
from mapper.cuda.memory import (
    Workspace,
    device_memory,
    free_page_locked,
    free_share,
    page_locked,
    priority_stream,
    result_memory,
    total_bytes,
)
from mapper.cuda.slabs import SLAB_BYTES
from mapper.cuda.upload import bytes_on_device, upload
from mapper.errors import DeviceMemoryError
from mapper.extend.cuda import DeviceAlignments, download_alignments, extend_loci
from mapper.extend.doubt_cuda import doubtful_reads, mates_of_doubtful_pairs
from mapper.extend.merge_cuda import merge_on_device
from mapper.extend.piece_plan import PiecePlan, plan_pieces
from mapper.extend.pieces_cuda import align_pieces
from mapper.index.cuda import expand_suffix_array
from mapper.index.fm import FMIndex
from mapper.index.index import Index
from mapper.index.reference import ContigBounds
from mapper.io.batch_reader import FastqText
from mapper.io.fastq_cuda import fastq_of, parse_on_device
from mapper.mapping.memory_plan import LEAST_BATCH_BASES, device_batch_bases
from mapper.mapping.stages import (
    Aligned,
    EncodedReads,
    LeftToHost,
    LongChained,
    LongReads,
    align_reads,
    chain_long_reads,
    long_reads_of,
    rescue_mates,
    seed_long_reads,
)
from mapper.mapping.stats import ON_CPU, RunStats
from mapper.pair.cuda import propose_loci
from mapper.pair.insert_size import InsertSizeModel, assumed_model
from mapper.pair.records import Names
from mapper.pair.records_cuda import ReadTexts, encode_on_device, upload_read_texts
from mapper.params import DEVICE_STREAMS, MapParams, SeedParams
from mapper.seed.anchors_cuda import download_long_packed, find_anchors, upload_long_reads
from mapper.seed.cuda import (
    DeviceReads,
    DeviceSeeds,
    download_packed,
    download_summary,
    pack_on_device,
    seed_reads,
    upload_reads,
)

log = logging.getLogger(__name__)

Result = TypeVar("Result")


RunCalls = Callable[
    [Sequence[Callable[[], tuple[LongChained, PiecePlan]]]], list[tuple[LongChained, PiecePlan]]
]


class _Text(NamedTuple):
    """The text of an index with masked bases, in a form that can be uploaded."""

    planes: np.ndarray  # uint64 (n_words + 2, 3): IndexData.unmasked_planes


class DeviceNames:
    """The names that records hold, on each device from when it first needs them.

    Parameters
    ----------
    names
        On the host. The read group may be that of the reads instead; see :meth:`on`.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._lock = threading.Lock()
        self._there: dict[int, Names] = {}
        self._groups: dict[tuple[int, bytes], Any] = {}

    def on(self, ordinal: int, read_group: bytes = b"") -> Names:
        """Return the names on a device, which must be the current one.

        Parameters
        ----------
        read_group
            Another read group than that of `names`; empty for that one.
        """
        with self._lock:
            if ordinal not in self._there:
                self._there[ordinal] = upload(self._names, "the names of contigs")
            names = self._there[ordinal]
            if not read_group:
                return names
            key = ordinal, read_group
            if key not in self._groups:
                group = np.frombuffer(read_group, np.uint8)
                with device_memory("a read group"):
                    self._groups[key] = cuda.to_device(group)
            return names._replace(read_group=self._groups[key])


NamesOn = Callable[[int], Names]
"""Returns the names that records hold on a device, by its ordinal; it must be the current one."""

LEAST_SLABS = 64
"""A slab of a stream's memory is no larger than this part of the device's."""

NO_RECORDS = "no records"
"""Name of the mark, among what a workspace keeps, that there is no memory for records."""


class StreamWorkspace(NamedTuple):
    """A stream with its buffers, and the index on its device; it aligns one batch at a time."""

    host_index: Index
    ordinal: int
    fm: FMIndex
    contigs: ContigBounds
    space: Workspace
    text_planes: Any
    """Bit planes of the text that reads are aligned to, on the device; mostly ``fm.ref_planes``."""


class DeviceStages:
    """An index on a device, and the stages there.

    The suffix array is expanded if there is memory for it. The table of k-mers keeps its k: its
    intervals count some rows of the text's end, which depend on k, so another k could give other
    seeds than the CPU's.

    Parameters
    ----------
    ordinal
        The device, among the visible ones.
    n_streams
        Its streams.

    Raises
    ------
    DeviceMemoryError
        If the index does not fit.
    """

    def __init__(self, index: Index, ordinal: int, n_streams: int = DEVICE_STREAMS) -> None:
        self.host_index = index
        with device_context(ordinal):
            fm = upload(index.fm, f"the index {index.meta.source_name}")
            text_planes = fm.ref_planes
            if index.unmasked_planes is not None:
                text_planes = upload(_Text(index.unmasked_planes), "the text").planes
            fm = expand_suffix_array(fm)
            contigs = upload(
                ContigBounds(index.contigs.starts, index.contigs.lengths), "the contigs"
            )
            results = result_memory()
            # Of different priorities, so that the streams do not do the same at the same time:
            # kernels of one fill the device while those of another wait for their last blocks.
            # Blocks of files are above them.
            slab_bytes = min(SLAB_BYTES, total_bytes() // LEAST_SLABS)
            spaces = [
                Workspace(
                    results, sleeps=True, stream=priority_stream(below=2 + i), slab_bytes=slab_bytes
                )
                for i in range(n_streams)
            ]
            self.index_bytes = bytes_on_device(fm)
            """Bytes of the index on the device."""
            self.batch_bases = device_batch_bases(free_share(self.index_bytes), n_streams)
            """Bases of a batch for which the free memory of the device suffices, about."""
        self.process_bytes = 0
        """Memory of processes that have been started."""
        self.streams = [
            StreamWorkspace(index, ordinal, fm, contigs, space, text_planes) for space in spaces
        ]
        self._idle: SimpleQueue[StreamWorkspace] = SimpleQueue()
        for stream in self.streams:
            self._idle.put(stream)
        self._lock = threading.Lock()
        self._n_streams = n_streams  # not given up

    @staticmethod
    def device_names(names: Names) -> DeviceNames:
        """Return names of which :meth:`align_batches` takes :meth:`DeviceNames.on`."""
        return DeviceNames(names)

    def lock_pages(self, reads: ReadBatch) -> ReadBatch:
        """Return a batch whose long columns are page-locked, so that devices fetch them.

        For threads of pools: the thread stays on the device.
        """
        stay_on(self.streams[0].ordinal)

        def locked(column: np.ndarray) -> np.ndarray:
            there = page_locked(len(column), column.dtype, for_results=False)
            there[:] = column
            return there

        return reads._replace(
            bases=locked(reads.bases), quals=locked(reads.quals), names=locked(reads.names)
        )

    def input_memory(self, n_bytes: int) -> np.ndarray:
        """Return page-locked memory (uint8), from which a device fetches text."""
        with device_context(self.streams[0].ordinal):
            return page_locked(n_bytes, np.dtype(np.uint8), for_results=False)

    @staticmethod
    def free_page_locked() -> None:
        """Free page-locked memory that nothing uses now."""
        free_page_locked()

    def warm_up(
        self, reads: ReadBatch, params: MapParams, names_on: NamesOn | None = None,
        parses_fastq: bool = False,
    ) -> Aligned:  # fmt: skip
        """Align a few reads in every way that a run does, so that all kernels are there."""
        aligned = self.align(reads, params, RunStats())
        self.align(reads, params, RunStats(), assumed_model())
        if names_on is not None:
            self.align_batches([reads], params, RunStats(), assumed_model(), names_on)
        if names_on is not None and parses_fastq:
            text = FastqText((fastq_of(reads),), reads.n_reads, reads.paired)
            self.map_fastq([text], params, RunStats(), assumed_model(), names_on)
        return aligned

    def align(
        self, reads: ReadBatch, params: MapParams, stats: RunStats,
        model: InsertSizeModel | None = None,
    ) -> Aligned:  # fmt: skip
        """Align one batch: see :meth:`align_batches`."""
        (share,) = self.align_batches([reads], params, stats, model)
        assert isinstance(share, ResultSlice)  # without names
        return Aligned(reads, *share.cut(), model is not None)

    def align_batches(
        self, batches: Sequence[ReadBatch], params: MapParams, stats: RunStats,
        model: InsertSizeModel | None = None, names_on: NamesOn | None = None,
    ) -> list[ResultSlice | EncodedBatch]:  # fmt: skip
        """Pack, seed, chain and extend every read; the results are identical to the CPU's.

        Batches, all of pairs or all of single reads, are aligned as one. If the device's memory
        does not suffice, they are aligned in halves, and a read or pair that does not fit alone
        by the CPU.

        Parameters
        ----------
        model
            With it, mates are rescued too, and no packed reads are returned: the host needs them
            only for rescue.
        names_on
            With it, and a model, reads are placed and their records made on the device, too,
            where its memory suffices. They must be short reads without tags of their own.

        Returns
        -------
        Each batch's share of the results, or its records. These lie in page-locked memory, which
        is reused when nothing refers to them any more.
        """
        return self._with_stream(_align, batches, params, stats, model, names_on)

    def map_fastq(
        self, batches: Sequence[FastqText], params: MapParams, stats: RunStats,
        model: InsertSizeModel, names_on: NamesOn,
    ) -> list[EncodedReads] | LeftToHost:  # fmt: skip
        """Parse and map short reads; see :meth:`align_batches`.

        Parameters
        ----------
        batches
            Of one layout in files: see :func:`mapper.io.fastq_cuda.parse_on_device`.

        Returns
        -------
        The records of each batch, or why the host has to parse all of them.
        """
        found: list[EncodedReads] | LeftToHost = self._with_stream(
            _map_fastq, batches, params, stats, model, names_on
        )
        return found

    def chain_long_batches(
        self, batches: Sequence[LongReads], params: MapParams, stats: RunStats,
        run: RunCalls,
    ) -> list[list[LongChained]]:  # fmt: skip
        """Seed long reads, link their anchors and align their pieces on a device.

        Chains are taken of the links on the CPU in between.

        If the device's memory does not suffice, that is done in halves, and a read that does
        not fit alone by the CPU.

        Parameters
        ----------
        run
            Runs calls on the CPU and returns their results in order.

        Returns
        -------
        The consecutive parts of each batch; one, unless it did not fit. The columns of the packed
        reads lie in page-locked memory, as of :meth:`align_batches`.
        """
        return self._with_stream(_chain_long, batches, params, stats, run)

    def _with_stream(self, call: Callable[..., Result], *args: Any) -> Result:
        """Call a function with an idle stream, on its device; with another if that is given up."""
        while True:
            stream = self._idle.get()
            try:
                with device_context(stream.ordinal):
                    result = knowing_its_device(call)(stream, partial(self._give_up, stream), *args)
            except _GivenUpError:
                continue
            except BaseException:
                self._idle.put(stream)
                raise
            self._idle.put(stream)
            return result

    def _give_up(self, stream: StreamWorkspace) -> None:
        """Leave a stream's memory to the others.

        Raises
        ------
        _GivenUpError
            Unless it is the last one.
        """
        with self._lock:
            if self._n_streams == 1:
                return
            self._n_streams -= 1
        log.info(
            "the memory of cuda:%d does not suffice for so many batches at a time: one less",
            stream.ordinal,
        )  # fmt: skip
        raise _GivenUpError


class _GivenUpError(Exception):
    """A stream has no memory, as others hold it, and is not used any more."""


def _align(
    stream: StreamWorkspace, give_up: Callable[[], None], batches: Sequence[ReadBatch],
    params: MapParams, stats: RunStats, model: InsertSizeModel | None, names_on: NamesOn | None,
) -> list[ResultSlice | EncodedBatch]:  # fmt: skip
    """Align batches as one; in halves if memory does not suffice, and by the CPU at last."""
    whole = {id(reads) for reads in batches}

    def align(batches: Sequence[ReadBatch]) -> list[ResultSlice | EncodedBatch]:
        # The records of half a batch are of no use: only alignments are joined.
        is_whole = all(id(reads) in whole for reads in batches)
        return _align_at_once(stream, batches, params, stats, model, names_on if is_whole else None)

    def align_alone(
        batches: Sequence[ReadBatch], error: DeviceMemoryError
    ) -> list[ResultSlice | EncodedBatch]:
        (reads,) = batches
        if not stats.counts.get(ON_CPU):
            log.warning("%s; reads that do not fit even alone are mapped by the CPU", error)
        stats.count(**{ON_CPU: reads.n_reads})
        found = _align_on_cpu(stream.host_index, reads, params, stats, model)
        return [ResultSlice(found, 0, reads.n_reads)]

    def halves(
        batches: Sequence[ReadBatch],
    ) -> Halves[Sequence[ReadBatch], list[ResultSlice | EncodedBatch]] | None:
        if sum(len(batch.bases) for batch in batches) <= LEAST_BATCH_BASES:
            give_up()
        return _halves(batches)

    return in_halves(align, batches, halves, stream.space.release, align_alone)


def _halves(
    batches: Sequence[ReadBatch],
) -> Halves[Sequence[ReadBatch], list[ResultSlice | EncodedBatch]] | None:
    """Divide batches, or one batch without parting mates."""
    if len(batches) > 1:
        n = len(batches) // 2
        return Halves(
            [batches[:n], batches[n:]], lambda found: [share for half in found for share in half]
        )
    (reads,) = batches
    step = 2 if reads.paired else 1
    if reads.n_reads < 2 * step:
        return None
    middle = reads.n_reads // (2 * step) * step

    def join(found: list[list[ResultSlice | EncodedBatch]]) -> list[ResultSlice | EncodedBatch]:
        parts = []
        for (share,) in found:
            assert isinstance(share, ResultSlice)  # of parts of a batch no records are made
            parts.append(share.cut())
        return [ResultSlice(_join(parts), 0, reads.n_reads)]

    parts = [[slice_reads(reads, 0, middle)], [slice_reads(reads, middle, reads.n_reads)]]
    return Halves(parts, join)


def _align_on_cpu(
    index: Index, reads: ReadBatch, params: MapParams, stats: RunStats,
    model: InsertSizeModel | None,
) -> DeviceResults:  # fmt: skip
    """Align reads on the CPU; return the results in the form of a device."""
    aligned = align_reads(index, reads, params, stats)
    if model is None:
        return DeviceResults(aligned.packed, aligned.seeds, aligned.alignments)
    alignments = aligned.alignments
    if reads.paired:
        alignments = rescue_mates(index, aligned, model, params, stats)
    return DeviceResults(None, aligned.seeds, alignments)


def _join(parts: Sequence[DeviceResults]) -> DeviceResults:
    """Join the results of batches that follow one another."""
    packed = [part.packed for part in parts if part.packed is not None]
    return DeviceResults(
        join_packed(packed) if packed else None,
        join_summaries([part.seeds for part in parts]),
        join_alignments([part.alignments for part in parts]),
    )


def _find_alignments(
    stream: StreamWorkspace, on_device: DeviceReads, longest: int, paired: bool, params: MapParams,
    stats: RunStats, model: InsertSizeModel | None,
) -> tuple[DeviceSeeds, DeviceAlignments]:  # fmt: skip
    """Run the stages from seeding to rescue, one after another, in a stream."""
    _, _, fm, contigs, space, text_planes = stream
    with stats.stage("seed"):
        seeds = seed_reads(space, fm, on_device, longest, params.seed)
    with stats.stage("chain"):
        loci = find_loci(space, contigs, seeds)
    with stats.stage("extend"):
        extended = extend_loci(
            space, text_planes, on_device, longest, loci, seeds.read, params.extend, params.keep
        )

    def look_again(
        how: SeedParams, doubtful: Any, found_name: str, merged_name: str
    ) -> tuple[DeviceSeeds, DeviceAlignments]:
        with stats.stage("seed"):
            again = seed_reads(space, fm, on_device, longest, how, doubtful)
        if not len(again.read):
            return again, extended
        with stats.stage("chain"):
            loci = find_loci(space, contigs, again)
        with stats.stage("extend"):
            found = extend_loci(
                space, text_planes, on_device, longest, loci, again.read, params.extend,
                params.keep, found_name,
            )  # fmt: skip
            return again, merge_on_device(space, extended, found, merged_name)

    doubtful = doubtful_reads(
        space, on_device, paired, seeds.per_read.guarantee, extended, params.extend
    )
    seeds, extended = look_again(params.second_look, doubtful, "second_look", "both_looks")
    if paired:
        doubtful = mates_of_doubtful_pairs(
            space, on_device, seeds.per_read, extended, params.extend
        )
        seeds, extended = look_again(params.third_look, doubtful, "third_look", "all_looks")
    if model is not None and paired:
        with stats.stage("rescue"):
            proposed = propose_loci(
                space, text_planes, contigs, on_device, seeds, extended.batch, model,
                params.pair, params.extend,
            )  # fmt: skip
            if len(proposed.read):
                rescued = extend_loci(
                    space, text_planes, on_device, longest, proposed.loci, proposed.read,
                    params.extend, params.keep, "rescued",
                )  # fmt: skip
                extended = merge_on_device(space, extended, rescued, "with_rescued")
    return seeds, extended


def _align_at_once(
    stream: StreamWorkspace, batches: Sequence[ReadBatch], params: MapParams, stats: RunStats,
    model: InsertSizeModel | None, names_on: NamesOn | None,
) -> list[ResultSlice | EncodedBatch]:  # fmt: skip
    """Run the stages, and place reads and make records if there are names, in a stream."""
    space, paired = stream.space, batches[0].paired
    with stats.stage("pack"):
        on_device, longest = upload_reads(space, batches)
        packed = None if model is not None else download_packed(space, on_device)
    seeds, extended = _find_alignments(stream, on_device, longest, paired, params, stats, model)
    if model is not None and names_on is not None and NO_RECORDS not in space.kept:
        try:
            with stats.stage("records"):
                sizes = [batch.n_reads for batch in batches]
                texts = upload_read_texts(space, batches)
                return [
                    *_encode(
                        stream, sizes, paired, on_device, texts, seeds, extended, model, params,
                        names_on,
                    )
                ]  # fmt: skip
        except DeviceMemoryError as error:
            # The alignments are there; the host goes on from them, for later batches too.
            space.kept[NO_RECORDS] = True
            log.info("%s: the host makes records", error)
    with stats.stage("extend"):
        summary = download_summary(space, seeds.per_read)
        alignments = download_alignments(space, extended)
    whole = DeviceResults(packed, summary, alignments)
    ends = np.cumsum([reads.n_reads for reads in batches]).tolist()
    return [
        ResultSlice(whole, end - reads.n_reads, end)
        for reads, end in zip(batches, ends, strict=True)
    ]


def _encode(
    stream: StreamWorkspace, sizes: Sequence[int], paired: bool, on_device: DeviceReads,
    texts: ReadTexts, seeds: DeviceSeeds, found: DeviceAlignments, model: InsertSizeModel,
    params: MapParams, names_on: NamesOn,
) -> list[EncodedBatch]:  # fmt: skip
    index = stream.host_index
    return encode_on_device(
        stream.space, stream.text_planes, sizes, paired, on_device, texts, seeds, found, model,
        params, index.fm.n_rows - 1, index.contigs.groups, names_on(stream.ordinal),
    )  # fmt: skip


def _map_fastq(
    stream: StreamWorkspace, give_up: Callable[[], None], batches: Sequence[FastqText],
    params: MapParams, stats: RunStats, model: InsertSizeModel, names_on: NamesOn,
) -> list[EncodedReads] | LeftToHost:  # fmt: skip
    """Run all stages from text to records; leave it to the host if memory does not suffice."""
    if NO_RECORDS in stream.space.kept:
        return LeftToHost.NO_RECORDS
    try:
        return _map_fastq_at_once(stream, batches, params, stats, model, names_on)
    except DeviceMemoryError as error:
        log.info("%s: the host parses these reads", error)
    stream.space.release()
    return LeftToHost.NO_MEMORY


def _map_fastq_at_once(
    stream: StreamWorkspace, batches: Sequence[FastqText], params: MapParams, stats: RunStats,
    model: InsertSizeModel, names_on: NamesOn,
) -> list[EncodedReads] | LeftToHost:  # fmt: skip
    space, paired = stream.space, batches[0].paired
    with stats.stage("read"):
        parsed = parse_on_device(space, batches)
    if parsed is None or parsed.longest > params.longest_short:
        return LeftToHost.ODD
    bases, quals, base_offsets, names, name_offsets = parsed.columns
    with stats.stage("pack"):
        on_device = pack_on_device(space, bases, base_offsets, parsed.word_offsets, parsed.n_words)
    longest = max(1, parsed.longest)
    seeds, found = _find_alignments(stream, on_device, longest, paired, params, stats, model)
    if parsed.is_odd[0]:
        return LeftToHost.ODD
    with stats.stage("records"):
        sizes = [batch.n_reads for batch in batches]
        texts = ReadTexts(quals, names, name_offsets)
        records = _encode(
            stream, sizes, paired, on_device, texts, seeds, found, model, params, names_on
        )
    n_bases = np.diff(parsed.ends).tolist()
    return [
        EncodedReads(BatchSize(size, n, paired), made)
        for size, n, made in zip(sizes, n_bases, records, strict=True)
    ]


# --- long reads ---

MOST_BASES = (1 << 31) - 1
"""Bases of long reads that are seeded at once: windows have 32-bit places."""


def _chain_long(
    stream: StreamWorkspace, give_up: Callable[[], None], batches: Sequence[LongReads],
    params: MapParams, stats: RunStats, run: RunCalls,
) -> list[list[LongChained]]:  # fmt: skip
    """Seed and chain batches as one; in halves if memory does not suffice, by the CPU at last."""

    def chain(batches: Sequence[LongReads]) -> list[list[LongChained]]:
        return _chain_long_at_once(stream, batches, params, stats, run)

    def chain_alone(
        batches: Sequence[LongReads], error: DeviceMemoryError
    ) -> list[list[LongChained]]:
        ((reads, _),) = batches
        if not stats.counts.get(ON_CPU):
            log.warning("%s; reads that do not fit even alone are mapped by the CPU", error)
        stats.count(**{ON_CPU: reads.n_reads})
        return [[seed_long_reads(stream.host_index, reads, params, stats)]]

    def halves(
        batches: Sequence[LongReads],
    ) -> Halves[Sequence[LongReads], list[list[LongChained]]] | None:
        if sum(len(batch.reads.bases) for batch in batches) <= LEAST_BATCH_BASES:
            give_up()
        if len(batches) > 1:
            n = len(batches) // 2
            return Halves(
                [batches[:n], batches[n:]], lambda found: [part for half in found for part in half]
            )
        ((reads, _),) = batches
        if reads.n_reads < 2:
            return None
        middle = reads.n_reads // 2
        parts = [(0, middle), (middle, reads.n_reads)]
        return Halves(
            [[long_reads_of(slice_reads(reads, *part), params.long.anchors)] for part in parts],
            lambda found: [[chained for half in found for chained in half[0]]],
        )

    return in_halves(chain, batches, halves, stream.space.release, chain_alone)


def _chain_long_at_once(
    stream: StreamWorkspace, batches: Sequence[LongReads], params: MapParams, stats: RunStats,
    run: RunCalls,
) -> list[list[LongChained]]:  # fmt: skip
    space, index = stream.space, stream.host_index
    reads = [batch.reads for batch in batches]
    if sum(len(batch.bases) for batch in reads) > MOST_BASES:
        raise DeviceMemoryError(f"more than {MOST_BASES} bases of long reads")
    with stats.stage("pack"):
        there = upload_long_reads(space, reads)
        packed = download_long_packed(space, there, reads)
    with stats.stage("seed"):
        anchors = find_anchors(  # waits for the stream
            space, stream.fm, there, reads, [batch.stretches for batch in batches],
            params.long.anchors,
        )  # fmt: skip
    with stats.stage("chain"):
        links = link_anchors(space, stream.contigs.starts, anchors, params.long.chain)
        found = download_links(space, anchors, links, reads)

    def call(
        reads: ReadBatch, packed: PackedReads, found: tuple[AnchorBatch, LinkBatch]
    ) -> Callable[[], tuple[LongChained, PiecePlan]]:
        def chain() -> tuple[LongChained, PiecePlan]:
            anchors, links = found
            chained = chain_long_reads(index, reads, packed, anchors, params, stats, links)
            with stats.stage("extend"):
                bounds = ContigBounds(index.contigs.starts, index.contigs.lengths)
                plan = plan_pieces(reads.base_offsets, chained.chains, bounds, params.long.pieces)
            return chained, plan

        return chain

    chained = run([call(*batch) for batch in zip(reads, packed, found, strict=True)])
    with stats.stage("extend"):
        done = align_pieces(
            space, stream.text_planes, there, [plan for _, plan in chained],
            [batch.n_reads for batch in reads], params.long,
        )  # fmt: skip
    return [[part._replace(done=d)] for (part, _), d in zip(chained, done, strict=True)]
