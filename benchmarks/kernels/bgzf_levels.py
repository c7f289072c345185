"""What each level of BGZF compression costs and gives, one thread, on the records of a BAM file.

    python -m benchmarks.kernels.bgzf_levels FILE.bam [FILE.bam ...]

By CPU time, best of the rounds. Levels 0 to 3 are ISA-L's, 4 to 9 zlib's; `htslib` is what pysam
writes at its level 1 and at its default, 6. With `--libdeflate` (and the package `deflate`, which
fmwave does not need) also some levels of libdeflate, and what inflating costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pysam
from isal import igzip, isal_zlib

from benchmarks import harness
from mapper.io.bgzf import BLOCK_BYTES, MAX_LEVEL, Compress, compressor

N_BLOCKS = 400


def plain_start(path: Path, n_bytes: int) -> memoryview:
    """Return the first plain bytes of a BAM file."""
    with igzip.open(path, "rb") as file:
        return memoryview(file.read(n_bytes))


def best_of(rounds: int, call: Callable[[], int]) -> tuple[float, int]:
    """Return the least CPU time of some calls, and the size that they give."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        size = call()
        times.append(time.thread_time() - start)
    return min(times), size


def size_by(compress: Compress, data: memoryview) -> int:
    return len(compress([data]))


def libdeflate_calls(data: memoryview) -> dict[str, Callable[[], int]]:
    """Return what libdeflate does: its levels, and inflating blocks of level 1 beside ISA-L."""
    import deflate

    blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    packed = [isal_zlib.compress(block, 1, -15) for block in blocks]

    def pack(level: int) -> int:
        return sum(len(deflate.deflate_compress(block, level)) for block in blocks)

    def unpack() -> int:
        for block, plain in zip(packed, blocks, strict=True):
            deflate.deflate_decompress(block, len(plain))
        return sum(map(len, packed))

    def unpack_by_isa_l() -> int:
        for block, plain in zip(packed, blocks, strict=True):
            isal_zlib.decompress(block, -15, len(plain))
        return sum(map(len, packed))

    levels = {f"libdeflate {level}": partial(pack, level) for level in (1, 2, 4, 6)}
    return {**levels, "inflate, libdeflate": unpack, "inflate, ISA-L": unpack_by_isa_l}


def by_htslib(data: memoryview, level: int, path: Path) -> int:
    mode: Any = f"wb{level}"  # pysam's types know modes without a level only
    with pysam.BGZFile(str(path), mode, None) as file:
        file.write(bytes(data))
    return path.stat().st_size


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("bam", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libdeflate", action="store_true")
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()
    scratch = harness.DATA / "levels.gz"
    scratch.parent.mkdir(parents=True, exist_ok=True)
    rows, report = [], {}
    for path in arguments.bam:
        data = plain_start(path, N_BLOCKS * BLOCK_BYTES)
        calls: dict[str, Callable[[], int]] = {}
        for level in range(MAX_LEVEL + 1):
            compress = compressor(level)
            compress([data[:BLOCK_BYTES]])  # compiled now
            calls[str(level)] = partial(size_by, compress, data)
        if arguments.libdeflate:
            calls.update(libdeflate_calls(data))
        for level in (1, 6):
            calls[f"htslib {level}"] = partial(by_htslib, data, level, scratch)
        for name, call in calls.items():
            seconds, size = best_of(arguments.rounds, call)
            speed, ratio = len(data) / seconds / 1e6, len(data) / size
            rows.append([path.name, name, f"{speed:.0f}", f"{ratio:.2f}"])
            report[f"{path.name}, {name}"] = {"cpu_s": seconds, "plain": len(data), "packed": size}
    scratch.unlink(missing_ok=True)
    versions = {name: __import__(name).__version__ for name in ("isal", "pysam")}
    about = harness.provenance(versions)
    lines = [
        "# Levels of BGZF compression", "", *harness.markdown_provenance(about),
        f"The first {N_BLOCKS} blocks of {BLOCK_BYTES} bytes of each file, one thread, CPU time, "
        f"best of {arguments.rounds}.", "",
        *harness.table(["file", "level", "MB/s", "ratio"], rows),
    ]  # fmt: skip
    print("\n".join(lines))
    harness.write_results(arguments.results, "bgzf_levels", {"about": about, "runs": report}, lines)


if __name__ == "__main__":
    main()
