"""Picard's ValidateSamFile finds nothing in what fmwave writes, neither errors nor warnings.

Needs Picard (Debian and Ubuntu: picard-tools); skipped where it is not installed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pysam
import pytest

from mapper.io.bam_out import SortOptions
from tests.test_formats import import_pairs
from tests.whole import World, map_to

PICARD = shutil.which("PicardCommandLine")
READ_GROUP = r"@RG\tID:a\tSM:s\tPL:ILLUMINA"
pytestmark = pytest.mark.skipif(PICARD is None, reason="Picard is not installed")


def validate(path: Path, reference: Path | None) -> str:
    """Return a line for each kind of trouble that ValidateSamFile finds, or that there is none."""
    command = [
        str(PICARD), "ValidateSamFile", f"I={path}", "MODE=SUMMARY", "QUIET=true",
        "VERBOSITY=ERROR",
    ]  # fmt: skip
    if reference is not None:
        command.append(f"R={reference}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return "\n".join(line for line in lines if line.startswith(("ERROR", "WARNING", "No errors")))


@pytest.fixture(scope="module")
def reference(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "genome.fa"
    path.write_bytes((Path(world.index_path).parent / "genome.fa").read_bytes())
    pysam.faidx(str(path))
    pysam.dict("-o", str(path.with_suffix(".dict")), str(path), catch_stdout=False)
    return path


@pytest.mark.parametrize(
    ("given", "name", "sort"),
    [
        ("single", "x.bam", False), ("paired", "x.bam", True), ("mixed", "x.bam", False),
        ("unaligned", "x.sam", False), ("mixed", "x.cram", True), ("paired", "x.cram", True),
    ],
)  # fmt: skip
def test_picard_finds_nothing(
    world: World, tmp_path: Path, reference: Path, given: str, name: str, sort: bool
) -> None:
    kinds = {"mixed": "psPs", "unaligned": "p"}
    group = READ_GROUP
    if given in kinds:
        reads = [str(import_pairs(world, tmp_path / "u.bam", "\tRX:Z:ACGT", kinds[given]))]
        text = pysam.view("-H", reads[0]).replace("SM:s", "SM:s\tPL:ILLUMINA")
        text = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("@PG"))
        (tmp_path / "header").write_text(text)
        pysam.reheader(
            "-P", str(tmp_path / "header"), reads[0], save_stdout=str(tmp_path / "r.bam")
        )
        reads, group = [str(tmp_path / "r.bam")], None
    else:
        reads = [world.first, world.second] if given == "paired" else [world.first]
    map_to(
        world.index, tmp_path / name, *reads, read_group=group, reference=str(reference),
        sort=SortOptions(1, 1 << 30) if sort else None,
    )  # fmt: skip
    # Picard goes through a reference of several contigs forward only.
    assert validate(tmp_path / name, reference if sort else None) == "No errors found"


def test_picard_finds_what_is_wrong(world: World, tmp_path: Path) -> None:
    """That the test above can fail: a record whose read group is not in the header."""
    map_to(world.index, tmp_path / "x.sam", world.first, read_group=READ_GROUP)
    text = (tmp_path / "x.sam").read_text()
    (tmp_path / "y.sam").write_text(text.replace("\tRG:Z:a", "\tRG:Z:b", 1))
    assert "ERROR:READ_GROUP_NOT_FOUND" in validate(tmp_path / "y.sam", None)
