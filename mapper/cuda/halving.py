"""Work in halves where the device's memory is too small. Imports nothing of CUDA."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from mapper.errors import DeviceMemoryError

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class Halves(NamedTuple, Generic[T, R]):
    """The parts of an item, and how their results are joined into the item's."""

    parts: Sequence[T]
    join: Callable[[list[R]], R]


def in_halves(
    run: Callable[[T], R],
    item: T,
    halve: Callable[[T], Halves[T, R] | None],
    release: Callable[[], None],
    alone: Callable[[T, DeviceMemoryError], R] | None = None,
) -> R:
    """Run a function on an item; on its halves, and theirs, while the device's memory is too small.

    Parameters
    ----------
    run
        Raises DeviceMemoryError if an item does not fit.
    halve
        None for an item that cannot be divided.
    release
        Frees what `run` has allocated, before anything else is tried.
    alone
        Does without the device what cannot be divided.

    Raises
    ------
    DeviceMemoryError
        If an item that cannot be divided does not fit, and there is no `alone`.
    """
    try:
        return run(item)
    except DeviceMemoryError as error:
        release()
        divided = halve(item)
        if divided is None:
            if alone is None:
                raise
            return alone(item, error)
        log.debug("%s; going on with halves", error)
    parts, join = divided
    return join([in_halves(run, part, halve, release, alone) for part in parts])
