"""The one place that imports ``numba.cuda``, and the one place for kernel options.

Import this module only from code that is about to use CUDA (the ``cuda.py`` of a room, or
inside a function): importing the package must need neither CUDA nor numba-cuda.

**Cores on the device.** A kernel calls a ``@core`` function (:mod:`mapper.jit.accelerate`)
directly, and cores call other cores as globals of their module. When numba-cuda types such
a call it finds numba's CPU dispatcher, wraps its Python text in a dispatcher of its own with
the same options (``forceinline`` is kept; ``_nrt``, ``nogil`` and ``cache`` have no effect
there) and compiles it for the current device; so it does with all functions which that text
calls. No second decorator, no ``py_func``, no ``device=True`` is needed. The same holds for the
``@overload`` functions of :mod:`mapper.jit.intrinsics`, whose intrinsics NVVM turns into POPC, FLO
and BREV. The device refuses a core with an explicit signature, allocation, exceptions with
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
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mapper.cuda import kernel_code
from mapper.cuda.arguments import OWN_TABLES, check_simulated, describe
from mapper.cuda.driver_calls import FUNCTIONS, LAUNCH, addresses_in, queue_launch
from mapper.cuda.kernel_code import KernelCode
from mapper.errors import DeviceError, DeviceMemoryError
from mapper.jit.accelerate import (
    CACHE_DIR,  # sets numba's cache directory, before any kernel
    announcer,
)
from mapper.parallel.pool import thread_pool

INSTALL = "install it with pip install 'fmwave[gpu]' (CUDA 12) or 'fmwave[gpu-cu13]' (CUDA 13)"

if importlib.util.find_spec("numba_cuda") is None:
    raise DeviceError(f"CUDA needs the package numba-cuda, which is missing; {INSTALL}")

import numba  # noqa: E402
from numba import cuda  # noqa: E402

if numba.config.ENABLE_CUDASIM:
    cuda_driver: Any = None
    intrinsic: Any = None
else:
    from numba.cuda import extending
    from numba.cuda.core import event
    from numba.cuda.cudadrv import driver as numbas
    from numba.cuda.cudadrv.driver import _stream_handle

    # A pass runs where a kernel is compiled, not where it is loaded from the cache.
    event.register("numba-cuda:run_pass", announcer(event.Listener))

    cuda_driver, intrinsic = numbas, extending.intrinsic

# Small batches make small grids, which need no warning.
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

__all__ = [
    "CACHE_DIR",
    "DRIVER",
    "INSTALL",
    "SHARED_BYTES",
    "SIMULATED",
    "Kernel",
    "as_device_array",
    "cuda",
    "cuda_driver",
    "device_context",
    "device_function",
    "driver_functions",
    "intrinsic",
    "is_driver_error",
    "is_out_of_memory",
    "kernel",
    "knowing_its_device",
    "launch_loaded",
    "lowest_capability",
    "problem_of",
    "refused",
    "sleeping_event",
    "stay_on",
]

SIMULATED: bool = bool(numba.config.ENABLE_CUDASIM)
"""True if kernels run in numba's simulator (``NUMBA_ENABLE_CUDASIM=1``), one Python thread
for each CUDA thread."""


DRIVER = threading.RLock()
"""Lock to hold while a kernel is compiled and loaded, or memory is allocated or freed.

numba-cuda's table of loaded modules is not thread-safe: when two launched a kernel
for the first time at once, the process aborted ("key already in dictionary", double free; seen
with 0.30.4). Loaded kernels are launched without the lock, except in the simulator, which runs
one at a time.
"""


def is_driver_error(error: BaseException) -> bool:
    """Return True if an error comes from the CUDA driver.

    numba-cuda raises its own error, or passes on that of cuda.core, which has no public name.
    """
    if SIMULATED:
        return False
    kind = type(error)
    is_cores = kind.__name__ == "CUDAError" and kind.__module__.startswith("cuda.core.")
    return is_cores or isinstance(error, cuda_driver.CudaAPIError)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if the driver lacks memory, of the device or page-locked."""
    return is_driver_error(error) and "CUDA_ERROR_OUT_OF_MEMORY" in str(error)


def problem_of(error: BaseException) -> str:
    """Return the user's message for an error of the driver."""
    said = getattr(error, "msg", None) or str(error)
    if is_out_of_memory(error):
        return f"the device's memory is full, nvidia-smi shows by what ({said})"
    return f"the CUDA driver failed: {said}"


