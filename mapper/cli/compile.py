"""``fmwave compile``: compile all stages of ``fmwave map`` before its first run.

The stages are compiled by using them: a made-up reference is indexed, and made-up reads are mapped
from and to every kind of file.

As a module with arguments, this is the helper process of a first run: see ``HELPER_COMMAND``.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mapper.cli.sizes import thread_number
from mapper.errors import OutputError, ResourceError, UsageError
from mapper.parallel.pool import start_daemon

if TYPE_CHECKING:
    from mapper.cuda.devices import DeviceChoice

log = logging.getLogger(__name__)

HELPER_COMMAND = (sys.executable, "-P", "-m", "mapper.cli.compile")
"""Compiles the parts of the stages named behind it (:mod:`mapper.mapping.warm_up`), in a process
that ends when its standard input does, that is, with the process that started it."""

ALL = "all"
"""As levels of CPUs: those whose code this CPU can run."""

REFERENCE_LEN, REPEAT_LEN, READ_LEN, LONG_READ_LEN, N_PAIRS = 5000, 1000, 100, 2000, 4
N_NOISY, NOISY_LEN = 12, 1500
_COMPLEMENT = str.maketrans("ACGT", "TGCA")

EXAMPLES = """\
fmwave compile --device cpu
fmwave compile --cpu x86-64-v3,x86-64-v4
NUMBA_CACHE_DIR=/opt/fmwave fmwave compile"""
DOCUMENT = "docs/performance.md"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of ``fmwave compile``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "compile",
        help="compile the stages of map before its first run",
        description="Compile all stages of fmwave map for this machine, so that no run has to: for "
        "container images, cluster nodes and tests. The code is kept in the folder that "
        "NUMBA_CACHE_DIR names, or in the user's cache folder, and serves this version of fmwave "
        "on CPUs and GPUs of this kind.",
    )
    parser.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda[:0]",
        help="compile the kernels of this CUDA device too; auto: if there is one (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--cpu", metavar="all|LEVEL[,LEVEL...]",
        help="compile for these levels of CPUs instead of for this one, and keep the code in the "
        "folder of the installed package, where every user finds it: x86-64-v4, x86-64-v3, "
        "generic (any x86-64); all: those that this CPU can run. Runs take the highest level that "
        "their CPU has, unless there is code for that very CPU",
    )  # fmt: skip
    parser.add_argument(
        "--missing", action="store_true",
        help="compile only what runs would have to: nothing that came with the package",
    )  # fmt: skip
    parser.add_argument(
        "-t", "--threads", type=thread_number, default=len(os.sched_getaffinity(0)), metavar="N",
        help="processes that compile, three at most (default: all cores, %(default)s here)",
    )  # fmt: skip
    return parser


def run(args: argparse.Namespace) -> int:
    """Compile, and report the time and the folder."""
    if args.cpu is not None:
        return _compile_levels(args)
    if not args.missing:
        # Code for a level would be taken as if it were compiled for this CPU. Before numba is
        # imported; helper processes inherit it.
        os.environ["FMWAVE_PREBUILT"] = "0"
    from mapper.cuda.devices import CPU, DeviceChoice, choose_device
    from mapper.jit.accelerate import CACHE_DIR

    start = time.perf_counter()
    choice = choose_device(args.device)
    devices = [DeviceChoice(CPU)]
    if choice.backend != CPU:
        devices.append(choice._replace(ordinals=choice.ordinals[:1]))
    with TemporaryDirectory(prefix="fmwave-compile-") as folder, _without_info():
        compile_all(Path(folder), devices, args.threads)
    # With --missing there may be none.
    files = [path for path in CACHE_DIR.glob("*") if path.is_file()]
    log.info(
        "all stages of map are compiled (%s); %.1f s; %d files, %.1f MB in %s",
        "CPU" if len(devices) == 1 else "CPU and CUDA", time.perf_counter() - start,
        len(files), sum(path.stat().st_size for path in files) / 1e6, CACHE_DIR,
    )  # fmt: skip
    return 0


def _compile_levels(args: argparse.Namespace) -> int:
    """Compile for levels of CPUs, into the package's folder; each level in a process."""
    from mapper.jit.accelerate import code_name
    from mapper.jit.cache import is_driver
    from mapper.jit.prebuilt import HOME, LEVELS, host_levels, level_variables
    from mapper.parallel.map import map_in_threads
    from mapper.parallel.process import package_environment

    levels = host_levels() if args.cpu == ALL else list(dict.fromkeys(args.cpu.split(",")))
    for level in levels:
        if level not in LEVELS:
            raise UsageError(f"--cpu {level}: {', '.join(LEVELS)} are possible")
        if level not in host_levels():
            raise UsageError(f"--cpu {level}: this CPU lacks a feature of it, and could not run it")
    if args.missing:
        raise UsageError("--cpu compiles for levels; leave --missing out")
    if args.device not in ("auto", "cpu"):
        raise UsageError(f"--cpu compiles for CPUs; leave --device {args.device} out")
    start = time.perf_counter()
    target = HOME / code_name()

    def compile_level(level: str) -> tuple[int, int]:
        with TemporaryDirectory(prefix="fmwave-compile-") as folder:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "mapper.cli.main", "compile", "--device", "cpu",
                 "-t", "1", "--quiet"],
                env=package_environment() | level_variables(level) | {"NUMBA_CACHE_DIR": folder},
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise ResourceError(f"compiling for {level} failed: {done.stderr.strip()[-500:]}")
            return _replace_level(
                filter(is_driver, Path(folder, code_name()).iterdir()), target / level
            )

    try:
        sizes = map_in_threads(compile_level, levels, min(args.threads, len(levels)))
    except OSError as error:
        raise OutputError(
            f"{target} cannot be written: {error.strerror}; code of levels belongs to the "
            "installed package, so install fmwave where you may write, or compile as its owner"
        ) from error
    log.info(
        "all stages of map are compiled for %s; %.1f s; %d files, %.1f MB in %s",
        ", ".join(levels), time.perf_counter() - start, sum(n for n, _ in sizes),
        sum(size for _, size in sizes) / 1e6, target,
    )  # fmt: skip
    return 0


