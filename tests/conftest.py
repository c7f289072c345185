"""Settings of all tests."""

from __future__ import annotations

import hypothesis

# No deadline: the first example of a test may have to wait for numba. derandomize: the same
# examples in every run; `pytest --hypothesis-profile explore` draws new ones.
hypothesis.settings.register_profile(
    "fixed", deadline=None, derandomize=True, print_blob=True, database=None
)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile("fixed")
