"""The compiled form of `simd`: each function is a few lines of LLVM, placed where it is called.

All are made at module level: numba finds a kernel again in its cache only when what the kernel
refers to is a module global (an intrinsic that a closure captures makes a new cache entry in every
process).
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

INT8 = ir.IntType(8)
INT32 = ir.IntType(32)
INT64 = ir.IntType(64)
INT128 = ir.IntType(128)
BYTE_POINTER = INT8.as_pointer()


def load_unaligned(builder: ir.IRBuilder, address: ir.Value, llvm_type: ir.Type) -> Any:
    """Emit the instruction that loads ``llvm_type`` from an integer address of any alignment."""
    value = builder.load(builder.inttoptr(address, llvm_type.as_pointer()))
    value.align = 1
    return value


def store_unaligned(builder: ir.IRBuilder, value: Any, address: ir.Value) -> None:
    """Emit the instruction that stores ``value`` to an integer address of any alignment."""
    store = builder.store(value, builder.inttoptr(address, value.type.as_pointer()))
    store.align = 1


def _make_load(result: types.Integer) -> Callable:
    @intrinsic
    def load(typing_context, address):
        def generate(context, builder, signature, arguments):
            return load_unaligned(builder, arguments[0], ir.IntType(result.bitwidth))

        return result(types.int64), generate

    return load


def _make_store(value: types.Integer) -> Callable:
    @intrinsic
    def store(typing_context, address, value_):
        def generate(context, builder, signature, arguments):
            store_unaligned(builder, arguments[1], arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64, value), generate

    return store


def _make_copy(byte_count: int) -> Callable:
    @intrinsic
    def copy(typing_context, target, source):
        def generate(context, builder, signature, arguments):
            vector = ir.VectorType(INT8, byte_count)
            store_unaligned(builder, load_unaligned(builder, arguments[1], vector), arguments[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return copy


def _make_view(element: types.Number) -> Callable:
    array_type = types.Array(element, 1, "C", aligned=False)

    @intrinsic
    def view(typing_context, address, count):
        def generate(context, builder, signature, arguments):
            llvm_element = context.get_data_type(element)
            item_size = ir.Constant(INT64, context.get_abi_sizeof(llvm_element))
            array = context.make_array(array_type)(context, builder)
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(arguments[0], llvm_element.as_pointer()),
                shape=[arguments[1]],
                strides=[item_size],
                itemsize=item_size,
                meminfo=None,
            )
            return array._getvalue()

        return array_type(types.int64, types.int64), generate

    return view


def _make_changes(width: int) -> Callable:
    @intrinsic
    def changes(typing_context, address):
        def generate(context, builder, signature, arguments):
            cells = ir.VectorType(ir.IntType(8 * width), 64 // width)
            neighbours = builder.add(arguments[0], INT64(width))
            differ = builder.icmp_unsigned(
                "!=",
                load_unaligned(builder, arguments[0], cells),
                load_unaligned(builder, neighbours, cells),
            )
            mask = builder.bitcast(differ, ir.IntType(64 // width))
            return mask if width == 1 else builder.zext(mask, INT64)

        return types.uint64(types.int64), generate

    return changes


load_u8 = _make_load(types.uint8)
load_u16 = _make_load(types.uint16)
load_u32 = _make_load(types.uint32)
load_u64 = _make_load(types.uint64)
store_u8 = _make_store(types.uint8)
store_u16 = _make_store(types.uint16)
store_u32 = _make_store(types.uint32)
store_u64 = _make_store(types.uint64)
copy8 = _make_copy(8)
copy16 = _make_copy(16)
copy32 = _make_copy(32)
copy64 = _make_copy(64)
changes_u8 = _make_changes(1)
changes_u16 = _make_changes(2)
changes_u32 = _make_changes(4)
changes_u64 = _make_changes(8)
view_u8 = _make_view(types.uint8)
view_u16 = _make_view(types.uint16)
view_u32 = _make_view(types.uint32)
view_u64 = _make_view(types.uint64)
view_i8 = _make_view(types.int8)
view_i16 = _make_view(types.int16)
view_i32 = _make_view(types.int32)
view_i64 = _make_view(types.int64)
view_f32 = _make_view(types.float32)
view_f64 = _make_view(types.float64)


@intrinsic
def address_of(typing_context, array):
    """Inside a kernel, return the address of the first byte of ``array``."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, INT64)

    return types.int64(array), generate


@intrinsic
def copy_bytes(typing_context, target, source, byte_count):
    """By LLVM's instruction, copy exactly ``byte_count`` bytes between places that do not overlap."""

    def generate(context, builder, signature, arguments):
        pointers = [builder.inttoptr(address, BYTE_POINTER) for address in arguments[:2]]
        cgutils.raw_memcpy(builder, *pointers, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def fill64(typing_context, address, value):
    """Vector instructions: write the uint64 ``value`` eight times, 64 bytes in all."""

    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(INT64, 8)
        nothing = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(nothing, arguments[1], INT32(0))
        lanes = ir.Constant(ir.VectorType(INT32, 8), [0] * 8)
        store_unaligned(builder, builder.shuffle_vector(first, nothing, lanes), arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic
def prefetch(typing_context, address):
    """By LLVM's instruction, ask for the cache line at ``address``, to read it soon."""

    def generate(context, builder, signature, arguments):
        function_type = ir.FunctionType(ir.VoidType(), [BYTE_POINTER, INT32, INT32, INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [BYTE_POINTER], function_type)
        read, keep_in_all_levels, data = INT32(0), INT32(3), INT32(1)
        pointer = builder.inttoptr(arguments[0], BYTE_POINTER)
        builder.call(function, [pointer, read, keep_in_all_levels, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def take_lock(typing_context, address):
    """By LLVM's instruction, make the uint64 at ``address`` 1 if it is 0, as one step; return whether it was."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], INT64.as_pointer())
        pair = builder.cmpxchg(pointer, INT64(0), INT64(1), "acquire", "monotonic")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64), generate


@intrinsic
def release_lock(typing_context, address):
    """By LLVM's instruction, make the uint64 at ``address`` 0, after all that was written before."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], INT64.as_pointer())
        builder.store_atomic(INT64(0), pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def byte_swap64(typing_context, value):
    """By LLVM's instruction, return the bytes of a uint64 in opposite order."""

    def generate(context, builder, signature, arguments):
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def multiply_fold(typing_context, left, right):
    """By LLVM's instruction, return high half xor low half of the 128-bit product: the mixing step of fast hashes."""

    def generate(context, builder, signature, arguments):
        product = builder.mul(*[builder.zext(argument, INT128) for argument in arguments])
        high = builder.trunc(builder.lshr(product, INT128(64)), INT64)
        return builder.xor(builder.trunc(product, INT64), high)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def trailing_zeros64(typing_context, value):
    """By LLVM's instruction, return how many zero bits lie below the lowest set bit; 64 for 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def leading_zeros64(typing_context, value):
    """By LLVM's instruction, return how many zero bits lie above the highest set bit; 64 for 0."""

    def generate(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def population_count64(typing_context, value):
    """By LLVM's instruction, return the number of set bits."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate
