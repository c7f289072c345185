"""Processes of this package beside the one that runs."""

from __future__ import annotations

import os
from pathlib import Path


def package_environment() -> dict[str, str]:
    """Return the environment in which a new Python finds this package first, installed or not."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
