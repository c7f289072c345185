"""Work in halves: what fits is done at once, order is kept, nothing is tried without room."""

from __future__ import annotations

import pytest

from mapper.cuda.halving import Halves, in_halves
from mapper.errors import DeviceMemoryError


def halve(items: list[int]) -> Halves[list[int], list[int]] | None:
    if len(items) == 1:
        return None
    n = len(items) // 2
    return Halves([items[:n], items[n:]], lambda found: [x for part in found for x in part])


class Device:
    """Squares numbers; has room for some, and never for -1."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.calls: list[str] = []

    def run(self, items: list[int]) -> list[int]:
        self.calls.append(f"run {len(items)}")
        if len(items) > self.room or -1 in items:
            raise DeviceMemoryError("too much")
        return [x * x for x in items]

    def release(self) -> None:
        self.calls.append("release")


def test_halves_that_fit_are_joined_in_order() -> None:
    device = Device(2)
    assert in_halves(device.run, [1, 2, 3, 4, 5], halve, device.release) == [1, 4, 9, 16, 25]
    assert device.calls == ["run 5", "release", "run 2", "run 3", "release", "run 1", "run 2"]


def test_what_fits_is_done_at_once() -> None:
    device = Device(5)
    assert in_halves(device.run, [1, 2, 3], halve, device.release) == [1, 4, 9]
    assert device.calls == ["run 3"]


def test_an_item_that_never_fits_ends_it_or_is_done_elsewhere() -> None:
    device = Device(5)
    with pytest.raises(DeviceMemoryError, match="too much"):
        in_halves(device.run, [1, -1, 3], halve, device.release)
    found = in_halves(
        device.run, [1, -1, 3], halve, device.release, lambda items, error: [100 + items[0]]
    )
    assert found == [1, 99, 9]
