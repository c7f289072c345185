"""Kernel by kernel: edit distance with CIGAR on a CUDA device, with and without bit vectors.

    python -m benchmarks.kernels.edit_kernels [--rows 150:5,1000:5] [--variants now,64,groups]

Times by events, in one stream (``kernel_time.py``). Each row's results are checked against the
CPU's. Variants: ``now``, what ``mapper`` does; ``64``, words of 64 bits alone; ``groups``, groups
of lanes and blocks in place of bit vectors; ``vectors``, bit vectors without the small kernel
before them; ``two``, ``three``, ``eight``, these with so many blocks of a multiprocessor.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.kernels.kernel_time import KernelTimes, kernel_times
from benchmarks.kernels.pairwise_cuda import BASES, rows_of
from benchmarks.kernels.pairwise_rows import check, inputs_of, repeated, row_of
from mapper.align.cuda.kernel_chain import KernelChain, chain_for
from mapper.cuda.memory import Workspace


def never_small(space: Workspace, n_kernels: int, most_pairs: int) -> KernelChain:
    """Return chain of which the small kernel is idle."""
    idle = np.array([1 << 30] + [0] * (n_kernels - 1), np.int32)
    chain = chain_for(space, n_kernels, most_pairs)
    return chain._replace(idle=space.upload(f"idle of {n_kernels} but the small", idle))


VARIANTS: dict[str, dict[str, Any]] = {
    "now": {},
    "64": {"edit.cuda_plan.VECTOR_WIDTHS": (64,)},
    "groups": {"edit.cuda_plan.VECTOR_COLUMNS": ()},
    "vectors": {"edit.cuda_plan.chain_for": never_small},
    "two": {"edit.cuda_kernels._BLOCKS": 2},
    "three": {"edit.cuda_kernels._BLOCKS": 3},
    "eight": {"edit.cuda_kernels._BLOCKS": 8},
}


@contextmanager
def patched(variant: str) -> Iterator[None]:
    """Do as a variant says, in work space of its own."""
    with ExitStack() as stack:
        for name, value in {"cuda.retry._SPACES": {}, **VARIANTS[variant]}.items():
            stack.enter_context(mock.patch(f"mapper.align.{name}", value))
        yield


def milliseconds_of(times: KernelTimes) -> dict[str, float]:
    """Return those of each kernel; where a chunk takes several launches of one, with a number."""
    found: defaultdict[str, float] = defaultdict(float)
    seen: defaultdict[str, int] = defaultdict(int)
    for name, seconds in times.launches():
        if name == "small_edit_kernel":  # the first of a chunk that takes time
            seen.clear()
        seen[name] += 1
        number = f" {seen[name]}" if seen[name] > 1 else ""
        found[name.removesuffix("_kernel") + number] += 1000 * seconds
    return dict(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=rows_of, default=[(150, 5), (1000, 5)])
    parser.add_argument("--variants", default=",".join(VARIANTS), help="[%(default)s]")
    parser.add_argument("--pairs", type=int, default=3_000_000, help="of 150 [%(default)s]")
    parser.add_argument("--repeats", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]")
    options = parser.parse_args(arguments)
    from mapper import edit_distance

    for length, percent in options.rows:
        row = row_of(length, percent, options.pairs)
        copies = max(1, min(options.pairs * 150, BASES) // (length * len(row.pairs)))
        n_pairs = copies * len(row.pairs)
        expected = edit_distance(row.queries, row.refs, cigar=True, device="cpu")
        sides = repeated(row.queries, copies), repeated(row.refs, copies)
        given = inputs_of(*sides, options.device)["page-locked"]
        for variant in options.variants.split(","):
            rounds = []
            with patched(variant):
                for turn in range(options.repeats + 1):
                    with kernel_times() as times:
                        found = edit_distance(*given, cigar=True, device=options.device)
                    if turn == 0:
                        check(expected, found, copies)
                    else:
                        rounds.append(milliseconds_of(times))
                    del found
            parts = {name: median(part[name] for part in rounds) for name in rounds[0]}
            rate = n_pairs / 1e3 / median(sum(part.values()) for part in rounds)
            print(
                f"{length} bp, {percent} %, {variant}: {rate:.1f} M pairs/s, ms of {n_pairs}:",
                ", ".join(f"{name} {part:.2f}" for name, part in parts.items()),
                f"; {times.pairs_on_cpu} on the CPU", flush=True,
            )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