SHARED_BYTES = 48 << 10
"""Shared memory of a block by default; ``BoundKernel`` requests more."""


@cache
def driver_functions() -> np.ndarray:
    """Return the addresses of the driver's functions, for :mod:`mapper.cuda.driver_calls`."""
    return addresses_in(cuda_driver.driver.lib)


def refused(name: str, error: int) -> DeviceError:
    """Return the exception for an error that one of the driver's functions has returned."""
    result = cuda_driver.binding.CUresult
    kind = DeviceError
    if error == result.CUDA_ERROR_OUT_OF_MEMORY:
        kind = DeviceMemoryError
    try:
        called = result(error).name
    except ValueError:  # of a newer driver
        called = f"error {error}"
    return kind(f"the CUDA driver's {name} returned {called}")


class Loaded(NamedTuple):
    """A kernel in a device's memory, as the driver launches it."""

    handle: int
    is_cooperative: bool  # the blocks of its grid wait for each other


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
        self._functions: dict[tuple[Any, ...], Loaded] = {}
        self._bounds = block if blocks_per_sm is None else (block, blocks_per_sm)

    @cached_property
    def compiled(self) -> Any:
        """numba-cuda's kernel; made when it is asked for, as that loads a compiler's library."""
        options = {} if SIMULATED else {"launch_bounds": self._bounds}
        return cuda.jit(**options)(self.function)

    def resident_blocks(self, *args: Any) -> int:
        """Return how many blocks the current device holds at once, the most that can synchronise.

        `args` are those of the launch; the kernel is compiled for them.
        """
        if SIMULATED:
            return 1
        kinds: list[Any] = []
        for arg in args:
            describe(arg, kinds, [])
        handle = self.function_for(kinds, args).handle
        each = cuda_driver.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(handle, self.block, 0)
        return int(each * cuda.get_current_device().MULTIPROCESSOR_COUNT)

    def launch(self, n_items: int, stream: Any, *args: Any) -> None:
        """Launch with one thread for each of `n_items`, on `stream`; without items, do nothing."""
        if n_items:
            self.launch_blocks((n_items + self.block - 1) // self.block, stream, *args)

    def launch_blocks(self, n_blocks: int, stream: Any, *args: Any, shared_bytes: int = 0) -> None:
        """Launch `n_blocks` blocks, for kernels that stride over their items.

        `shared_bytes` of each block are for shared arrays that the kernel declares with length 0.
        """
        if SIMULATED:
            check_simulated(args)
            with DRIVER:
                self.compiled[n_blocks, self.block, stream, shared_bytes](*args)
            return
        kinds: list[Any] = []
        words: list[int] = []
        for arg in args:
            describe(arg, kinds, words)
        launch_loaded(
            self.function_for(kinds, args), n_blocks, self.block, int(_stream_handle(stream)),
            shared_bytes, OWN_TABLES.filled(words),
        )  # fmt: skip

    def function_for(self, kinds: list[Any], args: tuple[Any, ...]) -> Loaded:
        """Return the loaded kernel for the current device; it is compiled at first use.

        `kinds` are the types of `args` by :func:`mapper.cuda.arguments.describe`.
        """
        device = cuda.current_context().device
        key = (device.id, *kinds)
        if key not in self._functions:
            with DRIVER:
                if key not in self._functions:  # another thread may have compiled it meanwhile
                    code = kernel_code.find(
                        self.function, self._bounds, kinds, tuple(device.compute_capability),
                        partial(self._compile, args),
                    )  # fmt: skip
                    self._functions[key] = _load(code)
        return self._functions[key]

    def _compile(self, args: tuple[Any, ...]) -> KernelCode:
        """Compile for the current device.

        Raises
        ------
        DeviceError
            If there is no compiler; a device may have been chosen without looking for it.
        """
        from numba.cuda.cudadrv import nvvm

        if not nvvm.is_available():
            raise DeviceError(f"a kernel is to be compiled, and NVVM is missing; {INSTALL}")
        types = tuple(self.compiled.typeof_pyval(arg) for arg in args)
        compiled = self.compiled.compile(types)
        library = compiled._codelibrary
        _keep_loaded(library.get_cufunc().module)  # which compiling has loaded
        return KernelCode(library.get_cubin().code, library._entry_name, compiled.cooperative)


def _keep_loaded(module: Any) -> None:
    """Keep the driver's module loaded as long as the process lives.

    The driver loads a kernel's code once for all devices, but numba-cuda unloads it at the end of
    the process once for each device, and so frees memory twice (0.30.4; the process aborted with
    its work done).
    """
    module._finalizer.detach()


def _load(code: KernelCode) -> Loaded:
    """Load a kernel for the current device."""
    cubin = cuda_driver.ObjectCode.from_cubin(code.cubin)
    module = cuda.current_context().create_module_image(cubin)
    _keep_loaded(module)
    return Loaded(int(module.get_function(code.entry).handle), code.is_cooperative)


def launch_loaded(
    function: Loaded, n_blocks: int, block: int, stream: int, shared_bytes: int, table: Any
) -> None:
    """Launch a loaded kernel on a stream; no lock is needed.

    `table` holds the addresses of the arguments, int64 each, of which the driver takes the bytes
    of the kernel's parameters. It has copied them when it returns.
    """
    at = ctypes.addressof(table)
    if function.is_cooperative:
        cuda_driver.driver.cuLaunchCooperativeKernel(
            function.handle, n_blocks, 1, 1, block, 1, 1, shared_bytes, stream, at
        )
        return
    error = queue_launch(
        driver_functions(), function.handle, n_blocks, block, shared_bytes, at, stream
    )
    if error:
        raise refused(FUNCTIONS[LAUNCH], error)


_CONTEXTS: set[int] = set()
"""Devices whose contexts have been made."""


def device_context(ordinal: int) -> Any:
    """Return a context manager that makes a device the thread's current one.

    Where a second device's context is made while the first one's is current, numba-cuda (0.30.4)
    takes the first from the thread's stack and does not put it back: leaving it fails later. So
    each is made in a thread that has none.
    """
    device = cuda.gpus[ordinal]
    if not SIMULATED and ordinal not in _CONTEXTS:
        with DRIVER, thread_pool(1) as thread:
            thread.submit(device.get_primary_context).result()
            _CONTEXTS.add(ordinal)
    return device


class _OfThread(threading.local):
    ordinal: int | None = None  # of the device that the thread stays on


_OF_THREAD = _OfThread()


def stay_on(ordinal: int) -> None:
    """Make a device the thread's current one until another is; for threads of pools.

    To enter and leave :func:`device_context` takes a dozen calls of the driver, and a thread waits
    for the GIL after each: a thread that always works for one device need not. Not to be called
    within a context; what enters one afterwards comes back to this device.
    """
    if SIMULATED or ordinal == _OF_THREAD.ordinal:
        return
    with device_context(ordinal):
        context = cuda.current_context()
    cuda_driver.driver.cuCtxSetCurrent(context.handle)
    _OF_THREAD.ordinal = ordinal


Result = TypeVar("Result")


def knowing_its_device(call: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that makes the same call, but asks the driver only once for the device.

    Otherwise numba-cuda asks the driver twice at every launch, with a lock of all threads held,
    and releases the GIL each time. The thread must have a device, and `call` must not change it.
    """
    wrapped: Callable[..., Result] = cuda.require_context(call)
    return wrapped


def lowest_capability() -> tuple[int, int]:
    """Return the oldest compute capability that the installed compiler supports."""
    from numba.cuda.cudadrv import nvrtc

    return tuple(nvrtc.get_lowest_supported_cc())


def as_device_array(array: Any) -> Any:
    """Return another library's device array for kernels; in the simulator, a host array."""
    if SIMULATED:
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        return FakeCUDAArray(array)
    return cuda.as_cuda_array(array)


def sleeping_event() -> Any:
    """Return an event of the current device for which a thread sleeps while it waits.

    (For numba-cuda's own events and streams a thread spins.) None in the simulator.
    """
    if SIMULATED:
        return None
    flags = cuda_driver.binding.CUevent_flags
    handle = cuda_driver.driver.cuEventCreate(
        int(flags.CU_EVENT_BLOCKING_SYNC) | int(flags.CU_EVENT_DISABLE_TIMING)
    )
    deallocations = cuda.current_context().deallocations
    return cuda_driver.Event(handle, finalizer=cuda_driver._event_finalizer(deallocations, handle))


def kernel(
    block: int, *, blocks_per_sm: int | None = None
) -> Callable[[Callable[..., None]], Kernel]:
    """Decorate a kernel: cached on disk beside the compiled cores, bounded to `block` threads."""

    def decorate(function: Callable[..., None]) -> Kernel:
        return Kernel(function, block, blocks_per_sm)

    return decorate


device_function = cuda.jit(device=True, **({} if SIMULATED else {"forceinline": True}))
"""Decorates functions that only kernels call: warps, grids, atomics."""
