"""CudaBackend with stages that the CPU computes: the grouping of batches is tested alone."""

from __future__ import annotations

import gzip
import threading
import time
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mapper.batch import (
    IS_MAPPED,
    IS_PROPER,
    IS_RECORDED,
    IS_SURE,
    EncodedBatch,
    ReadBatch,
)
from mapper.batch_ops import DeviceResults, ResultSlice, join_offsets, slice_packed, slice_reads
from mapper.cuda.devices import CPU, CUDA, DeviceChoice
from mapper.errors import InputFormatError, OutputError
from mapper.io.bam_writer import encode_bam
from mapper.io.batch_reader import FastqText
from mapper.io.reads import Lane
from mapper.mapping import device_batches, pipeline
from mapper.mapping.prefetch import BatchPrefetcher
from mapper.mapping.stages import (
    Aligned,
    EncodedReads,
    LeftToHost,
    LongChained,
    align_reads,
    place_batch,
    rescue_mates,
    seed_long_reads,
)
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import assumed_model, model_from
from mapper.pair.placement import SURE_MAPQ
from mapper.pair.records import Names, make_names
from mapper.parallel.pool import PriorityPool
from mapper.params import DEVICE_BATCH_BASES, LEAST_MEMBER_BASES, MEMBER_BASES, MapParams
from mapper.seed.pack import pack_reads
from tests.end_to_end.test_formats_in import import_pairs
from tests.helpers.fastq_texts import by_host
from tests.helpers.mapping_runs import map_to
from tests.helpers.read_batches import reads_of as batch_of
from tests.helpers.simulate import Read, write_fastq

ASSUMED = assumed_model()


def joined(batches: Sequence[ReadBatch]) -> ReadBatch:
    """Return all reads as one batch, without the columns that no stage of a device reads."""
    return batches[0]._replace(
        bases=np.concatenate([batch.bases for batch in batches]),
        base_offsets=join_offsets([batch.base_offsets for batch in batches]),
    )


class CpuAsDevice:
    """DeviceStages that align the batches of a group as one, on the CPU."""

    def __init__(self, index, _ordinals) -> None:
        self.streams = [SimpleNamespace(fm=index.fm)] * 2
        self.index_bytes = self.process_bytes = 0
        self.batch_bases = DEVICE_BATCH_BASES
        self.group_sizes: list[int] = []
        self.long_sizes: list[int] = []
        self.read_groups: list[bytes] = []
        self.n_encoded = 0  # batches whose records were made, too
        self.n_texts = 0  # of these, batches that were parsed
        self.n_freed = 0
        self._index = self.host_index = index

    def input_memory(self, n_bytes: int) -> np.ndarray:
        return np.zeros(n_bytes, np.uint8)

    def lock_pages(self, reads: ReadBatch) -> ReadBatch:
        return reads._replace(bases=reads.bases.copy())  # the device's are others, too

    def free_page_locked(self) -> None:
        self.n_freed += 1

    def warm_up(self, reads, params, names_on=None, parses_fastq=False) -> Aligned:
        self.align_batches([reads], params, RunStats(), ASSUMED, names_on)
        (share,) = self.align_batches([reads], params, RunStats())
        return Aligned(reads, *share.cut(), False)

    def device_names(self, names) -> SimpleNamespace:
        def on(_ordinal, read_group=b"") -> Names:
            self.read_groups.append(read_group)
            group = np.frombuffer(read_group, np.uint8) if read_group else names.read_group
            return names._replace(read_group=group)

        return SimpleNamespace(on=on)

    def align_batches(
        self, batches, params, stats, model=None, names_on=None
    ) -> list[ResultSlice | EncodedBatch]:
        self.group_sizes.append(len(batches))
        if names_on is not None:
            self.n_encoded += len(batches)
            return [self._encoded(reads, params, model, names_on(0)) for reads in batches]
        index, reads = self._index, joined(batches)
        made = align_reads(index, reads, params, stats)
        alignments = made.alignments
        if model is not None and reads.paired:
            alignments = rescue_mates(index, made, model, params, stats)
        whole = DeviceResults(made.packed if model is None else None, made.seeds, alignments)
        ends = np.cumsum([batch.n_reads for batch in batches]).tolist()
        return [
            ResultSlice(whole, end - b.n_reads, end) for b, end in zip(batches, ends, strict=True)
        ]

    def map_fastq(self, batches, params, stats, model, names_on) -> list[EncodedReads] | LeftToHost:
        try:
            reads = [by_host(text) for text in batches]
        except InputFormatError:
            return LeftToHost.ODD
        if max(np.diff(batch.base_offsets).max() for batch in reads) > params.longest_short:
            return LeftToHost.ODD
        self.n_texts += len(batches)
        self.group_sizes.append(len(batches))
        self.n_encoded += len(batches)
        names = names_on(0)
        return [EncodedReads(r.size, self._encoded(r, params, model, names)) for r in reads]

    def _encoded(self, reads, params, model, names) -> EncodedBatch:
        aligned = align_reads(self._index, reads, params, RunStats())
        placed, records = place_batch(self._index, aligned, model, params, names, RunStats())
        primary = placed.primary
        state = np.where(primary >= 0, IS_MAPPED, 0) | np.where(placed.proper, IS_PROPER, 0)
        sure = (primary >= 0) & (placed.mapq[np.maximum(primary, 0)] >= SURE_MAPQ)
        state |= np.where(sure, IS_SURE, 0) | IS_RECORDED
        return EncodedBatch(encode_bam(records, reads), state.astype(np.uint8), records.n_records)

    def chain_long_batches(self, batches, params, stats, run) -> list[list[LongChained]]:
        self.long_sizes.append(len(batches))
        return [
            [part]
            for part in run(
                [partial(seed_long_reads, self._index, b.reads, params, stats) for b in batches]
            )
        ]


