"""What a first pass over short pairs launches on a CUDA device, for each metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mapper.device.calls import Calls
from mapper.device.memory import Workspace, multiprocessors
from mapper.device.seam import SHARED_BYTES, BoundKernel
from mapper.pairwise.affine_space import affine_space
from mapper.pairwise.cuda_batch import Rung
from mapper.pairwise.flat_affine import (
    GroupShape,
    group_affine_kernel,
    group_shape,
    group_space,
)
from mapper.pairwise.flat_block_affine import (
    BlockShape,
    LeftPairs,
    band_affine_kernel,
    band_shape,
    block_shape,
    block_space,
    clear_list_kernel,
    list_left_kernel,
    wide_affine_kernel,
)
from mapper.pairwise.flat_edit import edit_shape, group_edit_kernel
from mapper.pairwise.flat_kernels import (
    BLOCK,
    FlatResults,
    small_affine_kernel,
    small_edit_kernel,
)
from mapper.pairwise.flat_warp import MOST_SHARED_BYTES
from mapper.pairwise.small_rows import small_layout
from mapper.pairwise.wavefront_affine import AffinePenalties, Band
from mapper.pairwise.wavefront_edit import Rows


class GroupRung(NamedTuple):
    """How far a launch of groups goes, and how many lanes a group has."""

    bound: int  # greatest distance or (divided) penalty
    lanes: int


MORE_EDITS = 64
"""Greatest distance of the first pass."""

EDIT_RUNGS = (GroupRung(24, 8), GroupRung(MORE_EDITS, 32))
"""Beside the small kernel, which does what it can first."""


MOST_PENALTY = 220
"""Greatest (divided) penalty of the first pass."""

GROUP_RUNGS = (GroupRung(40, 8), GroupRung(MOST_PENALTY, 32))

AFFINE_RUNGS = (Rung(40, 1 << 15), Rung(MOST_PENALTY, 1 << 12))
"""The same with a thread a pair, for bands and for penalties whose rows do not fit shared memory:
threads of a chunk. With usual penalties their work space takes 0.4 GB."""


LONG = 512
"""Mean letters of a sequence from which a chunk's pairs that are left go to a block each; others
are hardly ever left, and every launch costs the host what thousands of pairs do."""

ANY_LENGTH = range(1 << 31)

BLOCK_RUNGS = ((2048, range(LONG, 1 << 31)), (4096, range(4 * LONG, 1 << 31)))
"""Columns of a row of exact alignment by blocks (with usual penalties the greatest that it goes
to), and for which mean letters."""


class PairLaunch(NamedTuple):
    """A kernel whose second argument is the number of pairs, with all arguments."""

    bound: BoundKernel
    most_blocks: int
    pairs: int  # that a block does at a time
    mean_letters: range = ANY_LENGTH  # of the chunks that it is launched for

    def note(self, calls: Calls, n: int) -> None:
        """Note its launch for n pairs."""
        calls.launch(self.bound, min(self.most_blocks, -(-n // self.pairs)), {1: n})


class FlatMetric(ABC):
    """What aligns the pairs of a chunk."""

    slot: ClassVar[int]
    """Most operations of a path."""

    last_first: ClassVar[bool]
    """Whether kernels write the last operation first."""

    @abstractmethod
    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: FlatResults
    ) -> list[PairLaunch]:
        """Return the kernels that align staged chunks of up to `most_pairs`, in work space."""


@dataclass(frozen=True)
class SmallEdit(FlatMetric):
    """Global edit distances, first up to SMALL by a thread a pair, then up to MORE_EDITS."""

    max_distance: int

    slot: ClassVar[int] = 2 * MORE_EDITS + 2
    last_first: ClassVar[bool] = True

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: FlatResults
    ) -> list[PairLaunch]:
        """Return the small kernel, and that of groups for each rung."""
        host = small_layout(MORE_EDITS, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"flat layout {name}", column) for name, column in host._asdict().items()
        )
        small = BoundKernel(
            small_edit_kernel, space.stream, staged, most_pairs, self.max_distance,
            int(want_path), layout, self.slot, out,
        )  # fmt: skip
        launches = [PairLaunch(small, most_pairs, BLOCK)]
        for shape in (edit_shape(*rung) for rung in EDIT_RUNGS):
            bound = BoundKernel(
                group_edit_kernel, space.stream, staged, most_pairs, self.max_distance, shape,
                int(want_path), layout, self.slot, out, shared_bytes=shape.shared_bytes,
            )  # fmt: skip
            launches.append(PairLaunch(bound, multiprocessors() * shape.blocks, shape.groups))
        return launches


@dataclass(frozen=True)
class SmallAffine(FlatMetric):
    """Global gap-affine alignments; penalties have been divided by `scale`."""

    penalties: AffinePenalties
    scale: int
    max_penalty: int
    band: Band

    slot: ClassVar[int] = 2 * MOST_PENALTY + 2
    last_first: ClassVar[bool] = False

    def in_groups(self) -> bool:
        """Whether groups of lanes align the pairs."""
        fit = all(shape.shared_bytes <= SHARED_BYTES for shape in self.shapes())
        return self.band.width == 0 and fit

    def shapes(self) -> list[GroupShape]:
        """Return the shapes of groups, one a rung."""
        return [group_shape(self.penalties, *rung) for rung in GROUP_RUNGS]

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: FlatResults
    ) -> list[PairLaunch]:
        """Return the kernel of each rung."""
        given = staged, most_pairs, self.penalties, self.scale, self.max_penalty
        launches = []
        if self.in_groups():
            for i, shape in enumerate(self.shapes()):
                n_blocks, groups = group_space(
                    space, f"flat groups {i}", self.penalties, shape, most_pairs, want_path
                )
                bound = BoundKernel(
                    group_affine_kernel, space.stream, *given, shape, int(i == 0), int(want_path),
                    groups, self.slot, out, shared_bytes=shape.shared_bytes,
                )  # fmt: skip
                launches.append(PairLaunch(bound, n_blocks, shape.groups))
        else:
            by_thread = self._by_warps() is None
            for i, rung in enumerate(AFFINE_RUNGS):
                n_blocks = min(rung.n_threads, most_pairs + BLOCK - 1) // BLOCK
                own = affine_space(
                    space, self.penalties, rung.bound, n_blocks * BLOCK, 0, want_path,
                    f"flat rung {i} ",
                )  # fmt: skip
                bound = BoundKernel(
                    small_affine_kernel, space.stream, *given, self.band, rung.bound, int(i == 0),
                    int(want_path), own, self.slot, out,
                )  # fmt: skip
                lengths = ANY_LENGTH if by_thread else range(LONG)
                launches.append(PairLaunch(bound, n_blocks, BLOCK, lengths))
        return launches + self._of_blocks(space, staged, most_pairs, want_path, out)

    def _by_warps(self) -> BlockShape | None:
        """Return the room of a warp a pair, for a band that is narrow enough."""
        if self.band.width == 0:
            return None
        shape = band_shape(self.penalties, self.band)
        return shape if shape.shared_bytes <= SHARED_BYTES else None

    def _of_blocks(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: FlatResults
    ) -> list[PairLaunch]:
        """Return what aligns the pairs of long chunks that other kernels have left."""
        by_warps = self._by_warps()
        if by_warps is not None:
            rungs = [(band_affine_kernel, by_warps, range(LONG, 1 << 31))]
        elif self.band.width > 0:
            return []
        else:
            rungs = [
                (wide_affine_kernel, block_shape(self.penalties, width), lengths)
                for width, lengths in BLOCK_RUNGS
            ]
            rungs = [rung for rung in rungs if rung[1].shared_bytes <= MOST_SHARED_BYTES]
        left = LeftPairs(
            space.device("flat left", most_pairs, np.int32),
            space.device("flat left counts", 3, np.int32),
        )  # fmt: skip
        launches = []
        for i, (align, shape, lengths) in enumerate(rungs):
            clear = BoundKernel(clear_list_kernel, space.stream, left, 3, 3 if i == 0 else 2)
            is_first = int(by_warps is not None)
            to_list = BoundKernel(
                list_left_kernel, space.stream, staged, most_pairs, is_first, out, left
            )
            n_blocks, own = block_space(space, f"flat blocks {i}", shape, most_pairs, want_path)
            bound = BoundKernel(
                align, space.stream, staged, most_pairs, self.penalties, self.scale,
                self.max_penalty, self.band, shape,
                int(want_path), own, left, self.slot, out, shared_bytes=shape.shared_bytes,
            )  # fmt: skip
            launches += [
                PairLaunch(clear, 1, 1, lengths), PairLaunch(to_list, most_pairs, BLOCK, lengths),
                PairLaunch(bound, n_blocks, 1, lengths),
            ]  # fmt: skip
        return launches
