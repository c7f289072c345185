"""Progress bars on standard error."""

from __future__ import annotations

import sys
from typing import Any


class NoBar:
    """A bar that shows nothing."""

    total: int | None = None

    def __enter__(self) -> NoBar:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, n: int) -> None:
        """Count nothing."""


def progress_bar(shown: bool, unit: str, desc: str, **options: Any) -> Any:
    """Return a bar of tqdm, or, unless it is `shown`, one that does not import tqdm either."""
    if not shown:
        return NoBar()
    from tqdm import tqdm

    return tqdm(
        unit=f" {unit}", unit_scale=True, file=sys.stderr, desc=desc, mininterval=0.5, **options
    )
