"""Distance and path of long strings: slices, divide and conquer, checkpoints."""

from __future__ import annotations

import errno
import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mapper.align import single
from mapper.align.edit.api import edit_distance
from mapper.align.long import api
from mapper.align.long import search as long_path
from mapper.align.long import search as long_search
from mapper.align.long.api import long_edit_distance
from mapper.align.long.search import Checkpoint, Part, Work
from mapper.errors import OutputError, UsageError
from mapper.parallel.signals import Terminated
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import adversarial_pairs, edited, fasta_sequence, random_pairs
from tests.naive.pairwise import RULES, penalty_of


@pytest.fixture(autouse=True)
def in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search short strings, too, as long ones are: not in one call of compiled code."""
    monkeypatch.setattr(single, "MOST_LETTERS", -1)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every search take many slices, and every path many parts."""
    monkeypatch.setattr(long_search, "SLICE_CELLS", 300)
    monkeypatch.setattr(long_path, "_WHOLE_PART", 40)


@pytest.fixture(scope="module")
def pair() -> tuple[str, str]:
    rng = np.random.default_rng(8)
    ref = random_letters(rng, 3000)
    return edited(rng, ref, 0.2), ref


def check(query: str, ref: str, **options) -> None:
    expected = edit_distance([query], [ref], symbols=options.get("symbols", "dna")).score[0]
    assert long_edit_distance(query, ref, **options).distance == expected
    found = long_edit_distance(query, ref, path=True, **options)
    assert found.distance == expected
    cigar = "" if found.cigar == "*" else found.cigar
    assert cigar is not None
    assert penalty_of(cigar, query, ref, RULES[options.get("symbols", "dna")]) == expected


def test_short_strings_in_one_call_are_aligned_as_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(9)
    pairs = [("", ""), ("", "ACG"), ("ACGTN", "ACNTN"), *random_pairs(rng, 30, 80)]
    ref = random_letters(rng, 2500)
    pairs += [(edited(rng, ref, rate), ref) for rate in (0.001, 0.05, 0.2)]
    for (query, ref), symbols, limit in itertools.product(pairs, RULES, (None, 4)):
        found = []
        for most in (-1, 1 << 14):
            monkeypatch.setattr(single, "MOST_LETTERS", most)
            one = long_edit_distance(query, ref, path=True, symbols=symbols, max_distance=limit)
            alone = long_edit_distance(query, ref, symbols=symbols, max_distance=limit)
            assert alone == (one.distance, None)
            found.append((one.distance, one.cigar))
        assert found[0] == found[1], (query, ref, symbols, limit)


@pytest.mark.medium
def test_equals_the_engine_of_pairs(small_steps: None) -> None:
    rng = np.random.default_rng(3)
    for query, ref in [*random_pairs(rng, 40, 60), *adversarial_pairs(90)]:
        check(query, ref, threads=1)
    check("abcde\xe9".replace("\xe9", "e"), "abXcde", symbols="bytes", threads=1)


def test_threads_do_not_matter(small_steps: None, pair: tuple[str, str]) -> None:
    one = long_edit_distance(*pair, path=True, threads=1)
    for _ in range(3):
        many = long_edit_distance(*pair, path=True, threads=4)
        assert one.distance == many.distance
        assert one.cigar == many.cigar


def test_limit(pair: tuple[str, str]) -> None:
    distance = long_edit_distance(*pair).distance
    assert distance is not None
    for path in (False, True):
        assert long_edit_distance(*pair, path=path, max_distance=distance).distance == distance
        over = long_edit_distance(*pair, path=path, max_distance=distance - 1)
        assert (over.distance, over.cigar) == (None, None)


def test_progress_rises_to_the_distance(small_steps: None, pair: tuple[str, str]) -> None:
    told: list[tuple[int, int]] = []
    found = long_edit_distance(
        *pair, path=True, threads=2, progress=lambda placed, edits: told.append((placed, edits))
    )
    assert [p for p, _ in told] == sorted(p for p, _ in told)
    assert told[0][1] < told[-1][1] == found.distance == told[-1][0]


