"""Arguments of launches: the words for the driver equal those of numba-cuda's own launch.

``describe`` and ``BoundKernel`` rely on numba-cuda's layout of arguments. No device is needed:
the words for the driver are recorded.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numba
import numpy as np
import pytest
from numba import types

from mapper.cuda.arguments import (
    OWN_TABLES,
    DeviceArray,
    as_words,
    check_simulated,
    describe,
)
from mapper.errors import DeviceError
from tests.helpers.offline_compile import CAPABILITY, pretended_device, require_compiler


class NumbasArray:
    """An array of items at an address, as far as numba-cuda's launch looks at it."""

    __cuda_memory__ = __cuda_ndarray__ = True

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
    flags: DeviceArray | NumbasArray
    table: DeviceArray | NumbasArray
    n: int


def ours(shape: tuple[int, ...], dtype: type, address: int) -> DeviceArray:
    return DeviceArray(None, address, shape, np.dtype(dtype))


def words_at(table: int, widths: list[int]) -> list[bytes]:
    """What the driver copies of each argument, by a table of their addresses."""
    addresses = (ctypes.c_void_p * len(widths)).from_address(table)
    return [ctypes.string_at(at, width) for at, width in zip(addresses, widths, strict=True)]


def bytes_of(arguments) -> list[bytes]:
    """What the driver copies of each argument of numba's: cuda.core makes a word of an int."""
    return [
        bytes(ctypes.c_bool(x))
        if isinstance(x, bool)
        else bytes(ctypes.c_int64(x))
        if isinstance(x, int)
        else bytes(ctypes.c_double(x))
        if isinstance(x, float)
        else bytes(x)
        for x in arguments
    ]


def arguments(array) -> tuple:
    return (
        5, Some(array((8,), np.int8, 0x1000), array((2, 8), np.int64, 0x2000), 7),
        array((8,), np.int32, 0x3000), np.int32(-3), 0.5, True,
        np.uint64(2**63), array((0,), np.uint8, 0),
    )  # fmt: skip


def test_a_missing_compiler_is_named_when_a_kernel_is_compiled(monkeypatch) -> None:
    require_compiler()
    from numba.cuda.cudadrv import nvvm

    from mapper.cuda.api import kernel

    @kernel(64)
    def nothing(n):
        pass

    monkeypatch.setattr(nvvm, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=r"NVVM is missing; install it with pip install"):
        nothing._compile((np.int32(1),))


def test_a_launch_hands_over_what_numba_does() -> None:
    require_compiler()
    from numba import cuda
    from numba.cuda import codegen, dispatcher
    from numba.cuda.cudadrv import driver

    from mapper.cuda import api, kernel_code
    from mapper.cuda.api import kernel
    from mapper.cuda.launch import BoundKernel

    @kernel(64)
    def fill(n, some, out, less, half, flag, large, none):
        i = cuda.grid(1)
        if i < n and flag:
            out[i] = some.flags[i] + some.table[0, i] + some.n + less + half + large + len(none)

    module = SimpleNamespace(initialized=True, _finalizer=mock.Mock())
    function = SimpleNamespace(kernel=object(), handle=0x77, name="fill", module=module)
    by_numba, by_us = [], []

    def launch(stream, config, kernel, *arguments):
        by_numba.append((config, bytes_of(arguments)))

    def launch_cooperative(function, x, y, z, *rest, is_cooperative=True):
        block, shared, stream, table = rest[:3], *rest[3:]
        config = {
            "grid": (x, y, z), "block": block, "shmem_size": shared,
            "is_cooperative": is_cooperative,
        }  # fmt: skip
        widths = [len(word) for word in by_numba[0][1]]
        by_us.append((config, words_at(table, widths), (function, stream)))

    def launch_kernel(functions, function, n_blocks, block, shared, table, stream):
        grid_and_block = n_blocks, 1, 1, block, 1, 1
        launch_cooperative(function, *grid_and_block, shared, stream, table, is_cooperative=False)
        return 0

    launches = SimpleNamespace(cuLaunchCooperativeKernel=launch_cooperative)
    context = SimpleNamespace(device=SimpleNamespace(id=0, compute_capability=CAPABILITY))
    given = arguments(ours)
    with (
        pretended_device(),
        mock.patch.object(codegen.CUDACodeLibrary, "get_cufunc", lambda self: function),
        mock.patch.object(dispatcher, "launch", launch),
        mock.patch.object(dispatcher, "LaunchConfig", lambda **options: options),
        mock.patch.object(driver, "driver", launches),
        mock.patch.object(api, "driver_functions", lambda: None),
        mock.patch.object(api, "queue_launch", launch_kernel),
        mock.patch.object(api.cuda, "current_context", lambda: context),
        mock.patch.object(kernel_code, "find", lambda *_: _[-1]()),
        mock.patch.object(api, "_load", lambda code: api.Loaded(0x77, code.is_cooperative)),
    ):
        bound = BoundKernel(fill, 0, 99, *given[1:], shared_bytes=96)
        (own,) = fill.compiled.overloads.values()
        own.launch(arguments(NumbasArray), (3, 1, 1), (64, 1, 1), 0, 96)
        bound.launch(3, {0: 5})
        fill.launch_blocks(3, 0, *given, shared_bytes=96)
        bound.launch(4, {})
        *row, table = bound.noted(6, {0: 7})  # to be launched later
        noted = row, words_at(table, [len(word) for word in by_numba[0][1]])
        bound.launch(6, {})
        module._finalizer.detach.assert_called()  # the kernel stays loaded
        with pytest.raises(TypeError, match="float"):
            bound.launch(4, {0: 5.0})
        with pytest.raises(KeyError):
            bound.launch(4, {4: 5})  # half, which is no integer
        own.cooperative = True  # as it is with a barrier of the whole grid
        fill._functions.clear()
        own.launch(arguments(NumbasArray), (3, 1, 1), (64, 1, 1), 0, 96)
        fill.launch_blocks(3, 0, *given, shared_bytes=96)
    assert len(fill.compiled.overloads) == 1
    assert by_us[0][:2] == by_us[1][:2] == by_numba[0]
    assert noted == ([0x77, 6, 64, 96], by_us[3][1])
    assert noted[1][0] == bytes(ctypes.c_int64(7))
    assert by_us[4][:2] == by_numba[1]
    assert {handles for _, _, handles in by_us} == {(0x77, 0)}
    assert by_us[2][0]["grid"] == (4, 1, 1)
    assert by_us[2][1] == by_us[0][1]  # numbers stay as they were last given


