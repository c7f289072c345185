"""Long pairs on a device, a block of threads each: results of the CPU, without its help."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba import types

from mapper.align.affine.api import align_affine
from mapper.align.affine.wavefront import AffinePenalties
from mapper.align.edit.wavefront import Rows
from mapper.align.result import HEURISTIC
from tests.align.cuda.test_stream import check
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs

SIMULATED = bool(numba.config.ENABLE_CUDASIM)


@pytest.fixture
def by_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Send chunks of all lengths to block kernels; return the unsolved pairs of each batch."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from mapper.align.affine import cuda_plan as affine_plan
    from mapper.align.cuda import launch_plan, retry, stream
    from mapper.align.cuda.launch_plan import GroupLaunch
    from mapper.align.edit import cuda_plan as edit_plan

    monkeypatch.setattr(retry, "_SPACES", {})  # kept workspaces suit other lengths
    monkeypatch.setattr(launch_plan, "BLOCKS_FROM", (0, 0))
    monkeypatch.setattr(affine_plan, "BLOCK_WIDTHS", (16, 64) if SIMULATED else (128, 2048))
    monkeypatch.setattr(edit_plan, "EDIT_BLOCK_WIDTHS", (64, 128) if SIMULATED else (2048, 8192))
    monkeypatch.setattr(affine_plan, "GROUP_LAUNCHES", (GroupLaunch(6, 8),))
    if SIMULATED:  # several pairs at a time
        monkeypatch.setattr(affine_plan, "BAND_LAUNCHES", (GroupLaunch(2**14, 8),))
    monkeypatch.setattr(edit_plan, "EDIT_GROUPS", (GroupLaunch(9, 8),))
    unsolved = []
    streamed_pass = stream.streamed_pass

    def noted(*args):
        found = streamed_pass(*args)
        unsolved.append(found.n_unsolved)
        return found

    monkeypatch.setattr(stream, "streamed_pass", noted)
    return unsolved


def long_pairs(rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return pairs of all penalties up to more than the block kernels of the test can hold."""
    if SIMULATED:
        sizes = [(30, 0.1), (36, 0.5)]
    else:
        sizes = [(300, 0.1), (700, 0.3), (2500, 0.1), (10_000, 0.03), (10_000, 0.05), (9000, 0.12)]
        sizes *= 5
    pairs = []
    for length, rate in sizes:
        ref = random_letters(rng, length)
        pairs.append((edited(rng, ref, rate), ref))
    gone = len(pairs[1][1]) // 3
    pairs.append((pairs[1][1][gone:], pairs[1][1]))  # one long gap at an end
    pairs.append((pairs[0][0][:9], ""))
    return pairs + random_pairs(rng, 2 if SIMULATED else 100, 30 if SIMULATED else 200)


@pytest.mark.slow_simulated
@pytest.mark.gpu
@pytest.mark.parametrize("penalties", [(4, 6, 2), (3, 1, 4)])
def test_exact_alignment_equals_the_cpu(penalties, by_blocks, device: str) -> None:
    pairs = long_pairs(np.random.default_rng(31))
    check(pairs, device, align_affine, penalties=penalties)
    assert max(by_blocks) < len(pairs) // 2
    check(pairs, device, align_affine, penalties=penalties, max_penalty=44)
    assert by_blocks[-1] <= by_blocks[0]


@pytest.mark.gpu
def test_edit_distance_equals_the_cpu(by_blocks, device: str) -> None:
    pairs = long_pairs(np.random.default_rng(35))
    check(pairs, device)
    assert max(by_blocks) < len(pairs) // 2
    check(pairs, device, max_distance=12)
    assert by_blocks[-1] <= by_blocks[0]


