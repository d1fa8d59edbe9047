"""Numbers with a point, and doubles, that a query compares with decimals.

DataFusion takes a number with a point for a double, and compares doubles and decimals as decimals with 15 digits after
the point: 9999999.99 is then another number, and NaN is an error. Here such a number becomes a decimal beside decimals
and integers, and a decimal becomes a double beside a double, as in PostgreSQL. A double that is a parameter counts as
the number that its shortest digits write. A number that is computed with stays a double.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .change.literals import DIGITS_MAX
from .common_types import Group, casts_of, groups_of, listed_stars, named_again, operands_of, set_groups
from .kinds import INTEGERS, Columns, Kind, Kinds, called, columns_of, common, words
from .text.edits import Edit, edited
from .text.placed import Cast, cast_of, edits_of, scopes_of
from .text.remembered import remembered

_DECIMALS = re.compile(r"\b(?:numeric|decimal|dec)\b", re.IGNORECASE)
_WHOLE_MAX = 18
"""Digits of a number that DataFusion takes for an integer."""
_COMPUTED = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_SIGNED = (exp.Literal, exp.Parameter, exp.Paren, exp.Neg)
"""What a number with a point is made of."""
_ROUNDED = (exp.Ceil, exp.Floor, exp.Trunc, exp.Avg, exp.Median)
"""Functions that give a double, but decimals of decimals."""
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


class NumberKind(IntEnum):
    """What number an expression of SQL is. Of several that have to be of one type, the highest is that type."""

    OTHER = 0
    NULL = 1
    WHOLE = 2
    NUMBER = 3
    """A number with a point, as it is written."""
    DECIMAL = 4
    DOUBLE = 5


_CASTS = {
    exp.DType.TINYINT: NumberKind.WHOLE,
    exp.DType.SMALLINT: NumberKind.WHOLE,
    exp.DType.INT: NumberKind.WHOLE,
    exp.DType.BIGINT: NumberKind.WHOLE,
    exp.DType.DECIMAL: NumberKind.DECIMAL,
    exp.DType.FLOAT: NumberKind.DOUBLE,
    exp.DType.DOUBLE: NumberKind.DOUBLE,
}
NumberParameter = tuple[NumberKind, str]
"""What a parameter is, and its digits if it is a number with a point."""
_UNKNOWN: NumberParameter = (NumberKind.OTHER, "")


def exact_numbers(text: str, tables: Mapping[str, pa.Schema], values: Mapping[str, pa.Scalar] | None = None) -> str:
    """Return an SQL query that compares decimals with numbers as they are written, and with doubles as doubles.
    ``tables`` are those that it names, and ``values`` those of its parameters."""
    types = [*(str(each.type) for schema in tables.values() for each in schema)]
    types += [str(value.type) for value in (values or {}).values()]
    if not (any("decimal" in kind for kind in types) or _DECIMALS.search(text)):
        return text
    given = number_columns(tables), number_parameters(values)
    return _exact(text, *given)


def number_columns(tables: Mapping[str, pa.Schema]) -> tuple[tuple[str, Columns], ...]:
    """Return what numbers the columns of the tables of a query are."""
    return tuple((name, columns_of(schema, _kind_of_type)) for name, schema in tables.items())


def number_parameters(values: Mapping[str, pa.Scalar] | None) -> tuple[tuple[str, NumberParameter], ...]:
    """Return what numbers the parameters of a query are."""
    return tuple((name, _parameter(value)) for name, value in (values or {}).items())


@remembered
def _exact(
    text: str, tables: tuple[tuple[str, Columns], ...], parameters: tuple[tuple[str, NumberParameter], ...] = ()
) -> str:
    scopes, by_query = scopes_of(text)
    kinds = Numbers({name: dict(columns) for name, columns in tables}, by_query, parameters=dict(parameters))
    if stars := listed_stars(scopes, kinds, (NumberKind.DECIMAL, NumberKind.DOUBLE)):
        return _exact(edited(text, stars), tables, parameters)
    groups = [group for scope in scopes for group in (*groups_of(scope, operands_of), *set_groups(scope))]
    casts = [cast for group in groups for cast in _casts(group, kinds)]
    numbers = [edit for group in groups for edit in _numbers(group, kinds)]
    return edited(text, edits_of(casts) + numbers + named_again(casts, groups)) if casts or numbers else text


def _kind_of_type(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return NumberKind.DECIMAL
    if pa.types.is_floating(kind):
        return NumberKind.DOUBLE
    return NumberKind.WHOLE if pa.types.is_integer(kind) else NumberKind.OTHER


def _parameter(value: pa.Scalar) -> NumberParameter:
    """Return what a parameter is, and its digits if it is a number with a point."""
    if not value.is_valid:
        return NumberKind.NULL, ""
    if pa.types.is_floating(value.type):
        written = repr(value.as_py())
        return (NumberKind.NUMBER, written) if _decimal(written) else (NumberKind.DOUBLE, "")
    if pa.types.is_list(value.type):  # of ANY
        return NumberKind(_kind_of_type(value.type.value_type)), ""
    return NumberKind(_kind_of_type(value.type)), ""


def _decimal(text: str) -> str:
    """Return the decimal of SQL that a number writes; empty if that has too many digits."""
    number = Decimal(text)
    if not number.is_finite() or abs(number.adjusted()) > DIGITS_MAX:
        return ""
    whole, _, rest = format(number.copy_abs(), "f").partition(".")
    digits = len(whole.lstrip("0")) + len(rest) or 1
    return f"CAST('{number:f}' AS NUMERIC({digits}, {len(rest)}))" if digits <= DIGITS_MAX else ""


def _casts(operands: Group, kinds: Numbers) -> Iterator[Cast]:
    """Yield the casts of decimals beside doubles, and of rounded decimals, whose type is not the one that DataFusion
    takes it for."""
    common_kind = kinds.most_of(operands)
    if common_kind not in (NumberKind.DECIMAL, NumberKind.DOUBLE):
        return
    for operand, scope in operands:
        if kinds.of(operand, scope) != NumberKind.DECIMAL:
            continue
        if common_kind == NumberKind.DOUBLE:
            yield from casts_of(operand, "DOUBLE PRECISION")
        elif isinstance(operand, exp.Round):
            digits = operand.args.get("decimals") or exp.Literal.number(0)
            yield cast_of(operand, f"DECIMAL({DIGITS_MAX}, {digits.name if digits.is_int else _SCALE})")


def _numbers(operands: Group, kinds: Numbers) -> Iterator[Edit]:
    """Yield the edits that make decimals of numbers beside decimals."""
    if kinds.most_of(operands) != NumberKind.DECIMAL:
        return
    for operand, _ in operands:
        number = operand
        while isinstance(number, exp.Paren | exp.Neg):
            number = number.this
        written = kinds.written(number)
        is_integer = written.isdecimal() and len(written.lstrip("0")) <= _WHOLE_MAX
        if written and not is_integer and (decimal := _decimal(written)):
            yield Edit(number.meta["start"], number.meta["end"], decimal)


@dataclass
class Numbers(Kinds):
    """Which of the expressions of an SQL query are integers, decimals, doubles and others."""

    parameters: Mapping[str, NumberParameter] = field(default_factory=dict)
    BEGUN: ClassVar[int] = NumberKind.NULL

    def written(self, node: Any) -> str:
        """Return the digits of a number; empty for anything else."""
        if isinstance(node, exp.Parameter):
            return self.parameters.get(node.name, _UNKNOWN)[1]
        return node.this if isinstance(node, exp.Literal) and not node.is_string else ""

    def _of(self, node: Any, scope: Scope) -> Kind:
        kind = self._of_node(node, scope)
        return NumberKind.DOUBLE if kind == NumberKind.NUMBER and not isinstance(node, _SIGNED) else kind

    def _of_node(self, node: Any, scope: Scope) -> Kind:
        if isinstance(node, exp.Null):
            return NumberKind.NULL
        if isinstance(node, exp.Literal):
            if node.is_string:
                return NumberKind.OTHER
            if node.is_int:
                return NumberKind.WHOLE
            return NumberKind.NUMBER if _decimal(node.this) else NumberKind.DOUBLE
        if isinstance(node, exp.Parameter):
            return self.parameters.get(node.name, _UNKNOWN)[0]
        if isinstance(node, exp.Any) and isinstance(node.this.unnest(), exp.Parameter):
            return self.of(node.this.unnest(), scope)
        if isinstance(node, exp.Neg | exp.Sum | exp.Round):
            return self.of(node.this, scope)
        if isinstance(node, _ROUNDED):
            kind = self.of(node.this, scope)
            return kind if kind in (NumberKind.OTHER, NumberKind.DECIMAL) else NumberKind.DOUBLE
        if isinstance(node, _COMPUTED):
            sides = [self.of(side, scope) for side in (node.this, node.expression)]
            return NumberKind.DOUBLE if NumberKind.NUMBER in sides and all(sides) else common(sides)
        if isinstance(node, exp.Func | exp.WithinGroup):
            if (name := called(node)) in INTEGERS:
                return NumberKind.WHOLE
            if name in _DOUBLES:
                return NumberKind.DOUBLE
        if isinstance(node, exp.Extract):
            return NumberKind.DOUBLE if node.name.lower() == "epoch" else NumberKind.WHOLE
        kind = self._of_any(node, scope)
        is_double = isinstance(node, exp.Coalesce) and node.args.get("is_nvl") and kind == NumberKind.DECIMAL
        return NumberKind.DOUBLE if is_double else kind

    def _of_type(self, kind: Any) -> int:
        return _CASTS.get(kind, NumberKind.OTHER)
