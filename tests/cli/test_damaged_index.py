"""An index that is damaged or closed is named in the error, and there is no output."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mapper.cli import info
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
        f"fmwave: error: {index}/ref_planes.npy: the checksum differs: damaged; build it again: "
        "'fmwave index REF.fa'\n"
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


@pytest.fixture
def closed_index(world: World) -> Iterator[Path]:
    """Yield an index that this process may not enter; root becomes another user meanwhile."""
    user = os.geteuid()
    # Not tmp_path, which another user may not enter either.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        shutil.copytree(world.index_path, folder / "ref.fmw")
        (folder / "ref.fmw").chmod(0o700 if user == 0 else 0)
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder / "ref.fmw"
        finally:
            os.seteuid(user)
            (folder / "ref.fmw").chmod(0o700)


@pytest.mark.parametrize("place", ["index", "above"])
@pytest.mark.parametrize("command", ["map", "seed", "info", "info --verify", "index", "index -f"])
def test_an_index_that_one_may_not_enter(
    closed_index: Path, command: str, place: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(info, "machine_facts", list)  # looks into the folder of compiled code
    reads = closed_index.parent / "reads.fa"
    reads.write_text(">a\nACGTACGTACGTACGTACGTACGTACGT\n")
    index = closed_index if place == "index" else closed_index / "below.fmw"
    output = str(closed_index.parent / "x.sam")
    argv = {
        "map": ["map", str(index), str(reads), "-o", output],
        "seed": ["seed", str(index), str(reads), "-o", output],
        "info": ["info", str(index)],
        "info --verify": ["info", str(index), "--verify"],
        "index": ["index", str(reads), "-o", str(index)],
        "index -f": ["index", str(reads), "-o", str(index), "--force"],
    }[command]
    assert main([*argv, "--quiet"]) == (4 if command.startswith("index") else 1)
    error = capsys.readouterr().err
    assert error.startswith(f"fmwave: error: {index}")
    assert error.count("\n") == 1
    assert "ermission" in error
    assert {path.name for path in closed_index.parent.iterdir()} == {"ref.fmw", "reads.fa"}
