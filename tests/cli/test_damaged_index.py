"""A damaged index is named, and what was found with it gets no name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mapper.cli.main import main
from mapper.index import format as index_format
from tests.whole import World


@pytest.mark.parametrize("at_once", [0, 1 << 30], ids=["beside", "at once"])
@pytest.mark.parametrize("words", ["map -o x.bam", "map --sort -o x.bam", "seed -o x.tsv"])
def test_one_bit_is_enough(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], words: str, at_once: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(index_format, "CHECKED_AT_ONCE", at_once)
    command, *options = words.split()
    options[-1] = str(tmp_path / options[-1])
    argv = [command, world.index_path, world.first, *options, "-t", "2", "--quiet"]
    assert main(argv) == 0
    for path in tmp_path.iterdir():
        path.unlink()
    index = tmp_path / "index" / "ref.fmw"
    shutil.copytree(world.index_path, index)
    planes = bytearray((index / "ref_planes.npy").read_bytes())
    planes[-1] ^= 0x10  # padding: no position is read beyond the arrays
    (index / "ref_planes.npy").write_bytes(planes)
    argv[1] = str(index)
    assert main(argv) == 1
    assert capfd.readouterr().err == (
        f"fmwave: error: {index}/ref_planes.npy: the checksum differs: damaged; build it again "
        "with 'fmwave index'\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
