"""Texts of timestamps, and casts to texts of a length.

DataFusion writes ``2024-01-31T08:00:00.250``, where PostgreSQL and the store write ``2024-01-31 08:00:00.25``, and it
leaves out the length of ``varchar(3)``, where PostgreSQL cuts the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from datafusion import ScalarUDF, udf
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .exact_moments import MomentKind, MomentKinds, kind_of_type, moment_parameters
from .kinds import Columns, columns_of
from .text.edits import Edit, edited
from .text.microseconds import texts_of_moments
from .text.placed import cast_of, scopes_of
from .text.remembered import remembered
from .whole_numbers import named_as_before, operand_place

_WORDS = re.compile(r"\b(?:text|varchar|char|character|string|bpchar|concat|concat_ws)\b|\|\|", re.IGNORECASE)
_TEXTS = (exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.BPCHAR)
_FUNCTION = "moment_text"


def text_function() -> ScalarUDF:
    """Return the function of DataFusion that writes a timestamp."""
    return udf(texts_of_moments, [pa.timestamp("us")], pa.string(), "immutable", _FUNCTION)


def moment_texts(text: str, tables: Mapping[str, pa.Schema], values: Mapping[str, pa.Scalar] | None = None) -> str:
    """Return an SQL query that writes timestamps, and cuts texts, as PostgreSQL does. ``tables`` are those that it
    names, and ``values`` those of its parameters."""
    if not _WORDS.search(text):
        return text
    columns = tuple((name, columns_of(schema, kind_of_type)) for name, schema in tables.items())
    return _exact(text, columns, moment_parameters(values))


@remembered
def _exact(text: str, tables: tuple[tuple[str, Columns], ...], parameters: tuple[tuple[str, MomentKind], ...]) -> str:
    scopes, by_query = scopes_of(text)
    kinds = MomentKinds({name: dict(columns) for name, columns in tables}, by_query, parameters=dict(parameters))
    wraps: list[tuple[int, int, str, str]] = []
    names: dict[int, Edit] = {}
    for scope in scopes:
        for node in scope.walk():
            if own := list(_wraps(node, scope, kinds)):
                wraps += own
                names |= named_as_before(node) if isinstance(node, exp.Cast) else {}
    wraps.sort(key=lambda wrap: wrap[1] - wrap[0])  # inner ones first
    ends = [Edit(end, end, after) for _, end, _, after in wraps]
    starts = [Edit(start, start, before) for start, _, before, _ in reversed(wraps)]
    return edited(text, [*ends, *starts, *names.values()]) if wraps else text


def _wraps(node: exp.Expr, scope: Scope, kinds: MomentKinds) -> Iterator[tuple[int, int, str, str]]:
    """Yield what goes before and after an operand that becomes text: its start, its end and the two."""
    if isinstance(node, exp.Cast) and node.to.this in _TEXTS:
        before, after = _written(node.this, scope, kinds)
        length = node.to.expressions[0].name if node.to.expressions else ""
        if length.isdecimal() and not isinstance(node.this, exp.Left):  # it may be cut already
            before, after = ("left(" + before, after + f", {length})") if before else _cut(length)
        if before:
            yield *operand_place(node), before, after
    elif isinstance(node, exp.DPipe | exp.Concat | exp.ConcatWs):
        operands: list[Any] = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
        for operand in operands:
            before, after = _written(operand, scope, kinds)
            if before:
                start, end, _ = cast_of(operand, "")
                yield start, end, before, after


def _cut(length: str) -> tuple[str, str]:
    return "left(CAST(", f" AS TEXT), {length})"


def _written(node: Any, scope: Scope, kinds: MomentKinds) -> tuple[str, str]:
    """Return what goes around a timestamp that becomes text; nothing around others."""
    is_moment = kinds.of(node, scope) in (MomentKind.MOMENT, MomentKind.NANOSECONDS)
    return (f"{_FUNCTION}(CAST(", " AS TIMESTAMP(6)))") if is_moment else ("", "")
