"""Measure how fast pieces of long reads are filled and extended with two-piece gaps, one thread.

    python -m benchmarks.studies.long_pieces

Reads: random sequence with errors, a third of each kind, cut at runs of 19 matches or more, which
anchors would cover; the pieces between are filled, and the time is divided by the bases of the
reads. Pieces: of one length each, filled and extended from their start. Gaps: flanks with 3 %
errors around a planted deletion. Prints tables in Markdown; results:
benchmarks/results/long_pieces.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from benchmarks.common.harness import markdown_provenance, provenance, table
from mapper.extend.two_piece import extend_piece, fill_piece, new_piece_space
from mapper.jit.accelerate import driver
from mapper.jit.lanes import ONE_LANE
from mapper.params import TwoPieceScoring

ANCHOR = 19
SCORING = TwoPieceScoring()
ROUNDS = 5


class Pieces(NamedTuple):
    """Pairs of pieces, end to end, as codes."""

    query: np.ndarray  # uint8
    query_offsets: np.ndarray  # int64
    ref: np.ndarray
    ref_offsets: np.ndarray


@driver
def fill_all(pieces, scoring, space, ops):
    """Fill all pieces; return how many are not proven, and the sum of scores."""
    unproven, total = 0, 0
    for i in range(len(pieces.query_offsets) - 1):
        status, _, score = fill_piece(
            pieces.query, pieces.query_offsets[i], pieces.query_offsets[i + 1], pieces.ref,
            pieces.ref_offsets[i], pieces.ref_offsets[i + 1], scoring, space, ops, ONE_LANE,
        )  # fmt: skip
        unproven += status != 0
        total += score
    return unproven, total


@driver
def extend_all(pieces, scoring, space, ops):
    """Extend all pieces from their start, with a z-drop; return as :func:`fill_all`."""
    unproven, total = 0, 0
    for i in range(len(pieces.query_offsets) - 1):
        status, _, score, _, _ = extend_piece(
            pieces.query, pieces.query_offsets[i], pieces.query_offsets[i + 1], pieces.ref,
            pieces.ref_offsets[i], pieces.ref_offsets[i + 1], False, 400, 10, scoring, space, ops,
            ONE_LANE,
        )  # fmt: skip
        unproven += status != 0
        total += score
    return unproven, total


def joined(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> Pieces:
    """Return pairs of pieces end to end."""
    columns = []
    for side in zip(*pairs, strict=True):
        offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in side])])
        columns += [np.concatenate(side), offsets.astype(np.int64)]
    return Pieces(*columns)


def with_errors(
    rng: np.random.Generator, ref: np.ndarray, rate: float
) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Return a read of a reference, and its runs of matches: starts in both, and length."""
    read: list[int] = []
    runs, start = [], (0, 0)
    kinds = np.where(rng.random(len(ref)) < rate, rng.integers(1, 4, len(ref)), 0)
    for at, (base, kind) in enumerate(zip(ref.tolist(), kinds.tolist(), strict=True)):
        if kind:
            runs.append((*start, at - start[1]))
        if kind == 1:
            read.append((base + int(rng.integers(1, 4))) % 4)
        elif kind == 2:
            read += [int(rng.integers(4)), base]
        elif kind == 0:
            read.append(base)
        if kind:
            # Behind an insertion the base itself is left out of the next run.
            start = (len(read), at + 1)
    runs.append((*start, len(ref) - start[1]))
    return np.array(read, np.uint8), runs


def between_anchors(rng: np.random.Generator, n: int, length: int, rate: float) -> Pieces:
    """Return what lies between the anchors of n reads."""
    pairs = []
    for _ in range(n):
        ref = rng.integers(0, 4, length).astype(np.uint8)
        read, runs = with_errors(rng, ref, rate)
        end = None
        for query, at, run in runs:
            if run < ANCHOR:
                continue
            if end is not None:
                pairs.append((read[end[0] : query], ref[end[1] : at]))
            end = (query + run, at + run)
    return joined(pairs)


def of_length(rng: np.random.Generator, n: int, length: int, rate: float) -> Pieces:
    """Return n pieces of one length."""
    refs = [rng.integers(0, 4, length).astype(np.uint8) for _ in range(n)]
    return joined([(with_errors(rng, ref, rate)[0], ref) for ref in refs])


def around_gap(rng: np.random.Generator, n: int, flank: int, gap: int) -> Pieces:
    """Return n pieces with a deletion between two flanks."""
    pairs = []
    for _ in range(n):
        left, inside, right = (
            rng.integers(0, 4, size).astype(np.uint8) for size in (flank, gap, flank)
        )
        query, _ = with_errors(rng, np.concatenate([left, right]), 0.03)
        pairs.append((query, np.concatenate([left, inside, right])))
    return joined(pairs)


def measured(run: Callable[..., tuple[int, int]], pieces: Pieces) -> tuple[float, int]:
    """Return the shortest of some times, in seconds, and how many results are not proven."""
    longest = max(
        int(np.diff(offsets).max()) for offsets in (pieces.query_offsets, pieces.ref_offsets)
    )
    space = new_piece_space(longest, longest, SCORING, 48 << 20)
    ops = np.empty(4 * longest + 8, np.uint32)
    times, unproven = [], 0
    for _ in range(ROUNDS + 1):  # the first one compiles
        start = time.perf_counter()
        unproven, _ = run(pieces, SCORING, space, ops)
        times.append(time.perf_counter() - start)
    return min(times[1:]), unproven


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rng = np.random.default_rng(1)
    about = provenance({"numpy": np.__version__})
    print(
        "\n".join(["# Pieces of long reads with two-piece gaps", "", *markdown_provenance(about)])
    )
    print("Time of one thread, the shortest of five.\n")
    rows: list[list[object]] = []
    for length, rate in ((15_000, 0.002), (15_000, 0.01), (15_000, 0.05), (15_000, 0.1)):
        pieces = between_anchors(rng, 40, length, rate)
        seconds, unproven = measured(fill_all, pieces)
        n = len(pieces.query_offsets) - 1
        mean = pieces.query_offsets[-1] / n
        nanoseconds = f"{seconds / (40 * length) * 1e9:.1f}"
        rows.append([f"{rate:.1%}", n, f"{mean:.1f}", nanoseconds, unproven])
    header = ["errors", "pieces", "bases a piece", "ns a base of the reads", "not proven"]
    print("\n".join(["## Between anchors", "", *table(header, rows), ""]))
    rows = []
    for length in (20, 50, 100, 200, 500, 1000, 20_000):
        for rate in (0.01, 0.05, 0.1, 0.2):
            n = max(10, 200_000 // length)
            pieces = of_length(rng, n, length, rate)
            row: list[object] = [length, f"{rate:.0%}", n]
            for run in (fill_all, extend_all):
                seconds, unproven = measured(run, pieces)
                row += [f"{seconds / pieces.query_offsets[-1] * 1e9:.0f}", unproven]
            rows.append(row)
    header = ["bases", "errors", "pieces", "filled, ns a base", "not proven"]
    header += ["extended, ns a base", "not proven"]
    print("\n".join(["## Pieces of one length", "", *table(header, rows), ""]))
    rows = []
    for gap in (50, 300, 600, 5000, 50_000):
        for flank in (50, 500):
            seconds, unproven = measured(fill_all, around_gap(rng, 40, flank, gap))
            rows.append([gap, flank, f"{seconds / 40 * 1e6:.0f}", unproven])
    header = ["deletion", "bases on each side", "µs a piece", "not proven, of 40"]
    print("\n".join(["## Around a deletion", "", *table(header, rows)]))


if __name__ == "__main__":
    main()
