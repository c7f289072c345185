"""Index a large repeat-rich text, time the stages, and check the index against the text.

    python -m benchmarks.kernels.index_at_scale 3.1G --device cuda [--check 8] [--against blocks]

The check walks from every CHECK-th sample of the suffix array to the left until the next
sampled row, comparing each base of the BWT with the text and the position at the end with the
sample there: with ``--check 1`` that is the whole inverse BWT. Random k-mers and longer
patterns are searched and located as well.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.genome import make_text, write_fasta
from mapper.cli.sizes import size
from mapper.host_memory import available_bytes, peak_bytes
from mapper.index.build import build_fm
from mapper.index.fm import FMIndex, bwt_code, extend_left, kmer_interval, lf, locate
from mapper.index.plan import BuildPlan, choose_route, plan_blocks
from mapper.jit.accelerate import driver
from mapper.parallel.map import map_in_threads, parts
from mapper.params import IndexParams


@driver
def walk_samples(fm, text, first, end, step):
    """Check the walks from samples ``[first, end)``; return rows walked and faults."""
    rows = 0
    faults = 0
    sampled = (1 << fm.sa_shift) - 1
    for sample in range(first, end, step):
        row = sample << fm.sa_shift
        text_pos = np.int64(fm.sa_samples[sample])
        while row != fm.primary:
            text_pos -= 1
            if bwt_code(fm, row) != np.int64(text[text_pos]):
                faults += 1
            row = lf(fm, row)
            rows += 1
            if row & sampled == 0:
                if np.int64(fm.sa_samples[row >> fm.sa_shift]) != text_pos:
                    faults += 1
                break
        if row == fm.primary and text_pos != 0:
            faults += 1
    return rows, faults


@driver
def search_patterns(fm, text, starts, length):
    """Search and locate the patterns at `starts`; return hits and faults."""
    hits = 0
    faults = 0
    for start in starts:
        at = start + length - fm.kmer_len
        kmer = 0
        for i in range(at, start + length):
            kmer = kmer << 2 | np.int64(text[i])
        sa_lo, sa_hi = kmer_interval(fm, kmer)
        if fm.kmer_len == 0:
            sa_lo, sa_hi = 0, fm.n_rows
        for i in range(at - 1, start - 1, -1):
            sa_lo, sa_hi = extend_left(fm, np.int64(text[i]), sa_lo, sa_hi)
        found = False
        for row in range(sa_lo, min(sa_hi, sa_lo + 1000)):
            text_pos = locate(fm, row)
            hits += 1
            found |= text_pos == start
            for i in range(length):
                if text_pos + i >= len(text) or text[text_pos + i] != text[start + i]:
                    faults += 1
                    break
        if not found and sa_hi - sa_lo <= 1000:
            faults += 1
    return hits, faults


def check(fm: FMIndex, text: np.ndarray, step: int, n_threads: int) -> None:
    """Compare the index with the text (ambiguous bases replaced); stop at a difference."""
    clock = time.perf_counter()
    pieces = parts(len(fm.sa_samples) // step, 64)
    walked = map_in_threads(
        lambda part: walk_samples(fm, text, part[0] * step, part[1] * step, step),
        pieces,
        n_threads,
    )
    rows, faults = (sum(column) for column in zip(*walked, strict=True))
    print(f"inverse BWT: {rows} of {len(text)} rows, {faults} faults", flush=True)
    starts = np.random.default_rng(1).integers(0, len(text) - 200, 200_000)
    searched = map_in_threads(
        lambda part: search_patterns(fm, text, starts[part[0] : part[1]], 20 + part[0] % 100),
        parts(len(starts), 256),
        n_threads,
    )
    hits, pattern_faults = (sum(column) for column in zip(*searched, strict=True))
    print(f"patterns: {len(starts)}, {hits} hits, {pattern_faults} faults")
    print(f"checked in {time.perf_counter() - clock:.1f} s", flush=True)
    if faults or pattern_faults:
        sys.exit("the index is wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("size", type=size)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--memory", type=size, help="of the host")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", type=int, default=1, help="every how many samples")
    parser.add_argument("--times", type=int, default=1, help="builds")
    parser.add_argument("--against", choices=("library", "blocks"), help="compare all arrays")
    parser.add_argument("--fasta", type=Path, help="write the text here, and stop")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    clock = time.perf_counter()
    text = make_text(args.size, args.seed, args.threads)
    print(f"text of {len(text)} bases: {time.perf_counter() - clock:.1f} s", flush=True)
    if args.fasta:
        write_fasta(text, args.fasta, args.threads)
        return
    params = IndexParams()
    for _ in range(args.times):
        plan = choose_route(
            "the benchmark", len(text), params, args.device, args.memory, args.threads, check=True
        )
        indexed = text.copy()  # ambiguous bases are replaced in it
        clock = time.perf_counter()
        fm = build_fm(indexed, params, plan, args.threads)
        seconds = time.perf_counter() - clock
        print(
            f"built in {seconds:.1f} s, {len(text) / seconds / 1e6:.1f} Mbp/s, by {plan.route}; "
            f"peak of the process {peak_bytes() / 1e9:.2f} GB, planned {plan.host_bytes / 1e9:.2f}",
            flush=True,
        )
    check(fm, indexed, args.check, args.threads)
    if args.against:
        clock = time.perf_counter()
        other_plan = BuildPlan("library")
        if args.against == "blocks":
            other_plan = plan_blocks(len(text), params, args.threads, available_bytes())
        other = build_fm(text, params, other_plan, args.threads)
        print(f"by the {args.against} route: {time.perf_counter() - clock:.1f} s")
        for name, column in fm._asdict().items():
            if not np.array_equal(column, getattr(other, name)):
                sys.exit(f"{name} differs from the other route's")
        print("all arrays are identical")


if __name__ == "__main__":
    main()
