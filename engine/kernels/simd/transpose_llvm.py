"""Bit transposition of 64 cells at a time, in LLVM's vectors of 64 bytes.

A tile is 64 cells of ``width`` bytes. Shuffling moves bit k of byte b of every cell into plane
8 b + k; of each plane one tile fills 8 bytes. Two steps:

1. byte planes: each of the ``width`` registers of a tile is sorted by byte number (one byte
   shuffle), then log2(width) rounds of two-register shuffles transpose the square matrix whose
   cells are the 64 / width bytes of one byte number (the butterfly of a fast Fourier transform);
2. bit planes: the sign bits of 64 bytes are one 64-bit mask (``vpmovb2m`` or ``vpmovmskb``); adding
   the register to itself brings up the next bit.

Unshuffling runs backwards. With GFNI, ``vgf2p8affineqb`` transposes eight 8x8 bit matrices in one
instruction, which replaces step 2. All else is plain LLVM and compiles for any processor.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .cpu import HAS_AFFINE
from .simd_llvm import INT8, INT32, INT64, load_unaligned, store_unaligned

TILE = 64
_REGISTER = ir.VectorType(INT8, TILE)
_MASK = ir.VectorType(ir.IntType(1), TILE)


def make_shuffle_tile(width: int) -> Callable[[int, int, int], None]:
    """Return the vector instructions that shuffle 64 cells, as an intrinsic (source, target, plane_stride)."""

    @intrinsic
    def shuffle_tile(typing_context, source, target, plane_stride):
        def generate(context, builder, signature, arguments):
            source, target, plane_stride = arguments
            registers = [load_unaligned(builder, builder.add(source, INT64(TILE * i)), _REGISTER) for i in range(width)]
            order = _by_byte_number(width)
            registers = [_permute(builder, register, order) for register in registers]
            address = target
            for byte_plane in _transpose_chunks(builder, registers):
                for mask in _bit_planes(builder, byte_plane):
                    store_unaligned(builder, mask, address)
                    address = builder.add(address, plane_stride)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return shuffle_tile


def make_unshuffle_tile(width: int) -> Callable[[int, int, int], None]:
    """Return the vector instructions that restore 64 cells, as an intrinsic (source, target, plane_stride)."""

    @intrinsic
    def unshuffle_tile(typing_context, source, target, plane_stride):
        def generate(context, builder, signature, arguments):
            address, target, plane_stride = arguments
            byte_planes = []
            for _ in range(width):
                masks = []
                for _ in range(8):
                    masks.append(load_unaligned(builder, address, INT64))
                    address = builder.add(address, plane_stride)
                byte_planes.append(_byte_plane(builder, masks))
            order = _inverse(_by_byte_number(width))
            for i, register in enumerate(_transpose_chunks(builder, byte_planes)):
                register = _permute(builder, register, order)
                store_unaligned(builder, register, builder.add(target, INT64(TILE * i)))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return unshuffle_tile


def _by_byte_number(width: int) -> list[int]:
    """Return the byte order that puts byte 0 of all cells of a register first, then byte 1..."""
    cells = TILE // width
    return [(i % cells) * width + i // cells for i in range(TILE)]


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _transpose_chunks(builder: ir.IRBuilder, registers: list[Any]) -> list[Any]:
    """Transpose a square matrix of chunks: chunk j of register i trades places with i of j."""
    size = len(registers)
    chunk = TILE // size
    step = 1
    while step < size:
        traded = list(registers)
        for i in range(size):
            if i & step:
                continue
            low, high = registers[i], registers[i | step]
            lower, upper = [], []
            for j in range(size):
                own, partner = j * chunk, (j ^ step) * chunk
                first = TILE + partner if j & step else own
                second = TILE + own if j & step else partner
                lower += range(first, first + chunk)
                upper += range(second, second + chunk)
            traded[i] = _shuffle(builder, low, high, lower)
            traded[i | step] = _shuffle(builder, low, high, upper)
        registers = traded
        step *= 2
    return registers


def _bit_planes(builder: ir.IRBuilder, byte_plane: Any) -> list[Any]:
    """Return the 8 bit planes of 64 bytes, bit 0 first."""
    masks = []
    for bit in range(7, -1, -1):
        negative = builder.icmp_signed("<", byte_plane, _splat(0))
        masks.append(builder.bitcast(negative, INT64))
        if bit:
            byte_plane = builder.add(byte_plane, byte_plane)
    return masks[::-1]


def _byte_plane(builder: ir.IRBuilder, masks: list[Any]) -> Any:
    """Return the 64 bytes whose 8 bit planes are ``masks``."""
    if HAS_AFFINE:
        return _byte_plane_affine(builder, masks)
    result = _splat(0)
    for bit, mask in enumerate(masks):
        bits = builder.select(builder.bitcast(mask, _MASK), _splat(1 << bit), _splat(0))
        result = builder.or_(result, bits)
    return result


def _byte_plane_affine(builder: ir.IRBuilder, masks: list[Any]) -> Any:
    """The same by GFNI: lane g of the register holds byte g of planes 7 to 0, a matrix a lane."""
    planes = ir.Constant(ir.VectorType(INT64, 8), ir.Undefined)
    for lane, mask in enumerate(masks):
        planes = builder.insert_element(planes, mask, INT32(lane))
    matrices = _permute(
        builder,
        builder.bitcast(planes, _REGISTER),
        [(7 - i % 8) * 8 + i // 8 for i in range(TILE)],
    )
    function_type = ir.FunctionType(_REGISTER, [_REGISTER, _REGISTER, INT8])
    affine = builder.module.declare_intrinsic("llvm.x86.vgf2p8affineqb.512", fnty=function_type)
    unit_vectors = ir.Constant(_REGISTER, [1 << (i % 8) for i in range(TILE)])
    return builder.call(affine, [unit_vectors, matrices, INT8(0)])


def _splat(byte: int) -> ir.Constant:
    return ir.Constant(_REGISTER, [byte] * TILE)


def _permute(builder: ir.IRBuilder, register: Any, order: list[int]) -> Any:
    return _shuffle(builder, register, register, order)


def _shuffle(builder: ir.IRBuilder, low: Any, high: Any, order: list[int]) -> Any:
    """Return the bytes numbered by ``order``: 0 to 63 are in ``low``, 64 to 127 in ``high``."""
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(INT32, TILE), order))
