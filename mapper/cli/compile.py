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
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mapper.cli.sizes import thread_number
from mapper.parallel.pool import start_daemon

if TYPE_CHECKING:
    from mapper.cuda.devices import DeviceChoice

log = logging.getLogger(__name__)

HELPER_COMMAND = (sys.executable, "-P", "-m", "mapper.cli.compile")
"""Compiles the parts of the stages named behind it (:mod:`mapper.mapping.warm_up`), in a process
that ends when its standard input does, that is, with the process that started it."""

REFERENCE_LEN, READ_LEN, LONG_READ_LEN, N_PAIRS = 5000, 100, 2000, 4
_COMPLEMENT = str.maketrans("ACGT", "TGCA")

EXAMPLES = """\
fmwave compile --device cpu
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
        "-t", "--threads", type=thread_number, default=len(os.sched_getaffinity(0)), metavar="N",
        help="processes that compile, three at most (default: all cores, %(default)s here)",
    )  # fmt: skip
    return parser


def run(args: argparse.Namespace) -> int:
    """Compile, and report the time and the folder."""
    from mapper.cuda.devices import CPU, DeviceChoice, choose_device
    from mapper.jit.accelerate import CACHE_DIR

    start = time.perf_counter()
    choice = choose_device(args.device)
    devices = [DeviceChoice(CPU)]
    if choice.backend != CPU:
        devices.append(choice._replace(ordinals=choice.ordinals[:1]))
    with TemporaryDirectory(prefix="fmwave-compile-") as folder, _without_info():
        compile_all(Path(folder), devices, args.threads)
    files = [path for path in CACHE_DIR.iterdir() if path.is_file()]
    log.info(
        "all stages of map are compiled (%s); %.1f s; %d files, %.1f MB in %s",
        "CPU" if len(devices) == 1 else "CPU and CUDA", time.perf_counter() - start,
        len(files), sum(path.stat().st_size for path in files) / 1e6, CACHE_DIR,
    )  # fmt: skip
    return 0


def compile_all(folder: Path, devices: Sequence[DeviceChoice], threads: int) -> None:
    """Index and map made-up sequences with each reader and writer; files go to `folder`."""
    from mapper.index.index import Index
    from mapper.mapping.job import MapJob
    from mapper.mapping.pipeline import map_reads
    from mapper.mapping.session import Session
    from mapper.sorting.options import MarkOptions, SortOptions

    fasta, first, second, single = (folder / name for name in ("r.fa", "1.fq", "2.fq", "s.fa"))
    _write_sequences(fasta, first, second, single)
    # Opened from files, as by every run: arrays in memory would have other types.
    Index.build(fasta, device="cpu", threads=threads).save(folder / "r.fmw")
    index = Index.open(folder / "r.fmw")
    runs: tuple[tuple[tuple[Path, ...], str, dict[str, Any]], ...] = (
        ((first, second), "pairs.bam", {"read_group": "@RG\tID:r\tSM:s"}),
        ((first, second), "sorted.bam", {"sort": SortOptions(None, MarkOptions())}),
        ((single,), "single.sam", {"keep_comments": True}),
        ((folder / "pairs.bam",), "pairs.paf", {}),
    )
    with Session(index) as session:
        for device, (reads, output, options) in itertools.product(devices, runs):
            target = folder / output
            job = MapJob(
                [str(path) for path in reads], str(target), target.suffix[1:], threads=threads,
                device=device, compile_command=HELPER_COMMAND, **options,
            )  # fmt: skip
            map_reads(index, job, session)


def _write_sequences(fasta: Path, first: Path, second: Path, single: Path) -> None:
    """Write a random reference, and pairs and reads from it."""
    rng = random.Random(1)
    text = "".join(rng.choices("ACGT", k=REFERENCE_LEN))
    fasta.write_text(f">r\n{text}\n")
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
