"""Launch plan of edit distance: which CUDA kernels align the pairs of a chunk.

By the mean length of a chunk's sequences (:func:`block_kernels_for`):

==============  ==========================================================
Mean letters    Kernels, in this order
==============  ==========================================================
below 512       small, bit vectors of 32 and of 64 bits
512 to 2047     small, bit vectors of 32 and of 64 bits, blocks
2048 and more   small, blocks (with a second width if only distances are wanted)
==============  ==========================================================

Pairs that are still unsolved go to ``cuda_general.py`` and then to the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mapper.align.cuda.kernels import BLOCK, ChunkResults
from mapper.align.cuda.launch_plan import LaunchPlan, PairLaunch, worklist_for, worklist_launches
from mapper.align.cuda.worklist import chain_for, clear_worklist_kernel
from mapper.align.edit.cuda_kernels import (
    SMALL,
    edit_block_shape,
    edit_block_space,
    small_edit_kernel,
    vector_edit_kernel,
    vector_space,
    wide_edit_kernel,
)
from mapper.align.edit.wavefront import Rows, small_layout
from mapper.cuda.launch import BoundKernel
from mapper.cuda.memory import Workspace

VECTOR_WIDTHS = (32, 64)
"""Bits of the words of bit vectors, which find up to as many edits less one."""

VECTOR_COLUMNS = (1024, 2048)
"""Longest references of bit vectors in chunks without a block kernel, and with one. Bit vectors
work on every column: for longer pairs with so few edits wavefronts are less work."""

EDIT_BLOCK_WIDTHS = (2048, 8192)
"""Columns of a wavefront in block kernels: they find distances of up to half as many, and paths as
far as the CPU traces them without dividing the pair."""


@dataclass(frozen=True)
class EditPlan(LaunchPlan):
    """Global edit distances: by the small kernel, then bit vectors, then blocks."""

    max_distance: int

    slot: ClassVar[int] = 2 * VECTOR_WIDTHS[-1] + 2
    last_first: ClassVar[bool] = True

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: ChunkResults,
        n_block_kernels: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the launches of the chain, then those of the block kernels."""
        widths: Sequence[int] = VECTOR_WIDTHS if n_block_kernels < len(VECTOR_COLUMNS) else ()
        common = staged, most_pairs, self.max_distance
        n_kernels = 1 + len(widths)
        chain = chain_for(space, n_kernels, most_pairs)
        clear = BoundKernel(clear_worklist_kernel, space.stream, chain, 1, n_kernels)
        host = small_layout(SMALL, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"layout {name}", column) for name, column in host._asdict().items()
        )
        small = BoundKernel(
            small_edit_kernel, space.stream, *common, int(want_path), layout, chain, self.slot, out
        )
        launches = [PairLaunch(clear, 1, BLOCK), PairLaunch(small, most_pairs, BLOCK)]
        vectors = {
            width: vector_space(
                space, width, VECTOR_COLUMNS[n_block_kernels], most_pairs, want_path
            )
            for width in reversed(widths)
        }
        for number, width in enumerate(widths, 1):
            n_blocks, moves = vectors[width]
            bound = BoundKernel(
                vector_edit_kernel, space.stream, *common, width, number,
                int(width == widths[-1]), int(want_path), moves, chain, self.slot, out,
            )  # fmt: skip
            launches.append(PairLaunch(bound, n_blocks, BLOCK))
        # With paths all widths have the same bound.
        n_widths = min(n_block_kernels, 1) if want_path else n_block_kernels
        for i, width in enumerate(EDIT_BLOCK_WIDTHS[:n_widths]):
            shape = edit_block_shape(width, want_path)
            n_blocks, rows = edit_block_space(space, f"blocks {i}", shape, most_pairs, want_path)
            worklist = worklist_for(space, most_pairs)
            bound = BoundKernel(
                wide_edit_kernel, space.stream, *common, shape, int(want_path), rows, worklist,
                self.slot, out, shared_bytes=shape.shared_bytes,
            )  # fmt: skip
            launches += worklist_launches(space, staged, most_pairs, out, worklist, i == 0, False)
            launches.append(PairLaunch(bound, n_blocks, 1))
        return launches
