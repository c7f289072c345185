"""A process that serves calls, for tests of these and of what is compressed by them."""

from __future__ import annotations

import logging
import os
import sys
import time

import numpy as np

from mapper.errors import InputFormatError
from mapper.io.bgzf import Spans, compressor
from mapper.parallel.pool import thread_pool
from mapper.parallel.remote_calls import ServedConnection, leave_signals_to_caller


def main() -> None:
    leave_signals_to_caller()
    descriptor, number, *said = sys.argv[1:]
    connection = ServedConnection(int(descriptor), int(number))

    def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def give(thing: object) -> object:
        return thing

    def change(array: np.ndarray) -> None:
        array += 1

    def shared(n: int) -> np.ndarray:
        array = connection.memory.copies.empty(n)
        array[:] = np.arange(n) % 251
        return array

    def place(array: np.ndarray) -> object:
        return connection.memory.place_of(array)

    compress_on_host = compressor(1)

    def compress(_: int, pieces: list[np.ndarray]) -> np.ndarray:
        return np.frombuffer(compress_on_host([piece.data for piece in pieces]), np.uint8)

    def compress_spans(_: int, data: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        return np.frombuffer(compress_on_host(Spans([(data, bounds)])), np.uint8)

    def n_kept() -> int:
        return len(connection._results)

    def clear() -> None:
        connection.memory.copies.clear()
        connection.memory.forget_freed()

    def wait(seconds: float) -> None:
        time.sleep(seconds)

    def refuse(text: str) -> None:
        raise InputFormatError(text)

    def unpicklable() -> object:
        return lambda: None

    def end(code: int) -> None:
        os._exit(code)

    for text in said:
        connection.say(logging.WARNING, text)
    functions = (
        add, give, change, shared, place, n_kept, clear, wait, refuse, unpicklable, end, compress,
        compress_spans,
    )  # fmt: skip
    with thread_pool(4) as executor:
        connection.serve({function.__name__: function for function in functions}, executor)
        os._exit(0)  # as the process of a device: a call may be under way


if __name__ == "__main__":
    main()
