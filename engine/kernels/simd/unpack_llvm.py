"""The cells of packed integers (`bit_packing`), eight at a time, in LLVM's vectors.

Eight values of w bits begin with a byte, and take w bytes. A few loads take the bytes of some values each, one byte
shuffle puts those of each value into a lane, and all lanes are shifted and masked at once; the orders of the bytes and
the shifts follow from w, once for all values. Lanes have 4 bytes while a value and the bits before it fit, else 8.
(Willhalm et al., "SIMD-Scan", VLDB 2009.)
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .cpu import FEATURES
from .simd_llvm import INT8, INT32, INT64, load_unaligned, store_unaligned

CAN_UNPACK = not FEATURES.isdisjoint({"ssse3", "neon"})
"""Whether there is an instruction that shuffles bytes by an order in a register."""

_HALF = ir.VectorType(INT8, 16)
_UNIT = ir.VectorType(INT8, 32)


def make_unpack_eights(cell_bytes: int, lane_bytes: int) -> Callable[[int, int, int, int, int], None]:
    """Return the vector instructions that unpack eight values at a time, as an intrinsic (source, eights, width, base,
    target): it writes ``base`` plus each value, modulo their size, to cells of ``cell_bytes``; values of up to 25 bits
    with lanes of 4 bytes, others with 8.

    It reads 16 bytes from the byte on in which each fourth value begins; with lanes of 8 bytes, each second.
    """
    together = 16 // lane_bytes

    @intrinsic
    def unpack_eights(typing_context, source, eights, width, base, target):
        def generate(context, builder, signature, arguments):
            source, eights, width, base, target = arguments
            lanes = ir.VectorType(ir.IntType(8 * lane_bytes), 32 // lane_bytes)
            cells = ir.VectorType(ir.IntType(8 * cell_bytes), lanes.count)
            first = _splat(builder, base, cells)
            mask = _splat(builder, _mask(builder, width), lanes)
            units = []
            for value in range(0, 8, lanes.count):
                begins = [builder.mul(width, INT64(value + half)) for half in (0, together)]
                units.append((begins, *_order(builder, begins, width, lanes)))
            with cgutils.for_range(builder, eights) as loop:
                place = builder.add(source, builder.mul(loop.index, width))
                to = builder.add(target, builder.mul(loop.index, INT64(8 * cell_bytes)))
                for number, (begins, order, shifts) in enumerate(units):
                    halves = [
                        load_unaligned(builder, builder.add(place, builder.lshr(begin, INT64(3))), _HALF)
                        for begin in begins
                    ]
                    found = builder.bitcast(_shuffled(builder, halves, order), lanes)
                    found = builder.and_(builder.lshr(found, shifts), mask)
                    written = builder.add(to, INT64(number * cell_bytes * lanes.count))
                    store_unaligned(builder, builder.add(first, _resized(builder, found, cells)), written)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return unpack_eights


def _mask(builder: ir.IRBuilder, width: Any) -> Any:
    """Return an integer whose lower ``width`` bits, 1 to 64, are set."""
    return builder.lshr(INT64(-1), builder.sub(INT64(64), width))


def _order(builder: ir.IRBuilder, begins: Sequence[Any], width: Any, lanes: ir.VectorType) -> tuple[Any, Any]:
    """Return which byte of its 16 comes where in each half of a unit, and by how many bits its lanes are shifted.
    ``begins`` are the bits at which the halves begin."""
    together = lanes.count // 2
    values = ir.Constant(lanes, [*range(together)] * 2)
    bits = builder.mul(values, _splat(builder, width, lanes))
    skipped = [_splat(builder, builder.and_(begin, INT64(7)), lanes) for begin in begins]
    both = [*range(together), *range(lanes.count + together, 2 * lanes.count)]
    bits = builder.add(bits, _permuted(builder, *skipped, both))
    lane_bytes = lanes.element.width // 8
    ones, steps = (int.from_bytes(bytes(digits), "little") for digits in ([1] * lane_bytes, range(lane_bytes)))
    order = builder.mul(builder.lshr(bits, _all(lanes, 3)), _all(lanes, ones))
    return builder.bitcast(builder.add(order, _all(lanes, steps)), _UNIT), builder.and_(bits, _all(lanes, 7))


def _shuffled(builder: ir.IRBuilder, halves: Sequence[Any], order: Any) -> Any:
    """Return the bytes of two halves, each in its part of ``order``."""
    if "avx2" in FEATURES:
        return _call(builder, "llvm.x86.avx2.pshuf.b", _permuted(builder, *halves, list(range(32))), order)
    name = "llvm.x86.ssse3.pshuf.b.128" if "ssse3" in FEATURES else "llvm.aarch64.neon.tbl1.v16i8"
    orders = (_permuted(builder, order, order, list(range(first, first + 16))) for first in (0, 16))
    found = [_call(builder, name, half, wanted) for half, wanted in zip(halves, orders, strict=True)]
    return _permuted(builder, *found, list(range(32)))


def _call(builder: ir.IRBuilder, name: str, bytes_: Any, order: Any) -> Any:
    kind = ir.FunctionType(bytes_.type, [bytes_.type, order.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [bytes_, order])


def _resized(builder: ir.IRBuilder, value: Any, kind: Any) -> Any:
    """Return unsigned integers, one or a vector, with as many bits as those of ``kind``."""
    have, want = (getattr(each, "element", each).width for each in (value.type, kind))
    if have == want:
        return value
    return builder.zext(value, kind) if have < want else builder.trunc(value, kind)


def _splat(builder: ir.IRBuilder, value: Any, kind: ir.VectorType) -> Any:
    value = _resized(builder, value, kind.element)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, INT32(0))
    return _permuted(builder, one, one, [0] * kind.count)


def _all(kind: ir.VectorType, value: int) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _permuted(builder: ir.IRBuilder, low: Any, high: Any, order: list[int]) -> Any:
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(INT32, len(order)), order))
