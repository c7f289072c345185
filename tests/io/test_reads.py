"""How far the files of reads have been read."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

from mapper.io.reads import Lane, ReadOptions, ReadsReader


def shares(paths: list[Path]) -> list[float | None]:
    """Return the share that has been read after each batch of several lanes."""
    lanes = [Lane((str(path),), None) for path in paths]
    reader = ReadsReader(lanes, ReadOptions(batch_bases=20_000, chunk_bytes=1 << 16))
    found = []
    while reader.next_raw() is not None:
        found.append(reader.share_read)
    found.append(reader.share_read)
    reader.close()
    return found


def test_the_share_that_has_been_read_rises_to_one(tmp_path: Path) -> None:
    """Of all lanes together, whichever are plain and which compressed; to one at the end."""
    text = "".join(f"@r{i}\n{'ACGTTGCA' * 20}\n+\n{'I' * 160}\n" for i in range(3000)).encode()
    plain, packed = tmp_path / "a.fq", tmp_path / "b.fq.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    found = shares([plain, packed])
    assert len(found) > 20
    assert found == sorted(found) and found[-1] == 1
    assert found[len(found) // 4] < 0.9


def test_of_a_pipe_nobody_knows(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.fq"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("@r\nACGT\n+\nIIII\n"))
    writer.start()
    assert set(shares([pipe])) == {None}
    writer.join()
    empty = tmp_path / "empty.fq"
    empty.touch()
    assert set(shares([empty])) == {None}
