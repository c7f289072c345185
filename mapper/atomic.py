"""A counter that threads share, for compiled cores on either target.

With it a core can append to a list: whoever adds 1 owns the slot that the old value names.
The order of such a list is that of time and must not reach any output.
"""

from __future__ import annotations

import threading

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

_LOCK = threading.Lock()


def fetch_add(counter, value):
    """Add to the only item of an int64 array of shape (1,), at once; return what it was.

    The Python body serves where the JIT is off: numba's CUDA simulator runs its threads as
    Python threads.
    """
    with _LOCK:
        before = counter[0]
        counter[0] = before + value
    return before


@intrinsic
def _atomic_add(typingctx, counter, value):
    if not isinstance(counter, types.Array) or counter.dtype != types.int64:
        return None

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        zero = context.get_constant(types.intp, 0)
        place = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, [zero], wraparound=False
        )
        return builder.atomic_rmw("add", place, args[1], "monotonic")

    return types.int64(counter, types.int64), codegen


@overload(fetch_add, inline="always")
def _fetch_add_compiled(counter, value):
    return lambda counter, value: _atomic_add(counter, value)
