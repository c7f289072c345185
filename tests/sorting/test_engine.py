"""Duplicates and the finished records do not depend on how the sorted order is cut."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

from mapper.errors import InputFormatError, OutputError
from mapper.sorting import engine, output, runs
from mapper.sorting.bam_index import BamIndex
from mapper.sorting.engine import Marking, finished_ranges
from mapper.sorting.options import MarkOptions, SortOptions
from mapper.sorting.output import SortedTarget, open_sorted_output
from mapper.sorting.ranges import RecordRange, sort_pieces
from mapper.sorting.runs import RecordSorter, run_of_bytes
from mapper.sorting.spill_file import SpillFile
from tests.helpers import duplicate_sets
from tests.helpers.duplicate_sets import CONTIGS, Kind, write_set
from tests.helpers.marking import BamBytes, bam_bytes, mark

FAR_ENDS = ("10M4000N10M", "3000H20M", "20M3000H", "2500H10M2000N10M2500H")
"""Of alignments whose ends lie in other ranges than their positions."""


def finished(
    parts: list[np.ndarray], header: str, options: MarkOptions, target: int, threads: int,
    memory: int, folder: Path, knows_clips: bool = True,
) -> tuple[bytes, dict[str, Any]]:  # fmt: skip
    """Return sorted records as the engine gives them, and the counts of duplicates."""
    marking = Marking(options, header)
    with closing(SpillFile(folder)) as file, ThreadPoolExecutor(threads) as executor:
        sorter = RecordSorter(file, executor, threads, memory)
        for part in parts:
            sorter.add(run_of_bytes(part))
        found = []
        ranges = partial(sorter.finish().ranges, target)
        longest = sorter.longest_clip if knows_clips else None
        for one in finished_ranges(ranges, executor, threads, marking, longest):
            found.append(one.data.tobytes())
            assert one.counts is not None
            marking.add(one.counts)
    return b"".join(found), marking.report("")


def shuffled_runs(bam: BamBytes, rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Return the records of a file in any order, in several pieces."""
    ends = np.append(bam.starts[1:], len(bam.data))
    records = [bam.data[a:b] for a, b in zip(bam.starts, ends, strict=True)]
    order = rng.permutation(len(records))
    cuts = [0, *sorted(rng.integers(0, len(records), n - 1).tolist()), len(records)]
    return [
        np.concatenate([np.empty(0, np.uint8), *(records[i] for i in order[a:b])])
        for a, b in pairwise(cuts)
    ]


@pytest.mark.medium
@pytest.mark.parametrize(
    "options",
    [
        MarkOptions(),
        MarkOptions(supplementary=True, optical_distance=100),
        MarkOptions(remove=True, barcode_tag="RX"),
    ],
)
def test_cuts_and_runs_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options):
    """One record a range and all in one; in memory, in the temporary file, and in both."""
    monkeypatch.setattr(duplicate_sets, "_CIGARS", duplicate_sets._CIGARS + FAR_ENDS)
    rng = np.random.default_rng(5)
    bam = bam_bytes(write_set(rng, 400, Kind(barcodes=True), tmp_path))
    parts = shuffled_runs(bam, rng, 5)
    expected = mark(BamBytes(bam.head, bam.header, *sort_pieces(parts)), options)
    for target, threads, reach, memory in (
        (1, 1, None, 1 << 30), (1, 2, 10_000, 1 << 30), (500, 3, 200_000, 1),
        (1 << 20, 2, None, 60_000),
    ):  # fmt: skip
        monkeypatch.setattr(engine, "LARGEST_CLIP", reach)
        found, counts = finished(
            parts, bam.header, options, target, threads, memory, tmp_path, reach is None
        )
        assert found == expected.bam[len(bam.head) :]
        assert counts | {"COMMAND": ""} == expected.counts | {"COMMAND": ""}
        assert counts["DUPLICATE TOTAL"] > 20


