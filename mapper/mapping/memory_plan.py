"""How much memory a mapping run takes, and how large its batches may be within a bound.

Measured (peak resident memory, 2 x 150 bp, 1 to 4 threads, batches of 1 to 9 M bases): 230 MB,
and for each base of a batch 20 bytes, and 15 more for each thread. The constants have a fifth
and more on top of that, for reads with many alignments.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from mapper.errors import ResourceError
from mapper.host_memory import available_bytes
from mapper.params import BATCH_BASES, DEVICE_BATCH_BASES

log = logging.getLogger(__name__)

PROCESS_BYTES = 300_000_000
"""Python, the libraries and compiled code, and output that is being compressed."""

BYTES_PER_BASE = 25
BYTES_PER_BASE_AND_THREAD = 20

SAMTOOLS_BYTES = 100_000_000
"""A samtools process without its records: Python, pysam, buffers."""

LEAST_SORT_BYTES = 16 << 20
"""For each thread that sorts: below that, samtools would write thousands of files."""

LEAST_BATCH_BASES = 100_000
SORT_BYTES = 1 << 30
"""For the records that are sorted, where no bound is given."""


GROUP_BYTES_PER_BASE = 15
"""Of a group of batches under way with a device: text, reads, results, page-locked copies.
By adding up columns, for 15 alignments a read of 150 bases; about 6 measured on an H200, with
pairs of which most had one place (3 to 10 M of them, 16 threads, 3.1 and 4.4 Gbp)."""

GROUPS_WAITING = 2
"""Groups under way beside two for each lane: they are parsed, or wait for a lane."""

DEVICE_PROCESS_BYTES = 700_000_000
"""What a device's driver and compiled kernels add to a process: 0.3 GB measured on an H200, 0.4
to 0.7 where kernels are compiled in the same run."""


LANE_BYTES_PER_BASE = 250
"""Of a device's memory, for each base of a lane's batch: what 25 M bases with 19 loci a read
took of an H200 (benchmarks/results/device_part-2026-11-21-8279e6b.md, first batch); the reads of
a genome with few repeats take a third. Where it is more, a batch is done in parts."""

LANES_SHARE = 0.75
"""Of a device's free memory, for batches. The rest: kernels, what the driver takes, and others."""


class MemoryPlan(NamedTuple):
    """What fits into the bound."""

    batch_bases: int
    sort_bytes: int  # for records, of all sorting threads together


def groups_under_way(lanes: int) -> int:
    """Return how many groups of batches there may be at a time, with so many lanes of devices.

    As many as are in lanes may come out of them at a time, and are placed while the next are
    in. (With two beside three lanes, these had no reads for 40 % of a run on an H200.)
    """
    return 2 * lanes + GROUPS_WAITING


def device_batch_bases(free_bytes: int, lanes: int) -> int:
    """Return how many bases a batch may have on a device, beside the others in its lanes.

    Parameters
    ----------
    free_bytes
        Of the device, the index being there.
    lanes
        Batches in work there at a time.
    """
    fitting = int(LANES_SHARE * free_bytes) // (lanes * LANE_BYTES_PER_BASE)
    return min(DEVICE_BATCH_BASES, max(LEAST_BATCH_BASES, fitting))


def mapping_bytes(index_bytes: int, threads: int, batch_bases: int, lanes: int = 0) -> int:
    """Return what this process takes while it maps: bytes, those of the mapped index included.

    With `lanes` of a device, batches are groups of batches of the host.
    """
    if lanes:
        of_host = mapping_bytes(index_bytes, threads, min(batch_bases, BATCH_BASES))
        of_groups = GROUP_BYTES_PER_BASE * groups_under_way(lanes) * batch_bases
        return of_host + DEVICE_PROCESS_BYTES + of_groups
    per_base = BYTES_PER_BASE + BYTES_PER_BASE_AND_THREAD * threads
    return PROCESS_BYTES + index_bytes + per_base * batch_bases


def say_memory(
    index_bytes: int, threads: int, batch_bases: int, sort_bytes: int, helper_bytes: int = 0,
    lanes: int = 0,
) -> None:  # fmt: skip
    """Log what a run will take, and warn if that is more than is available.

    The pages of the index do not count there: they are a file's, which the system can drop.

    Parameters
    ----------
    sort_bytes
        For sorting, once all is mapped; 0 if nothing is sorted.
    index_bytes, threads, batch_bases, helper_bytes, lanes
        See :func:`plan_memory`.
    """
    needed = mapping_bytes(index_bytes, threads, batch_bases, lanes) + helper_bytes
    sorting = f"; sorting then takes up to {sort_bytes / 1e9:.2f} GB" if sort_bytes else ""
    log.info(
        "about %.2f GB of memory are needed, %.2f GB of it for the index, which runs share%s",
        needed / 1e9, index_bytes / 1e9, sorting,
    )  # fmt: skip
    available = available_bytes()
    if available is not None and needed - index_bytes > available:
        log.warning(
            "%.2f GB are available: --memory makes batches smaller, so do fewer threads",
            available / 1e9,
        )


def plan_memory(
    bound: int | None, index_bytes: int, threads: int, batch_bases: int, sort_threads: int = 0,
    helper_bytes: int = 0, lanes: int = 0,
) -> MemoryPlan:  # fmt: skip
    """Return sizes with which a run stays within its bound.

    Parameters
    ----------
    bound
        Bytes for all of the run, its samtools processes included; None for no bound.
    index_bytes, threads, batch_bases
        See :func:`mapping_bytes`; batches become smaller if they must.
    sort_threads
        Threads that sort once all is mapped; 0 if none do.
    helper_bytes
        What samtools processes take while this one maps.
    lanes
        Of a device.

    Raises
    ------
    ResourceError
        If the smallest batches, or sorting, would exceed the bound.
    """
    if bound is None:
        return MemoryPlan(batch_bases, SORT_BYTES)
    fixed = mapping_bytes(index_bytes, threads, 0, lanes) + helper_bytes
    # Of a device's groups the host's part does not grow beyond BATCH_BASES: no more than this.
    per_base = mapping_bytes(0, threads, 1, lanes) - mapping_bytes(0, threads, 0, lanes)
    fitting = min(batch_bases, (bound - fixed) // per_base)
    of_host = mapping_bytes(index_bytes, threads, BATCH_BASES, lanes) + helper_bytes
    if lanes and fitting > BATCH_BASES:
        each = GROUP_BYTES_PER_BASE * groups_under_way(lanes)
        fitting = min(batch_bases, BATCH_BASES + (bound - of_host) // each)
    # Mapped pages of the index stay, the batches' memory does not.
    for_sorting = bound - PROCESS_BYTES - index_bytes - SAMTOOLS_BYTES
    needed = fixed + per_base * min(batch_bases, LEAST_BATCH_BASES)
    if sort_threads:
        sorting = bound - for_sorting + sort_threads * LEAST_SORT_BYTES
        needed = max(needed, sorting)
    if bound < needed:
        raise ResourceError(
            f"--memory {bound / 1e6:.0f} MB: with this index and {threads} threads a run takes at "
            f"least {needed / 1e6:.0f} MB; give more memory, or fewer threads"
        )
    return MemoryPlan(fitting, for_sorting)
