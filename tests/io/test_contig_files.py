"""Files beside a reference: ALT contigs, groups of contigs, regions."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from mapper.errors import InputFormatError
from mapper.io.contig_files import GroupLine, Region, read_alt, read_bed, read_groups

SAM = "@SQ\tSN:chr1\tLN:9\n\nalt1\t0\tchr1\t5\t255\t9M\t*\t0\t0\t*\t*\nalt2\t4\t*\nalt1\t16\tchr1\n"


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "file"
        path.write_bytes(content)
        return path

    return write


def test_alt_contigs_are_the_first_column(file) -> None:
    assert read_alt(file(SAM.encode())) == {"alt1": 3, "alt2": 4}
    assert read_alt(file(gzip.compress(SAM.encode()))) == {"alt1": 3, "alt2": 4}
    assert read_alt(file(b"HLA*01:01\r\n#odd \n")) == {"HLA*01:01": 1, "#odd": 2}


def test_groups(file) -> None:
    found = read_groups(file(b"c1\thap1\n\nc2\thap2\r\nc3\thap1\n"))
    assert found == {"c1": ("hap1", 1), "c2": ("hap2", 3), "c3": GroupLine("hap1", 4)}


def test_regions(file) -> None:
    text = b"#c\ntrack name=x\nbrowser hide\nc1\t0\t5\nc2\t7\t9\tname\t0\t+\r\n"
    assert read_bed(file(text)) == [Region("c1", 0, 5, 4), Region("c2", 7, 9, 5)]


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_alt, b"@HD\n", "names no contig"),
        (read_alt, b"", "names no contig"),
        (read_groups, b"c1\thap1\nc2 hap2\n", "line 2: 'c2 hap2' is not a contig, a tab"),
        (read_groups, b"c1\t\n", "line 1: 'c1.t' is not a contig, a tab"),
        (read_groups, b"c1\ta\nc1\tb\n", "line 2: contig 'c1' has a group by line 1"),
        (read_bed, b"c1\t0\t5\nc1\t9\n", "line 2: 'c1.t9' is no region of BED"),
        (read_bed, b"c1 0 5\n", "line 1: 'c1 0 5' is no region of BED"),
        (read_bed, b"c1\t-1\t5\n", "line 1: .* is no region of BED"),
        (read_bed, b"c1\t5\t5\n", "line 1: region 5-5 holds no base"),
        (read_bed, gzip.compress(b"c1\t0\t5\n" * 99, mtime=0)[:-9], "cannot be read"),
        (read_bed, b"\xff\t0\t5\n", "cannot be read"),
    ],
)
def test_malformed_files_are_told_with_the_line(file, read, content, message) -> None:
    path = file(content)
    with pytest.raises(InputFormatError, match=message) as told:
        read(path)
    assert str(told.value).startswith(f"{path}: ")


@pytest.mark.parametrize("read", [read_alt, read_groups, read_bed])
def test_a_missing_file_is_told(tmp_path: Path, read) -> None:
    with pytest.raises(InputFormatError, match=r"none: cannot be read: No such file"):
        read(tmp_path / "none")
