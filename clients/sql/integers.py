"""How large the integers of a query may be, by the types of its columns and of what is computed of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .kinds import INTEGERS, Columns, Kind, Kinds, called, columns_of, words

COMPUTED = (exp.Add, exp.Sub, exp.Mul)
CHAIN = (*COMPUTED, exp.Neg, exp.Paren)
"""One computation: what is cast to bigint as a whole."""
FAR = 1 << 63
WHOLE, HALF = 63, 31
"""Bits of a bigint, and of an integer."""
_CASTS = {
    exp.DType.TINYINT: 7,
    exp.DType.SMALLINT: 15,
    exp.DType.INT: HALF,
    exp.DType.BIGINT: WHOLE,
}
ROWS = 40
"""A query has fewer than 2 to the power of this many rows."""
_COUNTS = words("count row_number rank dense_rank ntile approx_distinct")
_FAR_FUNCTIONS = words("factorial to_unixtime")
_DIVISORS = words("gcd lcm")
_ARROW_CASTS = words("arrow_cast arrow_try_cast")
_ARROW_INTEGER = re.compile(r"U?Int\d+")
_SIDES = (
    exp.Div,
    exp.Mod,
    exp.BitwiseAnd,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.BitwiseLeftShift,
    exp.BitwiseRightShift,
    exp.Pow,
)
"""Operators of integers whose value has a type of its operands. DataFusion reads ``^`` as XOR."""
_SAME = (exp.Round, exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg)
UNSIGNED = words("row_number rank dense_rank ntile approx_distinct")
"""Functions whose integers have no sign in DataFusion, which makes decimals of them and others."""


def integer_columns(schema: pa.Schema) -> Columns:
    """Return the columns of a table that a query reads, with the bits of their integers."""
    return columns_of(schema, _bits)


def _bits(kind: pa.DataType) -> int:
    if not pa.types.is_integer(kind):
        return 0
    return kind.bit_width - pa.types.is_signed_integer(kind)


@dataclass
class Integers(Kinds):
    """The bits of the absolute values of the integers that an SQL query computes; 0 where they are none, or where that
    is not known."""

    parameters: frozenset[str] = frozenset()
    BEGUN: ClassVar[int] = WHOLE

    def bits(self, node: Any, scope: Scope) -> int:
        """Return the bits of ``node``, which stands in ``scope``."""
        return self.number(node, scope)

    def computed(self, node: Any, scope: Scope) -> int:
        """Return the bits of a computation, which may be more than a bigint has."""
        if isinstance(node, exp.Paren):
            return self.computed(node.this, scope)
        if isinstance(node, exp.Neg):
            bits = self.computed(node.this, scope)
            return bits + (bits == WHOLE and not isinstance(node.this, exp.Literal))  # the least bigint has no negative
        if not isinstance(node, COMPUTED):
            return self.bits(node, scope)
        left, right = self.computed(node.this, scope), self.computed(node.expression, scope)
        if not (left and right):
            return 0
        return left + right if isinstance(node, exp.Mul) else max(left, right) + 1

    def _of(self, node: Any, scope: Scope) -> Kind:
        kind = self._of_node(node, scope)
        return min(kind, WHOLE) if isinstance(kind, int) else kind

    def _of_node(self, node: Any, scope: Scope) -> Kind:
        if isinstance(node, exp.Literal):
            return max(int(node.this).bit_length(), 1) if node.is_int and int(node.this) < FAR else 0
        if isinstance(node, exp.Parameter | exp.Placeholder):
            return WHOLE if node.name in self.parameters else 0
        if isinstance(node, CHAIN):
            return self.computed(node, scope) or self._of_any(node, scope)
        if isinstance(node, _SIDES):
            return self.most([node.this, node.expression], scope)
        if isinstance(node, _SAME):
            return self.of(node.this, scope)
        if isinstance(node, exp.Sum):
            bits = self.bits(node.this, scope)
            return bits and bits + ROWS
        if isinstance(node, exp.Extract):
            return 0 if node.name.lower() == "epoch" else HALF
        return self._of_any(node, scope)

    def _of_function(self, node: exp.Expr, scope: Scope) -> Kind:
        if (name := called(node)) in INTEGERS:
            return ROWS if name in _COUNTS else WHOLE if name in _FAR_FUNCTIONS else HALF
        if name in _ARROW_CASTS:
            return WHOLE if _ARROW_INTEGER.fullmatch(node.expressions[-1].name) else 0
        if name in _DIVISORS:
            return WHOLE if self.most(list(node.iter_expressions()), scope) else 0
        return super()._of_function(node, scope)

    def _of_type(self, kind: Any) -> int:
        return _CASTS.get(kind, 0)
