"""k-mer search by CUDA kernels: the same hits as the CPU's, on a device or in the simulator.

The CPU's are compared with the oracle in test_kmers.py.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from mapper import dna
from mapper.batch import KmerBatch
from mapper.kmers.cpu import CpuKmerSearch, all_rows, new_store
from mapper.kmers.cut import cut_kmers
from mapper.params import IndexParams, KmerParams
from tests.helpers.big_offsets import BEYOND, fm_at
from tests.helpers.kmer_searches import bounds_of
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import genome_of, mutated, random_letters, reads_of


def repetitive_genome(rng, n, params=None):
    """Two contigs with a run of N, exact and changed copies of a unit, and poly-A."""
    unit = random_letters(rng, n // 5)
    contigs = [
        random_letters(rng, n) + unit + "N" * 9 + mutated(rng, unit, 0.1) + "A" * 40,
        mutated(rng, unit, 0.05) + random_letters(rng, n // 2),
    ]
    return contigs, genome_of(contigs, params)


def first_batch(reads, kmer_len, stride=1):
    return next(iter(cut_kmers(reads_of(reads), kmer_len, stride, 1 << 20)))[0]


def assert_same(given, expected):
    for name, column, other in zip(expected._fields, given, expected, strict=True):
        assert column.dtype == other.dtype, name
        assert np.array_equal(column, other), name


@pytest.mark.slow_simulated
@pytest.mark.gpu
@pytest.mark.parametrize("most", [0, 1, 2])
@pytest.mark.parametrize("list_capacity", [60, 10**4])
def test_hits_are_those_of_the_cpu(device, most, list_capacity):
    from mapper.index.cuda import device_index, upload_index
    from mapper.kmers.cuda import MAX_TURNS, CudaKmerSearch, device_contexts

    rng = np.random.default_rng(most)
    contigs, genome = repetitive_genome(rng, 300, IndexParams(kmer_len=3))
    reads = [mutated(rng, contigs[0][start : start + 25], 0.04) for start in (0, 100, 290, 380)]
    kmers = first_batch([*reads, "A" * 20, contigs[1][:30]], 12, 3)
    params = KmerParams(12, most, 12)
    bounds = bounds_of(genome)
    expected = CpuKmerSearch(genome.fm, bounds, params)(kmers)
    assert expected.skipped.any()
    assert set(expected.mismatches.tolist()) == set(range(most + 1))
    assert np.diff(expected.hit_offsets).max() > 1
    expanded = device_index(genome.fm, 12)
    assert expanded.sa_shift == 0 < genome.fm.sa_shift
    assert expanded.kmer_len > genome.fm.kmer_len
    uploaded, contexts = upload_index(genome.fm), device_contexts(expanded, params)
    assert device_contexts(uploaded, params) is None
    assert (contexts is None) == (most == 0)
    for fm, near, max_turns in ((expanded, contexts, MAX_TURNS), (expanded, contexts, 30),
                               (uploaded, None, 60)):  # fmt: skip
        search = CudaKmerSearch(0, fm, near, bounds, params, list_capacity)
        search.max_turns = max_turns
        assert_same(search(kmers), expected)
        empty = KmerBatch(*(column[:0] for column in kmers))
        assert search(empty).hit_offsets.tolist() == [0]
        assert_same(search(kmers), expected)


@pytest.mark.gpu
def test_expansion_on_the_device_is_that_on_the_host(device):
    from mapper.index.build import build_fm
    from mapper.index.cuda import expand_suffix_array, fit_table_on_device, upload_index
    from mapper.index.fm import with_table

    _, genome = repetitive_genome(np.random.default_rng(3), 200, IndexParams(kmer_len=2))
    uploaded = upload_index(genome.fm)
    for kmer_len in (1, 4):
        table = fit_table_on_device(uploaded, kmer_len)
        host = with_table(genome.fm, table.kmer_len)
        assert np.array_equal(table.kmer_starts.copy_to_host(), host.kmer_starts)
    whole = expand_suffix_array(uploaded).sa_samples.copy_to_host()
    built = build_fm(dna.encode(genome.text), IndexParams(sa_sampling=1))
    assert np.array_equal(whole, built.sa_samples)


@pytest.mark.gpu
@pytest.mark.parametrize("far", [False, True])
def test_hits_with_rows_of_64_bits(device, monkeypatch, far):
    """Beyond 2^32 table and suffix array are not expanded, for they would be too large."""
    from mapper.cuda.api import SIMULATED
    from mapper.index import storage
    from mapper.index.cuda import device_index, upload_index
    from mapper.kmers.cuda import CudaKmerSearch, device_contexts

    monkeypatch.setattr(storage, "NARROW_ROWS", 100)
    # No hit may need a walk to the text's first base, which is not moved.
    contigs, genome = repetitive_genome(np.random.default_rng(8), 300, IndexParams(kmer_len=3))
    assert genome.fm.sa_samples.dtype == genome.fm.kmer_starts.dtype == np.uint64
    kmers = first_batch([contigs[0][350:420], contigs[1][200:230]], 12, 3)
    params = KmerParams(12, 1, 12)
    expected = CpuKmerSearch(genome.fm, bounds_of(genome), params)(kmers)
    assert len(expected.text_pos) >= kmers.n_kmers
    if far:
        if SIMULATED:
            pytest.skip("the simulator would look at 67 M words of the text one by one")
        genome = genome._replace(fm=fm_at(genome.fm, BEYOND), starts=genome.starts + BEYOND)
        near, expected = expected, CpuKmerSearch(genome.fm, bounds_of(genome), params)(kmers)
        assert np.array_equal(expected.text_pos, near.text_pos + np.uint64(BEYOND))
    fm = upload_index(genome.fm) if far else device_index(genome.fm, 12)
    contexts = None if far else device_contexts(fm, params)
    assert_same(CudaKmerSearch(0, fm, contexts, bounds_of(genome), params)(kmers), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 513, 5000, 70_001])
def test_scan_is_the_cumulative_sum(device, n):
    from mapper.cuda.memory import Workspace
    from mapper.cuda.worklist import offsets_of

    counts = np.random.default_rng(n).integers(0, 9, n).astype(np.int32)
    space = Workspace()
    for _ in range(2):
        offsets = space.download("o", offsets_of(space, "s", space.upload("c", counts), n))
        space.synchronize()
        assert offsets.tolist() == [0, *np.cumsum(counts).tolist()]


@pytest.mark.gpu
def test_a_device_without_memory_gets_smaller_pieces(device, monkeypatch):
    from mapper.errors import DeviceMemoryError
    from mapper.index.cuda import device_index
    from mapper.kmers.cuda import CudaKmerSearch

    contigs, genome = repetitive_genome(np.random.default_rng(4), 100)
    kmers = first_batch([contigs[0]], 15, 9)
    params = KmerParams(15, 0, 100)
    expected = CpuKmerSearch(genome.fm, bounds_of(genome), params)(kmers)
    search = CudaKmerSearch(0, device_index(genome.fm, 15), None, bounds_of(genome), params)
    sizes, whole = [], search.search_on_device

    def cramped(low, high, n_kmers, capacity):
        sizes.append((n_kmers, capacity))
        if n_kmers > most:
            raise DeviceMemoryError("no room")
        return whole(low, high, n_kmers, capacity)

    monkeypatch.setattr(search, "search_on_device", cramped)
    most = 4
    assert_same(search(kmers), expected)
    largest, smallest = max(sizes), min(sizes)
    assert largest[0] > 2 * most
    assert smallest[1] < largest[1]
    most = 0
    with pytest.raises(DeviceMemoryError, match="no room"):
        search(kmers)


@pytest.mark.gpu
def test_room_for_hits_grows_once(device, monkeypatch):
    from mapper.index.cuda import device_index
    from mapper.kmers.cuda import LIST_GROWTH, CudaKmerSearch

    contigs, genome = repetitive_genome(np.random.default_rng(4), 100)
    kmers = first_batch([contigs[0]], 15, 2)
    params = KmerParams(15, 0, 100)
    expected = CpuKmerSearch(genome.fm, bounds_of(genome), params)(kmers)
    n_rows = int(np.count_nonzero(np.diff(expected.hit_offsets)))
    n_listed = len(expected.text_pos) - n_rows
    assert n_listed > 20
    search = CudaKmerSearch(
        0, device_index(genome.fm, 15), None, bounds_of(genome), params, n_listed // 3
    )
    capacities, whole = [], search.search_on_device

    def noted(low, high, n_kmers, capacity):
        capacities.append(capacity)
        return whole(low, high, n_kmers, capacity)

    monkeypatch.setattr(search, "search_on_device", noted)
    for _ in range(2):
        assert_same(search(kmers), expected)
    first, *grown = capacities
    assert first == n_listed // 3
    assert len(grown) == 2
    assert grown[0] == grown[1] == min(n_listed + n_listed // 4, LIST_GROWTH * first)


@pytest.mark.gpu
def test_a_device_that_is_really_full_gets_smaller_pieces(device):
    from mapper.cuda.api import SIMULATED, cuda
    from mapper.cuda.memory import free_bytes
    from mapper.index.cuda import device_index
    from mapper.kmers.cuda import CudaKmerSearch

    if SIMULATED:
        pytest.skip("the simulator's memory has no end")
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("tests beside it would find the device full: run it without -n")
    contigs, genome = repetitive_genome(np.random.default_rng(4), 300)
    kmers = first_batch([contigs[0]], 15)
    params = KmerParams(15, 1, 100)
    expected = CpuKmerSearch(genome.fm, bounds_of(genome), params)(kmers)
    fm = device_index(genome.fm, 15)
    # The list takes 13 bytes an item, 1.7 GB; a fifth of that is free.
    search = CudaKmerSearch(0, fm, None, bounds_of(genome), params, list_capacity=1 << 27)
    filler = cuda.device_array(free_bytes() - (350 << 20), np.uint8)
    assert_same(search(kmers), expected)
    assert len(filler) > 0  # held until here


def search_types(kmer_len, row_type=np.uint32, *, contexts=False):
    """Types of the arguments of a search kernel."""
    _, genome = repetitive_genome(np.random.default_rng(0), 100)
    fm = genome.fm._replace(
        sa_samples=genome.fm.sa_samples.astype(row_type),
        kmer_starts=genome.fm.kmer_starts.astype(row_type),
    )
    column = array(np.uint64)
    return (
        type_of(fm), type_of(bounds_of(genome)), *[array(np.uint32, 2)][: int(contexts)], column,
        column, type_of(all_rows(1)), type_of(KmerParams(kmer_len)),
        type_of(new_store(2, 2, np.dtype(row_type))),
    )  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("contexts", [False, True])
def test_the_search_kernel_as_machine_code(contexts):
    """No local memory, no calls; the blocks of 128 threads fit on a multiprocessor."""
    require_compiler()
    from mapper.kmers.cuda import BLOCKS_PER_SM, _search, _search_by_contexts

    kernel = _search_by_contexts if contexts else _search
    machine = compile_offline(kernel, search_types(20, contexts=contexts))
    assert machine.spills == 0
    assert machine.count("CALL") == 0
    assert machine.count("POPC") > 0
    # Rows to take and to defer, and, where hits are flushed, their number and that of the list.
    assert 4 <= machine.count("ATOMG") <= 6
    assert machine.registers <= 65536 // (BLOCKS_PER_SM * 128)
    assert machine.wide_share <= 0.19
    # The loop over a block of the BWT, which has no iteration with a spacing of 64.
    counting = [loop for loop in machine.inner_loops if loop.count("POPC") >= 2]
    assert counting
    for loop in counting:
        assert loop.wide.total() <= len(loop.instructions) // 7
