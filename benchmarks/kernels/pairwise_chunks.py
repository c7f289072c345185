"""Chunks, stores and threads of pairwise alignment on a CUDA device, beside each other in one run.

    python -m benchmarks.kernels.pairwise_chunks [--rows 150:2,1000:2] [--repeats 9]

Edit distance with CIGAR, wall from host to host, from ASCII and from packed pairs in ordinary
memory. Rounds go through all variants in turn, so that what else the machine does hits all; medians
of the rounds after two others. Variants: chunks of full size of a batch; staged words stored past
the caches or through them; threads. The first is what ``mapper`` does.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple
from unittest import mock

from benchmarks.kernels.pairwise_cuda import BASES, rows_of
from benchmarks.kernels.pairwise_rows import check, inputs_of, repeated, row_of

WARM_UPS = 2


class Variant(NamedTuple):
    """How a batch is staged."""

    chunks: int
    streamed: bool
    threads: int

    def __str__(self) -> str:
        stores = "past" if self.streamed else "through"
        return f"{self.chunks} chunks, stores {stores} the caches, {self.threads} threads"


def variants_of(chunks: int, threads: int) -> list[Variant]:
    """Return what is done, and what could be."""
    found = [Variant(chunks, streamed, threads) for streamed in (True, False)]
    for other in (8, 32, 64):
        found += [Variant(other, streamed, threads) for streamed in (True, False)]
    fewer = {max(1, threads * share // 4) for share in (2, 3)} | {max(1, threads - 1), threads + 1}
    return found + [Variant(chunks, True, other) for other in sorted(fewer - {threads})]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=rows_of, default=[(150, 2), (1000, 2)], help="[150:2,1000:2]"
    )
    parser.add_argument("--pairs", type=int, default=3_000_000, help="of 150 [%(default)s]")
    parser.add_argument("--repeats", type=int, default=9, help="[%(default)s]")
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]")
    options = parser.parse_args(arguments)
    from mapper import edit_distance
    from mapper.align.cuda import sources, stream

    variants = variants_of(stream.CHUNKS_A_DEVICE, len(os.sched_getaffinity(0)))
    streamable = sources.is_streamable
    for length, percent in options.rows:
        row = row_of(length, percent, options.pairs)
        copies = max(1, min(options.pairs * 150, BASES) // (length * len(row.pairs)))
        n_pairs = copies * len(row.pairs)
        expected = edit_distance(row.queries, row.refs, cigar=True, device="cpu")
        inputs = inputs_of(
            repeated(row.queries, copies), repeated(row.refs, copies), options.device
        )
        for what in ("ASCII", "packed"):
            seconds: dict[Variant, list[float]] = {variant: [] for variant in variants}
            for turn in range(options.repeats + WARM_UPS):
                for variant in variants:
                    is_streamed = streamable if variant.streamed else lambda array: False
                    with (
                        mock.patch.object(stream, "CHUNKS_A_DEVICE", variant.chunks),
                        mock.patch.object(stream, "FEWEST_PAIRS", 1 << 12),
                        mock.patch.object(sources, "is_streamable", is_streamed),
                    ):
                        begin = time.perf_counter()
                        found = edit_distance(
                            *inputs[what], cigar=True, device=options.device,
                            threads=variant.threads,
                        )  # fmt: skip
                        seconds[variant].append(time.perf_counter() - begin)
                    if turn == 0:
                        check(expected, found, copies)
                    del found
            for variant, taken in seconds.items():
                rates = [n_pairs / 1e6 / s for s in taken[WARM_UPS:]]
                print(
                    f"{length} bp, {percent} %, {what}, {variant}: {median(rates):.1f} M pairs/s "
                    f"({min(rates):.1f} to {max(rates):.1f})",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
