"""Measure k-mer search on the GPU and the CPU: rates, and the five sets of a GPU seeding paper.

    python -m benchmarks.studies.kmer_seeding REF.fa|random:N OUT_STEM [--commit C] [--threads T]

Needs a GPU and CuPy, with which the index is built. k-mers are cut from random places of the
reference, every second one from the opposite strand, with 0 to M random substitutions. Every set
is searched by both backends and their results compared; compilation and a warm-up are excluded,
medians of `repeats` are given. "Device" is from k-mers in device memory to sorted, located hits
there; "transfers" from host arrays to host arrays. Results are written as they come.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common.harness import add_commit, machine, save_json, table
from mapper.batch import KmerBatch, KmerHits
from mapper.cuda.api import cuda, kernel
from mapper.cuda.memory import copy_out
from mapper.dna import AMBIGUOUS
from mapper.host_memory import available_bytes
from mapper.index.build import build_fm, read_text
from mapper.index.cuda import (
    expand_suffix_array,
    fit_table_on_device,
    upload_index,
    with_table_on_device,
)
from mapper.index.fm import FMIndex, with_table
from mapper.index.plan import choose_route
from mapper.index.reference import Contigs, make_contigs
from mapper.jit.accelerate import driver
from mapper.kmers.cpu import CpuKmerSearch, fit_table, table_len_for_work
from mapper.kmers.cuda import CudaKmerSearch, device_contexts
from mapper.kmers.cut import ListFullError, join
from mapper.kmers.search import TextBounds, make_text_bounds
from mapper.parallel.map import any_idle, ordered_map
from mapper.params import IndexParams, KmerParams

PAPER_SETS = (  # name, k, mismatches, seconds of the paper: GPU whole, CPU 1 and 4 cores
    ("S11", 11, 0, 10.6, 60.7, 17.2),
    ("S15", 15, 0, 12.4, 122.4, 36.1),
    ("S20", 20, 1, 17.6, 179.8, 59.1),
    ("S24", 24, 1, 15.8, 129.1, 44.3),
    ("S30", 30, 2, 80.9, 1094.0, 311.2),
)
N_SET = 1_000_000
LIBRARIES = ("numba", "numba-cuda", "numpy", "cupy-cuda13x")


@driver
def _sample(text, starts, kmer_len, changes, codes, seed):
    np.random.seed(seed)
    for i in range(len(starts)):
        for j in range(kmer_len):
            code = text[starts[i] + j]
            codes[i, j] = code if i % 2 == 0 else 3 - text[starts[i] + kmer_len - 1 - j]
        for _ in range(changes[i]):
            at = np.random.randint(0, kmer_len)
            codes[i, at] = (codes[i, at] + np.random.randint(1, 4)) % 4


def sample_kmers(text: np.ndarray, n: int, kmer_len: int, most: int, seed: int) -> KmerBatch:
    """Cut `n` k-mers from the text (ambiguous bases and separators as the index has them)."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, len(text) - kmer_len, n)
    changes = rng.integers(0, most + 1, n)
    codes = np.empty((n, kmer_len), np.uint8)
    _sample(text, starts, kmer_len, changes, codes, seed)
    low, high = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    for j in range(kmer_len):
        low |= (codes[:, j] & 1).astype(np.uint64) << np.uint64(j)
        high |= (codes[:, j] >> 1).astype(np.uint64) << np.uint64(j)
    index = np.arange(n, dtype=np.int32)
    return KmerBatch(low, high, index, np.zeros(n, np.int32))


def reference(name: str) -> tuple[Contigs, np.ndarray]:
    """Return contigs and text of a FASTA, or of ``random:N``."""
    if not name.startswith("random:"):
        return read_text(Path(name))
    n = int(name.removeprefix("random:"))
    text = np.random.default_rng(1).integers(0, 4, n + 1, np.uint8)
    text[n] = AMBIGUOUS
    return make_contigs(["random"], [""], [n]), text