def _replace_level(files: Iterable[Path], target: Path) -> tuple[int, int]:
    """Copy files to a directory that takes the place of an older one; return number and bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    n = size = 0
    with TemporaryDirectory(prefix=".new-", dir=target.parent) as folder:
        new = Path(folder, target.name)
        new.mkdir()
        for path in files:
            size += Path(shutil.copyfile(path, new / path.name)).stat().st_size
            n += 1
        if target.exists():
            shutil.rmtree(target)
        new.rename(target)
    return n, size


def compile_all(folder: Path, devices: Sequence[DeviceChoice], threads: int) -> None:
    """Index and map made-up sequences with each reader and writer, and from Python.

    Files go to `folder`.
    """
    from mapper.api.aligner import Aligner
    from mapper.index.index import Index
    from mapper.mapping.job import MapJob
    from mapper.mapping.options import map_params
    from mapper.mapping.pipeline import map_reads
    from mapper.mapping.session import Session
    from mapper.sorting.merge import merge_parts
    from mapper.sorting.options import MarkOptions, SortOptions
    from mapper.sorting.output import SortedTarget

    fasta, first, second, single = (folder / name for name in ("r.fa", "1.fq", "2.fq", "s.fa"))
    _write_sequences(fasta, first, second, single)
    # Opened from files, as by every run: arrays in memory would have other types.
    Index.build(fasta, device="cpu", threads=threads).save(folder / "r.fmw")
    index = Index.open(folder / "r.fmw")
    runs: tuple[tuple[tuple[Path, ...], str, dict[str, Any]], ...] = (
        ((first, second), "pairs.bam", {"read_group": "@RG\tID:r\tSM:s"}),
        ((first, second), "sorted.bam", {"sort": SortOptions(None, MarkOptions())}),
        ((single,), "single.sam", {"keep_comments": True}),
        ((single,), "long.bam", {"params": map_params({"preset": "ont"})}),
        ((folder / "pairs.bam",), "pairs.paf", {}),
    )
    with Session(index, path=str(folder / "r.fmw")) as session:
        for device, (reads, output, options) in itertools.product(devices, runs):
            target = folder / output
            job = MapJob(
                [str(path) for path in reads], str(target), target.suffix[1:], threads=threads,
                device=device, compile_command=HELPER_COMMAND, **options,
            )  # fmt: skip
            map_reads(index, job, session)
    # What is sorted by a device does not fit in memory, and these reads do.
    for ordinal in {ordinal for device in devices for ordinal in device.ordinals}:
        from mapper.sorting.runs_cuda import compile_store

        compile_store(ordinal, folder)
    # With the least memory one of the parts goes through a temporary file, as of a large sample.
    parts = [str(folder / name) for name in ("pairs.bam", "long.bam")]
    target = SortedTarget(str(folder / "merged.bam"), "bam", "fmwave compile")
    merge_parts(parts, target, SortOptions(str(folder)), threads, memory=1)
    with Aligner(index, device="cpu", threads=1) as aligner:
        hits = aligner.map(["ACGT" * 30], ["TTGCA" * 30])
        hits.to_paf()
        for hit in hits:
            str(hit)


def _write_sequences(fasta: Path, first: Path, second: Path, single: Path) -> None:
    """Write a random reference, and pairs and reads from it."""
    rng = random.Random(1)
    text = "".join(rng.choices("ACGT", k=REFERENCE_LEN))
    # Repeats take a sort of their own. No read comes from there.
    fasta.write_text(f">r\n{text}{text[-REPEAT_LEN:]}\n")
    with first.open("w") as of_first, second.open("w") as of_second, single.open("w") as reads:
        for i in range(N_PAIRS):
            start = 500 + 1000 * i
            forward = text[start : start + READ_LEN]
            reverse = text[start + 200 : start + 200 + READ_LEN][::-1].translate(_COMPLEMENT)
            if i == 0:  # for rescue: without a seed
                reverse = "".join(
                    base if j % 7 else base.translate(_COMPLEMENT) for j, base in enumerate(reverse)
                )
            of_first.write(f"@{i}\n{forward}\n+\n{'I' * READ_LEN}\n")
            of_second.write(f"@{i}\n{reverse}\n+\n{'I' * READ_LEN}\n")
            reads.write(f">{i} XX:i:1\n{forward}\n")
        reads.write(f">long\n{text[:LONG_READ_LEN]}\n")
        # Between seeds and at the ends there is something to align, little and much.
        reads.write(f">gaps\n{text[:800]}{text[1900:3000]}{text[4000:3500:-1]}{text[3000:4000]}\n")
        for i in range(N_NOISY):
            start = 300 * i
            reads.write(f">noisy{i}\n{_with_errors(rng, text[start : start + NOISY_LEN])}\n")


def _with_errors(rng: random.Random, text: str) -> str:
    """Return a copy with substitutions, insertions and deletions at every twentieth base."""
    edits: tuple[Callable[[str], str], ...] = (
        lambda base: base.translate(_COMPLEMENT), lambda base: 2 * base, lambda base: "",
    )  # fmt: skip
    return "".join(rng.choice(edits)(base) if rng.random() < 0.05 else base for base in text)


@contextmanager
def _without_info() -> Iterator[None]:
    """Keep back the messages of the runs that serve to compile; not with ``--debug``."""
    package = logging.getLogger("mapper")
    level = package.level
    if level == logging.INFO:
        package.setLevel(logging.WARNING)
    try:
        yield
    finally:
        package.setLevel(level)


# --- the helper process of a first run ---


def help_compiling(parts: Sequence[str]) -> None:
    """Compile parts of the stages; end the process when its standard input ends."""
    start_daemon(_end_with_parent)
    from mapper.cli.main import set_up_process

    set_up_process()
    from mapper.mapping.warm_up import compile_part

    for part in parts:
        compile_part(part)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    help_compiling(sys.argv[1:])
