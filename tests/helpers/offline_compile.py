"""Compile kernels for sm_90 without a GPU or a driver, and read the machine code.

Needs numba-cuda with its CUDA 13 compiler wheels, and nvdisasm (PyPI:
nvidia-cuda-nvdisasm, or any CUDA toolkit).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numba
import numpy as np
import pytest
from numba import types

CAPABILITY = (9, 0)


def require_compiler() -> None:
    """Skip the calling test, with the reason, where kernels cannot be compiled offline."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed")
    if numba.config.ENABLE_CUDASIM or numba.config.DISABLE_JIT:
        pytest.skip("the simulator is on: nothing is compiled")
    if importlib.util.find_spec("nvidia.cu13.nvvm") is None and not _compiler_loads():
        pytest.skip("no NVVM: install numba-cuda[cu13]")
    if nvdisasm() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")


def _compiler_loads() -> bool:
    from numba.cuda.cudadrv import nvvm

    try:
        nvvm.NVVM()
    except Exception:
        return False
    return True


def nvdisasm() -> str | None:
    """Return the disassembler: beside the CUDA wheels, or on the PATH."""
    spec = importlib.util.find_spec("nvidia.cu13")
    for root in spec.submodule_search_locations or () if spec else ():
        program = Path(root) / "bin" / "nvdisasm"
        if program.exists():
            return str(program)
    return shutil.which("nvdisasm")


class Machine(NamedTuple):
    """What a kernel became on sm_90."""

    sass: str
    registers: int

    @property
    def instructions(self) -> list[str]:
        """Opcodes in order, with their modifiers (``LDG.E.64.CONSTANT``)."""
        return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", self.sass)

    def _loops(self) -> list[tuple[int, int]]:
        """First and last line of each loop, from where its branch goes back to."""
        lines = self.sass.splitlines()
        labels = {line.strip()[:-1]: i for i, line in enumerate(lines) if line.startswith(".L_")}
        spans = []
        for end, line in enumerate(lines):
            back = re.search(r"\bBRA\b.*`\((\.L_\w+)\)", line)
            if back and labels.get(back[1], end) < end:
                spans.append((labels[back[1]], end))
        return spans

    def _between(self, start: int, end: int) -> Machine:
        return self._replace(sass="\n".join(self.sass.splitlines()[start : end + 1]))

    @property
    def inner_loops(self) -> list[Machine]:
        """Loops that hold no other."""
        spans = self._loops()
        return [
            self._between(start, end)
            for start, end in spans
            if not any(start <= a and b < end for a, b in spans)
        ]

    def loop_around(self, inner: Machine) -> Machine:
        """The smallest loop that holds one of the inner loops, and more."""
        spans = sorted(self._loops(), key=lambda span: span[1] - span[0])
        around = (self._between(*span) for span in spans)
        return next(loop for loop in around if inner.sass in loop.sass and loop != inner)

    def count(self, *opcodes: str) -> int:
        """Instructions whose opcode, without modifiers, is one of `opcodes`."""
        return sum(name.split(".")[0] in opcodes for name in self.instructions)

    @property
    def wide(self) -> Counter[str]:
        """Integer instructions of 64 bits, by what they are for.

        A product of 32 bits into 64, or the upper half of a shifted sum, makes an address. Other
        sums and comparisons of 64 bits are pairs; counted is that which takes the carry. (Bytes
        that are summed eight at a time are among them.)
        """
        found: Counter[str] = Counter()
        for name in self.instructions:
            if re.match(r"U?(IMAD\.WIDE|LEA\.HI\.X)", name):
                found["addresses"] += 1
            elif re.match(r"U?(IADD3|IMAD)\.X", name):
                found["sums"] += 1
            elif re.match(r"U?ISETP\..*\.EX", name):
                found["comparisons"] += 1
        return found

    @property
    def wide_share(self) -> float:
        """Those of :attr:`wide` in all instructions."""
        return self.wide.total() / len(self.instructions)

    def part(self, name: str) -> Machine:
        """The function whose name contains `name`, without what is linked to it.

        Its registers are those that it names.
        """
        sections = re.split(r"(?=\n\s*\.section\s+\.text\.)", self.sass)
        found = [s for s in sections if re.match(rf"\n\s*\.section\s+\.text\.\S*{name}", s)]
        assert len(found) == 1, f"{len(found)} functions named {name}"
        return Machine(found[0], 1 + max(int(r) for r in re.findall(r"\bR(\d+)\b", found[0])))

    @property
    def spills(self) -> int:
        """Loads from and stores to local memory."""
        return self.count("LDL", "STL")


def array(dtype: np.dtype | type, ndim: int = 1) -> types.Array:
    """Numba type of a device array."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), ndim, "C")


def type_of(value: object) -> types.Type:
    """Numba type of what `value` is on the device: arrays become writable C arrays there."""
    if isinstance(value, np.ndarray):
        return array(value.dtype, value.ndim)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return types.NamedTuple([type_of(field) for field in value], type(value))
    return numba.typeof(value)


def compile_offline(kernel, argument_types) -> Machine:
    """Compile a :class:`mapper.cuda.api.Kernel` as a launch on an H100 would."""
    from numba.cuda.dispatcher import _Kernel

    options = dict(kernel.compiled.targetoptions)
    keep = ("debug", "lineinfo", "fastmath", "lto", "opt", "launch_bounds")
    with pretended_device():
        compiled = _Kernel(
            kernel.function,
            tuple(argument_types),
            **{name: options[name] for name in keep if name in options},
        )
        cubin = compiled._codelibrary.get_cubin()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(getattr(cubin, "code", cubin))
        file.flush()
        listing = subprocess.run(
            [nvdisasm(), file.name], check=True, capture_output=True, text=True
        ).stdout
    registers = re.search(r"EIATTR_REGCOUNT.*?\.word\s+(0x[0-9a-f]+)", listing, re.DOTALL)
    assert registers, "the listing of nvdisasm has another form than this code expects"
    return Machine(listing, int(registers[1], 16))


@contextmanager
def pretended_device():
    """Let numba-cuda believe that the current device is of CAPABILITY.

    The dispatchers that it makes of cores keep what they compile, so the pretence holds for
    the process; there is no device in it to be confused.
    """
    device = SimpleNamespace(compute_capability=CAPABILITY)
    with (
        mock.patch("numba.cuda.dispatcher.get_current_device", lambda: device),
        mock.patch(
            "numba.cuda.codegen.CUDACodeLibrary._ensure_cc",
            lambda self, cc=None: cc or (*CAPABILITY, "a"),
        ),
    ):
        yield
