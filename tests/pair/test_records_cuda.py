"""Records made on a device (or in the simulator) and on the CPU: the same bytes and counts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from mapper.batch import EncodedBatch, ReadBatch
from mapper.batch_ops import ResultSlice, slice_reads
from mapper.errors import DeviceMemoryError, OutputError
from mapper.index.index import Index
from mapper.index.reference import ALT, UNGROUPED
from mapper.io.bam_writer import encode_bam
from mapper.mapping.stages import Aligned, align_reads, place_batch, rescue_mates
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import model_from
from mapper.pair.placement import n_recorded, tally, tally_encoded
from mapper.pair.records import make_names
from mapper.params import LONG_CS, SHORT_CS, MapParams, RecordParams
from mapper.seed.exact import resolve_all
from tests.helpers.read_batches import genome_of, mutated, random_letters, reads_of
from tests.helpers.stage_batches import index_of, small_genome, some_pairs, some_reads

pytestmark = [
    pytest.mark.gpu,
    # Hashes of names, which the simulator computes with NumPy's numbers.
    pytest.mark.filterwarnings("ignore:.*overflow encountered"),
]

MODEL = model_from(150, 30, 60, 260, 1000)


@pytest.fixture(scope="module")
def genome():
    return small_genome(np.random.default_rng(1))


@pytest.fixture(scope="module")
def index(genome) -> Index:
    return index_of(genome)


def with_qualities(sequences: list[str], **options) -> ReadBatch:
    """Return reads with qualities of all sizes, some without any; the third one's name is empty."""
    rng = np.random.default_rng(3)
    reads = reads_of(sequences, **options)
    quals = rng.choice([2, 9, 11, 14, 15, 25, 37], len(reads.bases)).astype(np.uint8)
    quals[reads.base_offsets[4] : reads.base_offsets[6]] = 255
    return reads._replace(quals=quals)


def pairs(genome, n: int = 8) -> ReadBatch:
    return with_qualities(some_pairs(np.random.default_rng(4), genome, n), paired=True)


def singles(genome, n: int = 12) -> ReadBatch:
    sequences = some_reads(np.random.default_rng(5), genome, n)
    # Two halves from two places: a split read, whose second part is clipped.
    sequences += [genome.text[20:90] + genome.text[400:480], genome.text[100:104]]
    names = [f"read{i}" if i != 2 else "" for i in range(len(sequences))]
    return with_qualities(sequences, names=names)


def check(index: Index, batches: list[ReadBatch], record: RecordParams, group: str = "") -> None:
    """Compare the records of batches that are aligned as one."""
    from mapper.mapping.stages_cuda import DeviceStages

    params = resolve_all(MapParams(record=record), index.fm.n_rows - 1)
    names = make_names(index.contigs, group)
    stages = DeviceStages(index, 0, n_streams=1)
    names_on = stages.device_names(names._replace(read_group=np.zeros(0, np.uint8))).on
    if group:  # as if it were the reads' own
        names_on = partial(names_on, read_group=group.encode())
    made = stages.align_batches(batches, params, RunStats(), MODEL, names_on)
    for reads, ours in zip(batches, made, strict=True):
        aligned = align_reads(index, reads, params, RunStats())
        placements, records = place_batch(index, aligned, MODEL, params, names, RunStats())
        assert isinstance(ours, EncodedBatch)
        assert ours.n_records == records.n_records
        assert ours.data.tobytes() == encode_bam(records, reads).tobytes()
        assert tally_encoded(ours) == tally(placements)
        assert n_recorded(ours) == reads.n_reads


@pytest.mark.parametrize(
    "record",
    [
        RecordParams(),
        RecordParams(extended_cigar=True, soft_clip_supplementary=True, cs=SHORT_CS, ds=True),
        RecordParams(all_alignments=True, cs=LONG_CS),
        RecordParams(short_sa=True, max_xa=1, cs=LONG_CS, ds=True),
    ],
)
def test_records_are_those_of_the_cpu(device, index, genome, record) -> None:
    for reads in (pairs(genome), singles(genome)):
        check(index, [reads], record, "lane 1")


def test_each_batch_of_a_group_gets_its_own(device, index, genome) -> None:
    reads = pairs(genome)
    cuts = [0, 2, 2, 10, reads.n_reads]
    check(index, [slice_reads(reads, *cut) for cut in pairwise(cuts)], RecordParams())


