"""Arguments of kernels: device arrays and numbers as the words that a launch passes to the driver.

numba-cuda's own launch determines the type of every argument and describes every array to the
driver each time: with ten arrays a third of a millisecond of Python on some hosts; a view of an
array costs tens of microseconds. A batch takes sixty launches and two hundred views, all with
the GIL held, so streams delayed each other. Here an array is an address, a shape and a type,
and keeps the words that kernels take.
"""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types


@cache
def _array_type(dtype: np.dtype, ndim: int) -> types.Array:
    return types.Array(numba.from_dtype(dtype), ndim, "C")


class DeviceArray:
    """An array in a device's memory, in C order; views share the memory and keep it alive.

    Parameters
    ----------
    memory
        Owner of the memory, a device array of numba's.
    address
        Address of the first item in the device's memory.
    """

    __slots__ = ("_passed", "address", "dtype", "kind", "memory", "shape")

    __cuda_memory__ = True  # numba's driver accepts it in copies

    def __init__(self, memory: Any, address: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.memory = memory
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.kind = _kind_of(dtype.str, len(shape), "C")
        """The properties that a kernel is compiled for."""
        self._passed: tuple[int, ...] | None = None

    @property
    def passed(self) -> tuple[int, ...]:
        """The words that a kernel takes: see :func:`_array_words`."""
        if self._passed is None:
            item = self.dtype.itemsize
            strides = [item * math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
            self._passed = _array_words(self.address, item, self.shape, strides)
        return self._passed

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def _numba_type_(self) -> types.Array:
        return _array_type(self.dtype, len(self.shape))

    @property
    def device_ctypes_pointer(self) -> ctypes.c_void_p:
        """The address, as numba's driver expects it."""
        return ctypes.c_void_p(self.address)

    def __getitem__(self, taken: slice) -> DeviceArray:
        """Return consecutive items of a 1-D array."""
        if len(self.shape) != 1 or not isinstance(taken, slice):
            raise TypeError("slices of 1-D arrays are all there is")
        start, end, step = taken.indices(self.shape[0])
        if step != 1:
            raise ValueError(f"the step is {step}; there are only items side by side")
        first = self.address + start * self.dtype.itemsize
        return DeviceArray(self.memory, first, (max(0, end - start),), self.dtype)

    def reshape(self, *shape: Any) -> DeviceArray:
        """Return the same items in another shape; ValueError if that holds more or fewer."""
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if math.prod(wanted) != self.size:
            raise ValueError(f"{self.size} items do not make an array of shape {wanted}")
        return DeviceArray(self.memory, self.address, wanted, self.dtype)


def address_of(array: Any) -> int:
    """Return the address of a device array's first item; in the simulator, in the host's memory."""
    pointer = getattr(array, "device_ctypes_pointer", None)
    if pointer is None:
        return int(array._ary.ctypes.data)
    return int(pointer.value or 0)


@cache
def _kind_of(dtype: str, ndim: int, layout: str) -> str:
    return f"{dtype} {ndim}{layout}"


def _array_words(
    address: int, item_bytes: int, shape: tuple[int, ...], strides: Any
) -> tuple[int, ...]:
    """Return the words of an array for numba's kernels: two unused, the rest as named."""
    return (0, 0, math.prod(shape), item_bytes, address, *shape, *strides)


_KIND_OF_NUMBER: dict[type, type] = {np.int64: int, np.bool_: bool, np.float64: float} | {
    kind: kind
    for kind in (
        int, bool, float, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.uint64,
        np.float32,
    )
}  # fmt: skip
"""Number types that kernels are compiled for; numba treats some as one type."""


def as_words(words: list[int]) -> Any:
    """Return words as an array of ctypes; unsigned numbers keep their bits."""
    return (ctypes.c_int64 * len(words))(*words)


def table_of(words: Any) -> Any:
    """Return the addresses of words, as an array of ctypes."""
    first = ctypes.addressof(words)
    return (ctypes.c_void_p * len(words))(*range(first, first + 8 * len(words), 8))


class _Tables(threading.local):
    """Words of a launch and the table of their addresses, kept for the thread's next launch."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, Any]] = {}

    def filled(self, words: list[int]) -> Any:
        """Return the table of these words, valid until the next call with as many."""
        n = len(words)
        if n not in self._kept:
            own = as_words(words)
            self._kept[n] = own, table_of(own)
        own, table = self._kept[n]
        own[:] = words
        return table


OWN_TABLES = _Tables()
"""Tables of each thread; the driver has copied the words when a launch returns."""


def describe(arg: Any, kinds: list[Any], words: list[int]) -> None:
    """Append the types that a kernel is compiled for, and the words that the driver gets.

    Parameters
    ----------
    arg
        A :class:`DeviceArray`, a device array of numba's, a number, or a tuple of these.
    kinds
        Types, equal for all arguments that one compiled kernel takes.
    words
        One word of 8 bytes for each parameter of the kernel. For a shorter parameter its lower
        bytes are the number.

    Raises
    ------
    TypeError
        For anything else.
    """
    kind = type(arg)
    if kind is DeviceArray:
        kinds.append(arg.kind)
        words.extend(arg.passed)
    elif kind in _KIND_OF_NUMBER:
        kinds.append(_KIND_OF_NUMBER[kind])
        words.append(_word_of(arg))
    elif isinstance(arg, tuple):
        kinds.append(kind)
        kinds.append(len(arg))
        for item in arg:
            describe(item, kinds, words)
    elif hasattr(arg, "gpu_data"):
        _describe_numbas(arg, kinds, words)
    else:
        raise TypeError(f"a kernel does not take {kind.__name__} ({arg!r})")


def _word_of(number: Any) -> int:
    if isinstance(number, float):  # np.float64 is one
        return int.from_bytes(struct.pack("<d", number), "little")
    if isinstance(number, np.float32):
        return int.from_bytes(struct.pack("<f", number), "little")
    return int(number)


def _describe_numbas(array: Any, kinds: list[Any], words: list[int]) -> None:
    """Describe a device array of numba's, and cache the description in the array."""
    held = array.__dict__.get("_fmwave_described")
    if held is None:
        layout = array._numba_type_.layout
        address = array.device_ctypes_pointer.value or 0
        held = (
            _kind_of(array.dtype.str, array.ndim, layout),
            _array_words(address, array.dtype.itemsize, tuple(array.shape), tuple(array.strides)),
        )
        array.__dict__["_fmwave_described"] = held
    kinds.append(held[0])
    words.extend(held[1])


def check_simulated(args: Any) -> None:
    """Raise TypeError, in numba's simulator, for arguments that :func:`describe` refuses.

    The simulator itself copies host arrays to its device and back.
    """
    for arg in args:
        if isinstance(arg, tuple):
            check_simulated(arg)
        elif not (type(arg) in _KIND_OF_NUMBER or hasattr(arg, "__cuda_ndarray__")):
            raise TypeError(f"a kernel does not take {type(arg).__name__} ({arg!r})")
