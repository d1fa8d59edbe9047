"""Evaluates expressions, a batch at a time, with Arrow's functions: no loop over rows.

A CASE evaluates each branch only for its own rows, so that one may guard another against a division by zero.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.types import LogicalType
from .assign import convert
from .functions import FUNCTIONS, NAMES
from .numbers import Value, alike, arithmetic, as_decimal, as_kind, is_number, mask, number_kind, spread, word
from .parse import Expression
from .sizes import check_size

_ARITHMETIC = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "modulo"}
_COMPARISONS = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 7 * 86_400}
_INT64 = range(-(1 << 63), 1 << 63)


def evaluate(expression: Expression, rows: pa.RecordBatch, target: LogicalType) -> pa.Array:
    """Return the value of an expression for each row, as cells of a column's type.

    Raises:
        InvalidArgumentError: types that do not match, an overflow, a division by zero, a value that does not fit.
    """
    try:
        value = _Evaluator(rows).value(expression.tree)
        return spread(convert(value, target, is_cast=False), rows.num_rows)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{expression.text!r}: {error.message}") from None
    except (pa.ArrowException, OverflowError, ValueError) as error:
        why = str(error).partition("\n")[0].lower()
        if "divide by zero" in why:
            why = "division by zero; NULLIF(..., 0) makes it NULL"
        raise InvalidArgumentError(f"{expression.text!r} cannot be computed as {target} for all rows: {why}") from None


class _Evaluator:
    """Evaluates nodes over the rows of one batch."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def value(self, node: exp.Expr) -> Value:
        """Return a node's value. Raises InvalidArgumentError for an unsupported node."""
        kind = type(node)
        if kind in _ARITHMETIC:
            return arithmetic(_ARITHMETIC[kind], self.value(node.this), self.value(node.expression))
        if kind in _COMPARISONS:
            return self._compared(_COMPARISONS[kind], self.value(node.this), self.value(node.expression))
        if kind in FUNCTIONS:
            return FUNCTIONS[kind](node, self.value)
        if method := _NODES.get(kind):
            return method(self, node)
        what = node.name if isinstance(node, exp.Anonymous) else node.sql()[:40]
        raise InvalidArgumentError(f"{what!r} is not supported; known: + - * / % ||, comparisons, CASE and {NAMES}")

    def _column(self, node: exp.Column) -> Value:
        return self._rows.column(node.name)

    def _literal(self, node: exp.Literal) -> Value:
        if node.is_string:
            return pa.scalar(node.this, pa.string())
        if "e" in node.this.lower():
            return pa.scalar(float(node.this))
        if "." not in node.this and int(node.this) in _INT64:
            return pa.scalar(int(node.this), pa.int64())
        return pa.scalar(Decimal(node.this))

    def _negated(self, node: exp.Neg) -> Value:
        return arithmetic("subtract", pa.scalar(0, pa.int64()), self.value(node.this))

    def _interval(self, node: exp.Interval) -> Value:
        unit = (node.args["unit"].name if node.args.get("unit") else "").upper().rstrip("S")
        if unit not in _UNITS or not isinstance(node.this, exp.Literal):
            raise InvalidArgumentError(f"an interval must be a number of {', '.join(_UNITS)}, as in INTERVAL '1' DAY")
        return pa.scalar(timedelta(seconds=float(node.this.this) * _UNITS[unit]), pa.duration("us"))

    def _cast(self, node: exp.Cast) -> Value:
        return convert(self.value(node.this), _type_of(node.to), is_cast=True)

    def _compared(self, function: str, left: Value, right: Value) -> Value:
        left, right = _comparable(left, right)
        return pc.call_function(function, [left, right])

    def _and(self, node: exp.And) -> Value:
        return pc.and_kleene(self._condition(node.this), self._condition(node.expression))

    def _or(self, node: exp.Or) -> Value:
        return pc.or_kleene(self._condition(node.this), self._condition(node.expression))

    def _not(self, node: exp.Not) -> Value:
        return pc.invert(self._condition(node.this))

    def _condition(self, node: exp.Expr) -> Value:
        value = self.value(node)
        if not (pa.types.is_boolean(value.type) or pa.types.is_null(value.type)):
            raise InvalidArgumentError(f"a condition must be true or false, not {word(value.type)}")
        return value.cast(pa.bool_())

    def _is(self, node: exp.Is) -> Value:
        value = self.value(node.this)
        if isinstance(node.expression, exp.Null):
            return pc.is_null(value)
        if isinstance(node.expression, exp.Boolean):
            return pc.fill_null(pc.equal(self._condition(node.this), node.expression.this), False)
        raise InvalidArgumentError("IS takes NULL, TRUE or FALSE")

    def _in(self, node: exp.In) -> Value:
        if not node.expressions:
            raise InvalidArgumentError("IN takes a list of values")
        value = self.value(node.this)
        found: Value = pa.scalar(False)
        for each in node.expressions:
            found = pc.or_kleene(found, self._compared("equal", value, self.value(each)))
        return found

    def _between(self, node: exp.Between) -> Value:
        value = self.value(node.this)
        above = self._compared("greater_equal", value, self.value(node.args["low"]))
        return pc.and_kleene(above, self._compared("less_equal", value, self.value(node.args["high"])))

    def _like(self, node: exp.Like) -> Value:
        pattern = node.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise InvalidArgumentError("LIKE takes a pattern in quotes")
        return pc.match_like(self.value(node.this).cast(pa.string()), pattern.this)

    def _case(self, node: exp.Case | exp.If) -> Value:
        """Evaluate each branch for the rows that reach it."""
        branches, default = _branches(node)
        left = np.arange(self._rows.num_rows)
        parts: list[tuple[np.ndarray, Value]] = []
        for condition, then in branches:
            here = _Evaluator(self._rows.take(pa.array(left)))
            chosen = mask(here.value(condition), len(left))
            parts.append((left[chosen], _Evaluator(self._rows.take(pa.array(left[chosen]))).value(then)))
            left = left[~chosen]
        otherwise = _Evaluator(self._rows.take(pa.array(left))).value(default) if default else pa.scalar(None)
        parts.append((left, otherwise))
        return _united(parts)


