"""Launch plan of gap-affine alignment on a CUDA device: the kernels a chunk goes through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mapper.align.affine.cuda_general import affine_space, staged_affine_kernel
from mapper.align.affine.cuda_kernels import (
    GroupShape,
    band_affine_kernel,
    group_affine_kernel,
    group_shape,
    group_space,
    wide_affine_kernel,
)
from mapper.align.affine.cuda_rows import (
    LARGE_BOUND,
    MOST_BAND_BLOCKS,
    MOST_WIDE_BLOCKS,
    SearchShape,
    band_shape,
    block_shape,
    search_space,
)
from mapper.align.affine.wavefront import AffinePenalties, Band
from mapper.align.cuda.cooperative import most_shared_bytes
from mapper.align.cuda.kernels import BLOCK, ChunkResults
from mapper.align.cuda.launch_plan import (
    GroupLaunch,
    LaunchPlan,
    PairLaunch,
    worklist_for,
    worklist_launches,
)
from mapper.align.cuda.retry import Attempt
from mapper.cuda.api import SHARED_BYTES
from mapper.cuda.launch import BoundKernel
from mapper.cuda.memory import Workspace

MOST_PENALTY = 220
"""Greatest (divided) penalty of the first pass."""

GROUP_LAUNCHES = (GroupLaunch(40, 8), GroupLaunch(MOST_PENALTY, 32))

BAND_LAUNCHES = (
    GroupLaunch(MOST_PENALTY, 8),
    GroupLaunch(1024, 8),
    GroupLaunch(4096, 8),
    GroupLaunch(LARGE_BOUND, 32),
)
"""In a band: where chunks begin, by the number of their kinds of blocks; what the first leaves goes
to the last (measured: ``benchmarks/results/align_cuda_variants.md``)."""

THREAD_ATTEMPTS = (Attempt(40, 1 << 15), Attempt(MOST_PENALTY, 1 << 12))
"""The same with a thread a pair, for penalties and bands whose rows do not fit shared memory:
threads of a chunk."""

BLOCK_WIDTHS = (2048, 4096)
"""Columns of a row of exact alignment by blocks: with a gap extend of 1 the greatest (divided)
penalty that it goes to."""


@dataclass(frozen=True)
class AffinePlan(LaunchPlan):
    """Global gap-affine alignments; penalties have been divided by `scale`."""

    penalties: AffinePenalties
    scale: int
    max_penalty: int
    band: Band

    slot: ClassVar[int] = 2 * MOST_PENALTY + 2
    last_first: ClassVar[bool] = False

    def in_groups(self) -> bool:
        """Return True if groups of lanes align the pairs."""
        fit = all(shape.shared_bytes <= SHARED_BYTES for shape in self.shapes())
        return self.band.width == 0 and fit

    def band_shapes(self, n_block_kernels: int) -> list[SearchShape]:
        """Return the shapes of groups in a band that fit; none without a band."""
        if self.band.width == 0:
            return []
        wanted = BAND_LAUNCHES[min(n_block_kernels, len(BAND_LAUNCHES) - 1)], BAND_LAUNCHES[-1]
        shapes = [
            band_shape(self.penalties, self.band, *launch) for launch in dict.fromkeys(wanted)
        ]
        return [shape for shape in shapes if shape.shared_bytes <= most_shared_bytes()]

    def in_band(
        self, space: Workspace, given: tuple[Any, ...], shapes: list[SearchShape], want_path: bool,
        out: ChunkResults,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the kernels for a band."""
        launches = []
        staged, most_pairs, *_ = given
        left = worklist_for(space, most_pairs)
        for i, shape in enumerate(shapes):
            n_blocks, place = search_space(
                space, f"band {i}", shape, most_pairs, MOST_BAND_BLOCKS, want_path
            )
            bound = BoundKernel(
                band_affine_kernel, space.stream, *given, self.band, shape, int(want_path), place,
                left, self.slot, out, shared_bytes=shape.shared_bytes,
            )  # fmt: skip
            launches += worklist_launches(space, staged, most_pairs, out, left, i == 0, i == 0)
            launches.append(PairLaunch(bound, n_blocks, shape.groups))
        return launches

    def shapes(self) -> list[GroupShape]:
        """Return the shapes of groups, one a launch."""
        return [group_shape(self.penalties, *launch) for launch in GROUP_LAUNCHES]

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: ChunkResults,
        n_block_kernels: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the kernels of groups, or of a thread a pair where rows do not fit, and of blocks.

        In a band groups of a few lanes align the pairs, and a warp each those of high penalties.
        """
        given = staged, most_pairs, self.penalties, self.scale, self.max_penalty
        bands = self.band_shapes(n_block_kernels)
        if bands:
            return self.in_band(space, given, bands, want_path, out)
        launches = []
        if self.in_groups():
            for i, shape in enumerate(self.shapes()):
                n_blocks, groups = group_space(
                    space, f"groups {i}", self.penalties, shape, most_pairs, want_path
                )
                bound = BoundKernel(
                    group_affine_kernel, space.stream, *given, shape, int(i == 0), int(want_path),
                    groups, self.slot, out, shared_bytes=shape.shared_bytes,
                )  # fmt: skip
                launches.append(PairLaunch(bound, n_blocks, shape.groups))
        else:
            for i, attempt in enumerate(THREAD_ATTEMPTS):
                n_blocks = min(attempt.n_threads, most_pairs + BLOCK - 1) // BLOCK
                own = affine_space(
                    space, self.penalties, attempt.bound, n_blocks * BLOCK, 0, want_path,
                    f"attempt {i} ",
                )  # fmt: skip
                bound = BoundKernel(
                    staged_affine_kernel, space.stream, *given, self.band, attempt.bound,
                    int(i == 0), int(want_path), own, self.slot, out,
                )  # fmt: skip
                launches.append(PairLaunch(bound, n_blocks, BLOCK))
        widths = BLOCK_WIDTHS[:n_block_kernels] if self.band.width == 0 else ()
        blocks = [block_shape(self.penalties, width) for width in widths]
        for i, room in enumerate(
            room for room in blocks if room.shared_bytes <= most_shared_bytes()
        ):
            n_blocks, place = search_space(
                space, f"blocks {i}", room, most_pairs, MOST_WIDE_BLOCKS, want_path
            )
            left = worklist_for(space, most_pairs)
            bound = BoundKernel(
                wide_affine_kernel, space.stream, *given, room, int(want_path), place, left,
                self.slot, out, shared_bytes=room.shared_bytes,
            )  # fmt: skip
            launches += worklist_launches(space, staged, most_pairs, out, left, i == 0, False)
            launches.append(PairLaunch(bound, n_blocks, 1))
        return launches
