"""Very long strings on a device, or in the simulator: results equal those of the CPU."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest
from numba import types

from mapper.align.edit.wavefront import WIDTH, next_strip
from mapper.align.long import search
from mapper.align.long import search as long_search
from mapper.align.long.api import long_edit_distance
from mapper.align.matches import Strings
from mapper.align.packing import pack_pairs
from mapper.align.pairs import batch_of
from mapper.errors import UsageError
from mapper.jit.accelerate import driver
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import adversarial_pairs, edited, random_pairs
from tests.naive.pairwise import RULES, penalty_of

SIMULATED = bool(numba.config.ENABLE_CUDASIM)
NULL = -(2**30)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch, device: str) -> str:
    """Let the device take over early, with little room, and divide small parts too."""
    from mapper.align.long import cuda

    monkeypatch.setattr(cuda, "FIRST_ROWS", 3)
    monkeypatch.setattr(cuda, "FIRST_REACH", 5)
    monkeypatch.setattr(cuda, "_MIN_BATCHES", 2)
    monkeypatch.setattr(cuda, "SLICE_CELLS", 1500)
    monkeypatch.setattr(search, "_WHOLE_PART", 12 if SIMULATED else 40)
    return device


def in_parts(*_: int) -> None:
    """Ask for progress, so that a short pair, too, is divided where the fixture `early` says."""


def check(query: str, ref: str, device: str, **options) -> None:
    cpu = long_edit_distance(
        query, ref, path=True, device="cpu", threads=1, progress=in_parts, **options
    )
    found = long_edit_distance(query, ref, path=True, device=device, threads=2, **options)
    assert (cpu.distance, cpu.cigar) == (found.distance, found.cigar)
    alone = long_edit_distance(query, ref, device=device, **options)
    assert alone.distance == cpu.distance


@driver
def _advance(strings, k, before, strip, behind):
    cells = (
        strip[0], strip[1], strip[2], strip[3], strip[4], strip[5], strip[6], strip[7],
    )  # fmt: skip
    return next_strip(strings, k, before, cells, behind)


@pytest.mark.parametrize("symbols", ["dna", "iupac", "bytes"])
def test_a_strip_advances_as_its_definition(symbols: str) -> None:
    """Cells of all kinds, null cells and cells at an end, on every diagonal of small pairs."""
    rng = np.random.default_rng(12)
    for _ in range(60):
        ref = random_letters(rng, int(rng.integers(1, 300)), "ACGTN"[: 4 + int(rng.integers(2))])
        query = edited(rng, ref, float(rng.choice([0, 0.005, 0.3]))) or "A"
        packed = pack_pairs(batch_of([query], [ref]), symbols)
        shift = int(packed.shift[0])
        words = [
            np.concatenate([w, np.zeros(3, np.uint64)]).view(np.uint32)
            for w in (packed.query_words, packed.ref_words)
        ]
        n, m = len(query), len(ref)
        strings = Strings(
            words[0], words[1], np.uint32(64 >> shift), np.uint32(64 >> shift), np.int32(n),
            np.int32(m), np.int32(shift),
        )  # fmt: skip
        k = int(rng.integers(-n - 3, m + 1 - WIDTH + 4))
        cells = []
        for i in range(k - 1, k + WIDTH + 1):
            lowest, highest = max(0, i), min(n + i, m)
            exists = highest >= lowest and rng.random() < 0.8
            cells.append(int(rng.integers(lowest, highest + 1)) if exists else NULL)
        expected = []
        for i in range(WIDTH):
            here = k + i
            h = max(cells[i] + 1, cells[i + 1] + 1, cells[i + 2])
            h = min(h, n + here, m)
            while 0 <= h < min(n + here, m) and h - here >= 0 and (
                RULES[symbols](query[h - here], ref[h])
            ):  # fmt: skip
                h += 1
            expected.append(h)
        numbers = np.array(cells, np.int32)
        found = _advance(strings, np.int32(k), numbers[0], numbers[1:9], numbers[9])
        for i, (a, b) in enumerate(zip(expected, found, strict=True)):
            # Cells on no diagonal of the pair, and null cells, stay negative or unused.
            if -n <= k + i <= m and a >= max(0, k + i):
                assert a == b
            elif a < 0:
                assert b < 0


@pytest.mark.gpu
def test_equals_the_cpu(early: str) -> None:
    rng = np.random.default_rng(21)
    for query, ref in random_pairs(rng, 8 if SIMULATED else 60, 40 if SIMULATED else 2000):
        check(query, ref, early)
    for query, ref in adversarial_pairs(20 if SIMULATED else 700)[:: 11 if SIMULATED else 1]:
        check(query, ref, early)


@pytest.mark.gpu
@pytest.mark.parametrize("symbols", ["iupac", "bytes"])
def test_other_symbols_equal_the_cpu(early: str, symbols: str) -> None:
    rng = np.random.default_rng(22)
    for query, ref in random_pairs(rng, 4 if SIMULATED else 40, 30 if SIMULATED else 900, "ACGTN"):
        check(query, ref, early, symbols=symbols)


@pytest.mark.gpu
def test_limit(early: str) -> None:
    rng = np.random.default_rng(23)
    ref = random_letters(rng, 60 if SIMULATED else 3000)
    query = edited(rng, ref, 0.4)
    distance = long_edit_distance(query, ref, device="cpu").distance
    assert distance is not None
    check(query, ref, early, max_distance=distance)
    for less in (1, 2, distance // 2):
        check(query, ref, early, max_distance=distance - less)


@pytest.mark.gpu
def test_long_pairs_equal_the_cpu(device: str) -> None:
    """With default sizes: several launches, growing rows, many tiles."""
    if SIMULATED:
        pytest.skip("too long for the simulator")
    rng = np.random.default_rng(24)
    for length, rate in ((100_000, 0.01), (60_000, 0.2), (40_000, 0.9)):
        ref = random_letters(rng, length)
        check(edited(rng, ref, rate), ref, device)
    check(random_letters(rng, 30_000), random_letters(rng, 60_000), device)


class _PowerCutError(Exception):
    pass


@pytest.mark.gpu
@pytest.mark.parametrize("first,second", [("cuda:0", "cpu"), ("cpu", "cuda:0")])
def test_an_interrupted_run_resumes_on_any_backend(
    first: str, second: str, early: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_search, "SLICE_CELLS", 300)
    rng = np.random.default_rng(25)
    ref = random_letters(rng, 100 if SIMULATED else 3000)
    query = edited(rng, ref, 0.4)
    whole = long_edit_distance(query, ref, path=True, device="cpu", progress=in_parts)
    for cut_after in (1, 3):
        n_told = 0

        def cut(placed: int, edits: int) -> None:
            nonlocal n_told
            n_told += 1
            if n_told > cut_after:  # noqa: B023
                raise _PowerCutError

        options = {"path": True, "checkpoint": tmp_path / "state", "checkpoint_seconds": 0}
        with pytest.raises(_PowerCutError):
            long_edit_distance(query, ref, device=first, progress=cut, **options)  # type: ignore[arg-type]
        resumed = long_edit_distance(query, ref, device=second, **options)  # type: ignore[arg-type]
        assert (resumed.distance, resumed.cigar) == (whole.distance, whole.cigar)


@pytest.mark.gpu
def test_paths_replay(early: str) -> None:
    rng = np.random.default_rng(26)
    ref = random_letters(rng, 70 if SIMULATED else 5000)
    query = edited(rng, ref, 0.3)
    found = long_edit_distance(query, ref, path=True, device=early)
    assert found.cigar is not None
    assert penalty_of(found.cigar, query, ref, RULES["dna"]) == found.distance


def test_a_missing_device_is_refused() -> None:
    with pytest.raises(UsageError, match="device='gpu'"):
        long_edit_distance("A", "A", device="gpu")


@pytest.mark.medium
def test_kernels_compile_for_hopper_without_spills() -> None:
    require_compiler()
    from mapper.align.long.cuda import BLOCK, BLOCKS_PER_SM, Sides, meet_kernel

    word = np.zeros(1, np.uint32)
    sides = type_of(Sides(word, word, word, word, 1, 1, 1))
    arguments = [sides, array(np.int32, 3), types.int64, array(np.int64), types.int64]
    machine = compile_offline(meet_kernel, arguments)
    # The library of grid synchronisation is linked in; look at the kernel only.
    assert "cudaCGSynchronize" in machine.sass
    kernel = machine.part("meet_kernel")
    assert kernel.spills == 0
    assert kernel.registers <= 65536 // (BLOCK * BLOCKS_PER_SM)
    assert kernel.count("SHFL") >= 4
    assert kernel.count("POPC") >= 8  # a first comparison a cell, by one instruction
