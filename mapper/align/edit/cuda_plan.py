"""What a first pass over short pairs launches on a CUDA device for edit distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mapper.align.cuda.kernel_chain import begin_chain_kernel, chain_for
from mapper.align.cuda.kernels import BLOCK, ChunkResults, small_edit_kernel
from mapper.align.cuda.launch_plan import (
    GroupLaunch,
    LaunchPlan,
    PairLaunch,
    worklist_for,
    worklist_launches,
)
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

EDIT_GROUPS = (GroupLaunch(24, 8), GroupLaunch(MORE_EDITS, 32))
"""Of groups, where bit vectors do not go; the first one before them, too, in chunks for which there
are blocks, and the last one behind them in others."""

EDIT_BLOCK_WIDTHS = (2048, 8192)
"""Columns of a row by blocks: they go to distances of half as many, and to paths of no greater ones
than the CPU traces as a whole."""


def _edit_kernels(
    n_block_kernels: int,
) -> tuple[Sequence[GroupLaunch], Sequence[int], Sequence[GroupLaunch]]:
    """Return what goes on behind the small kernel: groups, widths of bit vectors, groups again."""
    if n_block_kernels >= len(VECTOR_COLUMNS):
        return (), (), EDIT_GROUPS
    if n_block_kernels == 0:
        return (), VECTOR_WIDTHS, EDIT_GROUPS[-1:]
    # A column takes as long however few the edits are: of long pairs with few of them wavefronts
    # are less. What is too long for bit vectors goes to blocks.
    return EDIT_GROUPS[:-1], VECTOR_WIDTHS, ()


@dataclass(frozen=True)
class EditPlan(LaunchPlan):
    """Global edit distances, first up to SMALL by a thread a pair, then up to MORE_EDITS.

    What is in between is for bit vectors and for groups, of longer sequences for groups alone.
    """

    max_distance: int

    slot: ClassVar[int] = 2 * MORE_EDITS + 2
    last_first: ClassVar[bool] = True

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: ChunkResults,
        n_block_kernels: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the small kernel, those of bit vectors or of groups, and those of blocks."""
        first_groups, widths, last_groups = _edit_kernels(n_block_kernels)
        host = small_layout(MORE_EDITS, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"layout {name}", column) for name, column in host._asdict().items()
        )
        given = staged, most_pairs, self.max_distance
        n_kernels = 1 + len(first_groups) + len(widths) + len(last_groups)
        chain = chain_for(space, n_kernels, most_pairs)

        def by_groups(attempt: GroupLaunch, number: int) -> PairLaunch:
            shape = edit_shape(*attempt)
            bound = BoundKernel(
                group_edit_kernel, space.stream, *given, shape, number, int(want_path), layout,
                chain, self.slot, out, shared_bytes=shape.shared_bytes,
            )  # fmt: skip
            return PairLaunch(bound, multiprocessors() * shape.blocks, shape.groups)

        begin = BoundKernel(begin_chain_kernel, space.stream, chain, most_pairs)
        small = BoundKernel(
            small_edit_kernel, space.stream, *given, int(want_path), layout, chain, self.slot, out
        )
        launches = [PairLaunch(begin, 1, BLOCK), PairLaunch(small, most_pairs, BLOCK)]
        launches += [by_groups(attempt, 1 + i) for i, attempt in enumerate(first_groups)]
        rooms = {
            width: vector_space(
                space, width, VECTOR_COLUMNS[n_block_kernels], most_pairs, want_path
            )
            for width in reversed(widths)
        }
        for number, width in enumerate(widths, 1 + len(first_groups)):
            n_blocks, moves = rooms[width]
            bound = BoundKernel(
                vector_edit_kernel, space.stream, *given, width, number,
                int(width == widths[-1]), int(want_path), moves, chain, self.slot, out,
            )  # fmt: skip
            launches.append(PairLaunch(bound, n_blocks, BLOCK))
        before = n_kernels - len(last_groups)
        launches += [by_groups(attempt, before + i) for i, attempt in enumerate(last_groups)]
        n_widths = (
            min(n_block_kernels, 1) if want_path else n_block_kernels
        )  # the others have the same bound then
        for i, width in enumerate(EDIT_BLOCK_WIDTHS[:n_widths]):
            wide = edit_block_shape(width, want_path)
            n_blocks, rows = edit_block_space(space, f"blocks {i}", wide, most_pairs, want_path)
            left = worklist_for(space, most_pairs)
            bound = BoundKernel(
                wide_edit_kernel, space.stream, *given, wide, int(want_path), rows, left,
                self.slot, out, shared_bytes=wide.shared_bytes,
            )  # fmt: skip
            launches += worklist_launches(space, staged, most_pairs, out, left, i == 0, False)
            launches.append(PairLaunch(bound, n_blocks, 1))
        return launches