def timed(function: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each repeat, after a warm-up."""
    function()
    seconds = []
    for _ in range(repeats):
        cuda.synchronize()
        start = time.perf_counter()
        function()
        cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


@kernel(256)
def _random_reads(words, mask, n_steps, out):
    """Dependent reads, each place computed from what the one before held."""
    i = cuda.grid(1)
    place = np.uint64(i) * np.uint64(0x9E3779B97F4A7C15)
    for _ in range(n_steps):
        place = (place ^ (place >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        place += np.uint64(words[place & mask])
    out[i] = place


def random_read_rate(words: Any, repeats: int) -> float:
    """Dependent random 4-byte reads per second from a large array."""
    n_threads, n_steps = 1 << 22, 64
    mask = np.uint64((1 << (len(words).bit_length() - 1)) - 1)
    out = cuda.device_array(n_threads, np.uint64)
    seconds = timed(lambda: _random_reads.launch(n_threads, 0, words, mask, n_steps, out), repeats)
    return n_threads * n_steps / median(seconds)


def device_rate(
    fm: FMIndex, bounds: TextBounds, params: KmerParams, kmers: KmerBatch, repeats: int,
    verify_rows: int | None = None,
) -> dict[str, float]:  # fmt: skip
    """Rate with k-mers and hits in device memory, and of the search kernel alone."""
    search = CudaKmerSearch(0, fm, device_contexts(fm, params), bounds, params)
    if verify_rows is not None:
        search.params = params._replace(verify_rows=verify_rows)
    low, high = cuda.to_device(kmers.low), cuda.to_device(kmers.high)
    n, capacity = kmers.n_kmers, 2 * kmers.n_kmers
    try:
        search.search_on_device(low, high, n, capacity)
    except ListFullError as full:
        capacity = full.n_items + full.n_items // 4  # rows that are put aside differ each time
    whole = timed(lambda: search.search_on_device(low, high, n, capacity), repeats)
    store = search._store(2 * n, capacity)
    alone = timed(lambda: search.launch_search(low, high, 2 * n, store), repeats)
    offsets = search.search_on_device(low, high, n, capacity).hit_offsets
    n_hits = np.empty(1, offsets.dtype)
    copy_out(n_hits, offsets[2 * n :], 1, 0)
    search._space.release()
    return {
        "device": n / median(whole), "kernel": n / median(alone), "hits": int(n_hits[0]),
        "spread": max(whole) / min(whole),
    }  # fmt: skip


def transfer_rate(
    fm: FMIndex, bounds: TextBounds, params: KmerParams, kmers: KmerBatch, repeats: int,
    n_workers: int, batch: int,
) -> float:  # fmt: skip
    """Rate from host arrays to host arrays, batches dealt to workers with a stream each."""
    contexts = device_contexts(fm, params)
    workers = [CudaKmerSearch(0, fm, contexts, bounds, params) for _ in range(n_workers)]
    batches = cut(kmers, batch)
    seconds = timed(
        lambda: sum(
            len(hits.skipped) for hits in ordered_map(any_idle(workers), batches, len(workers))
        ),
        repeats,
    )
    for worker in workers:
        worker._space.release()
    return kmers.n_kmers / median(seconds)


def cut(kmers: KmerBatch, size: int) -> list[KmerBatch]:
    """Return batches of at most `size` k-mers."""
    return [
        KmerBatch(*(column[at : at + size] for column in kmers))
        for at in range(0, kmers.n_kmers, size)
    ]


def paper_table(
    text: np.ndarray, fm: FMIndex, host_fm: FMIndex, bounds: TextBounds, threads: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Search the five sets on both backends and compare their results."""
    for name, k, most, gpu_paper, cpu_1, cpu_4 in PAPER_SETS:
        params = KmerParams(k, most)
        kmers = sample_kmers(text, N_SET, k, most, seed=k)
        fitted = fit_table_on_device(fm, k) if fm.kmer_len > k or fm.kmer_len == 0 else fm
        search = CudaKmerSearch(0, fitted, device_contexts(fitted, params), bounds, params)
        gpu_seconds = timed(partial(search, kmers), repeats)
        gpu_hits = search(kmers)
        search._space.release()
        start = time.perf_counter()
        own = fit_table(host_fm, k)
        length = table_len_for_work(own, params, N_SET, available_bytes() or 0)
        longer = with_table(own, length, threads)
        table_seconds = time.perf_counter() - start
        workers = [CpuKmerSearch(longer, bounds, params) for _ in range(threads)]
        batches = cut(kmers, 5_000)
        list(ordered_map(any_idle(workers), batches[:1], len(workers)))
        start = time.perf_counter()
        cpu_hits = join(list(ordered_map(any_idle(workers), batches, len(workers))))
        cpu_seconds = time.perf_counter() - start
        row = {
            "set": name, "k": k, "mismatches": most, "hits": len(gpu_hits.text_pos),
            "skipped": int(gpu_hits.skipped.sum()), "equal": equal(gpu_hits, cpu_hits),
            "gpu_s": median(gpu_seconds), "cpu_s": cpu_seconds,
            "cpu_table": length, "cpu_table_s": table_seconds,
            "paper_gpu_s": gpu_paper, "paper_cpu1_s": cpu_1, "paper_cpu4_s": cpu_4,
        }  # fmt: skip
        print(row, flush=True)
        yield row


def equal(a: KmerHits, b: KmerHits) -> bool:
    """Return True if every column is the same."""
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def indexed(text: np.ndarray) -> tuple[FMIndex, FMIndex]:
    """Return the text's index, and one on the device with all of the suffix array and no table.

    Ambiguous bases are replaced in the text.
    """
    params = IndexParams(kmer_len=12)
    n_threads = len(os.sched_getaffinity(0))
    plan = choose_route("the index", len(text), params, "cuda", None, n_threads, check=True)
    fm = build_fm(text, params, plan, n_threads)
    no_table = fm._replace(kmer_starts=fm.kmer_starts[:1], kmer_len=0)
    on_device = expand_suffix_array(upload_index(no_table))
    cuda.synchronize()
    return fm, on_device


def main() -> None:
    """Measure, print, and write OUT_STEM.json and .md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("reference", help="FASTA, or random:N for N random bases")
    parser.add_argument("out", type=Path)
    add_commit(parser)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kmers", type=int, default=16_000_000)
    parser.add_argument("--skip-cpu", action="store_true")
    parser.add_argument("--tuning", action="store_true", help="table lengths and verify_rows too")
    args = parser.parse_args()
    clock = time.perf_counter()

    def lap(what: str) -> None:
        print(f"[{time.perf_counter() - clock:.1f} s] {what}", flush=True)

    contigs, text = reference(args.reference)
    lap(f"text of {len(text)} bases")
    host_fm, bare = indexed(text)
    bounds = make_text_bounds(contigs.starts, contigs.lengths, host_fm.ref_planes)
    lap("index on the device")
    report: dict[str, Any] = {
        "commit": args.commit, "reference": args.reference, "text_bases": len(text),
        "machine": machine(),
        "gpu": subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=True,
        ).stdout.strip(),
        "versions": {name: metadata.version(name) for name in LIBRARIES},
        "random_reads_per_s": random_read_rate(bare.sa_samples, args.repeats),
    }  # fmt: skip

    def write() -> None:
        """Write what is known so far."""
        save_json(args.out.with_suffix(".json"), report)
        args.out.with_suffix(".md").write_text("\n".join(lines_of(report)) + "\n")

    lap(f"random reads {report['random_reads_per_s'] / 1e9:.1f} G/s")
    rates = report["rates"] = {}
    sets = {
        "exact 20": (KmerParams(20, 0), sample_kmers(text, args.kmers, 20, 0, 1)),
        "2 of 30": (KmerParams(30, 2), sample_kmers(text, args.kmers // 8, 30, 2, 2)),
    }
    lap("k-mers")
    best = fit_table_on_device(bare, 20)
    for name, (params, kmers) in sets.items():
        rates[name] = device_rate(best, bounds, params, kmers, args.repeats)
        rates[name]["table"] = best.kmer_len
        for n_workers, batch in ((1, 1 << 19), (2, 1 << 19), (2, 1 << 21), (3, 1 << 21)):
            rates[name][f"transfers, {n_workers} streams, {batch} a batch"] = transfer_rate(
                best, bounds, params, kmers, args.repeats, n_workers, batch
            )
        write()
        lap(f"{name}: {rates[name]}")
    if args.tuning:
        tuning = report["tuning"] = []
        for table_len in (14, 15, 16):
            fm = with_table_on_device(bare, table_len)
            for name, (params, kmers) in sets.items():
                for verify_rows in (1, 4, 16):
                    row = device_rate(fm, bounds, params, kmers, 3, verify_rows)
                    tuning.append({"set": name, "table": table_len, "verify": verify_rows} | row)
                    write()
                    lap(f"{tuning[-1]}")
            del fm
    if not args.skip_cpu:
        rows = report["paper_sets"] = []
        for row in paper_table(text, best, host_fm, bounds, args.threads, args.repeats):
            rows.append(row)
            write()
        lap("sets of the paper")
    print("\n".join(lines_of(report)))


def lines_of(report: dict[str, Any]) -> list[str]:
    """Return the rates and the sets of the paper in markdown."""
    own = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"# k-mer seeding: {report['reference']}", "",
        f"Commit {report['commit']}; {report['gpu']}; {own['cpu']}, {own['cores']} cores; "
        f"{versions}. {report['text_bases']:,} bases.", "",
        "k-mers/s, both strands searched, all hits located and sorted. Dependent random 4-byte "
        f"reads of the same card: {report['random_reads_per_s'] / 1e9:.1f} G/s. Backward search "
        "alone (no table, no locating) of 20-mers in 3.1 Gbp, measured earlier on a card of this "
        "kind: 2.10 G/s in plain numba.cuda, 1.94 G/s in CUDA C++ with 128-bit loads.", "",
    ]  # fmt: skip
    if report["rates"]:
        names = ["kernel", "device"]
        names += [n for n in next(iter(report["rates"].values())) if n.startswith("transfers")]
        lines += table(
            ["k-mers", *names, "hits"],
            [
                [what, *(f"{rates[name] / 1e6:,.0f} M" for name in names), f"{rates['hits']:,}"]
                for what, rates in report["rates"].items()
            ],
        )
    if report.get("paper_sets"):
        first = report["paper_sets"][0]
        rows = [[shown(value) for value in row.values()] for row in report["paper_sets"]]
        lines += table(list(first), rows)
    return lines


def shown(value: Any) -> str:
    """Return a value of a set: seconds to the millisecond, counts in groups of three."""
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
