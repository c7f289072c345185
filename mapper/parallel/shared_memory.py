"""Memory that processes share, and objects whose arrays lie in it.

A segment is an anonymous file of the system's memory (memfd) that each process maps. Its descriptor
goes over the connection that the processes have (:mod:`mapper.parallel.remote_calls`), so there is
no name that could outlive them, and no limit of ``/dev/shm``. An object is sent as a pickle without
its arrays' contents: these are where they are, or copied to a segment.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mapper.parallel.buffers import LEAST_BYTES, Recycler

Thing = TypeVar("Thing")

INLINE_BYTES = 1 << 12
"""Arrays of fewer bytes go with the pickle."""

MOST_UNUSED = 1 << 32
"""Bytes of segments for copies that are kept while nothing uses them."""

_ALIGNED = 64
_EMPTY = np.empty(0, np.uint8)


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


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t,
]  # fmt: skip
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class _Pages:
    """Owns the mapping of a segment; arrays refer to it.

    Python's own mmap would keep a descriptor for each, of which a process may have a thousand.
    """

    def __init__(self, descriptor: int, n_bytes: int) -> None:
        self._ended: tuple[deque[Key], Key] | None = None
        access = mmap.PROT_READ | mmap.PROT_WRITE
        address = _LIBC.mmap(None, n_bytes, access, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._mapped = address, n_bytes
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": (n_bytes,), "typestr": "|u1", "data": (address, False),
        }  # fmt: skip

    def note_end(self, freed: deque[Key], key: Key) -> None:
        """Append the key when no array is left, before another mapping can have the address."""
        self._ended = freed, key

    def __del__(self) -> None:
        if self._ended is not None:
            freed, key = self._ended
            freed.append(key)  # atomic: any thread may be here at any time
        if hasattr(self, "_mapped"):
            _LIBC.munmap(*self._mapped)


class _Lent:
    """A view of a segment that keeps an object as long as there is an array of it."""

    def __init__(self, address: int, n_bytes: int, *kept: Any) -> None:
        self._kept = kept
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "shape": (n_bytes,), "typestr": "|u1", "data": (address, False),
        }  # fmt: skip


class SharedMemory:
    """The segments that a process has mapped: its own, and those of other processes.

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
        self._withdrawn: list[Key] = []  # and dropped here; the others are to be told
        self.copies = Recycler(self.allocate, MOST_UNUSED)
        """Memory of segments, for arrays that are to be sent."""

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Return a new segment (uint8); OSError if there can be no more.

        The system finds its pages when they are first written to.
        """
        descriptor = os.memfd_create("fmwave")
        try:
            os.ftruncate(descriptor, n_bytes)
            with self._lock:
                key = Key(self._number, self._n_made)
                self._n_made += 1
            pages = _Pages(descriptor, n_bytes)
            memory = np.asarray(pages)
            self._note(memory, key)
            pages.note_end(self._freed, key)
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
            memory = self._foreign.pop(key, None)
            if memory is None:  # its owner was interrupted before it had told of it
                return
            self._drop(key)
        del memory  # which may take a while

    def place_of(self, array: np.ndarray) -> Place | None:
        """Return where a contiguous array lies; None if that is not in a segment."""
        address = array.__array_interface__["data"][0]
        with self._lock:
            self._drop_freed()
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
        self.forget_freed()
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
        arrays = [np.frombuffer(raw, np.uint8) if raw.nbytes else _EMPTY
                  for raw in (buffer.raw() for buffer in buffers)]  # fmt: skip
        places: list[Place | bytes | None] = [
            array.tobytes() if array.nbytes < INLINE_BYTES and place is None else place
            for array, place in zip(arrays, map(self.place_of, arrays), strict=True)
        ]
        # What is in no segment goes to one of its own, together.
        copied = [i for i, place in enumerate(places) if place is None]
        starts = np.cumsum([0, *(-(-arrays[i].nbytes // _ALIGNED) * _ALIGNED for i in copied)])
        room = self.copies.empty(max(int(starts[-1]), LEAST_BYTES)) if copied else _EMPTY
        for i, start in zip(copied, starts.tolist(), strict=False):
            part = room[start : start + arrays[i].nbytes]
            part[:] = arrays[i]
            places[i] = self.place_of(part)
        return Packed(pickled, [place for place in places if place is not None]), [thing, room]

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

    def shared(self, thing: Thing) -> Thing:
        """Return an object whose large arrays are copies in segments."""
        packed, kept = self.pack(thing)
        copy: Thing = self.unpack(packed, kept[1:])
        return copy

    def _lend(self, key: Key, owner: Any) -> _Lent:
        with self._lock:
            address = self._address[key]
            # Of an own segment the owner keeps what was sent.
            return _Lent(address, self._at[address][1], owner, self._foreign.get(key))

    def _note(self, memory: np.ndarray, key: Key) -> None:
        with self._lock:
            self._drop_freed()  # one of them may have had this address
            address = memory.ctypes.data
            bisect.insort(self._starts, address)
            self._at[address] = key, len(memory)
            self._address[key] = address

    def _drop(self, key: Key) -> None:
        address = self._address.pop(key)
        self._starts.remove(address)
        del self._at[address]

    def _drop_freed(self) -> None:
        """Drop the own segments of which no array is left; with the lock held."""
        while self._freed:
            key = self._freed.popleft()
            self._drop(key)
            self._withdrawn.append(key)

    def forget_freed(self) -> None:
        """Tell the other processes of the own segments of which no array is left."""
        with self._lock:
            self._drop_freed()
            withdrawn, self._withdrawn = self._withdrawn, []
        if withdrawn:
            self._withdraw(withdrawn)
