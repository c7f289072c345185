"""nvCOMP, NVIDIA's library of compression on a device, where the user has installed it.

The extra ``gpu-io`` (``gpu-io-cu13`` for CUDA 13) installs it from PyPI, under NVIDIA's licence. It
is loaded at run time and called by its C interface (``nvcomp/deflate.h``, ``nvcomp/crc32.h``,
version 6). Everything works without it.

All arrays are a device's: nvCOMP takes the addresses of chunks, and writes sizes and statuses, in
arrays of one item for each chunk.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
from functools import cache
from pathlib import Path
from typing import Any

from mapper.cuda.arguments import address_of
from mapper.errors import DeviceError

log = logging.getLogger(__name__)

INSTALL = "pip install 'fmwave[gpu-io]' (CUDA 12) or 'fmwave[gpu-io-cu13]' (CUDA 13)"

_PACKAGE, _LIBRARY = "nvidia.libnvcomp", "lib64/libnvcomp.so.6"
_MAJOR = 6

_LEVELS = (1, 2, 2, 2, 4, 4, 4, 5, 5, 5)
"""nvCOMP's algorithm for each compression level of BGZF: 1 is fast, 2 compresses as ISA-L's
level 1 does, 4 and 5 as zlib's higher ones."""


class _Properties(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("cudart_version", ctypes.c_uint32)]


class _DeflateOptions(ctypes.Structure):
    _fields_ = [("algorithm", ctypes.c_int), ("reserved", ctypes.c_char * 60)]


class _InflateOptions(ctypes.Structure):
    _fields_ = [
        ("backend", ctypes.c_int),
        ("sort_before", ctypes.c_int),
        ("reserved", ctypes.c_char * 56),
    ]


class _CrcSpec(ctypes.Structure):
    _fields_ = [
        ("poly", ctypes.c_uint32),
        ("init", ctypes.c_uint32),
        ("reflects_in", ctypes.c_bool),
        ("reflects_out", ctypes.c_bool),
        ("xor_out", ctypes.c_uint32),
        ("reserved", ctypes.c_char * 16),
    ]


class _CrcKernel(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("bytes_per_read", ctypes.c_int32),
        ("blocks_per_message", ctypes.c_int32),
        ("reserved", ctypes.c_char * 20),
    ]


class _CrcOptions(ctypes.Structure):
    _fields_ = [("spec", _CrcSpec), ("kernel", _CrcKernel), ("reserved", ctypes.c_char * 64)]


_GZIP_CRC = 0x04C11DB7, 0xFFFFFFFF, True, True, 0xFFFFFFFF
_ONLY_SEGMENT = 0

_SIZE, _ADDRESS = ctypes.c_size_t, ctypes.c_void_p
_SIZE_RESULT = ctypes.POINTER(_SIZE)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nvcompGetProperties": (ctypes.POINTER(_Properties),),
    "nvcompBatchedDeflateCompressGetTempSize": (
        _SIZE, _SIZE, _DeflateOptions, _SIZE_RESULT, _SIZE, _ADDRESS,
    ),
    "nvcompBatchedDeflateCompressGetMaxOutputChunkSize": (_SIZE, _DeflateOptions, _SIZE_RESULT),
    "nvcompBatchedDeflateCompressAsync": (
        _ADDRESS, _ADDRESS, _SIZE, _SIZE, _ADDRESS, _SIZE, _ADDRESS, _ADDRESS, _DeflateOptions,
        _ADDRESS, _ADDRESS,
    ),
    "nvcompBatchedDeflateDecompressGetTempSize": (
        _SIZE, _SIZE, _InflateOptions, _SIZE_RESULT, _SIZE, _ADDRESS,
    ),
    "nvcompBatchedDeflateDecompressAsync": (
        _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _ADDRESS, _InflateOptions,
        _ADDRESS, _ADDRESS,
    ),
    "nvcompBatchedCRC32GetHeuristicConf": (
        _ADDRESS, _SIZE, ctypes.POINTER(_CrcKernel), _SIZE, _ADDRESS,
    ),
    "nvcompBatchedCRC32Async": (
        _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _CrcOptions, ctypes.c_int, _ADDRESS, _ADDRESS,
    ),
}  # fmt: skip


