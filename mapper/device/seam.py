"""The one place that imports ``numba.cuda``, and the one place for kernel options.

Import this module only from code that is about to use CUDA (the ``cuda.py`` of a room, or
inside a function): importing the package must need neither CUDA nor numba-cuda.

**Cores on the device.** A kernel calls a ``@core`` function (:mod:`mapper.accelerate`) as
it stands, and cores call other cores as globals of their module. When numba-cuda types such
a call it meets numba's CPU dispatcher, wraps its Python text in a dispatcher of its own with
the same options (``forceinline`` is kept; ``_nrt``, ``nogil`` and ``cache`` mean nothing
there) and compiles it for the current device; this repeats for whatever that text calls. No
second decorator, no ``py_func``, no ``device=True`` is needed. The same holds for the
``@overload`` functions of :mod:`mapper.bits`, whose intrinsics NVVM turns into POPC, FLO and
BREV. What the device refuses: a core with an explicit signature, allocation, exceptions with
arguments made at run time, and a ``@driver`` (its loop belongs to the kernel).

**Types.** Kernels take NamedTuples of device arrays (``FMIndex``) and of numbers (the
parameter structs) as they are. As on the CPU, ``int64 + int32`` is int64, and a signed index
is checked for being negative, at three instructions an access: hot kernels index with
unsigned values.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Callable, Mapping
from typing import Any

from mapper.accelerate import CACHE_DIR  # sets numba's cache directory, before any kernel
from mapper.errors import DeviceError

INSTALL = "install it with pip install 'fmwave[gpu]' (CUDA 12) or 'fmwave[gpu-cu13]' (CUDA 13)"

if importlib.util.find_spec("numba_cuda") is None:
    raise DeviceError(f"CUDA needs the package numba-cuda, which is missing; {INSTALL}")

import numba  # noqa: E402
from numba import cuda  # noqa: E402

# Small batches make small grids; that is the user's affair, and no reason for a warning.
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

__all__ = [
    "CACHE_DIR",
    "DRIVER",
    "INSTALL",
    "SIMULATED",
    "BoundKernel",
    "Kernel",
    "cuda",
    "device_function",
    "kernel",
]

SIMULATED: bool = bool(numba.config.ENABLE_CUDASIM)
"""Whether kernels run in numba's simulator (``NUMBA_ENABLE_CUDASIM=1``), one Python thread
for each CUDA thread."""


DRIVER = threading.RLock()
"""Held while a kernel is launched or memory allocated or freed, by whichever thread.

