"""What a first pass over short pairs launches on a CUDA device, for each metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mapper.device.memory import Workspace
from mapper.pairwise.affine_space import affine_space
from mapper.pairwise.cuda_batch import Rung
from mapper.pairwise.flat_kernels import (
    BLOCK,
    FlatResults,
    more_edit_kernel,
    small_affine_kernel,
    small_edit_kernel,
)
from mapper.pairwise.small_rows import small_layout
from mapper.pairwise.wavefront_affine import AffinePenalties, Band
from mapper.pairwise.wavefront_edit import Rows

MORE_EDITS = 64
"""Greatest distance of the first pass."""

MORE_EDIT_THREADS = 1 << 15
"""Threads of a chunk: their cells take 0.3 GB."""

AFFINE_RUNGS = (Rung(40, 1 << 15), Rung(220, 1 << 12))
"""(Divided) penalties of the first pass, and threads of a chunk: with usual penalties their work
space takes 0.4 GB."""


class FlatMetric(ABC):
    """What aligns the pairs of a chunk."""

    slot: ClassVar[int]
    """Most operations of a path."""

    @abstractmethod
    def prepare(self, space: Workspace, most_pairs: int, want_path: bool) -> Any:
        """Return the work space, from `space`, of chunks of up to `most_pairs`."""

    @abstractmethod
    def launch(
        self, stream: Any, prepared: Any, staged: Any, n: int, want_path: bool, out: FlatResults
    ) -> None:
        """Queue the kernels that align a staged chunk of n pairs."""


@dataclass(frozen=True)
class SmallEdit(FlatMetric):
    """Global edit distances, first up to SMALL in fast memory, then up to MORE_EDITS."""

    max_distance: int

    slot: ClassVar[int] = 2 * MORE_EDITS + 2

    def prepare(self, space: Workspace, most_pairs: int, want_path: bool) -> Any:
        """Return how far the second kernel goes, the layout of rows, and its cells."""
        host = small_layout(MORE_EDITS, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"flat layout {name}", column) for name, column in host._asdict().items()
        )
        n_threads, n_cells = _threads(MORE_EDIT_THREADS, most_pairs), (MORE_EDITS + 1) ** 2
        cells = space.device("flat cells", n_cells * n_threads, np.int16)
        return MORE_EDITS, layout, cells.reshape((n_cells, n_threads))

    def launch(
        self, stream: Any, prepared: Any, staged: Any, n: int, want_path: bool, out: FlatResults
    ) -> None:
        """Queue the kernels that align a staged chunk of n pairs."""
        bound, layout, cells = prepared
        limit = self.max_distance
        small_edit_kernel.launch(
            n, stream, staged, n, limit, int(want_path), layout, self.slot, out
        )
        more_edit_kernel.launch(
            cells.shape[1], stream, staged, n, limit, bound, int(want_path), cells, layout,
            self.slot, out,
        )  # fmt: skip


@dataclass(frozen=True)
class SmallAffine(FlatMetric):
    """Global gap-affine alignments; penalties have been divided by `scale`."""

    penalties: AffinePenalties
    scale: int
    max_penalty: int
    band: Band

    slot: ClassVar[int] = 2 * AFFINE_RUNGS[-1].bound + 2

    def prepare(self, space: Workspace, most_pairs: int, want_path: bool) -> Any:
        """Return the work space of each rung."""
        return [
            affine_space(
                space, self.penalties, rung.bound, _threads(rung.n_threads, most_pairs), 0,
                want_path, f"flat rung {i} ",
            )
            for i, rung in enumerate(AFFINE_RUNGS)
        ]  # fmt: skip

    def launch(
        self, stream: Any, prepared: Any, staged: Any, n: int, want_path: bool, out: FlatResults
    ) -> None:
        """Queue the kernels that align a staged chunk of n pairs."""
        for i, (rung, own) in enumerate(zip(AFFINE_RUNGS, prepared, strict=True)):
            small_affine_kernel.launch(
                own.events.shape[1], stream, staged, n, self.penalties, self.scale,
                self.max_penalty, self.band, rung.bound, int(i == 0), int(want_path), own,
                self.slot, out,
            )  # fmt: skip


def _threads(most: int, n: int) -> int:
    """Return how many threads to launch for n pairs."""
    return min(most, (n + BLOCK - 1) // BLOCK * BLOCK)
