"""A first run's helpers: processes that compile some stages while the run compiles the others.

Numba compiles one function at a time in a process. What helpers compile goes through the cache on
disk, so nothing depends on them: the run takes what is there, and compiles what is not.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numba

from mapper.jit.accelerate import is_compiled

log = logging.getLogger(__name__)

READING, FINISHING = "reading", "finishing"

_MODULES = {READING: "mapper.io.fastq_parser", FINISHING: "mapper.pair.placement"}
"""One of those that each part of the stages compiles."""


class Helpers:
    """Processes that compile; a context manager that ends them.

    Parameters
    ----------
    parts
        Of READING and FINISHING, those that the run will need.
    threads
        Of the run, which itself is one of them: the processes are fewer.
    """

    def __init__(self, parts: Sequence[str], threads: int) -> None:
        wanted = [part for part in parts if not is_compiled(_MODULES[part])]
        n = 0 if numba.config.DISABLE_JIT else min(threads - 1, len(wanted))
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for i in range(n):
                self._processes.append(_start(wanted[i::n]))
        except OSError as error:  # no process to be had, or no memory for one
            log.debug("no process to help compiling: %s", error)

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()
        self.wait()

    def __bool__(self) -> bool:
        return bool(self._processes)

    def wait(self) -> None:
        """Wait until all have ended, in whatever way."""
        for process in self._processes:
            process.wait()
            log.debug("process %d, compiling, ended with %d", process.pid, process.returncode)
            assert process.stdin is not None
            process.stdin.close()
        self._processes.clear()


def _start(parts: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process that ends when this one does, as its standard input ends with it."""
    root = str(Path(__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "mapper.mapping.compile_ahead", *parts],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def main(parts: Sequence[str]) -> None:
    """Compile those parts: what a helper does."""
    from mapper.cli.main import set_up_process

    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up_process()
    from mapper.mapping import warm_up

    compile_part = {READING: warm_up.compile_reading, FINISHING: warm_up.compile_finishing}
    for part in parts:
        compile_part[part]()


if __name__ == "__main__":
    main(sys.argv[1:])
