"""Options of sorting and of marking duplicates."""

from __future__ import annotations

from typing import NamedTuple


class MarkOptions(NamedTuple):
    """How duplicates are found, and what becomes of them."""

    optical_distance: int = 0  # pixels; duplicates get a tag dt if it is above 0
    barcode_tag: str = ""  # records with different values of this tag are no duplicates
    remove: bool = False  # leave marked records out
    supplementary: bool = False  # mark other records of a duplicate's name, too
    clear: bool = False  # remove the marks of earlier runs first


class SortOptions(NamedTuple):
    """How to sort by coordinate."""

    tmp_dir: str | None = None
    """Directory of a temporary file; see :func:`mapper.sorting.spill_file.spill_directory`."""
    duplicates: MarkOptions | None = None
    """How to mark duplicates; None for not at all."""
