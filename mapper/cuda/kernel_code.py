"""Machine code of kernels on disk.

Beside numba-cuda's own cache this has a file for each kernel, types of arguments and compute
capability, as the code for CPUs has (:mod:`mapper.jit.cache` says why); and what it holds is
loaded by the driver as it is. numba-cuda imports and registers all that it can compile before it
looks for kept code: most of a second of each start.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numba_cuda  # type: ignore[import-untyped]

from mapper.jit import accelerate, code_files


class KernelCode(NamedTuple):
    """A kernel as the driver loads it."""

    cubin: bytes
    entry: str
    """The kernel's name there."""
    is_cooperative: bool
    """The blocks of its grid wait for each other."""


def find(
    function: Callable[..., None], options: object, kinds: list[Any],
    capability: tuple[int, int], make: Callable[[], KernelCode],
) -> KernelCode:  # fmt: skip
    """Return the machine code of a kernel: from disk, else by `make`, and then kept there.

    Parameters
    ----------
    function
        The kernel's Python text.
    options
        Everything else that it is compiled with; what it prints as identifies it.
    kinds
        Types of arguments; see :func:`mapper.cuda.arguments.describe`.
    capability
        Compute capability of the device.
    """
    key = (
        numba_cuda.__version__, capability, repr(options), *map(_name, kinds),
        *code_files.text_of(function),
    )  # fmt: skip
    path = code_files.path_of(accelerate.CACHE_DIR, function, key, "kernel")
    kept = code_files.read(path, key)
    if kept is not None:
        return KernelCode(*pickle.loads(kept))
    made = make()
    code_files.write(path, key, pickle.dumps(tuple(made)))
    return made


def any_kept() -> bool:
    """Return True if this version of the package has compiled a kernel before, whichever."""
    return any(accelerate.CACHE_DIR.glob("*.kernel"))


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else repr(kind)