numba-cuda's record of loaded modules takes no two threads at a time: when two launched a kernel
for the first time at once, the process aborted ("key already in dictionary", double free; seen
with 0.30.4). A launch is Python code under the GIL anyway and returns before the kernel
runs, so nothing waits that would not wait without. The simulator runs one kernel at a time, too.
"""


class Kernel:
    """A compiled kernel with its block size; one thread for each item.

    Parameters
    ----------
    function
        The kernel's Python text. Its last blocks may have threads beyond the last item.
    block
        Threads of a block; ``launch_bounds`` of the compiled code.
    blocks_per_sm
        Blocks that each multiprocessor should hold: the compiler limits the registers of a
        thread accordingly, at the price of local memory. (numba's ``max_registers`` has no
        effect on code that is optimised at link time, as ours is.)
    """

    def __init__(
        self, function: Callable[..., None], block: int, blocks_per_sm: int | None = None
    ) -> None:
        self.function = function
        self.block = block
        self.__doc__ = function.__doc__
        if SIMULATED:
            self.compiled = cuda.jit(function)
        else:
            bounds = block if blocks_per_sm is None else (block, blocks_per_sm)
            self.compiled = cuda.jit(cache=True, launch_bounds=bounds)(function)

    def resident_blocks(self, *args: Any) -> int:
        """Return how many blocks the current device holds at once; more cannot wait for each other.

        `args` are those of the launch; the kernel is compiled for them.
        """
        if SIMULATED:
            return 1
        with DRIVER:
            types = tuple(self.compiled.typeof_pyval(arg) for arg in args)
            blocks = self.compiled.compile(types).max_cooperative_grid_blocks(self.block)
        return int(blocks)

    def launch(self, n_items: int, stream: Any, *args: Any) -> None:
        """Launch with one thread for each of `n_items`, on `stream`; none, no launch."""
        if n_items:
            self.launch_blocks((n_items + self.block - 1) // self.block, stream, *args)

    def launch_blocks(self, n_blocks: int, stream: Any, *args: Any, shared_bytes: int = 0) -> None:
        """Launch with so many blocks, for kernels that stride over their items.

        `shared_bytes`: of each block, for shared arrays whose length the kernel gives as 0.
        """
        with DRIVER:
            self.compiled[n_blocks, self.block, stream, shared_bytes](*args)


class BoundKernel:
    """A kernel with its arguments, for launches that differ in numbers only.

    A launch by :class:`Kernel` finds out the type of every array and describes it to the driver
    anew, with ten arrays a third of a millisecond on some hosts. Here that is done once, and the
    driver is given the same table of addresses each time; integers at the top level can be given
    anew.

    Parameters
    ----------
    args
        As for :meth:`Kernel.launch`, of the current device; arrays must stay allocated.
    """

    def __init__(self, kernel: Kernel, stream: Any, *args: Any, shared_bytes: int = 0) -> None:
        self._kernel, self._stream, self._shared_bytes = kernel, stream, shared_bytes
        self._args = list(args)
        if SIMULATED:
            return
        from numba.cuda.cudadrv.driver import _stream_handle, _to_core_stream

        with DRIVER:
            types = tuple(kernel.compiled.typeof_pyval(arg) for arg in args)
            compiled = kernel.compiled.compile(types)
            self._function = int(compiled._codelibrary.get_cufunc().handle)
        self._stream_handle = int(_stream_handle(stream))
        self._kept: list[Any] = []
        self._numbers: dict[int, Any] = {}
        self._parts: list[Any] = []
        for place, (type_of_arg, arg) in enumerate(zip(types, args, strict=True)):
            parts: list[Any] = []
            compiled._prepare_args(type_of_arg, arg, _to_core_stream(stream), self._kept, parts)
            # As cuda.core takes them: Python's bool is a byte, its int as wide as a pointer.
            parts = [
                (ctypes.c_bool if isinstance(x, bool) else ctypes.c_int64)(x)
                if isinstance(x, int)
                else x
                for x in parts
            ]
            if len(parts) == 1:
                self._numbers[place] = parts[0]
            self._parts += parts
        self._table = (ctypes.c_void_p * len(self._parts))(*map(ctypes.addressof, self._parts))

    def launch(self, n_blocks: int, numbers: Mapping[int, int]) -> None:
        """Launch with so many blocks; `numbers` replace arguments, by their place, for good."""
        if SIMULATED:
            for place, number in numbers.items():
                self._args[place] = number
            self._kernel.launch_blocks(
                n_blocks, self._stream, *self._args, shared_bytes=self._shared_bytes
            )
            return
        from numba.cuda.cudadrv.driver import driver

        for place, number in numbers.items():
            self._numbers[place].value = number  # the driver copies it while it launches
        with DRIVER:
            driver.cuLaunchKernel(
                self._function, n_blocks, 1, 1, self._kernel.block, 1, 1, self._shared_bytes,
                self._stream_handle, ctypes.addressof(self._table), 0,
            )  # fmt: skip


def kernel(
    block: int, *, blocks_per_sm: int | None = None
) -> Callable[[Callable[..., None]], Kernel]:
    """Decorate a kernel: cached on disk beside the compiled cores, bounded to `block` threads."""

    def decorate(function: Callable[..., None]) -> Kernel:
        return Kernel(function, block, blocks_per_sm)

    return decorate


device_function = cuda.jit(device=True, **({} if SIMULATED else {"forceinline": True}))
"""Decorates what kernels call and the CPU never does: warps, grids, atomics."""
