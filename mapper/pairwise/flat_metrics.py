"""What a first pass over short pairs launches on a CUDA device, for each metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mapper.device.calls import Calls
from mapper.device.memory import Workspace, multiprocessors
from mapper.device.seam import BoundKernel
from mapper.pairwise.affine_space import affine_space
from mapper.pairwise.cuda_batch import Rung
from mapper.pairwise.flat_affine import (
    GroupShape,
    group_affine_kernel,
    group_shape,
    group_space,
)
from mapper.pairwise.flat_edit import edit_shape, group_edit_kernel
from mapper.pairwise.flat_kernels import (
    BLOCK,
    FlatResults,
    small_affine_kernel,
    small_edit_kernel,
)
from mapper.pairwise.flat_warp import SHARED_BYTES
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


class PairLaunch(NamedTuple):
    """A kernel whose second argument is the number of pairs, with all arguments."""

    bound: BoundKernel
    most_blocks: int
    pairs: int  # that a block does at a time

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
        launches = []
        if self.in_groups():
            for i, shape in enumerate(self.shapes()):
                n_blocks, groups = group_space(
                    space, f"flat groups {i}", self.penalties, shape, most_pairs, want_path
                )
                bound = BoundKernel(
                    group_affine_kernel, space.stream, staged, most_pairs, self.penalties,
                    self.scale, self.max_penalty, shape, int(i == 0), int(want_path), groups,
                    self.slot, out, shared_bytes=shape.shared_bytes,
                )  # fmt: skip
                launches.append(PairLaunch(bound, n_blocks, shape.groups))
            return launches
        for i, rung in enumerate(AFFINE_RUNGS):
            n_blocks = min(rung.n_threads, most_pairs + BLOCK - 1) // BLOCK
            own = affine_space(
                space, self.penalties, rung.bound, n_blocks * BLOCK, 0, want_path,
                f"flat rung {i} ",
            )  # fmt: skip
            bound = BoundKernel(
                small_affine_kernel, space.stream, staged, most_pairs, self.penalties, self.scale,
                self.max_penalty, self.band, rung.bound, int(i == 0), int(want_path), own,
                self.slot, out,
            )  # fmt: skip
            launches.append(PairLaunch(bound, n_blocks, BLOCK))
        return launches
