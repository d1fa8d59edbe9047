"""Parts of the differences of timestamps, and truncated moments.

DataFusion cuts the fractions off the seconds of a difference, and counts its hours, minutes and smaller parts from the
beginning: of 1 day 2 hours it says 26 hours. Here such a part is computed. Months, quarters, years and weeks it finds
as nanoseconds, which end in 2262, and it makes nanoseconds of dates. Here a function of Arrow truncates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from datafusion import ScalarUDF, udf
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from ...schemas import compute as pc
from .exact_moments import MomentKind, MomentKinds, kind_of_type, moment_parameters
from .kinds import Columns, Kind, columns_of
from .text.edits import Edit, edited
from .text.placed import cast_of, scopes_of
from .text.remembered import remembered

_PARTS = re.compile(r"\b(?:extract|date_part|date_trunc)\b", re.IGNORECASE)
_SPAN = max(MomentKind) + 1
"""What the difference of two timestamps is."""
_WHOLE = "arrow_cast(arrow_cast({0}, 'Duration(Microsecond)'), 'Int64')"
_OF_SPANS = {
    "epoch": f"({_WHOLE} / 1000000.0)",
    "day": f"arrow_cast({_WHOLE} / 86400000000, 'Int32')",
    "hour": f"arrow_cast({_WHOLE} / 3600000000 % 24, 'Int32')",
    "minute": f"arrow_cast({_WHOLE} / 60000000 % 60, 'Int32')",
    "second": f"arrow_cast({_WHOLE} / 1000000 % 60, 'Int32')",
    "millisecond": f"arrow_cast({_WHOLE} / 1000 % 60000, 'Int32')",
    "microsecond": f"arrow_cast({_WHOLE} % 60000000, 'Int32')",
}
"""Parts of a difference, in SQL."""
_LONG = ("week", "month", "quarter", "year")
_SHORT = ("microsecond", "millisecond", "second", "minute", "hour", "day")
_FUNCTION = "truncated_moment"


def truncating_function() -> ScalarUDF:
    """Return the function of DataFusion that truncates moments to weeks, months, quarters and years."""
    kinds: list[pa.DataType] = [pa.string(), pa.timestamp("us")]
    return udf(_truncated, kinds, pa.timestamp("us"), "immutable", _FUNCTION)


def _truncated(units: pa.Array, cells: pa.Array) -> pa.Array:
    return pc.floor_temporal(cells, unit=units[0].as_py()) if len(cells) else cells


def exact_parts(text: str, tables: Mapping[str, pa.Schema], values: Mapping[str, pa.Scalar] | None = None) -> str:
    """Return an SQL query with parts of differences as PostgreSQL has them, and with truncated moments of all years.
    ``tables`` are those that it names, and ``values`` those of its parameters."""
    if not _PARTS.search(text):
        return text
    columns = tuple((name, columns_of(schema, _kind_of_type)) for name, schema in tables.items())
    return _exact(text, columns, moment_parameters(values))


@remembered
def _exact(text: str, tables: tuple[tuple[str, Columns], ...], parameters: tuple[tuple[str, MomentKind], ...]) -> str:
    scopes, by_query = scopes_of(text)
    kinds = _Spans({name: dict(columns) for name, columns in tables}, by_query, parameters=dict(parameters))
    edits = [edit for scope in scopes for node in scope.walk() for edit in _edits(node, scope, kinds)]
    return edited(text, edits) if edits else text


def _kind_of_type(kind: pa.DataType) -> int:
    return _SPAN if pa.types.is_duration(kind) else kind_of_type(kind)


def _edits(node: exp.Expr, scope: Scope, kinds: _Spans) -> Iterator[Edit]:
    """Yield the edits of a part of a difference, and of a moment that is truncated."""
    if isinstance(node, exp.Extract):
        operand, unit = node.expression, _unit(node.this)
        if kinds.of(operand, scope) == _SPAN and unit in _OF_SPANS:
            yield from _around(node, operand, *_OF_SPANS[unit].split("{0}"))
    elif isinstance(node, exp.TimestampTrunc) and node.args.get("zone") is None:
        operand, unit = node.this, _unit(node.args["unit"])
        kind = kinds.of(operand, scope)
        function = _FUNCTION if unit in _LONG else "date_trunc"
        is_done = function == "date_trunc" and isinstance(operand, exp.Cast) and operand.to.this is exp.DType.TIMESTAMP
        if kind in (MomentKind.DATE, MomentKind.MOMENT) and unit in (*_SHORT, *_LONG) and not is_done:
            yield from _around(node, operand, f"{function}('{unit}', CAST(", " AS TIMESTAMP(6)))")


def _around(node: exp.Expr, operand: exp.Expr, before: str, after: str) -> Iterator[Edit]:
    """Yield the edits of all of an expression but its operand."""
    start, end, _ = cast_of(operand, "")
    yield Edit(node.meta["start"], start, before)
    yield Edit(end, node.meta["end"], after)


def _unit(node: Any) -> str:
    """Return the name of a part, without its plural."""
    return node.name.lower().removesuffix("s") if isinstance(node, exp.Var | exp.Literal) else ""


class _Spans(MomentKinds):
    """Which of the expressions of an SQL query are moments, and which differences of these."""

    def _of(self, node: Any, scope: Scope) -> Kind:
        if isinstance(node, exp.Sum | exp.Avg):
            return _SPAN if self.of(node.this, scope) == _SPAN else MomentKind.OTHER
        return super()._of(node, scope)

    def _of_sum(self, node: exp.Add | exp.Sub, scope: Scope) -> Kind:
        sides = sorted(self.number(side, scope) for side in (node.this, node.expression))
        if sides[1] == _SPAN:
            return sides[0] if sides[0] in (MomentKind.MOMENT, _SPAN) else MomentKind.OTHER
        is_moment = sides[1] in (MomentKind.MOMENT, MomentKind.NANOSECONDS)
        return (
            _SPAN
            if isinstance(node, exp.Sub) and is_moment and sides[0] >= MomentKind.DATE
            else super()._of_sum(node, scope)
        )
