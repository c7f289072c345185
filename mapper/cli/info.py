"""``fmwave info``: versions, this machine, the content of an index, and the memory of a run."""

from __future__ import annotations

import argparse
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from mapper import __version__
from mapper.cli.sizes import size
from mapper.cli.standard_streams import report
from mapper.errors import UsageError

_SOME = "sizes and some places (--verify for all checksums)"
_LIBRARIES = ("numba", "numba-cuda", "numpy", "pysam", "pydivsufsort")

EXAMPLES = """\
fmwave info
fmwave info ref.fmw --verify
fmwave info --plan 3.1G"""
DOCUMENT = "docs/index-format.md"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave info``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "info",
        help="show versions, this machine, and what an index holds",
        description="Show versions, this machine and, given an index, what it holds and the "
        "memory that mapping with it takes.",
    )
    parser.add_argument(
        "index", type=Path, metavar="REF.fmw", nargs="?", help="index directory to look into"
    )
    parser.add_argument(
        "--plan",
        type=size,
        metavar="SIZE",
        help="show what index and map will need for a reference of so many bases, such as 3.1G",
    )
    parser.add_argument(
        "--device",
        metavar="D",
        help="with --plan: auto, cpu, cuda or cuda:1 (default: auto)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read the whole index REF.fmw and compare its checksums (default: sizes, and "
        "some places)",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="propose what the workflow's config says of each GPU found (gpu.model)",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Print one ``name: value`` line per fact, on stdout."""
    if args.verify and args.index is None:
        raise UsageError("--verify: name the index to be verified")
    if args.device is not None and args.plan is None:
        raise UsageError("--device belongs to --plan; all devices are shown without")
    facts = machine_facts()
    if args.profile:
        from mapper.cuda.gpu_table import profile_facts

        facts += profile_facts()
    if args.plan is not None:
        facts += plan_facts(args.plan, args.device or "auto")
    if args.index is not None:
        facts += index_facts(args.index, check=args.verify)
    width = max(len(name) for name, _ in facts) + 1
    report("".join(f"{name + ':':<{width}} {value}\n" for name, value in facts))
    return 0


def machine_facts() -> list[tuple[str, str]]:
    """Return versions, cores and memory."""
    from mapper.cuda.devices import describe_devices
    from mapper.host_memory import available_bytes
    from mapper.index.plan import LIBRARY_UP_TO, has_library
    from mapper.jit.accelerate import CACHE_DIR, is_compiled

    available = available_bytes()
    sorter = "by blocks (pydivsufsort is not installed)"
    if has_library():
        sorter = f"by libdivsufsort up to {LIBRARY_UP_TO / 1e6:.1f} Mbp, by blocks above"
    versions = ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    return [
        ("fmwave", __version__),
        ("Python", f"{platform.python_version()}, {versions}"),
        ("machine", f"{platform.system()} {platform.machine()}"),
        ("cores for this process", str(len(os.sched_getaffinity(0)))),
        ("memory available", "unknown" if available is None else _size(available)),
        ("suffixes sorted on the CPU", sorter),
        *(("CUDA device", line) for line in describe_devices()),
        ("BGZF on CUDA devices", _nvcomp()),
        ("compiled code", f"{CACHE_DIR} ({'present' if is_compiled() else 'empty'})"),
    ]


def index_facts(path: Path, *, check: bool) -> list[tuple[str, str]]:
    """Return the content of an index; with `check`, after comparing its checksums."""
    from mapper.index.storage import format_version, open_index, verify

    if check:
        verify(path)
    index = open_index(path)
    n = index.fm.n_rows - 1
    meta, contigs = index.meta, index.contigs
    return [
        ("index", str(path)),
        ("checked", "sizes and all checksums" if check else _SOME),
        ("format", f"{format_version(index)}, written by fmwave {meta.fmwave_version}"),
        ("reference", f"{meta.source_name}, {meta.source_bytes} bytes"),
        ("contigs", f"{len(contigs.names)}, {contigs.lengths.sum()} bases"),
        ("ALT contigs", str(len(contigs.alt_names))),
        ("groups of contigs", ", ".join(contigs.group_names) or "none"),
        ("masked", f"{meta.n_masked} bases"),
        ("Occ spacing (q)", str(meta.params.occ_spacing)),
        ("SA sampling (p)", str(meta.params.sa_sampling)),
        ("k-mer table (k)", str(index.fm.kmer_len or "none")),
        ("size", f"{_size(index.n_bytes)}, {index.n_bytes / n:.2f} bytes a base"),
        (
            "memory to map",
            f"{_size(index.n_bytes)} for the index, shared by the runs of a machine, plus batches",
        ),
    ]


def plan_facts(n: int, device: str) -> list[tuple[str, str]]:
    """Return the memory that index and map need for `n` bases, with default options.

    Raises
    ------
    UsageError, DeviceError
        If `device` is not the name of a device, or cannot be used.
    """
    from mapper.cuda.devices import CPU, choose_device
    from mapper.index.plan import LIBRARY, plan_blocks, plan_cpu, plan_device
    from mapper.index.storage import columns, index_bytes
    from mapper.mapping.memory_plan import mapping_bytes
    from mapper.params import BATCH_BASES, DEVICE_BATCH_BASES, DEVICE_STREAMS, IndexParams

    params = IndexParams()
    choice = choose_device(device)
    cores = len(os.sched_getaffinity(0))
    size_of_index = index_bytes(n, params)
    plan = plan_cpu(n, params, cores, None)
    if plan.route == LIBRARY:
        by_cpu = f"{_size(plan.host_bytes)} of memory"
    else:
        most = plan_blocks(n, params, cores, 1 << 62).host_bytes
        by_cpu = f"{_size(plan.host_bytes)} of memory at least, {_size(most)} for full speed"
    whole_run = mapping_bytes(size_of_index, cores, BATCH_BASES)
    by_threads = f"{_size(whole_run)} with {cores} threads, {_size(size_of_index)} of it for the "
    by_threads += "index, which runs share"
    facts = [
        ("plan for", f"{n} bases"),
        ("index", f"{_size(size_of_index)}, {size_of_index / n:.2f} bytes a base"),
        ("fmwave index, CPU", by_cpu),
    ]
    by_device = plan_device(n, params, None)
    on_device = f"{_size(by_device.device_bytes)} of device memory at least, "
    on_device += f"{_size(by_device.host_bytes)} of the host's"
    samples = columns(n, params)["sa_samples"]
    whole = (n + 1) * samples.dtype.itemsize
    mapping = f"{_size(size_of_index)} of device memory, and batches, made smaller until they "
    mapping += f"fit; the whole suffix array as well where {_size(size_of_index + 2 * whole)} "
    mapping += "are free"
    with_device = mapping_bytes(size_of_index, cores, DEVICE_BATCH_BASES, DEVICE_STREAMS)
    mapping += f"; {_size(with_device)} of the host's for one device and {cores} threads"
    if choice.backend != CPU:
        from mapper.cuda.api import device_context
        from mapper.cuda.memory import free_bytes

        with device_context(choice.ordinals[0]):
            free = free_bytes()
        for needed, text in ((by_device.device_bytes, "index"), (size_of_index, "map")):
            verdict = "fits" if needed <= free else "does not fit"
            facts.append(
                (f"fmwave {text}, device {choice.ordinals[0]}", f"{verdict} {_size(free)}")
            )
    return [
        *facts,
        ("fmwave index, CUDA", on_device),
        ("fmwave map, CPU", by_threads),
        ("fmwave map, CUDA", mapping),
    ]


def _nvcomp() -> str:
    from mapper.cuda import nvcomp

    found = nvcomp.load()
    return "by the host: nvCOMP is not installed" if found is None else f"nvCOMP {found.version}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.2f} MB"
