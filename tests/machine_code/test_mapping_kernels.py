"""Machine code of the mapper's kernels for sm_90, without a device."""

from __future__ import annotations

import numpy as np
import pytest
from numba import types

from mapper.batch import AlignmentBatch, LocusBatch
from mapper.extend.merge import MergeSpace, merge_space
from mapper.extend.read import FOUND_TYPES, Found
from mapper.extend.wavefront import Wavefronts, wavefront_penalties
from mapper.index.reference import ContigBounds
from mapper.mapping.stages import align_reads
from mapper.mapping.stats import RunStats
from mapper.pair.insert_size import assumed_model
from mapper.params import KEEP_ALL, ExtendParams, PairParams, SeedParams
from mapper.seed.diagonals import SeedScratch
from mapper.seed.rounds import SeedColumns
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import reads_of
from tests.helpers.stage_batches import index_of, small_genome, some_reads
from tests.mapping.test_stages_cuda import resolved

NUMBER = types.int64

FEW_SPILLS = 130
"""Loads from and stores to local memory of kernels that are bounded to fewer registers than they
would take, as more of their blocks are resident then and the whole is faster (ALIGNING, SEEDING).
Without bounds they have none."""

MOST_WIDE = 0.17
"""Of a kernel's instructions, those that count in 64 bits or make addresses; what they are is in
``benchmarks/results/sass_widths.md``. Loops one by one: ``test_inner_loops.py``."""


def struct(kind, *fields) -> types.NamedTuple:
    """Numba type of a NamedTuple of device arrays (given by dtype) and other types."""
    return types.NamedTuple([array(f) if isinstance(f, str) else f for f in fields], kind)


@pytest.fixture(scope="module")
def on_cpu():
    """Run the CPU's stages first: what they compile must not change the kernels."""
    require_compiler()
    genome = small_genome(np.random.default_rng(1))
    index = index_of(genome)
    reads = reads_of(some_reads(np.random.default_rng(2), genome, 12))
    align_reads(index, reads, resolved(index), RunStats())
    return index


@pytest.fixture(scope="module")
def shared_types(on_cpu):
    from mapper.cuda.worklist import Lists, Pool
    from mapper.seed.cuda import DeviceReads

    return {
        "reads": struct(DeviceReads, "u1", "i8", array(np.uint64, 2), "i8"),
        "lists": struct(Lists, "i8", array(np.int32, 2)),
        "pool": struct(Pool, "i4", "i8"),
    }


def extension_types(shared_types):
    from mapper.extend.cuda_kernels import Bucket, Lists, PerLocus, PerThread, PerUnit

    found = struct(Found, *FOUND_TYPES)
    return (
        array(np.uint64, 2), shared_types["reads"],
        struct(LocusBatch, "i8", "u1", "i8", "i4", "i8", "i8"), array(np.int32),
        type_of(ExtendParams()), type_of(wavefront_penalties(ExtendParams())),
        struct(Lists, "i8", array(np.int32, 2), "i4"), NUMBER, NUMBER, NUMBER, NUMBER,
        type_of(Bucket(0, 0)), struct(PerThread, "i4", "u4", "u4"),
        struct(PerUnit, struct(Wavefronts, *["i4"] * 6), "i4"),
        struct(PerLocus, array(np.int32, 2), "i8", "i4", "i4", "i4", "i4", found), array(np.uint32),
    )  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("rows", [np.uint32, np.uint64])
