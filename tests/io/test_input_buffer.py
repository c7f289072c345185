"""Buffer an input file: bytes and line counts are right for any schedule of the parts of steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import DeviceError, ResourceError
from mapper.io import isal
from mapper.io.batch_reader import bytes_ahead
from mapper.io.bgzf import EOF_BLOCK, compress_block, deflater
from mapper.io.bgzf_reader import BlocksPart, Done, SharedInflating, Step
from mapper.io.input_buffer import InputBuffer, LineCounts, count
from mapper.io.input_file import BrokenStreamError, ByteSource

DATA = np.random.default_rng(5).integers(0, 256, 20_000).astype(np.uint8).tobytes()


class Source:
    """A source with steps of several parts, damaged from some byte on."""

    name = "made up"
    lingers = False

    def __init__(self, seed: int, damaged_at: int, most: int) -> None:
        self._random = np.random.default_rng(seed)
        self._damaged_at = damaged_at
        self._most = most
        self._at = 0
        self._asked = threading.Lock()

    def begin(self, buffer: memoryview) -> Step:
        assert self._asked.acquire(blocking=False)  # one thread at a time
        n = min(int(self._random.integers(1, self._most + 1)), len(buffer), len(DATA) - self._at)
        start, self._at = self._at, self._at + n
        cuts = [0, *sorted(self._random.integers(0, n + 1, 3).tolist()), n]
        self._asked.release()
        parts = pairwise(cuts)
        return Step(n, [partial(self._write, buffer, start, *part) for part in parts if n])

    def _write(self, buffer: memoryview, at: int, start: int, end: int) -> Done:
        if self.lingers and (at + start + self._most) % 3 == 0:
            time.sleep(0.001)  # so that later parts are done before
        good = min(max(self._damaged_at - at, start), end)
        buffer[start:good] = DATA[at + start : at + good]
        if good < end:
            return Done(good, BrokenStreamError("damaged"))
        return Done(end, None)

    def readinto(self, buffer: memoryview) -> int:
        raise NotImplementedError

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def executors():
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(3) as three:
        yield None, one, three


@pytest.mark.medium
@given(
    seed=st.integers(0, 1000), damaged_at=st.integers(0, 30_000), threads=st.integers(0, 2),
    chunk=st.sampled_from([100, 500, 3000, 1 << 20]), ahead=st.sampled_from([0, 2000, 20_000]),
    wanted=st.lists(st.sampled_from([20, 70, 400, 1500, 9000, 30_000]), min_size=1, max_size=9),
)  # fmt: skip
@settings(deadline=None, max_examples=200)
def test_bytes_come_in_order(executors, seed, damaged_at, threads, chunk, ahead, wanted):
    """Also if the reader is a task of the same pool as the parts."""
    random = np.random.default_rng(seed)
    executor = executors[threads]
    source = Source(seed, damaged_at, max(chunk, 200))
    source.lingers = executor is not None
    buffer = InputBuffer(source, chunk, executor, ahead)

    def read() -> bytes:
        got = b""
        for turn in range(10_000):
            least = wanted[turn % len(wanted)]
            view, all_left = buffer.unread(least)
            assert len(view) >= least or all_left
            taken = int(random.integers(1, least + 1))
            before = view[:taken].tobytes()
            assert buffer.take(min(taken, len(view))).tobytes() == before
            got += before
            if all_left and taken >= len(view):
                return got
        return got + b"never ends"

    got = executor.submit(read).result() if executor else read()
    buffer.close()
    assert got == DATA[:damaged_at]
    assert (str(buffer.broken) == "damaged") == (damaged_at < len(DATA))


def next_block_is_being_filled(executor, hold: threading.Event) -> InputBuffer | None:
    """Return a buffer whose next block's parts wait for `hold`; None if no block was reached."""
    this = threading.current_thread()
    met: list[int] = []

    class Held(Source):
        def begin(self, buffer: memoryview) -> Step:
            start, self._at = self._at, self._at + len(buffer)
            return Step(len(buffer), [partial(self._write, buffer, start, 0, len(buffer))])

        def _write(self, buffer: memoryview, at: int, start: int, end: int) -> Done:
            if at >= 400:  # behind the first block, of four steps
                if threading.current_thread() is this:  # which is to go on, not to wait
                    met.append(at)
                else:
                    hold.wait()
            return super()._write(buffer, at, start, end)

    buffer = InputBuffer(Held(1, len(DATA), 100), 100, executor)
    for _ in range(16):
        buffer.unread(20)
        buffer.take(20)
    for _ in range(1 if met else 200):
        if not met and buffer._filled is not buffer._block:
            return buffer
        time.sleep(0.01)
    hold.set()
    buffer.close()
    return None


