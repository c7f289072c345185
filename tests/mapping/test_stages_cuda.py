"""Stages on a device (or in the simulator) and on the CPU: the same batches, bit for bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from mapper.batch import LocusBatch, ReadBatch
from mapper.batch_ops import slice_reads as part_of
from mapper.chain.cpu import find_loci
from mapper.errors import DeviceMemoryError
from mapper.extend.cpu import extend_loci
from mapper.index.index import Index
from mapper.mapping.stages import align_reads, rescue_mates
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import model_from
from mapper.params import ExtendParams, MapParams
from mapper.seed.cpu import seed_reads
from mapper.seed.exact import resolve_all
from mapper.seed.pack import pack_reads
from tests.helpers.alignment_views import alignments_of, loci_of
from tests.helpers.read_batches import Genome, genome_of, random_letters, reads_of
from tests.helpers.stage_batches import index_of, small_genome, some_pairs, some_reads

pytestmark = pytest.mark.gpu


def check_equal(ours, theirs) -> None:
    """Assert that every column has the same type and content."""
    assert type(ours) is type(theirs)
    for name, a, b in zip(ours._fields, ours, theirs, strict=True):
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name


def resolved(index: Index, params: MapParams | None = None) -> MapParams:
    params = params or MapParams()
    return resolve_all(params, index.fm.n_rows - 1)


@pytest.fixture(scope="module")
def genome() -> Genome:
    return small_genome(np.random.default_rng(1))


@pytest.fixture(scope="module")
def index(genome: Genome) -> Index:
    return index_of(genome)


@pytest.fixture(scope="module")
def reads(genome: Genome) -> ReadBatch:
    return reads_of(some_reads(np.random.default_rng(2), genome, 15))


def check_stages(index: Index, reads: ReadBatch, params: MapParams):
    """Compare stage by stage with the CPU; return the counters of the two stages with buckets."""
    from mapper.chain import cuda as device_chain
    from mapper.extend import cuda as device_extend
    from mapper.mapping.stages_cuda import DeviceStages
    from mapper.seed import cuda as device_seed
    from mapper.seed.cuda import download_packed, upload_reads

    stages = DeviceStages(index, 0, n_streams=1)
    stream = stages.streams[0]
    space, contigs = stream.space, index.contigs
    longest = int(np.diff(reads.base_offsets).max())
    packed = pack_reads(reads)
    there, _ = upload_reads(space, [reads])
    check_equal(download_packed(space, there), packed)

    seeds = seed_reads(index.fm, reads, packed, params.seed)
    found = device_seed.seed_reads(space, stream.fm, there, longest, params.seed)
    seed_counters = space.download("counters", space.device("counters", 4, np.int64)).copy()
    check_equal(device_seed.download_seeds(space, found), seeds)

    loci = find_loci(seeds, contigs.starts, contigs.lengths)
    device_loci = device_chain.find_loci(space, stream.contigs, found)
    downloaded = [space.download(f"locus.{i}", column) for i, column in enumerate(device_loci)]
    space.synchronize()
    check_equal(LocusBatch._make(downloaded), loci)

    alignments = extend_loci(index.fm.ref_planes, reads, packed, loci, params.extend, params.keep)
    found_there = device_extend.extend_loci(
        space, stream.fm.ref_planes, there, longest, device_loci, found.read, params.extend,
        params.keep,
    )  # fmt: skip
    n_buckets = len(device_extend.THREAD_BUCKETS) + len(device_extend.WARP_BUCKETS) + 2
    counters = space.download("counters", space.device("counters", 5 + 2 * n_buckets, np.int64))
    check_equal(device_extend.download_alignments(space, found_there), alignments)
    return seed_counters.tolist(), counters.tolist()


def test_each_stage_gives_the_batch_of_the_cpu(device, index, reads) -> None:
    check_stages(index, reads, resolved(index))


def test_other_scores(device, index, reads) -> None:
    extend = ExtendParams(match=2, mismatch=3, gap_open=4, gap_extend=2, end_bonus=0, max_gap=20)
    check_stages(index, reads, resolved(index, MapParams(extend=extend)))


def test_every_bucket_and_pools_that_grow(device, monkeypatch, index, reads) -> None:
    """Workspaces so small that every bucket passes reads on, and pools of results must grow."""
    from mapper.extend import cuda as device_extend
    from mapper.extend import cuda_kernels
    from mapper.extend.cuda_kernels import Bucket
    from mapper.seed import cuda as device_seed

    monkeypatch.setattr(device_seed, "FIRST_SEEDS", 24)
    monkeypatch.setattr(device_seed, "FIRST_DIAGONALS", 1)
    monkeypatch.setattr(device_extend, "SCREENED_BAND", 20)
    monkeypatch.setattr(device_extend, "SCREENING_THREADS", 128)
    monkeypatch.setattr(device_extend, "THREAD_BUCKETS", (Bucket(24, 40),))
    monkeypatch.setattr(device_extend, "WARP_BUCKETS", (Bucket(200, 120),))
    monkeypatch.setattr(cuda_kernels, "FEW_FOUND", 1)
    for module in (device_seed, device_extend):
        monkeypatch.setattr(module, "first_capacity", lambda n_items, each: 1)
    seeding, extension = check_stages(index, reads, resolved(index))
    assert seeding[1] == reads.n_reads
    # Of extension, the lists of two rounds lie between the pool's counter and the last two.
    n_lists = (len(extension) - 3) // 2
    for lists in (seeding[1:], extension[1 : 1 + n_lists], extension[1 + n_lists : -2]):
        assert lists == sorted(lists, reverse=True)
        assert lists[-2] > 0  # the last bucket had something to do ...
        assert lists[-1] == 0  # ... and left nothing


def test_a_read_whose_loci_asked_for_too_much_is_committed_alone(device) -> None:
    """The first locus sets the third a target, which the second, elsewhere in the read, lowers."""
    from mapper.cuda.memory import Workspace
    from mapper.cuda.upload import upload
    from mapper.extend import cuda as device_extend
    from mapper.seed.cuda import upload_reads

    rng = np.random.default_rng(11)
    first, second, flank = (random_letters(rng, n) for n in (60, 71, 100))
    third = first[:30] + "T" + first[30:]
    genome = genome_of([flank + first + flank + second + flank + third + flank])
    # The second lacks a base of the genome, and yet scores more than the first.
    reads = reads_of([first + second[:40] + second[41:]])
    places = [[(0, 100), (0, 260 - 60), (0, 431)]]
    loci = loci_of(genome, places)
    expected = extend_loci(genome.fm.ref_planes, reads, pack_reads(reads), loci, ExtendParams())
    # A longer match by chance may add to the 63 of the second.
    scores = [alignment.score for alignment in alignments_of(expected)[0]]
    assert scores[0] >= 63
    assert scores[1:] == [60, 53]

    space = Workspace()
    fm = upload(genome.fm, "the index")
    there = upload(loci, "the loci")
    found = device_extend.extend_loci(
        space, fm.ref_planes, upload_reads(space, [reads])[0], 130, there,
        space.upload("whose", np.zeros(3, np.int32)), ExtendParams(),
    )  # fmt: skip
    n_lists = len(device_extend.THREAD_BUCKETS) + len(device_extend.WARP_BUCKETS) + 3
    counters = space.download("counters", space.device("counters", 3 + 2 * n_lists, np.int64))
    check_equal(device_extend.download_alignments(space, found), expected)
    assert counters[-2:].tolist() == [1, 0]  # one read, and no locus that did not fit


@pytest.fixture(scope="module")
def pairs(genome: Genome) -> ReadBatch:
    """Pairs in repeats; some mates can only be aligned by rescue, some are from elsewhere."""
    return reads_of(some_pairs(np.random.default_rng(3), genome, 7), paired=True)


def test_mates_are_rescued_as_on_the_cpu(device, monkeypatch, index, pairs) -> None:
    from mapper.mapping.stages_cuda import DeviceStages
    from mapper.pair import cuda as device_pair

    params, model = resolved(index), model_from(150.0, 30.0, 60, 320, 1000)
    alone = align_reads(index, pairs, params, RunStats())
    expected = rescue_mates(index, alone, model, params, RunStats())
    assert len(expected.strand) > len(alone.alignments.strand)  # there was something to rescue
    stages = DeviceStages(index, 0, n_streams=1)
    for capacity in (1, 1000):  # a pool that has to grow, and one that does not
        monkeypatch.setattr(device_pair, "first_capacity", lambda n, each, c=capacity: c)
        found = stages.align(pairs, params, RunStats(), model)
        assert found.rescued
        check_equal(found.alignments, expected)


def test_reads_in_doubt_are_looked_at_again_as_on_the_cpu(device, genome, index, reads) -> None:
    from mapper.mapping.stages_cuda import DeviceStages

    pairs = reads_of(some_reads(np.random.default_rng(4), genome, 20), paired=True)
    params, model = resolved(index), model_from(150.0, 30.0, 60, 320, 1000)
    blind = params._replace(second_look=params.second_look._replace(max_occ=1, max_hits=0))
    stages = DeviceStages(index, 0, n_streams=1)
    for batch in (reads, pairs):
        theirs = align_reads(index, batch, params, RunStats())
        once = align_reads(index, batch, blind, RunStats())
        again = theirs.seeds.guarantee != once.seeds.guarantee
        assert 0 < again.sum() < len(again)
        assert len(theirs.alignments.strand) != len(once.alignments.strand)
        ours = stages.align(batch, params, RunStats())
        check_equal(ours.seeds, theirs.seeds)
        check_equal(ours.alignments, theirs.alignments)
        if batch.paired:
            expected = rescue_mates(index, theirs, model, params, RunStats())
            check_equal(stages.align(batch, params, RunStats(), model).alignments, expected)


def test_masked_bases_are_hidden_from_seeds_alone_as_on_the_cpu(
    device, genome, index, reads, pairs
) -> None:
    from mapper.mapping.stages_cuda import DeviceStages

    planes = genome.fm.ref_planes.copy()
    planes[len(planes) // 4 : len(planes) // 2, 2] = ~np.uint64(0)
    fm = genome.fm._replace(ref_planes=planes)
    masked = replace(index, fm=fm, unmasked_planes=genome.fm.ref_planes)
    params, model = resolved(masked), model_from(150.0, 30.0, 60, 320, 1000)
    stages = DeviceStages(masked, 0, n_streams=1)
    for batch in (reads, pairs):
        alone = align_reads(masked, batch, params, RunStats())
        expected = alone.alignments
        if batch.paired:
            expected = rescue_mates(masked, alone, model, params, RunStats())
        check_equal(stages.align(batch, params, RunStats(), model).alignments, expected)
        unmasked = align_reads(index, batch, params, RunStats()).alignments
        assert len(alone.alignments.strand) < len(unmasked.strand)


def test_what_does_not_fit_is_done_in_halves(device, monkeypatch, index, reads) -> None:
    from mapper.mapping import stages_cuda

    sizes = []
    at_once = stages_cuda._align_at_once

    def limited(stream, batches, *rest):
        sizes.append(sum(batch.n_reads for batch in batches))
        if sizes[-1] > 6:
            raise DeviceMemoryError("pretended")
        return at_once(stream, batches, *rest)

    monkeypatch.setattr(stages_cuda, "_align_at_once", limited)
    params = resolved(index)
    stages = stages_cuda.DeviceStages(index, 0, n_streams=1)
    ours = stages.align(reads, params, RunStats())
    theirs = align_reads(index, reads, params, RunStats())
    for a, b in zip(ours[1:4], theirs[1:4], strict=True):
        check_equal(a, b)
    assert sizes[0] == reads.n_reads
    assert max(sizes[1:]) <= reads.n_reads // 2 + 1


def test_a_stream_without_memory_leaves_the_work_to_the_others(
    device, monkeypatch, caplog, index, reads
) -> None:
    """Whose batches hold it; no read goes to the CPU for that, and none is left out."""
    from mapper.mapping import stages_cuda

    caplog.set_level("INFO", "mapper")  # a run before may have been --quiet
    stages, stats = stages_cuda.DeviceStages(index, 0, n_streams=3), RunStats()
    used = []
    at_once = stages_cuda._align_at_once

    def crowded(stream, *args):
        used.append(stages.streams.index(stream))
        if used[-1] < 2:
            raise DeviceMemoryError("pretended")
        return at_once(stream, *args)

    monkeypatch.setattr(stages_cuda, "_align_at_once", crowded)
    params = resolved(index)
    theirs = align_reads(index, reads, params, RunStats())
    for _ in range(2):
        ours = stages.align(reads, params, stats)
        for a, b in zip(ours[1:4], theirs[1:4], strict=True):
            check_equal(a, b)
    assert used == [0, 1, 2, 2]
    assert "reads_on_cpu" not in stats.counts
    assert [r.message for r in caplog.records if "one less" in r.message] == 2 * [
        "the memory of cuda:0 does not suffice for so many batches at a time: one less"
    ]


def test_batches_are_smaller_where_processes_share_a_device(device, monkeypatch, index) -> None:
    from mapper.cuda import memory
    from mapper.mapping.stages_cuda import DeviceStages

    monkeypatch.setattr(memory, "free_bytes", lambda: 10**9)
    monkeypatch.setattr(memory, "_total_bytes_of", lambda _: 2 * 10**9)
    monkeypatch.setattr(memory.sys, "maxsize", 2 * 10**9)  # the simulator's
    sizes = []
    for n_processes in (1, 2, 4):
        with memory.shared_by(n_processes):
            sizes.append(DeviceStages(index, 0, n_streams=1).batch_bases)
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1)  # half of the device is free
    assert sizes[2] < sizes[1] / 1.9


@pytest.mark.parametrize("paired", [False, True])
def test_what_does_not_fit_alone_is_done_by_the_cpu(
    device, monkeypatch, caplog, index, reads, pairs, paired
) -> None:
    from mapper.mapping import stages_cuda

    at_once = stages_cuda._align_at_once
    room = 2 if paired else 1

    def limited(stream, batches, *rest):
        """Raise for more than one read or pair, and for the first and the third."""
        if sum(b.n_reads for b in batches) > room or batches[0].first_read in (0, 2 * room):
            raise DeviceMemoryError("pretended")
        return at_once(stream, batches, *rest)

    monkeypatch.setattr(stages_cuda, "_align_at_once", limited)
    params, model = resolved(index), model_from(150.0, 30.0, 60, 320, 1000)
    stages, stats = stages_cuda.DeviceStages(index, 0, n_streams=1), RunStats()
    batch = part_of(pairs if paired else reads, 0, 5 * room)
    given = model if paired else None
    ours = stages.align(batch, params, stats, given)
    theirs = align_reads(index, batch, params, RunStats())
    wanted = theirs.alignments
    if paired:
        wanted = rescue_mates(index, theirs, model, params, RunStats())
    check_equal(ours.alignments, wanted)
    check_equal(ours.seeds, theirs.seeds)
    assert stats.counts == {"reads_on_cpu": 2 * room}
    assert f"{2 * room} reads did not fit a device" in stats.report()
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        "pretended; reads that do not fit even alone are mapped by the CPU"
    ]


def test_streams_and_workers_do_not_show(device, index, reads) -> None:
    """Batches of several threads at a time, on one device that is named twice."""
    from mapper.mapping.stages_cuda import DeviceStages

    params = resolved(index)
    stages = DeviceStages(index, 0, n_streams=4)
    groups = [
        [part_of(reads, start, end) for start, end in bounds]
        for bounds in ([(0, 5), (5, 6), (6, 6)], [(5, 10)], [(10, 15), (0, 5)])
    ]
    with ThreadPoolExecutor(3) as pool:
        ours = list(pool.map(lambda g: stages.align_batches(g, params, RunStats()), groups))
    for batches, shares in zip(groups, ours, strict=True):
        for batch, share in zip(batches, shares, strict=True):
            theirs = align_reads(index, batch, params, RunStats())
            for a, b in zip(share.cut()[:3], theirs[1:4], strict=True):
                check_equal(a, b)


@pytest.mark.parametrize("sequences", [["N" * 60, "A"], []], ids=["no hits", "no reads"])
def test_a_batch_without_hits(device, index, sequences) -> None:
    from mapper.mapping.stages_cuda import DeviceStages

    batch = reads_of(sequences)
    found = DeviceStages(index, 0, n_streams=1).align(batch, resolved(index), RunStats())
    theirs = align_reads(index, batch, resolved(index), RunStats())
    for a, b in zip(found[1:4], theirs[1:4], strict=True):
        check_equal(a, b)
    assert found.alignments.alignment_offsets.tolist() == [0] * (len(sequences) + 1)
