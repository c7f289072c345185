"""Options of sorting and of marking duplicates."""

from __future__ import annotations

import re
from typing import NamedTuple

from mapper.errors import UsageError, option

LARGE_RANGES_SHARE = 5
"""A run keeps a fifth of the memory for records free. Large ranges are merged into the temporary
file only if all ranges in work fit into that fifth."""


class MarkOptions(NamedTuple):
    """How duplicates are found, and what becomes of them."""

    optical_distance: int = 0  # pixels; duplicates get a tag dt if it is above 0
    barcode_tag: str = ""  # records with different values of this tag are no duplicates
    remove: bool = False  # leave marked records out
    supplementary: bool = False  # mark other records of a duplicate's name, too
    clear: bool = False  # remove the marks of earlier runs first

    def keeps_sizes(self, has_marks: bool) -> bool:
        """Whether marking only sets flags; `has_marks` tells whether records are marked already."""
        return not (self.optical_distance or self.remove or (self.clear and has_marks))


_TAG = re.compile("[A-Za-z][A-Za-z0-9]")
_MOST_DISTANCE = (1 << 31) - 1


def check_marks(marks: MarkOptions) -> None:
    """Raise UsageError for a distance or a tag that cannot be."""
    distance, tag = marks.optical_distance, marks.barcode_tag
    if not (isinstance(distance, int) and 0 <= distance <= _MOST_DISTANCE):
        raise UsageError(
            f"{option('optical_distance', distance)}: a whole number of pixels is expected, 0 to "
            f"{_MOST_DISTANCE}"
        )
    if tag and not (isinstance(tag, str) and _TAG.fullmatch(tag)):
        raise UsageError(
            f"{option('barcode_tag', tag)}: the two characters of a SAM tag, as RX, are expected"
        )


class SortOptions(NamedTuple):
    """How to sort by coordinate."""

    tmp_dir: str | None = None
    """Directory of a temporary file; see :func:`mapper.sorting.spill_file.spill_directory`."""
    duplicates: MarkOptions | None = None
    """How to mark duplicates; None for not at all."""
