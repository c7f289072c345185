"""Inner loops of the hot kernels: arithmetic that fits 32 bits takes 32-bit instructions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.inner_loops import inner_loops, instructions_of, loop_of_diagonals, needless
from tests.helpers.offline_compile import Machine, array, compile_offline, require_compiler
from tests.helpers.sass_widths import NUMBER, hot_kernels

HOT = [
    "screen", "extend_alone", "extend_by_warp", "_seed", "_search", "_search_by_contexts",
    "_fill_suffix_array",
]  # fmt: skip

MOST_NEEDLESS = {"extend_alone": 2}
"""Of an inner loop, else none: numbers of 64 bits that come back from local memory."""

MOST_BETWEEN_CELLS = {"extend_alone": 4, "extend_by_warp": 7}
"""Of the loop over a wavefront's diagonals: those of the mask of lanes that are alive, and of the
highest key of the lanes, which have 64 bits. Before it was narrowed, 93 and 96."""


def listing(text: str) -> Machine:
    """Return lines of assembler as nvdisasm prints them."""
    lines = [f"        /*{16 * i:04x}*/  {line} ;" for i, line in enumerate(text.splitlines())]
    return Machine("\n".join(lines), 0)


def test_a_counter_of_64_bits_is_seen() -> None:
    loop = listing(
        """LDG.E R0, desc[UR4][R2.64]
IADD3 R2, P0, R2, 0x4, RZ
IMAD.X R3, RZ, RZ, R3, P0
IADD3 R6, P0, R6, 0x1, RZ
IMAD.X R7, RZ, RZ, R7, P0
ISETP.GE.U32.AND P0, PT, R6, R8, PT
ISETP.GE.AND.EX P0, PT, R7, R9, PT, P0"""
    )
    assert needless(instructions_of(loop)) == [
        "IMAD.X R7, RZ, RZ, R7, P0", "ISETP.GE.AND.EX P0, PT, R7, R9, PT, P0",
    ]  # fmt: skip


def test_words_and_places_are_needed() -> None:
    """Also a sum of a loaded number, but none of one that was 32 bits wide."""
    loop = listing(
        """LDG.E.64 R0, desc[UR4][R2.64+0x8]
IADD3 R4, P0, R0, -0x1, RZ
IADD3.X R5, R1, -0x1, RZ, P0, !PT
ISETP.GT.AND.EX P1, PT, R5, R9, PT, P1
LDG.E R10, desc[UR4][R2.64]
SHF.R.S32.HI R11, RZ, 0x1f, R10
IADD3 R12, P0, R10, R12, RZ
IMAD.X R13, R11, 0x1, R13, P0"""
    )
    assert needless(instructions_of(loop)) == ["IMAD.X R13, R11, 0x1, R13, P0"]


@pytest.mark.parametrize(("name", "seen"), [("sum_in_64_bits", True), ("sum_in_32_bits", False)])
def test_a_score_of_64_bits_is_seen(name, seen) -> None:
    """By the same text, compiled, in which score and counter have 64 bits or 32."""
    require_compiler()
    from tests.helpers import small_kernels

    machine = compile_offline(
        getattr(small_kernels, name), [array(np.int32), NUMBER, array(np.int32)]
    )
    loops = [loop for loop in inner_loops(machine) if len(loop) > 1]
    assert loops
    assert any(needless(loop) for loop in loops) == seen


@pytest.mark.slow
@pytest.mark.parametrize("name", HOT)
def test_inner_loops_count_in_32_bits(name) -> None:
    require_compiler()
    machine = compiled(name)
    loops = inner_loops(machine)
    assert any(len(loop) >= 20 for loop in loops)
    for loop in loops:
        found = needless(loop)
        assert len(found) <= MOST_NEEDLESS.get(name, 0), "\n".join(
            [*found, "in", *(i.text for i in loop)]
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST_BETWEEN_CELLS)
def test_cells_are_computed_in_32_bits(name) -> None:
    """The loop over diagonals is no inner one: runs of matches are compared in it."""
    require_compiler()
    found = needless(loop_of_diagonals(compiled(name)))
    assert len(found) <= MOST_BETWEEN_CELLS[name], "\n".join(found)


def compiled(name: str) -> Machine:
    """Return the code of one of the hot kernels."""
    given = {made.function.__name__: (made, kinds) for _, made, kinds in hot_kernels()}
    assert sorted(given) == sorted(HOT)
    return compile_offline(*given[name])
