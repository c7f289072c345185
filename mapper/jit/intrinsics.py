"""Intrinsics of compiled cores, on the CPU and on CUDA: bits, atomic counters, products, prefetch.

The Python bodies define the functions, and run where the JIT is off. Compiled code uses one
machine instruction each, or two: the compilers of both targets know the LLVM intrinsics of the
overloads below.
"""

from __future__ import annotations

import platform
import threading
import time

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from mapper.jit.bounds import check_items

# --- atomic counters ---

_LOCK = threading.Lock()
"""For the Python bodies: numba's CUDA simulator runs its threads as Python threads."""


def fetch_add(counter, value):
    """Add atomically to the only item of an int64 array of shape (1,); return the old value.

    A core can so append to a list: the old value is the index of the new item. The order of the
    list is that of time and must not reach any output.
    """
    with _LOCK:
        before = counter[0]
        counter[0] = before + value
    return before


def fetch_add_at(counts, at, value):
    """Add atomically to an item of a 1-D int32 or int64 array; return the old value."""
    with _LOCK:
        before = counts[at]
        counts[at] = before + value
    return before


def _item(context, builder, array_type, array, at, n=1):
    """Return the address of the first of `n` items of a 1-D array, which are accessed."""
    check_items(context, builder, array_type, array, at, n)
    array = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, array, [at])


