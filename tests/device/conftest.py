"""A device to test on: a real one, or numba's simulator."""

from __future__ import annotations

import pytest

from mapper.device.choose import find_devices


@pytest.fixture
def device():
    """Make device 0 current; skip where there is neither a device nor the simulator."""
    found = find_devices()
    if found.problem:
        pytest.skip(found.problem)
    from mapper.device.seam import cuda

    with cuda.gpus[0]:
        yield
