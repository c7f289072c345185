"""Cutting of chunks, the work queue of their parts, and their way through the streams."""

from __future__ import annotations

import numpy as np
import pytest

from mapper.align.cuda.chunks import SMALLEST
from mapper.align.cuda.sources import LetterSource, PackedSource
from mapper.align.cuda.work_queue import add_buffers, stop, try_take_job, work_queue
from mapper.align.dispatch import packed_pairs
from mapper.align.pairs import batch_of
from tests.align.cuda.test_sources import buffers_at, expected_rows, symbols
from tests.helpers.sequence_pairs import random_pairs

PAIRS = random_pairs(np.random.default_rng(21), 300, 40)


def source_of(packed: bool) -> LetterSource | PackedSource:
    queries, refs = [q for q, _ in PAIRS], [r for _, r in PAIRS]
    return PackedSource(packed_pairs(queries, refs)) if packed else LetterSource(
        batch_of(queries, refs)
    )  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("most", [1, 3, 32, 80, 5000])
def test_chunks_are_all_pairs_and_smaller_at_both_ends(packed: bool, most: int) -> None:
    chunks = source_of(packed).chunks(most)
    sizes = [chunk.n_pairs for chunk in chunks]
    assert [chunk.first for chunk in chunks] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert chunks[-1].last == len(PAIRS)
    assert min(sizes) > 0 and max(sizes) <= most
    if most == 32:
        assert sizes[:4] == [8, 16, 32, 32]
        assert sizes[-1] <= 32 // SMALLEST and sizes[-5:] == sorted(sizes[-5:], reverse=True)


def test_jobs_are_taken_of_chunks_with_a_buffer() -> None:
    queue = work_queue(2, 3)
    assert try_take_job(queue) == -1
    add_buffers(queue, 1)
    assert [try_take_job(queue) for _ in range(4)] == [0, 1, 2, -1]
    add_buffers(queue, 2)  # one more than there are chunks
    assert [try_take_job(queue) for _ in range(4)] == [3, 4, 5, -1]
    stop(queue)


class FakeStream:
    """Finishes a chunk at the second call of :meth:`is_done`, and records all calls."""

    def __init__(self, notes: list[tuple[str, int]], rows: list) -> None:
        self.notes, self.rows, self.asked = notes, rows, 0
        self.staged = np.zeros(0, np.uint64)

    def queue(self, chunk, staged: np.ndarray, n_words: int) -> None:
        self.notes.append(("queued", chunk.first))
        self.staged, self.asked = staged, 0  # read later: the buffer must not change until then
        assert n_words <= len(staged)

    def is_done(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def finish(self, chunk, n_pairs: int, results, wait_for_all) -> None:
        self.notes.append(("finished", chunk.first))
        n = chunk.n_pairs
        columns = self.staged.view(np.int32)[: 4 * n].reshape(4, n)
        for query_at, ref_at, query_len, ref_len in columns.T.tolist():
            sides = (query_at, query_len), (ref_at, ref_len)
            self.rows.append(tuple(symbols(self.staged, *side) for side in sides))

    def wait(self) -> None:
        self.notes.append(("waited", -1))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("n_streams", "threads"), [(1, 1), (1, 3), (2, 2), (4, 1), (4, 3)])
def test_chunks_go_through_streams_in_order(
    packed: bool, n_streams: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from mapper.align.cuda import stream

    monkeypatch.setattr(stream, "page_locked", lambda n, dtype: buffers_at(0, 1, n)[0].view(dtype))
    source = source_of(packed)
    chunks = source.chunks(32)
    notes: list[tuple[str, int]] = []
    rows: list = []
    streams = [FakeStream(notes, rows) for _ in range(n_streams)]
    found = stream.run_staged(n_streams, source, chunks, threads, lambda: ("found", streams))
    assert found == "found"
    assert rows == expected_rows(PAIRS)
    for kind in ("queued", "finished"):
        assert [first for note, first in notes if note == kind] == [c.first for c in chunks]
    under_way = np.cumsum([{"queued": 1, "finished": -1}.get(note, 0) for note, _ in notes])
    assert max(under_way) <= n_streams
    assert notes[-n_streams:] == [("waited", -1)] * n_streams


def test_threads_stop_if_streams_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from mapper.align.cuda import stream

    monkeypatch.setattr(stream, "page_locked", lambda n, dtype: buffers_at(0, 1, n)[0].view(dtype))
    source = source_of(False)

    def prepared():
        raise MemoryError("no streams")

    with pytest.raises(MemoryError, match="no streams"):
        stream.run_staged(2, source, source.chunks(32), 3, prepared)
