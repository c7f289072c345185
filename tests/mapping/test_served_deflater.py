"""Blocks that servers compress: by the host here, by nvCOMP in test_device_servers.py."""

from __future__ import annotations

import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mapper.io.bgzf import BLOCK_BYTES, Spans, block_starts
from mapper.io.bgzf_reader import HEAD_BYTES
from mapper.mapping.device_servers import ServedDeflater
from mapper.parallel.pool import thread_pool
from mapper.parallel.remote_calls import Servers

ROOT = Path(__file__).parents[2]


def plain(blocks: memoryview) -> bytes:
    starts = block_starts(blocks).tolist()
    return b"".join(
        zlib.decompress(blocks[start + HEAD_BYTES : end - 8], -15)
        for start, end in pairwise(starts)
    )


def check_compression(deflater: ServedDeflater, group: Servers) -> None:
    """Compress data of this process, of a server's memory, and in many pieces."""

    def owner(blocks: memoryview) -> int:
        return group.memory.place_of(np.frombuffer(blocks, np.uint8)).key.owner

    data = np.random.default_rng(1).integers(65, 69, 5 * BLOCK_BYTES + 77).astype(np.uint8)
    assert plain(deflater.compress([data.data])) == data.tobytes()
    blocks = deflater.compress([data[:BLOCK_BYTES].data, data[BLOCK_BYTES:].data])
    assert plain(blocks) == data.tobytes()
    many = np.tile(data, 20)
    with deflater._load.on_least_busy() as busy:  # so that the other one does it
        blocks = deflater.compress([many.data])
    assert plain(blocks) == many.tobytes()
    assert group.servers[owner(blocks) - 1] is not busy
    # What a server has in its memory it compresses itself, however busy.
    again = deflater.compress([data[:BLOCK_BYTES].data, blocks])
    assert plain(again) == data[:BLOCK_BYTES].tobytes() + bytes(blocks)
    assert owner(again) == owner(blocks)
    bounds = np.array([3, 3 + BLOCK_BYTES, 4 + BLOCK_BYTES, len(data) - 5])
    blocks = deflater.compress(Spans([(data, bounds)]))
    assert plain(blocks) == data[3:-5].tobytes()
    assert np.diff(block_starts(blocks)).min() < 100  # the piece of one byte has a block


def test_blocks_are_those_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    group = Servers("tests.helpers.called_server", [([], "a"), ([], "b")])
    try:
        with thread_pool(2) as executor:
            check_compression(ServedDeflater(group, 0, executor, 128, 2, 1), group)
    finally:
        group.close()
