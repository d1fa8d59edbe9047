"""Numbers with a point that a query compares with decimals.

DataFusion takes such a number for a double, and compares it with 15 digits after the point: 9999999.99 is then another
number. Here it becomes a decimal where what it is compared with is one, by the types of columns. A number beside a
double stays one, as does a number that is computed with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from .change.dialect import NyalaSql
from .edits import Edit, edited

_NUMBER = re.compile(r"\d\.|\.\d|\d{19}")
_DIGITS = re.compile(r"0*(\d*)(?:\.(\d*))?")
_DIGITS_MAX = 38
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_COMPUTED = (exp.Add, exp.Sub, exp.Mul)
_SAME = (exp.Paren, exp.Neg, exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Abs)


def exact_numbers(text: str, tables: Mapping[str, pa.Schema]) -> str:
    """Return a query that compares decimals with numbers as they are written. ``tables`` are those that it names."""
    kinds = [(field.name.lower(), pa.types.is_decimal(field.type)) for schema in tables.values() for field in schema]
    if not any(is_decimal for _, is_decimal in kinds) or not _NUMBER.search(text):
        return text
    tree = sqlglot.parse_one(text, dialect=NyalaSql)
    given = {node.alias.lower() for node in tree.find_all(exp.Alias)}
    given |= {column.name.lower() for node in tree.find_all(exp.TableAlias) for column in node.columns}
    decimals = {name for name, _ in kinds} - {name for name, is_decimal in kinds if not is_decimal} - given
    edits = [edit for node in tree.find_all(*_COMPARED) for edit in _edits(node, decimals)]
    return edited(text, edits) if edits else text


def _edits(node: exp.Expr, decimals: set[str]) -> Iterator[Edit]:
    """Yield the edits of one comparison."""
    named = (node.args.get(part) for part in ("this", "expression", "low", "high"))
    sides = [side for side in (*named, *node.expressions) if side is not None]
    if not any(_is_decimal(side, decimals) for side in sides):
        return
    for side in sides:
        number = side
        while isinstance(number, exp.Paren | exp.Neg):
            number = number.this
        if isinstance(number, exp.Literal) and not number.is_string and "start" in number.meta:
            digits = _DIGITS.fullmatch(number.this)
            whole, rest = (digits[1], digits[2] or "") if digits else ("", "")
            if (rest or len(whole) > 18) and len(whole) + len(rest) <= _DIGITS_MAX:
                kind = f"NUMERIC({len(whole) + len(rest)}, {len(rest)})"
                yield Edit(number.meta["start"], number.meta["end"] + 1, f"CAST('{number.this}' AS {kind})")


def _is_decimal(node: Any, decimals: set[str]) -> bool:
    """Whether an expression is a decimal, as far as its columns show."""
    if isinstance(node, exp.Column):
        return node.name.lower() in decimals
    if isinstance(node, _SAME):
        return _is_decimal(node.this, decimals)
    if isinstance(node, _COMPUTED):
        sides = (node.this, node.expression)
        whole = [isinstance(side, exp.Literal) and side.is_int for side in sides]
        return any(_is_decimal(side, decimals) for side in sides) and all(
            is_whole or _is_decimal(side, decimals) for side, is_whole in zip(sides, whole, strict=True)
        )
    return False
