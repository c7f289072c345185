"""Calls of functions in another process, whose arrays are not copied where both share their memory.

One process, the caller, starts the other, which serves: any threads call, and threads there compute
and answer. Both tell each other of segments of shared memory (:mod:`mapper.parallel.shared_memory`)
before anything refers to them.

A result lies in the server's memory until none of its arrays is used any more by the caller, which
says so with its next call; the arguments of a call stay where they are until it has been answered.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

from mapper.errors import ResourceError
from mapper.parallel.pool import start_daemon
from mapper.parallel.process import package_environment
from mapper.parallel.shared_memory import Key, Packed, SharedMemory
from mapper.parallel.signals import STOPPING

log = logging.getLogger(__name__)

_HEADER = struct.Struct("<QB")  # bytes of the message, and whether a descriptor comes with it

_STDERR = 2

ENDING_SECONDS = 5.0
"""How long a server may take to end before it is killed."""


SAME_SECONDS = 60.0
"""How long a message of one server is not repeated for another."""


# --- messages ---


class NewSegment(NamedTuple):
    """There is a segment; its descriptor comes with the message."""

    key: Key
    n_bytes: int


class FreedSegments(NamedTuple):
    """The owner of these segments has freed them."""

    keys: Sequence[Key]


class Call(NamedTuple):
    """A function is to be called."""

    number: int
    name: str
    arguments: Packed
    unused: Sequence[int]
    """Numbers of calls whose results are not used any more."""


class Answer(NamedTuple):
    """What a call has returned or raised."""

    number: int
    result: Packed
    failed: bool


class Log(NamedTuple):
    """A message for the user."""

    level: int
    text: str


class _Letter(NamedTuple):
    """A message on its way."""

    data: bytes
    descriptor: int | None  # to be closed once it is sent


class Connection:
    """Messages between two processes, in order; any thread sends, one receives.

    A thread of its own sends: nobody who receives, or holds a lock, ever waits for the other
    process to read, and no signal interrupts a message.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._is_closed = False
        self._letters: SimpleQueue[_Letter | None] = SimpleQueue()
        self._sender = start_daemon(self._send_all, "messages")

    def send(self, message: Any, descriptor: int | None = None) -> None:
        """Send a message, with a copy of a file's descriptor if there is one.

        It is lost if the other process has ended, which the thread that receives finds.
        """
        if self._is_closed:
            return
        body = pickle.dumps(message, protocol=5)
        copy = None if descriptor is None else os.dup(descriptor)
        self._letters.put(_Letter(_HEADER.pack(len(body), copy is not None) + body, copy))

    def _send_all(self) -> None:
        is_open = True
        while (letter := self._letters.get()) is not None:
            data = memoryview(letter.data)
            try:
                if is_open and letter.descriptor is not None:
                    socket.send_fds(self._end, [data[:1]], [letter.descriptor])
                    data = data[1:]
                if is_open:
                    self._end.sendall(data)
            except OSError:
                is_open = False
            finally:
                if letter.descriptor is not None:
                    os.close(letter.descriptor)

    def receive(self) -> tuple[Any, int | None]:
        """Return the next message and its descriptor, which the caller closes; EOFError at the end.

        The arrays of packed objects are not touched.
        """
        first, descriptors, _, _ = socket.recv_fds(self._end, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not first:
            raise EOFError
        n_bytes, has_descriptor = _HEADER.unpack(first + self._bytes(_HEADER.size - 1))
        message = pickle.loads(self._bytes(n_bytes))
        if not has_descriptor:
            return message, None
        if not descriptors:  # this process may open no more files
            raise _NoDescriptorError
        return message, descriptors[0]

    def _bytes(self, n: int) -> bytearray:
        data = bytearray(n)
        view = memoryview(data)
        while view:
            n_received = self._end.recv_into(view)
            if n_received == 0:
                raise EOFError
            view = view[n_received:]
        return data

    def close(self) -> None:
        """End the connection; what has not been sent is lost, and who receives finds its end."""
        self._is_closed = True
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._letters.put(None)
        self._sender.join()
        self._end.close()


class _NoDescriptorError(Exception):
    """The system has dropped a descriptor."""

    def __init__(self) -> None:
        super().__init__("too many open files (ulimit -n says how many there may be)")


# --- the caller ---


class _Waiting(NamedTuple):
    answer: Future[Any]
    kept: Sequence[Any]  # the arguments, where the server reads them


class _Result:
    """Stands for what arrays of a result need; the last of them to go notes its number."""

    def __init__(self, number: int, unused: deque[int], kept: Sequence[Any]) -> None:
        self._number, self._unused, self._kept = number, unused, kept

    def __del__(self) -> None:
        self._unused.append(self._number)  # atomic: any thread may be here at any time


class Servers:
    """Processes that serve calls, all of one kind, and the memory that they share with this one.

    Parameters
    ----------
    module
        Run by each as its main program, with the number of a descriptor, then its arguments.
    arguments
        Of each process, and its name for messages.
    """

    def __init__(self, module: str, arguments: Sequence[tuple[Sequence[str], str]]) -> None:
        self.memory = SharedMemory(0, self._announce, self._withdraw)
        self.servers: list[Server] = []
        self._said: dict[Log, tuple[Server, float]] = {}  # the last messages: by whom, and when
        self._saying = threading.Lock()
        try:
            for number, (own, name) in enumerate(arguments, 1):
                self.servers.append(Server(module, number, own, name, self))
        except BaseException:
            self.close()
            raise
        for server in self.servers:  # all are there before one says anything of its memory
            server.start_receiving()

    def _announce(self, key: Key, n_bytes: int, descriptor: int) -> None:
        self._tell(NewSegment(key, n_bytes), descriptor, None)

    def _withdraw(self, keys: Sequence[Key]) -> None:
        self._tell(FreedSegments(keys), None, None)

    def _tell(self, message: Any, descriptor: int | None, source: Server | None) -> None:
        """Send a message to every server except `source`."""
        for server in self.servers:
            if server is not source:
                server.tell(message, descriptor)

    def relay(self, message: NewSegment | FreedSegments, at: int | None, source: Server) -> None:
        """Take note of what a server says of its segments, and tell the others.

        Of a new one these are told first: a call of another thread may refer to it at once.
        """
        self._tell(message, at, source)
        if isinstance(message, NewSegment):
            assert at is not None
            self.memory.attach(message.key, message.n_bytes, at)
        else:
            for key in message.keys:
                self.memory.detach(key)

    def say(self, message: Log, source: Server) -> None:
        """Log what a server says, unless another has just said the same."""
        now = time.monotonic()
        with self._saying:
            recent = {
                said: (server, when) for said, (server, when) in self._said.items()
                if now - when < SAME_SECONDS
            }  # fmt: skip
            server, _ = recent.get(message, (source, now))
            if server is source:
                recent[message] = source, now
            self._said = recent
        if server is source:
            log.log(message.level, "%s", message.text)

    def close(self) -> None:
        """End all processes; calls that have not been answered fail."""
        for server in self.servers:
            server.begin_closing()
        for server in self.servers:
            server.close()


class Server:
    """One of :class:`Servers`."""

    def __init__(
        self, module: str, number: int, arguments: Sequence[str], name: str, group: Servers
    ) -> None:
        self.name = name
        self._number = number
        self._group = group
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = itertools.count()
        self._unused: deque[int] = deque()
        self._lock = threading.Lock()
        self._ended: Exception | None = None
        own, other = socket.socketpair()
        with other:
            self._connection = Connection(own)
            command = [sys.executable, "-P", "-m", module, str(other.fileno()), str(number)]
            # The new process inherits what is blocked, until it ignores these signals.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            try:
                self._process = subprocess.Popen(
                    [*command, *arguments],
                    env=package_environment(), pass_fds=[other.fileno()],
                    stdin=subprocess.DEVNULL, stdout=_STDERR,  # stdout may be the run's output
                )  # fmt: skip
            except OSError as error:
                self._connection.close()
                raise ResourceError(f"no process can be started for {name}: {error}") from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._reader: threading.Thread | None = None

    def start_receiving(self) -> None:
        """Start the thread that takes answers."""
        self._reader = start_daemon(self._receive, f"answers of {self.name}")

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of the server; return what it returns, or raise what it raises.

        Raises
        ------
        ResourceError
            If the process ends before it has answered.
        """
        return self.begin(function, *arguments).result()

    def begin(self, function: str, *arguments: Any) -> Future[Any]:
        """Begin a call; return the future of its result."""
        try:
            packed, kept = self._group.memory.pack(arguments)
        except OSError as error:
            raise ResourceError(f"no memory to share with {self.name}: {error}") from error
        number = next(self._numbers)
        answer: Future[Any] = Future()
        unused = []
        while self._unused:
            with suppress(IndexError):  # another thread takes them, too
                unused.append(self._unused.popleft())
        with self._lock:
            if self._ended is not None:
                raise self._ended
            self._waiting[number] = _Waiting(answer, kept)
        self.tell(Call(number, function, packed, unused), None)
        return answer

    def tell(self, message: Any, descriptor: int | None) -> None:
        """Send a message: see :meth:`Connection.send`."""
        self._connection.send(message, descriptor)

    def begin_closing(self) -> None:
        """Have the process end."""
        self._end_with(ResourceError(f"the process of {self.name} has been ended"))
        self._connection.close()

    def close(self) -> None:
        """Wait until the process has ended."""
        try:
            self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()

    def _receive(self) -> None:
        while True:
            try:
                message, descriptor = self._connection.receive()
            except (EOFError, OSError):
                error = self._ended_by(self._process.wait())
                break
            except Exception as found:
                error = self._given_up(found)
                break
            try:
                self._take(message, descriptor)
            except Exception as found:
                error = self._given_up(found)
                break
        self._end_with(error)

    def _given_up(self, error: Exception) -> ResourceError:
        """End a process whose message could not be taken."""
        log.debug("%s", error, exc_info=error)
        self._process.kill()
        return ResourceError(
            f"what the process of {self.name} said could not be taken, so it has been ended: "
            f"{type(error).__name__}: {error}"
        )

    def _ended_by(self, code: int) -> ResourceError:
        how = f"by signal {-code}" if code < 0 else f"with exit status {code}"
        return ResourceError(
            f"the process of {self.name} has ended {how}; what it said is above. If the system was "
            "out of memory, give more, or fewer devices"
        )

    def _take(self, message: Any, descriptor: int | None) -> None:
        if isinstance(message, Answer):
            with self._lock:
                if message.number not in self._waiting:  # this process is closing
                    return
                waiting = self._waiting.pop(message.number)
            # What was sent is needed no more, unless the result lies in it.
            own = all(
                isinstance(place, bytes) or place.key.owner == self._number
                for place in message.result.arrays
            )
            owner = _Result(message.number, self._unused, () if own else waiting.kept)
            try:
                found = self._group.memory.unpack(message.result, owner)
            except Exception as error:
                waiting.answer.set_exception(error)
                return
            if message.failed:
                waiting.answer.set_exception(found)
            else:
                waiting.answer.set_result(found)
        elif isinstance(message, Log):
            self._group.say(message, self)
        else:
            try:
                self._group.relay(message, descriptor, self)
            finally:
                if descriptor is not None:
                    os.close(descriptor)

    def _end_with(self, error: Exception) -> None:
        with self._lock:
            if self._ended is None:
                self._ended = error
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for call in waiting:
            call.answer.set_exception(error)


# --- the server ---


def leave_signals_to_caller() -> None:
    """Ignore the signals that end runs: the caller gets them too, and ends its servers."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


class ServedConnection:
    """A server's side of the connection.

    Parameters
    ----------
    descriptor
        Of the socket that the caller has passed on.
    number
        Of this process.
    """

    def __init__(self, descriptor: int, number: int) -> None:
        self._connection = Connection(socket.socket(fileno=descriptor))
        self._results: dict[int, Sequence[Any]] = {}
        self.memory = SharedMemory(number, self._announce, self._withdraw)

    def _announce(self, key: Key, n_bytes: int, descriptor: int) -> None:
        self._connection.send(NewSegment(key, n_bytes), descriptor)

    def _withdraw(self, keys: Sequence[Key]) -> None:
        self._connection.send(FreedSegments(keys))

    def say(self, level: int, text: str) -> None:
        """Have the caller log a message."""
        self._connection.send(Log(level, text))

    def serve(self, functions: Mapping[str, Callable[..., Any]], executor: Executor) -> None:
        """Answer calls until the caller closes the connection.

        Parameters
        ----------
        functions
            What can be called, by name.
        executor
            Its threads call them.
        """
        while True:
            try:
                message, descriptor = self._connection.receive()
            except (EOFError, OSError):
                return
            if isinstance(message, NewSegment):
                assert descriptor is not None
                self.memory.attach(message.key, message.n_bytes, descriptor)
                os.close(descriptor)
            elif isinstance(message, FreedSegments):
                for key in message.keys:
                    self.memory.detach(key)
            else:
                for number in message.unused:
                    self._results.pop(number)
                executor.submit(self._answer, functions[message.name], message)

    def _answer(self, function: Callable[..., Any], call: Call) -> None:
        failed = False
        try:
            found = function(*self.memory.unpack(call.arguments, None))
        except BaseException as error:
            error.add_note(f"In the process {os.getpid()}:\n{traceback.format_exc()}")
            found, failed = error, True
        try:
            packed, kept = self.memory.pack(found)
        except Exception as error:  # of something that cannot be pickled
            packed, kept = self.memory.pack(ResourceError(f"{call.name}: {error!r}"))
            failed = True
        self._results[call.number] = kept
        self._connection.send(Answer(call.number, packed, failed))
