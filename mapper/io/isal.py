"""Compress and decompress blocks by ISA-L from compiled code, without the GIL between blocks.

The package isal has Python functions for one block at a time. With many cores and a few hundred
thousand blocks a second the threads would wait for the GIL. So compiled code calls the C functions
of ISA-L (``igzip_lib.h``, versions 2.x) that isal's extension module contains or links to. They are
no public interface of isal, and the structs of the header are filled in here.

**Fallback.** :func:`usable` is False where the functions are missing, where numba's JIT is off, and
where a trial shows that they do not do what zlib does. The callers (:mod:`mapper.io.bgzf`,
:mod:`mapper.io.bgzf_reader`) then use isal's Python functions, which do the same block by block.

**Reproducible bytes.** ISA-L's deflate of level 1 for x86 (isal 1.9 at least) inserts the third
position of its input at a hash computed from the address of its state instead of the bytes there.
If that equals the hash of one of the first three positions, matches with them may differ; and as
distances are taken modulo 32 kB, so may matches with the positions 32 kB further on. The stream is
valid, but about one block in 20 000 differed between two runs, and one in 40 of blocks of 100
bytes, for which ISA-L takes fewer bits of the hash. :func:`deflate` therefore chooses an address
for the state whose hash differs from all of these.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import zlib
from functools import cache
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from isal import isal_zlib
from numba import types

from mapper.jit.accelerate import core, driver

log = logging.getLogger(__name__)

_STATE_BYTES = 1 << 17  # isal_zstream and inflate_state take less than 90 kB
_LEVEL_BYTES = 1 << 19  # level buffer, enough for any level
_PAGE_BITS = 16  # low bits of an address that its hash ignores
_N_PLACES = 16  # addresses for the state; even for blocks of 8 bytes one is suitable
WORKSPACE_BYTES = ((_N_PLACES - 1) << _PAGE_BITS) + _STATE_BYTES + _LEVEL_BYTES

_MOST_SLOT_BITS = 12
"""Bits of a hash that are compared, at most: no level has a smaller table."""

_WINDOW_BYTES = 1 << 15  # distances are modulo this
_N_HASHED = 3  # positions of a window, the first ones, of whose slots one may be the state's

_CASTAGNOLI = 0x82F63B78  # CRC-32C, lowest bit first

_SIGNATURES = {
    "isal_deflate_stateless_init": types.void(types.uintp),
    "isal_deflate_stateless": types.int32(types.uintp),
    "isal_inflate_init": types.void(types.uintp),
    "isal_inflate_stateless": types.int32(types.uintp),
    "crc32_gzip_refl": types.uint32(types.uint32, types.uintp, types.uint64),
}
_OF_THREAD: Any = threading.local()
_PREFIX = "fmwave_"  # not to be resolved to another copy of ISA-L in the process


def _declare() -> bool:
    """Declare the functions to LLVM by their addresses; return True if all exist."""
    if numba.config.DISABLE_JIT:
        return False
    library = ctypes.CDLL(isal_zlib.__file__)
    for name in _SIGNATURES:
        function = getattr(library, name, None)
        if function is None:
            return False
        address = ctypes.cast(function, ctypes.c_void_p).value
        llvmlite.binding.add_symbol(_PREFIX + name, address)
    return True


AVAILABLE = _declare()
_copy = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))
_deflate_init, _deflate, _inflate_init, _inflate, _crc32 = (
    types.ExternalFunction(_PREFIX + name, signature) for name, signature in _SIGNATURES.items()
)


def workspace() -> np.ndarray:
    """Return this thread's workspace for :func:`deflate` and :func:`inflate`."""
    try:
        return _OF_THREAD.work
    except AttributeError:
        _OF_THREAD.work = np.empty(WORKSPACE_BYTES, np.uint8)
        return _OF_THREAD.work


@driver
def crc32(address, n_bytes):
    """Return the CRC-32 of gzip of the bytes at an address."""
    return _crc32(np.uint32(0), np.uintp(address), np.uint64(n_bytes))


@core
def _hash(word):
    """Return ISA-L's hash of 4 bytes: their CRC-32C, from 0, not inverted."""
    crc = np.uint32(word & np.uint64(0xFFFFFFFF))
    for _ in range(32):
        odd = crc & np.uint32(1)
        crc = np.uint32(crc >> np.uint32(1))
        if odd:
            crc = np.uint32(crc ^ np.uint32(_CASTAGNOLI))
    return crc


