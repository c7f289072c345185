"""The one place for numba's options and for where compiled code is kept.

``core`` marks the text of a recurrence: scalars and arrays in, scalars out, no
allocation, no exceptions, so that a CUDA kernel can call the same function. Cores are
always inlined and compiled without numba's reference counting (``_nrt``): otherwise every
access to an array of a tuple counts a reference, an atomic operation in the innermost loops
(measured: extension 5 times slower, backward search 2 times).
``driver`` marks the loops over a batch; they release the GIL, and the pipeline runs
them from a pool of Python threads, each on its own batch (numba's default threading
layer is not safe when several Python threads enter ``parallel=True`` functions, and a
batch per thread needs no barrier between stages). ``brief`` marks what takes microseconds, and
keeps the GIL: with many threads at work it takes up to milliseconds to have it back.

The code of a driver depends on the files of all cores it inlines. The name of the cache
directory therefore carries a digest of the package's sources: other sources, other directory,
never stale code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from pathlib import Path

import numba
import numpy as np
import platformdirs
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher

from mapper.jit.cache import CodeCache, CoreCompiler


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


def choose_cache_dir() -> Path:
    """Return a writable directory for compiled code.

    ``NUMBA_CACHE_DIR`` is honoured; else the user's cache directory; else, where the
    home is read-only (containers, some cluster nodes), a per-user temporary one.
    """
    name = f"fmwave-{source_digest()}"
    bases = []
    if os.environ.get("NUMBA_CACHE_DIR"):
        bases.append(Path(os.environ["NUMBA_CACHE_DIR"]))
    bases.append(Path(platformdirs.user_cache_dir("fmwave")))
    for base in bases:
        if _usable(base / name):
            return base / name
    directory = _private_temporary() / name
    directory.mkdir(exist_ok=True)
    return directory


def _private_temporary() -> Path:
    """Return this user's directory for temporary files: what lies there will be run."""
    directory = Path(tempfile.gettempdir()) / f"fmwave-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return directory
    return Path(tempfile.mkdtemp(prefix="fmwave-"))  # the name was taken by another


CACHE_DIR = choose_cache_dir()
numba.config.CACHE_DIR = str(CACHE_DIR)

_COMMON = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_CORE = _COMMON | {"nopython": True, "forceinline": True, "_nrt": False}


class Core(CPUDispatcher):
    """A core: called by compiled code, and, through a compilation apart, by Python.

    What Python needs to call a function (taking tuples of arrays to pieces) is a third of a
    core's compile time, and only tests ever do: compiled code takes the core without it.
    """

    def __init__(self, py_func):
        options = _CORE | {"no_cpython_wrapper": True}
        super().__init__(py_func, targetoptions=options, pipeline_class=CoreCompiler)
        self._cache = CodeCache(py_func, CACHE_DIR)

    @functools.cached_property
    def _from_python(self):
        dispatcher = CPUDispatcher(self.py_func, targetoptions=dict(_CORE))
        dispatcher._cache = CodeCache(self.py_func, CACHE_DIR, "callable from Python")
        return dispatcher

    def __call__(self, *arguments):
        return self._from_python(*arguments)


def core(function):
    """Compile a core; where numba's JIT is off, it stays the Python function that it is."""
    return function if numba.config.DISABLE_JIT else Core(function)


class Driver(CPUDispatcher):
    """A function that Python calls, its code kept on disk."""

    def __init__(self, py_func, nogil=True):
        super().__init__(py_func, targetoptions=_COMMON | {"nopython": True, "nogil": nogil})
        self._cache = CodeCache(py_func, CACHE_DIR)

    def _compilation_chain_init_hook(self):
        """Leave out what other packages teach numba: looking for them takes long in a large venv.

        Nothing here is compiled with it.
        """


class _DisjointCompiler(_FunctionCompiler):
    """Compiles for arrays that do not overlap."""

    def _customize_flags(self, flags):
        flags.noalias = True
        return flags


def _disjoint(dispatcher):
    own = dispatcher._compiler
    dispatcher._compiler = _DisjointCompiler(
        own.py_func, own.targetdescr, own.targetoptions, own.locals, own.pipeline_class
    )
    return dispatcher


def disjoint_core(function):
    """Compile a core for the CPU that writes to no array that overlaps with another.

    Its callers must see to that. A loop that writes to several arrays is not vectorised otherwise:
    the compiler would have to check each of them for overlap with every other.
    """
    return function if numba.config.DISABLE_JIT else _disjoint(Core(function))


def driver(function):
    """Compile a loop over a batch, for one thread."""
    return function if numba.config.DISABLE_JIT else Driver(function)


def brief(function):
    """Compile a function that takes less time than to have Python's lock back."""
    return function if numba.config.DISABLE_JIT else Driver(function, nogil=False)


def disjoint_driver(function):
    """Compile a driver that writes to no array that overlaps with another; as `disjoint_core`."""
    return function if numba.config.DISABLE_JIT else _disjoint(Driver(function))


def is_compiled(module: str = "mapper") -> bool:
    """Say whether this version has compiled code on disk already, of a module or of any."""
    return next(CACHE_DIR.glob(f"{module}.*.code"), None) is not None


@driver
def grown(array, capacity):
    """Return a copy of a 1-D array with room for `capacity` items."""
    larger = np.empty(capacity, array.dtype)
    for i in range(len(array)):  # a slice would take seconds to compile
        larger[i] = array[i]
    return larger
