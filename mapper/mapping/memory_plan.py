"""The memory plan of a run: how much it takes, and how large its batches may be within a bound.

Measured (peak resident memory, 2 x 150 bp, 1 to 4 threads, batches of 1 to 9 M bases): 230 MB,
and for each base of a batch 20 bytes, and 15 more for each thread. The constants are larger by a
fifth or more, for reads with many alignments.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from mapper.errors import ResourceError, option
from mapper.host_memory import available_bytes
from mapper.params import DEVICE_BATCH_BASES, LEAST_MEMBER_BASES, MEMBER_BASES
from mapper.sorting.options import LARGE_RANGES_SHARE

log = logging.getLogger(__name__)

PROCESS_BYTES = 300_000_000
"""Python, the libraries and compiled code, and output that is being compressed."""

BYTES_PER_BASE = 25
BYTES_PER_BASE_AND_THREAD = 20

MEMBER_BYTES_PER_BASE_AND_THREAD = 10
"""The same where a device aligns: 5 measured with 16 threads (benchmarks/results/sorted_output.md).
"""

MEMBER_SHARE = 0.125
"""Share of the memory that batches of the host take at most for being larger than
``LEAST_MEMBER_BASES``: sorted records need it more."""

SAMTOOLS_BYTES = 100_000_000
"""A samtools process without its records: Python, pysam, buffers."""

LEAST_SORT_BYTES = 64 << 20
"""For sorted records: with less, the temporary file would hold thousands of runs."""

SORT_BYTES_PER_THREAD = 768 << 20
"""For sorted records, if no bound is given: as ``samtools sort`` takes for each thread."""

SORT_SHARE = 0.5
"""Share of the available memory that they take at most, if no bound is given."""

FINISHING_BYTES_PER_THREAD = 80 << 20
"""Of a thread that merges sorted records: two ranges that are scanned, one that waits for its
duplicates and one that is marked, 8 MB each, the keys of duplicates, and blocks that are being
compressed."""

SPILLING_BYTES_PER_THREAD = 8 << 20
"""Of a thread that sorts a range of records for the temporary file: 2 MB of them in order, and
compressed, and what waits to be written."""

LEAST_BATCH_BASES = 100_000

GROUP_BYTES_PER_BASE = 15
"""Of a group of batches in flight with a device: text, reads, results, page-locked copies.
The sum of the columns for 15 alignments of a read of 150 bases; about 6 measured on an H200, with
pairs of which most aligned to one locus (3 to 10 M of them, 16 threads, 3.1 and 4.4 Gbp)."""

GROUPS_WAITING = 2
"""Groups in flight in addition to two for each stream: parsed, or waiting for a stream."""

DEVICE_PROCESS_BYTES = 700_000_000
"""Memory that a device's driver and compiled kernels add to a process: 0.3 GB measured on an
H200, 0.4 to 0.7 if kernels are compiled in the same run."""

STREAM_BYTES_PER_BASE = 280
"""Device memory for each base of a stream's batch: 250 measured with 25 M bases with 19 loci a read
on an H200, before records were made there, and 30 for these, the sum of their columns with 15
alignments a read of 150 bases; the reads of a genome with few repeats take a third. Of a batch that
takes more the host makes the records, or it is aligned in parts."""

DEVICE_MEMORY_SHARE = 0.75
"""Share of a device's free memory for batches. The rest is for kernels, the driver and others."""


class MemoryPlan(NamedTuple):
    """Sizes that fit into the bound."""

    batch_bases: int  # to align at a time
    member_bases: int  # to parse and finish at a time
    sort_bytes: int  # for sorted records; 0 if nothing is sorted
    freed_bytes: int = 0  # that mapping takes and the later writing of sorted records does not


def groups_in_flight(n_streams: int) -> int:
    """Return how many groups of batches to keep in flight, given the number of streams.

    All streams may end a group at the same time; these groups are placed, or their records taken,
    while the streams align the next. (With two groups more than three streams, streams had no reads
    for 40 % of a run on an H200.)
    """
    return 2 * n_streams + GROUPS_WAITING


def device_batch_bases(free_bytes: int, n_streams: int) -> int:
    """Return how many bases a batch may have if each stream of a device aligns one.

    Parameters
    ----------
    free_bytes
        Free memory of the device, once the index has been copied there.
    n_streams
        Batches aligned at a time.
    """
    fitting = int(DEVICE_MEMORY_SHARE * free_bytes) // (n_streams * STREAM_BYTES_PER_BASE)
    return min(DEVICE_BATCH_BASES, max(LEAST_BATCH_BASES, fitting))


def mapping_bytes(
    index_bytes: int, threads: int, batch_bases: int, n_streams: int = 0,
    member_bases: int = MEMBER_BASES,
) -> int:  # fmt: skip
    """Return the bytes that this process takes while it maps, those of the mapped index included.

    With streams of a device, `batch_bases` are those of a group of batches, each of which has up to
    `member_bases`.
    """
    fixed = PROCESS_BYTES + index_bytes
    if n_streams:
        of_host = _member_bytes_per_base(threads) * min(batch_bases, member_bases)
        of_groups = GROUP_BYTES_PER_BASE * groups_in_flight(n_streams) * batch_bases
        return fixed + DEVICE_PROCESS_BYTES + of_host + of_groups
    return fixed + (BYTES_PER_BASE + BYTES_PER_BASE_AND_THREAD * threads) * batch_bases


