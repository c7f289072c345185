"""Spot checks of an index: undamaged ones of any shape pass; large damage is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import IndexFormatError
from mapper.index import storage
from mapper.index.index import Index
from mapper.index.storage import SPOT_CHECKS, open_index
from mapper.params import IndexParams
from tests.helpers.hard_texts import repetitive

N = 1_200_000
"""Bases, enough that some rows lie between the spots."""


def write_fasta(path: Path, codes: np.ndarray) -> Path:
    path.write_bytes(b">x\n" + np.frombuffer(b"ACGT", np.uint8)[codes].tobytes() + b"\n")
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("spots")
    codes = np.random.default_rng(5).integers(0, 4, N, dtype=np.uint8)
    params = IndexParams(occ_spacing=64, sa_sampling=2, kmer_len=9)
    Index.build(write_fasta(directory / "x.fa", codes), params).save(directory / "x.fmw")
    return directory / "x.fmw"


def check(index: Index) -> None:
    for look in SPOT_CHECKS.values():
        look(index.fm)


@settings(max_examples=30)  # each builds an index, which takes its time
@given(
    text=repetitive(),
    occ_spacing=st.sampled_from([64, 128, 1024]),
    sa_sampling=st.sampled_from([1, 4, 32]),
    kmer_len=st.integers(0, 5),
)
def test_whole_indexes_pass(
    tmp_path_factory: pytest.TempPathFactory,
    text: np.ndarray, occ_spacing: int, sa_sampling: int, kmer_len: int,
) -> None:  # fmt: skip
    fasta = write_fasta(tmp_path_factory.getbasetemp() / "text.fa", text)
    check(Index.build(fasta, IndexParams(occ_spacing, sa_sampling, kmer_len)))


def test_a_whole_index_with_rows_between_the_spots_passes(saved: Path) -> None:
    check(Index.open(saved))


def test_counts_begin_anew_in_each_superblock(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fm = Index.open(saved).fm
    per_superblock = 8
    blocks = fm.blocks.copy()
    starts = np.arange(len(blocks)) // per_superblock * per_superblock
    blocks[:, :2] -= fm.blocks[starts, :2]  # no half is less than at its superblock's start
    with pytest.raises(ValueError, match="do not add up"):
        SPOT_CHECKS["blocks"](fm._replace(blocks=blocks))
    shift = fm.occ_shift + per_superblock.bit_length() - 1
    monkeypatch.setattr(storage, "SUPERBLOCK_SHIFT", shift)
    SPOT_CHECKS["blocks"](fm._replace(blocks=blocks))


@pytest.mark.medium
@pytest.mark.parametrize("content", ["random", "ones"])
@pytest.mark.parametrize("name", sorted(SPOT_CHECKS))
def test_damage_to_a_hundredth_is_found_wherever_it_lies(
    saved: Path, tmp_path: Path, name: str, content: str
) -> None:
    rng = np.random.default_rng(7)
    shutil.copytree(saved, tmp_path / "y.fmw")
    file = tmp_path / "y.fmw" / f"{name}.npy"
    whole = file.read_bytes()
    header = len(whole) - getattr(Index.open(saved).fm, name).nbytes
    length = (len(whole) - header) // 100
    for _ in range(200):
        at = int(rng.integers(header, len(whole) - length + 1))
        damage = rng.bytes(length) if content == "random" else b"\xff" * length
        file.write_bytes(whole[:at] + damage + whole[at + length :])
        with pytest.raises(IndexFormatError, match=rf"{name}\.npy: damaged: .*Index.build"):
            open_index(tmp_path / "y.fmw")
    file.write_bytes(whole)
    open_index(tmp_path / "y.fmw")


@pytest.mark.parametrize("name", ["first_row", "super_counts"])
def test_every_bit_of_the_small_arrays_is_compared(saved: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(saved, tmp_path / "y.fmw")
    file = tmp_path / "y.fmw" / f"{name}.npy"
    whole = file.read_bytes()
    for at in range(128, len(whole)):  # behind the header
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(IndexFormatError, match=rf"{name}\.npy: the checksum differs"):
            open_index(tmp_path / "y.fmw")
