"""Stop a reader that waits for an idle pipe."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mapper.io.input_file import BrokenStreamError, ByteSource


def test_close_ends_a_wait_for_an_idle_pipe(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)  # opens without waiting for a reader
    os.write(writer, b"@first read")
    source = ByteSource(str(fifo))
    buffer = memoryview(bytearray(100))
    with ThreadPoolExecutor(1) as executor:
        n = 0
        while n < len(b"@first read"):
            n += executor.submit(source.readinto, buffer[n:]).result()
        assert bytes(buffer[:n]) == b"@first read"
        waiting = executor.submit(source.readinto, buffer)
        source.stop()
        with pytest.raises(BrokenStreamError, match="stopped"):
            waiting.result()
    source.close()
    os.close(writer)
