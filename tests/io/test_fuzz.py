"""Read damaged and made-up input, or refuse it by an InputFormatError.

No other exception is allowed, no endless loop (each test has a timeout) and no read that the file
does not hold. Run with ``--hypothesis-profile explore`` for longer.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mapper.errors import IndexFormatError, InputFormatError, UsageError
from mapper.index.index import Index
from mapper.index.storage import meta_checksum, verify
from mapper.io.bam_templates import find_record
from mapper.io.input_buffer import Block
from mapper.io.reads import Lane, ReadOptions, ReadsReader
from tests.helpers.alignment_files import random_lines, write_alignments
from tests.helpers.fuzz_corpus import CORPUS, block

SETTINGS = settings(
    deadline=None,
    max_examples=settings.default.max_examples * 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

FASTQ_PARTS = [
    b"@r\nACGT\n+\nIIII\n", b"@r/1 RX:Z:A\nAC\n+\nII\n", b">r\nACGT\nAC\n", b"@", b"\n", b"\r\n",
    b"+", b"r", b"ACGT", b"IIII", b"\0", b"\xff", b" ", b"\t", b">", b"xx:B:f,1.5e3,-2",
]  # fmt: skip


edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["byte", "word", "cut", "insert", "drop"]),
        st.binary(min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, changes: list[tuple[float, str, bytes]]) -> bytes:
    for where, kind, value in changes:
        at = int(where * len(data))
        head, tail = data[:at], data[at:]
        data = {
            "byte": lambda h=head, t=tail, v=value: h + v[:1] + t[1:],
            "word": lambda h=head, t=tail, v=value: h + v + t[4:],
            "cut": lambda h=head: h,
            "insert": lambda h=head, t=tail, v=value: h + v + t,
            "drop": lambda h=head, t=tail: h + t[3:],
        }[kind]()
    return data


def read_quietly(*paths: Path, **options) -> int | None:
    """Return the number of reads of a file; None if it is refused."""
    n_reads = 0
    try:
        with ReadsReader([Lane(tuple(map(str, paths)))], ReadOptions(**options)) as reader:
            while (batch := reader.next_batch()) is not None:
                n_reads += batch.n_reads
                check_batch(batch)
    except (InputFormatError, UsageError) as error:  # UsageError: SAM, with options for FASTQ
        assert str(paths[0].parent) in str(error)
        assert "\n" not in str(error)
        return None
    return n_reads


def check_batch(batch) -> None:
    for offsets, column in (
        (batch.base_offsets, batch.bases), (batch.base_offsets, batch.quals),
        (batch.name_offsets, batch.names), (batch.tag_offsets, batch.tags),
    ):  # fmt: skip
        if len(offsets) or len(column):
            assert offsets[0] == 0
            assert (np.diff(offsets) >= 0).all()
            assert offsets[-1] == len(column)
            assert len(offsets) == batch.n_reads + 1
    assert (batch.bases < 15).all()
    assert ((batch.quals <= 93) | (batch.quals == 255)).all()
    assert ((batch.names > 32) & (batch.names < 127)).all()
    assert np.diff(batch.name_offsets).max(initial=0) <= 254


@given(
    st.lists(st.sampled_from(FASTQ_PARTS) | st.binary(max_size=6), max_size=12).map(b"".join),
    st.integers(1, 60),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@example(b"@PG\t", 1, False, True, False)
@SETTINGS
def test_any_bytes_as_fastq(tmp_path, data, chunk_bytes, interleaved, keep_comments, packed):
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(data) if packed else data)
    n_reads = read_quietly(
        path, chunk_bytes=chunk_bytes, interleaved=interleaved, keep_comments=keep_comments
    )
    if n_reads:
        assert n_reads <= data.count(b"@") + data.count(b">")


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_corpus(tmp_path, name, chunk_bytes):
    data, outcome = CORPUS[name]
    path = tmp_path / "x"
    path.write_bytes(data)
    if isinstance(outcome, int):
        assert read_quietly(path, chunk_bytes=chunk_bytes) == outcome
        return
    with (
        pytest.raises(InputFormatError) as caught,
        ReadsReader([Lane((str(path),))], ReadOptions(chunk_bytes=chunk_bytes)) as reader,
    ):
        while reader.next_batch() is not None:
            pass
    assert str(caught.value).startswith(f"{path}: ")
    assert outcome in str(caught.value)


@given(st.sampled_from(sorted(CORPUS)), edits, st.integers(1, 60), st.booleans())
@SETTINGS
def test_damaged_corpus(tmp_path, name, changes, chunk_bytes, keep_comments):
    path = tmp_path / "x"
    path.write_bytes(edited(CORPUS[name][0], changes))
    read_quietly(path, chunk_bytes=chunk_bytes, keep_comments=keep_comments)


@given(st.data(), st.integers(1, 60))
@SETTINGS
def test_any_two_files(tmp_path, data, chunk_bytes):
    pieces = st.lists(st.sampled_from(FASTQ_PARTS), max_size=8).map(b"".join)
    for name in ("1", "2"):
        (tmp_path / name).write_bytes(data.draw(pieces))
    n_reads = read_quietly(tmp_path / "1", tmp_path / "2", chunk_bytes=chunk_bytes)
    assert n_reads is None or n_reads % 2 == 0


@pytest.fixture(scope="module")
def bam(tmp_path_factory) -> bytes:
    lines = random_lines(np.random.default_rng(2), 30)
    path = write_alignments(tmp_path_factory.mktemp("bam") / "r.bam", lines)
    return gzip.decompress(path.read_bytes())


@given(edits, st.integers(40, 2000))
@SETTINGS
def test_damaged_bam(tmp_path, bam, changes, chunk_bytes):
    path = tmp_path / "x.bam"
    path.write_bytes(edited(bam, changes))
    read_quietly(path, chunk_bytes=chunk_bytes)


@given(st.binary(max_size=300))
@SETTINGS
def test_any_bytes_as_bam_records(tmp_path, data):
    path = tmp_path / "x.bam"
    path.write_bytes(b"BAM\x01" + bytes(8) + data)
    read_quietly(path)


@given(edits, st.sampled_from([1, 2]))
@SETTINGS
def test_damaged_compression(tmp_path, changes, threads):
    path = tmp_path / "x.gz"
    text = b"".join(b"@r%d\nACGTACGT\n+\nIIIIIIII\n" % i for i in range(200))
    for packed in (gzip.compress(text), b"".join(BLOCK + EMPTY for _ in range(3))):
        path.write_bytes(edited(packed, changes))
        read_quietly(path, threads=4 * threads)


BLOCK, EMPTY = block(b"@r\nACGT\n+\nIIII\n" * 20), block(b"")


def test_a_record_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("mapper.io.input_buffer.MAX_RECORD_BYTES", 1 << 12)
    huge = (1 << 30).to_bytes(4, "little")
    starts = {"x.fq": b"@r\nA", "x.fa": b">r\nA", "x.bam": b"BAM\x01" + bytes(8) + huge + b"\x01"}
    for name, start in starts.items():
        path = tmp_path / name
        path.write_bytes(start + start[-1:] * 100_000)
        sizes = []
        allocate = Block.__init__

        def watched(self: Block, size: int, *args, allocate=allocate, sizes=sizes):
            sizes.append(size)
            allocate(self, size, *args)

        monkeypatch.setattr(Block, "__init__", watched)
        with (
            pytest.raises(InputFormatError, match=r"record 1: no end of the record within 4096"),
            ReadsReader(
                [Lane((str(path),))], ReadOptions(chunk_bytes=512, batch_bases=100)
            ) as reader,
        ):
            reader.next_batch()
        monkeypatch.setattr(Block, "__init__", allocate)
        assert max(sizes) <= 4 * ((1 << 12) + 1)


def test_find_record_never_leaves_the_buffer():
    rng = np.random.default_rng(6)
    for _ in range(2000):
        data = rng.integers(0, 256, int(rng.integers(0, 80))).astype(np.uint8)
        if len(data) > 4:
            data[1:4] = 0
        status, end = find_record(data, 0, len(data), True)
        assert 0 <= end <= len(data)
        assert status == 0 or end == 0


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("index")
    bases = np.random.default_rng(1).choice(list("ACGT"), 3000)
    (directory / "r.fa").write_text(f">c\n{''.join(bases)}\n")
    Index.build(directory / "r.fa").save(directory / "r.fmw")
    return directory / "r.fmw"


@given(st.data())
@settings(SETTINGS, max_examples=60)
def test_damaged_index(tmp_path, index, data):
    """Opening or verifying an index names its damaged file, or the index is unchanged."""
    path = tmp_path / "x.fmw"
    shutil.copytree(index, path, dirs_exist_ok=True)
    name = data.draw(st.sampled_from(sorted(file.name for file in path.iterdir())))
    whole = (path / name).read_bytes()
    (path / name).write_bytes(edited(whole, data.draw(edits)))
    if (path / name).read_bytes() == whole:
        return
    with pytest.raises(IndexFormatError) as caught:
        verify(path)
    assert str(path) in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@pytest.mark.medium
@given(st.data())
@settings(SETTINGS, max_examples=60)
def test_meta_with_any_values(tmp_path, index, data):
    """The values in meta.json are checked even if its checksum is right."""
    path = tmp_path / "y.fmw"
    shutil.copytree(index, path, dirs_exist_ok=True)
    meta = json.loads((path / "meta.json").read_text())
    key = data.draw(st.sampled_from(sorted(meta)))
    inside = data.draw(st.booleans()) and isinstance(meta[key], dict) and key != "files"
    place, key = (
        (meta[key], data.draw(st.sampled_from(sorted(meta[key])))) if inside else (meta, key)
    )
    place[key] = data.draw(values)
    meta.pop("crc32", None)
    meta["crc32"] = meta_checksum(meta)
    (path / "meta.json").write_text(json.dumps(meta))
    try:
        opened = Index.open(path)
    except IndexFormatError as error:
        assert str(path) in str(error)
    else:
        assert isinstance(opened, Index)
