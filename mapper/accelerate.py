"""The one place for numba's options and for where compiled code is kept.

``core`` marks the text of a recurrence: scalars and arrays in, scalars out, no
allocation, no exceptions, so that a CUDA kernel can call the same function. Cores are
always inlined and compiled without numba's reference counting (``_nrt``): otherwise every
access to an array of a tuple counts a reference, an atomic operation in the innermost loops
(measured: extension 5 times slower, backward search 2 times).
``driver`` marks the loops over a batch; they release the GIL, and the pipeline runs
them from a pool of Python threads, each on its own batch (numba's default threading
layer is not safe when several Python threads enter ``parallel=True`` functions, and a
batch per thread needs no barrier between stages). ``parallel_driver`` is for index
construction, which one thread calls.

Numba checks only the file of the cached function itself for changes, not the files of
the cores it inlines. The cache directory therefore carries a digest of the package's
sources: other sources, other directory, never stale code.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from pathlib import Path

import numba
import numpy as np
import platformdirs
from numba.core.caching import FunctionCache
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys


def source_digest() -> str:
    """Return a short digest of every Python file of the package."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
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
    return Path(tempfile.gettempdir()) / f"fmwave-{os.getuid()}" / name


CACHE_DIR = choose_cache_dir()
numba.config.CACHE_DIR = str(CACHE_DIR)

_COMMON = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_CORE = _COMMON | {"nopython": True, "forceinline": True, "_nrt": False}


class _Cache(FunctionCache):
    """Loads compiled code without what only compiling needs, and nothing before it is wanted.

    Numba imports and registers all that it can compile before it looks for compiled code: 0.3
    of a start's 1.2 seconds. Its compiler does so again when it has something to compile. And for
    every function it tries at once whether files can be made in the cache, which takes long on
    the file systems of clusters; of 230 functions a run of compiled code loads 20.
    """

    def __init__(self, py_func):
        self._py_func = py_func

    def __getattr__(self, name):
        """Set up everything, the first time that something else is wanted."""
        if "_py_func" not in self.__dict__ or "_cache_file" in self.__dict__:
            raise AttributeError(name)
        super().__init__(self._py_func)
        return getattr(self, name)

    def load_overload(self, sig, target_context):
        rtsys.initialize(target_context)  # the functions that compiled code calls
        return self._load_overload(sig, target_context)


class _PythonCache(_Cache):
    """Keeps code that Python can call apart from code of the same function that it cannot."""

    def _index_key(self, sig, codegen):
        return (*super()._index_key(sig, codegen), "callable from Python")


class Core(CPUDispatcher):
    """A core: called by compiled code, and, through a compilation apart, by Python.

    What Python needs to call a function (taking tuples of arrays to pieces) is a third of a
    core's compile time, and only tests ever do: compiled code takes the core without it.
    """

    def __init__(self, py_func):
        super().__init__(py_func, targetoptions=_CORE | {"no_cpython_wrapper": True})
        self._cache = _Cache(py_func)

    @functools.cached_property
    def _from_python(self):
        dispatcher = CPUDispatcher(self.py_func, targetoptions=dict(_CORE))
        dispatcher._cache = _PythonCache(self.py_func)
        return dispatcher

    def __call__(self, *arguments):
        return self._from_python(*arguments)


def core(function):
    """Compile a core; where numba's JIT is off, it stays the Python function that it is."""
    return function if numba.config.DISABLE_JIT else Core(function)


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


def _cached(function, **options):
    """Compile a function that Python calls, with its code kept on disk."""
    dispatcher = numba.njit(**_COMMON, **options)(function)
    if not numba.config.DISABLE_JIT:
        dispatcher._cache = _Cache(function)
    return dispatcher


def driver(function):
    """Compile a loop over a batch, for one thread."""
    return _cached(function)


def disjoint_driver(function):
    """Compile a driver that writes to no array that overlaps with another; as `disjoint_core`."""
    return function if numba.config.DISABLE_JIT else _disjoint(_cached(function))


def parallel_driver(function):
    """Compile a loop over a batch that shares its turns among numba's threads."""
    return _cached(function, parallel=True)


def is_compiled() -> bool:
    """Say whether this version has compiled code on disk already."""
    return next(CACHE_DIR.rglob("*.nbi"), None) is not None


@driver
def grown(array, capacity):
    """Return a copy of a 1-D array with room for `capacity` items."""
    larger = np.empty(capacity, array.dtype)
    for i in range(len(array)):  # a slice would take seconds to compile
        larger[i] = array[i]
    return larger
