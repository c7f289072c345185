"""fmwave: a seed-and-extend mapper of DNA reads, and pairwise aligners."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.pairwise.affine import align_affine
    from mapper.pairwise.all_pairs import align_all
    from mapper.pairwise.edit import edit_distance
    from mapper.pairwise.extension import align_extension
    from mapper.pairwise.given import packed_pairs
    from mapper.pairwise.long import long_edit_distance
    from mapper.pairwise.matrix import align_matrix

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
    "align_affine": "mapper.pairwise.affine",
    "align_extension": "mapper.pairwise.extension",
    "align_all": "mapper.pairwise.all_pairs",
    "align_matrix": "mapper.pairwise.matrix",
    "edit_distance": "mapper.pairwise.edit",
    "long_edit_distance": "mapper.pairwise.long",
    "packed_pairs": "mapper.pairwise.given",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for, so that the command's help stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
