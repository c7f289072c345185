"""What a first pass over short pairs launches on a CUDA device for edit distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mapper.align.cuda.kernels import BLOCK, FlatResults, small_edit_kernel
from mapper.align.cuda.launch_plan import FlatMetric, GroupRung, PairLaunch, left_pairs, listing
from mapper.align.cuda.stages import begin_stages_kernel, stages_for
from mapper.align.edit.cuda_kernels import (
    edit_block_shape,
    edit_block_space,
    edit_shape,
    group_edit_kernel,
    vector_edit_kernel,
    vector_space,
    wide_edit_kernel,
)
from mapper.align.edit.wavefront import Rows, small_layout
from mapper.cuda.launch import BoundKernel
from mapper.cuda.memory import Workspace, multiprocessors

MORE_EDITS = 64
"""Greatest distance of the first pass."""

VECTOR_WIDTHS = (32, 64)
"""Bits of the words of bit vectors, which find as many edits, less one, behind the small kernel."""

VECTOR_COLUMNS = (1024, 2048)
"""Longest references that they take in chunks without blocks, and with one kind of these. They
work on every column: for longer pairs wavefronts of so few edits are less."""

EDIT_RUNGS = (GroupRung(24, 8), GroupRung(MORE_EDITS, 32))
"""Of groups, where bit vectors do not go; the first one before them, too, in chunks for which there
are blocks, and the last one behind them in others."""

EDIT_BLOCK_WIDTHS = (2048, 8192)
"""Columns of a row by blocks: they go to distances of half as many, and to paths of no greater ones
than the CPU traces as a whole."""


def _edit_stages(
    n_kinds: int,
) -> tuple[Sequence[GroupRung], Sequence[int], Sequence[GroupRung]]:
    """Return what goes on behind the small kernel: groups, widths of bit vectors, groups again."""
    if n_kinds >= len(VECTOR_COLUMNS):
        return (), (), EDIT_RUNGS
    if n_kinds == 0:
        return (), VECTOR_WIDTHS, EDIT_RUNGS[-1:]
    # A column takes as long however few the edits are: of long pairs with few of them wavefronts
    # are less. What is too long for bit vectors goes to blocks.
    return EDIT_RUNGS[:-1], VECTOR_WIDTHS, ()


@dataclass(frozen=True)
class SmallEdit(FlatMetric):
    """Global edit distances, first up to SMALL by a thread a pair, then up to MORE_EDITS.

    What is in between is for bit vectors and for groups, of longer sequences for groups alone.
    """

    max_distance: int

    slot: ClassVar[int] = 2 * MORE_EDITS + 2
    last_first: ClassVar[bool] = True

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: FlatResults,
        n_kinds: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the small kernel, those of bit vectors or of groups, and those of blocks."""
        first_rungs, widths, last_rungs = _edit_stages(n_kinds)
        host = small_layout(MORE_EDITS, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"flat layout {name}", column) for name, column in host._asdict().items()
        )
        given = staged, most_pairs, self.max_distance
        n_stages = 1 + len(first_rungs) + len(widths) + len(last_rungs)
        stages = stages_for(space, n_stages, most_pairs)

        def by_groups(rung: GroupRung, number: int) -> PairLaunch:
            shape = edit_shape(*rung)
            bound = BoundKernel(
                group_edit_kernel, space.stream, *given, shape, number, int(want_path), layout,
                stages, self.slot, out, shared_bytes=shape.shared_bytes,
            )  # fmt: skip
            return PairLaunch(bound, multiprocessors() * shape.blocks, shape.groups)

        begin = BoundKernel(begin_stages_kernel, space.stream, stages, most_pairs)
        small = BoundKernel(
            small_edit_kernel, space.stream, *given, int(want_path), layout, stages, self.slot, out
        )
        launches = [PairLaunch(begin, 1, BLOCK), PairLaunch(small, most_pairs, BLOCK)]
        launches += [by_groups(rung, 1 + i) for i, rung in enumerate(first_rungs)]
        rooms = {
            width: vector_space(space, width, VECTOR_COLUMNS[n_kinds], most_pairs, want_path)
            for width in reversed(widths)
        }
        for number, width in enumerate(widths, 1 + len(first_rungs)):
            n_blocks, moves = rooms[width]
            bound = BoundKernel(
                vector_edit_kernel, space.stream, *given, width, number,
                int(width == widths[-1]), int(want_path), moves, stages, self.slot, out,
            )  # fmt: skip
            launches.append(PairLaunch(bound, n_blocks, BLOCK))
        before = n_stages - len(last_rungs)
        launches += [by_groups(rung, before + i) for i, rung in enumerate(last_rungs)]
        n_widths = min(n_kinds, 1) if want_path else n_kinds  # the others have the same bound then
        for i, width in enumerate(EDIT_BLOCK_WIDTHS[:n_widths]):
            wide = edit_block_shape(width, want_path)
            n_blocks, rows = edit_block_space(
                space, f"flat blocks {i}", wide, most_pairs, want_path
            )
            left = left_pairs(space, most_pairs)
            bound = BoundKernel(
                wide_edit_kernel, space.stream, *given, wide, int(want_path), rows, left,
                self.slot, out, shared_bytes=wide.shared_bytes,
            )  # fmt: skip
            launches += listing(space, staged, most_pairs, out, left, i == 0, False)
            launches.append(PairLaunch(bound, n_blocks, 1))
        return launches
