"""The suffix sort by libdivsufsort, for small texts: nothing to compile, one thread."""

from __future__ import annotations

import threading

import numpy as np

from mapper.index import tables
from mapper.index.suffix_sort import SortedText


def sort_with_library(text: np.ndarray, row_type: np.dtype, sa_shift: int) -> SortedText:
    """Sort the suffixes of `text` (uint8 codes 0 to 3, n > 0)."""
    n = len(text)
    suffix_array = sort_suffixes(text)
    bwt = np.empty(n + 1, np.uint8)
    tables.transform_rows(text, suffix_array, 0, n + 1, bwt)
    sa_samples = np.empty((n >> sa_shift) + 1, row_type)
    sa_samples[0] = n
    sa_samples[1:] = suffix_array[(1 << sa_shift) - 1 :: 1 << sa_shift]
    return SortedText(bwt, sa_samples, int(tables.find_primary(suffix_array)))


def sort_suffixes(text: np.ndarray) -> np.ndarray:
    """Return the suffix array: int32 (n,) below 2**31 bases, else int64.

    The sort is one call into C that can take minutes. It runs in a thread of its own
    (it releases the GIL), so that signals are answered meanwhile.
    """
    from pydivsufsort import divsufsort  # slow to import, and needed only here

    results: list[np.ndarray | BaseException] = []

    def sort() -> None:
        try:
            results.append(divsufsort(text))
        except BaseException as error:  # handed to the caller
            results.append(error)

    thread = threading.Thread(target=sort, daemon=True)
    thread.start()
    thread.join()
    result = results.pop()
    if isinstance(result, BaseException):
        raise result
    return result