@pytest.fixture
def as_device(monkeypatch):
    """Replace DeviceStages by CpuAsDevice; return the list of those created."""
    pytest.importorskip("numba_cuda")
    from mapper.mapping import stages_cuda

    made: list[CpuAsDevice] = []

    def make(*arguments):
        made.append(CpuAsDevice(*arguments))
        return made[-1]

    monkeypatch.setattr(stages_cuda, "DeviceStages", make)
    return made


@pytest.mark.parametrize("files", ["two", "single", "mixed"])
def test_groups_do_not_show(world, as_device, monkeypatch, tmp_path, files) -> None:
    reads = {
        "two": (world.first, world.second),
        "single": (world.both,),
        "mixed": (str(import_pairs(world, tmp_path / "u.bam", kinds="psPs")),),
    }[files]
    cpu, path = tmp_path / "cpu.bam", tmp_path / "x.bam"
    # The insert size comes from the whole sample, and from its first batches.
    for estimation_pairs in (pipeline.ESTIMATION_PAIRS, 100):
        monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", estimation_pairs)
        map_to(world.index, cpu, *reads)
        for batch_bases, n_batches, threads in ((6_000, 1, 3), (6_000, 5, 1), (14_000, 3, 3)):
            monkeypatch.setattr(device_batches, "MEMBER_BASES", batch_bases)
            map_to(
                world.index, path, *reads, threads=threads, device=DeviceChoice(CUDA, (0,)),
                batch_bases=n_batches * batch_bases,
            )  # fmt: skip
            assert path.read_bytes() == cpu.read_bytes()
            # Batches that mix pairs and single reads reach the device in two parts.
            assert max(as_device[-1].group_sizes) == n_batches
            # Up to two of them to compile. Of reads that give the insert size the host makes the
            # records, and of mixed ones, which have tags.
            made = as_device[-1].n_encoded > 2
            assert made == (files == "single" or (files == "two" and estimation_pairs == 100))
            # All but the first batch, and what makes a group with it.
            assert (as_device[-1].n_texts > 0) == made
    assert not any(thread.name.startswith("stream") for thread in threading.enumerate())


