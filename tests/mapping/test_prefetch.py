"""BatchPrefetcher: all batches, in order, never two cut at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, wait
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mapper.io.batch_reader import FastqText, RawBatch
from mapper.mapping.pipeline import _BatchAhead, _take_until
from mapper.mapping.prefetch import AHEAD, BatchPrefetcher
from mapper.parallel.pool import MAP, PriorityPool


@pytest.fixture
def pool() -> Iterator[PriorityPool]:
    workers = PriorityPool(3)
    yield workers
    workers.shutdown()


class Input:
    """`n` batches, of 1, 2, ... reads; the test fails if two are cut at a time."""

    def __init__(self, n: int) -> None:
        self.n, self.n_cut = n, 0
        self._alone = threading.Lock()

    def cut(self) -> RawBatch | None:
        assert self._alone.acquire(blocking=False), "two at a time"
        try:
            if self.n_cut == self.n:
                return None
            self.n_cut += 1
            return RawBatch(self.n_cut, 0, lambda: pytest.fail("nobody parses"))
        finally:
            self._alone.release()


def taken(batches: BatchPrefetcher) -> list[int]:
    found = []
    while (raw := batches.take()) is not None:
        found.append(raw.n_reads)
    return found


@pytest.mark.parametrize("n", [0, 1, 5])
def test_all_are_taken_in_order(pool: PriorityPool, n: int) -> None:
    batches = BatchPrefetcher(pool, Input(n).cut)
    assert taken(batches) == list(range(1, n + 1))
    assert batches.ended
    assert batches.take() is None
    assert not batches.wait_or([])


def test_waiting_ends_when_another_future_is_done(pool: PriorityPool) -> None:
    never = threading.Event()
    done: Future[int] = Future()
    done.set_result(1)

    def stuck() -> RawBatch | None:
        never.wait()
        return None

    batches = BatchPrefetcher(pool, stuck)
    assert not batches.wait_or([done])
    assert not batches.ended
    never.set()
    assert batches.take() is None and batches.ended


def test_an_error_of_the_input_is_raised_by_take(pool: PriorityPool) -> None:
    def wrong() -> RawBatch | None:
        raise ValueError("line 7")

    with pytest.raises(ValueError, match="line 7"):
        BatchPrefetcher(pool, wrong).take()


@pytest.mark.parametrize(("n_threads", "ahead"), [(2, AHEAD), (16, 4)])
def test_cuts_follow_each_other_without_a_call(
    pool: PriorityPool, n_threads: int, ahead: int
) -> None:
    """Up to `ahead` batches are cut at once, then one for each that is taken."""
    source, seen = Input(20), threading.Semaphore(0)

    def cut() -> RawBatch | None:
        seen.release()
        return source.cut()

    batches = BatchPrefetcher(pool, cut, n_threads)
    for _ in range(ahead):
        assert seen.acquire(timeout=60)
    while batches._cutting is not None:  # the last of them is about to be kept
        wait([batches._cutting])
    assert source.n_cut == ahead
    assert batches.take() is not None
    assert seen.acquire(timeout=60)
    assert taken(batches) == list(range(2, 21))


def test_more_batches_wait_for_the_first_to_be_taken(pool: PriorityPool) -> None:
    source = Input(20)
    batches = BatchPrefetcher(pool, source.cut, at_first=7)
    while batches._cutting is not None:
        wait([batches._cutting])
    assert source.n_cut == 7
    for _ in range(7 - AHEAD):
        assert batches.take() is not None
        assert (source.n_cut, batches._cutting) == (7, None)
    assert taken(batches) == list(range(7 - AHEAD + 1, 21))


def test_an_error_comes_after_what_was_cut_before(pool: PriorityPool) -> None:
    source = Input(3)

    def cut() -> RawBatch | None:
        raw = source.cut()
        if raw is None:
            raise ValueError("line 7")
        return raw

    batches = BatchPrefetcher(pool, cut)
    for number in (1, 2, 3):
        raw = batches.take()
        assert raw is not None and raw.n_reads == number
    with pytest.raises(ValueError, match="line 7"):
        batches.take()


def test_take_raises_if_the_pool_has_dropped_the_task(pool: PriorityPool) -> None:
    busy = threading.Event()
    for _ in range(3):
        pool.submit(MAP, busy.wait)
    while pool._tasks:  # all threads are busy before anything is to be cut
        threading.Event().wait(0.001)
    batches = BatchPrefetcher(pool, Input(3).cut)
    dropping = threading.Thread(target=pool.cancel_all)
    dropping.start()
    with pytest.raises(CancelledError):
        batches.take()
    busy.set()
    dropping.join()


# --- parsing ahead, while the first batches are aligned ---


def run_of(pool: PriorityPool, parsed: list[int], parses_fastq: bool = False) -> Any:
    def parse(raw: RawBatch) -> int:
        parsed.append(raw.n_reads)
        return raw.n_reads

    backend = SimpleNamespace(parses_fastq=parses_fastq)
    return SimpleNamespace(pool=pool, parse=parse, backend=backend)


def test_batches_are_parsed_while_others_are_awaited_but_not_for_ever(pool: PriorityPool) -> None:
    source, parsed = Input(20), list[int]()
    batches = BatchPrefetcher(pool, source.cut)
    never: Future[None] = Future()
    ahead = _take_until(run_of(pool, parsed), batches, [never], 6)
    assert [cast(int, parsing.result()) for parsing in ahead] == list(range(1, 7))
    assert sorted(parsed) == list(range(1, 7))  # each once
    assert taken(batches) == list(range(7, 21))


def test_nothing_is_parsed_when_none_is_awaited(pool: PriorityPool) -> None:
    done: Future[None] = Future()
    done.set_result(None)
    batches = BatchPrefetcher(pool, Input(3).cut)
    assert not _take_until(run_of(pool, []), batches, [done], 6)
    assert taken(batches) == [1, 2, 3]


def test_parsing_ahead_ends_with_the_input(pool: PriorityPool) -> None:
    batches = BatchPrefetcher(pool, Input(2).cut)
    ahead = _take_until(run_of(pool, []), batches, [Future()], 6)
    assert len(ahead) == 2 and batches.ended


def test_who_needs_a_batch_parses_it_if_no_thread_has_begun() -> None:
    """Else tasks that wait for their batches could hold all threads."""
    workers = PriorityPool(1)
    begun, go_on = threading.Event(), threading.Event()
    busy = workers.submit(MAP, lambda: (begun.set(), go_on.wait()))
    assert begun.wait(60)
    parsed: list[int] = []
    parsing = _BatchAhead(run_of(workers, parsed), RawBatch(5, 0, lambda: pytest.fail("not so")))
    assert cast(int, parsing.result()) == 5
    go_on.set()
    busy.result()
    workers.shutdown()
    assert parsed == [5]


def test_text_for_a_device_is_parsed_only_if_it_is_needed(pool: PriorityPool) -> None:
    """A backend that parses text gets it; of one that does not, tasks parse the batches."""
    raw = RawBatch(5, 0, lambda: pytest.fail("not so"), FastqText((), 5, False))
    for parses_fastq in (True, False):
        parsed, given = list[int](), list[Any]()
        run = run_of(pool, parsed, parses_fastq)
        run.backend.submit = lambda *arguments, to=given: to.append(arguments)
        batch = _BatchAhead(run, raw)
        batch.submit(cast(Any, "model"), cast(Any, "finish"))
        ((parse, model, finish, text),) = given
        assert (model, finish) == ("model", "finish")
        assert text is (raw.text if parses_fastq else None)
        if parses_fastq:
            assert parsed == []
        assert parse() == 5
        assert parsed == [5]
