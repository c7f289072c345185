"""Time the host's part of all-against-all matrix alignment, with mock devices.

    python -m benchmarks.studies.matrix_host [--sequences 3000] [--tcups 4.24] [--repeats 5]
        [--devices 1 2 4]

The set is that of ``align_matrix``, scores only. A mock device plans each batch, and then waits
for as long as the batch's cells take at the given rate, one batch at a time. So the share of the
calling thread, which no number of devices makes shorter, and the fall of wall time with the number
of devices can be measured without any. The median of the repeats is given; the first call, which
compiles, is left out.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, cast
from unittest import mock

import numpy as np

from benchmarks.align_matrix import TASKS, make_set
from benchmarks.common.harness import machine
from mapper.align.matrix import api
from mapper.align.matrix import engine as matrix_engine
from mapper.align.matrix.plan_query_pairs import plan_query_pairs
from mapper.align.matrix.scoring import CodedPairs, Scoring
from mapper.align.result import OK, PairAlignments

_LANES, _GROUPS = 8, 16  # as in cuda_query_pairs.py
_MOST_CELLS = 1 << 36
_WORKERS_A_DEVICE = 2


class MadeUpDevice:
    """Says when a batch will be done, as if it computed one after the other."""

    def __init__(self, cells_a_second: float) -> None:
        self._rate = cells_a_second
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait_for(self, n_cells: int) -> None:
        # By a clock of its own: what a sleep takes too long does not add up.
        with self._lock:
            self._free_at = max(self._free_at, time.perf_counter()) + n_cells / self._rate
            done_at = self._free_at
        time.sleep(max(done_at - time.perf_counter(), 0))


class MadeUpWorker:
    """Plans batches, and waits for a device that is not there."""

    most_cells = _MOST_CELLS

    def __init__(self, scoring: Scoring, device: MadeUpDevice) -> None:
        self._scoring, self._device = scoring, device

    def align(self, pairs: CodedPairs) -> PairAlignments:
        scoring = self._scoring
        n, m = pairs.lengths()
        plan_query_pairs(
            n, m, pairs.query_start, pairs.ref_start, scoring.scores, scoring.gaps, scoring.mode,
            want_path=False, lanes=_LANES, groups=_GROUPS,
        )  # fmt: skip
        self._device.wait_for(int((n * m).sum()))
        start = np.full(len(n), -1)
        status = np.full(len(n), OK, np.int8)
        return PairAlignments(n + m, status, start, pairs.query_end, start, pairs.ref_end,
                              None, None)  # fmt: skip


def measure(sequences: list[str], n_devices: int, cells_a_second: float) -> tuple[float, ...]:
    """Return seconds: wall, CPU of the calling thread and of all others; and the windows."""

    def make_engine(scoring: Scoring, _device: str, threads: int | None) -> object:
        engine = matrix_engine.MatrixEngine(scoring, "cpu", threads)
        made_up = [MadeUpDevice(cells_a_second) for _ in range(n_devices)]
        engine._workers = [
            cast(Any, MadeUpWorker(scoring, device))
            for _ in range(_WORKERS_A_DEVICE)
            for device in made_up
        ]
        engine._n_devices = n_devices
        return engine

    scoring = TASKS["protein, BLOSUM62, 10 + n"][1]
    with mock.patch.object(api, "MatrixEngine", make_engine):
        wall, own, everything = time.perf_counter(), time.thread_time(), time.process_time()
        n_windows = 0
        for window in api.align_all(sequences, span="local", cigar=False, **scoring):
            n_windows += 1
            assert len(window.query) == window.found.n_pairs
        wall = time.perf_counter() - wall
        own, everything = time.thread_time() - own, time.process_time() - everything
    return wall, own, everything - own, n_windows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sequences", type=int, default=3000, help="[%(default)s]")
    parser.add_argument("--tcups", type=float, default=4.24, help="of a device [%(default)s]")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4], help="[%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="[%(default)s]")
    options = parser.parse_args(arguments)
    sequences = make_set(options.sequences, TASKS["protein, BLOSUM62, 10 + n"][0])
    lengths = np.array([len(sequence) for sequence in sequences])
    cells = int((lengths.sum() ** 2 - (lengths**2).sum()) // 2)
    print(machine())
    print(f"{options.sequences * (options.sequences - 1) // 2} pairs, {cells / 1e9:.1f} G cells")
    first = None
    for n_devices in options.devices:
        rate = options.tcups * 1e12
        measure(sequences, n_devices, rate)
        rows = [measure(sequences, n_devices, rate) for _ in range(options.repeats)]
        wall, own, others, n_windows = (median(column) for column in zip(*rows, strict=True))
        first = first or wall * n_devices
        print(
            f"{n_devices} devices: wall {1e3 * wall:.1f} ms (devices alone "
            f"{1e3 * cells / rate / n_devices:.1f}), {first / wall:.2f} times one; CPU of the "
            f"calling thread {1e3 * own:.1f} ms, of the others {1e3 * others:.1f} ms; "
            f"{n_windows:.0f} windows"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
