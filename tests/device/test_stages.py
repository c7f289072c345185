"""Stages on a device (or in the simulator) and on the CPU: the same batches, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.batch import ReadBatch
from mapper.chain.cpu import find_loci
from mapper.extend.cpu import extend_loci
from mapper.index.reference import Index
from mapper.params import MapParams
from mapper.seed.cpu import seed_reads
from mapper.seed.pack import pack_reads
from mapper.seed.plan import resolve
from tests.device.batches import index_of, small_genome, some_reads
from tests.reads import Genome, reads_of

pytestmark = pytest.mark.gpu


def check_equal(ours, theirs) -> None:
    """Every column has the same type and content."""
    assert type(ours) is type(theirs)
    for name, a, b in zip(ours._fields, ours, theirs, strict=True):
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name


def resolved(index: Index, params: MapParams | None = None) -> MapParams:
    params = params or MapParams()
    return params._replace(seed=resolve(params.seed, index.fm.n_rows - 1))


def check_stages(index: Index, reads: ReadBatch, params: MapParams) -> None:
    """Run stage by stage on both."""
    from mapper.chain import cuda as device_chain
    from mapper.device.backend import DeviceStages, download_loci
    from mapper.device.reads import download_packed, upload_reads
    from mapper.extend import cuda as device_extend
    from mapper.seed import cuda as device_seed

    stages = DeviceStages(index, [0], lanes=1)
    lane = stages.lanes[0]
    space, contigs = lane.space, index.contigs
    longest = int(np.diff(reads.base_offsets).max())
    packed = pack_reads(reads)
    there = upload_reads(space, reads)
    check_equal(download_packed(space, there), packed)

    seeds = seed_reads(index.fm, reads, packed, params.seed)
    found = device_seed.seed_reads(space, lane.fm, there, longest, params.seed)
    check_equal(device_seed.download_seeds(space, found), seeds)

    loci = find_loci(seeds, contigs.starts, contigs.lengths)
    device_loci = device_chain.find_loci(space, lane.contigs, found)
    check_equal(download_loci(space, device_loci), loci)

    alignments = extend_loci(index.fm.ref_planes, reads, packed, loci, params.extend)
    check_equal(
        device_extend.extend_loci(
            space,
            lane.fm.ref_planes,
            there,
            longest,
            device_loci,
            found.read,
            found.host_offsets,
            params.extend,
        ),
        alignments,
    )


@pytest.fixture(scope="module")
def genome() -> Genome:
    with np.errstate(over="ignore"):  # hashes overflow; in the simulator NumPy sees them
        return small_genome(np.random.default_rng(1))


@pytest.fixture(scope="module")
def index(genome: Genome) -> Index:
    return index_of(genome)


def test_each_stage_gives_the_cpu_batch(device, genome: Genome, index: Index) -> None:
    rng = np.random.default_rng(2)
    check_stages(index, reads_of(some_reads(rng, genome, 24)), resolved(index))
