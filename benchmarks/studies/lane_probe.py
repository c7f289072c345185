"""What a lane of a device spends its time on: kernels, copies, allocations, waiting, host work.

Wraps the functions of :mod:`mapper.device` that launch, copy, allocate and wait, for as long as a
:class:`Probe` is open; what they did is attributed to the part of the lane's work that was under
way (``seed_reads``, ``extend_loci`` of the reads' own loci and of rescued ones, ...).
"""

from __future__ import annotations

import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np


@dataclass
class Part:
    """What one part of the lane's work took."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    faults: int = 0
    """Pages that the system had to find for the thread."""
    kernels: list[tuple[str, Any, Any]] = field(default_factory=list)
    """Name, and the events before and after."""
    launch_seconds: float = 0.0
    up_bytes: int = 0
    down_bytes: int = 0
    kept_bytes: int = 0
    """Of the downloaded bytes, those that stay in the page-locked array they came to."""
    copy_seconds: float = 0.0
    """In calls that queue copies; filling the page-locked array is in it."""
    wait_seconds: float = 0.0
    """In calls that wait for the stream."""
    pinned_bytes: int = 0
    pinned_seconds: float = 0.0
    """Allocating page-locked memory; the time is part of ``copy_seconds``."""
    device_bytes: int = 0
    device_seconds: float = 0.0

    def kernel_ms(self) -> float:
        return float(sum(a.elapsed_time(b) for _, a, b in self.kernels))

    def by_kernel(self) -> str:
        times: dict[str, list[str]] = defaultdict(list)
        for name, a, b in self.kernels:
            times[name].append(f"{a.elapsed_time(b):.2f}")
        return "; ".join(f"{name} {' + '.join(each)}" for name, each in times.items())


class Overlap:
    """Measures how kernels of all lanes lie in time while ``with overlap:`` is open."""

    def __init__(self) -> None:
        self._spans: list[tuple[Any, Any]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Overlap:
        from mapper.cuda.api import Kernel, cuda

        launch = Kernel.launch_blocks

        def launched(kernel: Any, n_blocks: int, stream: Any, *args: Any, **options: Any) -> None:
            first, last = cuda.event(), cuda.event()
            first.record(stream)
            launch(kernel, n_blocks, stream, *args, **options)
            last.record(stream)
            with self._lock:
                self._spans.append((first, last))

        self._origin = cuda.event()
        self._origin.record()
        self._patch = mock.patch.object(Kernel, "launch_blocks", launched)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def summary(self) -> str:
        """Say how long any kernel ran, from the first to the last, and how many at a time."""
        spans = sorted(
            (self._origin.elapsed_time(a), self._origin.elapsed_time(b)) for a, b in self._spans
        )
        covered, reached = 0.0, spans[0][0]
        for start, end in spans:
            covered += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        total = sum(end - start for start, end in spans)
        return (
            f"{len(spans)} kernels, {covered:.0f} ms of {reached - spans[0][0]:.0f} ms covered, "
            f"{total / covered:.2f} at a time"
        )


class Probe:
    """Measures what one thread does in its lane while ``with probe:`` is open.

    ``parts`` has what was measured, ``counts`` the rows that went in and out.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.counts: dict[str, int] = {}
        self._now = Part()
        self._patches: list[Any] = []

    def clear(self) -> None:
        self.parts, self.counts = {}, {}

    @contextmanager
    def part(self, name: str) -> Iterator[Part]:
        """Attribute what is done inside to `name`."""
        before, self._now = self._now, self.parts.setdefault(name, Part())
        usage, start, cpu = _faults(), time.perf_counter(), time.thread_time()
        try:
            yield self._now
        finally:
            self._now.seconds += time.perf_counter() - start
            self._now.cpu_seconds += time.thread_time() - cpu
            self._now.faults += _faults() - usage
            self._now = before

    def __enter__(self) -> Probe:
        from mapper.cuda import memory
        from mapper.cuda.api import Kernel, cuda
        from mapper.mapping import stages_cuda

        space = memory.Workspace

        def patch(target: Any, name: str, make: Callable[[Any], Any]) -> None:
            patched = mock.patch.object(target, name, make(getattr(target, name)))
            patched.start()
            self._patches.append(patched)

        patch(Kernel, "launch_blocks", lambda f: self._launch(f, cuda))
        patch(space, "upload_joined", self._upload)
        patch(space, "download", lambda f: self._download(f, kept=False))
        patch(space, "download_results", lambda f: self._download(f, kept=True))
        patch(space, "synchronize", lambda f: self._timed(f, "wait_seconds"))
        patch(cuda, "pinned_array", lambda f: self._allocating(f, "pinned"))
        patch(cuda, "device_array", lambda f: self._allocating(f, "device"))
        patch(stages_cuda, "upload_reads", lambda f: self._as_part(f, "pack"))
        patch(stages_cuda, "seed_reads", lambda f: self._as_part(f, "seed"))
        patch(stages_cuda, "find_loci", lambda f: self._as_part(f, "chain"))
        patch(
            stages_cuda, "propose_loci", lambda f: self._as_part(f, "rescue: propose", self._loci)
        )
        patch(stages_cuda, "extend_loci", self._extend)
        patch(stages_cuda, "merge_on_device", self._merge)
        patch(stages_cuda, "download_alignments", lambda f: self._as_part(f, "download"))
        return self

    def __exit__(self, *_: object) -> None:
        while self._patches:
            self._patches.pop().stop()

    def _timed(self, function: Any, field_name: str) -> Any:
        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                spent = time.perf_counter() - start
                setattr(self._now, field_name, getattr(self._now, field_name) + spent)

        return timed

    def _launch(self, launch: Any, cuda: Any) -> Any:
        def launched(kernel: Any, n_blocks: int, stream: Any, *args: Any, **options: Any) -> None:
            first, last = cuda.event(), cuda.event()
            first.record(stream)
            start = time.perf_counter()
            launch(kernel, n_blocks, stream, *args, **options)
            self._now.launch_seconds += time.perf_counter() - start
            last.record(stream)
            self._now.kernels.append((kernel.function.__name__, first, last))

        return launched

    def _upload(self, upload: Any) -> Any:
        timed = self._timed(upload, "copy_seconds")

        def uploaded(space: Any, name: str, columns: Sequence[np.ndarray]) -> Any:
            self._now.up_bytes += sum(column.nbytes for column in columns)
            return timed(space, name, columns)

        return uploaded

    def _download(self, download: Any, *, kept: bool) -> Any:
        timed = self._timed(download, "copy_seconds")

        def downloaded(*args: Any) -> Any:
            host = timed(*args)
            n_bytes = sum(column.nbytes for column in host) if kept else host.nbytes
            self._now.down_bytes += n_bytes
            self._now.kept_bytes += n_bytes if kept else 0
            return host

        return downloaded

    def _allocating(self, allocate: Any, kind: str) -> Any:
        timed = self._timed(allocate, f"{kind}_seconds")

        def allocated(n_bytes: int, dtype: Any) -> Any:
            name = f"{kind}_bytes"
            setattr(self._now, name, getattr(self._now, name) + n_bytes)
            return timed(n_bytes, dtype)

        return allocated

    def _as_part(self, function: Any, name: str, look: Callable[[Any], None] | None = None) -> Any:
        def done(*args: Any) -> Any:
            with self.part(name):
                result = function(*args)
            if look is not None:
                look(result)
            return result

        return done

    def _loci(self, near: Any) -> None:
        self.counts["rescue loci"] = int(near.host_offsets[-1])

    def _extend(self, extend: Any) -> Any:
        def extended(*args: Any) -> Any:
            name = "rescue: extend" if "rescue loci" in self.counts else "extend"
            with self.part(name):
                result = extend(*args)
            if name == "extend":
                self.counts["loci"] = len(args[5])
            return result

        return extended

    def _merge(self, merge: Any) -> Any:
        def merged(space: Any, before: Any, rescued: Any) -> Any:
            with self.part("rescue: merge"):
                result = merge(space, before, rescued)
            self.counts["alignments"] = before.n_rows
            self.counts["rescued alignments"] = rescued.n_rows
            self.counts["merged alignments"] = result.n_rows
            self.counts["reads with rescued alignments"] = int(
                (np.diff(rescued.host_offsets) > 0).sum()
            )
            return result

        return merged


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


COLUMNS = (
    "part", "wall ms", "CPU ms", "kernels ms", "launches", "launch ms", "wait ms", "copy ms",
    "MB up", "MB down", "kept MB", "pinned MB", "ms", "device MB", "ms", "faults",
)  # fmt: skip


def rows(parts: dict[str, Part]) -> list[list[str]]:
    """Return the lines of a table with COLUMNS."""
    return [
        [
            name, *(f"{1e3 * s:.1f}" for s in (part.seconds, part.cpu_seconds)),
            f"{part.kernel_ms():.2f}", str(len(part.kernels)),
            *(f"{1e3 * s:.1f}" for s in
              (part.launch_seconds, part.wait_seconds, part.copy_seconds)),
            *(f"{n / 1e6:.1f}" for n in (part.up_bytes, part.down_bytes, part.kept_bytes)),
            f"{part.pinned_bytes / 1e6:.1f}", f"{1e3 * part.pinned_seconds:.1f}",
            f"{part.device_bytes / 1e6:.1f}", f"{1e3 * part.device_seconds:.1f}",
            str(part.faults),
        ]
        for name, part in parts.items()
    ]  # fmt: skip
