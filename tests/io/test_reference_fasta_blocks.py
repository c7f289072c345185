"""Read any FASTA text, cut anywhere, by any number of threads, like an oracle and pysam."""

from __future__ import annotations

import gzip
import re
import threading
from pathlib import Path
from unittest import mock

import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper import dna
from mapper.errors import InputFormatError, UsageError
from mapper.index import build
from mapper.io import contig_md5, reference_fasta
from mapper.io import reference_fasta as fasta_blocks
from mapper.io.reference_fasta import check_reference
from mapper.parallel.pool import PriorityPool
from tests.io.test_reference_fasta import read
from tests.naive.fasta import contigs_of

LETTERS = "ACGTNUMRSVWYHKDBacgtnumrsvwyhkdb."
MESSAGES = {
    "start": "is FASTQ|does not begin|is empty",
    "nul": "NUL byte",
    "fastq": "is this FASTQ",
    "name": "no name|does not allow|not text",
    "twice": "came before",
    "empty": "no bases",
}


@st.composite
def layouts(draw: st.DrawFn) -> bytes:
    """Draw FASTA as programs write it: line ends, blank lines, long lines, case."""
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = [""] * draw(st.integers(0, 2))
    for i in range(draw(st.integers(1, 6))):
        lines.append(f">c{i}" + draw(st.sampled_from(["", " a > b", "\tx@", " " + "d" * 50])))
        width = draw(st.sampled_from([1, 33, 60, 4200]))
        acgt = draw(st.booleans())
        n = draw(st.integers(1, 5000 if acgt else 50))
        some = draw(st.text("ACGT" if acgt else LETTERS, min_size=1, max_size=40))
        letters = (some * n)[:n]
        for start in range(0, n, width):
            lines.append(letters[start : start + width])
            if draw(st.sampled_from([False] * 9 + [True])):
                lines.append("")
    if draw(st.booleans()):
        lines.append("")
    return end.join(lines).encode()


def read_small(path: Path, block: int, step: int, n_threads: int) -> list[tuple[str, bytes, str]]:
    """Read with blocks, steps, tasks and segments so small that every border is tested."""
    with (
        mock.patch.multiple(fasta_blocks, BLOCK_BYTES=block, _STEP_BYTES=step),
        mock.patch.multiple(contig_md5, _TASK_BASES=50, _LETTERS_AT_ONCE=70),
        mock.patch.multiple(build, SEGMENT_BYTES=100, _BLOCKS_AHEAD=2),
        mock.patch.multiple(reference_fasta, _HEADS=1, _BLOCKS_AHEAD=3),
    ):
        return [
            (record.name, dna.decode(record.codes).encode(), record.md5)
            for record in read(path, n_threads)
        ]


def verdict(path: Path, *how: int) -> list[tuple[str, bytes, str]] | str:
    """Return the contigs, or the message of the error."""
    try:
        return read_small(path, *how)
    except InputFormatError as error:
        assert str(path) in str(error)
        return str(error)


CUTS = (st.integers(1, 200), st.integers(1, 300), st.integers(1, 3))
QUICK = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(layouts(), *CUTS, st.sampled_from(["", ".gz"]))
@QUICK
def test_layouts_cut_anywhere(
    tmp_path: Path, data: bytes, block: int, step: int, n_threads: int, suffix: str
) -> None:
    path = tmp_path / f"x.fa{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    found = read_small(path, block, step, n_threads)
    assert found == contigs_of(data)
    plain = tmp_path / "pysam.fa"
    plain.write_bytes(data)
    with pysam.FastxFile(str(plain)) as file:
        records = [(record.name, record.sequence.upper().encode()) for record in file]
    assert [name for name, _ in records] == [name for name, *_ in found]
    assert [letters for _, letters, _ in found] == [
        letters.replace(b"U", b"T").replace(b".", b"N") for _, letters in records
    ]