def test_slices_are_bounded_from_the_first_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress, checkpoints and signals come between slices."""
    monkeypatch.setattr(long_search, "SLICE_CELLS", 4000)
    rng = np.random.default_rng(28)
    query, ref = random_letters(rng, 1500), random_letters(rng, 1500)
    told: list[int] = []
    long_edit_distance(query, ref, progress=lambda placed, edits: told.append(edits))
    assert len(told) > 20
    for done, edits in itertools.pairwise([0, *told]):
        assert sum(range(done, edits + 1)) <= 4000 + edits  # cells of rows, e + 1 in row e at most


_HANDLED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell's background jobs, and what they start, ignore SIGINT."""


def unrelated_files(rng: np.random.Generator, tmp_path: Path) -> list[str]:
    """Write two sequences; return the words of a command that would compare them for seconds."""
    for name in ("a.fa", "b.fa"):
        (tmp_path / name).write_text(f">{name}\n{random_letters(rng, 400_000)}\n")
    files = [str(tmp_path / "a.fa"), str(tmp_path / "b.fa")]
    return ["distance", *files, "--device", "cpu", "-t", "1", "--max-distance", "60000",
            "--checkpoint", str(tmp_path / "state")]  # fmt: skip


@pytest.mark.medium
def test_an_interrupt_ends_a_long_search(tmp_path: Path) -> None:
    words = unrelated_files(np.random.default_rng(29), tmp_path)
    code = _HANDLED + "from mapper.align.long import search; search.SECONDS = 0\n"
    code += f"from mapper.cli.main import main; raise SystemExit(main({words!r}))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
    ) as process:
        while not (tmp_path / "state").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors.endswith("fmwave: error: interrupted\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.fa", "b.fa", "state"]


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_the_state(number: signal.Signals, tmp_path: Path) -> None:
    """Before the time of the next regular save."""
    words = unrelated_files(np.random.default_rng(30), tmp_path)
    code = _HANDLED + (
        "import os, time\n"
        "from mapper.cli.main import main\n"
        "from mapper.align.long.search import Search\n"
        "whole_slice, n_slices = Search.slice, 0\n"
        "def slice_with_signal(self):\n"
        "    global n_slices\n"
        "    n_slices += 1\n"
        "    status = whole_slice(self)\n"
        "    if n_slices == 3:\n"
        f"        os.kill(os.getpid(), {number})\n"
        "        time.sleep(0.2)\n"  # the signal comes first
        "    return status\n"
        "Search.slice = slice_with_signal\n"
        f"raise SystemExit(main({words!r}))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    errors = process.stderr
    assert process.returncode == 128 + number, errors
    assert f"the state is saved in {tmp_path / 'state'}" in errors
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.fa", "b.fa", "state"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Terminated])
@pytest.mark.parametrize("stopped_at", [2, 5, 15])
def test_a_stopped_run_resumes(
    stop: type[BaseException], stopped_at: int, small_steps: None, pair: tuple[str, str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    whole = long_edit_distance(*pair, path=True)
    file = tmp_path / "state"
    n_told = 0

    def halt(placed: int, edits: int) -> None:
        nonlocal n_told
        n_told += 1
        if n_told == stopped_at:
            raise stop

    with pytest.raises(stop):
        long_edit_distance(*pair, path=True, threads=2, checkpoint=file, progress=halt)
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    sliced = []
    search = long_search.Search.slice
    monkeypatch.setattr(long_search.Search, "slice", lambda self: sliced.append(1) or search(self))
    resumed = long_edit_distance(*pair, path=True, threads=2, checkpoint=file)
    n_resumed = len(sliced)
    assert (resumed.distance, resumed.cigar) == (whole.distance, whole.cigar)
    assert list(tmp_path.iterdir()) == []
    long_edit_distance(*pair, path=True, threads=2)
    assert n_resumed < len(sliced) - n_resumed


def test_a_stop_at_any_step_of_the_path_loses_nothing(
    small_steps: None, pair: tuple[str, str], tmp_path: Path
) -> None:
    """A run stopped after every part ends with the same path."""
    whole = long_edit_distance(*pair, path=True)
    file = tmp_path / "state"

    def halt(placed: int, edits: int) -> None:
        if placed:
            raise KeyboardInterrupt

    n_stops, found = 0, None
    while found is None:
        try:
            found = long_edit_distance(*pair, path=True, threads=1, checkpoint=file, progress=halt)
        except KeyboardInterrupt:
            n_stops += 1
    assert n_stops > 10
    assert (found.distance, found.cigar) == (whole.distance, whole.cigar)


def test_a_part_done_and_still_pending_counts_once() -> None:
    """A signal between two statements can leave such a state."""
    done, left = Part(0, 0, 4, 4, 1), Part(4, 4, 4, 4, 2)
    work = Work([done, left], {(0, 0): np.array([65], np.uint32)}, None)
    assert long_path._consistent(work).pending == [left]


def test_a_state_that_cannot_be_saved_does_not_hide_the_signal(
    small_steps: None, pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def full(*args: object, **arrays: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def halt(placed: int, edits: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(KeyboardInterrupt):
        long_edit_distance(*pair, checkpoint=tmp_path / "state", progress=halt)
    assert "state: writing failed: No space left on device" in caplog.text
    with pytest.raises(OutputError, match="No space left on device; free some space"):
        long_edit_distance(*pair, checkpoint=tmp_path / "state", checkpoint_seconds=0)
    assert list(tmp_path.iterdir()) == []


class _PowerCutError(Exception):
    pass


@pytest.mark.medium
@pytest.mark.parametrize("cut_after", [1, 5, 15])
def test_an_interrupted_run_resumes(
    cut_after: int, small_steps: None, pair: tuple[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    whole = long_edit_distance(*pair, path=True)
    file = tmp_path / "state"
    n_told = 0

    def cut(placed: int, edits: int) -> None:
        nonlocal n_told
        n_told += 1
        if n_told > cut_after:
            raise _PowerCutError

    options = {"path": True, "threads": 2, "checkpoint": file, "checkpoint_seconds": 0}
    with pytest.raises(_PowerCutError):
        long_edit_distance(*pair, progress=cut, **options)  # type: ignore[arg-type]
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    sliced = []
    search = long_search.Search.slice
    monkeypatch.setattr(long_search.Search, "slice", lambda self: sliced.append(1) or search(self))
    resumed = long_edit_distance(*pair, **options)  # type: ignore[arg-type]
    n_resumed = len(sliced)
    assert (resumed.distance, resumed.cigar) == (whole.distance, whole.cigar)
    assert list(tmp_path.iterdir()) == []  # no file is left
    long_edit_distance(*pair, path=True, threads=2)
    assert n_resumed < len(sliced) - n_resumed  # work before the cut is not repeated


def test_a_checkpoint_of_another_problem_is_refused(
    small_steps: None, pair: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "state"

    def cut(placed: int, edits: int) -> None:
        if edits > 300:
            raise _PowerCutError

    with pytest.raises(_PowerCutError):
        long_edit_distance(*pair, progress=cut, checkpoint=file, checkpoint_seconds=0)
    with pytest.raises(UsageError, match="other sequences or options"):
        long_edit_distance(pair[0], pair[1] + "A", checkpoint=file)
    with pytest.raises(UsageError, match="other sequences or options"):
        long_edit_distance(*pair, path=True, checkpoint=file)
    for damaged in (file.read_bytes()[:100], b">q\nACGT\n"):
        file.write_bytes(damaged)
        with pytest.raises(UsageError, match="is no checkpoint; remove it"):
            long_edit_distance(*pair, checkpoint=file)
    assert Checkpoint(None, "", 0).load() is None


def test_invalid_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (-1, 0.5):
        with pytest.raises(UsageError, match=f"max_distance {limit}"):
            long_edit_distance("A", "A", max_distance=limit)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not ASCII"):
        long_edit_distance("é", "A")
    monkeypatch.setattr(api, "MAX_PATH_LENGTH", 10)
    with pytest.raises(UsageError, match="at most 10"):
        long_edit_distance("A" * 11, "A", path=True)
    assert long_edit_distance("A" * 11, "A").distance == 10


@pytest.mark.medium
def test_phage_at_80_percent() -> None:
    query, ref = fasta_sequence("edlib_phage.fa.gz"), fasta_sequence("edlib_phage_mut80.fa.gz")
    found = long_edit_distance(query, ref, path=True, threads=2)
    assert found.distance == 20333
    assert found.cigar is not None
    assert penalty_of(found.cigar, query, ref, RULES["dna"]) == 20333
