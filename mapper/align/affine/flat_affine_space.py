"""Room of gap-affine alignment on CUDA devices: by blocks of threads, and by groups in a band."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.affine.cuda_rows import NULL_16
from mapper.align.affine.wavefront_affine import AffinePenalties, Band
from mapper.align.cuda.cooperative import GROUP_BLOCK, WARP
from mapper.align.cuda.worklist import blocks_with_room
from mapper.cuda.api import SHARED_BYTES
from mapper.cuda.memory import Workspace

LARGE_BOUND = -int(NULL_16) // 2
"""Greatest (divided) penalty of a band."""

MOST_BAND_BLOCKS = 8
"""Of a multiprocessor, by the registers of a thread."""

# What a group keeps in shared memory before its rows, in words of 32 bits: the pair that its warp
# takes next, the fewest symbols left of two rows, and the bounds of every row of M's ring.
GROUP_NEXT, GROUP_FEWEST, GROUP_BOUNDS = 0, 1, 3

# What a block of one pair keeps: the pair that it takes next, and the same.
BLOCK_FEWEST, BLOCK_BOUNDS = 1, 3


class BlockSpace(NamedTuple):
    """Where the origins and events of all blocks lie."""

    cells: Any  # uint8 (n_blocks * cells of a block,)
    at: Any  # int64 (n_blocks * (bound + 2),)
    lo: Any  # int64, likewise
    events: Any  # uint32 (n_blocks * (bound + 1),)


class BlockShape(NamedTuple):
    """The room of a block."""

    bound: int  # greatest (divided) penalty
    width: int  # columns of a row, a power of two
    n_match: int  # rows of M that are held
    n_gap: int  # rows of I, and of D
    cells: int  # origins of a pair

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        rows = self.n_match + 2 * self.n_gap
        return 4 * (BLOCK_BOUNDS + self.n_match) + 2 * rows * self.width


def block_shape(penalties: AffinePenalties, width: int) -> BlockShape:
    """Return the room for exact alignment in rows of up to `width` cells, a power of two."""
    opening = penalties.gap_open + penalties.gap_extend
    # A diamond is widest where half of the penalty is spent; never mind what opens a gap.
    bound = min(width * penalties.gap_extend, -int(NULL_16) // 2)
    return BlockShape(
        bound, width, max(penalties.mismatch, opening) + 1, penalties.gap_extend + 1,
        width * bound // 2 + 4 * bound,
    )  # fmt: skip


def block_space(
    space: Workspace, name: str, shape: BlockShape, n_pairs: int, want_path: bool
) -> tuple[int, BlockSpace]:
    """Return how many blocks to launch for up to `n_pairs`, and their work space."""
    cells, rows = (shape.cells, shape.bound + 2) if want_path else (1, 1)
    n_blocks = blocks_with_room(n_pairs, shape.shared_bytes, 16, cells + 20 * rows)
    return n_blocks, BlockSpace(
        space.device(f"{name} cells", n_blocks * cells, np.uint8),
        space.device(f"{name} at", n_blocks * rows, np.int64),
        space.device(f"{name} lo", n_blocks * rows, np.int64),
        space.device(f"{name} events", n_blocks * rows, np.uint32),
    )  # fmt: skip


class BandSpace(NamedTuple):
    """Where the origins and events of all groups of a launch lie."""

    cells: Any  # uint8 (n_groups * cells of a group,)
    at: Any  # int32 (n_groups * (bound + 1),): where a row's origin of diagonal 0 would lie
    events: Any  # uint32 (n_groups * (bound + 1),)
    zeros: Any  # int64 (bound + 1,)


class BandShape(NamedTuple):
    """How the lanes and the shared memory of a block are dealt to groups."""

    log_lanes: int  # of a group
    groups: int  # of a block; threads beyond them have nothing to do
    bound: int  # greatest (divided) penalty
    width: int  # columns of a row, a power of two
    n_match: int  # rows of M that are held
    n_gap: int  # rows of I, and of D
    stride: int  # words of 32 bits of a group
    cells: int  # origins of a pair

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.groups * self.stride


def band_shape(penalties: AffinePenalties, band: Band, bound: int, lanes: int) -> BandShape:
    """Return the shape for penalties up to `bound` and groups of `lanes`, or more in wide bands."""
    # After a cut rows grow by a diagonal on each side for every gap symbol.
    grown = band.width + 2 * (band.interval // penalties.gap_extend + 2)
    width = max(64, 1 << (grown - 1).bit_length())
    opening = penalties.gap_open + penalties.gap_extend
    n_match, n_gap = max(penalties.mismatch, opening) + 1, penalties.gap_extend + 1
    words = GROUP_BOUNDS + n_match + (n_match + 2 * n_gap) * width // 2
    stride = 8 * (-(-words // 8) | 1)  # an odd multiple of 8: groups of a warp differ in banks
    lanes = min(WARP, max(lanes, width // 8))  # so that rows take as much of a warp's room
    of_warp = WARP // lanes
    n_warps = min(GROUP_BLOCK // WARP, SHARED_BYTES // (4 * stride * of_warp))
    return BandShape(
        log_lanes=lanes.bit_length() - 1,
        groups=max(1, n_warps) * of_warp,
        bound=bound,
        width=width,
        n_match=n_match,
        n_gap=n_gap,
        stride=stride,
        cells=bound * grown,
    )


def band_space(
    space: Workspace, name: str, shape: BandShape, n_pairs: int, want_path: bool
) -> tuple[int, BandSpace]:
    """Return how many blocks to launch for up to `n_pairs`, and their work space."""
    cells, rows = (shape.cells, shape.bound + 1) if want_path else (1, 1)
    n_blocks = blocks_with_room(
        -(-n_pairs // shape.groups), shape.shared_bytes, MOST_BAND_BLOCKS,
        shape.groups * (cells + 8 * rows),
    )  # fmt: skip
    n_groups = n_blocks * shape.groups
    return n_blocks, BandSpace(
        space.device(f"{name} cells", n_groups * cells, np.uint8),
        space.device(f"{name} at", n_groups * rows, np.int32),
        space.device(f"{name} events", n_groups * rows, np.uint32),
        space.upload(f"{name} zeros", np.zeros(rows, np.int64)),
    )
