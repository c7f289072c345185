"""Adaptive bands on a CUDA device, by groups of lanes: the same as the CPU, cut flags too."""

from __future__ import annotations

import sys

import numba
import numpy as np
import pytest
from numba import types

from mapper.align.affine.api import align_affine
from mapper.align.affine.wavefront import AffinePenalties, Band
from mapper.align.result import HEURISTIC, OK, OVER_LIMIT
from tests.align.cuda.test_stream import check
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs

SIMULATED = bool(numba.config.ENABLE_CUDASIM)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make work space anew for each call; return how many pairs each call left to the CPU."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from mapper.align.cuda import retry, stream

    monkeypatch.setattr(retry, "_SPACES", {})
    counts = []
    streamed_pass = stream.streamed_pass

    def noted(*args):
        found = streamed_pass(*args)
        counts.append(found.n_unsolved)
        retry._SPACES.clear()
        return found

    monkeypatch.setattr(stream, "streamed_pass", noted)
    return counts


def short_pairs(rng: np.random.Generator) -> list[tuple[str, str]]:
    """Pairs of few and many edits, with long gaps, and of which one side is much shorter."""
    sizes = [(30, 0.1), (40, 0.4)] if SIMULATED else [(150, 0.05), (150, 0.1), (300, 0.2)] * 60
    pairs = []
    for length, rate in sizes:
        ref = random_letters(rng, length)
        pairs.append((edited(rng, ref, rate), ref))
    ref = pairs[0][1]
    pairs += [(ref[:5] + ref[-5:], ref), (ref, ref[: len(ref) // 2]), ("", ref[:9]), (ref, ref)]
    return pairs + random_pairs(rng, 4 if SIMULATED else 300, 25 if SIMULATED else 90)


@pytest.mark.slow_simulated
@pytest.mark.gpu
@pytest.mark.parametrize("lanes", [8] if SIMULATED else [8, 16, 32])
@pytest.mark.parametrize("penalties", [(4, 6, 2), (1, 0, 1), (3, 1, 4)])
def test_groups_of_all_sizes_equal_the_cpu(
    penalties, lanes: int, left, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapper.align.affine import cuda_plan
    from mapper.align.cuda import worklist
    from mapper.align.cuda.launch_plan import GroupLaunch

    monkeypatch.setattr(worklist, "multiprocessors", lambda: 1)
    monkeypatch.setattr(cuda_plan, "MOST_BAND_BLOCKS", 1)  # takes pairs again and again
    monkeypatch.setattr(cuda_plan, "BAND_LAUNCHES", (GroupLaunch(120, lanes),))
    pairs = short_pairs(np.random.default_rng(41))
    bands = ((3, 2),) if SIMULATED else ((3, 2), (2, 1), (32, 8), (33, 1), (90, 20))
    for band in bands:
        check(pairs, device, align_affine, penalties=penalties, band=band)
    check(pairs, device, align_affine, penalties=penalties, band=(8, 4), max_penalty=24)
    assert max(left) < len(pairs) // 2


@pytest.mark.slow_simulated
@pytest.mark.gpu
def test_what_a_rung_has_no_room_for_goes_to_the_last(
    left, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapper.align.affine import cuda_plan
    from mapper.align.cuda import launch_plan
    from mapper.align.cuda.launch_plan import GroupLaunch

    pairs = short_pairs(np.random.default_rng(42))
    attempts = [GroupLaunch(bound, 8) for bound in (4, 6, 10)]
    for n_rungs in (1, 3):
        monkeypatch.setattr(cuda_plan, "BAND_LAUNCHES", tuple(attempts[:n_rungs]))
        check(pairs, device, align_affine, band=(8, 4))
    monkeypatch.setattr(launch_plan, "BLOCKS_FROM", (0, 10**6))  # these begin with the second
    check(pairs, device, align_affine, band=(8, 4))
    one, _, last, _, also_last, _ = left  # two calls each: without paths, and with
    assert 0 < last == also_last < one < len(pairs)


@pytest.mark.gpu
@pytest.mark.parametrize("length", [600, 2500])
def test_long_pairs_equal_the_cpu(length: int, left, device: str) -> None:
    if SIMULATED:
        pytest.skip("the simulator takes too long for them")
    rng = np.random.default_rng(44)
    pairs = []
    for rate in np.repeat([0.02, 0.1, 0.2, 0.5], 30):
        ref = random_letters(rng, int(rng.integers(length, 2 * length)))
        pairs.append((edited(rng, ref, rate), ref))
    check(pairs, device, align_affine, band=(32, 8))
    assert max(left) <= len(pairs) // 10


@pytest.mark.gpu
@pytest.mark.parametrize("width", [3000, 9000])
def test_wide_bands_equal_the_cpu(width: int, left, device: str) -> None:
    """A warp with most of a block's shared memory, and a thread a pair where that is too small."""
    from mapper.align.affine.cuda_rows import band_shape
    from mapper.align.cuda.cooperative import most_shared_bytes

    shape = band_shape(AffinePenalties(2, 3, 1), Band(width, 1), 220, 8)
    assert (shape.shared_bytes <= most_shared_bytes()) == (width == 3000)
    pairs = short_pairs(np.random.default_rng(45))
    if SIMULATED:
        pairs = pairs[::3]
    check(pairs, device, align_affine, band=(width, 1))
    assert max(left) < len(pairs)


@pytest.mark.slow_simulated
@pytest.mark.gpu
def test_cut_over_the_limit_and_whole(left, device: str) -> None:
    """A pair that comes out above the limit is only known to be above it if nothing was cut off."""
    rng = np.random.default_rng(43)
    ref = random_letters(rng, 40)
    pairs = [(edited(rng, ref, 0.05), ref), (random_letters(rng, 40), ref), (ref[20:], ref)]
    found = align_affine(
        [q for q, _ in pairs], [r for _, r in pairs], band=(4, 2), max_penalty=70, cigar=True,
        device=device,
    )  # fmt: skip
    assert found.status.tolist() == [HEURISTIC, OVER_LIMIT, HEURISTIC]
    assert left == [1]
    check(pairs, device, align_affine, band=(4, 2), max_penalty=70)
    check(pairs, device, align_affine, band=(100, 2), max_penalty=70)
    found = align_affine(
        [q for q, _ in pairs],
        [r for _, r in pairs],
        band=(100, 2),
        max_penalty=70,
        device=device,
        cigar=True,
    )
    assert found.status.tolist() == [OK, OVER_LIMIT, OK]
    assert left[-1] == 0


@pytest.mark.parametrize(
    "penalties", [(2, 3, 1), (1, 0, 1), (3, 1, 4), (30, 60, 1), (255, 255, 255)]
)
@pytest.mark.parametrize("band", [(2, 1), (32, 8), (100, 25), (1000, 8)])
def test_shapes_hold_what_a_band_needs(penalties, band) -> None:
    require_compiler()
    from mapper.align.affine.cuda_rows import GROUP_BLOCK, WARP, band_shape
    from mapper.cuda.api import SHARED_BYTES

    for lanes in (8, 32):
        shape = band_shape(AffinePenalties(*penalties), Band(*band), 220, lanes)
        given = 1 << shape.log_lanes
        assert lanes <= given <= WARP
        # Whole warps, and no more than a block has.
        assert shape.groups % (WARP // given) == 0 < shape.groups * given <= GROUP_BLOCK
        assert shape.shared_bytes <= SHARED_BYTES or shape.groups == WARP // given
        assert shape.width >= band[0] + 2 * (band[1] // penalties[2])
        assert shape.width & (shape.width - 1) == 0
        rows = shape.n_match + 2 * shape.n_gap
        assert 2 * rows * shape.width + 4 * (3 + shape.n_match) <= 4 * shape.stride


@pytest.mark.medium
def test_the_kernel_compiles_for_hopper_without_spills() -> None:
    require_compiler()
    from mapper.align.affine import cuda_kernels as band
    from mapper.align.affine import cuda_rows as room
    from mapper.align.cuda import kernels as flat
    from mapper.align.cuda import worklist as lists

    number, u32, byte = np.zeros(1, np.int64), np.zeros(1, np.uint32), np.zeros(1, np.int8)
    i32 = np.zeros(1, np.int32)
    staged, i64 = array(np.uint64), types.int64
    out = type_of(flat.ChunkResults(i32, byte, i32, u32, u32, np.zeros((1, 1), np.int64)))
    penalties, width = AffinePenalties(2, 3, 1), Band(32, 8)
    machine = compile_offline(
        band.band_affine_kernel,
        [
            staged, i64, type_of(penalties), i64, i64, type_of(width),
            type_of(room.band_shape(penalties, width, 220, 8)), i64,
            type_of(room.SearchSpace(np.zeros(1, np.uint8), i32, u32, number)),
            type_of(lists.Worklist(i32, i32)), i64, out,
        ],
    )  # fmt: skip
    assert machine.spills == 0
    assert machine.wide_share <= 0.15  # that counts in 64 bits: paths, and addresses
    # Half of the threads that a multiprocessor can hold; of Python 3.14's bytecode numba makes code
    # that takes more.
    assert machine.registers <= (64 if sys.version_info < (3, 14) else 72)
    assert machine.count("VOTE") >= 2  # a warp stays in step
