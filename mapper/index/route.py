"""Choose the route of a build, and set up what sorts the suffixes on it."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mapper.device.choose import CPU, choose_device
from mapper.errors import DeviceError, ResourceError
from mapper.host_memory import available_bytes, require_bytes
from mapper.index import packed
from mapper.index.packed import PackedText
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


class Engine(NamedTuple):
    """What a route does with a text."""

    leading_counts: Callable[[int], np.ndarray]
    """For k: how many suffixes begin with each k-mer, short ones as if A followed; int64."""
    sort: Callable[[], SortedText]


def choose_route(
    what: str,
    n: int,
    params: IndexParams,
    device: str,
    memory: int | None,
    n_threads: int,
    *,
    check: bool,
) -> BuildPlan:
    """Choose how to index a text of at most `n` bases, and say it with its memory.

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

    Raises
    ------
    ResourceError, DeviceError, UsageError
        If nothing suits, or the device asked for does not.
    """
    available = available_bytes() if memory is None else memory
    plan = _plan(n, params, device, available if check else None, n_threads)
    where = {
        LIBRARY: "by the library",
        BLOCKS: f"by {n_threads} threads, {plan.block_size} suffixes at a time",
        DEVICE: f"on device {plan.ordinal}, {plan.block_size} suffixes at a time",
    }
    log.info("at most %d bases; suffixes are sorted %s", n, where[plan.route])
    log.info("about %.2f GB of memory are needed", plan.host_bytes / 1e9)
    if plan.route == DEVICE:
        log.info("and %.2f GB of the device's", plan.device_bytes / 1e9)
    if check:
        if memory is not None and plan.host_bytes > memory:
            raise ResourceError(
                f"{what} needs about {plan.host_bytes / 1e9:.2f} GB of memory, and --memory "
                f"allows {memory / 1e9:.2f} GB"
            )
        require_bytes(plan.host_bytes, what, _REMEDY)
    return plan


def _plan(
    n: int, params: IndexParams, device: str, memory: int | None, n_threads: int
) -> BuildPlan:
    if device == "auto" and n <= LIBRARY_UP_TO:
        device = CPU
    choice = choose_device(device)
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
    from mapper.device.memory import free_bytes
    from mapper.device.seam import cuda

    with cuda.gpus[ordinal]:
        return plan_device(n, params, free_bytes())._replace(ordinal=ordinal)


def require_cupy() -> None:
    """Raise DeviceError where CuPy, which sorts on the device, is missing."""
    from mapper.device.seam import INSTALL, SIMULATED

    if not SIMULATED and importlib.util.find_spec("cupy") is None:
        raise DeviceError(
            f"sorting on a device needs the package CuPy, which is missing; {INSTALL}"
        )


@contextmanager
def suffix_engine(
    plan: BuildPlan,
    text: PackedText,
    unpacked: np.ndarray | None,
    row_type: np.dtype,
    sa_shift: int,
    n_threads: int,
) -> Iterator[Engine]:
    """Set up a route.

    Parameters
    ----------
    unpacked
        For the library: uint8 (n,), the text, ambiguous bases replaced.
    """
    bucket_len = bucket_len_for(text.n)

    def counts_on_cpu(kmer_len: int) -> np.ndarray:
        return packed.leading_counts(text, kmer_len, n_threads)

    if plan.route == DEVICE:
        with _device_kernels(plan, text) as (xp, kernels):
            from mapper.index.sort_arrays import ArraySorter

            def sort_on_device() -> SortedText:
                sorter = ArraySorter(
                    xp, kernels, text.n, bucket_len, row_type, sa_shift, plan.rows_at_once
                )
                return sort_in_blocks(sorter, text.n, plan.block_size)

            yield Engine(kernels.leading_counts, sort_on_device)
    elif plan.route == BLOCKS:
        from mapper.index.sort_cpu import CpuSorter

        def sort_on_cpu() -> SortedText:
            sorter = CpuSorter(text.words, text.n, bucket_len, row_type, sa_shift, n_threads)
            return sort_in_blocks(sorter, text.n, plan.block_size)

        yield Engine(counts_on_cpu, sort_on_cpu)
    else:
        from mapper.index.sort_library import sort_with_library

        assert unpacked is not None, "the library sorts the text as it is"
        given = unpacked
        yield Engine(counts_on_cpu, lambda: sort_with_library(given, row_type, sa_shift))


@contextmanager
def _device_kernels(plan: BuildPlan, text: PackedText) -> Iterator[tuple[Any, Any]]:
    """Make the plan's device current, for numba and CuPy, and put the text there."""
    from mapper.device.seam import SIMULATED, cuda
    from mapper.index.sort_cuda import Kernels

    with cuda.gpus[plan.ordinal]:
        if SIMULATED:
            yield np, Kernels(np, text.words, text.n)
            return
        import cupy

        with cupy.cuda.Device(plan.ordinal):
            yield cupy, Kernels(cupy, text.words, text.n)
