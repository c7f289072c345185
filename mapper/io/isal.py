"""ISA-L's deflate and inflate, called by compiled code: many blocks without Python between them.

The package isal calls ISA-L for one block at a time. At a few hundred thousand blocks a second,
on many cores, Python's lock would pass between the threads more often than it can. The C
functions that it was built with stand in its extension module (or in the libisal that this is
linked to), under the names and with the structs of ``igzip_lib.h`` 2.x; here they are declared
to numba. Where they cannot be found, where numba's JIT is off, and where they do not do what zlib
does, :func:`usable` is false and callers do the same by isal's Python functions, a block at a time.

ISA-L's deflate of level 1 for x86 (in isal 1.9 at least) puts the third position of its input
into a slot of its hash table that it makes from the address of its state, not from the bytes there.
Where that is the slot of one of the first three positions, matches with them are found or missed.
The stream is right, but its bytes depend on where the state lies: between two runs one block in
some 20 000 differed. :func:`deflate` puts its state elsewhere then.
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

_STATE_BYTES = 1 << 17  # isal_zstream and inflate_state have less than 90 kB
_LEVEL_BYTES = 1 << 19  # what any level takes, for blocks of 64 kB
_PAGE_BITS = 16  # of an address, that its hash leaves out
_N_PLACES = 6  # for the state; that none is good is as likely as 1e-18
WORK_BYTES = ((_N_PLACES - 1) << _PAGE_BITS) + _STATE_BYTES + _LEVEL_BYTES

_SLOT_BITS = 12
"""Of a hash, that are looked at: no level has a smaller table."""

_CASTAGNOLI = 0x82F63B78  # CRC-32C, lowest bit first

_SIGNATURES = {
    "isal_deflate_stateless_init": types.void(types.uintp),
    "isal_deflate_stateless": types.int32(types.uintp),
    "isal_inflate_init": types.void(types.uintp),
    "isal_inflate_stateless": types.int32(types.uintp),
    "crc32_gzip_refl": types.uint32(types.uint32, types.uintp, types.uint64),
}
_OF_THREAD: Any = threading.local()
_PREFIX = "fmwave_"  # another copy of ISA-L in the process must not answer


def _declare() -> bool:
    """Make the functions known to LLVM by their addresses; say whether all are there."""
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


def work_space() -> np.ndarray:
    """Return the work space that calls of functions here need: that of this thread."""
    try:
        return _OF_THREAD.work
    except AttributeError:
        _OF_THREAD.work = np.empty(WORK_BYTES, np.uint8)
        return _OF_THREAD.work


@driver
def crc32(address, n_bytes):
    """Return the CRC-32 of gzip of the bytes at an address."""
    return _crc32(np.uint32(0), np.uintp(address), np.uint64(n_bytes))


@core
def _slot(word):
    """Return the lowest bits of ISA-L's hash of 4 bytes: their CRC-32C, from 0, not inverted."""
    crc = np.uint32(word & np.uint64(0xFFFFFFFF))
    for _ in range(32):
        odd = crc & np.uint32(1)
        crc = np.uint32(crc >> np.uint32(1))
        if odd:
            crc = np.uint32(crc ^ np.uint32(_CASTAGNOLI))
    return crc & np.uint32((1 << _SLOT_BITS) - 1)


@core
def _place_of_state(address, first):
    """Return which place of the work space at an address has a state that nothing depends on.

    Parameters
    ----------
    first
        The first 8 bytes of the input, uint64.
    """
    slot0 = _slot(first)
    slot1 = _slot(first >> np.uint64(8))
    slot2 = _slot(first >> np.uint64(16))
    place = np.int64(0)
    while place < _N_PLACES - 1:
        slot = _slot((np.uint64(address) >> np.uint64(_PAGE_BITS)) + np.uint64(place))
        if slot != slot0 and slot != slot1 and slot != slot2:
            break
        place += 1
    return place


@driver
def deflate(data, n_bytes, level, work, out, start, end):
    """Write the bytes at an address as a raw deflate stream into ``out[start:end]``.

    Parameters
    ----------
    data, n_bytes
        Address, and how many bytes; at most 64 kB.
    level
        0 to 3.
    work
        From :func:`work_space`.

    Returns
    -------
    How many bytes were written; -1 if there was no room for them.
    """
    words = work.view(np.uint64)
    words[0] = 0
    _copy(np.uintp(work.ctypes.data), np.uintp(data), np.uintp(min(n_bytes, 8)))
    start_of_state = _place_of_state(work.ctypes.data, words[0]) << _PAGE_BITS
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
def inflate(data, n_bytes, work, out, n_plain):
    """Unpack the raw deflate stream at an address into `out`, an address too.

    Returns
    -------
    Whether it gave `n_plain` bytes, no more and no fewer.
    """
    state = work.ctypes.data
    _inflate_init(np.uintp(state))
    # struct inflate_state: next_out, avail_out, total_out, next_in, avail_in.
    words, halves = work.view(np.uint64), work.view(np.uint32)
    words[0] = out
    halves[2] = n_plain
    words[2] = data
    halves[8] = n_bytes
    return _inflate(np.uintp(state)) == 0 and halves[3] == n_plain


@cache
def usable() -> bool:
    """Whether the functions are there and, tried once in a process, do what zlib does.

    The structs are those of ISA-L 2.x. Another version may lay them out otherwise, and what is
    written here is not read again before a user does.
    """
    if not AVAILABLE:
        return False
    plain = np.frombuffer(bytes(range(256)) * 16, np.uint8)
    packed, again, work = np.empty(8192, np.uint8), np.empty_like(plain), work_space()
    size = deflate(plain.ctypes.data, len(plain), 1, work, packed, 0, len(packed))
    unpacker = zlib.decompressobj(-15)
    try:
        good = unpacker.decompress(packed[: max(size, 0)].tobytes()) == plain.tobytes()
    except zlib.error:
        good = False
    good = (
        good
        and unpacker.eof
        and bool(inflate(packed.ctypes.data, size, work, again.ctypes.data, len(plain)))
        and bool((again == plain).all())
        and int(crc32(plain.ctypes.data, len(plain))) == zlib.crc32(plain.tobytes())
    )
    if not good:
        log.warning("isal's ISA-L is of an unknown version; its Python functions are used, slower")
    return good