def test_seeding_keeps_nearly_everything_in_registers(on_cpu, shared_types, rows) -> None:
    """With rows of 64 bits, too; mixed with signed numbers they would become floating point."""
    from mapper.seed import cuda as device_seed

    fm = on_cpu.fm._replace(
        sa_samples=on_cpu.fm.sa_samples.astype(rows), kmer_starts=on_cpu.fm.kmer_starts.astype(rows)
    )
    first = (
        type_of(fm), shared_types["reads"], type_of(SeedParams()), shared_types["lists"], NUMBER,
        NUMBER,
    )  # fmt: skip
    last = (
        struct(SeedScratch, *device_seed._SCRATCH), shared_types["pool"],
        struct(SeedColumns, *device_seed._COLUMNS), struct(device_seed.PerRead, "i4", "u1"),
    )  # fmt: skip
    sizes = type_of(device_seed.SeedingSizes(0, 0, 0))
    by_warp = compile_offline(device_seed._seed_by_warp, (*first, sizes, *last))
    assert by_warp.count("VOTE") >= 1
    assert by_warp.spills <= FEW_SPILLS
    machine = compile_offline(device_seed._seed, (*first, *last))
    assert machine.count("VOTE") == 0
    assert machine.spills <= FEW_SPILLS
    assert machine.count("POPC") > 0
    assert machine.count("DADD", "DMUL", "DFMA") == 0
    assert machine.wide_share <= MOST_WIDE


@pytest.mark.medium
def test_a_warp_votes_and_keeps_everything_in_registers(shared_types) -> None:
    """Lane functions of one lane in this kernel would let 32 lanes go their own ways."""
    from mapper.extend.cuda_kernels import extend_by_warp

    machine = compile_offline(extend_by_warp, extension_types(shared_types))
    assert machine.count("VOTE") >= 4  # one text for both sides of an anchor
    assert machine.count("SHFL") >= 20
    assert machine.spills == 0
    assert machine.wide_share <= MOST_WIDE


def alignment_types() -> types.NamedTuple:
    return struct(AlignmentBatch, "i8", "u1", *["i4", "i8", "i8", "i4"], *["i4"] * 3, "i8", "u4")


@pytest.mark.medium
def test_merging_keeps_everything_in_registers(on_cpu) -> None:
    from mapper.extend import merge_cuda

    bytes_, numbers, wide = array(np.uint8), array(np.int32), array(np.int64)
    both = (alignment_types(), alignment_types(), NUMBER)
    listed = (numbers, wide)
    ordering = (numbers, numbers, numbers, *listed)
    space = merge_space(0, lambda _, n, dtype: array(dtype))
    of_warps = types.NamedTuple([*space], MergeSpace)
    copying = (NUMBER, numbers, wide, alignment_types(), *listed)
    for kernel, given, votes in (
        (merge_cuda._order, (*both, bytes_, bytes_, *ordering), False),
        (merge_cuda._order_by_warp, (*both, of_warps, *ordering), True),
        (merge_cuda._copy, (*both, *copying[1:-2]), False),
        (merge_cuda._copy_by_warp, (*both, *copying), False),
    ):
        machine = compile_offline(kernel, given)
        # A warp that has hundreds of rows to sort sorts longer than it goes to memory.
        most = 24 if kernel is merge_cuda._order_by_warp else 2
        assert machine.spills <= most, kernel.function.__name__
        assert (machine.count("VOTE") > 0) == votes, kernel.function.__name__


@pytest.mark.medium
def test_rescue_votes_and_keeps_everything_in_registers(shared_types) -> None:
    from mapper.pair import cuda as device_pair

    machine = compile_offline(
        device_pair._propose,
        (
            array(np.uint64, 2), shared_types["reads"], struct(ContigBounds, "i8", "i8"),
            alignment_types(), array(np.int32), type_of(assumed_model()), type_of(PairParams()),
            type_of(ExtendParams()),
            array(np.int64), NUMBER, NUMBER, NUMBER, struct(device_pair.PerWarp, "i8", "i8"),
            array(np.int64), shared_types["pool"], struct(device_pair.Proposed, "u1", "i8", "i4"),
        ),
    )  # fmt: skip
    assert machine.count("VOTE") >= 1
    assert machine.count("SHFL") >= 20  # two maxima, of 64 bits, and the next pair
    assert machine.spills == 0
    gather = compile_offline(
        device_pair._gather_proposed,
        (
            NUMBER, struct(ContigBounds, "i8", "i8"), shared_types["pool"],
            struct(device_pair.Proposed, "u1", "i8", "i4"),
            struct(LocusBatch, "i8", "u1", "i8", "i4", "i8", "i8"), array(np.int32),
        ),
    )  # fmt: skip
    assert gather.spills == 0


