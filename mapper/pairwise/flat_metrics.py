"""What a first pass over short pairs launches on a CUDA device, for each metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

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

    slot: int
    """Most operations of a path."""

    @abstractmethod
    def prepare(self, space: Workspace, most_pairs: int, want_path: bool) -> Any:
        """Return the work space, from `space`, of chunks of up to `most_pairs`."""

    @abstractmethod
    def launch(
        self, stream: Any, prepared: Any, staged: Any, n: int, want_path: bool, out: FlatResults
    ) -> None:
        """Queue the kernels that align a staged chunk of n pairs."""


class SmallEdit(FlatMetric):
    """Global edit distances, first up to SMALL in fast memory, then up to MORE_EDITS."""

    slot = 2 * MORE_EDITS + 2

    def __init__(self, max_distance: int) -> None:
        self._max_distance = max_distance

    def prepare(self, space: Workspace, most_pairs: int, want_path: bool) -> Any:
        """Return the layout of rows, and the cells of the second kernel."""
        host = small_layout(MORE_EDITS, np.zeros(1, np.int16))
        layout = Rows._make(
            space.upload(f"layout {name}", column) for name, column in host._asdict().items()
        )
        n_threads, n_cells = _threads(MORE_EDIT_THREADS, most_pairs), (MORE_EDITS + 1) ** 2
        cells = space.device("cells", n_cells * n_threads, np.int16)
        return layout, cells.reshape((n_cells, n_threads))

    def launch(
        self, stream: Any, prepared: Any, staged: Any, n: int, want_path: bool, out: FlatResults
    ) -> None:
        """Queue the kernels that align a staged chunk of n pairs."""
        layout, cells = prepared
        limit = self._max_distance
        small_edit_kernel.launch(
            n, stream, staged, n, limit, int(want_path), layout, self.slot, out
        )
        more_edit_kernel.launch(
            cells.shape[1], stream, staged, n, limit, MORE_EDITS, int(want_path), cells, layout,
            self.slot, out,
        )  # fmt: skip


class SmallAffine(FlatMetric):
    """Global gap-affine alignments; penalties have been divided by `scale`."""

    slot = 2 * AFFINE_RUNGS[-1].bound + 2

    def __init__(
        self, penalties: AffinePenalties, scale: int, max_penalty: int, band: Band
    ) -> None:
        self._penalties = penalties
        self._scale = scale
        self._max_penalty = max_penalty
        self._band = band

    def prepare(self, space: Workspace, most_pairs: int, want_path: bool) -> Any:
        """Return the work space of each rung."""
        return [
            affine_space(
                space, self._penalties, rung.bound, _threads(rung.n_threads, most_pairs), 0,
                want_path, f"rung {i} ",
            )
            for i, rung in enumerate(AFFINE_RUNGS)
        ]  # fmt: skip

    def launch(
        self, stream: Any, prepared: Any, staged: Any, n: int, want_path: bool, out: FlatResults
    ) -> None:
        """Queue the kernels that align a staged chunk of n pairs."""
        for i, (rung, own) in enumerate(zip(AFFINE_RUNGS, prepared, strict=True)):
            small_affine_kernel.launch(
                own.events.shape[1], stream, staged, n, self._penalties, self._scale,
                self._max_penalty, self._band, rung.bound, int(i == 0), int(want_path), own,
                self.slot, out,
            )  # fmt: skip


def _threads(most: int, n: int) -> int:
    """Return how many threads to launch for n pairs."""
    return min(most, (n + BLOCK - 1) // BLOCK * BLOCK)
