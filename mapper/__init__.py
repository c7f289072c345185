"""fmwave: a seed-and-extend mapper of DNA reads, and pairwise aligners."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.align.affine.api import align_affine, align_extension
    from mapper.align.dispatch import packed_pairs
    from mapper.align.edit.api import edit_distance
    from mapper.align.long.api import long_edit_distance
    from mapper.align.matrix.api import align_all, align_matrix

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "align_affine",
    "align_all",
    "align_extension",
    "align_matrix",
    "edit_distance",
    "long_edit_distance",
    "packed_pairs",
]

_HOMES = {
    "align_affine": "mapper.align.affine.api",
    "align_extension": "mapper.align.affine.api",
    "align_all": "mapper.align.matrix.api",
    "align_matrix": "mapper.align.matrix.api",
    "edit_distance": "mapper.align.edit.api",
    "long_edit_distance": "mapper.align.long.api",
    "packed_pairs": "mapper.align.dispatch",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for, so that the command's help stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
