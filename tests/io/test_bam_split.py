"""Split files of reads into consecutive BAM files without losing a read or separating a pair."""

from __future__ import annotations

from pathlib import Path

import pysam
import pytest

from mapper.errors import InputFormatError
from mapper.io import bam_split
from mapper.io.bam_split import count_reads, split_bam

HEADER = {
    "HD": {"VN": "1.6", "SO": "unsorted"},
    "SQ": [{"SN": "c", "LN": 1000}],
    "RG": [{"ID": "lane", "SM": "s"}],
}
PAIR = (0x4D, 0x8D)  # first and last, both unmapped
SUPPLEMENTARY = 0x800 | 0x41
# Flags of the records of each template: pairs, single reads, what an aligned file has beside.
TEMPLATES = [PAIR, (0x4,), PAIR, (0x41, SUPPLEMENTARY, 0x81), (0x4,), PAIR, (0x0, 0x100), PAIR]
N_READS = sum(not flag & 0x900 for template in TEMPLATES for flag in template)


def write(path: Path, templates: list[tuple[int, ...]] = TEMPLATES, mode: str = "wb") -> str:
    with pysam.AlignmentFile(str(path), mode, header=HEADER) as out:
        for number, flags in enumerate(templates):
            for flag in flags:
                record = pysam.AlignedSegment(out.header)
                record.query_name = f"r{number}"
                record.flag = flag
                record.query_sequence = "ACGT" * (number + 1)
                record.query_qualities = pysam.qualitystring_to_array("IIII" * (number + 1))
                if not flag & 0x4:
                    record.reference_id, record.reference_start = 0, number
                    record.cigarstring = f"{4 * (number + 1)}M"
                record.set_tag("RG", "lane")
                record.set_tag("MI", number)
                out.write(record)
    return str(path)


def read(path: Path) -> tuple[str, list[str]]:
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        return str(file.header), [record.to_string() for record in file.fetch(until_eof=True)]


def split(path: str, ends: list[int], folder: Path) -> list[list[str]]:
    """Split, check headers and end-of-file blocks, and return the records of each file."""
    targets = [folder / f"{n}.bam" for n in range(len(ends))]
    split_bam(path, ends, targets, threads=2)
    header, _ = read(Path(path))
    for target in targets:
        pysam.quickcheck("-u", str(target))
        assert read(target)[0] == header
    return [read(target)[1] for target in targets]


@pytest.mark.parametrize("chunk_bytes", [64, 4 << 20])
@pytest.mark.parametrize("n_chunks", [1, 2, 3, 8, 40])
def test_chunks_are_consecutive_and_keep_pairs_together(
    tmp_path, monkeypatch, n_chunks, chunk_bytes
):
    monkeypatch.setattr(bam_split, "_CHUNK_BYTES", chunk_bytes)
    path = write(tmp_path / "in.bam")
    assert count_reads(path) == N_READS

    chunks = split(path, [N_READS * n // n_chunks for n in range(1, n_chunks + 1)], tmp_path)

    assert [record for chunk in chunks for record in chunk] == read(Path(path))[1]
    reads = [[r for r in chunk if not int(r.split("\t")[1]) & 0x900] for chunk in chunks]
    seen: set[str] = set()
    for chunk in reads:
        templates = {read.rpartition("MI:i:")[2] for read in chunk}
        assert not templates & seen
        seen |= templates
    sizes = [len(chunk) for chunk in reads]
    assert max(sizes) - min(sizes) <= 3  # a pair, and one by rounding


@pytest.mark.parametrize(("name", "mode"), [("in.sam", "w"), ("in.cram", "wc"), ("u.bam", "wbu")])
def test_other_formats(tmp_path, name, mode):
    unaligned = [t for t in TEMPLATES if t[0] & 0x4]  # CRAM then needs no reference
    path = write(tmp_path / name, unaligned, mode)
    chunks = split(path, [3, 100], tmp_path)
    assert [len(chunk) for chunk in chunks] == [3, 7]
    assert [record for chunk in chunks for record in chunk] == read(Path(path))[1]


def test_the_first_reads_alone(tmp_path):
    path = write(tmp_path / "in.bam")
    (head,) = split(path, [4], tmp_path)
    assert head == read(Path(path))[1][:5]  # pair, single, pair: a pair is not cut


@pytest.mark.parametrize("chunk_bytes", [64, 4 << 20])
@pytest.mark.parametrize("n_chunks", [2, 3, 8, 40])
def test_orphans_do_not_separate_later_mates(tmp_path, monkeypatch, n_chunks, chunk_bytes):
    monkeypatch.setattr(bam_split, "_CHUNK_BYTES", chunk_bytes)
    orphans: list[tuple[int, ...]] = [(0x4D,), (0x8D, SUPPLEMENTARY)]
    templates = [*orphans, *TEMPLATES, orphans[0], *TEMPLATES]
    path = write(tmp_path / "in.bam", templates)
    n_reads = 2 * N_READS + 3
    assert count_reads(path) == n_reads
    chunks = split(path, [n_reads * n // n_chunks for n in range(1, n_chunks + 1)], tmp_path)
    assert [record for chunk in chunks for record in chunk] == read(Path(path))[1]
    names = [
        {r.split("\t")[0] for r in chunk if not int(r.split("\t")[1]) & 0x900} for chunk in chunks
    ]
    assert sum(map(len, names)) == len(templates)


def test_repeated_records_are_an_error(tmp_path):
    path = write(tmp_path / "in.bam", [PAIR, (0x4,), (*PAIR, *PAIR)])
    with pytest.raises(InputFormatError, match=r"in\.bam: record 6: 'r2': a primary record of a"):
        count_reads(path)


def test_no_reads(tmp_path):
    path = write(tmp_path / "in.bam", [])
    assert count_reads(path) == 0
    assert split(path, [0, 0], tmp_path) == [[], []]


def test_a_file_that_is_cut_off_is_an_error(tmp_path):
    """Also if only the end-of-file block is missing, which no chunk shows."""
    whole = Path(write(tmp_path / "whole.bam")).read_bytes()
    for length, message in ((len(whole) - 28, "no end-of-file block"), (150, "truncated")):
        path = tmp_path / "cut.bam"
        path.write_bytes(whole[:length])
        with pytest.raises(InputFormatError, match=rf"cut\.bam: .*{message}"):
            split(str(path), [2, 100], tmp_path)


def test_what_is_no_file_of_reads_is_an_error(tmp_path):
    path = tmp_path / "x.bam"
    path.write_text("@r\nACGT\n+\nIIII\n")
    with pytest.raises(InputFormatError, match="not a BAM file"):
        count_reads(str(path))