@pytest.mark.parametrize(
    ("n", "barcodes", "options", "is_told"),
    [
        (60, False, MarkOptions(barcode_tag="RX"), True),
        (60, False, MarkOptions(barcode_tag="RX", supplementary=True), True),
        (60, True, MarkOptions(barcode_tag="RX"), False),
        (60, True, MarkOptions(barcode_tag="XR"), True),
        (60, False, MarkOptions(), False),
        (0, False, MarkOptions(barcode_tag="RX"), False),
        (60, False, MarkOptions(optical_distance=9), False),
    ],
)
def test_a_tag_of_barcodes_that_no_read_has_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, n: int, barcodes: bool,
    options: MarkOptions, is_told: bool,
) -> None:  # fmt: skip
    """Once a run, and not of the records that only compile."""
    bam = bam_bytes(write_set(np.random.default_rng(3), n, Kind(barcodes=barcodes), tmp_path))
    target = SortedTarget(
        str(tmp_path / "out.bam"), "bam", "", bam.header, ("c1", "c2"), (5000, 5000)
    )
    line = f"a\t0\tc1\t1\t30\t20M\t*\t0\t0\t{'A' * 20}\t{'I' * 20}\n"
    (tmp_path / "x.sam").write_text(CONTIGS + line)
    pysam.view("-b", "-o", str(tmp_path / "x.bam"), str(tmp_path / "x.sam"), catch_stdout=False)
    with (
        ThreadPoolExecutor(2) as executor,
        open_sorted_output(target, SortOptions(None, options), executor, 2, memory=1) as opened,
    ):
        opened.prepare(run_of_bytes(bam_bytes(tmp_path / "x.bam").data))
        opened.append(run_of_bytes(bam.data))
    start = f"barcode_tag={options.barcode_tag!r} changes nothing: no mapped read has this tag"
    assert [message.startswith(start) for message in caplog.messages] == [True] * is_told


def test_a_clip_that_is_looked_back_over_and_one_that_is_too_long(tmp_path: Path):
    """Its duplicate begins as far in front, in a range of its own."""
    longest = engine.LARGEST_CLIP
    for clip in (longest, longest + 1):
        lines = [
            f"a\t0\tc1\t{longest + 2}\t30\t{clip}H20M",
            f"b\t0\tc1\t{longest + 2 - clip}\t30\t20M",
        ]
        text, path = tmp_path / "x.sam", tmp_path / f"{clip}.bam"
        rest = f"*\t0\t0\t{'A' * 20}\t{'I' * 20}"
        header = CONTIGS.replace("LN:5000", "LN:50000")
        text.write_text(header + "".join(f"{line}\t{rest}\n" for line in lines))
        pysam.sort("--no-PG", "-o", str(path), str(text))
        bam = bam_bytes(path)
        run = partial(finished, [bam.data], bam.header, MarkOptions(), 1, 2, 1 << 30, tmp_path)
        if clip > longest:
            with pytest.raises(InputFormatError, match=r"10001 clipped bases .* leave long reads"):
                run(knows_clips=False)
        else:
            assert run(knows_clips=False)[1]["DUPLICATE SINGLE"] == 1
        assert run()[1]["DUPLICATE SINGLE"] == 1


