"""Launch plan of edit distance: which CUDA kernels align the pairs of a chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mapper.align.cuda.kernel_chain import begin_chain_kernel, chain_for
from mapper.align.cuda.kernels import BLOCK, ChunkResults
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
    small_edit_kernel,
    vector_edit_kernel,
    vector_space,
    wide_edit_kernel,
)
from mapper.align.edit.wavefront import Rows, small_layout
from mapper.cuda.launch import BoundKernel
from mapper.cuda.memory import Workspace, multiprocessors

MORE_EDITS = 64
"""Greatest distance of groups of lanes."""

VECTOR_WIDTHS = (32, 64)
"""Bits of the words of bit vectors, which find up to as many edits less one."""

VECTOR_COLUMNS = (1024, 2048)
"""Longest references of bit vectors in chunks without a block kernel, and with one. Bit vectors
work on every column: for longer pairs with so few edits wavefronts are less work."""

EDIT_GROUPS = (GroupLaunch(24, 8), GroupLaunch(MORE_EDITS, 32))
"""Groups of lanes, for pairs too long for bit vectors; in chunks with one block kernel the first
launch comes before bit vectors, in chunks without any the last one after them."""

EDIT_BLOCK_WIDTHS = (2048, 8192)
"""Columns of a wavefront in block kernels: they find distances of up to half as many, and paths as
far as the CPU traces them without dividing the pair."""


def _edit_kernels(
    n_block_kernels: int,
) -> tuple[Sequence[GroupLaunch], Sequence[int], Sequence[GroupLaunch]]:
    """Return the chain after the small kernel: groups, widths of bit vectors, groups again."""
    if n_block_kernels >= len(VECTOR_COLUMNS):
        return (), (), EDIT_GROUPS
    if n_block_kernels == 0:
        return (), VECTOR_WIDTHS, EDIT_GROUPS[-1:]
    # Bit vectors cost the same however few the edits are: for long pairs with few edits wavefronts
    # are less work. Pairs that are too long for bit vectors go to blocks.
    return EDIT_GROUPS[:-1], VECTOR_WIDTHS, ()


@dataclass(frozen=True)
class EditPlan(LaunchPlan):
    """Global edit distances: by the small kernel, then bit vectors, groups and blocks."""

    max_distance: int

    slot: ClassVar[int] = 2 * MORE_EDITS + 2
    last_first: ClassVar[bool] = True

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: ChunkResults,
        n_block_kernels: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the launches of the chain, then those of the block kernels."""
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
        # With paths all widths have the same bound.
        n_widths = min(n_block_kernels, 1) if want_path else n_block_kernels
        for i, width in enumerate(EDIT_BLOCK_WIDTHS[:n_widths]):
            wide = edit_block_shape(width, want_path)
            n_blocks, rows = edit_block_space(space, f"blocks {i}", wide, most_pairs, want_path)
            worklist = worklist_for(space, most_pairs)
            bound = BoundKernel(
                wide_edit_kernel, space.stream, *given, wide, int(want_path), rows, worklist,
                self.slot, out, shared_bytes=wide.shared_bytes,
            )  # fmt: skip
            launches += worklist_launches(space, staged, most_pairs, out, worklist, i == 0, False)
            launches.append(PairLaunch(bound, n_blocks, 1))
        return launches
