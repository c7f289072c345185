"""How long an index takes to be opened, and to be on a device, beside a copy of its bytes.

    python -m benchmarks.common.load_index REF.fmw [--device cuda] [--json FILE]

Warm: every page of the index has been read before, so that the files are in the system's cache.
"Opened" is what every process does; "first touch" reads one byte of each page through the map.
On a device: the plain copy is of as many bytes from ordinary memory, and from page-locked memory;
"copied" is what fmwave map copies, out of the mapped files; "on the device" adds all it does
until lanes take batches, the suffix array expanded where memory allows. Medians of 5, of 3 on a
device; the kernels' compilation comes before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mapper.cuda.devices import CPU, hold_device
from mapper.index.index import Index

PAGE = 4096


def median_time(function: Callable[[], Any], times: int) -> float:
    """Return the median wall time of some calls, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def arrays_of(index: Index) -> list[np.ndarray]:
    return [column for column in index.fm if isinstance(column, np.ndarray)]


def touch(index: Index) -> int:
    """Read one byte of each page of an index."""
    return sum(
        int(array.reshape(-1).view(np.uint8)[::PAGE].sum(dtype=np.int64))
        for array in arrays_of(index)
    )


def device_rows(path: Path, ordinals: Sequence[int]) -> dict[str, float]:
    """Return the times on the first of the devices."""
    from mapper.cuda.api import cuda, device_context
    from mapper.cuda.upload import upload
    from mapper.mapping.stages_cuda import DeviceStages

    index = Index.open(path)
    n_bytes = sum(array.nbytes for array in arrays_of(index))
    ordinal = ordinals[0]

    def load() -> None:
        DeviceStages(index, ordinal)
        cuda.synchronize()

    def copy_index() -> None:
        upload(index.fm, "the index")

    with device_context(ordinal):
        load()
        rows = {
            f"copy of as many bytes, {kind} memory, s": _copy_time(n_bytes, locked=locked)
            for kind, locked in (("ordinary", False), ("page-locked", True))
        }
        rows["copied, s"] = median_time(copy_index, 3)
        rows["on the device, s"] = median_time(load, 3)
    return rows


def _copy_time(n_bytes: int, *, locked: bool) -> float:
    """Return the median time of a copy to the current device."""
    from mapper.cuda.api import cuda

    source = cuda.pinned_array(n_bytes, np.uint8) if locked else np.empty(n_bytes, np.uint8)
    source[:] = 1
    target = cuda.device_array(n_bytes, np.uint8)

    def copy() -> None:
        target.copy_to_device(source)
        cuda.synchronize()

    copy()
    return median_time(copy, 3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; print a line for each number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("--device", default="cpu", help="[%(default)s]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    index = Index.open(options.index)
    first = median_time(lambda: touch(index), 1)
    rows: dict[str, float] = {
        "size, GB": index.n_bytes / 1e9,
        "every page, not mapped before, s": first,
        "opened (warm), s": median_time(lambda: Index.open(options.index), 5),
        "opened and every page touched (warm), s": median_time(
            lambda: touch(Index.open(options.index)), 5
        ),
    }
    with hold_device(options.device, 1) as device:
        if device.backend != CPU:
            rows |= device_rows(options.index, device.ordinals)
    for name, value in rows.items():
        print(f"{name}: {value:.3f}")
    if options.json:
        options.json.write_text(json.dumps({"rows": {k: round(v, 4) for k, v in rows.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
