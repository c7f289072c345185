"""The cores of pieces of long reads compile for a GPU, without floating point."""

from __future__ import annotations

import numpy as np
import pytest
from numba import types

from mapper.extend.two_piece import new_piece_space
from mapper.params import TwoPieceScoring
from tests.helpers.offline_compile import array, compile_offline, require_compiler, type_of


@pytest.mark.medium
def test_cores_compile_for_a_device() -> None:
    require_compiler()
    from tests.helpers.piece_kernels import align_piece

    scoring = TwoPieceScoring()
    codes, numbers = array(np.uint8), array(np.int64, 2)
    space = type_of(new_piece_space(100, 100, scoring))
    machine = compile_offline(
        align_piece,
        [codes, codes, numbers, types.int64, type_of(scoring), space, array(np.uint32), numbers],
    )
    assert machine.count("DADD", "DMUL", "DFMA", "FADD", "FMUL", "FFMA") == 0
