"""Rates of BGZF by nvCOMP, from host memory to host memory, by groups and streams.

    python -m benchmarks.studies.device_bgzf

Bytes like those of BAM records of 2×150 reads; all output of the first call is read back by zlib
(compressed) or compared (decompressed). Needs a CUDA device and the extra gpu-io.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import numpy as np

from mapper.cuda import nvcomp
from mapper.io import bgzf, bgzf_cuda
from mapper.io.bgzf_reader import PLAIN_END, BlocksPart, block_table, find_blocks

N_RECORDS = 220_000
LEVELS = (0, 1, 4)
DEFLATING = [(512, 1), (512, 4), (512, 8), (1024, 4)]  # blocks of a group, streams
INFLATING = [(blocks, streams) for blocks in (64, 128, 256, 512) for streams in (1, 3, 4)]
BLOCKS_OF_A_ROW = 4096


def records(n: int) -> bytes:
    """Return bytes of records: names that count up, packed bases, binned qualities, tags."""
    rng = np.random.default_rng(1)
    bins = np.array([37, 25, 11, 2], np.uint8)
    quals = rng.choice(bins, (n, 150), p=[0.85, 0.08, 0.05, 0.02])
    high, low = (1 << rng.integers(0, 4, (2, n, 75), np.uint8)).astype(np.uint8)
    bases = high << 4 | low
    tags = b"NMC\0MDZ150\0ASC\x96XSC\x20MCZ150M\0"
    return b"".join(
        b"sim_%08d_chr1_%09d\0" % (i, i * 37) + bases[i].tobytes() + quals[i].tobytes() + tags
        for i in range(n)
    )


def seconds_a_call(calls: int, run: Callable[[int], object]) -> float:
    """Return the time of a call when as many are made as there are threads to make them."""
    run(min(calls, 8))
    start = time.perf_counter()
    run(calls)
    return (time.perf_counter() - start) / calls


def _all(executor: Executor, call: Callable[[Any], object], argument: object, n: int) -> None:
    for result in executor.map(call, [argument] * n):
        del result  # its memory is used again


def deflate_rows(codec: nvcomp.Nvcomp, data: bytes) -> None:
    print("| level | blocks | streams | GB/s | ratio |\n|---|---|---|---|---|")
    for level in LEVELS:
        for blocks, streams in DEFLATING:
            opened = bgzf_cuda.Streams(streams, blocks)
            with bgzf_cuda.device_deflater(codec, 0, level, opened) as device:
                assert device is not None
                piece = memoryview(data)[: device.blocks_per_task * bgzf.BLOCK_BYTES]
                packed = bytes(device.compress([piece]))
                assert gzip.decompress(packed) == piece

                run = partial(_all, device.executor, device.compress, [piece])
                took = seconds_a_call(max(4 * streams, BLOCKS_OF_A_ROW // blocks), run)
            rate = len(piece) / took / 1e9
            ratio = len(piece) / len(packed)
            print(f"| {level} | {blocks} | {streams} | {rate:.2f} | {ratio:.3f} |", flush=True)


def inflate_rows(codec: nvcomp.Nvcomp, data: bytes) -> None:
    packed = np.frombuffer(bytes(bgzf.compressor(1)([memoryview(data)])), np.uint8)
    print(f"\nISA-L's level 1: ratio {len(data) / len(packed):.3f}\n")
    print("| blocks | streams | GB/s |\n|---|---|---|")
    table = block_table(len(data) // bgzf.BLOCK_BYTES + 1)
    n_found, _ = find_blocks(packed, 0, len(packed), len(data), table)
    for blocks, streams in INFLATING:
        opened = bgzf_cuda.Streams(streams, blocks)
        with bgzf_cuda.device_inflater(codec, 0, opened) as device:
            assert device is not None
            taken = table[: min(blocks, n_found)].copy()
            n_plain = int(taken[-1, PLAIN_END])
            room = device.memory(n_plain)
            part = BlocksPart(packed, taken, room.data, count_lines=True)
            (done,) = device.decompress([part])
            assert done.error is None
            assert room.tobytes() == data[:n_plain]

            run = partial(_all, device.executor, device.decompress, [part])
            took = seconds_a_call(max(8, BLOCKS_OF_A_ROW // blocks), run)
        print(f"| {blocks} | {streams} | {n_plain / took / 1e9:.2f} |", flush=True)


def main() -> None:
    codec = nvcomp.load()
    if codec is None:
        raise SystemExit(f"nvCOMP is needed: {nvcomp.INSTALL}")
    data = records(N_RECORDS)
    deflate_rows(codec, data)
    inflate_rows(codec, data)


if __name__ == "__main__":
    main()
