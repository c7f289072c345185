"""The host's memory while a device sorts is that of the plan, stage by stage."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapper.index import build, storage
from mapper.index.packed_text import PackedText
from mapper.index.plan import DEVICE, BuildPlan, device_stages, plan_device
from mapper.index.suffix_sort import SortedText
from mapper.index.suffix_sort_cpu import sort_with_library
from mapper.params import IndexParams
from tests.helpers.hard_texts import needs_library

N = 3_000_000
PARAMS = IndexParams(kmer_len=9)


def unpacked(words: np.ndarray, n: int) -> np.ndarray:
    """Codes 0 to 3, uint8 (n,), of words of 32 bases, the first in the highest bits."""
    text = np.empty((len(words), 32), np.uint8)
    for i in range(32):
        text[:, i] = words >> np.uint64(62 - 2 * i) & np.uint64(3)
    return text.reshape(-1)[:n]


def sort_elsewhere(
    plan: BuildPlan, text: PackedText, letters: np.ndarray | None, row_type: np.dtype,
    sa_shift: int, n_threads: int,
) -> SortedText:  # fmt: skip
    """Sort with the interface of a device: words in, BWT and samples out."""
    assert plan.route == DEVICE
    assert letters is None
    return sort_with_library(unpacked(text.words, text.n), row_type, sa_shift)


class Watched:
    """Record the peak bytes of Python and NumPy while a function of the build runs, or after it.

    Parameters
    ----------
    at_end
        Count the bytes allocated when the function returns: its own work is on the device.
    """

    def __init__(self, function: Callable[..., Any], *, at_end: bool = False) -> None:
        self.function, self.at_end = function, at_end
        self.most = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracemalloc.reset_peak()
        result = self.function(*args, **kwargs)
        self.most = tracemalloc.get_traced_memory()[0 if self.at_end else 1]
        return result


def write_random(path: Path, n: int) -> None:
    bases = np.frombuffer(b"ACGT", np.uint8)[np.random.default_rng(4).integers(0, 4, n - 1)]
    path.write_bytes(b">g\n" + bases.tobytes() + b"\n")


@needs_library
@pytest.mark.parametrize("row_bytes", [4, 8])
def test_each_stage_holds_what_is_counted_for_it(
    row_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if row_bytes == 8:
        monkeypatch.setattr(storage, "NARROW_ROWS", 1000)
    for name, n in (("small", 2000), ("large", N)):
        write_random(tmp_path / f"{name}.fa", n)
    plan = plan_device(N, PARAMS, None)
    monkeypatch.setattr(build, "choose_route", lambda *args, **options: plan)
    watched = {
        "packing": Watched(build.pack_text),
        "sorting": Watched(sort_elsewhere, at_end=True),
        "blocks": Watched(build.make_blocks),
        "table": Watched(build.with_table),
    }
    for name, stage in zip(
        ("pack_text", "sort_suffixes", "make_blocks", "with_table"), watched.values(), strict=True
    ):
        monkeypatch.setattr(build, name, stage)
    options: dict[str, Any] = {"device": "cuda", "n_threads": 1}
    build.build_index(tmp_path / "small.fa", PARAMS, **options)  # compiles everything
    gc.collect()
    tracemalloc.start()
    try:
        index = build.build_index(tmp_path / "large.fa", PARAMS, **options)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert index.fm.n_rows == N + 1
    assert index.fm.sa_samples.dtype.itemsize == row_bytes
    counted = device_stages(N, PARAMS)
    # Other tests' threads may allocate meanwhile; the least array that may be missed has 750 kB.
    for name, stage in watched.items():
        assert counted[name] == pytest.approx(stage.most, rel=0.02, abs=300_000), name
    assert after == pytest.approx(index.n_bytes, rel=0.02, abs=300_000)
    # All stages but reading, whose memory is bounded by blocks of the file.
    assert watched.keys() == counted.keys() - {"reading"}


@pytest.mark.parametrize(
    ("most_bases", "peak"),
    [
        (18_380_000, 1.007e9),  # with kernels compiled in the same run
        (3_131_000_143, 11.532e9 - 1.074e9 - 0.775e9),
        (4_444_000_151, 21.099e9 - 2.147e9 - 1.100e9),
    ],
    ids=["18 Mbp", "3.1 Gbp", "4.4 Gbp"],
)
def test_what_was_measured_on_a_device_is_covered_with_a_margin(
    most_bases: int, peak: float
) -> None:
    """benchmarks/results/whole_genome_{3.1G,4.4G}.md, H200.

    Without CuPy's page-locked copy of the words (a power of two) and, from the sort on, the words,
    which that version held.
    """
    said = plan_device(most_bases, IndexParams(), None).host_bytes
    assert 1.05 * peak < said < 1.2 * peak
