"""Machine code of the suffix sort's kernels for sm_90, without a device."""

from __future__ import annotations

import numpy as np
import pytest
from numba import types

from tests.helpers.offline_compile import array, compile_offline, require_compiler

NUMBER = types.int64
WORDS = array(np.uint64)


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    require_compiler()


@pytest.mark.medium
@pytest.mark.parametrize("row", [np.uint32, np.uint64])
def test_hot_kernels_keep_everything_in_registers(row: type) -> None:
    from mapper.index import suffix_sort_cuda

    rows = array(row)
    kernels = {
        "_keys_at": (WORDS, NUMBER, NUMBER, NUMBER, rows, WORDS),
        "_write_rows": (WORDS, rows, *[NUMBER] * 4, array(np.uint8), rows),
        "_fill_range": (WORDS, *[NUMBER] * 5, array(np.int64), rows),
        "_ranks_after": (rows, *[NUMBER] * 4, rows, WORDS),
    }
    for name, argument_types in kernels.items():
        machine = compile_offline(getattr(suffix_sort_cuda, name), argument_types)
        assert machine.spills == 0, name
        assert machine.count("LDG") > 0, name
