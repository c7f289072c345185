"""Choose the route of a build, estimate its memory, and sort the suffixes on it.

All routes give the same index, byte for byte:

``library``
    libdivsufsort on the whole text in memory, where the package pydivsufsort is installed; for
    small texts, whose sort takes less time than the code of the others takes to compile.
``blocks``
    :mod:`mapper.index.suffix_sort_cpu`: by all threads, block by block.
``device``
    :mod:`mapper.index.suffix_sort_cuda`: on one CUDA device, block by block.

The memory of each is estimated stage by stage, for a text of n bases, w bytes a row (4, or 8
from 2**32 bases on), and the arrays of the index (:mod:`mapper.index.storage`).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from mapper.cuda.devices import CPU, choose_device
from mapper.errors import DeviceError, ResourceError, UsageError, option
from mapper.host_memory import available_bytes, require_bytes
from mapper.index.packed_text import PackedText, n_words
from mapper.index.storage import columns, index_bytes, row_dtype
from mapper.index.suffix_sort import SortedText, bucket_len_for, sort_in_blocks
from mapper.index.suffix_sort_cpu import CpuSorter, sort_with_library
from mapper.params import IndexParams

LIBRARY, BLOCKS, DEVICE = "library", "blocks", "device"

LIBRARY_UP_TO = 1 << 24
"""Bases of the largest text that the library sorts."""

PROCESS_BYTES = 300_000_000
"""Interpreter, libraries and compiled code: measured 0.25 GB."""

DEVICE_PROCESS_BYTES = 950_000_000
"""The same with CUDA's libraries and CuPy: 0.7 to 0.8 GB with compiled kernels in the cache (peaks
on an H200, 18 Mbp to 4.4 Gbp, less the arrays), 0.9 GB in a run that compiles them."""

DEVICE_SPARE = 0.05
"""Share added to the host memory of a device build: versions of drivers and libraries differ."""

TIED_SHARE = 0.06
"""Share of the suffixes assumed to be tied after the blocks: twice that of the texts measured,
with mammal-like repeats. More are sorted as well, in more memory."""

DEVICE_BYTES_A_SUFFIX = 64
"""Bytes for each suffix of a block on a device: positions, keys, and CuPy's sort of keys with
8-byte indices, which copies the keys and doubles both."""

LARGEST_BLOCK = 1 << 28
"""Most suffixes of a block on a device: enough to occupy it."""

DEVICE_RESERVE = 600_000_000
"""Bytes of a device for CUDA, compiled kernels and fragmentation."""


class BuildPlan(NamedTuple):
    """The route of a build, its block size and its memory."""

    route: str
    block_size: int = 0
    """Suffixes of a block; 0 for the library."""
    host_bytes: int = 0
    """Peak memory of the process."""
    device_bytes: int = 0
    ordinal: int = 0
    """Number of the device."""
    rows_at_once: int = 1 << 28
    """Rows whose BWT and samples are written on a device at a time: a multiple of 1024."""


def plan_library(n: int, params: IndexParams) -> BuildPlan:
    """Plan the library's route: text, suffix array and index are in memory at its end."""
    suffix_array = n * (4 if n < 2**31 else 8)
    held = n + suffix_array + n + index_bytes(n, params)
    return BuildPlan(LIBRARY, 0, held + PROCESS_BYTES, 0)


def has_library() -> bool:
    """Return True if pydivsufsort, the Python package of libdivsufsort, is installed."""
    return importlib.util.find_spec("pydivsufsort") is not None


def plan_cpu(n: int, params: IndexParams, n_threads: int, memory: int | None) -> BuildPlan:
    """Plan a build on the CPU: by the library for a small text, if it is installed, else by blocks.

    Raises
    ------
    ResourceError
        See :func:`plan_blocks`.
    """
    if n <= LIBRARY_UP_TO and has_library():
        return plan_library(n, params)
    return plan_blocks(n, params, n_threads, memory)


