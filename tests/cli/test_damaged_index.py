"""A damaged index is named in the error, and there is no output."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mapper.cli.main import main
from mapper.index import storage as index_format
from tests.helpers.mapping_runs import World


@pytest.mark.parametrize("at_once", [0, 1 << 30], ids=["beside", "at once"])
@pytest.mark.parametrize("words", ["map -o x.bam", "map --sort -o x.bam", "seed -o x.tsv"])
def test_one_bit_is_enough(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], words: str, at_once: int,
) -> None:  # fmt: skip
    monkeypatch.setattr("mapper.index.index.CHECKED_AT_ONCE", at_once)
    command, *options = words.split()
    options[-1] = str(tmp_path / options[-1])
    argv = [command, world.index_path, world.first, *options, "-t", "2", "--quiet"]
    assert main(argv) == 0
    for path in tmp_path.iterdir():
        path.unlink()
    index = tmp_path / "index" / "ref.fmw"
    shutil.copytree(world.index_path, index)
    planes = bytearray((index / "ref_planes.npy").read_bytes())
    planes[-1] ^= 0x10  # padding, so that no position is outside the arrays
    (index / "ref_planes.npy").write_bytes(planes)
    argv[1] = str(index)
    assert main(argv) == 1
    assert capfd.readouterr().err == (
        f"fmwave: error: {index}/ref_planes.npy: the checksum differs: damaged; build it again "
        "with 'fmwave index'\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("name", ["blocks", "sa_samples", "kmer_starts", "first_row"])
@pytest.mark.parametrize("words", ["map -o x.bam", "seed -o x.tsv"])
def test_a_large_index_that_would_crash_a_search_is_told_before(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], words: str, name: str,
) -> None:  # fmt: skip
    def too_late(path: str) -> Iterator[None]:
        yield from ()
        raise AssertionError(f"the checksums of {path} were asked")

    monkeypatch.setattr("mapper.index.index.CHECKED_AT_ONCE", 0)
    monkeypatch.setattr(index_format, "checks", too_late)
    index = tmp_path / "ref.fmw"
    shutil.copytree(world.index_path, index)
    data = bytearray((index / f"{name}.npy").read_bytes())
    at = len(data) // 2 if name != "first_row" else 128  # after the header, which is checked too
    damage = np.random.default_rng(1).bytes((len(data) - at) // 4)
    data[at : at + len(damage)] = damage
    (index / f"{name}.npy").write_bytes(data)
    command, *options = words.split()
    options[-1] = str(tmp_path / options[-1])
    assert main([command, str(index), world.first, *options, "-t", "2", "--quiet"]) == 1
    errors = capfd.readouterr().err
    assert errors.startswith(f"fmwave: error: {index}/{name}.npy: ")
    assert "damaged" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["ref.fmw"]
