"""Chunks of pairs over workers, and unsolved pairs on the CPU."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mapper import edit_distance
from mapper.align import dispatch
from mapper.align.dispatch import run_on_devices
from mapper.align.packing import pack_pairs
from mapper.align.pairs import batch_of
from mapper.errors import DeviceMemoryError
from tests.helpers.sequence_pairs import random_pairs

SECONDS = 60
"""Longest wait of one thread for another before the test fails."""


class SolvesEven:
    """Solves every second pair, on the CPU; signals the start of its second chunk."""

    def __init__(self) -> None:
        self.begun = 0
        self.went_on = threading.Event()
        self.released = 0

    def align(self, packed, want_path, columns, counts):
        self.begun += 1
        if self.begun > 1:
            self.went_on.set()
        done, left = np.arange(0, len(packed.shift), 2), np.arange(1, len(packed.shift), 2)
        found = on_cpu(selected(packed, done), want_path)
        for column, values in zip(columns, found[:6], strict=True):
            column[done] = values
        if not want_path:
            return left, done, np.empty(0, np.uint32)
        counts[done] = np.diff(found.cigar_offsets)
        return left, done, found.cigar_ops

    def release(self):
        self.released += 1


def selected(packed, pairs):
    columns = ("query_start", "query_len", "ref_start", "ref_len", "shift")
    return packed._replace(**{name: getattr(packed, name)[pairs] for name in columns})


def on_cpu(packed, want_path):
    return edit_distance(packed, cigar=want_path, device="cpu", threads=1)


@pytest.fixture
def packed(monkeypatch):
    monkeypatch.setattr(dispatch, "CHUNK_PAIRS", 10)
    pairs = random_pairs(np.random.default_rng(5), 45, 40)
    return pack_pairs(batch_of([q for q, _ in pairs], [r for _, r in pairs]))


def assert_equal(found, expected) -> None:
    for column, wanted in zip(found, expected, strict=True):
        assert column is wanted is None or column.tolist() == wanted.tolist()


@pytest.mark.parametrize("want_path", [False, True])
def test_a_worker_goes_on_while_the_cpu_aligns_unsolved_pairs(packed, want_path: bool) -> None:
    worker = SolvesEven()

    def fallback(left):
        assert worker.went_on.wait(SECONDS)  # the first fallback, too
        return on_cpu(left, want_path)

    found = run_on_devices([worker], packed, want_path, fallback)
    assert worker.begun == 5
    assert_equal(found, on_cpu(packed, want_path))


def test_without_memory_a_chunk_is_done_in_halves(packed) -> None:
    class Small(SolvesEven):
        def align(self, packed, want_path, columns, counts):
            if len(packed.shift) > 3:
                raise DeviceMemoryError("no room")
            return super().align(packed, want_path, columns, counts)

    worker = Small()
    found = run_on_devices([worker], packed, True, lambda left: on_cpu(left, True))
    assert worker.released > 0
    assert_equal(found, on_cpu(packed, True))


def test_an_error_of_the_fallback_is_raised(packed) -> None:
    def fallback(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_on_devices([SolvesEven(), SolvesEven()], packed, True, fallback)


def test_a_signal_does_not_wait_for_the_fallback(packed) -> None:
    """The fallback may take hours; it goes on in the background."""
    may_end, ended = threading.Event(), threading.Event()

    class Interrupted(SolvesEven):
        def align(self, *chunk):
            if self.begun == 2:
                raise KeyboardInterrupt
            return super().align(*chunk)

    def fallback(left):
        may_end.wait(SECONDS)
        ended.set()
        return on_cpu(left, False)

    with pytest.raises(KeyboardInterrupt):
        run_on_devices([Interrupted()], packed, False, fallback)
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(SECONDS)
