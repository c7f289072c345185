"""Fixture of the device: a real one, or numba's simulator."""

from __future__ import annotations

import numba
import pytest

from mapper.align.matrix import cuda_plan
from mapper.align.matrix.cuda_plan import Shape
from mapper.cuda.devices import find_devices


@pytest.fixture
def device() -> str:
    found = find_devices()
    if found.problem:
        pytest.skip(found.problem)
    return "cuda:0"


@pytest.fixture
def low_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the simulator a group is one lane: strips so low that small matrices have several."""
    if numba.config.ENABLE_CUDASIM:
        low = (Shape(2, 4), Shape(2, 8))
        monkeypatch.setattr(cuda_plan, "TWO_CELLS", {False: low, True: low})
