"""What a first pass over short pairs launches on a CUDA device, for each metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mapper.device.bound_kernel import BoundKernel
from mapper.device.calls import Calls
from mapper.device.memory import Workspace, multiprocessors
from mapper.device.seam import SHARED_BYTES
from mapper.pairwise.affine_space import affine_space
from mapper.pairwise.cuda_batch import Rung
from mapper.pairwise.flat_affine import (
    GroupShape,
    group_affine_kernel,
    group_shape,
    group_space,
)
from mapper.pairwise.flat_affine_space import (
    LARGE_BOUND,
    BandShape,
    band_shape,
    band_space,
    block_shape,
    block_space,
)
from mapper.pairwise.flat_band import band_affine_kernel
from mapper.pairwise.flat_block_affine import wide_affine_kernel
from mapper.pairwise.flat_block_edit import edit_block_shape, edit_block_space, wide_edit_kernel
from mapper.pairwise.flat_edit import edit_shape, group_edit_kernel
from mapper.pairwise.flat_kernels import (
    BLOCK,
    FlatResults,
    small_affine_kernel,
    small_edit_kernel,
)
from mapper.pairwise.flat_left import LeftPairs, clear_list_kernel, list_left_kernel
from mapper.pairwise.flat_stages import begin_stages_kernel, stages_for
from mapper.pairwise.flat_vectors import vector_edit_kernel, vector_space
from mapper.pairwise.flat_warp import most_shared_bytes
from mapper.pairwise.small_rows import small_layout
from mapper.pairwise.wavefront_affine import AffinePenalties, Band
from mapper.pairwise.wavefront_edit import Rows


class GroupRung(NamedTuple):
    """How far a launch of groups goes, and how many lanes a group has."""

    bound: int  # greatest distance or (divided) penalty
    lanes: int


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


MOST_PENALTY = 220
"""Greatest (divided) penalty of the first pass."""

GROUP_RUNGS = (GroupRung(40, 8), GroupRung(MOST_PENALTY, 32))

BAND_RUNGS = (
    GroupRung(MOST_PENALTY, 8), GroupRung(1024, 8), GroupRung(4096, 8), GroupRung(LARGE_BOUND, 32)
)  # fmt: skip
"""In a band: where chunks begin, by the number of their kinds of blocks; what the first leaves goes
to the last (measured: ``benchmarks/results/pairwise_cuda_band.md``)."""

AFFINE_RUNGS = (Rung(40, 1 << 15), Rung(MOST_PENALTY, 1 << 12))
"""The same with a thread a pair, for penalties and bands whose rows do not fit shared memory:
threads of a chunk."""


BLOCKS_FROM = (512, 2048)
"""Mean letters of a chunk's sequences from which pairs that are left go to a block each, and then
to one with more room. Others are hardly ever left, and every launch costs the host what thousands
of pairs do."""

BLOCK_WIDTHS = (2048, 4096)
"""Columns of a row of exact alignment by blocks: with a gap extend of 1 the greatest (divided)
penalty that it goes to."""

EDIT_BLOCK_WIDTHS = (2048, 8192)
"""The same of edit distance; distances to half as much, and paths of no greater ones than the CPU
traces as a whole."""


def room_for(mean_letters: int) -> int:
    """Return how many kinds of blocks a chunk is given, by the mean length of its sequences."""
    return sum(mean_letters >= least for least in BLOCKS_FROM)


class PairLaunch(NamedTuple):
    """A kernel whose second argument is the number of pairs, with all arguments."""

    bound: BoundKernel
    most_blocks: int
    pairs: int  # that a block does at a time

    def note(self, calls: Calls, n: int) -> None:
        """Note its launch for n pairs."""
        calls.launch(self.bound, min(self.most_blocks, -(-n // self.pairs)), {1: n})


def left_pairs(space: Workspace, most_pairs: int) -> LeftPairs:
    """Return room for a list of the pairs that are left."""
    return LeftPairs(
        space.device("flat left", most_pairs, np.int32),
        space.device("flat left counts", 3, np.int32),
    )


def listing(
    space: Workspace, staged: Any, most_pairs: int, out: FlatResults, left: LeftPairs,
    is_first_list: bool, is_first_look: bool,
) -> list[PairLaunch]:  # fmt: skip
    """Return what lists the pairs that are left; `is_first_look`: all are."""
    clear = BoundKernel(clear_list_kernel, space.stream, left, 1, 3 if is_first_list else 2)
    to_list = BoundKernel(
        list_left_kernel, space.stream, staged, most_pairs, int(is_first_look), out, left
    )
    return [PairLaunch(clear, 1, BLOCK), PairLaunch(to_list, most_pairs, BLOCK)]


class FlatMetric(ABC):
    """What aligns the pairs of a chunk."""

    slot: ClassVar[int]
    """Most operations of a path."""

    last_first: ClassVar[bool]
    """Whether kernels write the last operation first."""

    @abstractmethod
    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: FlatResults,
        n_kinds: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the kernels that align staged chunks of up to `most_pairs`, in work space.

        `n_kinds`: kinds of blocks for pairs that others leave (:func:`room_for`).
        """


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

    def band_shapes(self, n_kinds: int) -> list[BandShape]:
        """Return the shapes of groups in a band that fit; none without a band."""
        if self.band.width == 0:
            return []
        rungs = BAND_RUNGS[min(n_kinds, len(BAND_RUNGS) - 1)], BAND_RUNGS[-1]
        shapes = [band_shape(self.penalties, self.band, *rung) for rung in dict.fromkeys(rungs)]
        return [shape for shape in shapes if shape.shared_bytes <= most_shared_bytes()]

    def in_band(
        self, space: Workspace, given: tuple[Any, ...], shapes: list[BandShape], want_path: bool,
        out: FlatResults,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the kernels for a band."""
        launches = []
        staged, most_pairs, *_ = given
        left = left_pairs(space, most_pairs)
        for i, shape in enumerate(shapes):
            n_blocks, place = band_space(space, f"flat band {i}", shape, most_pairs, want_path)
            bound = BoundKernel(
                band_affine_kernel, space.stream, *given, self.band, shape, int(want_path), place,
                left, self.slot, out, shared_bytes=shape.shared_bytes,
            )  # fmt: skip
            launches += listing(space, staged, most_pairs, out, left, i == 0, i == 0)
            launches.append(PairLaunch(bound, n_blocks, shape.groups))
        return launches

    def shapes(self) -> list[GroupShape]:
        """Return the shapes of groups, one a rung."""
        return [group_shape(self.penalties, *rung) for rung in GROUP_RUNGS]

    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: FlatResults,
        n_kinds: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the kernels of groups, or of a thread a pair where rows do not fit, and of blocks.

        In a band groups of a few lanes align the pairs, and a warp each those of high penalties.
        """
        given = staged, most_pairs, self.penalties, self.scale, self.max_penalty
        bands = self.band_shapes(n_kinds)
        if bands:
            return self.in_band(space, given, bands, want_path, out)
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
                launches.append(PairLaunch(bound, n_blocks, BLOCK))
        widths = BLOCK_WIDTHS[:n_kinds] if self.band.width == 0 else ()
        blocks = [block_shape(self.penalties, width) for width in widths]
        for i, room in enumerate(
            room for room in blocks if room.shared_bytes <= most_shared_bytes()
        ):
            n_blocks, place = block_space(space, f"flat blocks {i}", room, most_pairs, want_path)
            left = left_pairs(space, most_pairs)
            bound = BoundKernel(
                wide_affine_kernel, space.stream, *given, room, int(want_path), place, left,
                self.slot, out, shared_bytes=room.shared_bytes,
            )  # fmt: skip
            launches += listing(space, staged, most_pairs, out, left, i == 0, False)
            launches.append(PairLaunch(bound, n_blocks, 1))
        return launches