def kinds_of(*args) -> list:
    kinds: list = []
    describe(args, kinds, [])
    return kinds


def test_kinds_tell_types_apart_and_nothing_else() -> None:
    array = ours((4,), np.int32, 64)
    assert kinds_of(array, 1) == kinds_of(ours((9,), np.int32, 128), np.int64(7))
    assert kinds_of(array) != kinds_of(ours((4,), np.uint32, 64))
    assert kinds_of(array) != kinds_of(array.reshape(2, 2))
    assert kinds_of(Some(array, array, 1)) != kinds_of((array, array, 1))
    distinct = [1, 1.0, True, np.int32(1), np.uint8(1), np.float32(1)]
    assert len({tuple(kinds_of(number)) for number in distinct}) == len(distinct)


def test_what_no_kernel_takes_is_refused() -> None:
    for wrong in (np.zeros(3), "text", None, [1]):
        with pytest.raises(TypeError, match="does not take"):
            describe((1, wrong), [], [])
        with pytest.raises(TypeError, match="does not take"):
            check_simulated((1, (wrong,)))
    check_simulated((1, (2.0, np.int32(3), NumbasArray((1,), np.int8, 0))))


def test_a_thread_has_one_table_for_launches_of_as_many_words() -> None:
    """Filled anew for each; the upper bits of unsigned numbers stay."""

    def read(table, n: int) -> list[int]:
        return [ctypes.c_uint64.from_address(table[i]).value for i in range(n)]

    first = OWN_TABLES.filled([1, -1, (1 << 64) - 2])
    assert read(first, 3) == [1, (1 << 64) - 1, (1 << 64) - 2]
    other = OWN_TABLES.filled([7, 8])
    assert OWN_TABLES.filled([4, 5, 6]) is first
    assert (read(first, 3), read(other, 2)) == ([4, 5, 6], [7, 8])
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(OWN_TABLES.filled, [9, 9, 9])
        elsewhere.result()
    assert read(first, 3) == [4, 5, 6]


def test_views_of_a_device_array() -> None:
    array = ours((12,), np.int32, 0x100)
    part = array[3:7]
    counted = ours((np.int64(3), 2), np.int32, 64)  # a shape may come out of NumPy
    assert list(as_words(counted.passed)) == [0, 0, 6, 4, 64, 3, 2, 8, 4]
    assert counted.passed == (0, 0, 6, 4, 64, 3, 2, 8, 4)
    assert (part.address, part.shape, part.nbytes, len(part)) == (0x10C, (4,), 16, 4)
    assert array[20:].shape == (0,)
    assert array.reshape(3, 4).shape == array.reshape((3, 4)).shape == (3, 4)
    with pytest.raises(ValueError, match="12 items"):
        array.reshape(5, 2)
    with pytest.raises(ValueError, match="step"):
        array[::2]
    with pytest.raises(TypeError, match="slices"):
        array.reshape(3, 4)[1:]
