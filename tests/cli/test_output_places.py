"""Outputs that cannot be created: the same error of every command, for each file it writes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from mapper.cli.main import main
from mapper.errors import OutputError, UsageError
from mapper.mapping.output_checks import STATISTICS, check_outputs
from tests.helpers.mapping_runs import World

COMMANDS = {
    "index": "index ref.fa -o {}",
    "map": "map {index} {reads} -O bam -o {}",
    "map to SAM": "map {index} {reads} -O sam -o {}",
    "map sorted": "map {index} {reads} -O bam --sort -o {}",
    "map, statistics": "map {index} {reads} -o x.bam --json-stats {}",
    "map, sheet": "map {index} --batch outputs.tsv -O bam",
    "map, statistics of a sheet": "map {index} --batch statistics.tsv",
    "seed": "seed {index} {reads} -o {}",
    "seed, skipped": "seed {index} {reads} -o x.tsv --skipped {}",
    "align": "align pairs.seq -o {}",
    "align all": "align ref.fa --all-vs-all --metric matrix --matrix 1,-1 -o {}",
    "distance, checkpoint": "distance a.fa a.fa --checkpoint {}",
}
"""For each kind of file, a command that writes it to {}, or as its sheet says."""

PLACES = {
    "no directory": ("none/x", "none does not exist; make it first"),
    "below a file": ("ref.fa/x", "ref.fa is no directory; write elsewhere"),
    "name too long": ("x" * 300, "File name too long"),
    "no permission": ("closed/x", "closed; write elsewhere"),
    "no look": ("dark/x", "Permission denied"),
}
"""A path, and its error message."""

_NOT_AS_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(name, marks=_NOT_AS_ROOT if name in ("no permission", "no look") else ())
        for name in PLACES
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_that_cannot_be_made(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], command: str, place: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path, message = PLACES[place]
    Path("ref.fa").write_text(">a\nACGTACGTACGTACGTACGT\n>b\nACGTACGTACG\n")
    Path("a.fa").write_text(">a\nACGT\n")
    Path("pairs.seq").write_text(">ACGT\n<ACCT\n")
    Path("outputs.tsv").write_text(f"output\treads1\n{path}\t{world.first}\n")
    Path("statistics.tsv").write_text(f"output\treads1\tjson_stats\nx.bam\t{world.first}\t{path}\n")
    Path("closed").mkdir(0o500)
    Path("dark").mkdir(0o000)
    before = sorted(tmp_path.iterdir())
    words = COMMANDS[command].format(path, index=world.index_path, reads=world.first)
    try:
        assert main([*shlex.split(words), "--device", "cpu"]) == OutputError.exit_status == 4
    finally:
        Path("dark").chmod(0o700)
    errors = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert message in errors[0]
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("path", ["-", "/dev/stdout", "/dev/fd/1"])
def test_statistics_do_not_go_where_records_go(
    path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """``capfd`` makes standard output a file."""
    with pytest.raises(UsageError, match=f"records and statistics would both go to {path}"):
        check_outputs(path, {STATISTICS: "/dev/stdout"}, [], [])


def test_records_and_statistics_may_both_be_thrown_away() -> None:
    standard_output = os.dup(1)
    with Path(os.devnull).open("wb") as null:
        os.dup2(null.fileno(), 1)
    try:
        assert check_outputs("-", {STATISTICS: os.devnull}, [], []) == [os.devnull]
    finally:
        os.dup2(standard_output, 1)
        os.close(standard_output)