@core
def _is_suitable(page, firsts, mask):
    """Return True if a state whose address begins with `page` cannot affect the bytes."""
    of_state = _hash(page)
    for window in range(len(firsts)):
        for position in range(_N_HASHED):
            word = firsts[window] >> np.uint64(8 * position)
            if (of_state ^ _hash(word)) & mask == 0:
                return False
    return True


@core
def _place_of_state(address, firsts, n_bytes):
    """Return the first place in a workspace whose address cannot affect the compressed bytes.

    Parameters
    ----------
    firsts
        The first 8 bytes of each window of the input (uint64).
    n_bytes
        Length of the input. Of fewer than 4 kB, ISA-L's table has 2 ** n_bytes.bit_length() slots.
    """
    n_bits = np.int64(0)
    while n_bits < _MOST_SLOT_BITS and (n_bytes >> n_bits) > 0:
        n_bits += 1
    mask = np.uint32((1 << n_bits) - 1)
    page = np.uint64(address) >> np.uint64(_PAGE_BITS)
    place = np.int64(0)
    while place < _N_PLACES - 1 and not _is_suitable(page + np.uint64(place), firsts, mask):
        place += 1
    return place


@driver
def deflate(data, n_bytes, level, work, out, start, end):
    """Write the bytes at an address as a raw deflate stream into ``out[start:end]``.

    Parameters
    ----------
    data, n_bytes
        Address and number of bytes, at most 64 kB.
    level
        0 to 3.
    work
        From :func:`workspace`.

    Returns
    -------
    Number of bytes written; -1 if there is not enough room.
    """
    firsts = work.view(np.uint64)[: -(-n_bytes // _WINDOW_BYTES)]
    for window in range(len(firsts)):
        at = window * _WINDOW_BYTES
        firsts[window] = 0
        _copy(
            np.uintp(firsts[window:].ctypes.data), np.uintp(data + at),
            np.uintp(min(n_bytes - at, 8)),
        )  # fmt: skip
    start_of_state = _place_of_state(work.ctypes.data, firsts, n_bytes) << _PAGE_BITS
    room = work[start_of_state:]
    state = room.ctypes.data
    _deflate_init(np.uintp(state))
    # struct isal_zstream: next_in, avail_in, next_out, avail_out, level, level_buf_size,
    # level_buf, end_of_stream.
    words, halves = room.view(np.uint64), room.view(np.uint32)
    words[0] = data
    halves[2] = n_bytes
    words[2] = out.ctypes.data + start
    halves[6] = end - start
    halves[10] = level
    halves[11] = _LEVEL_BYTES
    words[6] = state + _STATE_BYTES
    room.view(np.uint16)[28] = 1
    if _deflate(np.uintp(state)) != 0:
        return np.int64(-1)
    return np.int64(halves[7])  # total_out


@driver
def inflate(data, n_bytes, work, out, n_plain, whole=False):
    """Decompress the raw deflate stream at an address to the address `out`.

    Returns
    -------
    True if it holds exactly `n_plain` bytes and, with `whole`, ends with the last of `n_bytes`.
    """
    state = work.ctypes.data
    _inflate_init(np.uintp(state))
    # struct inflate_state: next_out, avail_out, total_out, next_in, avail_in.
    words, halves = work.view(np.uint64), work.view(np.uint32)
    words[0] = out
    halves[2] = n_plain
    words[2] = data
    halves[8] = n_bytes
    good = _inflate(np.uintp(state)) == 0 and halves[3] == n_plain
    return good and (halves[8] == 0 or not whole)


@cache
def usable() -> bool:
    """Return True if the functions exist and pass one trial in this process against zlib.

    The structs are those of ISA-L 2.x. Another version may have another layout, and output is not
    read again before the user does.
    """
    if not AVAILABLE:
        return False
    plain = np.frombuffer(bytes(range(256)) * 16, np.uint8)
    packed, again, work = np.empty(8192, np.uint8), np.empty_like(plain), workspace()
    size = deflate(plain.ctypes.data, len(plain), 1, work, packed, 0, len(packed))
    unpacker = zlib.decompressobj(-15)
    try:
        good = unpacker.decompress(packed[: max(size, 0)].tobytes()) == plain.tobytes()
    except zlib.error:
        good = False
    good = (
        good
        and unpacker.eof
        and bool(inflate(packed.ctypes.data, size, work, again.ctypes.data, len(plain), True))
        and not inflate(packed.ctypes.data, size + 1, work, again.ctypes.data, len(plain), True)
        and bool((again == plain).all())
        and int(crc32(plain.ctypes.data, len(plain))) == zlib.crc32(plain.tobytes())
    )
    if not good:
        log.warning("isal's ISA-L is of an unknown version; its Python functions are used, slower")
    return good
