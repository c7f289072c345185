"""Decorators for compiled functions: numba's options, and the directory of compiled code.

``core`` marks the text of a recurrence: scalars and arrays in, scalars out, no
allocation, no exceptions, so that a CUDA kernel can call the same function. Cores are
always inlined and compiled without numba's reference counting (``_nrt``): otherwise every
access to an array of a tuple counts a reference, an atomic operation in the innermost loops
(measured: extension 5 times slower, backward search 2 times).
``driver`` marks the loops over a batch; they release the GIL, and the pipeline runs
them from a pool of Python threads, each on its own batch (numba's default threading
layer is not safe when several Python threads enter ``parallel=True`` functions, and a
batch per thread needs no barrier between stages). ``step`` marks large parts of drivers. ``brief``
marks functions that take
microseconds and keep the GIL: with many busy threads, acquiring it again takes up to milliseconds.

The code of a driver depends on the files of all cores it inlines. The name of the cache
directory therefore carries a digest of the package's sources: other sources, other directory,
never stale code.

With ``FMWAVE_PLAIN_NUMBA=1``, or a numba whose internals :mod:`mapper.jit.cache` does not know,
numba's own dispatcher and cache serve: all functions work, but start and compile more slowly.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import stat
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import platformdirs
from numba.core import event

from mapper.jit.prebuilt import directories

log = logging.getLogger(__name__)


@functools.cache
def code_name() -> str:
    """Return the name of a directory of code of these sources."""
    return f"fmwave-{source_digest()}"


def source_digest() -> str:
    """Return a short digest of every Python file of the package."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _usable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


def _holds_code(directory: Path) -> bool:
    try:
        return next(directory.glob("*.code"), None) is not None
    except OSError:
        return False


def choose_cache_dir() -> Path:
    """Return a directory for compiled code, writable unless the user named one that is filled.

    It lies in ``NUMBA_CACHE_DIR`` if that is set, else in the user's cache directory, else,
    where the home is read-only (containers, some cluster nodes), in a private temporary one.
    What others have compiled into ``NUMBA_CACHE_DIR`` is read also where this user cannot write.
    """
    name = code_name()
    bases = []
    if os.environ.get("NUMBA_CACHE_DIR"):
        bases.append(Path(os.environ["NUMBA_CACHE_DIR"]))
        if _holds_code(bases[0] / name):
            return bases[0] / name
    bases.append(Path(platformdirs.user_cache_dir("fmwave")))
    for base in bases:
        if _usable(base / name):
            return base / name
    directory = _private_temporary() / name
    directory.mkdir(exist_ok=True)
    return directory


def _private_temporary() -> Path:
    """Return a temporary directory that no other user can write to: its files will be run."""
    directory = Path(tempfile.gettempdir()) / f"fmwave-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return directory
    return Path(tempfile.mkdtemp(prefix="fmwave-"))  # another user took the name


CACHE_DIR = choose_cache_dir()
numba.config.CACHE_DIR = str(CACHE_DIR)


@functools.cache
def announce_compiling() -> None:
    """Log that code is compiled, once in a process, so that nobody takes the wait for a hang."""
    log.info(
        "compiling code that is used for the first time here (up to a minute); kept in %s",
        CACHE_DIR,
    )


def announcer(listener: type) -> Any:
    """Return a listener of numba's or numba-cuda's events that announces compiling.

    `listener` is the class of listeners, of which each of the two packages has its own.
    """
    methods = {"on_start": lambda *_: announce_compiling(), "on_end": lambda *_: None}
    return type("Announcer", (listener,), methods)()


event.register("numba:compile", announcer(event.Listener))

_COMMON = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "nopython": True}
_CORE = _COMMON | {"forceinline": True, "_nrt": False}


def _own_dispatchers() -> ModuleType | None:
    """Return :mod:`mapper.jit.cache`, or None if numba's own dispatcher and cache are to serve."""
    if os.environ.get("FMWAVE_PLAIN_NUMBA", "0") not in ("", "0"):
        return None
    try:
        from mapper.jit import cache
    except (ImportError, AttributeError) as error:
        log.warning(
            "fmwave does not know the internals of numba %s (%s) and uses its plain compiler: "
            "programs start and compile more slowly, results are the same",
            numba.__version__, error,
        )  # fmt: skip
        return None
    return cache


_OWN = _own_dispatchers()

PREBUILT = [] if _OWN is None else directories(code_name())
"""Levels of CPUs for which the package came with code, and where that is, the highest first."""


def _compile(function, options, is_core=False, is_disjoint=False):
    """Return the dispatcher of a function; where numba's JIT is off, the function itself."""
    if numba.config.DISABLE_JIT:
        return function
    if _OWN is None:
        return numba.jit(cache=True, **options)(function)
    dispatcher = (_OWN.Core if is_core else _OWN.Driver)(function, options, CACHE_DIR, PREBUILT)
    return _OWN.without_aliases(dispatcher) if is_disjoint else dispatcher


def core(function):
    """Compile a core."""
    return _compile(function, _CORE, is_core=True)


def disjoint_core(function):
    """Compile a core for the CPU whose arrays do not overlap, which its callers ensure.

    A loop that writes to several arrays is not vectorised otherwise: the compiler would have to
    check each of them for overlap with every other.
    """
    return _compile(function, _CORE, is_core=True, is_disjoint=True)


def step(function):
    """Compile a step of a driver on its own, where inlining would compile it several times.

    As a core it allocates nothing and counts no references.
    """
    return _compile(function, _COMMON | {"_nrt": False})


def driver(function):
    """Compile a loop over a batch, for one thread."""
    return _compile(function, _COMMON)


def brief(function):
    """Compile a function that takes less time than acquiring the GIL again."""
    return _compile(function, _COMMON | {"nogil": False})


def disjoint_driver(function):
    """Compile a driver whose arrays do not overlap, as :func:`disjoint_core`."""
    return _compile(function, _COMMON, is_disjoint=True)


def is_compiled(module: str = "mapper") -> bool:
    """Return True if this version has compiled code, of a module or of any, for this CPU.

    Code in a folder that this user may not look into is of no use, as if there were none.
    """
    if _OWN is None:  # numba's file names begin with the last part of a module's name
        name = module.rpartition(".")[2] if "." in module else "*"
        found = [CACHE_DIR.rglob(f"{name}.*.nbi")]
    else:
        places = (CACHE_DIR, *(directory for _, directory in PREBUILT))
        found = [place.glob(f"{module}.*.code") for place in places]
    try:
        return any(next(files, None) is not None for files in found)
    except PermissionError:
        return False


@driver
def grown(array, capacity):
    """Return a copy of a 1-D array with room for `capacity` items."""
    larger = np.empty(capacity, array.dtype)
    for i in range(len(array)):  # a slice would take seconds to compile
        larger[i] = array[i]
    return larger
