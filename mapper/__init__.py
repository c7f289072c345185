"""fmwave: a seed-and-extend mapper of DNA reads, and pairwise aligners."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.align.affine.api import align_affine
    from mapper.align.affine.extension_part import align_extension
    from mapper.align.edit.api import edit_distance
    from mapper.align.given import packed_pairs
    from mapper.align.long.api import long_edit_distance
    from mapper.align.matrix.api import align_all
    from mapper.align.matrix.matrix import align_matrix

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
    "align_extension": "mapper.align.affine.extension_part",
    "align_all": "mapper.align.matrix.api",
    "align_matrix": "mapper.align.matrix.matrix",
    "edit_distance": "mapper.align.edit.api",
    "long_edit_distance": "mapper.align.long.api",
    "packed_pairs": "mapper.align.given",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for, so that the command's help stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
