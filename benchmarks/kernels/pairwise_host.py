"""What the host does for pairs that go to a device, timed without one.

    python -m benchmarks.kernels.pairwise_host [--pairs 3000000] [--threads 2] [--repeats 5]

The chunks of a batch are checked, staged and finished as for a device, by streams that only pretend
to be one: what they would queue is not queued, and results are as they happen to be. Staged words
are stored past the caches, and for comparison (in places that do not begin at a cache line) through
them. Beside the times are those of copying and of reading the same input, by the same threads in
the same run: what counts is the ratio, which says how far the host is from reading its memory once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.kernels.pairwise import make_pairs
from benchmarks.kernels.pairwise_rows import flat, repeated
from mapper.parallel.map import parts

OPS_A_PAIR = 7


class PretendedStream:
    """A stream that finishes a chunk at once."""

    def wait(self) -> None:
        """Wait for nothing."""

    def is_done(self) -> bool:
        """Return True."""
        return True

    def queue(self, chunk: Any, staged: np.ndarray, n_words: int) -> None:
        """Queue nothing."""

    def queue_packed(self, chunk: Any, source: Any) -> None:
        """Queue nothing."""

    def finish(self, chunk: Any, n_pairs: int, results: Any, wait_for_all: Any) -> None:
        """Allocate the results as a stream does."""
        n_ops = OPS_A_PAIR * chunk.n_pairs
        results.room(n_ops, chunk.last / n_pairs, wait_for_all)
        results.n_ops += n_ops


def seconds_of(call: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of calls after two others."""
    seconds = []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return median(seconds[2:])


def copied(arrays: Sequence[np.ndarray], outs: Sequence[np.ndarray], pool: Any, n: int) -> None:
    """Copy arrays, each in as many parts as there are threads."""
    jobs = []
    for array, out in zip(arrays, outs, strict=True):
        for a, b in parts(len(array), n):
            jobs.append(pool.submit(np.copyto, out[a:b], array[a:b]))
    for job in jobs:
        job.result()


def read(arrays: Sequence[np.ndarray], pool: Any, n: int) -> None:
    """Look at all of some arrays, each in as many parts as there are threads."""
    jobs = []
    for array in arrays:
        words = array[: array.nbytes // 8 * 8 // array.itemsize].view(np.uint64)
        jobs += [pool.submit(words[a:b].max) for a, b in parts(len(words), n)]
    for job in jobs:
        job.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=3_000_000, help="of 150 [%(default)s]")
    parser.add_argument("--threads", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="[%(default)s]")
    options = parser.parse_args(arguments)
    from mapper import packed_pairs
    from mapper.align.cuda import stream
    from mapper.align.cuda.sources import LetterSource, PackedSource
    from mapper.align.dispatch import as_batch
    from mapper.align.edit.cuda_plan import EditPlan
    from mapper.parallel.buffers import RECYCLER

    def ordinary(n: int, dtype: Any, behind_line: int = 0) -> np.ndarray:
        memory = RECYCLER.empty(n * dtype.itemsize + 128)
        first = -memory.ctypes.data % 64 + behind_line
        return memory[first : first + n * dtype.itemsize].view(dtype)

    def beside_lines(n: int, dtype: Any) -> np.ndarray:
        return ordinary(n, dtype, 8)

    spaces: Any = [(0, None)] * stream.STREAMS
    for length in (150, 1000):
        pairs = make_pairs(length, 0.02, 8000 * 150 // length)
        copies = max(1, options.pairs * 150 // length // len(pairs))
        queries = repeated(flat([query for query, _ in pairs]), copies)
        refs = repeated(flat([ref for _, ref in pairs]), copies)
        packed = packed_pairs(queries, refs, threads=options.threads)

        def align(source: Any) -> None:
            stream._in_chunks(
                spaces, EditPlan(64), source, True, options.threads, stream.CHUNK_PAIRS
            )

        def letters(queries: Any = queries, refs: Any = refs) -> None:
            align(LetterSource(as_batch(queries, refs, padded=False, checked=False)))

        def words(packed: Any = packed) -> None:
            align(PackedSource(packed))

        def cached(call: Callable[[], None]) -> None:
            with mock.patch.object(stream, "page_locked", beside_lines):
                call()

        def direct(packed: Any = packed) -> None:
            with mock.patch.object(stream, "is_page_locked", lambda arrays: True):
                words(packed)

        with (
            mock.patch.object(stream, "page_locked", ordinary),
            mock.patch.object(stream, "total_bytes", lambda: 140 << 30),
            mock.patch.object(stream, "is_page_locked", lambda arrays: False),
            mock.patch.object(stream, "chunk_stream", lambda *args: PretendedStream()),
            ThreadPoolExecutor(options.threads) as pool,
        ):
            for name, call, arrays in (
                ("ASCII", letters, [*queries, *refs]),
                ("ASCII, stored to caches", partial(cached, letters), [*queries, *refs]),
                ("packed", words, list(packed)),
                ("packed, stored to caches", partial(cached, words), list(packed)),
                ("packed, page-locked", direct, list(packed)),
            ):
                outs = [np.empty_like(array) for array in arrays]
                n_bytes = sum(array.nbytes for array in arrays)
                seconds = seconds_of(call, options.repeats)
                copying = seconds_of(
                    partial(copied, arrays, outs, pool, options.threads), options.repeats
                )
                reading = seconds_of(partial(read, arrays, pool, options.threads), options.repeats)
                print(
                    f"{length} bp, {name}: {1000 * seconds:.1f} ms, {n_bytes / seconds / 1e9:.1f} "
                    f"GB/s; copying {1000 * copying:.1f} ms, ratio {seconds / copying:.2f}; "
                    f"reading {1000 * reading:.1f} ms",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