def test_more_is_wanted_while_the_next_block_is_filled(executors):
    """Then that block is too small, and bytes that are being written there must not be lost."""
    buffer = None
    while buffer is None:  # whoever wants bytes does what other threads, being late, have not done
        hold = threading.Event()
        buffer = next_block_is_being_filled(executors[2], hold)
    with ThreadPoolExecutor(1) as reader:
        try:
            waiting = reader.submit(buffer.unread, 200)
            time.sleep(0.05)
            # Or else this test does not see what it should.
            assert buffer._filled is not buffer._block
        finally:
            hold.set()
        view, _ = waiting.result()
    assert view[:200].tobytes() == DATA[320:520]
    buffer.close()


def test_an_exception_of_a_part_reaches_the_reader(executors):
    class Failing(Source):
        def _write(self, buffer: memoryview, at: int, start: int, end: int) -> Done:
            raise ZeroDivisionError

    for executor in executors:
        buffer = InputBuffer(Failing(1, len(DATA), 500), 1000, executor)
        with pytest.raises(ZeroDivisionError):
            buffer.unread(10)
        buffer.close()


@pytest.mark.timeout(60)  # for a reader that waits for ever
@pytest.mark.parametrize("n_blocks", [0, 1, 2])
def test_no_memory_for_a_block_reaches_the_reader(executors, n_blocks: int) -> None:
    """Whichever thread has asked for it."""
    for executor in executors:
        sizes: list[int] = []

        def memory(n_bytes: int, sizes: list[int] = sizes) -> np.ndarray:
            sizes.append(n_bytes)
            if len(sizes) > n_blocks:
                raise ResourceError("none is left")
            return np.empty(n_bytes, np.uint8)

        buffer = InputBuffer(Source(1, len(DATA), 500), 300, executor, memory=memory)
        with pytest.raises(ResourceError, match="none is left"):
            while True:
                buffer.unread(300)
                buffer.take(300)
        buffer.close()


def test_nobody_waits_for_a_closed_file(executors):
    buffer = InputBuffer(Source(1, len(DATA), 500), 1000, executors[2])
    buffer.unread(10)
    buffer.close()
    view, all_left = buffer.unread(len(DATA))
    assert all_left
    assert DATA.startswith(view.tobytes())


@pytest.mark.parametrize("ahead", [0, 8])
def test_so_many_steps_are_begun_before_anything_is_taken(ahead):
    """Fewer would leave threads idle, and more would leave memory unbounded."""
    chunk, begun, tasks = 500, [], deque()

    class CountedPieces(Source):
        def begin(self, buffer: memoryview) -> Step:
            step = super().begin(buffer)
            begun.append(step.n_bytes)
            return step

    class Later(Executor):
        def submit(self, call, /, *args, **kwargs):
            tasks.append(call)
            return Future()

    buffer = InputBuffer(CountedPieces(1, len(DATA), chunk), chunk, Later(), ahead * chunk)
    buffer.unread(chunk)
    while tasks:
        tasks.popleft()()
    buffer.close()
    enough = 2 * chunk + max(ahead, 2) * chunk
    assert enough <= sum(begun) < enough + chunk


def test_threads_read_ahead_no_more_than_their_batches_take():
    assert bytes_ahead(1, 3_000_000, 4 << 20) == 0
    assert bytes_ahead(16, 3_000_000, 4 << 20) == 8 * (4 << 20)
    assert bytes_ahead(16, 100_000, 4 << 20) == 1_600_000


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
    """Some steps have counted pieces; fewer bytes are taken than are counted."""
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
    """From the first byte, which may have been read to recognise the format, to the last."""
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


