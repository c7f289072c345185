"""Settings of all tests, and the genome and index that tests of whole runs share."""

from __future__ import annotations

import hypothesis
import pytest

from tests.whole import World, build_world

# No deadline: the first example of a test may have to wait for numba. derandomize: the same
# examples in every run; `pytest --hypothesis-profile explore` draws new ones.
hypothesis.settings.register_profile(
    "fixed", deadline=None, derandomize=True, print_blob=True, database=None
)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Genome, index and reads; whoever changes them spoils other tests."""
    return build_world(tmp_path_factory.mktemp("world"))
