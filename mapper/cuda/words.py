"""Four neighbouring 32-bit words of a block's shared memory, by one instruction."""

from __future__ import annotations

import numpy as np

from mapper.cuda.api import SIMULATED, intrinsic

if SIMULATED:

    def four_words(words, at, behind):
        """Return words ``at + behind`` and the three after it.

        Parameters
        ----------
        words
            A shared array of uint32 that begins the block's shared memory.
        at, behind
            uint32, multiples of four. The second is best known when the kernel is compiled: it
            becomes part of the instruction.
        """
        first = int(at) + int(behind)
        return tuple(np.uint32(words[first + x]) for x in range(4))

else:
    from llvmlite import ir
    from numba import types

    _SHARED = 3  # NVVM's address space

    @intrinsic
    def four_words(typing_context, words, at, behind):
        """Return words ``at + behind`` and the three after it, as the simulator's function."""
        signature = types.UniTuple(types.uint32, 4)(words, types.uint32, types.uint32)

        def codegen(context, builder, signature, arguments):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            word, wide = ir.IntType(32), ir.IntType(64)
            begin = builder.addrspacecast(array.data, ir.PointerType(word, _SHARED))
            for index in arguments[1:]:
                begin = builder.gep(begin, [builder.zext(index, wide)], inbounds=True)
            four = ir.VectorType(word, 4)
            loaded = builder.load(builder.bitcast(begin, ir.PointerType(four, _SHARED)), align=16)
            items = [builder.extract_element(loaded, word(x)) for x in range(4)]
            return context.make_tuple(builder, signature.return_type, items)

        return signature, codegen
