"""Input and output of a run on its devices: BGZF by nvCOMP, where the user has installed it.

Also room for records that are to be sorted and do not fit in the host's memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from mapper.errors import UsageError, option

if TYPE_CHECKING:
    from mapper.cuda.nvcomp import Nvcomp
    from mapper.io.bgzf import Compressor
    from mapper.io.bgzf_reader import Inflater
    from mapper.mapping.device_servers import DeviceServers
    from mapper.sorting.runs import RecordStore

log = logging.getLogger(__name__)

AUTO, HOST, DEVICE = COMPRESS_ON = ("auto", "host", "device")
"""Where BAM is compressed; auto: on a device of the run if nvCOMP is there, else on the host."""


FEW_THREADS = 6
"""With fewer, the device decompresses: with four a run is an eighth faster then, on an H200. Eight
threads have time for it, and leave the device to the kernels that map."""


STORE_STREAMS = 8
"""Threads that bring records to a device, or ranges of them back, at a time."""


class DeviceIO(NamedTuple):
    """What a device does of a run's input and output; None for what the host does."""

    inflater: Inflater | None = None
    """Decompresses input."""
    deflater: Compressor | None = None
    open_inflater: Callable[[], Inflater | None] | None = None
    """Opens streams that help to decompress the temporary file of a sort, at its end."""
    open_store: Callable[[], AbstractContextManager[RecordStore | None]] | None = None
    """Opens room for the records of a sort, until the context is left."""


def open_device_io(
    stack: ExitStack, ordinal: int | None, compress_on: str, level: int, threads: int,
    servers: DeviceServers | None = None,
) -> DeviceIO:  # fmt: skip
    """Open what devices do of input and output, until `stack` is closed.

    Parameters
    ----------
    ordinal
        Device of the run; None on the CPU, and where there are `servers`.
    compress_on
        One of COMPRESS_ON.
    level
        0 to 9.
    threads
        Threads of the run.
    servers
        The devices' processes, where each has one: these compress, and the host does the rest.

    Raises
    ------
    UsageError
        If BAM is to be compressed on a device, and cannot be.
    """
    if ordinal is None and servers is None:
        if compress_on == DEVICE:
            raise UsageError(
                f"{option('compress_on', DEVICE)} needs a CUDA device; the run has none"
            )
        return DeviceIO()
    from mapper.cuda import nvcomp

    io = DeviceIO() if ordinal is None else DeviceIO(open_store=partial(_store, ordinal, threads))
    codec = nvcomp.load()
    if codec is None:
        if compress_on == DEVICE:
            raise UsageError(
                f"{option('compress_on', DEVICE)} needs nvCOMP 6, which is not installed: "
                f"{nvcomp.INSTALL}"
            )
        return io
    if ordinal is not None:
        io = _open_on(stack, io, codec, ordinal, threads)
    if compress_on != HOST:
        io = io._replace(deflater=_open_deflater(stack, codec, ordinal, level, servers))
        if io.deflater is None and compress_on == DEVICE:
            raise UsageError(
                f"{option('compress_on', DEVICE)}: the device's memory is too small for the index "
                "and compression; leave it to the host"
            )
    log.info(
        "nvCOMP %s: BGZF is decompressed on the %s, BAM compressed on the %s", codec.version,
        "host" if io.inflater is None else "device", "host" if io.deflater is None else "device",
    )  # fmt: skip
    return io


def _store(ordinal: int, threads: int) -> AbstractContextManager[RecordStore | None]:
    from mapper.sorting.runs_cuda import device_store

    return device_store(ordinal, min(threads, STORE_STREAMS))


def _open_on(stack: ExitStack, io: DeviceIO, codec: Nvcomp, ordinal: int, threads: int) -> DeviceIO:
    """Add what decompresses on the run's only device."""
    from mapper.io.bgzf_cuda import INFLATING_RANGES, device_inflater

    @cache
    def open_inflater() -> Inflater | None:
        streams = INFLATING_RANGES._replace(n=min(INFLATING_RANGES.n, max(threads // 2, 1)))
        return stack.enter_context(device_inflater(codec, ordinal, streams))

    io = io._replace(open_inflater=open_inflater)
    if threads < FEW_THREADS:
        io = io._replace(inflater=stack.enter_context(device_inflater(codec, ordinal)))
    return io


def _open_deflater(
    stack: ExitStack, codec: Nvcomp, ordinal: int | None, level: int,
    servers: DeviceServers | None,
) -> Compressor | None:  # fmt: skip
    if ordinal is None:
        assert servers is not None
        return stack.enter_context(servers.deflater(level))
    from mapper.io.bgzf_cuda import device_deflater

    return stack.enter_context(device_deflater(codec, ordinal, level))