@intrinsic
def _add_relaxed(typingctx, counts, at, value):
    if not isinstance(counts, types.Array) or counts.dtype not in (types.int32, types.int64):
        return None

    def codegen(context, builder, signature, args):
        item = _item(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", item, args[2], "monotonic")

    return counts.dtype(counts, types.intp, counts.dtype), codegen


@overload(fetch_add, inline="always")
def _fetch_add_compiled(counter, value):
    return lambda counter, value: _add_relaxed(counter, 0, value)


@overload(fetch_add_at, inline="always")
def _fetch_add_at_compiled(counts, at, value):
    return lambda counts, at, value: _add_relaxed(counts, at, value)


# --- atomic operations that order memory: for queues between threads of the CPU ---

# What a thread wrote before it changed a number is seen by the thread that reads the change, and
# all threads see the changes in one order. The counters above order nothing, which is all that a
# list needs, and cheaper on a GPU.


def atomic_add(numbers, at, n):
    """Add n to an item of an int64 array; return its previous value."""
    with _LOCK:
        before = int(numbers[at])
        numbers[at] = before + n
    return before


def atomic_read(numbers, at):
    """Return an item of an int64 array."""
    return int(numbers[at])


def atomic_replace(numbers, at, expected, value):
    """Replace an item of an int64 array if it equals `expected`; return its previous value."""
    with _LOCK:
        before = int(numbers[at])
        if before == expected:
            numbers[at] = value
    return before


@intrinsic
def _add_ordered(typingctx, numbers, at, n):
    def codegen(context, builder, signature, args):
        item = _item(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", item, args[2], "seq_cst")

    return types.int64(numbers, types.int64, types.int64), codegen


@intrinsic
def _replace(typingctx, numbers, at, expected, value):
    def codegen(context, builder, signature, args):
        item = _item(context, builder, signature.args[0], args[0], args[1])
        found = builder.cmpxchg(item, args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(found, 0)

    return types.int64(numbers, types.int64, types.int64, types.int64), codegen


@intrinsic
def _read(typingctx, numbers, at):
    def codegen(context, builder, signature, args):
        item = _item(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(item, "seq_cst", 8)

    return types.int64(numbers, types.int64), codegen


@overload(atomic_add, inline="always")
def _atomic_add_compiled(numbers, at, n):
    return lambda numbers, at, n: _add_ordered(numbers, at, n)


@overload(atomic_replace, inline="always")
def _atomic_replace_compiled(numbers, at, expected, value):
    return lambda numbers, at, expected, value: _replace(numbers, at, expected, value)


@overload(atomic_read, inline="always")
def _atomic_read_compiled(numbers, at):
    return lambda numbers, at: _read(numbers, at)


def pause():
    """Let the CPU wait, 10 to 50 ns on x86: for loops that wait for a change by another thread."""


@intrinsic
def _pause(typingctx):
    def codegen(context, builder, signature, args):
        if platform.machine() in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.none(), codegen


@overload(pause, inline="always")
def _pause_compiled():
    return lambda: _pause()


def nap(microseconds):
    """Let the thread sleep; it keeps the GIL if it has it."""
    time.sleep(1e-6 * microseconds)


@intrinsic
def _nap(typingctx, microseconds):
    def codegen(context, builder, signature, args):
        number = ir.IntType(32)
        kind = ir.FunctionType(number, [number])
        usleep = cgutils.get_or_insert_function(builder.module, kind, "usleep")  # the C library's
        builder.call(usleep, [builder.trunc(args[0], number)])
        return context.get_dummy_value()

    return types.none(types.int64), codegen


@overload(nap, inline="always")
def _nap_compiled(microseconds):
    return lambda microseconds: _nap(microseconds)


# --- bits of words ---


def popcount(word):
    """Return the number of set bits of a uint64, as int64."""
    return int(word).bit_count()


def trailing_zeros(word):
    """Return the index of the lowest set bit of a uint64; 64 for 0."""
    word = int(word)
    return (word & -word).bit_length() - 1 if word else 64


def trailing_zeros_32(word):
    """Return the index of the lowest set bit of a uint32; 32 for 0."""
    word = int(word)
    return (word & -word).bit_length() - 1 if word else 32


def leading_zeros(word):
    """Return 63 minus the index of the highest set bit of a uint64; 64 for 0."""
    return 64 - int(word).bit_length()


def reversed_bits(word):
    """Return a uint64 with its bits in reverse order."""
    return np.uint64(int(f"{int(word):064b}"[::-1], 2))


def bit_of_bytes(numbers, at, bit):
    """Return bit `bit` (a constant) of 32 items of a uint8 array, from `at` on: item i in bit i.

    For the CPU only, where it is a load and two vector instructions.
    """
    return np.uint64(sum((int(numbers[int(at) + i]) >> bit & 1) << i for i in range(32)))


@intrinsic(prefer_literal=True)
def _bit_of_bytes(typingctx, numbers, at, bit):
    if not isinstance(bit, types.IntegerLiteral):
        return None
    chosen = 1 << bit.literal_value

    def codegen(context, builder, signature, args):
        start = _item(context, builder, signature.args[0], args[0], args[1], 32)
        vector = ir.VectorType(ir.IntType(8), 32)
        items = builder.load(builder.bitcast(start, vector.as_pointer()), align=1)
        items = builder.and_(items, ir.Constant(vector, [chosen] * 32))
        is_set = builder.icmp_unsigned("!=", items, ir.Constant(vector, [0] * 32))
        return builder.zext(builder.bitcast(is_set, ir.IntType(32)), ir.IntType(64))

    return types.uint64(numbers, types.int64, bit), codegen


@intrinsic
def _ctpop(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def _cttz(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def _cttz_32(typingctx, word):
    def codegen(context, builder, signature, args):
        # As CUDA counts trailing zeros, but without a choice for the word 0.
        below = builder.and_(builder.sub(args[0], args[0].type(1)), builder.not_(args[0]))
        return builder.ctpop(below)

    return types.int32(types.uint32), codegen


@intrinsic
def _ctlz(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def _bitreverse(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.bitreverse(args[0])

    return types.uint64(types.uint64), codegen


@overload(bit_of_bytes, prefer_literal=True, inline="always")
def _bit_of_bytes_compiled(numbers, at, bit):
    return lambda numbers, at, bit: _bit_of_bytes(numbers, at, bit)


@overload(popcount, inline="always")
def _popcount_compiled(word):
    return lambda word: _ctpop(word)


@overload(trailing_zeros, inline="always")
def _trailing_zeros_compiled(word):
    return lambda word: _cttz(word)


@overload(trailing_zeros_32, inline="always")
def _trailing_zeros_32_compiled(word):
    return lambda word: _cttz_32(word)


@overload(leading_zeros, inline="always")
def _leading_zeros_compiled(word):
    return lambda word: _ctlz(word)


@overload(reversed_bits, inline="always")
def _reversed_bits_compiled(word):
    return lambda word: _bitreverse(word)


# --- floating point ---


def rounded_product(a, b):
    """Return the product of two float64, rounded before it is added to anything.

    A device's compiler makes one instruction of a product and a sum, which rounds once: the result
    may differ from the host's in the last bit.
    """
    return a * b


@intrinsic
def _rounded_product(typingctx, a, b):
    def codegen(context, builder, signature, args):
        if not str(builder.module.triple).startswith("nvptx"):
            return builder.fmul(*args)
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double, double])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.nvvm.mul.rn.d")
        return builder.call(function, args)

    return types.float64(types.float64, types.float64), codegen


# Not inlined by numba: numba-cuda (0.30.4) then takes a variable whose last use this is as 0.
@overload(rounded_product)
def _rounded_product_compiled(a, b):
    return lambda a, b: _rounded_product(a, b)


# --- prefetch ---


def prefetch(array, item):
    """Load the cache line of an item (flat index) of a C-contiguous array, for reading.

    The first access to a read's position in a genome takes a cache miss, as long as the rest of
    its record takes. Prefetched some records ahead, it is in the cache in time.
    """


@intrinsic
def _prefetch(typingctx, array, item):
    def codegen(context, builder, signature, args):
        made = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.bitcast(builder.gep(made.data, [args[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        # To be read (0), kept in all caches (3), data (1).
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(array, types.int64), codegen


@overload(prefetch, inline="always")
def _prefetch_compiled(array, item):
    return lambda array, item: _prefetch(array, item)
