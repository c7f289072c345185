"""Dispatchers and a compile cache in place of numba's: the only text that relies on its internals.

**The cache** has a file for each function and signature. Numba's has three faults. It keeps a list
of a function's signatures in a second file, which two processes that compile at the same time
rewrite without looking at each other's: code of one signature could come to lie under the name
of another. It imports and registers everything it can compile before it looks for compiled
code, 0.3 s of a start (its compiler does so again when it has something to compile). And it
tests for every function whether files can be made, which is slow on the file systems of clusters.

**Code in memory and on disk.** Numba makes machine code of every function, and keeps machine code
and intermediate code (IR) of each. Of a core only the IR is needed, as it is inlined into its
callers, and of a driver only the machine code, unless another driver calls it.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType

import numba
from llvmlite import binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.errors import NumbaWarning
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from mapper.jit import code_files
from mapper.jit.prebuilt import code_key_of

# --- code in memory ---


class CoreLibrary(JITCodeLibrary):
    """The code of a core: IR to be linked into callers, never made into machine code."""

    @property
    def codegen(self):
        """Return this object in place of the code generator, for :meth:`set_env`."""
        return self

    def set_env(self, env_name, env):
        """Do nothing: only machine code that handles Python objects reads the environment."""

    def get_pointer_to_function(self, name):
        """Return the null pointer: there is no machine code to call."""
        return 0

    def _optimize_final_module(self):
        """Inline and clean up only: the core is optimised as part of the drivers that inline it.

        Full optimisation here as well would take a fifth of all compile time.
        """
        passes, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=self._codegen._opt_level, cost="cheap"
        )
        passes.run(self._final_module, builder)

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self):
        """Return name and IR."""
        return self.name, "core", self._get_module_for_linking().as_bitcode()

    @classmethod
    def restored(cls, codegen, name, bitcode):
        """Return the library of a function from its IR."""
        library = cls(codegen, name)
        library._final_module = library._shared_module = llvm.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


class DriverLibrary(JITCodeLibrary):
    """The code of a driver from disk: machine code, and IR that is parsed on demand."""

    _bitcode: bytes

    @classmethod
    def restored(cls, codegen, name, data, symbols):
        """Return the library of a function from its machine code and IR.

        `symbols` are the names of functions that will be looked up.
        """
        library = cls(codegen, name)
        object_code, library._bitcode = data
        library.enable_object_caching()
        library._set_compiled_object(object_code)
        library._finalize_final_module()
        codegen._engine._defined_symbols.update(symbols)
        return library

    def _get_module_for_linking(self):
        if self._shared_module is None:
            self._shared_module = llvm.parse_bitcode(self._bitcode)
        return self._shared_module


class CoreCompiler(Compiler):
    """Numba's compiler, for cores."""

    def _compile_bytecode(self):
        state = self.state
        state.library = CoreLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return super()._compile_bytecode()


def restored(target_context, kept):
    """Return the result of a compilation from the tuple that its ``_reduce`` returned.

    As ``CompileResult._rebuild``, which knows numba's own libraries only.
    """
    (
        (name, kind, data), fndesc, environment, signature, objectmode, lifted, annotation,
        reload_init, referenced,
    ) = kept  # fmt: skip
    for initialise in reload_init:
        initialise()
    codegen = target_context.codegen()
    if kind == "core":
        library = CoreLibrary.restored(codegen, name, data)
    else:
        symbols = (fndesc.llvm_cpython_wrapper_name, fndesc.llvm_func_name)
        library = DriverLibrary.restored(codegen, name, data, symbols)
    entry_point = target_context.get_executable(library, fndesc, environment)
    for other in referenced:
        library.codegen.set_env(other.env_name, other)
    return CompileResult(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=entry_point,
        fndesc=fndesc,
        type_annotation=annotation,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        typing_error=None,
        call_helper=None,
        metadata=None,
        reload_init=reload_init,
        referenced_envs=referenced,
    )


# --- code on disk ---

_VERSION = (numba.__version__, sys.implementation.cache_tag)


