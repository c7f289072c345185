"""Long reads on a device (or in the simulator) and on the CPU: the same batches, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from mapper.batch import ReadBatch
from mapper.batch_ops import join_reads
from mapper.chain.cpu import link_anchors
from mapper.cuda.api import SIMULATED
from mapper.cuda.devices import CUDA, DeviceChoice
from mapper.errors import DeviceMemoryError
from mapper.index.index import Index
from mapper.mapping.device_io import HOST
from mapper.mapping.stages import LongChained, extend_long_reads, long_reads_of, seed_long_reads
from mapper.mapping.stats import ON_CPU, RunStats
from mapper.params import PRESETS, MapParams, TwoPieceScoring
from mapper.seed.cpu import find_anchors
from mapper.seed.exact import resolve_all
from mapper.seed.pack import pack_reads
from tests.helpers.mapping_runs import build_index, map_to
from tests.helpers.read_batches import Genome, genome_of, mutated, random_letters, reads_of
from tests.helpers.simulate import Read, write_fasta, write_fastq
from tests.helpers.stage_batches import index_of, opposite, small_genome

# In the simulator, numbers that are to wrap around are NumPy's, which warns of it.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*overflow encountered"),
]

SCALE = 1 if SIMULATED else 10


def check_equal(ours, theirs) -> None:
    """Assert that every column has the same type and content."""
    assert type(ours) is type(theirs)
    for name, a, b in zip(ours._fields, ours, theirs, strict=True):
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name


def run_all(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@pytest.fixture(scope="module")
def genome() -> Genome:
    if SIMULATED:
        return small_genome(np.random.default_rng(1))
    rng = np.random.default_rng(1)
    family = random_letters(rng, 600)
    parts = [random_letters(rng, 3000) + mutated(rng, family, 0.08) for _ in range(30)]
    whole = "".join(parts) + "N" * 300 + "ACG" * 200
    return genome_of([whole, random_letters(rng, 5000) + whole[9000:12000]])


@pytest.fixture(scope="module")
def index(genome: Genome) -> Index:
    return index_of(genome)


def params_of(index: Index, preset: str) -> MapParams:
    return resolve_all(MapParams(long=PRESETS[preset]), index.fm.n_rows - 1)


def long_reads(genome: Genome, seed: int, n: int) -> ReadBatch:
    """Reads with errors of every rate, with N, of both strands, and from nowhere."""
    rng = np.random.default_rng(seed)
    reads = ["N" * 1100, random_letters(rng, 1100), genome.text[:1005]]
    while len(reads) < n:
        length = int(rng.integers(1001, 1400 * SCALE))
        start = int(rng.integers(0, len(genome.text) - length))
        letters = genome.text[start : start + length]
        at, size = int(rng.integers(100, 900)), int(rng.integers(1, 300))
        if len(reads) % 3 == 0:
            letters = letters[:at] + random_letters(rng, size) + letters[at:]
        if len(reads) % 3 == 1:
            letters = letters[:at] + letters[at + size // 2 :]
        if len(reads) % 5 == 0:
            letters = letters[:500] + "N" * 30 + random_letters(rng, 9) + "N" + letters[500:]
        letters = mutated(rng, letters, float(rng.choice([0, 0.005, 0.02, 0.08])))
        reads.append(opposite(letters) if rng.random() < 0.5 else letters)
    return reads_of(reads)


@pytest.mark.parametrize("preset", ["hifi", "ont"])
def test_anchors_and_links_are_those_of_the_cpu(
    device, genome: Genome, index: Index, preset: str
) -> None:
    from mapper.chain import cuda as chain_cuda
    from mapper.mapping.stages_cuda import DeviceStages
    from mapper.seed import anchors_cuda
    from mapper.seed.cuda import download_packed

    params = params_of(index, preset)
    batches = [long_reads(genome, 2, 7 * SCALE), long_reads(genome, 3, 4)]
    (stream,) = DeviceStages(index, 0, n_streams=1).streams
    there = anchors_cuda.upload_long_reads(stream.space, batches)
    check_equal(download_packed(stream.space, there), pack_reads(join_reads(batches)))
    for max_occ, lookback in ((250, 1000), (3, 1000), (250, 5)):
        anchors = params.long.anchors._replace(max_occ=max_occ)
        chain = params.long.chain._replace(lookback=lookback)
        found = anchors_cuda.find_anchors(
            stream.space, stream.fm, there, batches,
            [long_reads_of(batch, anchors).stretches for batch in batches], anchors,
        )  # fmt: skip
        links = chain_cuda.link_anchors(stream.space, stream.contigs.starts, found, chain)
        shares = chain_cuda.download_links(stream.space, found, links, batches)
        for batch, (ours, our_links) in zip(batches, shares, strict=True):
            theirs = find_anchors(index.fm, batch, pack_reads(batch), anchors)
            assert len(theirs.strand) > 0
            assert max_occ == 250 or not SIMULATED or theirs.frequent.any()
            check_equal(ours, theirs)
            linked = link_anchors(theirs, index.contigs.starts, chain)
            assert (linked.parent >= 0).any()
            check_equal(our_links, linked)


def test_reads_without_anchors_have_no_links(device, index: Index) -> None:
    params = params_of(index, "ont")
    batches = [reads_of(["N" * 1200, "N" * 2000])]
    check_aligned(index, batches, params, run_on_device(index, batches, params))


def check_aligned(
    index: Index, batches: Sequence[ReadBatch], params: MapParams,
    found: Sequence[Sequence[LongChained]],
) -> None:  # fmt: skip
    """Assert that the alignments along chains of a device are those of the CPU."""
    for batch, parts in zip(batches, found, strict=True):
        chained = seed_long_reads(index, batch, params, RunStats())
        theirs = extend_long_reads(index, batch, [chained], params, RunStats())
        ours = extend_long_reads(index, batch, parts, params, RunStats())
        check_equal(ours.alignments, theirs.alignments)
        check_equal(ours.support, theirs.support)
        assert np.array_equal(ours.frequent, theirs.frequent)


def test_what_does_not_fit_is_done_in_halves(device, monkeypatch, genome, index) -> None:
    from mapper.mapping import stages_cuda

    sizes = []
    at_once = stages_cuda._chain_long_at_once

    def limited(stream, batches, *rest):
        sizes.append(sum(batch.reads.n_reads for batch in batches))
        if sizes[-1] > 2:
            raise DeviceMemoryError("pretended")
        return at_once(stream, batches, *rest)

    monkeypatch.setattr(stages_cuda, "_chain_long_at_once", limited)
    params = params_of(index, "ont")
    batches = [long_reads(genome, 4, 5), long_reads(genome, 5, 3)]
    stages = stages_cuda.DeviceStages(index, 0, n_streams=1)
    found = stages.chain_long_batches(
        [long_reads_of(batch, params.long.anchors) for batch in batches], params, RunStats(),
        run_all,
    )  # fmt: skip
    assert sizes == [8, 5, 2, 3, 1, 2, 3, 1, 2]
    assert [len(parts) for parts in found] == [3, 2]
    check_aligned(index, batches, params, found)


def test_a_read_that_does_not_fit_alone_is_seeded_by_the_cpu(
    device, monkeypatch, genome, index
) -> None:
    from mapper.mapping import stages_cuda

    def full(*_arguments):
        raise DeviceMemoryError("pretended")

    monkeypatch.setattr(stages_cuda, "_chain_long_at_once", full)
    params, stats = params_of(index, "hifi"), RunStats()
    batch = long_reads(genome, 6, 3)
    stages = stages_cuda.DeviceStages(index, 0, n_streams=1)
    found = stages.chain_long_batches(
        [long_reads_of(batch, params.long.anchors)], params, stats, run_all
    )
    assert stats.counts[ON_CPU] == 3
    check_aligned(index, [batch], params, found)


def run_on_device(index: Index, batches: Sequence[ReadBatch], params: MapParams):
    from mapper.mapping.stages_cuda import DeviceStages

    stages = DeviceStages(index, 0, n_streams=1)
    given = [long_reads_of(batch, params.long.anchors) for batch in batches]
    return stages.chain_long_batches(given, params, RunStats(), run_all)


@pytest.mark.parametrize("preset", ["sr", "hifi", "ont", "asm"])
def test_alignments_are_those_of_the_cpu(device, genome, index, preset: str) -> None:
    params = params_of(index, preset)
    batches = [long_reads(genome, 7, 5 * SCALE), long_reads(genome, 8, 4)]
    found = run_on_device(index, batches, params)
    done = [part.done for parts in found for part in parts]
    counts = np.concatenate([pieces.fill_count for pieces in done])
    assert (counts > 0).sum() > 0.7 * len(counts) > 0
    assert (np.concatenate([pieces.end_count for pieces in done]) >= 0).any()
    check_aligned(index, batches, params, found)


def test_the_memory_of_operations_grows(device, monkeypatch, genome, index) -> None:
    from mapper.extend import pieces_cuda

    monkeypatch.setattr(pieces_cuda, "first_capacity", lambda n, each: 1)
    params = params_of(index, "ont")
    batches = [long_reads(genome, 9, 5 * SCALE)]
    check_aligned(index, batches, params, run_on_device(index, batches, params))


@pytest.mark.skipif(SIMULATED, reason="the piece is too large for the simulator")
def test_pieces_of_every_size(device, genome, index) -> None:
    """Up to such that only the CPU has room for."""
    rng = np.random.default_rng(11)
    params = params_of(index, "ont")
    reads = []
    for size in (5, 50, 150, 200, 300, 700, 1500, 2900, 3500, 4400):
        flanks = genome.text[:6000], genome.text[6000 + size : 14000]
        middle = mutated(rng, genome.text[6000 : 6000 + size], 0.35)
        reads.append(flanks[0] + middle + flanks[1])
        reads.append(opposite(flanks[0] + flanks[1]))
        reads.append(flanks[0] + random_letters(rng, size) + genome.text[6000:14000])
    batches = [reads_of(reads)]
    found = run_on_device(index, batches, params)
    counts = found[0][0].done.fill_count
    assert 0 < (counts < 0).sum() < len(counts)
    check_aligned(index, batches, params, found)


def test_differences_of_more_than_a_byte_are_left_to_the_cpu(device, genome, index) -> None:
    params = params_of(index, "sr")
    scoring = TwoPieceScoring(20, 80, 120, 20, 230, 10)
    params = params._replace(long=params.long._replace(scoring=scoring))
    batches = [long_reads(genome, 10, 4)]
    found = run_on_device(index, batches, params)
    assert len(found[0][0].done.ops) == 0
    check_aligned(index, batches, params, found)


def test_files_that_mix_short_and_long_reads(device, monkeypatch, genome, tmp_path) -> None:
    from mapper.mapping import device_batches

    rng = np.random.default_rng(12)
    text = genome.text.replace("N", "A")
    write_fasta(tmp_path / "g.fa", {"c1": text[: len(text) // 2], "c2": genome.text})
    index = build_index(tmp_path / "g.fa", tmp_path / "g.fmw")
    reads = []
    for i in range(8 * SCALE):
        length = 90 if i % 2 else int(rng.integers(1001, 1200 * SCALE))
        start = int(rng.integers(0, len(text) - length))
        letters = mutated(rng, text[start : start + length], 0.02)
        letters = opposite(letters) if i % 3 else letters
        reads.append(Read(f"r{i}", letters, "I" * len(letters)))
    fastq = write_fastq(tmp_path / "r.fq", reads)
    map_to(index, tmp_path / "cpu.bam", fastq)
    for batch_bases, n_batches in ((3000 * SCALE, 1), (1500 * SCALE, 3)):
        monkeypatch.setattr(device_batches, "MEMBER_BASES", batch_bases)
        map_to(
            index, tmp_path / "x.bam", fastq, threads=2, device=DeviceChoice(CUDA, (0,)),
            batch_bases=n_batches * batch_bases, compress_on=HOST,  # a device's BGZF is another
        )  # fmt: skip
        assert (tmp_path / "x.bam").read_bytes() == (tmp_path / "cpu.bam").read_bytes()
