"""Query pairs: launch plans, compiled code, and results equal to the CPU's."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba import types

from mapper.align.matrix.api import align_all
from mapper.align.matrix.dp import GLOBAL, LOCAL, SEMIGLOBAL, Gaps
from mapper.align.matrix.plan_query_pairs import (
    HIGH,
    HIGH_LEN,
    LOW,
    LOW_LEN,
    REF_AT,
    REF_SIZE,
    TURN,
    plan_query_pairs,
)
from mapper.align.matrix.scoring import costs_of
from tests.align.matrix.test_cuda_fill import LETTERS, MODES, PROTEIN
from tests.helpers.offline_compile import Machine, array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
from mapper.align.matrix import cuda_engine

SIMULATED = bool(numba.config.ENABLE_CUDASIM)
SCORES = np.array([[5, -4], [-4, 5]], np.int32)
LANES, GROUPS = 8, 4
pytestmark = pytest.mark.usefixtures("low_strips")


def plan(lengths, query, ref, mode=GLOBAL, want_path=True, scores=SCORES):
    lengths = np.asarray(lengths, np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return plan_query_pairs(
        lengths[query], lengths[ref], starts[query], starts[ref], scores, Gaps(10, 1), mode,
        want_path=want_path, lanes=LANES, groups=GROUPS, room=used,
    )  # fmt: skip


def used(_: str, n: int, dtype: type) -> np.ndarray:
    """Return memory that held something else, as page-locked memory has."""
    return np.full(n, -77, dtype)


@pytest.mark.medium
@pytest.mark.parametrize("within", [True, False])
def test_every_pair_is_planned_once(within: bool) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 900, 41)
    lengths[[4, 7]] = 0
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    query, ref = np.triu_indices(41, 1) if within else map(np.ravel, np.indices((15, 41)))
    found = plan(lengths, query, ref)
    assert found is not None
    tasks, blocks = found.tasks, found.blocks
    pairs = np.concatenate([tasks[LOW], tasks[HIGH]])
    pairs = np.concatenate([pairs[pairs >= 0], found.rest])
    assert sorted(pairs.tolist()) == list(range(len(query)))
    empty = (lengths[query] == 0) | (lengths[ref] == 0)
    assert found.rest.tolist() == np.flatnonzero(empty).tolist()
    assert sorted(blocks[TURN].tolist()) == list(range(blocks.shape[1]))
    assert found.longest == lengths.max()
    words = 0
    costs = []
    for block in range(blocks.shape[1]):
        sizes = blocks[[LOW_LEN, HIGH_LEN], block]
        slots = range(GROUPS * block, GROUPS * (block + 1))
        units = -(-max(sizes) // (4 * LANES))
        assert max(sizes) == sizes[0]
        costs.append(units * (tasks[REF_SIZE, slots[0]] + LANES))
        assert (np.diff(tasks[REF_SIZE, slots]) <= 0).all()
        for slot in slots:
            for half in (LOW, HIGH):
                pair = tasks[half, slot]
                if pair < 0:
                    continue
                assert lengths[query[pair]] == sizes[half]
                assert lengths[ref[pair]] == tasks[REF_SIZE, slot]
                assert starts[ref[pair]] == tasks[REF_AT, slot]
            if tasks[REF_SIZE, slot]:
                assert found.origin_at[slot] == words
                words += units * LANES * (tasks[REF_SIZE, slot] + LANES - 1)
            else:
                assert tasks[:, slot].tolist() == [-1, -1, 0, 0]
                assert found.origin_at[slot] == 0
    assert words == found.n_words
    assert (np.diff(np.array(costs)[blocks[TURN]]) <= 0).all()


def test_pairs_that_do_not_fit_are_left() -> None:
    lengths = [6000, 5900, *[400] * 20]
    query, ref = np.array([0] * 21 + [1] * 20), np.array([*range(1, 22), *range(2, 22)])
    found = plan(lengths, query, ref, scores=SCORES)
    assert found is not None
    assert found.rest.tolist() == [0]  # 5 a letter, 5 900 letters, and the bias
    assert plan(lengths, query, ref, mode=LOCAL, scores=SCORES * 40) is None


def test_batches_with_few_common_references_are_left_alone() -> None:
    every = np.arange(40)
    assert plan([9] * 41, every, every + 1) is None  # a list of pairs
    query, ref = np.repeat([0, 1], 20), np.arange(2, 42)
    assert plan([9] * 42, query, ref) is None  # two queries, no reference of both
    assert plan([], every[:0], every[:0]) is None


@pytest.mark.gpu
@pytest.mark.parametrize("span", MODES)
@pytest.mark.parametrize("gaps", [(10, 1), (0, 0)], ids=str)
def test_all_with_all_equals_the_cpu(span: str, gaps, device: str, monkeypatch) -> None:
    """Strips of one unit to many; queries and references of unlike lengths; empty ones."""
    rng = np.random.default_rng(8)
    planned = []

    def spy(*arguments, **options):
        planned.append(plan_query_pairs(*arguments, **options))
        return planned[-1]

    monkeypatch.setattr(cuda_engine, "plan_query_pairs", spy)
    if SIMULATED:
        text = random_letters(rng, 24, LETTERS)
        own = [text[:19], edited(rng, text, 0.2, LETTERS), "A"]
        others = [edited(rng, text[3:13], 0.2, LETTERS) for _ in range(11)] + ["", "W"]
    else:
        text = random_letters(rng, 900, LETTERS)
        own = [edited(rng, text[:n], 0.2, LETTERS) for n in rng.integers(1, 900, 37)]
        others = [edited(rng, text[n:], 0.2, LETTERS) for n in rng.integers(0, 899, 70)]
        own, others = [*own, "", "W"], [*others, "", "W", "AAAA"]
    for cigar in (False, True):
        options = {"matrix": PROTEIN, "gaps": gaps, "span": span, "cigar": cigar}
        cpu = next(align_all(own, others, device="cpu", **options))
        windows = list(align_all(own, others, device=device, **options))
        assert any(one is not None and one.tasks.shape[1] > 8 for one in planned)
        planned.clear()
        assert np.concatenate([part.query for part in windows]).tolist() == cpu.query.tolist()
        rows = [part.found.pair(i) for part in windows for i in range(part.found.n_pairs)]
        assert rows == [cpu.found.pair(i) for i in range(cpu.found.n_pairs)]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("mode", "want_path"), [(LOCAL, False), (GLOBAL, False), (SEMIGLOBAL, True)]
)
def test_query_pairs_compile_to_few_instructions(mode: int, want_path: bool) -> None:
    machine = _compiled(mode, want_path)
    assert machine.spills == 0
    assert machine.registers <= 128
    rows = 32 if want_path else 64  # without a path, strips of all units have code of their own
    # Three instructions of the integer unit for two cells, one less of two operands for a floor.
    sums, of_three = (1, 2) if mode == LOCAL else (2, 1)
    assert sums * rows <= machine.count("VIADDMNMX") < sums * rows + 12
    assert of_three * rows <= machine.count("VIMNMX3") < (of_three + 1) * rows
    assert machine.instructions.count("LDS.128") == rows // 4


def test_the_walk_compiles_without_spills() -> None:
    require_compiler()
    from mapper.align.matrix.cuda_query_pairs import trace_query_pairs

    number, word, code = array(np.int64), array(np.uint32), array(np.uint8)
    table = array(np.int32, 2)
    walk = [table, number, table, code, code, array(np.int16, 2), type_of(Gaps(10, 1)),
            types.int64, word, number, word, array(np.int64, 2)]  # fmt: skip
    assert compile_offline(trace_query_pairs, walk).spills == 0


def _compiled(mode: int, want_path: bool) -> Machine:
    require_compiler()
    from mapper.align.matrix.cuda_query_pairs import query_pairs_kernel

    gaps = Gaps(10, 1)
    table, code = array(np.int32, 2), array(np.uint8)
    return compile_offline(
        query_pairs_kernel(mode, want_path),
        [table, array(np.int64), table, code, code, array(np.int16, 2), type_of(gaps),
         type_of(costs_of(gaps, mode, 2)), types.int64, array(np.uint64),
         array(np.uint32), array(np.int64, 2)],
    )  # fmt: skip