@given(
    st.lists(
        st.sampled_from([b">", b"\n", b"\r\n", b"\r", b"A", b"acgT" * 20, b"N.u", b" ", b"@", b"+",
                         b">x", b">y z", b"\0", b"*", b"\xc3\xa9", b"-"]),
        max_size=12,
    ).map(b"".join),
    *CUTS,
)  # fmt: skip
@settings(QUICK, max_examples=300)
def test_odd_texts_are_read_or_refused_for_the_same_reason(
    tmp_path: Path, data: bytes, block: int, step: int, n_threads: int
) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(data)
    found = verdict(path, block, step, n_threads)
    try:
        assert found == contigs_of(data)
    except ValueError as error:
        assert isinstance(found, str), error
        where = re.fullmatch(r"(\d+):(\d+)", str(error))
        if where:
            assert re.search(f"record {where[1]} .*at base {where[2]} is no IUPAC", found)
        else:
            assert re.search(MESSAGES[str(error)], found)


def test_bgzf_of_many_blocks_by_threads(tmp_path: Path) -> None:
    line = "ACGGTCATTA" * 7
    data = "".join(f">c{i}\n" + f"{line}\n" * (40 * i + 1) for i in range(60)).encode()
    (tmp_path / "x.fa").write_bytes(data)
    pysam.tabix_compress(str(tmp_path / "x.fa"), str(tmp_path / "x.fa.gz"))
    expected = contigs_of(data)
    for n_threads in (1, 3):
        assert read_small(tmp_path / "x.fa.gz", 5000, 200_000, n_threads) == expected


@pytest.mark.parametrize("n_threads", [0, 2])
def test_the_reference_of_an_index_is_recognised(tmp_path: Path, n_threads: int) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(b">a\nACGT\n>b x\nUUN\n")
    names, _, md5 = zip(*contigs_of(path.read_bytes()), strict=True)
    pool = PriorityPool(n_threads) if n_threads else None
    with mock.patch.multiple(reference_fasta, BLOCK_BYTES=3):
        check_reference(path, names, md5, pool)
        with pytest.raises(UsageError, match=r"contig 'b' is not that of the index \('c'"):
            check_reference(path, ("a", "c"), md5, pool)
        with pytest.raises(UsageError, match=r"contig 'b' .*\('b'\), or has other bases"):
            check_reference(path, names, (md5[0], md5[0]), pool)
        with pytest.raises(UsageError, match=r"contig 'b' .*no further contig"):
            check_reference(path, names[:1], md5[:1], pool)
        with pytest.raises(UsageError, match="2 contigs, and the index has 3"):
            check_reference(path, (*names, "c"), (*md5, md5[0]), pool)
    if pool is not None:
        pool.shutdown()


def test_threads_end_where_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(b">a\n" + b"ACGT\n" * 1000 + b"X\n")
    before = threading.active_count()
    assert "character 'X' at base 4001" in verdict(path, 10, 20, 3)
    assert threading.active_count() == before


def test_a_compressed_file_is_refused_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.fa.gz"
    path.write_bytes(gzip.compress(b">a\n" + b"ACGT\n" * 1000 + b"X\n"))
    asked = []

    def check(n: int) -> None:
        asked.append(n)
        if n > 1000:
            raise InputFormatError("too large")

    with (
        mock.patch.multiple(build, SEGMENT_BYTES=100, _FIRST_CHECK=200),
        mock.patch.multiple(fasta_blocks, BLOCK_BYTES=50),
        pytest.raises(InputFormatError, match="too large"),
    ):
        build.read_text(path, 2, None, check)
    assert len(asked) < 8
    assert asked == sorted(asked)
    assert asked[-1] < 2200


def test_an_endless_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(b">a " + b"x" * 500 + b"\nACGT\n")
    assert verdict(path, 7, 20, 1) == contigs_of(path.read_bytes())
    with mock.patch.multiple(fasta_blocks, _MOST_HEADER_BYTES=100):
        assert "a header line of more than" in verdict(path, 7, 20, 1)
