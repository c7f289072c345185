"""Work space of gap-affine alignment on CUDA devices: rows, origins and events of many threads.

The last axis of every array is the thread, so that the threads of a warp, which are at about
the same cells of their pairs, touch neighbouring memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mapper.align.affine.affine_origins import Origins
from mapper.align.affine.wavefront import AffineRows, look_back
from mapper.align.affine.wavefront_affine import AffinePenalties
from mapper.cuda.api import device_function
from mapper.cuda.memory import Workspace

_MAX_CELLS = 1 << 20
"""Most origins of a thread; a pair that needs more is left."""


class AffineSpace(NamedTuple):
    """Arrays of all threads, or views of one thread's."""

    rows: Any  # AffineRows
    origins: Any  # Origins
    events: Any  # uint32


def affine_space(
    space: Workspace, penalties: AffinePenalties, bound: int, n_threads: int, begin_width: int,
    want_path: bool, name: str = "",
) -> AffineSpace:  # fmt: skip
    """Return work space for penalties up to `bound`.

    `begin_width`: the most diagonals, less one, on which an alignment can begin. A diagonal
    more for each gap symbol that the bound allows, on both sides; where alignments may begin
    on more diagonals than that, the pair is left. `name`: what the names of the arrays begin with.
    """

    def room(what: str, dtype: Any, *shape: int) -> Any:
        n_items = int(np.prod(shape)) * n_threads
        return space.device(name + what, n_items, dtype).reshape((*shape, n_threads))

    n_rows = look_back(penalties)
    reach = max(0, bound - penalties.gap_open) // penalties.gap_extend
    n_columns = 2 * (reach + 4)
    kept = bound + 2 if want_path else 1
    n_cells = (bound + 1) * (reach + 4) + begin_width * kept if want_path else 1
    rows = AffineRows(
        room("match", np.int32, n_rows, n_columns), room("insertion", np.int32, n_rows, n_columns),
        room("deletion", np.int32, n_rows, n_columns), room("lo", np.int64, n_rows),
        room("hi", np.int64, n_rows),
    )  # fmt: skip
    origins = Origins(
        room("origins", np.uint8, min(n_cells, _MAX_CELLS)), room("origin at", np.int64, kept),
        room("origin lo", np.int64, kept),
    )  # fmt: skip
    return AffineSpace(rows, origins, room("events", np.uint32, bound + 1))


@device_function
def rows_of(space, thread):
    """Rows of one thread."""
    rows = space.rows
    return AffineRows(
        rows.match[:, :, thread], rows.insertion[:, :, thread], rows.deletion[:, :, thread],
        rows.lo[:, thread], rows.hi[:, thread],
    )  # fmt: skip


@device_function
def origins_of(space, thread):
    """Origins of one thread."""
    origins = space.origins
    return Origins(origins.cells[:, thread], origins.at[:, thread], origins.lo[:, thread])
