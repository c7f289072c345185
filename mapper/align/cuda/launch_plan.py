"""Launch plans: which kernels align a chunk of pairs. Base class and common launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mapper.align.cuda.kernels import BLOCK, ChunkResults
from mapper.align.cuda.worklist import Worklist, clear_worklist_kernel, fill_worklist_kernel
from mapper.cuda.launch import BoundKernel, Calls
from mapper.cuda.memory import Workspace


class GroupLaunch(NamedTuple):
    """Bound of a launch of groups, and the lanes of a group."""

    bound: int  # greatest distance or (divided) penalty
    lanes: int


BLOCKS_FROM = (512, 2048)
"""Mean letters of a chunk's sequences from which unsolved pairs go to a block each, and then to one
with more room. In chunks of shorter sequences hardly any pair is unsolved, and a launch costs the
host as much as thousands of pairs."""


def block_kernels_for(mean_letters: int) -> int:
    """Return how many block kernels a chunk gets, by the mean length of its sequences."""
    return sum(mean_letters >= least for least in BLOCKS_FROM)


class PairLaunch(NamedTuple):
    """A kernel with all arguments, of which the second is the number of pairs."""

    bound: BoundKernel
    most_blocks: int
    pairs: int  # of a block at a time

    def queue(self, calls: Calls, n: int) -> None:
        """Queue the launch for n pairs."""
        calls.launch(self.bound, min(self.most_blocks, -(-n // self.pairs)), {1: n})


def worklist_for(space: Workspace, most_pairs: int) -> Worklist:
    """Return a worklist for up to `most_pairs`."""
    return Worklist(
        space.device("worklist", most_pairs, np.int32),
        space.device("worklist counts", 3, np.int32),
    )


def worklist_launches(
    space: Workspace, staged: Any, most_pairs: int, out: ChunkResults, worklist: Worklist,
    is_first_list: bool, is_first_look: bool,
) -> list[PairLaunch]:  # fmt: skip
    """Return the launches that list the unsolved pairs.

    `is_first_list`: of the chunk. `is_first_look`: no kernel has seen the chunk.
    """
    clear = BoundKernel(clear_worklist_kernel, space.stream, worklist, 1, 3 if is_first_list else 2)
    to_list = BoundKernel(
        fill_worklist_kernel, space.stream, staged, most_pairs, int(is_first_look), out, worklist
    )
    return [PairLaunch(clear, 1, BLOCK), PairLaunch(to_list, most_pairs, BLOCK)]


class LaunchPlan(ABC):
    """Kernels of a metric that align the pairs of a chunk."""

    slot: ClassVar[int]
    """Operations of the slot of a pair."""

    last_first: ClassVar[bool]
    """Kernels write the last operation first."""

    @abstractmethod
    def launches(
        self, space: Workspace, staged: Any, most_pairs: int, want_path: bool, out: ChunkResults,
        n_block_kernels: int,
    ) -> list[PairLaunch]:  # fmt: skip
        """Return the kernels that align staged chunks of up to `most_pairs`, in launch order.

        `n_block_kernels`: of pairs that others do not solve (:func:`block_kernels_for`).
        """
