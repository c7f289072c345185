"""Counters that threads share, for compiled cores on either target.

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


def fetch_add_at(counts, at, value):
    """Add to an item of an int32 or int64 array of one dimension, at once; return what it was."""
    with _LOCK:
        before = counts[at]
        counts[at] = before + value
    return before


@intrinsic
def _atomic_add(typingctx, counts, at, value):
    if not isinstance(counts, types.Array) or counts.dtype not in (types.int32, types.int64):
        return None

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, [args[1]], wraparound=False
        )
        return builder.atomic_rmw("add", place, args[2], "monotonic")

    return counts.dtype(counts, types.intp, counts.dtype), codegen


@overload(fetch_add, inline="always")
def _fetch_add_compiled(counter, value):
    return lambda counter, value: _atomic_add(counter, 0, value)


@overload(fetch_add_at, inline="always")
def _fetch_add_at_compiled(counts, at, value):
    return lambda counts, at, value: _atomic_add(counts, at, value)
