"""Casts to integers, for which DataFusion cuts digits off. PostgreSQL and the store round: doubles half to even,
decimals and numbers that are written with a point half away from zero."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from datafusion import ScalarUDF, udf
from sqlglot import exp

from ...schemas import compute as pc
from .exact_numbers import NumberKind, Numbers, number_columns, number_parameters
from .kinds import Columns
from .text.edits import Edit, edited
from .text.names import name_of, quoted
from .text.placed import cast_of, scopes_of
from .text.remembered import remembered

_WHOLE = (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT)
_WORDS = re.compile(r"\b(?:(?:tiny|small|big)?int|integer|int[248])\b", re.IGNORECASE)
_EVEN = "round_to_even"


def rounding_function() -> ScalarUDF:
    """Return the function of DataFusion that rounds a double as a cast to an integer does."""
    return udf(_to_even, [pa.float64()], pa.float64(), "immutable", _EVEN)


def _to_even(cells: pa.Array) -> pa.Array:
    return pc.round(cells, round_mode="half_to_even")


def whole_numbers(text: str, tables: Mapping[str, pa.Schema], values: Mapping[str, pa.Scalar] | None = None) -> str:
    """Return an SQL query that rounds what it casts to integers. ``tables`` are those that it names, and
    ``values`` those of its parameters."""
    if not _WORDS.search(text):
        return text
    given = number_columns(tables), number_parameters(values)
    return _rounded(text, *given)


@remembered
def _rounded(
    text: str, tables: tuple[tuple[str, Columns], ...], parameters: tuple[tuple[str, tuple[NumberKind, str]], ...]
) -> str:
    scopes, by_query = scopes_of(text)
    kinds = Numbers({name: dict(columns) for name, columns in tables}, by_query, parameters=dict(parameters))
    edits: list[Edit] = []
    named: dict[int, Edit] = {}
    for scope in scopes:
        for node in scope.walk():
            if not isinstance(node, exp.Cast) or node.to.this not in _WHOLE:
                continue
            kind = kinds.of(node.this, scope)
            if kind in (NumberKind.DOUBLE, NumberKind.NUMBER, NumberKind.DECIMAL):
                is_double = kind == NumberKind.DOUBLE or node.this.find(exp.Parameter)
                edits += _edits(node, _EVEN if is_double else "round")
                named |= named_as_before(node)
    edits += named.values()
    edits.sort(key=lambda edit: not edit.text.startswith(")"))  # a call that ends where another one begins
    return edited(text, edits) if edits else text


def named_as_before(node: exp.Expr) -> dict[int, Edit]:
    """Return the edit that names a column of an SQL query's answer as before, if it is a column that is cast. By its
    place."""
    while isinstance(node.parent, exp.Cast | exp.Paren):
        node = node.parent
    column: Any = node
    while isinstance(column, exp.Cast | exp.Paren):
        column = column.this
    if not (isinstance(column, exp.Column) and isinstance(node.parent, exp.Select) and node.arg_key == "expressions"):
        return {}
    end = cast_of(node, "").end
    return {end: Edit(end, end, f" AS {quoted(name_of(column))}")}


def _edits(node: exp.Cast, function: str) -> Iterator[Edit]:
    """Yield the edits that call a function of the operand of a cast."""
    start, end = operand_place(node)
    yield Edit(start, start, f"{function}(")
    yield Edit(end, end, ")")


def operand_place(node: exp.Cast) -> tuple[int, int]:
    """Return where in an SQL query, which the dialect ``PlacedSql`` has read, the operand of a cast stands."""
    end = node.to.meta_get("operator")  # of a::int
    if end is not None:
        return _start(node), end
    start, end, _ = cast_of(node.this, "")
    return start, end


def _start(node: exp.Expr) -> int:
    """Return where a cast by :: begins: where what is around it does, if it has no place of its own."""
    while "start" not in node.meta:
        assert node.parent is not None, "all expressions of a query are placed"
        node = node.parent
    return node.meta["start"]