@pytest.mark.medium
def test_a_thread_alone_shuffles_nothing(shared_types) -> None:
    from mapper.extend.cuda_kernels import extend_alone

    machine = compile_offline(extend_alone, extension_types(shared_types))
    # One SHFL or two hand round the result of an atomic addition that the compiler gathered.
    assert machine.count("SHFL") <= 2
    assert machine.spills <= FEW_SPILLS
    assert machine.wide_share <= MOST_WIDE


@pytest.mark.medium
def test_screening_leaves_room_for_four_blocks(shared_types) -> None:
    """Half of the threads that the aligning kernels leave room for would not do."""
    from mapper.extend.cuda_kernels import screen

    kinds = extension_types(shared_types)
    machine = compile_offline(screen, (*kinds[:11], NUMBER, array(np.int32), kinds[14]))
    assert machine.count("SHFL") <= 2
    assert machine.registers <= 65536 // (4 * screen.block)
    assert machine.spills == 0
    assert machine.wide_share <= MOST_WIDE
    # The text slides past the read's blocks on either side of the diagonal.
    sliding = [loop for loop in machine.inner_loops if loop.count("SHF") >= 20]
    assert len(sliding) == 2
    for loop in sliding:
        assert loop.count("LDG", "LD", "LDL", "STL", "BRX", "CALL") == 0
        # No address; what else is 64 bits wide are sums of eight bytes at a time.
        assert loop.wide["addresses"] == loop.wide["comparisons"] == 0
        # Shifts, logic and sums of 32 bits; the rest counts diagonals.
        others = len(loop.instructions) - loop.count("SHF", "LOP3", "IADD3")
        assert others <= len(loop.instructions) // 8


@pytest.mark.medium
def test_settling_keeps_everything_in_registers(shared_types) -> None:
    from mapper.extend import cuda_kernels
    from mapper.extend.cuda_kernels import commit_by_warp

    kinds = extension_types(shared_types)
    _, reads, loci, locus_read, params, penalties, lists, *_, rows, pool_ops = kinds
    counts, keeping = array(np.int32), type_of(KEEP_ALL)
    bucket, scratch, shared = kinds[11:14]
    settling = {
        "begin": (reads, loci, params, rows, lists, NUMBER, NUMBER),
        "begin_by_warp": (reads, loci, params, rows, lists, NUMBER, NUMBER, NUMBER),
        "go_on": (reads, loci, locus_read, params, rows, lists, NUMBER),
        "commit": (reads, loci, params, rows, lists, NUMBER, counts),
        "keep": (reads, loci, keeping, rows, counts, counts, lists, NUMBER),
        "keep_by_warp": (reads, loci, keeping, rows, counts, counts, lists, NUMBER, NUMBER),
        "write_cigars": (
            kinds[0], reads, loci, locus_read, NUMBER, scratch, rows, array(np.int64), pool_ops,
        ),
        "count_ops": (loci, rows, counts, counts),
        "gather": (loci, rows, pool_ops, array(np.int64), alignment_types(), counts),
        "gather_by_warp": (
            loci, rows, pool_ops, array(np.int64), alignment_types(), lists, NUMBER, NUMBER,
        ),
    }  # fmt: skip
    for name, given in settling.items():
        machine = compile_offline(getattr(cuda_kernels, name), given)
        assert machine.spills <= (4 if name.endswith("by_warp") else 0), name
        assert (machine.count("VOTE") > 0) == (name == "keep_by_warp"), name
    machine = compile_offline(
        commit_by_warp,
        (
            kinds[0], reads, loci, params, penalties, lists, NUMBER, NUMBER, NUMBER, bucket,
            scratch, shared, rows, pool_ops, counts,
        ),
    )  # fmt: skip
    assert machine.count("VOTE") >= 4
    assert machine.spills <= FEW_SPILLS
