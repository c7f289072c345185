"""What a first pass over short pairs launches on a CUDA device: the same for every metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mapper.align.cuda.kernels import BLOCK, ChunkResults
from mapper.align.cuda.worklist import Worklist, clear_worklist_kernel, fill_worklist_kernel
from mapper.cuda.launch import BoundKernel, Calls
from mapper.cuda.memory import Workspace


class GroupLaunch(NamedTuple):
    """How far a launch of groups goes, and how many lanes a group has."""

    bound: int  # greatest distance or (divided) penalty
    lanes: int


BLOCKS_FROM = (512, 2048)
"""Mean letters of a chunk's sequences from which pairs that are left go to a block each, and then
to one with more room. Others are hardly ever left, and every launch costs the host what thousands
of pairs do."""


def block_kernels_for(mean_letters: int) -> int:
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


def worklist_for(space: Workspace, most_pairs: int) -> Worklist:
    """Return room for a list of the pairs that are left."""
    return Worklist(
        space.device("worklist", most_pairs, np.int32),
        space.device("worklist counts", 3, np.int32),
    )


def worklist_launches(
    space: Workspace, staged: Any, most_pairs: int, out: ChunkResults, left: Worklist,
    is_first_list: bool, is_first_look: bool,
) -> list[PairLaunch]:  # fmt: skip
    """Return what lists the pairs that are left; `is_first_look`: all are."""
    clear = BoundKernel(clear_worklist_kernel, space.stream, left, 1, 3 if is_first_list else 2)
    to_list = BoundKernel(
        fill_worklist_kernel, space.stream, staged, most_pairs, int(is_first_look), out, left
    )
    return [PairLaunch(clear, 1, BLOCK), PairLaunch(to_list, most_pairs, BLOCK)]


class LaunchPlan(ABC):
    """What aligns the pairs of a chunk."""

    slot: ClassVar[int]
    """Most operations of a path."""

    last_first: ClassVar[bool]
    """Whether kernels write the last operation first."""

    @abstractmethod
    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: ChunkResults,
        n_block_kernels: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the kernels that align staged chunks of up to `most_pairs`, in work space.

        `n_block_kernels`: kinds of blocks for pairs that others leave (:func:`block_kernels_for`).
        """
