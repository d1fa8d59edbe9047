"""The instructions that a CRC is folded by; see `crc32`. Each only for processors that have it."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .simd_llvm import INT8, INT32, INT64, load_unaligned, store_unaligned

_WORDS = ir.VectorType(INT64, 2)


@intrinsic
def fold16(typing_context, state, data, low, high):
    """Vector instructions: replace 16 bytes at ``state`` by low half * ``low`` xor high half * ``high`` xor the 16
    bytes at ``data``."""

    def generate(context, builder, signature, arguments):
        state_, data_, *factors = arguments
        words = load_unaligned(builder, state_, _WORDS)
        pair = ir.Constant(_WORDS, ir.Undefined)
        for place, factor in enumerate(factors):
            pair = builder.insert_element(pair, factor, INT32(place))
        kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS, INT8])
        multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
        products = [builder.call(multiply, [words, pair, INT8(halves)]) for halves in (0x00, 0x11)]
        folded = builder.xor(builder.xor(*products), load_unaligned(builder, data_, _WORDS))
        store_unaligned(builder, folded, state_)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint64, types.uint64), generate


_WIDE = ir.VectorType(INT64, 8)


@intrinsic
def fold64(typing_context, state, data, low, high):
    """Vector instructions: do as `fold16` to each 16 bytes of 64."""

    def generate(context, builder, signature, arguments):
        state_, data_, *factors = arguments
        words = load_unaligned(builder, state_, _WIDE)
        pairs = ir.Constant(_WIDE, ir.Undefined)
        for place in range(8):
            pairs = builder.insert_element(pairs, factors[place % 2], INT32(place))
        kind = ir.FunctionType(_WIDE, [_WIDE, _WIDE, INT8])
        multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq.512")
        products = [builder.call(multiply, [words, pairs, INT8(halves)]) for halves in (0x00, 0x11)]
        folded = builder.xor(builder.xor(*products), load_unaligned(builder, data_, _WIDE))
        store_unaligned(builder, folded, state_)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint64, types.uint64), generate
