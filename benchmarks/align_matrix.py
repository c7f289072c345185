"""Measure the cells a second of all-against-all matrix alignment on CUDA devices.

    python -m benchmarks.align_matrix [--sequences 1000] [--devices cuda:0] [--repeats 3]
        [--tasks protein DNA] [--results-of score path] [--kernels]

The set: sequences of 100 to 1 000 letters, evenly spread, seeded; in tens of a random ancestor
and nine copies with a tenth of their letters edited. Each pair of the set once (n (n - 1) / 2).
*wall* is from ASCII in host memory to the last window of results in host memory, CIGARs included
where there are any: encoding, planning, transfers, kernels. Cells are those of the matrices (n
times m), each counted once. Compilation and the first call are excluded; the best and the median
of the repeats are given. Before, a part of the set is compared with the CPU in full.
``--devices cuda:0 cuda:0,1 cuda:0,1,2,3`` measures one device, two and four, and says how many
times as fast the later ones are. ``--kernels`` adds the seconds of each kernel, launched by one
worker and waited for one after the other, and the rest of that worker's time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.common.harness import (
    RESULTS,
    BenchmarkError,
    add_commit,
    machine,
    markdown_provenance,
    table,
    write_results,
)

PROTEIN = "ARNDCQEGHILKMFPSTWYV"
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "protein, BLOSUM62, 10 + n": (PROTEIN, {"matrix": "BLOSUM62", "gaps": (10, 1)}),
    "DNA, 2/-3, 5 + 2 n": ("ACGT", {"matrix": (2, -3), "gaps": (5, 2)}),
}


def make_set(n: int, alphabet: str, seed: int = 7) -> list[str]:
    """Return n sequences: families of ten, of lengths 100 to 1000."""
    rng = np.random.default_rng(seed)
    letters = np.array(list(alphabet))
    lengths = rng.permutation(np.linspace(100, 1000, (n + 9) // 10).astype(int))
    sequences = []
    for length in lengths:
        ancestor = rng.choice(letters, length)
        sequences.append("".join(ancestor))
        for _ in range(9):
            copy = ancestor.copy()
            changed = rng.random(length) < 0.07
            copy[changed] = rng.choice(letters, int(changed.sum()))
            kept = rng.random(length) >= 0.03
            sequences.append("".join(copy[kept]))
    return sequences[:n]


MIX = (
    "Sequences of 100 to 1 000 letters, evenly spread, in tens of a random ancestor and nine "
    "copies with a tenth of their letters edited; each pair once. TCUPS: 10^12 cells of the "
    "matrices a second, from ASCII to results on the host."
)


def check(sequences: list[str], device: str, **options: Any) -> None:
    """Raise if the CPU and the device do not agree on a small set, in anything."""
    from mapper import align_all

    cpu = [part.found for part in align_all(sequences, device="cpu", **options)]
    cuda = [part.found for part in align_all(sequences, device=device, **options)]
    for name in cpu[0]._fields:
        if name == "cigar_offsets" or getattr(cpu[0], name) is None:
            continue
        a, b = (np.concatenate([getattr(part, name) for part in parts]) for parts in (cpu, cuda))
        if len(a) != len(b) or (a != b).any():
            raise BenchmarkError(f"CPU and CUDA disagree in {name}: {options}")


def seconds(sequences: list[str], device: str, **options: Any) -> tuple[float, int]:
    """Return the seconds of all pairs, and the sum of the scores."""
    from mapper import align_all

    begin = time.perf_counter()
    total = sum(
        int(part.found.score.sum()) for part in align_all(sequences, device=device, **options)
    )
    return time.perf_counter() - begin, total


def kernel_seconds(sequences: list[str], device: str, **options: Any) -> dict[str, float]:
    """Return the seconds of each kernel, and of everything else, with one worker."""
    from mapper.align.matrix import cuda_engine
    from mapper.cuda.api import Kernel

    spent: defaultdict[str, float] = defaultdict(float)
    launch = Kernel.launch_blocks

    def timed(kernel: Kernel, n_blocks: int, stream: Any, *args: Any, **more: Any) -> None:
        stream.synchronize()
        begin = time.perf_counter()
        launch(kernel, n_blocks, stream, *args, **more)
        stream.synchronize()
        name = "/".join([kernel.function.__module__.rpartition(".")[2], kernel.function.__name__])
        spent[name] += time.perf_counter() - begin

    with (
        mock.patch.object(Kernel, "launch_blocks", timed),
        mock.patch.object(cuda_engine, "workers_a_device", lambda _cigar: 1),
    ):
        wall, _ = seconds(sequences, device, **options)
    return {**spent, "the rest": wall - sum(spent.values())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sequences", type=int, default=1000, help="[%(default)s]")
    parser.add_argument("--checked", type=int, default=60, help="of them on the CPU [%(default)s]")
    parser.add_argument("--tasks", nargs="+", default=["protein", "DNA"], help="[all]")
    parser.add_argument("--results-of", nargs="+", default=["score", "path"], help="[both]")
    parser.add_argument("--spans", nargs="+", default=["global", "semiglobal", "local"],
                        help="[all]")  # fmt: skip
    parser.add_argument("--kernels", action="store_true", help="time each kernel, too")
    parser.add_argument("--devices", nargs="+", default=["cuda:0"], help="[%(default)s]")
    parser.add_argument("--repeats", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder [%(default)s]")
    parser.add_argument("--stem", default="align_matrix", help="of the results [%(default)s]")
    add_commit(parser)
    options = parser.parse_args(arguments)
    from mapper.cuda.devices import find_devices

    found = find_devices()
    if found.problem:
        print(f"error: {found.problem}", file=sys.stderr)
        return 1
    about = {
        "commit": options.commit, "machine": machine(),
        "versions": {"device": str(found.devices[0].name)},
        "command": " ".join(["python -m benchmarks.align_matrix", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }  # fmt: skip
    rows, report = [], []
    for task, (alphabet, scoring) in TASKS.items():
        if task.split(",")[0] not in options.tasks:
            continue
        sequences = make_set(options.sequences, alphabet)
        lengths = np.array([len(s) for s in sequences])
        cells = int((lengths.sum() ** 2 - (lengths**2).sum()) // 2)
        for cigar in (False, True):
            if ("path" if cigar else "score") not in options.results_of:
                continue
            for span in options.spans:
                how = {**scoring, "span": span, "cigar": cigar}
                check(
                    sequences[:: -(-len(sequences) // options.checked)], options.devices[0], **how
                )
                first = 0.0
                for device in options.devices:
                    seconds(sequences, device, **how)
                    runs = [seconds(sequences, device, **how) for _ in range(options.repeats)]
                    taken = [run[0] for run in runs]
                    rates = [cells / s / 1e12 for s in (min(taken), median(taken))]
                    first = first or median(taken)
                    rows.append([task, span, "score + CIGAR" if cigar else "score", device,
                                 f"{cells / 1e9:.1f}", f"{median(taken):.4f}",
                                 *(f"{rate:.2f}" for rate in rates),
                                 f"{first / median(taken):.2f}"])  # fmt: skip
                    report.append({"task": task, "span": span, "cigar": cigar, "device": device,
                                   "cells": cells, "s": taken, "scores": runs[0][1]})  # fmt: skip
                    print(*rows[-1], sep="  ", flush=True)
                if options.kernels:
                    parts = kernel_seconds(sequences, options.devices[0], **how)
                    report[-1]["kernels"] = parts
                    print(*(f"    {name} {s:.4f} s" for name, s in parts.items()), flush=True)
    header = ["set", "span", "result", "devices", "G cells", "wall, s (median)", "TCUPS, best",
              "TCUPS, median", "times the first"]  # fmt: skip
    lines = ["# Matrix alignment on CUDA, all with all", "", MIX, "", *markdown_provenance(about),
             *table(header, rows)]  # fmt: skip
    write_results(options.results, options.stem, {"about": about, "runs": report}, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
