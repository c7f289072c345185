"""Compiled code on disk: a file for each function and signature.

In place of numba's own cache, for three reasons. Numba keeps a list of a function's signatures in
a second file, which two processes that compile at the same time rewrite without looking at each
other's: code of one signature could come to lie under the name of another. It imports and
registers all that it can compile before it looks for compiled code, 0.3 s of a start (its compiler
does so again when it has something to compile). And it tries for every function whether files
can be made, which takes long on the file systems of clusters.

How compiled code is held and kept on disk: cores as code to inline, drivers ready to run.

Numba makes machine code of every function, and keeps machine code and intermediate code (IR) of
each. Of a core only the IR is ever wanted, as it is inlined into whatever calls it, and of a
driver only the machine code, unless another driver calls it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import logging
import pickle
import sys
import uuid
import warnings
import zlib
from pathlib import Path
from types import FunctionType

import numba
from llvmlite import binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.errors import NumbaWarning
from numba.core.runtime import rtsys
from numba.core.serialize import dumps


class CoreLibrary(JITCodeLibrary):
    """The code of a core: IR to be linked into callers, never made into machine code."""

    @property
    def codegen(self):
        """What would set the environment of the machine code, of which there is none."""
        return self

    def set_env(self, env_name, env):
        """Leave it: only code that handles Python objects looks there."""

    def get_pointer_to_function(self, name):
        """Return the null pointer: nothing can be called."""
        return 0

    def _optimize_final_module(self):
        """Inline and clean up only: it is optimised as part of the drivers that it ends in.

        Done here in full as well, it would be a fifth of all the time that compiling takes.
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
        """Return the library of a function whose IR was kept."""
        library = cls(codegen, name)
        library._final_module = library._shared_module = llvm.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


class DriverLibrary(JITCodeLibrary):
    """The code of a driver, from disk: machine code, and IR that is read when it is wanted."""

    _bitcode: bytes

    @classmethod
    def restored(cls, codegen, name, data, symbols):
        """Return the library of a function whose machine code and IR were kept.

        `symbols` are the names of functions that will be asked for.
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
    """Return the result of a compilation from what its ``_reduce`` returned.

    As ``CompileResult._rebuild`` does, which knows numba's own libraries only.
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


log = logging.getLogger(__name__)

_VERSION = (numba.__version__, sys.implementation.cache_tag)


class CodeCache:
    """The compiled code of one function; what numba's dispatcher asks before it compiles.

    Parameters
    ----------
    py_func
        The function.
    directory
        Where files are; its name tells the sources of this package apart.
    variant
        Of the options it is compiled with.

    Notes
    -----
    A file is named after all that its code depends on, holds that again to compare, and appears
    by renaming: processes that compile the same write the same. One that is damaged is not there.
    """

    def __init__(self, py_func: FunctionType, directory: Path, variant: str = "") -> None:
        self._py_func = py_func
        self.cache_path = directory
        self._variant = variant

    @property
    def name(self) -> str:
        """Name of the function, with which the names of its files begin."""
        function = self._py_func
        return f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")

    def load_overload(self, sig, target_context):
        """Return the result of an earlier compilation, or None."""
        rtsys.initialize(target_context)  # the functions that compiled code calls
        key = self._key(sig, target_context.codegen())
        try:
            data = self._path(key).read_bytes()
        except OSError:  # there is none, most often
            return None
        if zlib.crc32(data[4:]).to_bytes(4, "little") != data[:4]:
            log.debug("%s is damaged", self._path(key))
            return None
        stream = io.BytesIO(data[4:])
        if pickle.load(stream) != key:
            return None
        return restored(target_context, pickle.load(stream))

    def save_overload(self, sig, result):
        """Keep the result of a compilation; without room for it on disk, go on without."""
        if result.library.has_dynamic_globals or any(not part.can_cache for part in result.lifted):
            warnings.warn(f"the code of {self.name} cannot be kept on disk", NumbaWarning, 2)
            return
        key = self._key(sig, result.codegen)
        *kept, environments = result._reduce()
        # Of other functions' environments, code of numba's nopython mode reads the constants
        # only. To restore one imports its function's module: for nothing, most often.
        environments = tuple(other for other in environments if other.consts)
        data = dumps(key) + dumps((*kept, environments))
        path = self._path(key)
        unfinished = path.with_name(f"{uuid.uuid4().hex}.unfinished")
        try:
            try:
                unfinished.write_bytes(zlib.crc32(data).to_bytes(4, "little") + data)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        except OSError as error:
            _say_once(f"compiled code cannot be kept in {self.cache_path}: {error.strerror}")

    def _key(self, sig, codegen):
        function = self._py_func
        cells = function.__closure__ or ()
        return (
            _VERSION, sig, codegen.magic_tuple(), self._variant, function.__code__.co_firstlineno,
            _digest(function.__code__.co_code),
            _digest(dumps(tuple(cell.cell_contents for cell in cells)) if cells else b""),
            _source_digest(function),
        )  # fmt: skip

    def _path(self, key: object) -> Path:
        return self.cache_path / f"{self.name}-{_digest(repr(key).encode())[:20]}.code"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _source_digest(function: FunctionType) -> str:
    """Return a digest of the function's file, unless the directory's name covers it."""
    if function.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    return _file_digest(inspect.getfile(function))


@functools.cache
def _file_digest(path: str) -> str:
    try:
        return _digest(Path(path).read_bytes())
    except OSError:  # typed in: there is nothing but the code
        return ""


@functools.cache
def _say_once(message: str) -> None:
    log.warning("%s", message)
