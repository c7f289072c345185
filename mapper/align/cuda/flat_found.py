"""What a first pass over short pairs finds: columns in memory that is the caller's to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mapper.align.cuda.chunks import Chunk
from mapper.align.cuda.flat_columns import NOT_DONE
from mapper.align.result import Columns
from mapper.cuda.memory import page_locked

COLUMN_TYPES = (np.int64, np.int8, *[np.int64] * 5)
"""Of the columns of results, and of the offsets of operations."""


class FirstPass:
    """What the first pass has found: columns of all pairs, filled where they are done."""

    def __init__(self, n_pairs: int, want_path: bool) -> None:
        types = COLUMN_TYPES[: 7 if want_path else 6]
        arrays = [page_locked(n_pairs + 1, np.dtype(dtype)) for dtype in types]
        self.columns = Columns(*(array[:n_pairs] for array in arrays[:6]))
        self.offsets = arrays[6] if want_path else None
        self._ops = np.empty(0, np.uint32)
        self.n_ops = 0
        self.n_left = 0
        self.n_wrong = 0
        """Packed pairs that do not lie where they should; they are left."""

    def ops(self) -> np.ndarray:
        """Return the operations of all pairs."""
        return self._ops[: self.n_ops]

    def room(self, n_more: int, share: float, wait: Callable[[], None]) -> np.ndarray:
        """Return where the next operations go.

        Parameters
        ----------
        share
            Of all pairs, that of these and those before.
        wait
            Waits for all copies that are queued.
        """
        needed = self.n_ops + n_more
        if needed > len(self._ops):
            wait()  # what is on its way goes to the old array
            larger = page_locked(int(needed / share * 1.125) + 1024, np.dtype(np.uint32))
            larger[: self.n_ops] = self.ops()
            self._ops = larger
        return self._ops[self.n_ops : needed]

    def close(self, unfit: Sequence[Chunk]) -> None:
        """Fill what is missing: the rows of chunks that no device got, and the last offset."""
        for chunk in unfit:
            self.columns.status[chunk.first : chunk.last] = NOT_DONE
            self.n_left += chunk.n_pairs
        if self.offsets is not None:
            self.offsets[-1] = self.n_ops
            for chunk in reversed(unfit):
                self.offsets[chunk.first : chunk.last] = self.offsets[chunk.last]
