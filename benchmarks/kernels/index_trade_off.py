"""What Occ spacing q and suffix array sampling p cost and bring on a GPU: memory against rate.

    python -m benchmarks.kernels.index_trade_off REF.fa OUT_STEM [--commit C] [--repeats 5]

Needs a GPU and CuPy. One index with q = 64 and the whole suffix array is built on the device
and thinned out there for every other pair of q and p.
Measured with each: search and locate of exact 20-mers, both strands, with k-mers and hits in
device memory, and the seeding of 150 bp reads as `fmwave map` does it (reads in device
memory). Medians of the repeats. The hits are the same for all, and checked to be.
Writes OUT_STEM.json and OUT_STEM.md; `--plot OUT.svg` with the .json file of an earlier run as
REF draws it (needs matplotlib).
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness

Q = (64, 128, 256, 512)
P = (1, 2, 4, 8, 16, 32, 64)
N_READS, READ_LEN = 200_000, 150
TABLE = 12
"""Bases of the k-mer table, which is the same for all."""


def thinned(fm: Any, occ_spacing: int, sa_sampling: int) -> Any:
    """Return the device index (q = 64, p = 1) with another spacing and sampling."""
    import cupy as cp

    from mapper.device.seam import cuda

    def held(array: Any) -> Any:
        kept = cuda.device_array(array.shape, array.dtype)
        cp.asarray(kept)[...] = array
        return kept

    blocks, group = cp.asarray(fm.blocks), occ_spacing // 64
    n_blocks = -(-len(blocks) // group)
    wide = cp.zeros((n_blocks, 2 + 2 * group), cp.uint64)
    wide[:, :2] = blocks[::group, :2]
    for i in range(group):
        words = blocks[i::group, 2:4]
        wide[: len(words), 2 + 2 * i : 4 + 2 * i] = words
    return fm._replace(
        blocks=held(wide),
        sa_samples=held(cp.asarray(fm.sa_samples)[::sa_sampling]),
        occ_shift=occ_spacing.bit_length() - 1,
        sa_shift=sa_sampling.bit_length() - 1,
    )


def simulated_reads(text: np.ndarray) -> Any:
    """Return reads of the text from both strands with 1 % substitutions."""
    from mapper.batch import ReadBatch

    rng = np.random.default_rng(7)
    starts = rng.integers(0, len(text) - READ_LEN, N_READS)
    codes = text[starts[:, None] + np.arange(READ_LEN)]
    changed = rng.random(codes.shape) < 0.01
    codes[changed] = (codes[changed] + rng.integers(1, 4, int(changed.sum()))) % 4
    codes[::2] = 3 - codes[::2, ::-1]
    offsets = np.arange(N_READS + 1, dtype=np.int64)
    return ReadBatch(
        bases=codes.ravel(), quals=np.full(codes.size, 30, np.uint8),
        base_offsets=READ_LEN * offsets, names=np.full(N_READS, 65, np.uint8),
        name_offsets=offsets, first_read=0, paired=False,
    )  # fmt: skip


def measure(reference: str, repeats: int) -> dict[str, Any]:
    """Return a row for each pair of q and p that is worth a look."""
    from benchmarks.kernels import kmer_seeding
    from mapper.device.memory import Workspace
    from mapper.device.reads import upload_reads
    from mapper.index.cuda import with_table_on_device
    from mapper.params import KmerParams, SeedParams
    from mapper.seed.cuda import download_seeds, seed_reads
    from mapper.seed.kmer_places import make_places
    from mapper.seed.plan import resolve

    contigs, text = kmer_seeding.reference(reference)
    host_fm, full = kmer_seeding.indexed(text)
    places = make_places(contigs.starts, contigs.lengths, host_fm.ref_planes)
    bare = with_table_on_device(full, TABLE)
    kmers = kmer_seeding.sample_kmers(text, 8_000_000, 20, 0, 1)
    space = Workspace()
    reads = upload_reads(space, [simulated_reads(text)])
    params = resolve(SeedParams(), len(text))
    rows: list[dict[str, Any]] = []
    expected: list[Any] = []
    for q, p in [(64, p) for p in P] + [(q, p) for q in Q[1:] for p in (1, 4, 32)]:
        fm = thinned(bare, q, p)
        exact = kmer_seeding.device_rate(fm, places, KmerParams(20), kmers, repeats)

        def seeding(fm: Any = fm) -> Any:
            return seed_reads(space, fm, reads, READ_LEN, params)

        seconds = kmer_seeding.timed(seeding, repeats)
        found = download_seeds(space, seeding())
        expected = expected or [exact["hits"], found]
        assert exact["hits"] == expected[0], "another number of hits"
        assert all(np.array_equal(a, b) for a, b in zip(found, expected[1], strict=True)), (
            "other seeds"
        )
        arrays = (fm.blocks, fm.super_counts, fm.first_row, fm.sa_samples, fm.kmer_starts)
        n_bytes = sum(a.nbytes for a in arrays) + fm.ref_planes.nbytes
        rows.append(
            {"q": q, "p": p, "bytes_per_base": n_bytes / len(text),
             "exact_20_per_s": exact["device"], "reads_per_s": N_READS / np.median(seconds)}
        )  # fmt: skip
        print(rows[-1], flush=True)
        del fm
    return {"text_bases": len(text), "table": TABLE, "rows": rows}


def lines_of(report: dict[str, Any]) -> list[str]:
    best = max(row["reads_per_s"] for row in report["rows"])
    return harness.table(
        ["q", "p", "bytes a base", "exact 20-mers/s, located", "reads seeded/s", "of the best"],
        [
            [row["q"], row["p"], f"{row['bytes_per_base']:.2f}",
             f"{row['exact_20_per_s'] / 1e6:.0f} M", f"{row['reads_per_s'] / 1e6:.2f} M",
             f"{100 * row['reads_per_s'] / best:.0f} %"]
            for row in report["rows"]
        ],
    )  # fmt: skip


def plot(report: dict[str, Any], out: Path) -> None:
    """Draw rate against memory, a line for each q."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "fmwave"  # the same file from the same numbers
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, key, title in zip(
        axes, ("exact_20_per_s", "reads_per_s"), ("exact 20-mers, M/s", "150 bp reads seeded, M/s"),
        strict=True,
    ):  # fmt: skip
        for q in sorted({row["q"] for row in report["rows"]}):
            own = [row for row in report["rows"] if row["q"] == q]
            x = [row["bytes_per_base"] for row in own]
            y = [row[key] / 1e6 for row in own]
            axis.plot(x, y, marker="o", markersize=4, label=f"q = {q}")
            if q == min(r["q"] for r in report["rows"]):
                for row, at, height in zip(own, x, y, strict=True):
                    axis.annotate(f"p = {row['p']}", (at, height), fontsize=7,
                                  textcoords="offset points", xytext=(4, -9))  # fmt: skip
        axis.set(xlabel="index, bytes a base", ylabel=title, ylim=(0, None))
        axis.grid(visible=True, linewidth=0.4)
    axes[0].legend(fontsize=8)
    figure.savefig(out, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference", help="FASTA or random:N; with --plot a result's .json")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--plot", type=Path)
    harness.add_commit(parser)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.plot:
        plot(json.loads(Path(options.reference).read_text()), options.plot)
        return 0
    if options.out is None:
        parser.error("OUT_STEM is missing")
    from benchmarks.end_to_end.map_on_gpu import gpus

    about = harness.provenance({}) | {"commit": options.commit, "gpus": gpus()}
    about["versions"] = {n: metadata.version(n) for n in ("numba", "numba-cuda", "numpy")}
    report = {"about": about, **measure(options.reference, options.repeats)}
    heading = ["# Occ spacing q and suffix array sampling p on a GPU", ""]
    heading += harness.markdown_provenance(about)
    heading += [f"{'; '.join(about['gpus'])}. {report['text_bases']:,} bases.", ""]
    harness.write_results(options.out.parent, options.out.name, report, heading + lines_of(report))
    print("\n".join(lines_of(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
