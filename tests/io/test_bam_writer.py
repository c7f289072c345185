"""Encode record batches as BAM and SAM like pysam and the naive writer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pysam
import pytest

from mapper.batch import ReadBatch, RecordBatch
from mapper.errors import OutputError
from mapper.io.bam_writer import encode_bam, reg2bin
from mapper.io.header import header_text
from mapper.io.output import open_output
from mapper.io.paf import encode_paf
from mapper.io.sam import encode_sam
from tests.helpers.record_batches import (
    CONTIG_LENGTHS,
    CONTIG_NAMES,
    offsets_of,
    random_reads,
    random_records,
)
from tests.naive.paf import paf_line
from tests.naive.sam import sam_lines

HEADER = header_text(CONTIG_NAMES, CONTIG_LENGTHS, "fmwave map", r"@RG\tID:a\tSM:b")


def write(path: Path, fmt: str, *batches: tuple[RecordBatch, ReadBatch]) -> None:
    with (
        ThreadPoolExecutor(2) as executor,
        open_output(str(path), fmt, HEADER, CONTIG_NAMES, CONTIG_LENGTHS, executor) as output,
    ):
        for records, reads in batches:
            output.append(output.encode(records, reads))


@pytest.fixture(scope="module", params=range(3))
def batch(request) -> tuple[RecordBatch, ReadBatch]:
    rng = np.random.default_rng(request.param)
    reads = random_reads(rng, 60)
    return random_records(rng, reads, 300), reads


def test_sam_is_the_naive_text(batch):
    lines = encode_sam(*batch, CONTIG_NAMES).tobytes().decode().splitlines()
    assert lines == sam_lines(*batch, CONTIG_NAMES)


def test_reads_of_plain_bases_of_any_length(tmp_path):
    """64 or more bases and qualities are written in vectors."""
    rng = np.random.default_rng(5)
    lengths = [*range(300), 1000]
    reads = random_reads(rng, len(lengths))._replace(
        bases=rng.integers(0, 4, sum(lengths)).astype(np.uint8),
        quals=rng.integers(0, 94, sum(lengths)).astype(np.uint8),
        base_offsets=offsets_of(lengths),
    )
    records = random_records(rng, reads, 3000)
    write(tmp_path / "out.bam", "bam", (records, reads))
    lines = pysam.view("--no-PG", str(tmp_path / "out.bam")).splitlines()
    assert lines == sam_lines(records, reads, CONTIG_NAMES)


@pytest.mark.parametrize("fmt", ["bam", "sam"])
def test_htslib_reads_every_field_back(tmp_path, batch, fmt):
    path = tmp_path / f"out.{fmt}"
    write(path, fmt, batch)
    lines = pysam.view("--no-PG", "-h", str(path)).splitlines()
    header = HEADER.splitlines()
    assert lines[: len(header)] == header
    read_back = [line for line in lines if not line.startswith("@")]
    assert read_back == sam_lines(*batch, CONTIG_NAMES)


def test_bins_are_htslibs(tmp_path, batch):
    write(tmp_path / "out.bam", "bam", batch)
    with pysam.AlignmentFile(str(tmp_path / "out.bam")) as ours:
        given = [(r.bin, r.to_string(), ours.header) for r in ours]
    for ours_bin, text, header in given:
        assert ours_bin == pysam.AlignedSegment.fromstring(text, header).bin


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(-1, 0, 4680), (0, 1, 4681), (0, 16384, 4681), (0, 16385, 585), (1 << 26, (1 << 26) + 1, 8777),
     ((1 << 29) - 1, 1 << 29, 37448), (0, 1 << 29, 0)],
)  # fmt: skip
def test_bins_of_the_specification(start, end, expected):
    assert reg2bin(start, end) == expected


def test_batches_concatenate(batch):
    """Two halves of the records give the two halves of the bytes."""
    records, reads = batch
    halves = [select(records, 0, 100), select(records, 100, records.n_records)]
    parts = [encode_bam(half, reads) for half in halves]
    assert np.array_equal(np.concatenate(parts), encode_bam(records, reads))


def select(records: RecordBatch, start: int, end: int) -> RecordBatch:
    columns = {}
    for name, column in records._asdict().items():
        if name in ("cigar_ops", "tags"):
            offsets = getattr(records, name.split("_")[0].rstrip("s") + "_offsets")
            columns[name] = column[offsets[start] : offsets[end]]
        elif name.endswith("_offsets"):
            columns[name] = column[start : end + 1] - column[start]
        else:
            columns[name] = column[start:end]
    return RecordBatch(**columns)


def test_no_records(tmp_path, batch):
    empty = select(batch[0], 0, 0)
    assert len(encode_bam(empty, batch[1])) == len(encode_sam(empty, batch[1], [])) == 0
    for fmt in ("bam", "sam"):
        write(tmp_path / fmt, fmt, (empty, batch[1]))
        assert pysam.view("--no-PG", "-h", str(tmp_path / fmt)) == HEADER


def single_record(batch, n_ops: int, name: bytes) -> tuple[RecordBatch, ReadBatch]:
    reads = ReadBatch(
        bases=np.zeros(n_ops, np.uint8),
        quals=np.full(n_ops, 30, np.uint8),
        base_offsets=offsets_of([n_ops]),
        names=np.frombuffer(name, np.uint8),
        name_offsets=offsets_of([len(name)]),
        first_read=41,
        paired=False,
    )
    one = select(batch[0], 0, 1)._replace(
        read=np.zeros(1, np.int32),
        cigar_offsets=offsets_of([n_ops]),
        cigar_ops=np.tile(np.array([1 << 4 | 7, 1 << 4 | 8], np.uint32), n_ops)[:n_ops],
        query_start=np.zeros(1, np.int32),
        query_end=np.full(1, n_ops, np.int32),
    )
    return one, reads


@pytest.mark.parametrize("n_ops", [65535, 65536, 70001])
def test_long_cigars_come_back(tmp_path, batch, n_ops):
    """More than 65 535 operations go into the tag CG, which htslib converts to the CIGAR."""
    records, reads = single_record(batch, n_ops, b"n" * 254)
    records = records._replace(
        flag=np.zeros(1, np.uint16), ref_id=np.zeros(1, np.int32), ref_pos=np.full(1, 17)
    )
    write(tmp_path / "out.bam", "bam", (records, reads))
    raw = encode_bam(records, reads)
    assert raw[16:18].view("<u2")[0] == (n_ops if n_ops <= 65535 else 2)
    lines = pysam.view(str(tmp_path / "out.bam")).splitlines()
    assert lines == sam_lines(records, reads, CONTIG_NAMES)
    with pysam.AlignmentFile(str(tmp_path / "out.bam")) as file:
        (record,) = list(file)
    expected = pysam.AlignedSegment.fromstring(lines[0], record.header)
    assert record.bin == expected.bin


def test_longest_name(batch):
    for encode in (encode_bam, lambda *b: encode_sam(*b, CONTIG_NAMES)):
        with pytest.raises(OutputError, match="read 42 has 255 characters"):
            encode(*single_record(batch, 1, b"n" * 255))


def test_paf_is_the_naive_text(batch):
    records, reads = batch
    # fmwave writes no N.
    has_n = records.cigar_ops & 15 == 3
    ops = np.where(has_n, records.cigar_ops & ~np.uint32(1), records.cigar_ops)
    flags = np.random.default_rng(1).choice([0, 0x40, 0x80, 0x100, 0x840], records.n_records)
    records = records._replace(cigar_ops=ops, flag=records.flag & 0x14 | flags.astype(np.uint16))
    lines = sam_lines(records, reads, CONTIG_NAMES)
    read_lengths = np.diff(reads.base_offsets)[records.read].tolist()
    expected = [
        paf_line(line, read_len, dict(zip(CONTIG_NAMES, CONTIG_LENGTHS, strict=True)))
        for line, read_len in zip(lines, read_lengths, strict=True)
        if int(line.split("\t")[1]) & 4 == 0
    ]
    text = encode_paf(records, reads, CONTIG_NAMES, np.array(CONTIG_LENGTHS)).tobytes().decode()
    assert text.splitlines() == expected
    assert len(expected) > 100


def test_longest_numbers_fit_the_sam_buffer(batch):
    records, reads = single_record(batch, 1, b"n")
    extremes = {
        "flag": 65535, "ref_id": 2, "ref_pos": (1 << 31) - 2, "mapq": 255, "next_ref_id": 0,
        "next_pos": (1 << 31) - 2, "template_len": -(1 << 31),
    }  # fmt: skip
    records = records._replace(
        **{key: np.full(1, value, getattr(records, key).dtype) for key, value in extremes.items()}
    )
    line = encode_sam(records, reads, CONTIG_NAMES).tobytes().decode().rstrip("\n")
    assert line == sam_lines(records, reads, CONTIG_NAMES)[0]
