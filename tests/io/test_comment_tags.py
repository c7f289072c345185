"""Convert comments of FASTQ and FASTA to tags, and read FASTA."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pysam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mapper.errors import InputFormatError
from mapper.io.tags import DROPPED_TAGS
from tests.helpers.record_batches import as_reads
from tests.io.test_fastq import BASES, NAMES, read_all
from tests.naive.sam import tag_texts

SETTINGS = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def fasta_texts(draw, names=None, min_lines=0) -> bytes:
    eol = draw(st.sampled_from(["\n", "\r\n"]))
    text = ""
    if names is None:
        names = draw(st.lists(NAMES, max_size=8))
    for name in names:
        comment = draw(st.sampled_from(["", " some > words", "\tx"]))
        lines = draw(st.lists(st.text(BASES, max_size=30), min_size=min_lines, max_size=4))
        text += f">{name}{comment}{eol}" + "".join(f"{line}{eol}" for line in lines)
    return text.encode()


def parse_fasta(text: bytes) -> list[tuple[str, str]]:
    reads: list[tuple[str, str]] = []
    for line in text.decode().replace("\r\n", "\n").split("\n"):
        if line.startswith(">"):
            name = (line[1:].replace("\t", " ") + " ").split(" ")[0]
            reads.append((name[:-2] if name.endswith(("/1", "/2")) else name, ""))
        elif line:
            letters = line.upper().replace("U", "T").replace(".", "N")
            reads[-1] = (reads[-1][0], reads[-1][1] + letters)
    return reads


@given(fasta_texts(), st.integers(1, 200), st.integers(1, 300))
@SETTINGS
def test_any_fasta_any_chunk(tmp_path, text, chunk_bytes, batch_bases):
    path = tmp_path / "r.fa"
    path.write_bytes(text)
    reads = as_reads(read_all(path, chunk_bytes=chunk_bytes, batch_bases=batch_bases))
    assert [(read.name, read.sequence) for read in reads] == parse_fasta(text)
    assert all(set(read.quality) <= {255} for read in reads)


@given(st.data(), st.lists(st.text("abc", min_size=1, max_size=5), max_size=6), st.integers(1, 99))
@SETTINGS
def test_pairs_of_fasta_and_of_both_kinds(tmp_path, data, names, chunk_bytes):
    first = data.draw(fasta_texts(names=[f"{name}/1" for name in names]))
    second = "".join(f"@{name} x\nACG\n+\nIII\n" for name in names)
    (tmp_path / "1.fa").write_bytes(first)
    (tmp_path / "2.fq.gz").write_bytes(gzip.compress(second.encode()))
    reads = as_reads(read_all(tmp_path / "1.fa", tmp_path / "2.fq.gz", chunk_bytes=chunk_bytes))
    assert [(read.name, read.sequence) for read in reads[::2]] == parse_fasta(first)
    assert [(read.name, read.quality) for read in reads[1::2]] == [(n, [40] * 3) for n in names]
    woven = "".join(f">{name}\nAC\nGT\n>{name}\n\n" for name in names)
    (tmp_path / "woven.fa").write_text(woven)
    reads = as_reads(read_all(tmp_path / "woven.fa", interleaved=True, chunk_bytes=chunk_bytes))
    assert [read.sequence for read in reads] == ["ACGT", ""] * len(names)


def test_agrees_with_htslib(tmp_path):
    path = tmp_path / "r.fa"
    path.write_text(">a b\nACGT\nAC\n>c\n>d\nNNN\n\n>e\nA")
    with pysam.FastxFile(str(path)) as file:
        theirs = [(r.name, r.sequence or "") for r in file]
    assert [(r.name, r.sequence) for r in as_reads(read_all(path))] == theirs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">a\nACGT\nAC-GT\n", r"record 1: character '-' in the sequence"),
        (">a\nACGT\n@b\nACGT\n+\nIIII\n", r"record 1: character '@' in the sequence"),
        (">a\nAC\n>b\nAC GT\n", r"record 2: character ' ' in the sequence"),
        (">a\nAC\n>b", r"record 2: the file ends inside the record"),
        (">" + "n" * 300 + "\nAC\n", r"record 1: read name longer than 254"),
        (">a\x01\nAC\n", r"record 1: character '\\x01' in the read name"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [5, 1000])
def test_broken_fasta(tmp_path, text, message, chunk_bytes):
    path = tmp_path / "r.fa"
    path.write_text(text)
    with pytest.raises(InputFormatError, match=f"r.fa: {message}"):
        read_all(path, chunk_bytes=chunk_bytes)


def test_mates_out_of_step_in_fasta(tmp_path):
    path = tmp_path / "r.fa"
    path.write_text(">a\nAC\nGT\n>a\nAC\n>b\nA\nC\n>c\nAC\n")
    with pytest.raises(InputFormatError, match=r"record 3 of .* is 'b', record 4 of .* is 'c'"):
        read_all(path, interleaved=True)


PLAIN = "".join(chr(c) for c in range(32, 127))
NUMBERS = {
    "c": (-128, 127), "C": (0, 255), "s": (-(2**15), 2**15 - 1), "S": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1), "I": (0, 2**32 - 1),
}  # fmt: skip


@st.composite
def tags(draw) -> str:
    key = draw(st.from_regex(r"[A-Za-z][A-Za-z0-9]", fullmatch=True).filter(lambda k: k != "RG"))
    kind = draw(st.sampled_from("AiZfHB"))
    if kind == "A":
        value = draw(st.sampled_from(PLAIN[1:]))
    elif kind == "i":
        value = str(draw(st.integers(-(2**31), 2**32 - 1)))
    elif kind == "f":
        value = draw(floats())
    elif kind == "B":
        subtype = draw(st.sampled_from("cCsSiIf"))
        one = floats() if subtype == "f" else st.integers(*NUMBERS[subtype]).map(str)
        value = ",".join([subtype, *draw(st.lists(one, max_size=5))])
    else:
        value = draw(st.text(PLAIN, max_size=12)) if kind == "Z" else "1AE3"
    return f"{key}:{kind}:{value}"


def floats() -> st.SearchStrategy[str]:
    """Numbers of six digits are printed as they were read."""
    return st.floats(-(2.0**66), 2.0**66, width=32).filter(lambda x: x == 0 or abs(x) > 1e-20).map(
        lambda x: f"{x:g}"
    )  # fmt: skip


@given(
    st.lists(st.lists(tags(), max_size=4, unique_by=lambda t: t[:2]), min_size=1, max_size=6),
    st.sampled_from(["@{} {}{}ACGT{}+{}IIII{}", "@{}\t{}{}ACGT{}+{}IIII{}"]),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 200),
)
@SETTINGS
def test_comments_become_tags(tmp_path, comments, form, eol, chunk_bytes):
    text = "".join(
        form.format(f"r{i}", "\t".join(fields), *[eol] * 4) for i, fields in enumerate(comments)
    )
    path = tmp_path / "r.fq"
    path.write_bytes(text.encode())
    batches = read_all(path, keep_comments=True, chunk_bytes=chunk_bytes)
    found = [
        tag_texts(batch.tags[batch.tag_offsets[i] : batch.tag_offsets[i + 1]].tobytes())
        for batch in batches
        for i in range(batch.n_reads)
    ]
    kept = [[tag for tag in fields if tag[:2] not in DROPPED_TAGS] for fields in comments]
    assert [[normal(t) for t in row] for row in found] == [[normal(t) for t in row] for row in kept]


def normal(tag: str) -> str:
    """Return the tag with an unsigned zero."""
    return tag.replace(":-0", ":0").replace(",-0", ",0") if tag[3] in "fB" else tag


def test_comments_of_mates_and_of_fasta(tmp_path):
    (tmp_path / "1.fa").write_text(">a RX:Z:AC\nACGT\n")
    (tmp_path / "2.fq").write_text("@a\tRX:Z:GG\txi:i:4000000000\nACGT\n+\nIIII\n")
    (batch,) = read_all(tmp_path / "1.fa", tmp_path / "2.fq", keep_comments=True)
    assert batch.tags.tobytes() == b"RXZAC\0RXZGG\0xiI" + (4_000_000_000).to_bytes(4, "little")
    assert batch.tag_offsets.tolist() == [0, 6, 19]
    (batch,) = read_all(tmp_path / "1.fa")
    assert len(batch.tags) == len(batch.tag_offsets) == 0


@pytest.mark.parametrize(
    "comment",
    ["1:N:0:ACGT", "word", "RX:Z", "R:Z:x", "1X:Z:x", "xx:i:", "xx:i:1.5", "xx:i:-3000000000",
     "xx:i:4294967296", "xx:A:ab", "xx:A:", "xx:f:one", "xx:f:", "xx:f:1e999", "xx:f:1e400",
     "xx:f:-4e38", "xx:B:f,1,1e39", "xx:H:1AE", "xx:H:1G", "xx:q:1", "xx:B:",
     "xx:B:c,128", "xx:B:C,-1", "xx:B:i,", "xx:B:i1", "xx:B:Z,1", "xx:Z:\x01",
     "RX:Z:AC\t1:N:0:ACGT", "xx:i:99999999999999999999999", "RX:Z:AC\t\txx:i:1"],
)  # fmt: skip
def test_comments_that_are_no_tags(tmp_path, comment):
    path = tmp_path / "r.fq"
    path.write_text(f"@a RX:Z:AC\nA\n+\nI\n@b {comment}\nA\n+\nI\n")
    assert len(read_all(path)) == 1
    with pytest.raises(InputFormatError, match=r"record 2: '.*' in the comment is no SAM tag"):
        read_all(path, keep_comments=True)


def test_a_tag_is_there_once(tmp_path):
    path = tmp_path / "r.fq"
    path.write_text("@a RX:Z:A\tRY:Z:A\nA\n+\nI\n@b RX:Z:AC\tXX:i:1\tRX:Z:\nA\n+\nI\n")
    with pytest.raises(InputFormatError, match=r"record 2: .RX:Z:. in the comment: .* already"):
        read_all(path, keep_comments=True)


def test_read_groups_are_not_taken_from_comments(tmp_path):
    path = tmp_path / "r.fq"
    path.write_text("@a RG:Z:x\nA\n+\nI\n")
    with pytest.raises(
        InputFormatError, match="'RG:Z:x' in the comment: a read group is given by read_group"
    ):
        read_all(path, keep_comments=True)


def test_tags_count_for_the_size_of_a_batch(tmp_path):
    path = tmp_path / "r.fq"
    path.write_text("".join(f"@r{i} xx:Z:{'y' * 996}\nA\n+\nI\n" for i in range(20)))
    batches = read_all(path, keep_comments=True, batch_bases=5000, chunk_bytes=700)
    assert [batch.n_reads for batch in batches] == [9, 9, 2]
    assert np.array_equal(np.diff(batches[0].tag_offsets), np.full(9, 1000))


def test_files_are_told_apart_by_content(tmp_path):
    path = Path(tmp_path / "r.fq")
    path.write_text(">x\nACGT\n")
    (read,) = as_reads(read_all(path))
    assert read == ("x", "ACGT", [255] * 4)
