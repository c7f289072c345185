"""Evaluation data beside the repository, which may be absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("FMWAVE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def shared_file(name: str) -> Path:
    """Return a file of the shared data, or skip the test."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{path} is not there (FMWAVE_DATA names the folder of the shared data)")
    return path