class CodeCache:
    """Compiled code of one function on disk, which numba's dispatcher asks before it compiles.

    Parameters
    ----------
    py_func
        The function.
    directory
        Directory of the files (:mod:`mapper.jit.code_files`); its name depends on the sources of
        this package.
    prebuilt
        Levels of CPUs and directories of code for them, asked in this order for what `directory`
        does not have (:mod:`mapper.jit.prebuilt`).
    variant
        Name of the compile options, where a function is compiled with several.
    """

    def __init__(
        self, py_func: FunctionType, directory: Path,
        prebuilt: Sequence[tuple[str, Path]] = (), variant: str = "",
    ) -> None:  # fmt: skip
        self._py_func = py_func
        self.cache_path = directory
        self._prebuilt = prebuilt
        self._variant = variant

    def load_overload(self, sig, target_context):
        """Return the result of an earlier compilation, or None if there is none."""
        rtsys.initialize(target_context)  # the functions that compiled code calls
        data = self._data(sig, target_context.codegen().magic_tuple())
        return None if data is None else restored(target_context, pickle.loads(data))

    def save_overload(self, sig, result):
        """Write the result of a compilation to disk; if that fails, log it once and go on."""
        if result.library.has_dynamic_globals or any(not part.can_cache for part in result.lifted):
            name = code_files.name_of(self._py_func)
            warnings.warn(f"the code of {name} cannot be kept on disk", NumbaWarning, 2)
            return
        key = self._key(sig, result.codegen.magic_tuple())
        *kept, environments = result._reduce()
        # Nopython code reads only the constants of other functions' environments, and most have
        # none. To restore an environment, numba imports the module of its function.
        environments = tuple(other for other in environments if other.consts)
        path = self._path(self.cache_path, key)
        code_files.write(path, key, dumps((*kept, environments)))

    def _data(self, sig, target):
        """Return the code of a signature for this CPU, else for the highest level, else None."""
        key = self._key(sig, target)
        data = code_files.read(self._path(self.cache_path, key), key)
        for level, directory in self._prebuilt:
            if data is not None:
                break
            key = self._key(sig, (target[0], *code_key_of(level)))
            data = code_files.read(self._path(directory, key), key)
        return data

    def _key(self, sig, target):
        """Return the key of a signature; `target`: triple, CPU and features."""
        text = code_files.text_of(self._py_func)
        return (_VERSION, numba.config.BOUNDSCHECK, sig, target, self._variant, *text)

    def _path(self, directory: Path, key: object) -> Path:
        return code_files.path_of(directory, self._py_func, key, "code")


def is_driver(path: Path) -> bool:
    """Return True if a file holds code that Python can call, False if that of a core.

    Cores are part of the drivers that inline them; only compiling reads their files.
    """
    _, kind, _ = pickle.loads(code_files.content(path))[0]
    return bool(kind != "core")


# --- dispatchers ---


_parameter = functools.cache(
    functools.partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
)
_VARIABLE_ARGUMENTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def name_parameters(py_func: FunctionType) -> None:
    """Give a function a signature object, which numba's dispatchers take instead of making two.

    To make one from parameters that functions share takes a tenth of what ``inspect`` takes: of
    450 functions, a twentieth of a start.
    """
    code = py_func.__code__
    if code.co_kwonlyargcount or py_func.__defaults__ or code.co_flags & _VARIABLE_ARGUMENTS:
        return
    names = code.co_varnames[: code.co_argcount]
    py_func.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(name) for name in names]
    )


class Core(CPUDispatcher):
    """A core: called by compiled code, and by Python through a separate compilation.

    The wrapper for calls from Python (which unpacks tuples of arrays) takes a third of a
    core's compile time, and only tests use it: compiled code takes the core without it.
    """

    def __init__(self, py_func, options, directory, prebuilt=()):
        name_parameters(py_func)
        super().__init__(
            py_func,
            targetoptions=options | {"no_cpython_wrapper": True},
            pipeline_class=CoreCompiler,
        )
        self._cache = CodeCache(py_func, directory)
        self._places = directory, prebuilt

    @functools.cached_property
    def _from_python(self):
        options = self.targetoptions | {"no_cpython_wrapper": False}
        dispatcher = CPUDispatcher(self.py_func, targetoptions=options)
        dispatcher._cache = CodeCache(self.py_func, *self._places, variant="callable from Python")
        return dispatcher

    def __call__(self, *arguments):
        return self._from_python(*arguments)


class Driver(CPUDispatcher):
    """A function that Python calls, with its code on disk."""

    def __init__(self, py_func, options, directory, prebuilt=()):
        name_parameters(py_func)
        super().__init__(py_func, targetoptions=options)
        self._cache = CodeCache(py_func, directory, prebuilt)

    def _compilation_chain_init_hook(self):
        """Skip numba's search for extensions by other packages, which is slow in a large venv.

        Nothing here is compiled with one.
        """


class _DisjointCompiler(_FunctionCompiler):
    """A compiler for arguments that do not overlap in memory."""

    def _customize_flags(self, flags):
        flags.noalias = True
        return flags


def without_aliases(dispatcher):
    """Let a dispatcher compile for arrays that do not overlap, and return it."""
    own = dispatcher._compiler
    dispatcher._compiler = _DisjointCompiler(
        own.py_func, own.targetdescr, own.targetoptions, own.locals, own.pipeline_class
    )
    return dispatcher
