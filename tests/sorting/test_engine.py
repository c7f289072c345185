"""Duplicates and the finished records do not depend on how the sorted order is cut."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapper.sorting import engine
from mapper.sorting.engine import Marking, gathered_ranges
from mapper.sorting.options import MarkOptions
from mapper.sorting.runs import RecordSorter, run_of_bytes
from mapper.sorting.spill_file import SpillFile
from tests.helpers.duplicate_sets import Kind, write_set
from tests.helpers.marking import bam_bytes, mark


def finished(
    runs: list[np.ndarray], header: str, options: MarkOptions | None, target: int, threads: int,
    folder: Path,
) -> tuple[bytes, dict[str, Any]]:  # fmt: skip
    """Return sorted records as the engine gives them, and the counts of duplicates."""
    marking = None if options is None else Marking(options, header)
    with ThreadPoolExecutor(threads) as executor:
        sorter = RecordSorter(SpillFile(folder), executor, threads, 1 << 30)
        for run in runs:
            sorter.add(run_of_bytes(run))
        found = []
        ranges = partial(sorter.finish().ranges, target)
        for one in gathered_ranges(ranges, executor, threads, marking):
            found.append(one.data.tobytes())
            if marking is not None:
                marking.add(one.counts)
    return b"".join(found), {} if marking is None else marking.report("")


@pytest.mark.medium
@pytest.mark.parametrize(
    "options",
    [
        MarkOptions(),
        MarkOptions(supplementary=True, optical_distance=100),
        MarkOptions(remove=True, barcode_tag="RX"),
    ],
)
def test_cuts_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options) -> None:
    rng = np.random.default_rng(5)
    bam = bam_bytes(write_set(rng, 400, Kind(barcodes=True), tmp_path))
    expected = mark(bam, options)
    records = gzip.decompress(expected.bam) if expected.bam[:2] == b"\x1f\x8b" else expected.bam
    records = records[len(bam.head) :]
    for target, threads, reach in ((1, 1, 10_000), (500, 3, 200_000), (1 << 20, 2, 10_000)):
        monkeypatch.setattr(engine, "LARGEST_CLIP", reach)
        found, counts = finished([bam.data], bam.header, options, target, threads, tmp_path)
        assert found == records
        assert counts | {"COMMAND": ""} == expected.counts | {"COMMAND": ""}
