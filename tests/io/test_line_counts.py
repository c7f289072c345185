"""Line ends counted where blocks are inflated: as many as there are, wherever batches are cut."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapper.io import isal
from mapper.io.bgzf import EOF_BLOCK, compress_block, deflater
from mapper.io.input_buffer import InputBuffer
from mapper.io.input_file import ByteSource
from mapper.io.line_counts import LineCounts, count

TEXT = np.random.default_rng(3).choice(np.frombuffer(b"\nACGT", np.uint8), 2000)


def n_lines(text: np.ndarray) -> int:
    return text.tobytes().count(b"\n")


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(0, 40), min_size=1, max_size=4)), max_size=12
    ),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), max_size=20),
)
def test_counted_or_not(steps, windows):
    """Some steps with counted pieces, some without; bytes are looked at, fewer are taken."""
    counts, end, at = LineCounts(), 0, 0
    for is_counted, lengths in steps:
        ends = np.cumsum(lengths)
        in_pieces = [n_lines(t) for t in np.split(TEXT[end : end + ends[-1]], ends[:-1])]
        if is_counted:
            counts.add(int(ends[-1]), ends, np.array(in_pieces))
        else:
            counts.add(int(ends[-1]), None, None)
        end += int(ends[-1])
    for wanted, taken in windows:
        text = TEXT[at : min(at + wanted, end)]
        known, unknown = counts.known(len(text))
        assert count(text, known, unknown) == n_lines(text)
        assert all(first < last for first, last in unknown)
        counts.take(min(taken, end - at))
        at += min(taken, end - at)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("head", [b"", b"@a\nAC\n+\nII\n"])
def test_blocks_of_a_file(tmp_path: Path, threads: int, head: bytes):
    """From the first byte, which a look at the format may have taken, to the last."""
    rng = np.random.default_rng(5)
    text = head + TEXT.tobytes() * 100
    ends = np.sort(rng.integers(0, len(text), 60))
    parts = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    blocks = [compress_block(memoryview(part), deflater(1)) for part in parts]
    path = tmp_path / "t.gz"
    path.write_bytes(b"".join([*blocks, EOF_BLOCK]))
    with ThreadPoolExecutor(2) as pool:
        source = ByteSource(str(path), pool if threads else None)
        source.count_lines()
        source.peek(5)
        buffer = InputBuffer(source, 1 << 16, pool if threads else None)
        at, few = 0, 0
        while True:
            unread, ended = buffer.unread(30_000)
            window = unread[:30_000]
            assert buffer.line_ends(window) == n_lines(window)
            with buffer._changed:
                known, unknown = buffer._lines.known(len(window))
            few += known > 0 and sum(b - a for a, b in unknown) < len(window)
            taken = buffer.take(min(len(window), 20_011))
            assert taken.tobytes() == text[at : at + len(taken)]
            at += len(taken)
            if ended and at == len(text):
                break
        buffer.close()
    assert few > 5 or not isal.usable()
