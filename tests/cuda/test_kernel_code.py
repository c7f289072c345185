"""Kernels' machine code on disk: found again for the same kernel, types and device only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda")

from mapper.cuda import kernel_code
from mapper.cuda.kernel_code import KernelCode
from mapper.jit import accelerate

HOPPER, KINDS = (9, 0), ["<i8 1C", int, np.int32, 3]


def fill(out: Any) -> None:
    """Stand for a kernel."""


def other(out: Any) -> None:
    """Stand for another one."""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the kernels that were compiled, kept in a directory of their own."""
    monkeypatch.setattr(accelerate, "CACHE_DIR", tmp_path)
    return []


def find(
    made: list[int], function: Any = fill, kinds: list[Any] = KINDS, options: object = 256,
    capability: tuple[int, int] = HOPPER,
) -> KernelCode:  # fmt: skip
    def make() -> KernelCode:
        made.append(len(made))
        return KernelCode(b"code %d" % made[-1], "entry", bool(made[-1] % 2))

    return kernel_code.find(function, options, kinds, capability, make)


def test_code_is_compiled_once(made: list[int]) -> None:
    assert find(made) == find(made) == find(made, kinds=[*KINDS]) == (b"code 0", "entry", False)
    assert made == [0]


@pytest.mark.parametrize(
    "changed",
    [
        {"function": other},
        {"kinds": ["<i8 1C", int, np.int64, 3]},
        {"kinds": ["<i8 1C", int, np.int32, 4]},
        {"options": (256, 2)},
        {"capability": (8, 9)},
    ],
)
def test_other_kernels_types_and_devices_have_code_of_their_own(
    made: list[int], changed: dict[str, Any]
) -> None:
    find(made)
    assert find(made, **changed) == (b"code 1", "entry", True)
    assert find(made).cubin == b"code 0"
    assert made == [0, 1]


def test_damaged_code_is_compiled_again(made: list[int], tmp_path: Path) -> None:
    find(made)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert find(made).cubin == b"code 1"
    assert find(made).cubin == b"code 1"