class Nvcomp:
    """The functions of nvCOMP that BGZF needs; raw deflate streams.

    Methods queue their work on a stream of the current device. Arrays are 1-D device arrays;
    addresses (of chunks) and sizes (bytes) are int64, statuses int32, 0 for success.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for name, kinds in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = kinds, ctypes.c_int
        self._describe = self._library.nvcompGetStatusString
        self._describe.argtypes, self._describe.restype = (ctypes.c_int,), ctypes.c_char_p
        found = _Properties()
        self._call("nvcompGetProperties", ctypes.byref(found))
        self._number = int(found.version)

    @property
    def version(self) -> str:
        """Version, as in 6.0.0."""
        return f"{self.major}.{self._number % 1000 // 100}.{self._number % 100}"

    @property
    def major(self) -> int:
        """First number of the version."""
        return self._number // 1000

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise DeviceError(f"nvCOMP's {name} failed: {self.describe(status)}")

    def describe(self, status: int) -> str:
        """Return nvCOMP's name of a status."""
        found = self._describe(status)
        return found.decode() if found else f"status {status}"

    def deflate_sizes(self, n: int, chunk_bytes: int, level: int) -> tuple[int, int]:
        """Return the bytes of workspace that `n` chunks take, and of the output of each."""
        options, work, slot = _DeflateOptions(_LEVELS[level]), _SIZE(), _SIZE()
        self._call(
            "nvcompBatchedDeflateCompressGetTempSize",
            n, chunk_bytes, options, ctypes.byref(work), n * chunk_bytes, None,
        )  # fmt: skip
        self._call(
            "nvcompBatchedDeflateCompressGetMaxOutputChunkSize",
            chunk_bytes, options, ctypes.byref(slot),
        )  # fmt: skip
        return work.value, -(-slot.value // 8) * 8

    def inflate_bytes(self, n: int, chunk_bytes: int) -> int:
        """Return the bytes of workspace that `n` chunks take."""
        work = _SIZE()
        self._call(
            "nvcompBatchedDeflateDecompressGetTempSize",
            n, chunk_bytes, _InflateOptions(), ctypes.byref(work), n * chunk_bytes, None,
        )  # fmt: skip
        return work.value

    def deflate(
        self, n: int, chunk_bytes: int, level: int, data: Any, sizes: Any, work: Any, out: Any,
        out_sizes: Any, statuses: Any, stream: Any,
    ) -> None:  # fmt: skip
        """Compress chunks of at most 64 kB; any alignment of `data`, 8 bytes of `out`.

        Parameters
        ----------
        n, chunk_bytes
            Their number, and the bytes of the largest, as for :meth:`deflate_sizes`.
        level
            0 to 9.
        data, sizes
            Address and bytes of each.
        work
            Workspace, uint8.
        out
            Address of the output of each.
        out_sizes, statuses
            To be written.
        """
        self._call(
            "nvcompBatchedDeflateCompressAsync",
            address_of(data), address_of(sizes), chunk_bytes, n, address_of(work), work.nbytes,
            address_of(out), address_of(out_sizes), _DeflateOptions(_LEVELS[level]),
            address_of(statuses), _handle(stream),
        )  # fmt: skip

    def inflate(
        self, n: int, data: Any, sizes: Any, work: Any, out: Any, rooms: Any, out_sizes: Any,
        statuses: Any, stream: Any,
    ) -> None:  # fmt: skip
        """Decompress chunks; 4 bytes of alignment of `data`, any of `out`.

        What becomes of a damaged chunk is not defined, except that no more than its room is
        written: compare sizes and checksums.

        Parameters
        ----------
        data, sizes, work, out, out_sizes, statuses
            See :meth:`deflate`.
        rooms
            Bytes of room for the output of each.
        """
        self._call(
            "nvcompBatchedDeflateDecompressAsync",
            address_of(data), address_of(sizes), address_of(rooms), address_of(out_sizes), n,
            address_of(work), work.nbytes, address_of(out), _InflateOptions(), address_of(statuses),
            _handle(stream),
        )  # fmt: skip

    def crc32(
        self, n: int, chunk_bytes: int, data: Any, sizes: Any, checksums: Any, stream: Any
    ) -> None:
        """Write gzip's CRC-32 of each chunk to `checksums` (uint32)."""
        options = _CrcOptions(_CrcSpec(*_GZIP_CRC))
        self._call(
            "nvcompBatchedCRC32GetHeuristicConf",
            None, n, ctypes.byref(options.kernel), chunk_bytes, _handle(stream),
        )  # fmt: skip
        self._call(
            "nvcompBatchedCRC32Async",
            address_of(data), address_of(sizes), n, address_of(checksums), options,
            _ONLY_SEGMENT, None, _handle(stream),
        )  # fmt: skip


def _handle(stream: Any) -> int:
    from mapper.cuda.api import cuda_driver

    return int(cuda_driver._stream_handle(stream))


@cache
def load() -> Nvcomp | None:
    """Return nvCOMP, or None if it is not installed or cannot be used (which is logged, once)."""
    path = _library_path()
    if path is None:
        return None
    try:
        found = Nvcomp(path)
    except (OSError, AttributeError, DeviceError) as error:
        log.warning("%s cannot be used: %s; compression stays on the CPU", path, error)
        return None
    if found.major != _MAJOR:
        log.warning(
            "nvCOMP %s is installed, and version %d is needed; compression stays on the CPU",
            found.version, _MAJOR,
        )  # fmt: skip
        return None
    return found


def _library_path() -> Path | None:
    try:
        package = importlib.util.find_spec(_PACKAGE)
    except ModuleNotFoundError:  # no package `nvidia` at all
        return None
    for directory in (package and package.submodule_search_locations) or ():
        path = Path(directory) / _LIBRARY
        if path.is_file():
            return path
    return None
