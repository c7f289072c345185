"""Device memory that is allocated in large slabs and given out in pieces, to arrays of one stream.

The first batch of a stream needs three hundred arrays, and the driver takes half a millisecond to
allocate each, in which other threads that need it wait: with three streams that was half a second
of a run, and of its device. Arrays also grow, and freeing one waits until the device is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mapper.errors import DeviceMemoryError

SLAB_BYTES = 1 << 30

PIECES_PER_SLAB = 4
"""The largest piece is this part of a slab, of which no more stays unused, therefore."""

_ALIGNED = 256


class Slabs:
    """Pieces of slabs, for arrays that kernels and copies of one stream use, in its order.

    A piece that is given back may be taken at once: what is queued later comes behind what still
    uses it.

    Parameters
    ----------
    allocate
        Returns a device array of so many bytes (uint8), or raises DeviceMemoryError.
    slab_bytes
        Bytes of a slab.
    """

    def __init__(self, allocate: Callable[[int], Any], slab_bytes: int) -> None:
        self._allocate = allocate
        self._slab_bytes = slab_bytes // (PIECES_PER_SLAB * _ALIGNED) * (PIECES_PER_SLAB * _ALIGNED)
        self._free: list[Any] = []

    def holds(self, n_bytes: int) -> bool:
        """Return True if an array of so many bytes is one for slabs."""
        return PIECES_PER_SLAB * n_bytes <= self._slab_bytes

    def take(self, n_bytes: int) -> Any:
        """Return a piece of so many bytes, or a few more.

        Raises
        ------
        DeviceMemoryError
            If the device has no memory for it, not even without the rest of a slab.
        """
        wanted = -(-n_bytes // _ALIGNED) * _ALIGNED
        fitting = [i for i, piece in enumerate(self._free) if len(piece) >= wanted]
        if fitting:
            found = self._free.pop(min(fitting, key=lambda i: len(self._free[i])))
        else:
            found = self._new_slab(wanted)
        if len(found) > wanted:
            self._free.append(found[wanted:])
        return found[:wanted]

    def give_back(self, piece: Any) -> None:
        """Take back a piece; views of it must not be used in work that is queued from now on."""
        self._free.append(piece)

    def clear(self) -> None:
        """Let go of all memory that is not in use, and of the rest when its pieces are gone."""
        self._free.clear()

    def _new_slab(self, least: int) -> Any:
        try:
            return self._allocate(max(self._slab_bytes, least))
        except DeviceMemoryError:
            return self._allocate(least)
