"""WFA2-lib as a peer: its C functions, driven by ``wfa2_driver.c``.

Python bindings of WFA2-lib spend a large part of their time in Python, so its speed is measured in
C. The library is not part of this repository; fetch and build it once, and say where it lies::

    git clone --depth 1 https://github.com/smarco/WFA2-lib
    make -C WFA2-lib CC=gcc CXX=g++ BUILD_TOOLS=0 BUILD_EXAMPLES=0 all
    export FMWAVE_WFA2=$PWD/WFA2-lib

The driver is compiled with gcc when a benchmark begins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from benchmarks.common.harness import BenchmarkError

VARIABLE = "FMWAVE_WFA2"
"""Environment variable that names the checkout."""

_SOURCE = Path(__file__).with_name("wfa2_driver.c")


def why_missing() -> str | None:
    """Return why WFA2-lib cannot be measured here, or None."""
    checkout = os.environ.get(VARIABLE)
    if not checkout:
        return f"{VARIABLE} names no checkout of WFA2-lib (see {__name__})"
    if not (Path(checkout) / "lib" / "libwfa.a").is_file():
        return f"{checkout}/lib/libwfa.a is not there: build WFA2-lib (see {__name__})"
    if shutil.which("gcc") is None:
        return "there is no gcc to compile its driver"
    return None


def version() -> str:
    """Return the version of the checkout."""
    return (Path(os.environ[VARIABLE]) / "VERSION.txt").read_text().strip().removeprefix("v")


def build(folder: Path) -> Path:
    """Compile the driver in a folder; return the program.

    Raises
    ------
    BenchmarkError
        If WFA2-lib is missing or the compiler refuses.
    """
    if reason := why_missing():
        raise BenchmarkError(reason)
    checkout = Path(os.environ[VARIABLE])
    program = folder / "wfa2_driver"
    command = ["gcc", "-O3", "-o", str(program), str(_SOURCE), f"-I{checkout}"]
    command += [str(checkout / "lib" / "libwfa.a"), "-lm", "-pthread"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise BenchmarkError(f"gcc cannot compile {_SOURCE.name}: {made.stderr.strip()}")
    return program


class Wfa2:
    """A running driver with its pairs, threads and aligners; a context manager.

    Parameters
    ----------
    program
        What :func:`build` returns.
    pairs
        A ``.seq`` file.
    penalties
        Mismatch, gap open and gap extend; None for edit distance.
    """

    def __init__(
        self, program: Path, pairs: Path, n_threads: int, penalties: Sequence[int] | None
    ) -> None:
        metric = ["edit"] if penalties is None else ["affine", *map(str, penalties)]
        self._process = subprocess.Popen(
            [program, pairs, str(n_threads), *metric],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def __enter__(self) -> Wfa2:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._process.kill()
        self._process.communicate()

    def seconds(self) -> float:
        """Align all pairs; return the seconds that took.

        Raises
        ------
        BenchmarkError
            If the driver has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
        except BrokenPipeError:
            raise BenchmarkError("the driver of WFA2-lib has ended") from None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError("the driver of WFA2-lib has ended")
        return float(line)

    def scores(self) -> list[int]:
        """Return the penalty of each pair of the last pass; the driver ends."""
        output, _ = self._process.communicate()
        return [abs(int(line)) for line in output.split()]
