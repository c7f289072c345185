"""Read reference FASTA files, and refuse malformed ones."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam
import pytest

from mapper import dna
from mapper.errors import InputFormatError
from mapper.index.build import read_text
from mapper.io import reference_fasta
from mapper.io.reference_fasta import plain_bytes


class Record(NamedTuple):
    name: str
    md5: str
    codes: np.ndarray


def read(path: Path, n_threads: int = 1) -> list[Record]:
    most = plain_bytes(path)
    contigs, codes = read_text(path, n_threads, most)
    assert most is None or len(codes) <= most
    assert len(codes) == (contigs.lengths + 1).sum()
    records = []
    for name, md5, start, length in zip(*contigs[:2], contigs.starts, contigs.lengths, strict=True):
        records.append(Record(name, md5, codes[start : start + length]))
        assert codes[start + length] == dna.AMBIGUOUS
    return records


def written(tmp_path: Path, data: bytes, name: str = "x.fa") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data",
    [
        b">a one\nACGT\nAC\n>b\nGGN\n",
        b">a\nACGTAC\n>b\nGGN",
        b">a\nacgt\nac\n\n>b\nggn\n\n",
        b">a\r\nACGT\r\nAC\r\n>b\r\nGGN\r\n",
        b"\n>a\nACGUAC\n>b\nGG.\n",
        b">a\tx\nA\nC\nG\nT\nA\nC\n>b\nGG\nN\n",
    ],
)
def test_layouts_of_the_same_contigs(tmp_path: Path, data: bytes) -> None:
    records = read(written(tmp_path, data))
    assert [record.name for record in records] == ["a", "b"]
    assert [dna.decode(record.codes) for record in records] == ["ACGTAC", "GGN"]


def test_all_iupac_letters_are_kept_and_md5_is_of_the_upper_case(tmp_path: Path) -> None:
    letters = "ACGTNMRSVWYHKDBacgtnmrsvwyhkdb"
    (record,) = read(written(tmp_path, f">a\n{letters}\n".encode()))
    assert dna.decode(record.codes) == letters.upper()
    assert record.md5 == hashlib.md5(letters.upper().encode()).hexdigest()


def test_compressed_files_read_alike(tmp_path: Path) -> None:
    data = b">a\n" + b"ACGTTGCA\n" * 20000 + b">b\nAC\n"
    plain = written(tmp_path, data)
    gz = written(tmp_path, gzip.compress(data[:99]) + gzip.compress(data[99:]), "members.fa.gz")
    bgz = tmp_path / "x.fa.bgz"
    pysam.tabix_compress(str(plain), str(bgz))
    expected = [(record.name, record.md5) for record in read(plain)]
    for path in (gz, bgz):
        assert [(record.name, record.md5) for record in read(path)] == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "does not begin with '>'"),
        (b"junk\n>a\nACGT\n", "does not begin with '>'"),
        (b"ACGT\n", "does not begin with '>'"),
        (b"@r\nACGT\n+\nIIII\n", "is FASTQ"),
        (b">a\nACGT\n@r\nACGT\n+\nIIII\n", "after record 1 a line begins with '@'"),
        (b">a\nACGT\n+\nIIII\n", "after record 1 a line begins with '\\+'"),
        (b">a\nAC\0GT\n", "NUL"),
        (b">\nACGT\n", "record 1 \\(''\\) has no name"),
        (b"> a\nACGT\n", "record 1 \\(''\\) has no name"),
        (b">a\nAC\n>a x\nGT\n", "record 2 \\('a'\\): a record of this name"),
        (b">a\n>b\nAC\n", "record 1 \\('a'\\) has no bases"),
        (b">a\nAC\n>b", "record 2 \\('b'\\) has no bases"),
        (b">a\rACGT\r", "has no bases"),
        (b">a\nACXGT\n", "character 'X' at base 3"),
        (b">a\nAC-GT\n", "character '-' at base 3"),
        (b">a\nAC GT\n", "character ' ' at base 3"),
        (b">a\nAC\rGT\n", "character '.r' at base 3"),
        (b">a\nAC>GT\n", "character '>' at base 3"),
        (b">a\nAC\xc3\xa9\n", "character 'é' at base 3"),
        (b">a,b\nACGT\n", "SAM does not allow"),
        (b">\xc3\xa9\nACGT\n", "SAM does not allow"),
        (b">\xff\nACGT\n", "cannot be read"),
    ],
)
def test_what_is_no_fasta_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InputFormatError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("cut", [1, 5, 12, 100, 5000])
def test_truncated_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    data = gzip.compress(b">a\n" + _letters())
    with pytest.raises(InputFormatError, match="truncated"):
        read(written(tmp_path, data[:-cut], "x.fa.gz"))


@pytest.mark.parametrize("cut", [1, 28, 40])
def test_truncated_bgzf_is_refused(tmp_path: Path, cut: int) -> None:
    plain = written(tmp_path, b">a\n" + _letters())
    bgz = tmp_path / "x.fa.gz"
    pysam.tabix_compress(str(plain), str(bgz))
    with pytest.raises(InputFormatError, match="truncated"):
        read(written(tmp_path, bgz.read_bytes()[:-cut], "cut.fa.gz"))


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputFormatError, match="No such file"):
        read(tmp_path / "none.fa")
    with pytest.raises(InputFormatError, match="is a directory"):
        read(tmp_path)


def test_a_contig_too_long_for_bam_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_fasta, "MAX_CONTIG_LENGTH", 3)
    with pytest.raises(InputFormatError, match=r"record 1 \('a'\) has more than 3 bases"):
        read(written(tmp_path, b">a\nACGT\n"))


def _letters() -> bytes:
    """Return FASTA text that hardly compresses, so that cuts fall inside it."""
    return bytes(b"ACGT"[byte & 3] for byte in hashlib.shake_128(b"fasta").digest(40000)) + b"\n"