def plan_blocks(n: int, params: IndexParams, n_threads: int, memory: int | None) -> BuildPlan:
    """Plan the route of the CPU, with blocks as large as `memory` bytes allow.

    The text is read once for each block; blocks of more than half of it would gain little.
    Without a limit, blocks are as large as fits below the peak of the later stages.

    Raises
    ------
    ResourceError
        If `memory` is less than the route needs with the smallest sensible blocks.
    """
    sizes = {name: column.n_bytes for name, column in columns(n, params).items()}
    row = row_dtype(n).itemsize
    packed = n // 4 + sizes["ref_planes"] + PROCESS_BYTES
    counts = 2 * 16 * n_threads * 8 * 4 ** bucket_len_for(n)
    ranks = n * row
    rounds = int(TIED_SHARE * n) * (2 * row + 8)
    tied = int(TIED_SHARE * n) * 2 * row
    written = n + sizes["sa_samples"]
    reading = 2 * n + PROCESS_BYTES
    least_block = max(1 << 16, n // 256)
    fixed = packed + counts + ranks + tied
    floor = max(
        packed + ranks + max(written, rounds + counts),
        packed + sizes["sa_samples"] + sizes["blocks"] + sizes["kmer_starts"] * 5 // 4,
        fixed + least_block * (row + 2),
        reading,
    )
    if memory is None:
        memory = floor
    if memory < floor:
        raise ResourceError(
            f"an index of {n} bases needs at least {floor / 1e9:.2f} GB of memory, and "
            f"{memory / 1e9:.2f} GB are allowed"
        )
    block_size = max(least_block, min((memory - fixed) // (row + 2), n // 2 + 1))
    peak = max(floor, fixed + block_size * (row + 2))
    return BuildPlan(BLOCKS, block_size, peak, 0)


def plan_device(n: int, params: IndexParams, free_bytes: int | None) -> BuildPlan:
    """Plan the route of a device with `free_bytes` of free memory; None: the least it needs.

    The device holds the text (n / 4), the ranks (w n), the counts of a scan and their sums
    (9 / 64 n), the tied suffixes, and a block, as large as possible. For the host see
    :func:`device_stages`.

    Raises
    ------
    ResourceError
        If the device is too small even for small blocks.
    """
    row = row_dtype(n).itemsize
    kept = n // 4 + n * row + n * 9 // 64 + int(TIED_SHARE * n) * 2 * row + DEVICE_RESERVE
    least_block = min(n, max(1 << 20, n // 64))
    floor = kept + least_block * DEVICE_BYTES_A_SUFFIX
    if free_bytes is None:
        free_bytes = floor
    if free_bytes < floor:
        raise ResourceError(
            f"an index of {n} bases needs {floor / 1e9:.1f} GB of device memory, and "
            f"{free_bytes / 1e9:.1f} GB are free"
        )
    block_size = min(LARGEST_BLOCK, n, (free_bytes - kept) // DEVICE_BYTES_A_SUFFIX)
    host = int((1 + DEVICE_SPARE) * (max(device_stages(n, params).values()) + DEVICE_PROCESS_BYTES))
    return BuildPlan(DEVICE, block_size, host, kept + block_size * DEVICE_BYTES_A_SUFFIX)


def device_stages(n: int, params: IndexParams) -> dict[str, int]:
    """Return the bytes of the host's arrays in each stage of a device's route.

    The words are freed once the suffixes are sorted, the BWT once it is in the blocks.
    """
    sizes = {name: column.n_bytes for name, column in columns(n, params).items()}
    words, planes, bwt = 8 * n_words(n), sizes["ref_planes"], n + 1
    samples, blocks = sizes["sa_samples"], sizes["blocks"] + sizes["super_counts"]
    return {
        "reading": 2 * n,  # of a compressed file: segments, and the joined text
        "packing": n + words + planes,
        "sorting": words + planes + bwt + samples,
        "blocks": planes + bwt + samples + blocks,
        "table": planes + samples + blocks + sizes["kmer_starts"] * 5 // 4,  # and of k - 1
    }


log = logging.getLogger(__name__)


def _remedy() -> str:
    return f"use a machine or job with more, or {option('ignore_memory')} to try all the same"


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
    masks: bool = False,
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
        Bytes the process may take; None: the available memory.
    check
        Refuse a plan that needs more than the available memory.
    n_held
        Bytes of the plan that the process has allocated already.
    masks
        Bases are masked: the text without mask is kept in bit planes beside it.
    say
        Log the plan and its memory.

    Raises
    ------
    ResourceError, DeviceError, UsageError
        If no route fits the memory, or the named device cannot be used.
    """
    available = memory
    if memory is None and (left := available_bytes()) is not None:
        available = left + n_held
    of_mask = columns(n, params)["ref_planes"].n_bytes if masks else 0
    if available is not None:
        available -= of_mask
    plan = _plan(n, params, device, available if check else None, n_threads, say=say)
    plan = plan._replace(host_bytes=plan.host_bytes + of_mask)
    if check:
        if memory is not None and plan.host_bytes > memory:
            raise ResourceError(
                f"{what} needs about {plan.host_bytes / 1e9:.2f} GB of memory, and "
                f"{option('memory')} allows {memory / 1e9:.2f} GB"
            )
        require_bytes(plan.host_bytes - n_held, what, _remedy())
    if say:
        _say(plan, n, n_threads)
    return plan


def _say(plan: BuildPlan, n: int, n_threads: int) -> None:
    """Log a plan and its memory."""
    where = {
        LIBRARY: "by libdivsufsort",
        BLOCKS: f"by {n_threads} threads, {plan.block_size} suffixes at a time",
        DEVICE: f"on device {plan.ordinal}, {plan.block_size} suffixes at a time",
    }
    log.info("at most %d bases; suffixes are sorted %s", n, where[plan.route])
    log.info("about %.2f GB of memory are needed", plan.host_bytes / 1e9)
    if plan.route == DEVICE:
        log.info("and %.2f GB of the device's", plan.device_bytes / 1e9)


def _plan(
    n: int, params: IndexParams, device: str, memory: int | None, n_threads: int, *, say: bool
) -> BuildPlan:
    if device == "auto" and n <= LIBRARY_UP_TO:
        device = CPU
    choice = choose_device(device, say=say)
    if "," in device:
        raise UsageError(f"{option('device', device)}: an index is built on one device; name one")
    if choice.backend != CPU:
        try:
            require_cupy()
            return _plan_on(choice.ordinals[0], n, params)
        except (DeviceError, ResourceError) as error:
            if device != "auto":
                raise
            if say:
                log.info("sorting on the CPU: %s", error)
    return plan_cpu(n, params, n_threads, memory)


def _plan_on(ordinal: int, n: int, params: IndexParams) -> BuildPlan:
    from mapper.cuda.api import device_context
    from mapper.cuda.memory import free_bytes

    with device_context(ordinal):
        return plan_device(n, params, free_bytes())._replace(ordinal=ordinal)


def require_cupy() -> None:
    """Raise DeviceError if CuPy, which sorts on the device, is not installed."""
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
        bucket_len = bucket_len_for(text.n)
        sorter = CpuSorter(text.words, text.n, bucket_len, row_type, sa_shift, n_threads)
        return sort_in_blocks(sorter, text.n, plan.block_size)
    assert unpacked is not None, "the library sorts the text as it is"
    return sort_with_library(unpacked, row_type, sa_shift)


def _sort_on_device(
    plan: BuildPlan, n: int, row_type: np.dtype, sa_shift: int, xp: Any, kernels: Any
) -> SortedText:
    from mapper.index.suffix_sort_cuda import ArraySorter

    sorter = ArraySorter(xp, kernels, n, bucket_len_for(n), row_type, sa_shift, plan.rows_at_once)
    return sort_in_blocks(sorter, n, plan.block_size)


@contextmanager
def _device_kernels(plan: BuildPlan, text: PackedText) -> Iterator[tuple[Any, Any]]:
    """Make the plan's device current, for numba and CuPy, with the text in its memory."""
    from mapper.cuda.api import SIMULATED, device_context
    from mapper.index.suffix_sort_cuda import Kernels

    with ExitStack() as stack:
        stack.enter_context(device_context(plan.ordinal))
        xp: Any = np if SIMULATED else importlib.import_module("cupy")
        if not SIMULATED:
            stack.enter_context(xp.cuda.Device(plan.ordinal))
        kernels = Kernels(xp, text.words, text.n)
        try:
            yield xp, kernels
        finally:
            kernels.release()