@pytest.mark.gpu
@pytest.mark.parametrize("blocks_from", [0, 10**6], ids=["blocks", "groups"])
def test_pairs_that_bit_vectors_cannot_solve_are_passed_on(
    blocks_from: int, by_blocks, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too long references, and too many edits, with and without block kernels."""
    from mapper.align.cuda import launch_plan
    from mapper.align.cuda.launch_plan import GroupLaunch
    from mapper.align.edit import cuda_plan

    monkeypatch.setattr(launch_plan, "BLOCKS_FROM", (blocks_from, 10**6))
    monkeypatch.setattr(cuda_plan, "VECTOR_COLUMNS", (40, 40))
    monkeypatch.setattr(cuda_plan, "VECTOR_WIDTHS", (32,))
    monkeypatch.setattr(cuda_plan, "EDIT_BLOCK_WIDTHS", (128, 256))
    attempts = GroupLaunch(12, 8), GroupLaunch(64, 32)
    monkeypatch.setattr(cuda_plan, "EDIT_GROUPS", attempts)
    rng = np.random.default_rng(36)
    pairs = []
    for _ in range(2 if SIMULATED else 200):
        ref = random_letters(rng, int(rng.integers(50, 60)))
        pairs += [(edited(rng, ref, 0.2), ref), (edited(rng, ref[:39], 0.3), ref[:39])]
        pairs.append(("A" * 38, "C" * 39))
    check(pairs, device)
    assert by_blocks == [len(pairs) // 3 if blocks_from else 0] * 2


@pytest.mark.gpu
def test_every_pair_that_fits_is_solved(by_blocks, device: str) -> None:
    rng = np.random.default_rng(32)
    length = 40 if SIMULATED else 10_000
    n = 3 if SIMULATED else 9
    pairs = [(edited(rng, r, 0.05), r) for r in (random_letters(rng, length) for _ in range(n))]
    check(pairs, device, align_affine)
    check(pairs, device, align_affine, band=(32, 8))
    check(pairs, device)
    assert by_blocks == [0] * 6


@pytest.mark.slow_simulated
@pytest.mark.gpu
@pytest.mark.parametrize("penalties", [(4, 6, 2), (3, 1, 4)])
def test_bands_cut_the_same(penalties, by_blocks, device: str) -> None:
    pairs = long_pairs(np.random.default_rng(33))
    for band, limit in (((4, 1), None), ((9, 3), 30)):
        check(pairs, device, align_affine, penalties=penalties, band=band, max_penalty=limit)
    found = align_affine(
        [q for q, _ in pairs], [r for _, r in pairs], penalties=penalties, band=(4, 1),
        device=device, cigar=True
    )  # fmt: skip
    assert (found.status == HEURISTIC).any()
    assert max(by_blocks) < len(pairs) // 2


@pytest.mark.slow_simulated
@pytest.mark.gpu
def test_pairs_without_memory_for_paths_are_unsolved(
    by_blocks, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapper.align.affine import cuda_plan
    from mapper.align.cuda import stream
    from mapper.align.cuda.launch_plan import GroupLaunch

    monkeypatch.setattr(stream, "LONG_OPS_A_WORD", 1)
    monkeypatch.setattr(cuda_plan.AffinePlan, "slot", 4)
    monkeypatch.setattr(cuda_plan, "GROUP_LAUNCHES", (GroupLaunch(1, 8),))
    rng = np.random.default_rng(34)
    n = 6 if SIMULATED else 60
    pairs = [(edited(rng, r, 0.2), r) for r in (random_letters(rng, 60) for _ in range(n))]
    check(pairs, device, align_affine)
    assert by_blocks[0] == 0 < by_blocks[1] < n  # without paths, and with


@pytest.mark.medium
def test_kernels_compile_for_hopper_without_spills() -> None:
    require_compiler()
    from mapper.align.affine import cuda_kernels as block
    from mapper.align.affine import cuda_rows as room
    from mapper.align.cuda import kernels
    from mapper.align.cuda import worklist as lists
    from mapper.align.edit import cuda_kernels as edit

    number, u32, byte = np.zeros(1, np.int64), np.zeros(1, np.uint32), np.zeros(1, np.int8)
    i32, i16 = np.zeros(1, np.int32), np.zeros(1, np.int16)
    staged, i64 = array(np.uint64), types.int64
    out = type_of(kernels.ChunkResults(i32, byte, i32, u32, u32, np.zeros((1, 1), np.int64)))
    penalties = AffinePenalties(2, 3, 1)
    worklist = type_of(lists.Worklist(i32, i32))
    space = type_of(room.SearchSpace(np.zeros(1, np.uint8), i32, u32, number))
    shape = type_of(room.block_shape(penalties, 2048))
    arguments = [staged, i64, type_of(penalties), i64, i64, shape, i64, space, worklist, i64, out]
    machine = compile_offline(block.wide_affine_kernel, arguments)
    assert machine.spills == 0
    assert machine.wide_share <= 0.25  # that counts in 64 bits: paths, and addresses
    assert machine.registers <= 80
    shape, rows = (
        type_of(edit.edit_block_shape(2048, True)),
        type_of(Rows(i16, number, number, number)),
    )
    arguments = [staged, i64, i64, shape, i64, rows, worklist, i64, out]
    machine = compile_offline(edit.wide_edit_kernel, arguments)
    assert machine.spills == 0
    assert machine.wide_share <= 0.25
    assert machine.registers <= 64
    assert (
        compile_offline(lists.fill_worklist_kernel, [staged, i64, i64, out, worklist]).spills == 0
    )
    assert compile_offline(lists.clear_worklist_kernel, [worklist, i64, i64]).spills == 0
