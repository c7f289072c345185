"""Cutting reads into chunks: the same lines, in order, wherever blocks end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.helpers.workflow_runs import script_module


@pytest.fixture(scope="module")
def script():
    return script_module("split_reads")


def fastq(n: int, mate: int, end: str = "\n") -> bytes:
    """Records of unequal lengths, the shortest without a base."""
    return "".join(
        f"@r{i}/{mate}{end}{'ACGT'[: i % 5] * mate}{end}+{end}{'IIII'[: i % 5] * mate}{end}"
        for i in range(n)
    ).encode()


def run(
    script, directory: Path, texts: list[bytes], n_chunks: int, packed: bool
) -> list[list[bytes]]:
    """Split; returns the chunks of each file."""
    paths = []
    for mate, text in enumerate(texts, start=1):
        paths.append(directory / f"in_{mate}.fq")
        paths[-1].write_bytes(gzip.compress(text) if packed else text)
    out = directory / "chunks"
    script.split(paths, n_chunks, out)
    names = range(1, n_chunks + 1)
    assert len(list(out.iterdir())) == len(texts) * len(names) + 1
    return [
        [gzip.decompress((out / f"{name}_R{mate}.fq.gz").read_bytes()) for name in names]
        for mate in range(1, len(texts) + 1)
    ]


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(("n_reads", "n_chunks"), [(0, 3), (2, 5), (10, 1), (10, 3), (40, 8)])
def test_chunks_are_consecutive_equal_and_in_step(
    script, tmp_path, monkeypatch, block, n_reads, n_chunks
):
    monkeypatch.setattr(script, "BLOCK", block)
    texts = [fastq(n_reads, 1), fastq(n_reads, 2, "\r\n")]
    for packed in (False, True):
        directory = tmp_path / str(packed)
        directory.mkdir()
        mates = run(script, directory, texts, n_chunks, packed)
        for text, chunks in zip(texts, mates, strict=True):
            assert b"".join(chunks) == text
            counts = [len(chunk.splitlines()) for chunk in chunks]
            assert all(count % 4 == 0 for count in counts)
            assert max(counts) - min(counts) <= 4
        assert [[c.count(b"+") for c in m] for m in mates[:1]] == [
            [c.count(b"+") for c in m] for m in mates[1:]
        ]


@pytest.mark.parametrize("tail", [b"", b"\n", b"\n\n", b"@half"])
def test_what_is_odd_is_left_to_the_mapper_in_the_last_chunk(script, tmp_path, tail):
    """No line end in the end, blank lines, half a record, a longer second file: nothing is lost."""
    texts = [fastq(7, 1)[:-1] + tail, fastq(8, 2)]
    first, second = run(script, tmp_path, texts, 2, packed=False)
    assert b"".join(first) == texts[0]
    assert b"".join(second) == texts[1]
    assert [len(chunk.splitlines()) // 4 for chunk in second] == [3, 5]
    assert json.loads((tmp_path / "chunks" / "plan.json").read_text())["ends"] == [3, 7]