def _member_bytes_per_base(threads: int) -> int:
    return BYTES_PER_BASE + MEMBER_BYTES_PER_BASE_AND_THREAD * threads


def _member_bases(memory: int | None, threads: int, wanted: int) -> int:
    """Return the bases of the batches that the host parses and finishes for a device."""
    if memory is None:
        return wanted
    fitting = int(MEMBER_SHARE * memory) // _member_bytes_per_base(threads)
    return min(wanted, max(fitting, LEAST_MEMBER_BASES))


def sort_bytes_without_bound(threads: int) -> int:
    """Return the bytes for sorted records of a run that has no bound."""
    wanted = SORT_BYTES_PER_THREAD * threads
    available = available_bytes()
    if available is None:
        return wanted
    return max(min(wanted, int(SORT_SHARE * available)), LEAST_SORT_BYTES)


def log_memory(
    index_bytes: int, threads: int, plan: MemoryPlan, helper_bytes: int = 0, n_streams: int = 0
) -> None:
    """Log how much memory a run will take, and warn if more than is available.

    The warning leaves out the index: its pages are a file's, which the system can drop.

    Parameters
    ----------
    index_bytes, threads, helper_bytes, n_streams
        See :func:`plan_memory`.
    plan
        What that returned.
    """
    needed = helper_bytes + mapping_bytes(
        index_bytes, threads, plan.batch_bases, n_streams, plan.member_bases
    )
    sorting = ""
    if plan.sort_bytes:
        sorting = f"; sorted records take up to {plan.sort_bytes / 1e9:.2f} GB more"
    log.info(
        "about %.2f GB of memory are needed, %.2f GB of it for the index, which runs share%s",
        needed / 1e9, index_bytes / 1e9, sorting,
    )  # fmt: skip
    available = available_bytes()
    if available is not None and needed - index_bytes > available:
        log.warning(
            "%.2f GB are available: %s makes batches smaller, so do fewer threads",
            available / 1e9,
            option("memory"),
        )


def plan_memory(
    bound: int | None, index_bytes: int, threads: int, batch_bases: int, *, sorts: bool = False,
    helper_bytes: int = 0, process_bytes: int = 0, n_streams: int = 0,
    member_bases: int = MEMBER_BASES,
) -> MemoryPlan:  # fmt: skip
    """Return sizes with which a run stays within its bound.

    Parameters
    ----------
    bound
        Bytes of the whole run, its samtools processes included; None for no bound.
    index_bytes, threads, batch_bases
        See :func:`mapping_bytes`; batches become smaller if necessary.
    sorts
        True if records are sorted. They are kept while the run maps, and have what is left.
    helper_bytes
        Bytes of samtools processes while this one maps.
    process_bytes
        Bytes of devices' processes, which live until the run ends.
    n_streams
        CUDA streams of all devices; 0 without a device.
    member_bases
        With a device, bases of the batches that the host parses and finishes; they become smaller
        where memory is scarce.

    Raises
    ------
    ResourceError
        If the smallest batches, or sorting, would exceed the bound.
    """
    members = batch_bases
    if n_streams:
        members = _member_bases(bound or available_bytes(), threads, min(member_bases, batch_bases))
    if bound is None:
        return MemoryPlan(batch_bases, members, sort_bytes_without_bound(threads) if sorts else 0)
    for_sorting = spilling = freed = 0
    if sorts:
        for_sorting, spilling = LEAST_SORT_BYTES, SPILLING_BYTES_PER_THREAD * (threads + 2)
    beside = helper_bytes + process_bytes + spilling
    fixed = mapping_bytes(index_bytes, threads, 0, n_streams) + beside + for_sorting
    # An upper bound: of a group, the host holds no more than one batch of its own.
    per_base = mapping_bytes(0, threads, 1, n_streams) - mapping_bytes(0, threads, 0, n_streams)
    fitting = min(batch_bases, (bound - fixed) // per_base)
    if n_streams and fitting > members:
        of_host = mapping_bytes(index_bytes, threads, members, n_streams, members)
        each = GROUP_BYTES_PER_BASE * groups_in_flight(n_streams)
        fitting = min(batch_bases, members + (bound - of_host - beside - for_sorting) // each)
    needed = fixed + per_base * min(batch_bases, LEAST_BATCH_BASES)
    # While records are merged, the index is still mapped, but the batches have been freed.
    finishing = PROCESS_BYTES + index_bytes + FINISHING_BYTES_PER_THREAD * threads + process_bytes
    if sorts:
        needed = max(needed, finishing + for_sorting)
    if bound < needed:
        raise ResourceError(
            f"{option('memory')} of {bound / 1e6:.0f} MB: with this index and {threads} threads a "
            f"run takes at least {needed / 1e6:.0f} MB; give more memory, or fewer threads"
        )
    if sorts:
        mapping = mapping_bytes(index_bytes, threads, fitting, n_streams, members) + beside
        left = bound - max(mapping, finishing)
        # Ranges that are merged into the temporary file may take a share of what records do.
        shared = left * LARGE_RANGES_SHARE // (LARGE_RANGES_SHARE + 1)
        for_sorting = max(shared, LEAST_SORT_BYTES)
        freed = max(mapping - finishing - (DEVICE_PROCESS_BYTES if n_streams else 0), 0)
    return MemoryPlan(fitting, min(members, fitting), for_sorting, freed)
