"""Numbers with a point, and doubles, that a query compares with decimals.

DataFusion takes a number with a point for a double, and compares doubles and decimals as decimals with 15 digits after
the point: 9999999.99 is then another number, and NaN is an error. Here such a number becomes a decimal beside decimals
and integers, and a decimal becomes a double beside a double, as in PostgreSQL. A double that is a parameter counts as
the number that its shortest digits write. A number that is computed with stays a double.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .change.literals import DIGITS_MAX
from .kinds import INTEGERS, Columns, Kind, Kinds, called, columns_of, common, words
from .text.edits import Edit, edited
from .text.placed import Cast, cast_of, edits_of, scopes_of

_DECIMALS = re.compile(r"\b(?:numeric|decimal|dec)\b", re.IGNORECASE)
_WHOLE_MAX = 18
"""Digits of a number that DataFusion takes for an integer."""
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_CHOSEN = (exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
"""Functions whose result is one of their operands, which have one type."""
_COMPUTED = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_SIGNED = (exp.Literal, exp.Parameter, exp.Paren, exp.Neg)
"""What a number with a point is made of."""
_ROUNDED = (exp.Ceil, exp.Floor, exp.Trunc, exp.Avg, exp.Median)
"""Functions that give a double, but decimals of decimals."""
_OPERANDS = ("this", "expression", "low", "high", "query")
_DOUBLES = words(
    "acos acosh approx_median approx_percentile_cont array_avg array_distance array_product array_sum asin asinh atan "
    "atan2 atanh cbrt corr cos cosh cosine_distance cot covar covar_pop covar_samp cume_dist degrees dot_product exp "
    "inner_product ln log nanvl percent_rank percentile_cont pi pow radians rand random regr_avgx regr_avgy "
    "regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sign signum sin sinh sqrt stddev stddev_pop "
    "stddev_samp tan tanh var var_pop variance variance_pop within_group"
)
"""Functions that give doubles, whatever they are given."""
_SCALE = 10
"""Digits after the point of a number that is rounded to digits that a query computes."""
_REMEMBERED_TEXT_MAX = 1 << 16


class _NumberKind(IntEnum):
    """What an expression is. Of several that have to be of one type, the highest is that type."""

    OTHER = 0
    NULL = 1
    WHOLE = 2
    NUMBER = 3
    """A number with a point, as it is written."""
    DECIMAL = 4
    DOUBLE = 5


_CASTS = {
    exp.DType.TINYINT: _NumberKind.WHOLE,
    exp.DType.SMALLINT: _NumberKind.WHOLE,
    exp.DType.INT: _NumberKind.WHOLE,
    exp.DType.BIGINT: _NumberKind.WHOLE,
    exp.DType.DECIMAL: _NumberKind.DECIMAL,
    exp.DType.FLOAT: _NumberKind.DOUBLE,
    exp.DType.DOUBLE: _NumberKind.DOUBLE,
}
_Parameter = tuple[_NumberKind, str]
"""What a parameter is, and its digits if it is a number with a point."""
_UNKNOWN: _Parameter = (_NumberKind.OTHER, "")


def exact_numbers(text: str, tables: Mapping[str, pa.Schema], values: Mapping[str, pa.Scalar] | None = None) -> str:
    """Return an SQL query that compares decimals with numbers as they are written, and with doubles as doubles.
    ``tables`` are those that it names, and ``values`` those of its parameters."""
    types = [*(str(each.type) for schema in tables.values() for each in schema)]
    types += [str(value.type) for value in (values or {}).values()]
    if not (any("decimal" in kind for kind in types) or _DECIMALS.search(text)):
        return text
    columns = tuple((name, columns_of(schema, _kind_of_type)) for name, schema in tables.items())
    parameters = tuple((name, _parameter(value)) for name, value in (values or {}).items())
    return (_remembered if len(text) <= _REMEMBERED_TEXT_MAX else _exact)(text, columns, parameters)


def _exact(
    text: str, tables: tuple[tuple[str, Columns], ...], parameters: tuple[tuple[str, _Parameter], ...] = ()
) -> str:
    scopes, by_query = scopes_of(text)
    kinds = _Numbers({name: dict(columns) for name, columns in tables}, by_query, parameters=dict(parameters))
    nodes = [(node, scope) for scope in scopes for node in scope.walk()]
    groups = [(group, scope) for node, scope in nodes for group in _groups(node)]
    casts = [cast for group, scope in groups for cast in _casts(group, scope, kinds)]
    numbers = [edit for group, scope in groups for edit in _numbers(group, scope, kinds)]
    return edited(text, edits_of(casts) + numbers) if casts or numbers else text


_remembered = lru_cache(256)(_exact)


def _kind_of_type(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return _NumberKind.DECIMAL
    if pa.types.is_floating(kind):
        return _NumberKind.DOUBLE
    return _NumberKind.WHOLE if pa.types.is_integer(kind) else _NumberKind.OTHER


def _parameter(value: pa.Scalar) -> _Parameter:
    """Return what a parameter is, and its digits if it is a number with a point."""
    if not value.is_valid:
        return _NumberKind.NULL, ""
    if pa.types.is_floating(value.type):
        written = repr(value.as_py())
        return (_NumberKind.NUMBER, written) if _decimal(written) else (_NumberKind.DOUBLE, "")
    return _NumberKind(_kind_of_type(value.type)), ""


def _decimal(text: str) -> str:
    """Return the decimal of SQL that a number writes; empty if that has too many digits."""
    number = Decimal(text)
    if not number.is_finite() or abs(number.adjusted()) > DIGITS_MAX:
        return ""
    whole, _, rest = format(number.copy_abs(), "f").partition(".")
    digits = len(whole.lstrip("0")) + len(rest) or 1
    return f"CAST('{number:f}' AS NUMERIC({digits}, {len(rest)}))" if digits <= DIGITS_MAX else ""


def _groups(node: exp.Expr) -> Iterator[Sequence[exp.Expr]]:
    """Yield the operands of an expression that have to be of one type."""
    if isinstance(node, exp.Case):
        branches: list[exp.Expr] = node.args["ifs"]
        if node.this is not None:
            yield [node.this, *(branch.this for branch in branches)]
        default = node.args.get("default")
        yield [*(branch.args["true"] for branch in branches), *([] if default is None else [default])]
    elif isinstance(node, (*_COMPARED, *_CHOSEN)):
        yield [operand for name in _OPERANDS if (operand := node.args.get(name)) is not None] + node.expressions


def _casts(operands: Sequence[exp.Expr], scope: Scope, kinds: _Numbers) -> Iterator[Cast]:
    """Yield the casts of decimals beside doubles, and of rounded decimals, whose type is not the one that DataFusion
    takes it for."""
    common_kind = kinds.most(operands, scope)
    if common_kind not in (_NumberKind.DECIMAL, _NumberKind.DOUBLE):
        return
    for operand in operands:
        if kinds.of(operand, scope) != _NumberKind.DECIMAL or _is_list(operand):
            continue
        if common_kind == _NumberKind.DOUBLE:
            yield cast_of(operand, "DOUBLE PRECISION")
        elif isinstance(operand, exp.Round):
            digits = operand.args.get("decimals") or exp.Literal.number(0)
            yield cast_of(operand, f"DECIMAL({DIGITS_MAX}, {digits.name if digits.is_int else _SCALE})")


def _is_list(operand: exp.Expr) -> bool:
    return isinstance(operand, exp.Any | exp.All) or operand.arg_key == "query"


def _numbers(operands: Sequence[exp.Expr], scope: Scope, kinds: _Numbers) -> Iterator[Edit]:
    """Yield the edits that make decimals of numbers beside decimals."""
    if kinds.most(operands, scope) != _NumberKind.DECIMAL:
        return
    for operand in operands:
        number = operand
        while isinstance(number, exp.Paren | exp.Neg):
            number = number.this
        written = kinds.written(number)
        is_integer = written.isdecimal() and len(written.lstrip("0")) <= _WHOLE_MAX
        if written and not is_integer and (decimal := _decimal(written)):
            yield Edit(number.meta["start"], number.meta["end"], decimal)


@dataclass
class _Numbers(Kinds):
    """Which of the expressions of an SQL query are decimals, doubles and others."""

    parameters: Mapping[str, _Parameter] = field(default_factory=dict)
    BEGUN: ClassVar[int] = _NumberKind.NULL

    def written(self, node: Any) -> str:
        """Return the digits of a number; empty for anything else."""
        if isinstance(node, exp.Parameter):
            return self.parameters.get(node.name, _UNKNOWN)[1]
        return node.this if isinstance(node, exp.Literal) and not node.is_string else ""

    def _of(self, node: Any, scope: Scope) -> Kind:
        kind = self._of_node(node, scope)
        return _NumberKind.DOUBLE if kind == _NumberKind.NUMBER and not isinstance(node, _SIGNED) else kind

    def _of_node(self, node: Any, scope: Scope) -> Kind:
        if isinstance(node, exp.Null):
            return _NumberKind.NULL
        if isinstance(node, exp.Literal):
            if node.is_string:
                return _NumberKind.OTHER
            if node.is_int:
                return _NumberKind.WHOLE
            return _NumberKind.NUMBER if _decimal(node.this) else _NumberKind.DOUBLE
        if isinstance(node, exp.Parameter):
            return self.parameters.get(node.name, _UNKNOWN)[0]
        if isinstance(node, exp.Neg | exp.Sum | exp.Round):
            return self.of(node.this, scope)
        if isinstance(node, _ROUNDED):
            kind = self.of(node.this, scope)
            return kind if kind in (_NumberKind.OTHER, _NumberKind.DECIMAL) else _NumberKind.DOUBLE
        if isinstance(node, _COMPUTED):
            sides = [self.of(side, scope) for side in (node.this, node.expression)]
            return _NumberKind.DOUBLE if _NumberKind.NUMBER in sides and all(sides) else common(sides)
        if isinstance(node, exp.Func | exp.WithinGroup):
            if (name := called(node)) in INTEGERS:
                return _NumberKind.WHOLE
            if name in _DOUBLES:
                return _NumberKind.DOUBLE
        kind = self._of_any(node, scope)
        is_double = isinstance(node, exp.Coalesce) and node.args.get("is_nvl") and kind == _NumberKind.DECIMAL
        return _NumberKind.DOUBLE if is_double else kind

    def _of_type(self, kind: Any) -> int:
        return _CASTS.get(kind, _NumberKind.OTHER)
