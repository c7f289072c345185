"""What Occ spacing q and suffix array sampling p cost and bring on a GPU: memory against rate.

    python -m benchmarks.studies.index_trade_off REF.fa|random:1000000000 [--limit-s 480] [--resume]
    python -m benchmarks.common.document RESULTS/index_trade_off.json

One index with q = 64 and the whole suffix array is built (on the device, which needs CuPy) and
thinned out on the host for every other pair of q and p. Measured with each: search and locate
of exact 20-mers, both strands, with k-mers and hits in device memory, and the seeding of 150 bp
reads as `fmwave map` does it (reads in device memory). Medians of the repeats. The hits are the
same for all, and checked to be.

Each row is written as soon as it is there, to index_trade_off.{json,md}; when the time is over,
the rest is named. ``--resume`` goes on with the file of an earlier run of the same commit, text and
device. `--plot OUT.svg` with the .json file as REF draws it (needs matplotlib).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import harness
from benchmarks.common.harness import BenchmarkError

P_OF_Q = {64: (1, 2, 4, 8, 16, 32, 64), 128: (1, 4, 32), 256: (1, 4, 32), 512: (1, 4, 32)}
READ_LEN = 150
TABLE = 12
"""Bases of the k-mer table, which is the same for all."""
KMER_LEN = 20
LONG_ROW_S = 20
"""A row that takes longer has compiled: the next will not."""
PLOT = harness.RESULTS / "index_trade_off.svg"


def thinned(fm: Any, occ_spacing: int, sa_sampling: int) -> Any:
    """Return a host's index (q = 64, p = 1) with another spacing and sampling."""
    group = occ_spacing // 64
    n_blocks = -(-len(fm.blocks) // group)
    wide = np.zeros((n_blocks, 2 + 2 * group), np.uint64)
    wide[:, :2] = fm.blocks[::group, :2]
    for i in range(group):
        words = fm.blocks[i::group, 2:4]
        wide[: len(words), 2 + 2 * i : 4 + 2 * i] = words
    return fm._replace(
        blocks=wide,
        sa_samples=np.ascontiguousarray(fm.sa_samples[::sa_sampling]),
        occ_shift=occ_spacing.bit_length() - 1,
        sa_shift=sa_sampling.bit_length() - 1,
    )


def simulated_reads(text: np.ndarray, n_reads: int) -> Any:
    """Return reads of the text from both strands with 1 % substitutions."""
    from mapper.batch import ReadBatch

    rng = np.random.default_rng(7)
    starts = rng.integers(0, len(text) - READ_LEN, n_reads)
    codes = text[starts[:, None] + np.arange(READ_LEN)]
    changed = rng.random(codes.shape) < 0.01
    codes[changed] = (codes[changed] + rng.integers(1, 4, int(changed.sum()))) % 4
    codes[::2] = 3 - codes[::2, ::-1]
    offsets = np.arange(n_reads + 1, dtype=np.int64)
    return ReadBatch(
        bases=codes.ravel(), quals=np.full(codes.size, 30, np.uint8),
        base_offsets=READ_LEN * offsets, names=np.full(n_reads, 65, np.uint8),
        name_offsets=offsets, first_read=0, paired=False,
    )  # fmt: skip


def built(text: np.ndarray, device: str) -> Any:
    """Return the index of a text with q = 64 and p = 1, in host memory."""
    from mapper.index.build import build_fm
    from mapper.index.plan import choose_route
    from mapper.params import IndexParams

    params = IndexParams(occ_spacing=64, sa_sampling=1, kmer_len=TABLE)
    n_threads = len(os.sched_getaffinity(0))
    plan = choose_route("the index", len(text), params, device, None, n_threads, check=True)
    return build_fm(text, params, plan, n_threads)


class Measured:
    """A text's index, k-mers and reads; and what is found of them, whatever q and p."""

    def __init__(self, options: argparse.Namespace) -> None:
        from benchmarks.studies import kmer_seeding
        from mapper.cuda.memory import Workspace
        from mapper.kmers.search import make_text_bounds
        from mapper.params import SeedParams
        from mapper.seed.cuda import upload_reads
        from mapper.seed.exact import resolve

        self.repeats, self.n_reads = options.repeats, options.reads
        contigs, text = kmer_seeding.reference(options.reference)
        self.n_bases = len(text)
        self.fm = built(text, options.build)
        self.bounds = make_text_bounds(contigs.starts, contigs.lengths, self.fm.ref_planes)
        self.kmers = kmer_seeding.sample_kmers(text, options.kmers, KMER_LEN, 0, 1)
        self.space = Workspace()
        self.reads, _ = upload_reads(self.space, [simulated_reads(text, self.n_reads)])
        self.params = resolve(SeedParams(), len(text))

    def row(self, q: int, p: int) -> dict[str, Any]:
        """Measure one pair of q and p."""
        from benchmarks.studies import kmer_seeding
        from mapper.index.cuda import upload_index
        from mapper.params import KmerParams
        from mapper.seed.cuda import download_seeds, seed_reads

        fm = upload_index(thinned(self.fm, q, p))
        arrays = (fm.blocks, fm.super_counts, fm.first_row, fm.sa_samples, fm.kmer_starts)
        n_bytes = sum(a.nbytes for a in arrays) + fm.ref_planes.nbytes
        exact = kmer_seeding.device_rate(
            fm, self.bounds, KmerParams(KMER_LEN), self.kmers, self.repeats
        )

        def seeding() -> Any:
            return seed_reads(self.space, fm, self.reads, READ_LEN, self.params)

        seconds = kmer_seeding.timed(seeding, self.repeats)
        digest = hashlib.md5()
        for column in download_seeds(self.space, seeding()):
            digest.update(np.ascontiguousarray(column).tobytes())
        return {
            "q": q, "p": p, "bytes_per_base": n_bytes / self.n_bases,
            "exact_20_per_s": exact["device"], "exact_20_hits": exact["hits"],
            "reads_per_s": self.n_reads / float(np.median(seconds)), "seeds": digest.hexdigest(),
        }  # fmt: skip


def measure(options: argparse.Namespace, report: dict[str, Any]) -> None:
    """Measure each pair of q and p that is worth a look and not there; write after each."""
    started, last = time.monotonic(), 0.0
    have = {(row["q"], row["p"]) for row in report["rows"]}
    wanted = [(q, p) for q, of_q in P_OF_Q.items() for p in of_q if (q, p) not in have]
    report["left"] = [f"q {q}, p {p}" for q, p in wanted]
    measured = Measured(options) if wanted else None
    while wanted and measured is not None:
        begin = time.monotonic()
        if options.limit_s and begin - started + 2 * last > options.limit_s:
            break
        row = measured.row(*wanted.pop(0))
        last = min(time.monotonic() - begin, LONG_ROW_S)
        report["text_bases"] = measured.n_bases
        report["rows"].append(row | {"took_s": time.monotonic() - begin})
        report["left"].pop(0)
        first = report["rows"][0]
        for what in ("exact_20_hits", "seeds"):
            if row[what] != first[what]:
                raise BenchmarkError(f"q {row['q']}, p {row['p']}: other {what} than before")
        write(options.out, report)
        print(f"[{time.monotonic() - started:.0f} s] {row}", flush=True)
    if not report["rows"]:
        raise BenchmarkError(f"{options.limit_s} s were not enough for a single row")
    write(options.out, report)


def write(folder: Path, report: dict[str, Any]) -> None:
    harness.save_json(folder / "index_trade_off.json", report)
    lines = ["# Occ spacing q and suffix array sampling p on a GPU", ""]
    lines += harness.markdown_provenance(report["about"])
    (folder / "index_trade_off.md").write_text("\n".join(lines + lines_of(report)).rstrip() + "\n")


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the table, for the results and the documentation."""
    best = max(row["reads_per_s"] for row in report["rows"])
    lines = [
        f"{'; '.join(report['about']['gpus'])}. {report['text_bases']:,} bases "
        f"({report['about']['options']['reference']}), table of {TABLE}-mers.",
        "",
    ]
    if report["left"]:
        lines += ["**Not measured, for want of time**: " + "; ".join(report["left"]) + ".", ""]
    return lines + harness.table(
        ["q", "p", "bytes a base", "exact 20-mers/s, located", "reads seeded/s", "of the best"],
        [
            [row["q"], row["p"], f"{row['bytes_per_base']:.2f}",
             f"{row['exact_20_per_s'] / 1e6:.0f} M", f"{row['reads_per_s'] / 1e6:.2f} M",
             f"{100 * row['reads_per_s'] / best:.0f} %"]
            for row in sorted(report["rows"], key=lambda row: (row["q"], row["p"]))
        ],
    )  # fmt: skip


def in_docs(report: dict[str, Any]) -> list[str]:
    """Return plot and table for docs/performance.md; the plot is drawn anew."""
    plot(report, PLOT)
    picture = f"![memory against rate for q and p](../{PLOT.relative_to(harness.ROOT)})"
    return [picture, "", *lines_of(report)]


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
            own = sorted((r for r in report["rows"] if r["q"] == q), key=lambda r: r["p"])
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
    plt.close(figure)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("reference", help="FASTA or random:N; with --plot a result's .json")
    result.add_argument("--plot", type=Path, help="draw an earlier result, no more")
    result.add_argument("--build", default="cuda", help="where the index is built [cuda]")
    result.add_argument("--reads", type=int, default=200_000, help="[%(default)s]")
    result.add_argument("--kmers", type=int, default=8_000_000, help="[%(default)s]")
    result.add_argument("--repeats", type=int, default=5, help="[%(default)s]")
    result.add_argument("--limit-s", type=float, help="seconds for everything")
    result.add_argument("--resume", action="store_true", help="go on with the results there are")
    result.add_argument("--out", type=Path, default=harness.RESULTS, help="folder [%(default)s]")
    harness.add_commit(result)
    return result


@harness.reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 if q and p change what is found, 0 also if the time was not enough."""
    options = parser().parse_args(arguments)
    if options.plot:
        plot(json.loads(Path(options.reference).read_text()), options.plot)
        return 0
    from mapper.cuda.devices import find_devices

    found = find_devices()
    if found.problem:
        print(f"error: {found.problem}", file=sys.stderr)
        return 1
    about = harness.provenance({}) | {
        "commit": options.commit, "gpus": [device.name for device in found.devices],
        "options": {name: getattr(options, name) for name in
                    ("reference", "reads", "kmers", "repeats")},
    }  # fmt: skip
    about["versions"] = {n: metadata.version(n) for n in ("numba", "numba-cuda", "numpy")}
    report: dict[str, Any] = {"about": about, "table": TABLE, "rows": [], "left": []}
    path = options.out / "index_trade_off.json"
    if options.resume and path.exists():
        report["rows"] = harness.earlier(path, about, ("commit", "gpus", "options"))["rows"]
        report["text_bases"] = json.loads(path.read_text())["text_bases"]
    measure(options, report)
    print("\n".join(lines_of(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
