"""Matrix alignment on a device, or in numba's simulator: the same as the CPU, bit for bit."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba import types

from mapper.align.matrix import cuda_plan
from mapper.align.matrix.api import align_all, align_matrix
from mapper.align.matrix.cuda_plan import Shape
from mapper.align.matrix.dp import GLOBAL, LOCAL, SEMIGLOBAL, Gaps
from mapper.align.matrix.scoring import costs_of
from mapper.errors import DeviceMemoryError
from tests.helpers.offline_compile import Machine, array, compile_offline, require_compiler, type_of
from tests.helpers.read_batches import random_letters
from tests.helpers.sequence_pairs import edited, random_pairs

SIMULATED = bool(numba.config.ENABLE_CUDASIM)
MODES = ["global", "semiglobal", "local"]
LETTERS = "ARNDCQEGHILKMFPSTWYV"


def protein_matrix(seed: int = 5, highest: int = 11) -> tuple[str, np.ndarray]:
    """Scores like those of BLOSUM, without the package that has these; not symmetric."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-6, 3, (20, 20))
    scores[range(20), range(20)] = rng.integers(4, highest + 1, 20)
    return LETTERS, scores


PROTEIN = protein_matrix()


def same(cpu, cuda) -> None:
    for name, a, b in zip(cpu._fields, cpu, cuda, strict=True):
        assert (a is None and b is None) or (a.dtype == b.dtype and (a == b).all()), name


pytestmark = pytest.mark.usefixtures("low_strips")


def check(pairs, device: str, **options) -> None:
    queries, refs = [q for q, _ in pairs], [r for _, r in pairs]
    for cigar in (False, True):
        cpu = align_matrix(queries, refs, cigar=cigar, device="cpu", **options)
        same(cpu, align_matrix(queries, refs, cigar=cigar, device=device, **options))


def some_pairs(rng, n: int, longest: int, letters: str):
    pairs = random_pairs(rng, n, longest, letters)
    return [*pairs, ("", ""), ("", letters[:3]), (letters[:2], ""), (letters[0], letters[1])]


@pytest.mark.gpu
@pytest.mark.parametrize("span", MODES)
@pytest.mark.parametrize("gaps", [(10, 1), (3, 0), (0, 2)], ids=str)
def test_two_cells_at_a_time_equal_the_cpu(span: str, gaps, device: str) -> None:
    rng = np.random.default_rng(1)
    pairs = some_pairs(rng, 8 if SIMULATED else 300, 30 if SIMULATED else 200, LETTERS)
    if not SIMULATED:  # one strip to many, of every height
        pairs += [(random_letters(rng, n, LETTERS), random_letters(rng, 90, LETTERS))
                  for n in range(60, 2000, 97)]  # fmt: skip
    check(pairs, device, matrix=PROTEIN, gaps=gaps, span=span)


@pytest.mark.gpu
@pytest.mark.parametrize("span", MODES)
def test_one_cell_at_a_time_equals_the_cpu(span: str, device: str) -> None:
    """Scores that do not fit a byte, so that 32 bits are needed."""
    rng = np.random.default_rng(2)
    pairs = some_pairs(rng, 5 if SIMULATED else 200, 25 if SIMULATED else 300, "ACGT")
    check(pairs, device, matrix=(200, -310), gaps=(401, 102), span=span)


