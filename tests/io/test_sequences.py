"""Read FASTA sequences with any size of buffer, and as the reader of reads does."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.io import sequences
from mapper.io.sequences import read_named_sequences
from tests.helpers.record_batches import as_reads
from tests.io.test_fastq import read_all

LINES = st.lists(st.sampled_from(["ACGT", "", "N", "acgtacgt", "AC"]), max_size=4)


@st.composite
def texts(draw) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Draw FASTA text; return also its headers and sequences."""
    eol = draw(st.sampled_from(["\n", "\r\n"]))
    text, records = draw(st.sampled_from(["", eol])), []
    for i, lines in enumerate(draw(st.lists(LINES, min_size=1, max_size=5))):
        header = f"r{i}{draw(st.sampled_from(['', ' a > b', ' @']))}"
        text += eol.join([f">{header}", *lines, ""])
        records.append((header.encode(), "".join(lines).encode()))
    if lines and draw(st.booleans()):  # a read that ends with its name is taken for truncated
        text = text.removesuffix(eol)
    return text.encode(), records


@given(texts(), st.integers(1, 20))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_with_any_buffer(tmp_path: Path, made, size: int) -> None:
    text, records = made
    path = tmp_path / "x.fa"
    path.write_bytes(text)
    named = [(header.split()[0], sequence) for header, sequence in records]
    with mock.patch.object(sequences, "_CHUNK", size):
        assert list(read_named_sequences(str(path))) == named
    reads = [(read.name.encode(), read.sequence.encode()) for read in as_reads(read_all(path))]
    assert reads == [(name, sequence.upper()) for name, sequence in named]


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.fa"
    for text, records in ((b"", []), (b"\n\n", []), (b">", [(b"", b"")])):
        path.write_bytes(text)
        assert list(read_named_sequences(str(path))) == records
