"""Bounds checks of intrinsics, which load and store at addresses that numba does not check.

With ``NUMBA_BOUNDSCHECK=1`` numba checks each index, and intrinsics check their items here: what is
out of bounds raises IndexError. Without it, no instruction is written. Neither checks memory that
is given by its address (:mod:`mapper.jit.addresses`), code of CUDA devices, and slices, which are
cut to the array.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils


def check_items(
    context: Any, builder: Any, array_type: Any, array: Any, start: Any, n: Any, n_bytes: int = 0
) -> None:
    """Write the check that an array has `n` items from `start` on.

    Parameters
    ----------
    array
        Value of type `array_type`, C-contiguous.
    start, n
        int64; n may be a Python integer. Without items (n = 0) nothing is accessed.
    n_bytes
        Bytes of the items that are counted; 0 for those of the array.
    """
    if not context.enable_boundscheck:
        return
    made = context.make_array(array_type)(context, builder, array)
    size = made.nitems
    if n_bytes:
        size = builder.udiv(builder.mul(size, made.itemsize), size.type(n_bytes))
    n = start.type(n) if isinstance(n, int) else n
    is_outside = builder.or_(
        builder.icmp_signed("<", start, start.type(0)),
        builder.icmp_signed(">", builder.add(start, n), size),
    )
    is_accessed = builder.icmp_signed(">", n, n.type(0))
    with cgutils.if_unlikely(builder, builder.and_(is_outside, is_accessed)):
        context.call_conv.return_user_exc(builder, IndexError, ("items are out of bounds",))