def test_a_deep_place_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ranges go out while later ones lie within the bases that a clip might have."""
    lines = [f"r{i}\t0\tc1\t{1 + i // 10}\t30\t20M" for i in range(2000)]
    rest = f"*\t0\t0\t{'A' * 20}\t{'I' * 20}"
    (tmp_path / "x.sam").write_text(CONTIGS + "".join(f"{line}\t{rest}\n" for line in lines))
    pysam.sort("--no-PG", "-o", str(tmp_path / "x.bam"), str(tmp_path / "x.sam"))
    bam = bam_bytes(tmp_path / "x.bam")
    n_scanned: list[int] = []
    find = engine.find_entries

    def counted(*arguments: Any) -> Any:
        n_scanned.append(1)
        return find(*arguments)

    monkeypatch.setattr(engine, "find_entries", counted)
    monkeypatch.setattr(runs, "SAMPLED", 8)
    for longest, are_held in ((0, False), (None, True)):
        n_scanned.clear()
        with closing(SpillFile(tmp_path)) as file, ThreadPoolExecutor(1) as executor:
            sorter = RecordSorter(file, executor, 1, 1 << 30)
            sorter.add(run_of_bytes(bam.data))
            assert sorter.longest_clip == 0
            ranges = sorter.finish().ranges(1000)
            assert len(ranges) > 100
            next(finished_ranges(
                lambda ranges=ranges: ranges, executor, 1, Marking(MarkOptions(), bam.header),
                longest,
            ))  # fmt: skip
        assert (len(n_scanned) > 100) == are_held


def test_an_error_in_a_range_ends_the_run(tmp_path: Path):
    """The tasks that have begun are waited for, and those that have not are dropped."""
    rng = np.random.default_rng(1)
    bam = bam_bytes(write_set(rng, 60, Kind(), tmp_path))
    data = bam.data.copy()
    broken = int(bam.starts[40])
    data[broken + 16] = 200  # operations of the CIGAR: beyond the record
    with pytest.raises(InputFormatError, match="is damaged"):
        finished([data], bam.header, MarkOptions(), 1, 3, 1 << 30, tmp_path)


@pytest.mark.parametrize("fails", [False, True])
def test_the_temporary_file_shrinks_while_the_output_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
):
    """By tasks that have ended before the file is closed, also where writing fails."""
    bam = bam_bytes(write_set(np.random.default_rng(1), 3000, Kind(), tmp_path))
    target = SortedTarget(
        str(tmp_path / "out.bam"), "bam", "", bam.header, ("c1", "c2"), (5000, 5000)
    )
    monkeypatch.setattr(runs, "BLOCK_BYTES", 300)
    monkeypatch.setattr(output, "RELEASED_RANGES", 1)
    monkeypatch.setattr(output, "range_bytes", lambda *_: 30_000)
    released: list[int] = []
    release = SpillFile.release

    def counted(file: SpillFile, parts: Any) -> None:
        file.fileno()  # still open
        released.append(sum(n_bytes for _, n_bytes in parts))
        release(file, parts)

    monkeypatch.setattr(SpillFile, "release", counted)
    if fails:

        def add(_: BamIndex, part: Any) -> None:
            if len(released) > 3:
                raise OutputError("the disk is full")

        monkeypatch.setattr(BamIndex, "add", add)
    with (
        ThreadPoolExecutor(3) as executor,
        pytest.raises(OutputError, match="disk is full") if fails else nullcontext(),
        open_sorted_output(target, SortOptions(), executor, 3, memory=1) as opened,
    ):
        for part in shuffled_runs(bam, np.random.default_rng(2), 5):
            opened.append(run_of_bytes(part))
    assert len(released) > 3
    assert (tmp_path / "out.bam").exists() != fails
    if not fails:
        assert all(n_bytes > 0 for n_bytes in released)
        with pysam.AlignmentFile(str(tmp_path / "out.bam")) as file:
            found = [(record.reference_id, record.reference_start) for record in file]
        assert len(found) == len(bam.starts)
        assert found == sorted(found, key=lambda place: (place[0] < 0, place))


def test_records_that_get_lost_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the number that came in; nothing gets a name."""
    bam = bam_bytes(write_set(np.random.default_rng(1), 60, Kind(), tmp_path))
    target = SortedTarget(
        str(tmp_path / "out.bam"), "bam", "", bam.header, ("c1", "c2"), (5000, 5000)
    )
    monkeypatch.setattr(
        runs.SortedRuns, "ranges", lambda *_: [RecordRange(0, lambda: sort_pieces([]))]
    )
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(OutputError, match=r"records came in and 0 would go out"),
        open_sorted_output(target, SortOptions(), executor, 1, memory=1 << 20) as opened,
    ):
        opened.append(run_of_bytes(bam.data))
    assert not list(tmp_path.glob("*out.bam*"))
