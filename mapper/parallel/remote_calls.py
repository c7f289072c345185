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
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, NamedTuple

from mapper.errors import ResourceError
from mapper.parallel.pool import start_daemon
from mapper.parallel.process import package_environment
from mapper.parallel.shared_memory import Key, Packed, SharedMemory

log = logging.getLogger(__name__)

_HEADER = struct.Struct("<QB")  # bytes of the message, and whether a descriptor comes with it

_STDERR = 2

ENDING_SECONDS = 5.0
"""How long a server may take to end before it is killed."""


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


class Connection:
    """Messages between two processes, in order; any thread sends, one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()

    def send(self, message: Any, descriptor: int | None = None) -> None:
        """Send a message, with a descriptor of a file if there is one; OSError if it cannot be."""
        body = pickle.dumps(message, protocol=5)
        head = _HEADER.pack(len(body), descriptor is not None)
        with self._sending:
            if descriptor is None:
                self._end.sendall(head + body)
                return
            socket.send_fds(self._end, [head[:1]], [descriptor])
            self._end.sendall(head[1:] + body)

    def receive(self) -> tuple[Any, int | None]:
        """Return the next message and its descriptor, which the caller closes; EOFError at the end.

        The arrays of packed objects are not touched.
        """
        first, descriptors, _, _ = socket.recv_fds(self._end, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not first:
            raise EOFError
        n_bytes, has_descriptor = _HEADER.unpack(first + self._bytes(_HEADER.size - 1))
        message = pickle.loads(self._bytes(n_bytes))
        return message, descriptors[0] if has_descriptor else None

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
        """End the connection; a thread that receives finds its end."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


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
        self._said: Counter[Log] = Counter()  # messages that have been logged
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
        """Send a message to all but the one that it comes from."""
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

    def say(self, message: Log, n_times: int) -> None:
        """Log what a server says for so many times, unless another has said it as often."""
        with self._saying:
            is_new = n_times > self._said[message]
            self._said[message] += is_new
        if is_new:
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
        self._group = group
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = itertools.count()
        self._unused: deque[int] = deque()
        self._said: Counter[Log] = Counter()
        self._lock = threading.Lock()
        self._ended: Exception | None = None
        own, other = socket.socketpair()
        with other:
            self._connection = Connection(own)
            command = [sys.executable, "-P", "-m", module, str(other.fileno()), str(number)]
            try:
                self._process = subprocess.Popen(
                    [*command, *arguments],
                    env=package_environment(), pass_fds=[other.fileno()],
                    stdin=subprocess.DEVNULL, stdout=_STDERR,  # stdout may be the run's output
                )  # fmt: skip
            except OSError as error:
                self._connection.close()
                raise ResourceError(f"no process can be started for {name}: {error}") from error
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
        """Send a message; one to a process that has ended is lost, which the reader finds."""
        with suppress(OSError):
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
        try:
            while True:
                self._take(*self._connection.receive())
        except (EOFError, OSError):
            error = self._ended_by(self._process.wait())
        except Exception as bug:
            self._process.kill()
            error = ResourceError(
                f"the process of {self.name} said what is not understood ({bug!r}); this is a bug "
                "in fmwave, please report it"
            )
        self._end_with(error)

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
            owner = _Result(message.number, self._unused, waiting.kept)
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
            self._said[message] += 1
            self._group.say(message, self._said[message])
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
        with suppress(OSError):  # it has ended, which the thread that receives finds
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
            log.debug("%s: %s", call.name, error, exc_info=True)
            found, failed = error, True
        try:
            packed, kept = self.memory.pack(found)
        except Exception as error:  # of something that cannot be pickled
            packed, kept = self.memory.pack(ResourceError(f"{call.name}: {error!r}"))
            failed = True
        self._results[call.number] = kept
        with suppress(OSError):  # as above
            self._connection.send(Answer(call.number, packed, failed))
