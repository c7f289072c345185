"""Tags of a BAM record as Python values."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_FORMATS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "f": "f"}
_DTYPES = {"c": "i1", "C": "u1", "s": "<i2", "S": "<u2", "i": "<i4", "I": "<u4", "f": "<f4"}


def tags_of(data: bytes) -> dict[str, Any]:
    """Return BAM-encoded tags by name.

    Integers are int, ``f`` float, ``A``, ``Z`` and ``H`` str; arrays (``B``) are NumPy arrays of
    their type.
    """
    found: dict[str, Any] = {}
    at = 0
    while at < len(data):
        name, kind = data[at : at + 2].decode("latin-1"), chr(data[at + 2])
        at += 3
        if kind == "A":
            found[name], at = chr(data[at]), at + 1
        elif kind in "ZH":
            end = data.index(0, at)
            found[name], at = data[at:end].decode("latin-1"), end + 1
        elif kind == "B":
            dtype = np.dtype(_DTYPES[chr(data[at])])
            (count,) = struct.unpack_from("<I", data, at + 1)
            found[name] = np.frombuffer(data, dtype, count, at + 5)
            at += 5 + count * dtype.itemsize
        else:
            (found[name],) = struct.unpack_from(f"<{_FORMATS[kind]}", data, at)
            at += struct.calcsize(_FORMATS[kind])
    return found
