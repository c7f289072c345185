"""Read BAM, CRAM and SAM as pysam does, and refuse malformed files."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.errors import InputFormatError, UsageError
from mapper.io.bgzf import EOF_BLOCK
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from tests.helpers.alignment_files import (
    HEADER,
    expected_reads,
    random_lines,
    read_alignments,
    reads_of_batches,
    without_mates,
    write_alignments,
)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return random_lines(np.random.default_rng(4), 400)


@pytest.fixture(scope="module")
def bam(tmp_path_factory, lines) -> Path:
    return write_alignments(tmp_path_factory.mktemp("bam") / "r.bam", lines)


@pytest.mark.parametrize("suffix", ["bam", "ubam", "cram", "sam"])
def test_reads_are_pysams(tmp_path, lines, suffix):
    path = write_alignments(tmp_path / f"r.{suffix}", lines)
    unrecognisable = path.rename(tmp_path / "reads")
    batches = read_alignments(unrecognisable)
    assert reads_of_batches(batches) == expected_reads(unrecognisable)


@pytest.mark.parametrize("letters", ["ACGT", "ACGTN"])
def test_reads_of_any_length_and_strand(tmp_path, letters):
    """64 bases or more, all of them A, C, G or T, are decoded in vectors."""
    rng = np.random.default_rng(6)
    lines = []
    for n in [*range(1, 200), 1000]:
        # One letter that is not plain, if any, anywhere.
        bases = rng.choice(list("ACGT"), n)
        bases[rng.integers(0, n)] = rng.choice(list(letters))
        quality = "".join(chr(33 + q) for q in rng.integers(0, 94, n)).replace("*", "+")
        for flag in (0, 16):
            where = f"chr1\t1\t60\t{n}M"
            lines.append(f"r{n}\t{flag}\t{where}\t*\t0\t0\t{''.join(bases)}\t{quality}")
    path = write_alignments(tmp_path / "r.bam", lines)
    assert reads_of_batches(read_alignments(path)) == expected_reads(path)


def test_names_and_texts_of_any_length(tmp_path):
    """They are tested in vectors of 64 bytes where as many bytes follow."""
    visible = "".join(chr(33 + i % 94) for i in range(1000)).replace("@", "A")
    where = "4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII"
    lines = [
        f"{visible[n : 2 * n]}\t{where}\tXX:Z:{' '.join([visible[: n - 1], ''])}\tXY:Z:{n}"
        for n in [*range(1, 140), *range(250, 255)]
    ]
    path = write_alignments(tmp_path / "r.bam", [*lines, *reversed(lines)])
    assert reads_of_batches(read_alignments(path)) == expected_reads(path)


@given(st.integers(40, 3000), st.integers(1, 5000), st.integers(1, 12))
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_chunk_any_batch(bam, chunk_bytes, batch_bases, threads):
    batches = read_alignments(
        bam, chunk_bytes=chunk_bytes, batch_bases=batch_bases, threads=threads
    )
    assert reads_of_batches(batches) == expected_reads(bam)
    for batch in batches:
        in_pair = (batch.flags & 1) != 0
        assert batch.paired == in_pair.all()
        assert batch.n_pairs == in_pair.sum() // 2
        firsts = np.flatnonzero(batch.flags & 0x40)
        assert np.array_equal(np.flatnonzero(batch.flags & 0x80), firsts + 1)


def test_plain_and_gzip_bam(tmp_path, bam):
    """BAM without compression, and in one gzip member; no tool should write either."""
    raw = gzip.decompress(bam.read_bytes())
    (tmp_path / "plain").write_bytes(raw)
    (tmp_path / "gzip").write_bytes(gzip.compress(raw))
    for name in ("plain", "gzip"):
        assert reads_of_batches(read_alignments(tmp_path / name)) == expected_reads(bam)


@pytest.mark.parametrize("suffix", ["bam", "cram", "sam", "sam.gz"])
def test_standard_input(tmp_path, suffix):
    lines = random_lines(np.random.default_rng(9), 50)
    path = write_alignments(tmp_path / f"r.{suffix.removesuffix('.gz')}", lines)
    expected = expected_reads(path)
    if suffix.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    code = (
        "from mapper.io.reads import *\n"
        "reader = ReadsReader([Lane(('-',))], ReadOptions())\n"
        "while (batch := reader.next_batch()) is not None: print(batch.n_reads)\n"
    )
    with path.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-c", code], stdin=file, capture_output=True, check=True, text=True
        )
    assert sum(map(int, done.stdout.split())) == len(expected)
    assert done.stderr == ""


def test_several_files_one_after_the_other(tmp_path):
    paths = [
        write_alignments(tmp_path / name, random_lines(np.random.default_rng(n), n))
        for name, n in (("a.bam", 20), ("b.cram", 0), ("c.sam", 30))
    ]
    expected = [read for path in paths for read in expected_reads(path)]
    assert reads_of_batches(read_alignments(*paths)) == expected


def test_no_reads(tmp_path):
    for suffix in ("bam", "sam", "cram"):
        assert read_alignments(write_alignments(tmp_path / f"r.{suffix}", [])) == []


def error_of(*paths: Path, **options) -> str:
    with pytest.raises(InputFormatError) as caught:
        read_alignments(*paths, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


SINGLE = "s\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII"
FIRST = "p\t77\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII"
LAST = "p\t141\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII"
EXTRA = "p\t2113\tchr1\t5\t0\t4M\t*\t0\t0\tACGT\tIIII"

OTHER = FIRST.replace("p\t", "q\t")
TWICE = "a primary record of a read that has one already"
NOT_NEXT = "flagged paired, and its mate is in the file, but not next to it"

BROKEN = {
    "neither first nor last": ([SINGLE, FIRST.replace("77", "13")], 2, "neither or both"),
    "first and last": ([FIRST.replace("77", "205")], 1, "neither or both"),
    "first twice": ([SINGLE, FIRST, EXTRA, FIRST], 4, f"'p': {TWICE}"),
    "last twice": ([LAST, LAST], 2, TWICE),
    "both twice": ([FIRST, LAST, FIRST, LAST], 3, TWICE),
    "both twice, in turn": ([FIRST, FIRST, LAST, LAST], 2, TWICE),
    "both twice, extra records between": ([FIRST, LAST, EXTRA, EXTRA, FIRST, LAST], 5, TWICE),
    "both twice, a single read between": ([FIRST, LAST, SINGLE, FIRST, LAST], 4, TWICE),
    "a third read": ([LAST, FIRST, FIRST], 3, TWICE),
    "a third read between": ([FIRST, FIRST.replace("77", "13"), LAST], 2, "'p': flagged paired"),
    "a third read after them": ([FIRST, LAST, LAST.replace("141", "205")], 3, "three or more"),
    "mates apart": ([FIRST, SINGLE, LAST], 3, f"'p': {NOT_NEXT}; group mates with `samtools coll"),
    "mates apart, last first": ([LAST, OTHER, FIRST, SINGLE], 3, f"'p': {NOT_NEXT}"),
    "aligned without bases": (["s\t0\tchr1\t1\t0\t4M\t*\t0\t0\t*\t*"], 1, "has no sequence"),
    "equal bases": ([SINGLE.replace("ACGT", "A=GT")], 1, "given as '='"),
    "unknown read group": ([SINGLE + "\tRG:Z:abc"], 1, "stands in no @RG line"),
    "of the first mate": ([FIRST + "\tRG:Z:abc", LAST], 1, "stands in no @RG line"),
    "of the last mate": ([FIRST, EXTRA, LAST + "\tRG:Z:abc"], 3, "stands in no @RG line"),
    "of the last mate, first in file": ([LAST + "\tRG:Z:abc", FIRST], 1, "stands in no @RG line"),
    "of the first mate, last in file": ([LAST, FIRST + "\tRG:Z:abc"], 2, "stands in no @RG line"),
    "read group by prefix": ([SINGLE, EXTRA, SINGLE + "\tRG:Z:"], 3, "stands in no @RG line"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("chunk_bytes", [60, 1 << 20])
@pytest.mark.parametrize("batch_bases", [1, 1 << 20])
def test_broken_records(tmp_path, case, chunk_bytes, batch_bases):
    lines, number, reason = BROKEN[case]
    path = write_alignments(tmp_path / "r.bam", lines)
    message = error_of(path, chunk_bytes=chunk_bytes, batch_bases=batch_bases)
    assert message.startswith(f"{path}: record {number}: ")
    assert reason in message


ORPHANS = {
    "mate missing at the end": ([SINGLE, FIRST], 2, "'p' is flagged paired, and its mate does not "
                                "follow: the file ends; group mates"),
    "only an extra record follows": ([FIRST, EXTRA], 1, "the file ends"),
    "single read follows": ([FIRST, SINGLE], 1, "does not follow: the next read is 's'"),
    "single read of that name follows": ([FIRST, "p" + SINGLE[1:]], 1, "the next read is 'p'"),
    "other template follows": ([FIRST, LAST.replace("p\t", "q\t")], 1, "the next read is 'q'"),
    "last alone": ([LAST, EXTRA, SINGLE], 1, "the next read is 's'"),
}  # fmt: skip


@pytest.mark.parametrize("case", ORPHANS)
@pytest.mark.parametrize("chunk_bytes", [60, 1 << 20])
def test_orphans_are_told_from_pairs(tmp_path, case, chunk_bytes):
    lines, number, reason = ORPHANS[case]
    path = write_alignments(tmp_path / "r.bam", lines)
    message = error_of(path, chunk_bytes=chunk_bytes, orphans="refuse")
    assert message.startswith(f"{path}: record {number}: ")
    assert reason in message
    assert "orphans map or skip" in message
    assert reads_of_batches(read_alignments(path)) == expected_reads(path)


@pytest.mark.parametrize("batch_bases", [1, 200, 3000, 1 << 20])
@pytest.mark.parametrize("chunk_bytes", [100, 1 << 20])
def test_orphans_are_single_reads_or_left_out(tmp_path, batch_bases, chunk_bytes):
    rng = np.random.default_rng(8)
    lines = without_mates(rng, random_lines(rng, 300), 0.3)
    path = write_alignments(tmp_path / "r.bam", lines)
    options = {"batch_bases": batch_bases, "chunk_bytes": chunk_bytes}
    expected = expected_reads(path)
    flags = [int(line.split("\t")[1]) for line in lines]
    n_paired = sum(flag & 1 for flag in flags if not flag & 0x900)
    n_orphans = n_paired - sum(read.flag & 1 for read in expected)
    assert n_orphans > 20
    batches = read_alignments(path, **options)
    assert reads_of_batches(batches) == expected
    orphans = with_names_of_orphans(lines)
    assert len(orphans) == n_orphans
    left = [read for read in expected if read.name not in orphans]
    batches = read_alignments(path, orphans="skip", **options)
    assert reads_of_batches(batches) == left
    for how in ("map", "skip"):
        with ReadsReader([Lane((str(path),))], ReadOptions(orphans=how, **options)) as reader:
            n_pairs = 0
            while (raw := reader.next_raw()) is not None:
                batch = raw.parse()
                assert (batch.n_reads, batch.n_pairs) == (raw.n_reads, raw.n_pairs)
                n_pairs += raw.n_pairs
            assert reader.n_orphans == n_orphans
            assert n_pairs == sum(read.flag & 1 for read in expected) // 2


def with_names_of_orphans(lines: list[str]) -> set[str]:
    """Return the names that one primary record alone has, flagged paired."""
    records = [line.split("\t")[:2] for line in lines]
    names = [name for name, flag in records if not int(flag) & 0x900 and int(flag) & 1]
    return {name for name in names if names.count(name) == 1}


def test_a_file_of_nothing_but_orphans(tmp_path):
    lines = [FIRST.replace("p\t", f"p{i}\t") for i in range(500)]
    path = write_alignments(tmp_path / "r.bam", lines)
    for options in ({}, {"batch_bases": 100, "chunk_bytes": 60}):
        assert len(reads_of_batches(read_alignments(path, **options))) == 500
        assert read_alignments(path, orphans="skip", **options) == []


def test_mates_apart_are_found_by_the_first_names_alone(tmp_path, monkeypatch):
    """The table of names has an end; what comes later is looked up, and not entered."""
    monkeypatch.setattr("mapper.io.bam_reader.NAME_SLOTS", 16)
    lines = [FIRST.replace("p\t", f"p{i}\t") for i in range(100)]
    late, early = (LAST.replace("p\t", f"p{i}\t") for i in (50, 3))
    path = write_alignments(tmp_path / "r.bam", [*lines, late, early])
    assert f"record 102: 'p3': {NOT_NEXT}" in error_of(path, batch_bases=200)


def test_sorted_files_are_named(tmp_path):
    header = HEADER.replace("SO:unsorted\tGO:query", "SO:coordinate")
    path = write_alignments(tmp_path / "r.bam", [FIRST, SINGLE, LAST], header)
    message = error_of(path)
    assert message.endswith("the file is sorted by coordinate; group mates with `samtools collate`")


def raw_bam(*records: bytes, text: bytes = b"@RG\tID:a\n") -> bytes:
    size = len(text).to_bytes(4, "little")
    return b"BAM\x01" + size + text + bytes(4) + b"".join(records)


def raw_record(
    name: bytes = b"r\0",
    n_bases: int = 2,
    quals: bytes = b"\x05\x05",
    tags: bytes = b"",
    size: int | None = None,
    l_name: int | None = None,
) -> bytes:
    body = (
        b"\xff" * 8
        + bytes([len(name) if l_name is None else l_name, 0, 0, 0, 0, 0])
        + b"\x04\0"
        + n_bases.to_bytes(4, "little", signed=True)
        + b"\xff" * 8
        + bytes(4)
        + name
        + b"\x12" * ((max(n_bases, 0) + 1) // 2)
        + quals
        + tags
    )
    return (len(body) if size is None else size).to_bytes(4, "little", signed=True) + body


BROKEN_BYTES = {
    "size too small": (raw_record(size=20), "contradict"),
    "negative size": (raw_record(size=-1), "contradict"),
    "more bases than bytes": (raw_record(n_bases=1000, quals=b"", size=40), "contradict"),
    "negative bases": (raw_record(n_bases=-1), "contradict"),
    "no name": (raw_record(l_name=0), "contradict"),
    "empty name": (raw_record(name=b"\0"), "the read name is empty"),
    "@ first in the name": (raw_record(name=b"@HD\0"), "begins with '@', as only header lines"),
    "@ alone": (raw_record(name=b"@\0"), "begins with '@', as only header lines"),
    "name not closed": (raw_record(name=b"rx"), "not closed"),
    "control character": (raw_record(name=b"a\tb\0"), "control character"),
    "quality 94": (raw_record(quals=b"\x05\x5e"), "quality is above 93"),
    "tag of unknown type": (raw_record(tags=b"XXq\0"), "tags are malformed"),
    "tag cut off": (raw_record(tags=b"XXi\0\0\0"), "tags are malformed"),
    "two bytes of a tag": (raw_record(tags=b"XX"), "tags are malformed"),
    "text not closed": (raw_record(tags=b"XXZab"), "tags are malformed"),
    "control character in text": (raw_record(tags=b"XXZa\nb\0"), "tags are malformed"),
    "array beyond the end": (raw_record(tags=b"XXBi\x09\0\0\0"), "tags are malformed"),
    "huge array": (raw_record(tags=b"XXBi\xff\xff\xff\xff"), "tags are malformed"),
    "array of characters": (raw_record(tags=b"XXBA\0\0\0\0"), "tags are malformed"),
    "read group is a number": (raw_record(tags=b"RGi\0\0\0\0"), "stands in no @RG line"),
    "ends in a record": (raw_record()[:-1], "the file ends inside the record"),
    "ends in a size": (raw_record()[:3], "the file ends inside the record"),
    "ends in a large record": (raw_record(size=1 << 24), "the file ends inside the record"),
}


@pytest.mark.parametrize("case", BROKEN_BYTES)
def test_broken_bytes(tmp_path, case):
    record, reason = BROKEN_BYTES[case]
    path = tmp_path / "r.bam"
    path.write_bytes(raw_bam(raw_record(), record))
    message = error_of(path, chunk_bytes=64)
    assert message.startswith(f"{path}: record 2: ")
    assert reason in message


@pytest.mark.parametrize("size", [63, 64, 65, 150, 200])
@pytest.mark.parametrize("n_behind", [0, 100])
def test_one_bad_byte_anywhere(tmp_path, size, n_behind):
    """In a name, a quality, a text: first, last and between, with and without later records."""
    path = tmp_path / "r.bam"
    for at in (0, 1, size // 2, size - 1):
        bad = bytearray(b"\x41" * size)
        bad[at] = 127
        for record, reason in (
            (raw_record(name=bytes(bad) + b"\0"), "control character"),
            (raw_record(n_bases=size, quals=bytes(bad)), "quality is above 93"),
            (raw_record(tags=b"XXZ" + bytes(bad) + b"\0"), "tags are malformed"),
            (raw_record(tags=b"XXZ" + bytes(bad).replace(b"\x7f", b"B")), "tags are malformed"),
        ):
            path.write_bytes(raw_bam(raw_record(), record, *[raw_record()] * n_behind))
            message = error_of(path)
            assert message.startswith(f"{path}: record 2: ")
            assert reason in message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"BAM\x01\xff\xff\xff\xff", "the header is damaged (size -1"),
        (b"BAM\x01\x09\0\0\0@HD", "ends inside the header"),
        (b"BAM\x01\x00\0\0\0\x01\0\0\0\xff\xff\xff\x7f", "the header is damaged"),
        (raw_bam(text=b"@RG\tSM:x\n"), "has no ID"),
    ],
)
def test_broken_headers(tmp_path, data, reason):
    path = tmp_path / "r.bam"
    path.write_bytes(data)
    message = error_of(path)
    assert message.startswith(f"{path}: ")
    assert reason in message


def test_truncated_files(tmp_path, bam):
    whole = bam.read_bytes()
    path = tmp_path / "r.bam"
    assert whole.endswith(EOF_BLOCK)
    n_records = pysam.AlignmentFile(str(bam)).count(until_eof=True)
    path.write_bytes(whole.removesuffix(EOF_BLOCK))
    assert error_of(path) == (
        f"{path}: no end-of-file block after record {n_records}: the file is truncated; copy or "
        "export it again"
    )
    for cut in (len(whole) // 2, len(whole) - len(EOF_BLOCK) - 1, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert "truncated" in error_of(path)


def test_flipped_byte(tmp_path, bam):
    data = bytearray(bam.read_bytes())
    data[len(data) // 2] ^= 1
    path = tmp_path / "r.bam"
    path.write_bytes(data)
    assert f"{path}: the gzip data are damaged" in error_of(path)


@pytest.mark.parametrize("suffix", ["cram", "sam"])
def test_broken_cram_and_sam(tmp_path, lines, suffix):
    path = write_alignments(tmp_path / f"r.{suffix}", lines)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    message = error_of(path)
    assert message.startswith(f"{path}: ")
    assert "samtools view: error reading file" in message


@pytest.mark.parametrize("version", ["2.1", "3.0", "3.1"])
@pytest.mark.parametrize("is_pipe", [False, True])
def test_cram_that_ends_between_containers(tmp_path, version, is_pipe):
    """Samtools reads the records before the cut, warns, and succeeds."""
    sam, path = tmp_path / "r.sam", tmp_path / "r.cram"
    write_alignments(sam, [SINGLE, FIRST, LAST])
    options = ("-O", f"cram,version={version},no_ref=1")
    pysam.view(*options, "-o", str(path), str(sam), catch_stdout=False)
    data = path.read_bytes()
    name = tmp_path / "pipe" if is_pipe else path
    if is_pipe:
        os.mkfifo(name)

    def give(content: bytes) -> Path:
        if is_pipe:
            threading.Thread(target=name.write_bytes, args=(content,), daemon=True).start()
        else:
            name.write_bytes(content)
        return name

    assert reads_of_batches(read_alignments(give(data))) == expected_reads(path)
    end = 30 if version == "2.1" else 38
    message = error_of(give(data[:-end]))
    assert message.startswith(f"{name}: no end-of-file block after record 3: ")


def test_cram_needs_its_reference(tmp_path):
    contig = "".join(np.random.default_rng(1).choice(list("ACGT"), 100_000))
    reference = tmp_path / "ref.fa"
    reference.write_text(f">chr1\n{contig}\n")
    pysam.faidx(str(reference))
    sam, path = tmp_path / "r.sam", tmp_path / "r.cram"
    lines = [f"r{i}\t0\tchr1\t{i + 1}\t9\t50M\t*\t0\t0\t{contig[i : i + 50]}\t*" for i in range(99)]
    write_alignments(sam, lines)
    pysam.view("-C", "-T", str(reference), "-o", str(path), str(sam), catch_stdout=False)
    assert reads_of_batches(read_alignments(path, reference=str(reference))) == expected_reads(sam)
    shutil.move(reference, tmp_path / "elsewhere.fa")
    assert f"{path}: " in error_of(path)


def test_combinations_that_make_no_sense(tmp_path, bam):
    fastq = tmp_path / "r.fq"
    fastq.write_text("@r\nA\n+\nI\n")
    with pytest.raises(UsageError, match=r"r.bam is BAM, .*r.fq is FASTQ; give FASTQ files alone"):
        read_alignments(bam, fastq)
    with pytest.raises(UsageError, match=r"which says itself what are mates"):
        read_alignments(bam, interleaved=True)
    with pytest.raises(UsageError, match="given twice"):
        read_alignments(bam, bam)
