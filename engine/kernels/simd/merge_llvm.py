"""The step of a merge that takes eight words at once: a bitonic merging network, in LLVM's vectors of 64 bytes.

Batcher, "Sorting networks and their applications", 1968. The sixteen words of two sorted registers, one of them turned
around, rise and fall. Comparing words 8 apart parts the lesser eight from the greater ones, then words 4, 2 and 1 apart
put both halves into order. For each distance the partners are brought into the same lanes of two registers, so that one
minimum and one maximum serve both halves.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .simd_llvm import INT32, INT64, load_unaligned, store_unaligned

_LANES = 8
_REGISTER = ir.VectorType(INT64, _LANES)


@intrinsic
def merge_eight(typing_context, carry, source, target):
    """Vector instructions: of the sorted words at ``carry`` and ``source`` write the lesser eight to ``target``, the
    others to ``carry``."""

    def generate(context, builder, signature, arguments):
        carry_, source_, target_ = arguments
        held, taken = (load_unaligned(builder, address, _REGISTER) for address in (carry_, source_))
        lesser, greater = _merged(builder, held, taken)
        store_unaligned(builder, lesser, target_)
        store_unaligned(builder, greater, carry_)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _merged(builder: ir.IRBuilder, left: Any, right: Any) -> tuple[Any, Any]:
    turned = _shuffle(builder, right, right, list(range(_LANES))[::-1])
    low, high = _compared(builder, left, turned)
    order = list(range(2 * _LANES))  # which word of the sixteen is in which lane of the two
    for distance in (4, 2, 1):
        wanted = [word for word in range(2 * _LANES) if not word & distance]
        low, high, order = _arranged(builder, low, high, order, [*wanted, *(word | distance for word in wanted)])
        low, high = _compared(builder, low, high)
    low, high, _ = _arranged(builder, low, high, order, list(range(2 * _LANES)))
    return low, high


def _compared(builder: ir.IRBuilder, left: Any, right: Any) -> tuple[Any, Any]:
    """Return the lesser and the greater of each lane."""
    is_less = builder.icmp_unsigned("<", left, right)
    return builder.select(is_less, left, right), builder.select(is_less, right, left)


def _arranged(
    builder: ir.IRBuilder, low: Any, high: Any, order: list[int], wanted: list[int]
) -> tuple[Any, Any, list[int]]:
    """Bring words that stand as ``order`` says into the order ``wanted``."""
    lanes = [order.index(word) for word in wanted]
    return _shuffle(builder, low, high, lanes[:_LANES]), _shuffle(builder, low, high, lanes[_LANES:]), wanted


def _shuffle(builder: ir.IRBuilder, low: Any, high: Any, lanes: list[int]) -> Any:
    """Return the words in ``lanes``: 0 to 7 are in ``low``, 8 to 15 in ``high``."""
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(INT32, _LANES), lanes))
