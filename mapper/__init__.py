"""fmwave: a seed-and-extend mapper of DNA reads, and pairwise aligners."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.align.affine.api import align_affine, align_extension
    from mapper.align.dispatch import packed_pairs
    from mapper.align.edit.api import edit_distance
    from mapper.align.edit.locations import edit_locations
    from mapper.align.long.api import long_edit_distance
    from mapper.align.matrix.api import align_all, align_matrix
    from mapper.api.aligner import Aligner, HitStream
    from mapper.api.fastx import fastx_read
    from mapper.api.hit import Hit
    from mapper.api.hits import Hits
    from mapper.batch import ReadBatch
    from mapper.errors import (
        DeviceError,
        IndexFormatError,
        InputFormatError,
        MapperError,
        OutputError,
        ResourceError,
        UsageError,
    )
    from mapper.index.index import Index

__version__ = "0.1.0"
__all__ = [
    "Aligner",
    "DeviceError",
    "Hit",
    "HitStream",
    "Hits",
    "Index",
    "IndexFormatError",
    "InputFormatError",
    "MapperError",
    "OutputError",
    "ReadBatch",
    "ResourceError",
    "UsageError",
    "__version__",
    "align_affine",
    "align_all",
    "align_extension",
    "align_matrix",
    "edit_distance",
    "edit_locations",
    "fastx_read",
    "long_edit_distance",
    "packed_pairs",
]

_HOMES = {
    "Aligner": "mapper.api.aligner",
    "DeviceError": "mapper.errors",
    "Hit": "mapper.api.hit",
    "HitStream": "mapper.api.aligner",
    "Hits": "mapper.api.hits",
    "Index": "mapper.index.index",
    "IndexFormatError": "mapper.errors",
    "InputFormatError": "mapper.errors",
    "MapperError": "mapper.errors",
    "OutputError": "mapper.errors",
    "ReadBatch": "mapper.batch",
    "ResourceError": "mapper.errors",
    "UsageError": "mapper.errors",
    "align_affine": "mapper.align.affine.api",
    "align_all": "mapper.align.matrix.api",
    "align_extension": "mapper.align.affine.api",
    "align_matrix": "mapper.align.matrix.api",
    "edit_distance": "mapper.align.edit.api",
    "edit_locations": "mapper.align.edit.locations",
    "fastx_read": "mapper.api.fastx",
    "long_edit_distance": "mapper.align.long.api",
    "packed_pairs": "mapper.align.dispatch",
}


if not TYPE_CHECKING:  # else a user's type checker takes any name for one of ours

    def __getattr__(name: str) -> Any:
        """Import a public name when it is asked for: the command's help stays instant."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    """Return the public names, for ``dir()`` and completion."""
    return __all__