def test_a_device_makes_the_records_of_lanes(world, as_device, monkeypatch, tmp_path) -> None:
    """Each lane has a read group; a group of batches with reads of two lanes is the host's."""
    monkeypatch.setattr(device_batches, "MEMBER_BASES", 6_000)
    monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", 100)
    lanes = [
        Lane(tuple(write_fastq(tmp_path / f"{name}{mate}.fq", reads[mate::2]) for mate in (0, 1)),
             rf"@RG\tID:{name}\tSM:s")
        for name, reads in (("a", world.reads[:700]), ("bb", world.reads[700:]))
    ]  # fmt: skip
    map_to(world.index, tmp_path / "cpu.bam", lanes=lanes)
    map_to(
        world.index, tmp_path / "x.bam", lanes=lanes, threads=2, batch_bases=18_000,
        device=DeviceChoice(CUDA, (0,)),
    )  # fmt: skip
    assert (tmp_path / "x.bam").read_bytes() == (tmp_path / "cpu.bam").read_bytes()
    assert set(as_device[-1].read_groups) == {b"", b"a", b"bb"}  # none to compile


@pytest.mark.parametrize("why", [*LeftToHost])
def test_text_that_a_device_leaves_is_parsed_by_the_host(
    world, as_device, monkeypatch, tmp_path, caplog, why: LeftToHost
) -> None:
    """And so is what follows, unless there was no memory for one group."""
    caplog.set_level("INFO", "mapper")
    monkeypatch.setattr(device_batches, "MEMBER_BASES", 6_000)
    monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", 100)
    map_to(world.index, tmp_path / "cpu.bam", world.first, world.second)
    takes, calls = CpuAsDevice.map_fastq, [0]

    def leaving(*arguments) -> list[EncodedReads] | LeftToHost:
        calls[0] += 1
        return takes(*arguments) if calls[0] == 1 else why

    monkeypatch.setattr(CpuAsDevice, "map_fastq", leaving)
    map_to(
        world.index, tmp_path / "x.bam", world.first, world.second, threads=2,
        batch_bases=12_000, device=DeviceChoice(CUDA, (0,)),
    )  # fmt: skip
    assert (tmp_path / "x.bam").read_bytes() == (tmp_path / "cpu.bam").read_bytes()
    assert as_device[-1].n_texts == 2  # those of the first group
    n_groups = (as_device[-1].n_encoded - 1) // 2  # without the batch to compile
    if why is LeftToHost.NO_MEMORY:
        assert calls[0] == n_groups  # all but that of the first batch
    else:  # those that had been submitted as text by then
        assert 2 <= calls[0] < n_groups
    said = [r.message for r in caplog.records if "the host parses the reads" in r.message]
    assert said == [f"the host parses the reads: {why.value}"] * (why is not LeftToHost.NO_MEMORY)