def _branches(node: Any) -> tuple[list[tuple[exp.Expr, exp.Expr]], exp.Expr | None]:
    """Return the conditions of a CASE or IF with their results, and the result if none is true."""
    if isinstance(node, exp.If):
        return [(node.this, node.args["true"])], node.args.get("false")
    conditions = [
        each.this if node.this is None else exp.EQ(this=node.this, expression=each.this) for each in node.args["ifs"]
    ]
    return list(zip(conditions, (each.args["true"] for each in node.args["ifs"]), strict=True)), node.args.get(
        "default"
    )


def _united(parts: list[tuple[np.ndarray, Value]]) -> Value:
    """Return values of several sets of rows as one column, in row order."""
    values = common([value for _, value in parts])
    cells = [spread(value, len(rows)) for (rows, _), value in zip(parts, values, strict=True)]
    check_size(sum(each.nbytes for each in cells))
    order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
    return pa.concat_arrays(cells).take(pa.array(order))


def common(values: list[Value]) -> list[Value]:
    """Return values as one common type.

    Raises:
        InvalidArgumentError: they have none.
    """
    kinds = [value.type for value in values if not pa.types.is_null(value.type)]
    if not kinds or all(kind == kinds[0] for kind in kinds):
        return [value.cast(kinds[0]) for value in values] if kinds else values
    if not all(map(is_number, kinds)):
        raise InvalidArgumentError(
            f"the values are of several types: {', '.join(sorted({word(kind) for kind in kinds}))}"
        )
    kind = number_kind(kinds)
    if kind is None:
        decimals = [as_decimal(value).type for value in values if not pa.types.is_null(value.type)]
        scale = max(each.scale for each in decimals)
        whole = max(each.precision - each.scale for each in decimals)
        kind = pa.decimal256(min(whole + scale, 76), scale)
    return [as_kind(value, kind) for value in values]


def _comparable(left: Value, right: Value) -> tuple[Value, Value]:
    """Return two sides of a comparison as one type; text is parsed if the other side is a date or a timestamp."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.int64()), pa.scalar(None, pa.int64())
    if is_number(left.type) and is_number(right.type):
        return alike(left, right)
    if pa.types.is_temporal(left.type) and (pa.types.is_string(right.type) or pa.types.is_temporal(right.type)):
        return left.cast(pa.timestamp("us")), right.cast(pa.timestamp("us"))
    if pa.types.is_temporal(right.type) and pa.types.is_string(left.type):
        return left.cast(pa.timestamp("us")), right.cast(pa.timestamp("us"))
    if left.type != right.type:
        raise InvalidArgumentError(f"{word(left.type)} cannot be compared with {word(right.type)}")
    return left, right


_SQL_TYPES = {
    exp.DType.TINYINT: "int8",
    exp.DType.SMALLINT: "int16",
    exp.DType.INT: "int32",
    exp.DType.BIGINT: "int64",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp[us]",
    exp.DType.BOOLEAN: "bool",
    exp.DType.BINARY: "binary",
    exp.DType.VARBINARY: "binary",
}


def _type_of(node: exp.DataType) -> LogicalType:
    sizes = [int(each.name) for each in node.expressions if each.name.isdigit()]
    if node.this is exp.DType.DECIMAL:
        return LogicalType.decimal(*[*sizes, 0][:2]) if sizes else LogicalType.decimal(18, 3)
    if node.this is exp.DType.VARCHAR:
        return LogicalType.varchar(sizes[0]) if sizes else LogicalType("string")
    if node.this not in _SQL_TYPES:
        raise InvalidArgumentError(
            f"CAST: unknown type {node.sql()}; known: INT, BIGINT, DOUBLE, DECIMAL(p,s), TEXT, "
            "VARCHAR(n), DATE, TIMESTAMP, BOOLEAN, BINARY"
        )
    return LogicalType(_SQL_TYPES[node.this])


_NODES: dict[type, Callable[[_Evaluator, Any], Value]] = {
    exp.Column: _Evaluator._column,
    exp.Literal: _Evaluator._literal,
    exp.Paren: lambda self, node: self.value(node.this),
    exp.Null: lambda self, node: pa.scalar(None),
    exp.Boolean: lambda self, node: pa.scalar(bool(node.this)),
    exp.Neg: _Evaluator._negated,
    exp.Interval: _Evaluator._interval,
    exp.Cast: _Evaluator._cast,
    exp.And: _Evaluator._and,
    exp.Or: _Evaluator._or,
    exp.Not: _Evaluator._not,
    exp.Is: _Evaluator._is,
    exp.In: _Evaluator._in,
    exp.Between: _Evaluator._between,
    exp.Like: _Evaluator._like,
    exp.Case: _Evaluator._case,
    exp.If: _Evaluator._case,
}
