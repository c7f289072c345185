"""Where the letters of Python's strings lie, for compiled code that reads them without a copy.

Joining a list of strings and encoding it takes the GIL for as long as it takes one thread to align
short pairs. CPython keeps the letters of a string in one piece of memory, which lasts as long as
the string, and its C interface tells where: compiled code calls that for all strings of a list.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.core import types
from numba.core.typing import signature

from mapper.jit.accelerate import brief

_ADDRESS = types.intp
_list_item = types.ExternalFunction("PyList_GetItem", signature(_ADDRESS, _ADDRESS, types.intp))
_utf8 = types.ExternalFunction(
    "PyUnicode_AsUTF8AndSize", signature(_ADDRESS, _ADDRESS, _ADDRESS)
)  # fmt: skip
_length = types.ExternalFunction("PyUnicode_GetLength", signature(types.intp, _ADDRESS))
_clear_error = types.ExternalFunction("PyErr_Clear", signature(types.void))


@brief
def _find(strings, n, start, length):
    """Write address and length of the letters of n strings; return False if one is not ASCII.

    `strings` is the address of a list. The GIL is held, as these functions demand.
    """
    at_length = length.ctypes.data
    for i in range(n):
        string = _list_item(strings, i)
        start[i] = _utf8(string, at_length + 8 * i)
        if start[i] == 0:  # no string, or one that no encoding has
            _clear_error()
            return False
        if length[i] != _length(string):
            return False
    return True


def ascii_places(strings: list[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return where the letters of strings lie in memory.

    Parameters
    ----------
    strings
        They must be kept while the memory is read; nothing else may change the list meanwhile.

    Returns
    -------
    Address and length of each, int64; None if an item is not a str of ASCII, or the JIT is off.
    """
    if numba.config.DISABLE_JIT:
        return None
    start, length = np.empty(len(strings), np.int64), np.empty(len(strings), np.int64)
    return (start, length) if _find(id(strings), len(strings), start, length) else None
