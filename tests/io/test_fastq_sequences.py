"""Read FASTA and lists of sequences, cut anywhere by reads of the file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pysam
import pytest

from mapper.dna import decode
from mapper.errors import InputFormatError
from mapper.io.bgzf import EOF_BLOCK
from mapper.io.fastq import FastqReader, open_sequences

FASTA = b"\n>a one\nACGT\nNNac\n\n>b\r\nGG\r\nTT\r\n>c\n>d/1 x\nA"
FASTA_READS = [("a", "ACGTNNAC"), ("b", "GGTT"), ("c", ""), ("d", "A")]
LIST = b"ACGT\n\nacgn\r\nTT"
LIST_READS = [("ACGT", "ACGT"), ("acgn", "ACGN"), ("TT", "TT")]


def read_all(
    path: Path, is_list: bool, batch_bases: int, chunk_bytes: int
) -> tuple[list[tuple[str, str]], list[int]]:
    """Return names and letters of every read, and the numbers of reads in the batches."""
    found, sizes = [], []
    options = {"batch_bases": batch_bases, "chunk_bytes": chunk_bytes, "is_list": is_list}
    with FastqReader([str(path)], **options) as reader:
        while (batch := reader.next_batch()) is not None:
            assert batch.first_read == len(found)
            assert len(batch.quals) == len(batch.bases) == batch.base_offsets[-1]
            for i in range(batch.n_reads):
                name = batch.names[batch.name_offsets[i] : batch.name_offsets[i + 1]].tobytes()
                codes = batch.bases[batch.base_offsets[i] : batch.base_offsets[i + 1]]
                found.append((name.decode(), decode(codes)))
            sizes.append(batch.n_reads)
    return found, sizes


@pytest.mark.parametrize(
    ("text", "is_list", "reads"), [(FASTA, False, FASTA_READS), (LIST, True, LIST_READS)]
)
def test_chunks_and_batches_of_any_size(tmp_path, text, is_list, reads):
    path = tmp_path / "reads"
    path.write_bytes(text)
    for chunk_bytes in range(1, len(text) + 2):
        assert read_all(path, is_list, 1000, chunk_bytes)[0] == reads
    for batch_bases in range(1, 12):
        found, _ = read_all(path, is_list, batch_bases, 1000)
        assert found == reads
    assert read_all(path, is_list, 1, 1000)[1] == [1] * len(reads)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 100])
def test_errors_name_the_record(tmp_path, chunk_bytes):
    path = tmp_path / "reads"
    for text, is_list, message in (
        (b">a\nAC\n>b\nAxC\n", False, "record 2: character 'x'"),
        (b">a\nAC\n> b\nAC\n", False, "record 2: has no name"),
        (b"AC\n>b\nAC\n", False, "begins with 'AC"),
        (b"AC\nA-\n", True, "record 2: character '-'"),
        (b"AC\n>b\n", True, "record 2: character '>'"),
    ):
        path.write_bytes(text)
        with pytest.raises(InputFormatError, match=message):
            read_all(path, is_list, 1000, chunk_bytes)


def test_a_long_record_makes_the_buffer_grow(tmp_path):
    letters = "".join(np.random.default_rng(1).choice(list("ACGT"), 5000))
    path = tmp_path / "reads"
    path.write_text(f">long\n{letters}\n>next\nAC\n")
    assert read_all(path, False, 100, 64)[0] == [("long", letters), ("next", "AC")]


def test_what_follows_a_damaged_gzip_stream_is_an_error(tmp_path):
    path = tmp_path / "reads.gz"
    path.write_bytes(gzip.compress(b">a\nACGT\n" * 1000)[:-20])
    with pytest.raises(InputFormatError, match="truncated"):
        read_all(path, False, 100, 64)


@pytest.mark.parametrize(
    ("text", "names"),
    [(b">a\nAC\n", ["a"]), (b"@a\nAC\n+\nII\n", ["a"]), (b"AC\nGT\n", ["AC", "GT"])],
)  # fmt: skip
def test_the_first_character_tells_the_format(tmp_path, text, names):
    path = tmp_path / "reads"
    path.write_bytes(text)
    with open_sequences(str(path), 100) as reader:
        batch = reader.next_batch()
        assert batch.names.tobytes().decode() == "".join(names)
        assert reader.next_batch() is None


@pytest.mark.parametrize(("start", "what"), [(b"BAM\x01", "a BAM file"), (b"CRAM", "a CRAM file")])
def test_alignments_are_no_list(tmp_path, start, what):
    path = tmp_path / "reads"
    path.write_bytes(start + bytes(100))
    error = pytest.raises(InputFormatError, match=f"not FASTQ but {what}")
    with open_sequences(str(path), 100) as reader, error:
        reader.next_batch()


@pytest.mark.parametrize("ended", [True, False])
def test_bgzf_that_does_not_end_as_such_is_told(tmp_path, caplog, ended):
    path = tmp_path / "reads.gz"
    with pysam.BGZFile(str(path), "wb") as file:
        file.write(b"@a\nAC\n+\nII\n")
    if not ended:
        path.write_bytes(path.read_bytes().removesuffix(EOF_BLOCK))
    with caplog.at_level("WARNING", "mapper"), open_sequences(str(path), 100) as reader:
        assert reader.next_batch().n_reads == 1
        assert reader.next_batch() is None
    assert [f"{path}: ends without the empty block" in line for line in caplog.messages] == (
        [] if ended else [True]
    )
