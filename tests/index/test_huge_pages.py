"""The copy of an index in huge pages: when it is made, and that it is the same index."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mapper.index import huge_pages
from mapper.index.huge_pages import IndexInUse
from mapper.index.index import Index

PHIX = Path(__file__).parents[1] / "data" / "phix174.fa"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Open a small index, which is worth a copy here, on a machine with huge pages."""
    monkeypatch.setattr(huge_pages, "LEAST_BYTES", 0)
    monkeypatch.setattr(huge_pages, "_LEAST_ARRAY", 0)
    monkeypatch.setattr(huge_pages, "_PIECE", 10_000)
    monkeypatch.setattr(huge_pages, "gives_huge_pages", lambda: True)
    monkeypatch.setattr(huge_pages, "available_bytes", lambda: None)
    Index.build(PHIX, device="cpu").save(tmp_path / "x.fmw")
    return Index.open(tmp_path / "x.fmw")


def after(index: Index, *counts: int) -> Index:
    """Return the index in use after batches of so many bases."""
    in_use = IndexInUse(index)
    with ThreadPoolExecutor(2) as executor:
        for n_bases in counts:
            in_use.has_mapped(n_bases, executor)
    return in_use.index


def test_the_copy_is_the_same_index(index: Index) -> None:
    worth_it = index.n_bytes // huge_pages.BYTES_A_BASE
    assert after(index, worth_it - 1) is index
    copied = after(index, worth_it - 1, 1, 10 * worth_it)
    assert copied is not index
    assert copied.contigs is index.contigs
    assert (copied.present_kmers == index.present_kmers).all()
    for name, array in index.fm._asdict().items():
        copy = getattr(copied.fm, name)
        if not isinstance(array, np.ndarray):
            assert copy == array
            continue
        assert (copy == array).all(), name
        assert (copy.dtype, copy.shape, copy.flags.c_contiguous) == (
            array.dtype, array.shape, array.flags.c_contiguous
        )  # fmt: skip
        assert not copy.flags.writeable  # code that was compiled for the index fits
        assert not np.shares_memory(copy, array), name
        assert copy.ctypes.data % huge_pages.CACHE_LINE == 0, name


def test_large_files_of_reads_are_known_to_be_worth_it(index: Index) -> None:
    worth_it = -(-index.n_bytes // huge_pages.BYTES_OF_INPUT)
    for n_bytes, is_made in ((worth_it - 1, False), (worth_it, True)):
        in_use = IndexInUse(index)
        with ThreadPoolExecutor(2) as executor:
            in_use.expect(n_bytes, executor)
        assert (in_use.index is not index) == is_made


def test_it_is_not_made_where_it_does_not_pay_or_fit(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("LEAST_BYTES", index.n_bytes + 1),
        ("gives_huge_pages", lambda: False),
        ("available_bytes", lambda: huge_pages.ROOM * index.n_bytes - 1),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(huge_pages, name, value)
            assert after(index, index.n_bytes) is index, name
    monkeypatch.setattr(huge_pages, "available_bytes", lambda: huge_pages.ROOM * index.n_bytes)
    assert after(index, index.n_bytes) is not index


def resident_kb(path: Path) -> int:
    """Return how much of a mapped file is resident in this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(entry.split()[1]) for entry in lines if entry.startswith("Rss:"))
    return 0


def test_pages_of_the_files_are_given_up(index: Index, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(huge_pages, "_PIECE", 16 << 20)
    table = tmp_path / "x.fmw" / "kmer_starts.npy"
    index.fm.kmer_starts.sum()
    n_kb = index.fm.kmer_starts.nbytes >> 10
    assert resident_kb(table) >= n_kb >= 64
    copied = after(index, index.n_bytes)
    assert resident_kb(table) <= 8  # the first page, with the file's header, and the last
    assert (copied.fm.kmer_starts == index.fm.kmer_starts).all()


@pytest.mark.usefixtures("index")
def test_an_index_in_memory_is_not_copied() -> None:
    built = Index.build(PHIX, device="cpu")
    assert after(built, built.n_bytes) is built


def test_without_memory_for_it_the_run_goes_on(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(array: np.ndarray) -> np.ndarray:
        raise MemoryError

    monkeypatch.setattr(huge_pages, "_empty_like", no_memory)
    assert after(index, index.n_bytes) is index