class ThreadsAsDevice:
    """Threads of their own in the place of a device that decompresses blocks."""

    def __init__(self, executor: Executor, most_blocks: int) -> None:
        self.executor = executor
        self.most_blocks, self.blocks_ahead = most_blocks, 2 * most_blocks
        self.n_parts = 0

    def memory(self, n_bytes: int) -> np.ndarray:
        return np.empty(n_bytes, np.uint8)

    def decompress(self, parts: Sequence[BlocksPart]) -> list[Done]:
        assert 0 < sum(len(part.blocks) for part in parts) <= self.most_blocks
        self.n_parts += len(parts)
        return [part() for part in parts]


class AtOnce(Executor):
    """Calls in the submitting thread: no other thread can do all parts before the device."""

    def submit(self, function, /, *args, **kwargs):
        function(*args, **kwargs)


@pytest.fixture(scope="module")
def bgzf_files(tmp_path_factory) -> tuple[bytes, list[Path]]:
    """Return a text, and files of it in blocks of a few bytes: whole, damaged and cut off."""
    rng = np.random.default_rng(8)
    text = rng.choice(np.frombuffer(b"ACGT\n", np.uint8), 300_000).tobytes()
    ends = [0, *np.sort(rng.integers(0, len(text), 1500)).tolist(), len(text)]
    deflate = deflater(1)
    blocks = [compress_block(memoryview(text[a:b]), deflate) for a, b in pairwise(ends)]
    folder = tmp_path_factory.mktemp("bgzf")
    whole = b"".join(blocks) + EOF_BLOCK
    damaged = bytearray(whole)
    damaged[2 * len(whole) // 3] ^= 0x40
    files = []
    for name, data in (("whole", whole), ("damaged", damaged), ("cut", whole[: len(whole) // 2])):
        files.append(folder / f"{name}.gz")
        files[-1].write_bytes(data)
    return text, files


def read_lines(
    path: Path, executor: Executor | None, inflating: SharedInflating | None, size: int
) -> tuple[bytes, int, str]:
    """Return the bytes of a file, its line ends, and why it cannot be read further."""
    source = ByteSource(str(path), executor)
    source.count_lines()
    buffer = InputBuffer(source, 20_000, executor, 0, inflating)
    got, n_lines, ended = b"", 0, False
    try:
        while not ended:
            view, all_left = buffer.unread(size)
            view = view if all_left else view[:size]
            n_lines += buffer.line_ends(view)
            ended = all_left
            got += buffer.take(len(view)).tobytes()
        return got, n_lines, "" if buffer.broken is None else str(buffer.broken)
    finally:
        buffer.close()


@pytest.mark.parametrize("most_blocks", [64, 500])
@pytest.mark.parametrize("n_idle", [1, 3])
@pytest.mark.parametrize("size", [700, 50_000])
def test_a_device_shares_the_parts(bgzf_files, most_blocks, n_idle, size) -> None:
    """Bytes, line ends and errors are those of the host alone; no thread waits for ever."""
    text, files = bgzf_files
    for path in files:
        expected = read_lines(path, None, None, size)
        assert text.startswith(expected[0])
        assert expected[1] == expected[0].count(b"\n")
        with ThreadPoolExecutor(2) as device_threads, ThreadPoolExecutor(n_idle) as pool:
            inflating = SharedInflating(ThreadsAsDevice(device_threads, most_blocks), pool)
            found = pool.submit(read_lines, path, pool, inflating, size).result()
        assert found == expected
    assert expected[2]


def test_a_device_takes_parts(bgzf_files) -> None:
    text, files = bgzf_files
    with ThreadPoolExecutor(1) as pool:
        device = ThreadsAsDevice(AtOnce(), 64)
        found = read_lines(files[0], None, SharedInflating(device, pool), 50_000)
    assert found == (text, text.count(b"\n"), "")
    assert device.n_parts > 0


def test_a_device_that_fails_ends_the_reading(bgzf_files) -> None:
    class Failing(ThreadsAsDevice):
        def decompress(self, parts: Sequence[BlocksPart]) -> list[Done]:
            raise DeviceError("the driver failed")

    with ThreadPoolExecutor(1) as pool:
        inflating = SharedInflating(Failing(AtOnce(), 64), pool)
        with pytest.raises(DeviceError, match="driver failed"):
            read_lines(bgzf_files[1][0], None, inflating, 50_000)
