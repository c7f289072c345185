"""Kernels whose arguments are described once: the driver gets what numba-cuda would give it.

``BoundKernel`` relies on how numba-cuda's own launch describes arguments. There is no device here:
what would be handed to the driver is recorded.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numba
import numpy as np
from numba import types

from tests.device.offline import pretended_device, require_compiler


class OnDevice:
    """An array of items at an address, as far as a launch looks at it."""

    __cuda_memory__ = True

    def __init__(self, shape: tuple[int, ...], dtype: type, address: int) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        layout = SimpleNamespace(
            strides_in_bytes=None, is_contiguous_c=True, is_contiguous_f=len(shape) < 2
        )
        self._strided_memory_view_shim = SimpleNamespace(
            size=int(np.prod(shape)), dtype=self.dtype, ptr=address, shape=shape, _layout=layout
        )

    @property
    def _numba_type_(self) -> types.Array:
        return types.Array(numba.from_dtype(self.dtype), len(self.shape), "C")


class Some(NamedTuple):
    flags: OnDevice
    table: OnDevice
    n: int


def values(arguments) -> list[int]:
    return [int(getattr(x, "value", x)) for x in arguments]


def values_at(table: int, widths: list[int]) -> list[int]:
    """Read numbers of so many bytes as the driver does, by a table of their addresses."""
    addresses = (ctypes.c_void_p * len(widths)).from_address(table)
    return [
        int.from_bytes(ctypes.string_at(at, width), "little", signed=True)
        for at, width in zip(addresses, widths, strict=True)
    ]


def test_a_bound_kernel_hands_over_what_numba_does() -> None:
    require_compiler()
    from numba import cuda
    from numba.cuda import codegen, dispatcher
    from numba.cuda.cudadrv import driver

    from mapper.device.seam import BoundKernel, kernel

    @kernel(64)
    def fill(n, some, out):
        i = cuda.grid(1)
        if i < n:
            out[i] = some.flags[i] + some.table[0, i] + some.n

    fill.compiled = cuda.jit(launch_bounds=64)(fill.function)  # the disk cache asks for a device
    function = SimpleNamespace(
        kernel=object(), handle=0x77, name="fill", module=SimpleNamespace(initialized=True)
    )
    by_numba, by_us = [], []

    def launch(stream, config, kernel, *arguments):
        widths = [ctypes.sizeof(x) if hasattr(x, "value") else 8 for x in arguments]
        by_numba.append((config, values(arguments), widths))

    def launch_kernel(function, x, y, z, *rest):
        block, shared, stream, table, extra = rest[:3], *rest[3:]
        by_us.append(
            (
                (function, stream, extra),
                {"grid": (x, y, z), "block": block, "shmem_size": shared, "is_cooperative": False},
                values_at(table, by_numba[0][2]),
            )
        )

    arguments = (
        5, Some(OnDevice((8,), np.int8, 0x1000), OnDevice((2, 8), np.int64, 0x2000), 7),
        OnDevice((8,), np.int32, 0x3000),
    )  # fmt: skip
    with (
        pretended_device(),
        mock.patch.object(codegen.CUDACodeLibrary, "get_cufunc", lambda self: function),
        mock.patch.object(dispatcher, "launch", launch),
        mock.patch.object(dispatcher, "LaunchConfig", lambda **options: options),
        mock.patch.object(driver, "driver", SimpleNamespace(cuLaunchKernel=launch_kernel)),
    ):
        bound = BoundKernel(fill, 0, 99, *arguments[1:], shared_bytes=96)
        own = fill.compiled.overloads[tuple(fill.compiled.typeof_pyval(a) for a in arguments)]
        own.launch(arguments, (3, 1, 1), (64, 1, 1), 0, 96)
        bound.launch(3, {0: 5})
        bound.launch(4, {})
    handles, config, numbers = by_us[0]
    assert handles == (0x77, 0, 0)
    assert config == by_numba[0][0] and numbers == by_numba[0][1]
    assert by_us[1][1]["grid"] == (4, 1, 1)
    assert by_us[1][2] == numbers  # numbers stay as they were last given
