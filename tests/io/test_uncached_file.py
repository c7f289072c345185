"""Files written past the system's memory hold what was written, wherever that is not taken."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from mapper.io.uncached_file import BUFFER_BYTES, UncachedFile

SIZES = [
    0, 1, mmap.PAGESIZE - 1, mmap.PAGESIZE, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1,
    2 * BUFFER_BYTES + 3 * mmap.PAGESIZE,
]  # fmt: skip


def bytes_of(n: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, n, np.uint8)


def write(path: Path, data: np.ndarray, piece: int = 1_000_003) -> None:
    with UncachedFile(path) as file:
        for at in range(0, len(data), piece):
            file.write(data[at : at + piece])
        file.sync()


@pytest.mark.parametrize("n", SIZES)
def test_what_was_written_is_there(tmp_path, n):
    path = tmp_path / "x"
    path.write_bytes(b"older" * 10)
    data = bytes_of(n)
    write(path, data)
    assert path.read_bytes() == data.tobytes()


def test_pieces_longer_than_the_buffer(tmp_path):
    data = bytes_of(3 * BUFFER_BYTES + 17)
    write(tmp_path / "x", data, len(data))
    assert (tmp_path / "x").read_bytes() == data.tobytes()


def test_a_file_system_that_refuses_it_when_a_file_is_opened(tmp_path, monkeypatch):
    refused = []
    real = os.open

    def open_cached(path, flags, *mode):
        if flags & os.O_DIRECT:
            refused.append(path)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", open_cached)
    data = bytes_of(BUFFER_BYTES + 5)
    write(tmp_path / "x", data)
    assert (tmp_path / "x").read_bytes() == data.tobytes()
    assert refused


def test_a_file_system_that_refuses_it_when_it_writes(tmp_path, monkeypatch):
    refused = []
    real = os.write

    def write_cached(handle, data):
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(handle)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(handle, data)

    monkeypatch.setattr(os, "write", write_cached)
    data = bytes_of(BUFFER_BYTES + 5)
    with UncachedFile(tmp_path / "x") as file:
        if not fcntl.fcntl(file._handle, fcntl.F_GETFL) & os.O_DIRECT:
            pytest.skip("this file system takes cached writes only")
        file.write(data)
        file.sync()
    assert (tmp_path / "x").read_bytes() == data.tobytes()
    assert len(refused) == 1


def test_writes_that_the_system_cuts(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[: len(data) // 2 + 1]))
    data = bytes_of(BUFFER_BYTES + 5)
    write(tmp_path / "x", data)
    assert (tmp_path / "x").read_bytes() == data.tobytes()


def test_a_write_that_fails(tmp_path, monkeypatch):
    def fail(handle, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with UncachedFile(tmp_path / "x") as file:
        file.write(bytes_of(5))
        monkeypatch.setattr(os, "write", fail)
        with pytest.raises(OSError, match="No space"):
            file.sync()