def test_a_run_on_a_device_says_what_would_be_read_faster(
    world, as_device, monkeypatch, tmp_path, caplog
) -> None:
    caplog.set_level("INFO", "mapper")
    text = Path(world.first).read_bytes()
    one, many = tmp_path / "one.fq.gz", tmp_path / "many.fq.gz"
    one.write_bytes(gzip.compress(text, mtime=0))
    at = text.index(b"\n@", len(text) // 2) + 1
    many.write_bytes(b"".join(gzip.compress(part, mtime=0) for part in (text[:at], text[at:])))
    for least in (1 << 26, 1):
        monkeypatch.setattr("mapper.io.reads.LARGE_GZIP", least)
        for path in (one, many):
            for device in (DeviceChoice(CPU), DeviceChoice(CUDA, (0,))):
                map_to(world.index, tmp_path / "x.bam", str(path), threads=2, device=device)
    said = [r.message for r in caplog.records if "one thread decompresses" in r.message]
    assert [message.partition(":")[0] for message in said] == [str(one)]


def test_what_the_host_parses_is_not_kept_as_text(world, as_device) -> None:
    pool = PriorityPool(1)
    backend = device_batches.CudaBackend(
        cast(Any, CpuAsDevice(world.index, 0)), MapParams(), RunStats()
    )
    backend._pool, backend._size = pool, 2  # so that the group waits for another batch
    text = np.zeros(1000, np.uint8)
    kept = weakref.ref(text)
    reads = batch_of(["ACGT"])
    backend.submit(partial(lambda _text: reads, text), None, lambda aligned: aligned)
    del text
    backend._open[0].parsed.result()
    pool.shutdown()
    assert kept() is None


def test_lanes_have_groups_of_their_own(world, as_device) -> None:
    """Text of other read groups, or other files, and what the host parses."""
    pool = PriorityPool(1)
    backend = device_batches.CudaBackend(
        cast(Any, CpuAsDevice(world.index, 0)), MapParams(), RunStats()
    )
    backend._pool, backend._size = pool, 100
    backend.enable_records(make_names(world.index.contigs, ""), True)
    text = np.zeros(9, np.uint8)
    texts = [
        FastqText((text,), 1, False, b"a"), FastqText((text,), 1, False, b"a"),
        FastqText((text,), 1, False, b"b"), FastqText((text,), 2, True, b"b"),
        FastqText((text, text), 1, True, b"b"), None, None,
    ]  # fmt: skip
    for batch in texts:
        backend.submit(lambda: batch_of(["ACGT"]), ASSUMED, lambda aligned: aligned, batch)
    backend.flush()
    groups = [backend._ready.get_nowait() for _ in range(5)]
    assert [len(group.members) for group in groups] == [2, 1, 1, 1, 2]
    assert [group.members[0].text is None for group in groups] == [False] * 4 + [True]
    assert backend._ready.empty()
    pool.shutdown()


def test_a_device_that_loses_a_record_is_found_out(world, as_device, monkeypatch, tmp_path) -> None:
    encoded = CpuAsDevice._encoded

    def losing(*arguments) -> EncodedBatch:
        made = encoded(*arguments)
        made.state[3] &= ~IS_RECORDED & 0xFF
        return made

    monkeypatch.setattr(CpuAsDevice, "_encoded", losing)
    with pytest.raises(OutputError, match="primary records would go out; this is a bug"):
        map_to(world.index, tmp_path / "x.bam", world.both, device=DeviceChoice(CUDA, (0,)))
    assert list(tmp_path.iterdir()) == []


def test_long_reads_of_a_group_reach_the_device_together(
    world, as_device, monkeypatch, tmp_path
) -> None:
    text = world.genome["chr1"]
    long_reads = [Read(f"l{i}", text[700 * i :][:3000], "I" * 3000) for i in range(20)]
    monkeypatch.setattr(device_batches, "MEMBER_BASES", 10_000)
    for name, reads in (("mixed", world.reads[:300:2] + long_reads), ("long", long_reads)):
        fastq = write_fastq(tmp_path / f"{name}.fq", reads)
        map_to(world.index, tmp_path / "cpu.bam", fastq)
        map_to(
            world.index, tmp_path / "x.bam", fastq, threads=2, device=DeviceChoice(CUDA, (0,)),
            batch_bases=30_000,
        )  # fmt: skip
        assert (tmp_path / "x.bam").read_bytes() == (tmp_path / "cpu.bam").read_bytes()
        assert max(as_device[-1].long_sizes) == 3


def test_the_table_says_who_waits_for_whom(world, as_device, monkeypatch, tmp_path) -> None:
    """All reads are one group: the device waits for it, then the pool waits for the device."""
    quick, idle = CpuAsDevice.align_batches, {}

    def slow(*arguments, **options):
        time.sleep(0.3)
        return quick(*arguments, **options)

    for name, align in (("quick", quick), ("slow", slow)):
        monkeypatch.setattr(CpuAsDevice, "align_batches", align)
        stats = map_to(
            world.index, tmp_path / "x.bam", world.first, world.second, threads=2,
            device=DeviceChoice(CUDA, (0,)), insert_size=model_from(300.0, 50.0, 100, 500, 1000),
        )  # fmt: skip
        idle[name] = stats.stage_seconds["idle"]
        assert stats.stage_seconds["wait"] > 0
    assert idle["slow"] > idle["quick"] + 0.3  # of 0.6


class SeenLate(BatchPrefetcher):
    """Batches whose end is noticed at the second look only, as by a slow thread."""

    looks = 0

    @property
    def ended(self) -> bool:
        self.looks += super().ended
        return self.looks > 1


@pytest.mark.timeout(60)  # for a batch that is never started
@pytest.mark.parametrize("n_batches", [2, 3, 5])
def test_the_last_group_goes_whenever_the_end_shows(
    world, as_device, monkeypatch, tmp_path, n_batches
) -> None:
    monkeypatch.setattr(pipeline, "BatchPrefetcher", SeenLate)
    monkeypatch.setattr(device_batches, "MEMBER_BASES", 6_000)
    monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", 50)
    cpu, path = tmp_path / "cpu.bam", tmp_path / "x.bam"
    map_to(world.index, cpu, world.first, world.second)
    map_to(
        world.index, path, world.first, world.second, threads=2,
        batch_bases=n_batches * 6_000, device=DeviceChoice(CUDA, (0,)),
    )  # fmt: skip
    assert path.read_bytes() == cpu.read_bytes()


@pytest.mark.parametrize("step", ["parse", "align_batches", "finish"])
def test_an_error_ends_the_run_without_output(
    world, as_device, monkeypatch, tmp_path, step
) -> None:
    owner = CpuAsDevice if step == "align_batches" else pipeline.Run
    whole = getattr(owner, step)
    lock, calls = threading.Lock(), [0]

    def failing(*arguments, **options):
        with lock:
            calls[0] += 1
            if calls[0] == 4:
                raise ZeroDivisionError(step)
        return whole(*arguments, **options)

    monkeypatch.setattr(owner, step, failing)
    monkeypatch.setattr(device_batches, "MEMBER_BASES", 6_000)
    monkeypatch.setattr(pipeline, "ESTIMATION_PAIRS", 50)
    with pytest.raises(ZeroDivisionError, match=step):
        map_to(
            world.index, tmp_path / "x.bam", world.first, world.second, threads=2,
            batch_bases=12_000, device=DeviceChoice(CUDA, (0,)),
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    assert not any(thread.name.startswith("stream") for thread in threading.enumerate())


def test_the_first_thing_wrong_with_the_input_is_what_is_said(world, as_device, tmp_path) -> None:
    text = Path(world.first).read_text().splitlines()
    for record in (300, 310):
        text[4 * record + 3] = "I"  # one quality
    (tmp_path / "broken.fq").write_text("\n".join(text) + "\n")
    with pytest.raises(InputFormatError, match=r"broken.fq: record 301: 1 quality"):
        map_to(
            world.index, tmp_path / "x.bam", str(tmp_path / "broken.fq"), world.second,
            batch_bases=4_000, device=DeviceChoice(CUDA, (0,)),
        )  # fmt: skip


def test_a_share_is_what_its_reads_alone_would_give(world) -> None:
    letters = [read.letters for read in world.reads[:40]]
    reads = batch_of(letters)
    whole = pack_reads(reads)
    for start, end in ((0, 40), (0, 7), (7, 7), (7, 40)):
        expected = pack_reads(batch_of(letters[start:end]))
        for ours, theirs in zip(slice_packed(whole, start, end), expected, strict=True):
            assert np.array_equal(ours, theirs)
        part = slice_reads(reads, start, end)
        assert part.n_reads == end - start
        assert np.array_equal(part.bases, batch_of(letters[start:end]).bases)
        assert part.base_offsets.tolist() == batch_of(letters[start:end]).base_offsets.tolist()


def test_large_files_have_large_batches(world) -> None:
    pytest.importorskip("numba_cuda")
    stages = cast(Any, CpuAsDevice(world.index, (0,)))
    backend = device_batches.CudaBackend(stages, MapParams(), RunStats())
    found = [
        backend.member_bases(DEVICE_BATCH_BASES, 16, n_bytes)
        for n_bytes in (0, 10**8, 10**9, 10**10)
    ]
    assert found == [LEAST_MEMBER_BASES, LEAST_MEMBER_BASES, 10**9 // 96, MEMBER_BASES]
    assert backend.member_bases(5_000_000, 16, 10**10) == 5_000_000