@pytest.mark.gpu
@pytest.mark.parametrize("span", MODES)
def test_scores_at_the_limit_of_16_bits_equal_the_cpu(span: str, device: str) -> None:
    """Equal sequences on both sides of the length at which scores leave 16 bits; a great loss."""
    rng = np.random.default_rng(3)
    scores = np.full((4, 4), -127)
    scores[range(4), range(4)] = 127
    for gaps in ((0, 1), (63, 64)):
        edge = (2**15 - 1) // (127 + (0 if span == "local" else 2 * gaps[1]))
        pairs = []
        for n in (edge - 30, edge, edge + 30)[:: 2 if SIMULATED else 1]:
            text = random_letters(rng, n)
            pairs += [(text, text), ("A" * (n // 2), "C" * n)][: 1 if SIMULATED else 2]
        if SIMULATED:
            pairs = [(q[:60], r[:60]) for q, r in pairs]
        check(pairs, device, matrix=("ACGT", scores), gaps=gaps, span=span)


@pytest.mark.gpu
@pytest.mark.parametrize("span", MODES)
def test_equal_best_cells_are_chosen_as_on_the_cpu(span: str, device: str) -> None:
    rng = np.random.default_rng(4)
    n = 40 if SIMULATED else 700
    unit = random_letters(rng, 7)
    repeats = [("A" * n, "A" * (n // 2)), (unit, unit * (n // 7)), (unit * (n // 7), unit),
               ("AC" * (n // 2), "CA" * (n // 3)), ("A" * n, "C" * n)]  # fmt: skip
    check(repeats, device, matrix=(1, -1), gaps=(1, 1), span=span)
    check(repeats, device, matrix=(1, -1), gaps=(0, 0), span=span)


@pytest.mark.gpu
def test_all_with_all_equals_the_cpu(device: str) -> None:
    rng = np.random.default_rng(6)
    ref = random_letters(rng, 18 if SIMULATED else 150, LETTERS)
    n = 4 if SIMULATED else 60
    own = [edited(rng, ref, 0.3, LETTERS) for _ in range(n)]
    others = [random_letters(rng, int(k), LETTERS) for k in rng.integers(0, len(ref), n // 2)]
    for rest in (None, others):
        for options in ({"span": "local", "cigar": True}, {"span": "global", "cigar": False}):
            cpu = list(align_all(own, rest, matrix=PROTEIN, device="cpu", **options))
            assert len(cpu) == 1
            # Two workers of each device, and windows that end within a query.
            for name in (device, f"{device},0"):
                cuda = list(align_all(own, rest, matrix=PROTEIN, device=name, window=5, **options))
                assert len(cuda) > 1
                for i in (0, 1):
                    assert np.concatenate([part[i] for part in cuda]).tolist() == cpu[0][i].tolist()
                rows = [part.found.pair(i) for part in cuda for i in range(part.found.n_pairs)]
                assert rows == [cpu[0].found.pair(i) for i in range(cpu[0].found.n_pairs)]


@pytest.mark.gpu
def test_batches_and_lack_of_memory_do_not_matter(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapper.align.matrix import cuda_engine, engine
    from mapper.align.matrix import cuda_engine as matrix_device

    whole = matrix_device.MatrixWorker._align
    sizes = []

    def align(self, pairs):
        sizes.append(pairs.n_pairs)
        if pairs.n_pairs > 3:
            raise DeviceMemoryError("full")
        return whole(self, pairs)

    rng = np.random.default_rng(7)
    pairs = random_pairs(rng, 12, 15)
    check(pairs, f"{device},0", matrix=(2, -3), gaps=(4, 1), memory=120)
    monkeypatch.setattr(cuda_engine, "_MOST_WHOLE", 0)  # each batch's letters by themselves
    monkeypatch.setattr(matrix_device.MatrixWorker, "_align", align)
    monkeypatch.setattr(engine, "_FEW_CELLS", 500)
    check(pairs, f"{device},0", matrix=(2, -3), gaps=(4, 1), memory=120)
    assert max(sizes) > 3 and min(sizes) <= 3
    check([], device, matrix=(2, -3))


@pytest.mark.medium
@pytest.mark.parametrize(("rows", "mode", "want_path"), [(32, LOCAL, False), (20, GLOBAL, True)])
def test_two_cells_compile_to_instructions_of_two(rows: int, mode: int, want_path: bool) -> None:
    """The highest strips stay in registers, and a cell costs a handful of instructions."""
    machine = _compiled(Shape(2, rows), mode, want_path)
    assert machine.spills == 0
    assert machine.registers <= 168
    assert "VIADDMNMX.S16" in machine.instructions  # and what follows, a small x2
    # Per row and two cells: the diagonal and a deletion, by a sum and a maximum; an
    # insertion, too, or by a maximum of three, as the score.
    sums, of_three = (2, 2) if mode == LOCAL else (3, 1)
    assert sums * rows <= machine.count("VIADDMNMX") < sums * rows + 12
    assert of_three * rows <= machine.count("VIMNMX3") < (of_three + 1) * rows
    if want_path:
        assert 4 * rows <= machine.count("VIMNMX") < 4 * rows + 12  # four bits


@pytest.mark.medium
def test_one_cell_and_the_walk_compile_without_spills() -> None:
    require_compiler()
    from mapper.align.matrix import cuda_fill

    machine = _compiled(cuda_plan.ONE_CELL, SEMIGLOBAL, True)
    assert machine.spills == 0
    assert machine.registers <= 96
    number, word, out = array(np.int64), array(np.uint32), array(np.int64, 2)
    walk = [
        _pairs(),
        array(np.int16, 2),
        type_of(Gaps(10, 1)),
        types.int64,
        number,
        word,
        number,
        word,
        out,
    ]
    assert compile_offline(cuda_fill.trace_kernel, walk).spills == 0
    gather = [word, number, number, word]
    assert compile_offline(cuda_fill.gather_kernel, gather).spills == 0


def _pairs():
    from mapper.align.matrix.cuda_fill import MatrixPairs

    code = np.zeros(1, np.uint8)
    return type_of(MatrixPairs(code, code, np.zeros((1, 1), np.int64)))


def _compiled(shape: Shape, mode: int, want_path: bool) -> Machine:
    require_compiler()
    from mapper.align.matrix.cuda_fill import fill_kernel

    gaps = Gaps(10, 1)
    return compile_offline(
        fill_kernel(shape, mode, want_path),
        [_pairs(), array(np.int16, 2), type_of(gaps), type_of(costs_of(gaps, mode, shape.halves)),
         types.int64, array(np.int64), array(np.int32, 2), types.boolean, array(np.int32, 2),
         array(np.uint32), array(np.int64, 2)],
    )  # fmt: skip
