"""Query pairs in the simulator with lanes that exchange values: a warp is two groups of four.

The simulator runs a thread for each thread of a block, but knows no warps, so in other tests a
group is one lane. Here the functions of a warp are made of barriers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numba
import numpy as np
import pytest

from mapper.align.matrix.api import align_all
from mapper.align.matrix.plan_query_pairs import UNIT, plan_query_pairs
from tests.align.matrix.test_cuda_fill import LETTERS, MODES, PROTEIN
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
from mapper.align.matrix import cuda_engine

LANES, WARP, GROUPS, UNITS = 4, 8, 4, 2


class Warps:
    """The functions of the warps of a block, for one block at a time.

    The barriers have no time limit of their own (a machine that stood still for a minute once
    broke one): pytest's ends a test that hangs.
    """

    def __init__(self) -> None:
        n_warps = LANES * GROUPS // WARP
        self._barriers = [threading.Barrier(WARP) for _ in range(n_warps)]
        self._values = [[0] * WARP for _ in range(n_warps)]

    def _exchanged(self, value) -> tuple[list, int]:
        """Return the values of all lanes of the caller's warp, and the caller's lane."""
        thread = threading.current_thread().threadIdx.x  # type: ignore[attr-defined]
        warp, lane = divmod(thread, WARP)
        self._values[warp][lane] = value
        self._barriers[warp].wait()
        values = list(self._values[warp])
        self._barriers[warp].wait()
        return values, lane

    def from_lane(self, value, lane):
        return self._exchanged(value)[0][int(lane) % WARP]

    def any_in_warp(self, flag):
        return any(self._exchanged(bool(flag))[0])

    def sync_warp(self):
        self._exchanged(0)


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not numba.config.ENABLE_CUDASIM:
        pytest.skip("a device has lanes: the tests of its results cover them")
    from mapper.align.matrix import cuda_query_pairs

    warps = Warps()
    for name in ("from_lane", "any_in_warp", "sync_warp"):
        monkeypatch.setattr(cuda_query_pairs, name, getattr(warps, name))
    sizes = {
        "LANES": LANES, "GROUPS": GROUPS, "WARP": WARP, "BLOCK": LANES * GROUPS, "UNITS": UNITS,
        "LETTER_WORDS": UNITS * UNIT * LANES, "WORDS_BEFORE": UNITS * LANES,
    }  # fmt: skip
    for name, size in sizes.items():
        monkeypatch.setattr(cuda_query_pairs, name, size)
    cuda_query_pairs.query_pairs_kernel.cache_clear()
    yield
    cuda_query_pairs.query_pairs_kernel.cache_clear()


@pytest.mark.slow_simulated
@pytest.mark.gpu
@pytest.mark.parametrize("span", MODES)
def test_lanes_hand_on_what_the_cpu_has(span: str, lanes, monkeypatch) -> None:
    rng = np.random.default_rng(9)
    planned = []

    def spy(*arguments, **options):
        planned.append(plan_query_pairs(*arguments, **options))
        return planned[-1]

    monkeypatch.setattr(cuda_engine, "plan_query_pairs", spy)
    text = random_letters(rng, 50, LETTERS)
    own = [edited(rng, text[:n], 0.2, LETTERS) for n in (45, 36)]  # two strips
    others = [edited(rng, text[n : n + 12], 0.3, LETTERS) for n in (0, 9, 21, 30, 36)]
    options = {"matrix": PROTEIN, "gaps": (2, 1), "span": span, "cigar": True}
    cpu = next(align_all(own, others, device="cpu", **options))
    cuda = next(align_all(own, others, device="cuda:0", **options))
    assert [len(one.rest) for one in planned if one is not None] == [0]
    n = cpu.found.n_pairs
    assert [cuda.found.pair(i) for i in range(n)] == [cpu.found.pair(i) for i in range(n)]
