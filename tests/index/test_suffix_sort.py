"""Sorting suffixes: every route against the definition and against libdivsufsort."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper import dna
from mapper.cli.info import machine_facts
from mapper.index import plan as plans
from mapper.index.build import build_fm
from mapper.index.fm import FMIndex
from mapper.index.index import Index
from mapper.index.plan import BLOCKS, DEVICE, BuildPlan
from mapper.index.suffix_sort import SortedText, Sorter, blocks_of, sort_in_blocks
from mapper.index.suffix_sort_cpu import STACK, CpuSorter, sort_pairs, sort_with_library
from mapper.params import IndexParams
from tests.helpers.hard_texts import HostKernels, fibonacci, needs_library, repetitive, words_of
from tests.index.test_fm import texts
from tests.naive import fm as naive

ROUTES = ("blocks", "arrays")
UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)


def array_sorter(*arguments: Any) -> Sorter:
    """Return the sorter of a device, which also sorts arrays of the host."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from mapper.index.suffix_sort_cuda import ArraySorter

    return ArraySorter(*arguments)


def sorter_for(
    route: str, text: np.ndarray, bucket_len: int, row_type: np.dtype, sa_shift: int, n_threads=2
) -> Sorter:
    n = len(text)
    if route == "blocks":
        return CpuSorter(words_of(text), n, bucket_len, row_type, sa_shift, n_threads)
    return array_sorter(np, HostKernels(text), n, bucket_len, row_type, sa_shift, 1024)


def assert_sorted(result: SortedText, rows: np.ndarray, text: np.ndarray, sa_shift: int) -> None:
    """Compare with the suffix array of n + 1 rows."""
    assert result.primary == int(np.flatnonzero(rows == 0)[0])
    assert np.array_equal(result.sa_samples, rows[:: 1 << sa_shift])
    others = rows != 0
    assert np.array_equal(result.bwt[others], text[rows[others] - 1])


@pytest.mark.parametrize("route", ROUTES)
@settings(max_examples=30)  # blocks of a suffix or two take seconds on a busy machine
@given(
    text=repetitive(),
    bucket_len=st.integers(1, 4),
    block_size=st.integers(1, 500),
    sa_shift=st.integers(0, 3),
)
def test_it_is_the_order_of_the_definition(
    route: str, text: np.ndarray, bucket_len: int, block_size: int, sa_shift: int
) -> None:
    sorter = sorter_for(route, text, bucket_len, UINT32, sa_shift)
    result = sort_in_blocks(sorter, len(text), block_size)
    assert_sorted(result, np.array(naive.suffix_array(text.tobytes())), text, sa_shift)


def hard_texts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    piece = rng.integers(0, 4, 9000, dtype=np.uint8)
    other = rng.integers(0, 4, 70_000, dtype=np.uint8)
    return {
        "one base": np.zeros(30_000, np.uint8),
        "random": other,
        "long exact repeats": np.concatenate([piece, other, piece, piece[::-1], piece[100:]]),
        "tandem": np.concatenate([np.resize(piece[:171], 40_000), other]),
        "Fibonacci": fibonacci(40_000),
        "ends in a run": np.concatenate([other[:20_000], np.zeros(5000, np.uint8)]),
    }


