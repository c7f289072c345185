"""Input and output of a run on its devices: BGZF by nvCOMP, where the user has installed it.

Also room for records that are to be sorted and do not fit in the host's memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mapper.errors import UsageError, option

if TYPE_CHECKING:
    from mapper.io.bgzf import Compressor
    from mapper.io.bgzf_reader import Inflater
    from mapper.mapping.device_servers import DeviceServers
    from mapper.sorting.runs import RecordStore

log = logging.getLogger(__name__)

AUTO, HOST, DEVICE = COMPRESS_ON = ("auto", "host", "device")
"""Where BAM is compressed; auto: on a device of the run if nvCOMP is there, else on the host."""


FEW_THREADS = 4
"""With fewer for each device, devices decompress. With four a run is 3 to 7 % faster on an H200 if
threads do and leave the device to the kernels that map; two have no time for it."""


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
    stack: ExitStack, ordinals: Sequence[int], compress_on: str, level: int, threads: int,
    servers: DeviceServers | None = None,
) -> DeviceIO:  # fmt: skip
    """Open what devices do of input and output, until `stack` is closed.

    Parameters
    ----------
    ordinals
        Devices of the run; none on the CPU.
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
    from mapper.cuda import nvcomp

    def open_store() -> AbstractContextManager[RecordStore | None]:
        from mapper.sorting.runs_cuda import device_store

        return device_store(ordinals[0], min(threads, STORE_STREAMS))

    codec = nvcomp.load() if ordinals else None
    if codec is None:
        if compress_on == DEVICE and not ordinals:
            raise UsageError(
                f"{option('compress_on', DEVICE)} needs a CUDA device; the run has none"
            )
        if compress_on == DEVICE:
            raise UsageError(
                f"{option('compress_on', DEVICE)} needs nvCOMP 6, which is not installed: "
                f"{nvcomp.INSTALL}"
            )
        return DeviceIO(open_store=open_store if ordinals and servers is None else None)
    from mapper.io.bgzf_cuda import INFLATING_RANGES, device_deflater, device_inflater

    @cache
    def open_inflater() -> Inflater | None:
        n_streams = min(INFLATING_RANGES.n, max(threads // (2 * len(ordinals)), 1))
        streams = INFLATING_RANGES._replace(n=n_streams)
        return stack.enter_context(device_inflater(codec, ordinals, streams))

    inflater = deflater = None
    if servers is None and threads < FEW_THREADS * len(ordinals):
        inflater = stack.enter_context(device_inflater(codec, ordinals))
    if compress_on != HOST:
        deflater = stack.enter_context(
            device_deflater(codec, ordinals, level) if servers is None else servers.deflater(level)
        )
        if deflater is None and compress_on == DEVICE:
            raise UsageError(
                f"{option('compress_on', DEVICE)}: the device's memory is too small for the index "
                "and compression; leave it to the host"
            )
    log.info(
        "nvCOMP %s: BGZF is decompressed on the %s, BAM compressed on the %s", codec.version,
        "host" if inflater is None else "device", "host" if deflater is None else "device",
    )  # fmt: skip
    if servers is not None:
        return DeviceIO(deflater=deflater)
    return DeviceIO(inflater, deflater, open_inflater, open_store)
