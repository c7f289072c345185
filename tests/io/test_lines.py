"""FASTA and lists of sequences, cut anywhere between two reads of the file."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.dna import decode
from mapper.errors import InputFormatError
from mapper.io.lines import LineReader

FASTA = b"\n>a one\nACGT\nNNac\n\n>b\r\nGG\r\nTT\r\n>c\n>d/1 x\nA"
FASTA_READS = [("a", "ACGTNNAC"), ("b", "GGTT"), ("c", ""), ("d/1", "A")]
LIST = b"ACGT\n\nacgn\r\nTT"
LIST_READS = [("ACGT", "ACGT"), ("acgn", "ACGN"), ("TT", "TT")]


def read_all(path, fasta, batch_bases, chunk_bytes):
    """Names and letters of every read, and the numbers of reads in the batches."""
    reader = LineReader(str(path), fasta=fasta, batch_bases=batch_bases, chunk_bytes=chunk_bytes)
    found, sizes = [], []
    while (batch := reader.next_batch()) is not None:
        assert batch.first_read == len(found)
        assert len(batch.quals) == len(batch.bases) == batch.base_offsets[-1]
        for i in range(batch.n_reads):
            name = batch.names[batch.name_offsets[i] : batch.name_offsets[i + 1]].tobytes()
            codes = batch.bases[batch.base_offsets[i] : batch.base_offsets[i + 1]]
            found.append((name.decode(), decode(codes)))
        sizes.append(batch.n_reads)
    reader.close()
    return found, sizes


@pytest.mark.parametrize(("text", "fasta", "reads"), [(FASTA, True, FASTA_READS),
                                                      (LIST, False, LIST_READS)])  # fmt: skip
def test_chunks_and_batches_of_any_size(tmp_path, text, fasta, reads):
    path = tmp_path / "reads"
    path.write_bytes(text)
    for chunk_bytes in range(1, len(text) + 2):
        assert read_all(path, fasta, 1000, chunk_bytes)[0] == reads
    for batch_bases in range(1, 12):
        found, _ = read_all(path, fasta, batch_bases, 1000)
        assert found == reads
    assert read_all(path, fasta, 1, 1000)[1] == [1] * len(reads)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 100])
def test_errors_name_the_record(tmp_path, chunk_bytes):
    path = tmp_path / "reads"
    for text, fasta, message in (
        (b">a\nAC\n>b\nAxC\n", True, "record 2: 'x' is no base"),
        (b">a\nAC\n> b\nAC\n", True, "record 2 has no name"),
        (b"AC\n>b\nAC\n", True, "record 1: begins with 'A' where '>' must be"),
        (b"AC\nA-\n", False, "record 2: '-' is no base"),
    ):
        path.write_bytes(text)
        with pytest.raises(InputFormatError, match=message):
            read_all(path, fasta, 1000, chunk_bytes)


def test_a_long_record_makes_the_buffer_grow(tmp_path):
    letters = "".join(np.random.default_rng(1).choice(list("ACGT"), 5000))
    path = tmp_path / "reads"
    path.write_text(f">long\n{letters}\n>next\nAC\n")
    assert read_all(path, True, 100, 64)[0] == [("long", letters), ("next", "AC")]


def test_what_follows_a_damaged_gzip_stream_is_an_error(tmp_path):
    import gzip

    path = tmp_path / "reads.gz"
    path.write_bytes(gzip.compress(b">a\nACGT\n" * 1000)[:-20])
    with pytest.raises(InputFormatError, match="truncated"):
        read_all(path, True, 100, 64)