@needs_library
@pytest.mark.medium
@pytest.mark.parametrize("name", hard_texts())
def test_long_repeats_give_what_the_library_gives(name: str) -> None:
    text = hard_texts()[name]
    expected = sort_with_library(text, UINT32, 2)
    for route, row_type in (("blocks", UINT32), ("arrays", UINT32), ("arrays", UINT64)):
        sorter = sorter_for(route, text, 3, row_type, 2)
        result = sort_in_blocks(sorter, len(text), len(text) // 5)
        assert result.primary == expected.primary
        assert np.array_equal(result.bwt, expected.bwt)
        assert np.array_equal(result.sa_samples, expected.sa_samples)
        assert result.sa_samples.dtype == row_type


@needs_library
def test_rows_of_64_bits_by_threads() -> None:
    text = hard_texts()["long exact repeats"]
    expected = sort_with_library(text, UINT64, 0)
    sorter = sorter_for("blocks", text, 4, UINT64, 0)
    result = sort_in_blocks(sorter, len(text), 10_000)
    assert np.array_equal(result.sa_samples, expected.sa_samples)
    assert result.sa_samples.dtype == UINT64


@pytest.mark.parametrize("route", ROUTES)
def test_progress_adds_up(route: str) -> None:
    text = hard_texts()["random"]
    sorter = sorter_for(route, text, 3, UINT32, 0)
    counts = sorter.leading_counts()
    steps: list[int] = []
    row = 1
    for first, end, size in blocks_of(counts, 20_000):
        sorter.sort_block(first, end, size, row, steps.append)
        row += size
        assert sum(steps) == row - 1
    assert row - 1 == len(text)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_number_of_rounds_grows_with_the_logarithm_of_a_repeat(
    n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = hard_texts()["one base"]
    sorter = sorter_for("blocks", text, 2, UINT32, 0, n_threads)
    rounds = []
    refine = sorter.refine
    monkeypatch.setattr(
        sorter, "refine", lambda tied, depth: (rounds.append(depth), refine(tied, depth))[1]
    )
    result = sort_in_blocks(sorter, len(text), 7000)
    assert np.array_equal(result.sa_samples, np.arange(len(text), -1, -1))
    assert len(rounds) <= np.log2(len(text) / sorter.depth) + 2


def plan_of(route: str, block_size: int) -> BuildPlan:
    return BuildPlan(route, block_size, rows_at_once=1024)


def assert_same_index(a: FMIndex, b: FMIndex) -> None:
    for name, column in a._asdict().items():
        other = getattr(b, name)
        assert np.array_equal(column, other), name
        if isinstance(column, np.ndarray):
            assert column.dtype == other.dtype
            assert not other.flags.writeable


@given(texts(), st.sampled_from([(64, 1), (128, 8), (1024, 1024)]), st.integers(1, 3))
@settings(max_examples=30)
def test_blocks_give_the_index_of_the_library(
    text: np.ndarray, spacings: tuple[int, int], n_threads: int
) -> None:
    """Contigs with N and separators between them."""
    params = IndexParams(*spacings)
    by_library = build_fm(text.copy(), params)
    assert_same_index(by_library, build_fm(text.copy(), params, plan_of(BLOCKS, 100), n_threads))


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("device")
def test_a_device_gives_the_index_of_the_library(seed: int) -> None:
    from mapper.cuda.api import SIMULATED

    rng = np.random.default_rng(seed)
    n = 60 if SIMULATED else 3_000_000
    piece = rng.integers(0, 4, n // 2, dtype=np.uint8)
    gap = np.full(n // 10, dna.AMBIGUOUS, np.uint8)
    pieces = [piece, gap, rng.integers(0, 4, n, dtype=np.uint8), gap[:1], piece, gap[:1]]
    text = np.concatenate([*pieces, np.zeros(n // 10, np.uint8), gap[:1]])
    params = IndexParams(64, [4, 1, 32][seed])
    by_library = build_fm(text.copy(), params)
    by_device = build_fm(text.copy(), params, plan_of(DEVICE, len(text) // (seed + 1)), 2)
    assert_same_index(by_library, by_device)


@needs_library
@pytest.mark.gpu
@pytest.mark.usefixtures("device")
def test_a_device_takes_rows_of_64_bits() -> None:
    from mapper.cuda.api import SIMULATED

    if SIMULATED:
        xp = np
    else:
        xp = pytest.importorskip("cupy", reason="CuPy sorts on the device")
    from mapper.index.suffix_sort_cuda import Kernels

    text = hard_texts()["long exact repeats"][: 200 if SIMULATED else None]
    expected = sort_with_library(text, UINT64, 1)
    n = len(text)
    sorter = array_sorter(xp, Kernels(xp, words_of(text), n), n, 2, UINT64, 1, 1024)
    result = sort_in_blocks(sorter, n, n // 3)
    assert np.array_equal(result.sa_samples, expected.sa_samples)
    assert np.array_equal(result.bwt, expected.bwt)


@needs_library
@pytest.mark.gpu
@pytest.mark.usefixtures("device")
def test_no_copy_of_the_text_is_left_in_page_locked_memory() -> None:
    """CuPy rounds such a copy up to a power of two bytes, and its pool never frees it."""
    from mapper.cuda.api import SIMULATED

    if SIMULATED:
        pytest.skip("the simulator has no page-locked memory")
    cupy = pytest.importorskip("cupy", reason="CuPy sorts on the device")
    from mapper.index.suffix_sort_cuda import Kernels

    text = hard_texts()["random"]
    words = words_of(text)
    pool = cupy.get_default_pinned_memory_pool()
    locked: list[int] = []

    def allocate(size: int) -> object:
        locked.append(size)
        return pool.malloc(size)

    cupy.cuda.set_pinned_memory_allocator(allocate)
    try:
        cupy.asarray(words)
        assert max(locked) >= words.nbytes  # the check sees such a copy
        locked.clear()
        kernels = Kernels(cupy, words, len(text))
        sorter = array_sorter(cupy, kernels, len(text), 3, UINT32, 2, 1024)
        result = sort_in_blocks(sorter, len(text), len(text) // 3)
    finally:
        cupy.cuda.set_pinned_memory_allocator(pool.malloc)
    assert np.array_equal(result.bwt, sort_with_library(text, UINT32, 2).bwt)
    assert max(locked, default=0) < words.nbytes


@needs_library
def test_files_are_the_same_by_every_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = np.random.default_rng(3).choice(list("ACGTN"), 5000, p=[0.24, 0.24, 0.24, 0.24, 0.04])
    fasta = tmp_path / "x.fa"
    fasta.write_text(">a\n" + "".join(letters) + "\n>b\n" + "".join(letters[:900]) + "\n")
    Index.build(fasta, device="cpu").save(tmp_path / "library")
    monkeypatch.setattr(plans, "LIBRARY_UP_TO", 10)
    for n_threads in (1, 2):
        index = Index.build(fasta, device="cpu", threads=n_threads, memory=10**9)
        index.save(tmp_path / f"blocks{n_threads}")
    for file in (tmp_path / "library").iterdir():
        for n_threads in (1, 2):
            assert file.read_bytes() == (tmp_path / f"blocks{n_threads}" / file.name).read_bytes()


def test_an_index_is_the_same_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fasta = tmp_path / "x.fa"
    fasta.write_text(">a\n" + "".join(np.random.default_rng(4).choice(list("ACGT"), 3000)) + "\n")
    text = hard_texts()["tandem"]
    options: dict[str, Any] = {"device": "cpu", "threads": 2}
    built = Index.build(fasta, **options).fm
    built_fm = build_fm(text.copy(), IndexParams())
    monkeypatch.setitem(sys.modules, "pydivsufsort", None)  # as if it were not installed
    with caplog.at_level("INFO", logger="mapper"):
        assert_same_index(built, Index.build(fasta, **options).fm)
    assert "suffixes are sorted by 2 threads" in caplog.text
    assert_same_index(built_fm, build_fm(text.copy(), IndexParams()))
    assert "pydivsufsort is not installed" in dict(machine_facts())["suffixes sorted on the CPU"]


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(5000),
        np.arange(5000)[::-1],
        np.concatenate([np.arange(2500), np.arange(2500)[::-1]]),
        np.zeros(5000),
        np.arange(5000) % 3,
        np.random.default_rng(1).integers(0, 2**63, 5000) * 2 + 1,
        np.array([2**63, 1, 2**64 - 1, 0], object),
        np.array([]),
    ],
    ids=["ascending", "descending", "organ pipe", "equal", "few", "random", "unsigned", "empty"],
)
def test_pairs_are_sorted_and_stay_together(keys: np.ndarray) -> None:
    keys = keys.astype(np.uint64)
    positions = np.arange(len(keys), dtype=np.uint32)
    given_keys = keys.copy()
    sort_pairs(keys, positions, 0, len(keys), np.empty(STACK, np.int64))
    assert np.array_equal(keys, np.sort(given_keys))
    assert np.array_equal(given_keys[positions], keys)
    assert np.array_equal(np.sort(positions), np.arange(len(keys)))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 20))
def test_blocks_are_whole_kmers_and_not_too_large(counts: list[int], block_size: int) -> None:
    blocks = list(blocks_of(np.array(counts), block_size))
    covered = [kmer for first, end, _ in blocks for kmer in range(first, end)]
    assert [k for k in covered if counts[k]] == [k for k, count in enumerate(counts) if count]
    assert len(covered) == len(set(covered))
    for first, end, size in blocks:
        assert size == sum(counts[first:end]) > 0
        assert size <= block_size or sum(c > 0 for c in counts[first:end]) == 1
