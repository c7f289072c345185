"""Settings of all tests, and the genome and index that tests of whole runs share."""

from __future__ import annotations

import gc

import hypothesis
import numba
import numpy as np
import pytest

from mapper.cuda.devices import find_devices
from tests.helpers.mapping_runs import World, build_world

# No deadline: the first example of a test may have to wait for numba. derandomize: the same
# examples in every run. `--hypothesis-profile budget` has more of them; `explore` draws new ones.
hypothesis.settings.register_profile(
    "fixed", deadline=None, derandomize=True, print_blob=True, database=None
)
hypothesis.settings.register_profile(
    "budget", deadline=None, derandomize=True, print_blob=True, database=None, max_examples=300
)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile("fixed")

if numba.config.DISABLE_JIT:
    # Compiled integers wrap round in silence, and hashes mean it; NumPy's scalars warn.
    np.seterr(over="ignore")


@pytest.fixture(scope="module", autouse=True)
def _frozen_garbage_collector():
    """Hide what is imported and compiled from the garbage collector.

    Building an index collects garbage twice, which takes 0.2 s with the objects of numba and
    pytest: most of the time of tests that build one for each example.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def device():
    """Make CUDA device 0, or numba's simulator, current; skip, with the reason, without."""
    found = find_devices()
    if found.problem:
        pytest.skip(found.problem)
    from mapper.cuda.api import device_context

    with device_context(0):
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Genome, index and reads; whoever changes them spoils other tests."""
    return build_world(tmp_path_factory.mktemp("world"))
