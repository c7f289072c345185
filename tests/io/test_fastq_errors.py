"""Refuse malformed FASTQ of every kind with file, record and reason."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pysam
import pytest

from mapper.errors import InputFormatError, UsageError
from mapper.io.fastq import FastqReader
from tests.helpers.fuzz_corpus import BROKEN_RECORDS
from tests.helpers.record_batches import as_reads
from tests.io.test_fastq import bgzf, read_all, simple_text

GOOD = b"@good\nACGT\n+\nIIII\n"
ODD = Path(__file__).parents[2] / ".." / "shared" / "data" / "odd"


def error_of(*paths, **options) -> str:
    """Return the message, which must be the same in a second call."""
    with FastqReader([str(path) for path in paths], **options) as reader:
        with pytest.raises(InputFormatError) as caught:
            while reader.next_batch() is not None:
                pass
        with pytest.raises(InputFormatError) as again:
            reader.next_batch()
        assert again.value is caught.value
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("case", BROKEN_RECORDS)
@pytest.mark.parametrize("chunk_bytes", [7, 1 << 20])
def test_broken_record(tmp_path, case, chunk_bytes):
    broken, reason = BROKEN_RECORDS[case]
    path = tmp_path / "r.fq"
    path.write_bytes(GOOD * 2 + broken)
    message = error_of(path, chunk_bytes=chunk_bytes)
    assert message.startswith(f"{path}: record 3: ")
    assert reason in message

    second = tmp_path / "r2.fq"
    second.write_bytes(GOOD * 3)
    for pair in ((path, second), (second, path)):
        message = error_of(*pair, chunk_bytes=chunk_bytes)
        assert message.startswith(f"{path}: record 3: ")
        assert reason in message

    path.write_bytes(GOOD * 3 + broken)
    message = error_of(path, interleaved=True, chunk_bytes=chunk_bytes)
    assert message.startswith(f"{path}: record 4: ")
    assert reason in message


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"@HD\tVN:1.6\n@SQ\tSN:x\tLN:5\n", "a SAM file"),
        (b"CRAM\x03\x00", "a CRAM file"),
        (b"\xef\xbb\xbf" + GOOD, "byte order mark"),
        (b"BZh91AY&SY", "compressed with bzip2"),
        (b"\x28\xb5\x2f\xfd\x04", "compressed with zstd"),
        (b"\xfd7zXZ\x00", "compressed with xz"),
        (b"PK\x03\x04", "compressed with zip"),
        (np.random.default_rng(5).bytes(100_000), "not FASTQ"),
        (b"hello", "not FASTQ: it begins with 'hello'"),
    ],
)
def test_other_formats_are_named(tmp_path, start, what):
    path = tmp_path / "r.fq"
    path.write_bytes(start)
    with pytest.raises(InputFormatError) as caught:
        read_all(path)
    assert str(path) in str(caught.value)
    assert what in str(caught.value)


def test_bam_is_named(tmp_path):
    path = tmp_path / "r.fq"
    with pysam.AlignmentFile(str(path), "wb", header={"HD": {"VN": "1.6"}}):
        pass
    assert "not FASTQ but a BAM file" in error_of(path)


@pytest.mark.parametrize("pack", [gzip.compress, bgzf])
@pytest.mark.parametrize("mate", [0, 1])
def test_truncated_gzip(tmp_path, pack, mate):
    text = simple_text(5000)
    packed = pack(text) if pack is gzip.compress else pack(text, tmp_path)
    paths = [tmp_path / "r1.fq.gz", tmp_path / "r2.fq.gz"]
    for i, path in enumerate(paths):
        path.write_bytes(packed[: -len(packed) // 3] if i == mate else packed)
    message = error_of(*paths, chunk_bytes=5000)
    assert str(paths[mate]) in message
    assert "truncated" in message
    assert str(paths[mate]) in error_of(paths[mate])


@pytest.mark.parametrize("cut", range(1, 18))
def test_gzip_cut_in_header_or_trailer(tmp_path, cut):
    packed = gzip.compress(GOOD)
    path = tmp_path / "r.fq.gz"
    for part in (packed[:-cut], packed + packed[: cut + 1]):
        path.write_bytes(part)
        assert str(path) in error_of(path)


def test_flipped_byte(tmp_path):
    packed = bytearray(gzip.compress(simple_text(5000)))
    path = tmp_path / "r.fq.gz"
    for at in np.random.default_rng(3).integers(20, len(packed), 30):
        packed[at] ^= 0x40
        path.write_bytes(packed)
        assert str(path) in error_of(path)
        packed[at] ^= 0x40


def test_wrong_checksum_alone(tmp_path):
    packed = bytearray(gzip.compress(GOOD))
    packed[-8] ^= 1
    path = tmp_path / "r.fq.gz"
    path.write_bytes(packed)
    assert "damaged" in error_of(path)


def test_garbage_after_gzip(tmp_path):
    path = tmp_path / "r.fq.gz"
    for garbage in (b"\n", b"garbage", b"garbage" * 9):
        path.write_bytes(gzip.compress(GOOD) + garbage)
        message = error_of(path)
        assert f"{path}: other bytes follow the end of the gzip data" in message
        assert "truncated" not in message
        path.write_bytes(gzip.compress(GOOD)[:-1] + garbage)  # garbage completes the trailer
        assert "damaged" in error_of(path)


@pytest.mark.parametrize("tail", [b"", b"\n\n"])
def test_unequal_numbers(tmp_path, tail):
    long, short = tmp_path / "long.fq", tmp_path / "short.fq"
    long.write_bytes(simple_text(3000) + tail)
    short.write_bytes(simple_text(3000)[: simple_text(2000).__len__()] + tail)
    n_short = len(as_reads(read_all(short))) if tail == b"" else None
    for pair in ((long, short), (short, long)):
        message = error_of(*pair, chunk_bytes=999)
        assert f"{short} ends after " in message
        assert f"{long} goes on" in message
        if n_short is not None:
            assert f"ends after {n_short} reads" in message


def test_one_file_empty(tmp_path):
    full, empty = tmp_path / "full.fq", tmp_path / "empty.fq"
    full.write_bytes(GOOD)
    empty.write_bytes(b"")
    for pair in ((full, empty), (empty, full)):
        assert f"{empty} ends after 0 reads" in error_of(*pair)


def test_odd_number_interleaved(tmp_path):
    path = tmp_path / "r.fq"
    for tail in (b"", b"\n"):
        path.write_bytes(GOOD * 5 + tail)
        message = error_of(path, interleaved=True)
        assert f"{path}: 5 reads, an odd number" in message


def test_mates_out_of_step(tmp_path):
    first, second, woven = tmp_path / "1.fq", tmp_path / "2.fq", tmp_path / "w.fq"
    names = [f"r{i}" for i in range(9)]
    first.write_text("".join(f"@{n}/1 c\nA\n+\nI\n" for n in names))
    names[6], names[7] = names[7], names[6]
    second.write_text("".join(f"@{n}/2\nA\n+\nI\n" for n in names))
    message = error_of(first, second)
    assert f"record 7 of {first} is 'r6/1', record 7 of {second} is 'r7/2'" in message
    woven.write_text("".join(f"@{n}\nA\n+\nI\n" for n in "aabbbc"))
    message = error_of(woven, interleaved=True)
    assert f"record 5 of {woven} is 'b', record 6 of {woven} is 'c'" in message


@pytest.mark.parametrize(
    ("a", "b"),
    [("r.1", "r.3"), ("r.2", "r.1"), ("r.1", "r_2"), ("r1", "r2"), ("1", "2"), (".1", ".2")],
)
def test_names_that_are_no_pair(tmp_path, a, b):
    paths = [tmp_path / "1.fq", tmp_path / "2.fq"]
    for path, name in zip(paths, (a, b), strict=True):
        path.write_text(f"@{name}\nA\n+\nI\n")
    assert "mates out of step" in error_of(*paths)


MARKS_DIFFER = {
    "swapped": ("r/2", "r/1", "mates in the wrong order: ", True),
    "both first": ("r/1", "r/1", "no first and second read of a pair: ", False),
    "both second": ("r/2", "r/2", "no first and second read of a pair: ", False),
    "first unmarked": ("r", "r/1 x", "no first and second read of a pair: ", False),
    "second unmarked": ("r/2", "r\ty", "no first and second read of a pair: ", False),
    "Casava, swapped": ("r 2:N:0:ACGT", "r 1:Y:0:ACGT", "mates in the wrong order: ", True),
    "Casava, both first": ("r 1:N:0:ACGT", "r 1:N:0:ACGT", "no first and second read", False),
    "Casava, short": ("r 2:N:", "r", "no first and second read", False),
    "swapped, of SRA": ("r.2", "r.1", "mates out of step: ", True),
    "swapped, with _": ("r_2", "r_1", "mates out of step: ", True),
}


@pytest.mark.parametrize("case", MARKS_DIFFER)
@pytest.mark.parametrize("chunk_bytes", [7, 1 << 20])
def test_marks_of_mates_that_contradict(tmp_path, case, chunk_bytes):
    first, second, reason, swapped = MARKS_DIFFER[case]
    paths = [tmp_path / "1.fq", tmp_path / "2.fq"]
    for path, name in zip(paths, (first, second), strict=True):
        path.write_text(f"@good\nACGT\n+\nIIII\n@{name}\nA\n+\nI\n")
    message = error_of(*paths, chunk_bytes=chunk_bytes)
    words = [" ".join(name.split()) for name in (first, second)]
    if ":" not in first and "out of step" in reason:
        words = [word.split()[0] for word in words]
    what = f"record 2 of {paths[0]} is '{words[0]}', record 2 of {paths[1]} is '{words[1]}'"
    assert message.startswith(reason)
    assert what in message
    assert (f"; give {paths[1]} first, which holds the first reads (1)" in message) == swapped

    woven = tmp_path / "w.fq"
    woven.write_text("".join(f"@{n}\nA\n+\nI\n" for n in ("a/1", "a/2", first, second)))
    message = error_of(woven, interleaved=True, chunk_bytes=chunk_bytes)
    assert message.startswith(reason)
    assert f"record 3 of {woven} is '{words[0]}', record 4 of {woven} is" in message
    assert ("; put the first read (1) of each pair before" in message) == swapped


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("r/1", "r"), ("r", "r/2"), ("r 1:N:0:A", "r 2:Y:0:A"), ("r 1:N:0:A", "r"),
        ("r 1:N:0:A", "r 3:N:0:A"), ("r/1 2:N:0:A", "r/2 1:N:0:A"), ("r 2:x:0", "r 1:x:0"),
        ("r 2", "r 1"), ("r\t2:N:0", "r\t1:N:0"), ("r 22:N:0", "r 11:N:0"),
    ],
)  # fmt: skip
def test_marks_of_mates_that_do_not_contradict(tmp_path, first, second):
    """No mark, marks of other reads of a run, and comments that only look like marks."""
    paths = [tmp_path / "1.fq", tmp_path / "2.fq"]
    for path, name in zip(paths, (first, second), strict=True):
        path.write_text(f"@{name}\nA\n+\nI\n" * 2)
    assert sum(batch.n_reads for batch in read_all(*paths)) == 4
    for path in paths:  # a file alone may hold either
        assert sum(batch.n_reads for batch in read_all(path)) == 2


@pytest.mark.parametrize("chunk_bytes", [7, 1 << 20])
def test_another_name_behind_the_plus_is_told_once(tmp_path, caplog, chunk_bytes):
    paths = [tmp_path / "1.fq", tmp_path / "2.fq"]
    same = "@a x y\nACGT\n+a x y\nIIII\n@b/1\nA\n+b/1\nI\n@c z\r\nA\r\n+c\r\nI\r\n@d\nA\n+\r\nI\n"
    paths[0].write_text(same * 2)
    assert len(as_reads(read_all(paths[0], chunk_bytes=chunk_bytes, batch_bases=8))) == 8
    assert caplog.messages == []
    for name in ("x", "aa", "A", " a"):
        caplog.clear()
        paths[0].write_text(same + f"@a\nACGT\n+{name}\nIIII\n" * 3)
        assert len(as_reads(read_all(paths[0], chunk_bytes=chunk_bytes, batch_bases=8))) == 7
        (message,) = caplog.messages
        assert message.startswith(f"{paths[0]}: record 5: the name behind '+' is not that behind")
    caplog.clear()
    paths[0].write_text("@a\nA\n+\nI\n" * 2)
    paths[1].write_text("@a\nA\n+\nI\n@a\nA\n+b\nI\n")
    assert len(as_reads(read_all(*paths, chunk_bytes=chunk_bytes))) == 4
    (message,) = caplog.messages
    assert message.startswith(f"{paths[1]}: record 2: ")


def test_paths_that_cannot_be_read(tmp_path, monkeypatch):
    good = tmp_path / "good.fq"
    good.write_bytes(GOOD)
    missing = tmp_path / "missing.fq"
    for paths in ([missing], [good, missing]):
        with pytest.raises(InputFormatError, match="no such file"):
            FastqReader([str(path) for path in paths])
    with pytest.raises(InputFormatError, match="is a directory"):
        FastqReader([str(tmp_path)])
    if os.geteuid() != 0:
        good.chmod(0)
        with pytest.raises(InputFormatError, match="Permission denied"):
            FastqReader([str(good)])


def test_paths_that_cannot_be_meant(tmp_path):
    good = tmp_path / "good.fq"
    good.write_bytes(GOOD)
    link = tmp_path / "link.fq"
    link.symlink_to(good)
    for paths in ([], [good, good], [good, link], ["-", "-"], [good] * 3):
        with pytest.raises(UsageError):
            FastqReader([str(path) for path in paths])
    with pytest.raises(UsageError):
        FastqReader([str(good), str(tmp_path / "other.fq")], interleaved=True)


VALID_ODD = [
    "adam_fastq_nobases.fq",
    "bp_example.fastq.bgz",
    "bp_example.fastq.gz",
    "bp_example_dos.fastq",
    "bp_misc_rna_original_sanger.fastq",
    "bp_sanger_93.fastq",
    "bp_sanger_full_range_original_sanger.fastq",
    "bp_illumina_full_range_original_illumina.fastq",
    "bp_zero_length.fastq",
    "cutadapt_casava.fastq",
    "cutadapt_empty.fastq",
    "cutadapt_multiblock.fastq.gz",
    "dnaio_dos.fastq",
    "dnaio_interleaved.fastq",
    "fastp_R1.fq",
    "fastp_R2.fq",
    "fgbio_annotate_umis.fastq",
    "htslib_UMI.fq",
    "htslib_filter_casava.fq",
    "htslib_interleaved.fq",
    "htslib_longline.fq",
    "htslib_minimal.fq",
    "htslib_name2.fq",
    "htslib_r1.fq",
    "htslib_r2.fq",
    "htslib_single.fq",
    "strobealign_interleaved.fq",
    "strobealign_empty.fastq",
    "strobealign_phix.tags.fastq",
    "khmer_casava_18-pe.fq",
]

BROKEN_ODD = {
    "adam_fastq_noqual.fq": "record 1: 1 quality characters for",
    "adam_multiline_fastq.fq": "record 1: sequence on several lines",
    "bp_error_double_qual.fastq": "begins with",
    "bp_error_long_qual.fastq": "record 4: 26 quality characters for 25 bases",
    "bp_error_no_qual.fastq": "record 1: 0 quality characters for 25 bases",
    "bp_error_qual_null.fastq": "in the quality",
    "bp_error_spaces.fastq": "in the sequence",
    "bp_error_trunc_at_plus.fastq": "third line is '' where '+'",
    "bp_error_trunc_at_seq.fastq": "ends inside the record",
    "bp_error_trunc_in_qual.fastq": "24 quality characters for 25 bases",
    "bp_error_trunc_in_title.fastq": "ends inside the record",
    "bp_tricky.fastq": "multi-line FASTQ",
    "bp_wrapping_original_sanger.fastq": "multi-line FASTQ",
    "cutadapt_format-error.fastq": "quality characters for",
    "htslib_fastqs.fq": "multi-line FASTQ",
    "htslib_multiline.fq": "multi-line FASTQ",
    "khmer_100-reads.fq.truncated.gz": "truncated",
    "khmer_truncated.fq": "ends inside the record",
    "dnaio_withplus.fastq": "character 'E' in the sequence",
    "dnaio_simple.unaligned.bam": "a BAM file",
}

needs_odd = pytest.mark.skipif(not ODD.is_dir(), reason="needs ../shared/data/odd")


@needs_odd
@pytest.mark.parametrize("name", VALID_ODD)
def test_files_of_other_projects(name):
    with pysam.FastxFile(str(ODD / name)) as file:
        theirs = [(r.name, (r.sequence or "").rstrip("\r"), r.quality or "") for r in file]
    ours = as_reads(read_all(ODD / name, batch_bases=100, chunk_bytes=100))
    assert len(ours) == len(theirs)
    for read, (their_name, sequence, quality) in zip(ours, theirs, strict=True):
        assert read.name == their_name.removesuffix("/1").removesuffix("/2")
        assert read.sequence == sequence.upper().replace("U", "T").replace(".", "N")
        assert read.quality == [ord(c) - 33 for c in quality]


@needs_odd
@pytest.mark.parametrize("name", BROKEN_ODD)
def test_broken_files_of_other_projects(name):
    message = error_of(ODD / name)
    assert name in message
    assert BROKEN_ODD[name] in message


@needs_odd
def test_pair_files_of_other_projects():
    assert sum(b.n_reads for b in read_all(ODD / "fastp_R1.fq", ODD / "fastp_R2.fq")) == 18
    assert sum(b.n_reads for b in read_all(ODD / "htslib_r1.fq", ODD / "htslib_r2.fq")) == 10
    message = error_of(ODD / "htslib_r2.fq", ODD / "htslib_r1.fq")
    assert message.startswith("mates in the wrong order: record 1 of")
    message = error_of(ODD / "adam_improper_pairs_1.fq", ODD / "adam_improper_pairs_2.fq")
    assert "adam_improper_pairs_2.fq" in message
    assert error_of(ODD / "khmer_paired-broken.fq.1", ODD / "khmer_paired-broken.fq.2")
