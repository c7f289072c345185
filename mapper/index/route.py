"""Choose the route of a build, and set up what sorts the suffixes on it."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from mapper.cuda.devices import CPU, choose_device
from mapper.errors import DeviceError, ResourceError, UsageError
from mapper.host_memory import available_bytes, require_bytes
from mapper.index.packed_text import PackedText
from mapper.index.plan import (
    BLOCKS,
    DEVICE,
    LIBRARY,
    LIBRARY_UP_TO,
    BuildPlan,
    plan_blocks,
    plan_device,
    plan_library,
)
from mapper.index.suffix_sort import SortedText, bucket_len_for, sort_in_blocks
from mapper.params import IndexParams

log = logging.getLogger(__name__)

_REMEDY = "use a machine or job with more, or --ignore-memory to try all the same"


def choose_route(
    what: str,
    n: int,
    params: IndexParams,
    device: str,
    memory: int | None,
    n_threads: int,
    *,
    check: bool,
    n_held: int = 0,
    say: bool = True,
) -> BuildPlan:
    """Choose how to index a text of at most `n` bases.

    Parameters
    ----------
    what
        The subject of messages.
    device
        As the option ``--device``. ``auto`` takes a device for large texts that fit it.
    memory
        Bytes the process may take; None: what is available.
    check
        Refuse what needs more than is available.
    n_held
        Bytes of that need which the process has already.
    say
        Log what is chosen, and the memory that it takes.

    Raises
    ------
    ResourceError, DeviceError, UsageError
        If nothing suits, or the device asked for does not.
    """
    available = memory
    if memory is None and (left := available_bytes()) is not None:
        available = left + n_held
    plan = _plan(n, params, device, available if check else None, n_threads)
    if check:
        if memory is not None and plan.host_bytes > memory:
            raise ResourceError(
                f"{what} needs about {plan.host_bytes / 1e9:.2f} GB of memory, and --memory "
                f"allows {memory / 1e9:.2f} GB"
            )
        require_bytes(plan.host_bytes - n_held, what, _REMEDY)
    if say:
        _say(plan, n, n_threads)
    return plan


def _say(plan: BuildPlan, n: int, n_threads: int) -> None:
    """Log a plan and its memory."""
    where = {
        LIBRARY: "by the library",
        BLOCKS: f"by {n_threads} threads, {plan.block_size} suffixes at a time",
        DEVICE: f"on device {plan.ordinal}, {plan.block_size} suffixes at a time",
    }
    log.info("at most %d bases; suffixes are sorted %s", n, where[plan.route])
    log.info("about %.2f GB of memory are needed", plan.host_bytes / 1e9)
    if plan.route == DEVICE:
        log.info("and %.2f GB of the device's", plan.device_bytes / 1e9)


def _plan(
    n: int, params: IndexParams, device: str, memory: int | None, n_threads: int
) -> BuildPlan:
    if device == "auto" and n <= LIBRARY_UP_TO:
        device = CPU
    choice = choose_device(device)
    if "," in device:
        raise UsageError(f"--device {device}: an index is built on one device; name one")
    if choice.backend != CPU:
        try:
            require_cupy()
            return _plan_on(choice.ordinals[0], n, params)
        except (DeviceError, ResourceError) as error:
            if device != "auto":
                raise
            log.info("sorting on the CPU: %s", error)
    if n <= LIBRARY_UP_TO:
        return plan_library(n, params)
    return plan_blocks(n, params, n_threads, memory)


def _plan_on(ordinal: int, n: int, params: IndexParams) -> BuildPlan:
    from mapper.cuda.api import cuda
    from mapper.cuda.memory import free_bytes

    with cuda.gpus[ordinal]:
        return plan_device(n, params, free_bytes())._replace(ordinal=ordinal)


def require_cupy() -> None:
    """Raise DeviceError where CuPy, which sorts on the device, is missing."""
    from mapper.cuda.api import INSTALL, SIMULATED

    if not SIMULATED and importlib.util.find_spec("cupy") is None:
        raise DeviceError(
            f"sorting on a device needs the package CuPy, which is missing; {INSTALL}"
        )


def sort_suffixes(
    plan: BuildPlan,
    text: PackedText,
    unpacked: np.ndarray | None,
    row_type: np.dtype,
    sa_shift: int,
    n_threads: int,
) -> SortedText:
    """Sort the suffixes of a text by a plan's route.

    Parameters
    ----------
    unpacked
        For the library: uint8 (n,), the text, ambiguous bases replaced.
    """
    if plan.route == DEVICE:
        with _device_kernels(plan, text) as (xp, kernels):
            return _sort_on_device(plan, text.n, row_type, sa_shift, xp, kernels)
    if plan.route == BLOCKS:
        from mapper.index.sort_cpu import CpuSorter

        bucket_len = bucket_len_for(text.n)
        sorter = CpuSorter(text.words, text.n, bucket_len, row_type, sa_shift, n_threads)
        return sort_in_blocks(sorter, text.n, plan.block_size)
    from mapper.index.sort_library import sort_with_library

    assert unpacked is not None, "the library sorts the text as it is"
    return sort_with_library(unpacked, row_type, sa_shift)


def _sort_on_device(
    plan: BuildPlan, n: int, row_type: np.dtype, sa_shift: int, xp: Any, kernels: Any
) -> SortedText:
    from mapper.index.sort_arrays import ArraySorter

    sorter = ArraySorter(xp, kernels, n, bucket_len_for(n), row_type, sa_shift, plan.rows_at_once)
    return sort_in_blocks(sorter, n, plan.block_size)


@contextmanager
def _device_kernels(plan: BuildPlan, text: PackedText) -> Iterator[tuple[Any, Any]]:
    """Make the plan's device current, for numba and CuPy, and put the text there meanwhile."""
    from mapper.cuda.api import SIMULATED, cuda
    from mapper.index.suffix_sort_cuda import Kernels

    with ExitStack() as stack:
        stack.enter_context(cuda.gpus[plan.ordinal])
        xp: Any = np if SIMULATED else importlib.import_module("cupy")
        if not SIMULATED:
            stack.enter_context(xp.cuda.Device(plan.ordinal))
        kernels = Kernels(xp, text.words, text.n)
        try:
            yield xp, kernels
        finally:
            kernels.release()
