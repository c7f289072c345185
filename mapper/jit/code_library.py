"""How compiled code is held and kept on disk: cores as code to inline, drivers ready to run.

Numba makes machine code of every function, and keeps machine code and intermediate code (IR) of
each. Of a core only the IR is ever wanted, as it is inlined into whatever calls it, and of a
driver only the machine code, unless another driver calls it.
"""

from __future__ import annotations

from llvmlite import binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult


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
