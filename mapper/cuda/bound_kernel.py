"""A kernel with its arguments, described to the driver once for many launches."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from mapper.cuda.api import (
    SHARED_BYTES,
    SIMULATED,
    Kernel,
    cuda,
    driver,
    launch_loaded,
)
from mapper.cuda.arguments import as_words, describe, table_of


class BoundKernel:
    """A kernel with its arguments, for launches that differ in numbers only.

    Arguments are described to the driver once (:mod:`mapper.cuda.arguments`); integers at the
    top level can be given anew each time.

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
        kinds: list[Any] = []
        words: list[int] = []
        self._place_of: dict[int, int] = {}
        for place, arg in enumerate(args):
            if isinstance(arg, Integral):
                self._place_of[place] = len(words)
            describe(arg, kinds, words)
        self._function = kernel.function_for(kinds, args)
        if shared_bytes > SHARED_BYTES:
            driver.driver.cuKernelSetAttribute(
                driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shared_bytes,
                driver.binding.CUkernel(self._function.handle),
                cuda.current_context().device.id,
            )
        self._words = as_words(words)
        self._table = table_of(self._words)
        self._stream_handle = int(driver._stream_handle(stream))

    def launch(self, n_blocks: int, numbers: Mapping[int, int]) -> None:
        """Launch with so many blocks; `numbers` replace arguments, by their place, for good."""
        if SIMULATED:
            for place, number in numbers.items():
                self._args[place] = number
            self._kernel.launch_blocks(
                n_blocks, self._stream, *self._args, shared_bytes=self._shared_bytes
            )
            return
        self._replace(numbers)
        launch_loaded(
            self._function, n_blocks, self._kernel.block, self._stream_handle,
            self._shared_bytes, self._table,
        )  # fmt: skip

    def noted(self, n_blocks: int, numbers: Mapping[int, int]) -> tuple[int, ...]:
        """Return a launch for later: function, blocks, threads, shared bytes, table of arguments.

        There is one table: launch before numbers are given anew.

        Raises
        ------
        TypeError
            For a kernel whose blocks wait for each other: it is launched alone.
        """
        if self._function.is_cooperative:
            raise TypeError("kernels whose blocks wait for each other are launched alone")
        self._replace(numbers)
        table = ctypes.addressof(self._table)
        return self._function.handle, n_blocks, self._kernel.block, self._shared_bytes, table

    def _replace(self, numbers: Mapping[int, int]) -> None:
        for place, number in numbers.items():
            self._words[self._place_of[place]] = number
