"""Parsers of numbers of bytes, bases and threads, for the options of all commands."""

from __future__ import annotations

import argparse
import re

from mapper.errors import LEAST_MEMORY
from mapper.parallel.map import MAX_THREADS


def size(text: str) -> int:
    """Parse a size: 3.1G is 3.1 times 10 to the 9.

    Raises
    ------
    argparse.ArgumentTypeError
        For anything but a number of at least 1, optionally followed by k, M, G or T.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMGT]?)B?", text)
    value = (
        0
        if match is None
        else round(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " "))
    )
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: a size such as 500M or 24G is expected")
    return value


def memory_size(text: str) -> int:
    """Parse a size of memory, of at least LEAST_MEMORY."""
    value = size(text)
    if value < LEAST_MEMORY:
        hint = f"; without a unit it is bytes: did you mean {text}G?" if text[-1].isdigit() else ""
        raise argparse.ArgumentTypeError(f"{text}: at least 1M is expected{hint}")
    return value


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    return whole_number(text, 1)


def whole_number(text: str, lowest: int = 0) -> int:
    """Parse a whole number of at least `lowest`."""
    try:
        value = int(text)
    except ValueError:
        value = lowest - 1
    if value < lowest:
        raise argparse.ArgumentTypeError(f"{text}: a whole number of at least {lowest} is expected")
    return value


def thread_number(text: str) -> int:
    """Parse a number of threads."""
    value = positive(text)
    if value > MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{text}: at most {MAX_THREADS} threads are expected")
    return value