@pytest.mark.parametrize("groups", [(UNGROUPED, ALT, ALT), (1, 2, UNGROUPED)])
def test_groups_of_contigs(device, index, genome, groups) -> None:
    contigs = index.contigs._replace(groups=np.array(groups, np.int32))
    grouped = replace(index, contigs=contigs)
    for reads in (pairs(genome), singles(genome)):
        check(grouped, [reads], RecordParams(max_xa_of_groups=3))


def test_reads_without_any_alignment(device, index) -> None:
    check(index, [reads_of(["A", "N" * 30, "ACGT"])], RecordParams())


def test_a_name_that_bam_cannot_hold(device, index, genome) -> None:
    reads = reads_of([genome.text[:60]], names=["x" * 255])
    with pytest.raises(OutputError, match="name of read 1 has 255 characters"):
        check(index, [reads], RecordParams())


def test_of_a_batch_in_halves_the_host_makes_the_records(
    device, monkeypatch, index, genome
) -> None:
    """Two batches do not fit together, and the first one not even alone."""
    from mapper.mapping import stages_cuda

    at_once = stages_cuda._align_at_once

    def limited(stream, batches, *rest):
        if sum(batch.n_reads for batch in batches) > 8:
            raise DeviceMemoryError("pretended")
        return at_once(stream, batches, *rest)

    monkeypatch.setattr(stages_cuda, "_align_at_once", limited)
    reads = pairs(genome, 8)
    batches = [slice_reads(reads, 0, 10), slice_reads(reads, 10, 16)]
    params = resolve_all(MapParams(), index.fm.n_rows - 1)
    names = make_names(index.contigs, "")
    stages = stages_cuda.DeviceStages(index, 0, n_streams=1)
    halved, whole = stages.align_batches(
        batches, params, RunStats(), MODEL, stages.device_names(names).on
    )
    assert isinstance(halved, ResultSlice)
    aligned = Aligned(batches[0], *halved.cut(), True)
    _, records = place_batch(index, aligned, MODEL, params, names, RunStats())
    theirs = align_reads(index, batches[0], params, RunStats())
    _, expected = place_batch(index, theirs, MODEL, params, names, RunStats())
    assert encode_bam(records, batches[0]).tobytes() == encode_bam(expected, batches[0]).tobytes()
    assert isinstance(whole, EncodedBatch) and len(whole.state) == 6


def test_without_memory_for_records_the_host_makes_them(
    device, monkeypatch, caplog, index, genome
) -> None:
    """The alignments are kept; later batches of the stream are not tried."""
    from mapper.mapping import stages_cuda

    tried = []

    def full(*arguments):
        tried.append(arguments)
        raise DeviceMemoryError("pretended")

    monkeypatch.setattr(stages_cuda, "encode_on_device", full)
    caplog.set_level("INFO", logger=stages_cuda.__name__)
    params = resolve_all(MapParams(), index.fm.n_rows - 1)
    stages = stages_cuda.DeviceStages(index, 0, n_streams=1)
    names_on = stages.device_names(make_names(index.contigs, "")).on
    reads = pairs(genome, 6)
    for _ in range(2):
        (share,) = stages.align_batches([reads], params, RunStats(), MODEL, names_on)
        assert isinstance(share, ResultSlice)
        aligned = Aligned(reads, *share.cut(), True)
        theirs = align_reads(index, reads, params, RunStats())
        alignments = rescue_mates(index, theirs, MODEL, params, RunStats())
        for a, b in zip(aligned.alignments, alignments, strict=True):
            assert np.array_equal(a, b)
    assert len(tried) == 1
    said = [r.message for r in caplog.records if r.name == stages_cuda.__name__]
    assert said == ["pretended: the host makes records"]


@pytest.mark.slow_simulated
def test_long_tags_of_the_longest_short_reads(device) -> None:
    """All bases twice in the tags of each record."""
    rng = np.random.default_rng(8)
    genome = genome_of([random_letters(rng, 3000)])
    sequences = [mutated(rng, genome.text[at : at + 1000], 0.02)[:1000] for at in (0, 500, 900)]
    record = RecordParams(cs=LONG_CS, ds=True, extended_cigar=True)
    check(index_of(genome), [reads_of(sequences)], record)
