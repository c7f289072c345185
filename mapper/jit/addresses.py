"""Memory at addresses, read by compiled code.

A compiled function that takes addresses is compiled once, whatever arrays a caller has: they may be
read-only, or parts of others.
"""

from __future__ import annotations

import ctypes

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


def address_of(array: np.ndarray) -> int:
    """Return where an array begins; its items must lie one behind another."""
    if not array.flags.c_contiguous:
        raise ValueError("the items of the array do not lie one behind another")
    return int(array.ctypes.data)


if numba.config.DISABLE_JIT:

    def word_at(address):
        """Return the int64 at an address."""
        return np.int64(ctypes.c_int64.from_address(int(address)).value)

    def bytes_at(address, n):
        """Return n bytes at an address as an array, which does not keep their memory."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * int(n)).from_address(int(address)))

else:

    @intrinsic
    def word_at(typingctx, address):
        """Return the int64 at an address."""

        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
            return builder.load(pointer, align=4)

        return types.int64(types.int64), codegen

    @intrinsic
    def bytes_at(typingctx, address, n):
        """Return n bytes at an address as an array, which does not keep their memory."""
        kind = types.Array(types.uint8, 1, "C")

        def codegen(context, builder, signature, args):
            array = context.make_array(kind)(context, builder)
            one = context.get_constant(types.intp, 1)
            data = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
            populate_array(
                array, data=data, shape=[args[1]], strides=[one], itemsize=one, meminfo=None
            )
            return array._getvalue()

        return kind(types.int64, types.int64), codegen
