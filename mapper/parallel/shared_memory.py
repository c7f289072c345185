"""Memory that processes share, and objects whose arrays lie in it.

A segment is an anonymous file of the system's memory (memfd) that each process maps. Its descriptor
goes over the connection that the processes have (:mod:`mapper.parallel.remote_calls`), so there is
no name that could outlive them, and no limit of ``/dev/shm``. An object is sent as a pickle without
its arrays' contents: these are where they are, or copied to a segment.
"""

from __future__ import annotations

import bisect
import mmap
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from mapper.parallel.buffers import LEAST_BYTES, Recycler

INLINE_BYTES = 1 << 12
"""Arrays of fewer bytes go with the pickle."""

MOST_UNUSED = 1 << 32
"""Bytes of segments for copies that are kept while nothing uses them."""


class Key(NamedTuple):
    """Name of a segment among the processes that share it."""

    owner: int  # number of the process that has made it
    number: int


class Place(NamedTuple):
    """Where bytes lie."""

    key: Key
    start: int
    n_bytes: int


class Packed(NamedTuple):
    """An object, without what its arrays hold."""

    pickled: bytes
    arrays: list[Place | bytes]


class _Pages:
    """Owns the mapping of a segment; arrays refer to it."""

    def __init__(self, descriptor: int, n_bytes: int) -> None:
        pages = mmap.mmap(descriptor, n_bytes)
        with suppress(OSError):  # of a system without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
        self._memory = np.frombuffer(pages, np.uint8)
        self.__array_interface__ = self._memory.__array_interface__


class _Lent:
    """A view of a segment that keeps an object as long as there is an array of it."""

    def __init__(self, address: int, n_bytes: int, *kept: Any) -> None:
        self._kept = kept
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": (n_bytes,), "typestr": "|u1", "data": (address, False),
        }  # fmt: skip


class SharedMemory:
    """The segments of this process and of those that it shares memory with.

    Parameters
    ----------
    number
        Of this process, another for each.
    announce
        Called with the key, the bytes and the descriptor of a new segment, which is closed
        afterwards: to tell the other processes.
    withdraw
        Called with the keys of own segments that have been freed.
    """

    def __init__(
        self, number: int, announce: Callable[[Key, int, int], None],
        withdraw: Callable[[Sequence[Key]], None],
    ) -> None:  # fmt: skip
        self._number, self._announce, self._withdraw = number, announce, withdraw
        self._lock = threading.Lock()
        self._n_made = 0
        self._starts: list[int] = []  # addresses of all segments that are mapped, ascending
        self._at: dict[int, tuple[Key, int]] = {}  # key and bytes of each, by its address
        self._address: dict[Key, int] = {}
        self._foreign: dict[Key, np.ndarray] = {}
        self._freed: deque[Key] = deque()  # own segments, noted by whichever thread
        self.copies = Recycler(self.allocate, MOST_UNUSED)
        """Memory of segments, for arrays that are to be sent."""

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Return a new segment (uint8); OSError if the system has too little memory."""
        descriptor = os.memfd_create("fmwave")
        try:
            os.ftruncate(descriptor, n_bytes)
            with self._lock:
                key = Key(self._number, self._n_made)
                self._n_made += 1
            pages = _Pages(descriptor, n_bytes)
            memory = np.asarray(pages)
            self._note(memory, key)
            # Whichever thread drops the last array may hold any lock: it only notes that.
            finalize(pages, self._freed.append, key).atexit = False
            self._announce(key, n_bytes, descriptor)
        finally:
            os.close(descriptor)
        return memory

    def attach(self, key: Key, n_bytes: int, descriptor: int) -> None:
        """Map another process's segment; the caller closes the descriptor."""
        memory = np.asarray(_Pages(descriptor, n_bytes))
        self._note(memory, key)
        with self._lock:
            self._foreign[key] = memory

    def detach(self, key: Key) -> None:
        """Let a segment go whose owner has freed it; arrays that are in use keep it."""
        with self._lock:
            self._drop(key)
            del self._foreign[key]

    def place_of(self, array: np.ndarray) -> Place | None:
        """Return where a contiguous array lies; None if that is not in a segment."""
        self._forget_freed()
        address = array.__array_interface__["data"][0]
        with self._lock:
            i = bisect.bisect_right(self._starts, address) - 1
            if i < 0:
                return None
            start = self._starts[i]
            key, n_bytes = self._at[start]
        if address + array.nbytes > start + n_bytes:
            return None
        return Place(key, address - start, array.nbytes)

    def pack(self, thing: Any) -> tuple[Packed, list[Any]]:
        """Take an object apart.

        Returns
        -------
        The packed object, and what must be kept until the receiver needs it no more.
        """
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
        kept: list[Any] = [thing]
        arrays: list[Place | bytes] = []
        for buffer in buffers:
            raw = buffer.raw()
            array = np.frombuffer(raw, np.uint8) if raw.nbytes else np.empty(0, np.uint8)
            place = self.place_of(array) if raw.nbytes else None
            if place is None and raw.nbytes < INLINE_BYTES:
                arrays.append(bytes(raw))
                continue
            if place is None:
                # The recycler leaves fewer bytes to ordinary memory.
                copy = self.copies.empty(max(raw.nbytes, LEAST_BYTES))[: raw.nbytes]
                copy[:] = array
                kept.append(copy)
                place = self.place_of(copy)
                assert place is not None
            arrays.append(place)
        return Packed(pickled, arrays), kept

    def unpack(self, packed: Packed, owner: Any) -> Any:
        """Put an object together; its arrays keep `owner` as long as there is one of them."""
        lent: dict[Key, np.ndarray] = {}
        buffers: list[Any] = []
        for place in packed.arrays:
            if isinstance(place, bytes):
                buffers.append(bytearray(place))  # arrays may be written to
                continue
            if place.key not in lent:
                lent[place.key] = np.asarray(self._lend(place.key, owner))
            buffers.append(lent[place.key][place.start : place.start + place.n_bytes])
        return pickle.loads(packed.pickled, buffers=buffers)

    def _lend(self, key: Key, owner: Any) -> _Lent:
        with self._lock:
            address = self._address[key]
            # Of an own segment the owner keeps what was sent.
            return _Lent(address, self._at[address][1], owner, self._foreign.get(key))

    def _note(self, memory: np.ndarray, key: Key) -> None:
        self._forget_freed()  # one of them may have had this address
        with self._lock:
            address = memory.ctypes.data
            bisect.insort(self._starts, address)
            self._at[address] = key, len(memory)
            self._address[key] = address

    def _drop(self, key: Key) -> None:
        address = self._address.pop(key)
        self._starts.remove(address)
        del self._at[address]

    def _forget_freed(self) -> None:
        """Drop the own segments of which no array is left."""
        if not self._freed:
            return
        freed: list[Key] = []
        with self._lock:
            while self._freed:
                freed.append(self._freed.popleft())
                self._drop(freed[-1])
        self._withdraw(freed)
