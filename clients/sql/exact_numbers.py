"""Numbers with a point, and doubles, that a query compares with decimals.

DataFusion takes a number with a point for a double, and compares doubles and decimals as decimals with 15 digits after
the point: 9999999.99 is then another number, and NaN is an error. Here such a number becomes a decimal beside decimals
and integers, and a decimal column becomes a double beside a double, as in PostgreSQL. The types are those of columns,
by their names. A number that is computed with stays a double.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

import pyarrow as pa
import sqlglot
from sqlglot import exp

from .change.dialect import NyalaSql
from .change.literals import DIGITS_MAX
from .edits import Edit, edited

_NUMBER = re.compile(r"\d\.|\.\d|\d{19}")
_DIGITS = re.compile(r"0*(\d*)(?:\.(\d*))?")
_WHOLE_MAX = 18
"""Digits of a number that DataFusion takes for an integer."""
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_CHOSEN = (exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
"""Functions whose result is one of their operands, which have one type."""
_COMPUTED = (exp.Add, exp.Sub, exp.Mul)
_SAME = (exp.Paren, exp.Neg, exp.Min, exp.Max, exp.Sum, exp.Abs)
_OPERANDS = ("this", "expression", "low", "high")


class _NumberKind(IntEnum):
    """What an expression is. Of several that have to be of one type, the highest is that type."""

    NULL = 0
    WHOLE = 1
    NUMBER = 2
    """A number with a point, a double or a decimal."""
    DECIMAL = 3
    DOUBLE = 4
    OTHER = 5


def exact_numbers(text: str, tables: Mapping[str, pa.Schema]) -> str:
    """Return an SQL query that compares decimals with numbers as they are written, and with doubles as doubles.
    ``tables`` are those that it names."""
    columns = [(field.name.lower(), _kind_of_type(field.type)) for schema in tables.values() for field in schema]
    present = {kind for _, kind in columns}
    if _NumberKind.DECIMAL not in present or not (_NumberKind.DOUBLE in present or _NUMBER.search(text)):
        return text
    tree = sqlglot.parse_one(text, dialect=NyalaSql)
    given = {node.alias.lower() for node in tree.find_all(exp.Alias)}
    given |= {column.name.lower() for node in tree.find_all(exp.TableAlias) for column in node.columns}
    kinds: dict[str, _NumberKind] = {}
    for name, kind in columns:
        kinds[name] = kind if kinds.get(name, kind) is kind and name not in given else _NumberKind.OTHER
    groups = (group for node in tree.find_all(*_COMPARED, *_CHOSEN, exp.Case) for group in _groups(node))
    edits = {edit.start: edit for group in groups for edit in _edits(group, kinds)}
    return edited(text, edits.values()) if edits else text


def _kind_of_type(kind: pa.DataType) -> _NumberKind:
    if pa.types.is_decimal(kind):
        return _NumberKind.DECIMAL
    if pa.types.is_floating(kind):
        return _NumberKind.DOUBLE
    return _NumberKind.WHOLE if pa.types.is_integer(kind) else _NumberKind.OTHER


def _groups(node: exp.Expr) -> Iterator[Sequence[exp.Expr]]:
    """Yield the operands of an expression that have to be of one type."""
    if isinstance(node, exp.Case):
        branches: list[exp.Expr] = node.args["ifs"]
        if node.this is not None:
            yield [node.this, *(branch.this for branch in branches)]
        yield _results(node)
    else:
        yield [operand for name in _OPERANDS if (operand := node.args.get(name)) is not None] + node.expressions


def _results(node: exp.Case) -> list[exp.Expr]:
    default = node.args.get("default")
    return [*(branch.args["true"] for branch in node.args["ifs"]), *([] if default is None else [default])]


def _edits(operands: Sequence[exp.Expr], kinds: Mapping[str, _NumberKind]) -> Iterator[Edit]:
    """Yield the edits that make operands of one type."""
    common = _common(operands, kinds)
    for operand in operands:
        number = operand
        while isinstance(number, exp.Paren | exp.Neg):
            number = number.this
        if common is _NumberKind.DECIMAL and isinstance(number, exp.Literal) and "start" in number.meta:
            digits = _DIGITS.fullmatch(number.this)
            whole, rest = (digits[1], digits[2] or "") if digits else ("", "")
            if (rest or len(whole) > _WHOLE_MAX) and len(whole) + len(rest) <= DIGITS_MAX:
                kind = f"NUMERIC({len(whole) + len(rest)}, {len(rest)})"
                yield Edit(number.meta["start"], number.meta["end"] + 1, f"CAST('{number.this}' AS {kind})")
        elif (
            common is _NumberKind.DOUBLE
            and isinstance(number, exp.Column)
            and _kind(number, kinds) is _NumberKind.DECIMAL
        ):
            places = [part.meta for part in number.parts]
            if all("start" in place for place in places):
                start, end = places[0]["start"], places[-1]["end"] + 1
                yield Edit(start, end, f"CAST({number.sql(NyalaSql)} AS DOUBLE PRECISION)")


def _common(operands: Sequence[exp.Expr], kinds: Mapping[str, _NumberKind]) -> _NumberKind:
    return max((_kind(operand, kinds) for operand in operands), default=_NumberKind.OTHER)


def _kind(node: exp.Expr, kinds: Mapping[str, _NumberKind]) -> _NumberKind:
    """Return what an expression is, as far as its columns show."""
    if isinstance(node, exp.Null):
        return _NumberKind.NULL
    if isinstance(node, exp.Literal) and not node.is_string:
        return _NumberKind.WHOLE if node.is_int else _NumberKind.NUMBER
    if isinstance(node, exp.Column):
        return kinds.get(node.name.lower(), _NumberKind.OTHER)
    if isinstance(node, _SAME):
        return _kind(node.this, kinds)
    if isinstance(node, exp.Case):
        return _common(_results(node), kinds)
    if isinstance(node, _CHOSEN):
        return next(_common(group, kinds) for group in _groups(node))
    if isinstance(node, _COMPUTED):
        common = _common([node.this, node.expression], kinds)
        with_number = any(_kind(side, kinds) is _NumberKind.NUMBER for side in (node.this, node.expression))
        return _NumberKind.DOUBLE if with_number and common is not _NumberKind.OTHER else common
    return _NumberKind.OTHER
