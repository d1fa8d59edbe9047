"""Dates, texts and the present time that a query compares with timestamps.

DataFusion compares them as nanoseconds, which end in 2262. Here they become timestamps of microseconds, as the columns
of the store are. So are the branches of CASE, and the parts of UNION.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .common_types import Group, casts_of, groups_of, listed_stars, named_again, operands_of, set_groups
from .kinds import Columns, Kind, Kinds, columns_of
from .text.edits import Edit, edited
from .text.microseconds import with_six_digits
from .text.placed import Cast, cast_of, edits_of, scopes_of
from .text.remembered import remembered

_INTERVAL = re.compile(r"\binterval\b", re.IGNORECASE)
_HOURS = re.compile(r"hour|min|sec|:", re.IGNORECASE)
_SHORT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
"""A moment without seconds, which DataFusion does not read."""
_TYPE = "TIMESTAMP(6)"


class MomentKind(IntEnum):
    """What an expression is. Of several that have to be of one type, the highest is that type."""

    OTHER = 0
    NULL = 1
    TEXT = 2
    """A literal, or a parameter."""
    DATE = 3
    MOMENT = 4
    NANOSECONDS = 5
    """A timestamp of nanoseconds, as the present time."""


_CASTS = {
    exp.DType.DATE: MomentKind.DATE,
    exp.DType.TIMESTAMP: MomentKind.MOMENT,
    exp.DType.TIMESTAMPTZ: MomentKind.MOMENT,
}
_NOW = (exp.CurrentTimestamp, exp.Localtimestamp)


def exact_moments(text: str, tables: Mapping[str, pa.Schema], values: Mapping[str, pa.Scalar] | None = None) -> str:
    """Return an SQL query that compares timestamps as microseconds. ``tables`` are those that it names, and ``values``
    those of its parameters."""
    types = [each.type for schema in tables.values() for each in schema]
    if not (any(map(pa.types.is_timestamp, types)) or (any(map(pa.types.is_date, types)) and _INTERVAL.search(text))):
        return text
    columns = tuple((name, columns_of(schema, kind_of_type)) for name, schema in tables.items())
    return _exact(text, columns, moment_parameters(values))


def moment_parameters(values: Mapping[str, pa.Scalar] | None) -> tuple[tuple[str, MomentKind], ...]:
    """Return what moments the parameters of a query are."""
    return tuple((name, _parameter(value)) for name, value in (values or {}).items())


@remembered
def _exact(text: str, tables: tuple[tuple[str, Columns], ...], parameters: tuple[tuple[str, MomentKind], ...]) -> str:
    scopes, by_query = scopes_of(text)
    kinds = MomentKinds({name: dict(columns) for name, columns in tables}, by_query, parameters=dict(parameters))
    if stars := listed_stars(scopes, kinds, (MomentKind.DATE, MomentKind.MOMENT)):
        return _exact(edited(text, stars), tables, parameters)
    groups = [group for scope in scopes for group in (*groups_of(scope, _operands), *set_groups(scope))]
    casts = [cast for group in groups for cast in _casts(group, kinds)]
    casts += [cast for scope in scopes for node in scope.walk() for cast in _with_hours(node, scope, kinds)]
    edits = edits_of(casts) + named_again(casts, groups) + _seconds(casts, text)
    edits += {edit.start: edit for group in groups for edit in _rounded(group, kinds, text)}.values()
    return edited(text, edits) if edits else text


def _with_hours(node: exp.Expr, scope: Scope, kinds: MomentKinds) -> Iterator[Cast]:
    """Yield the cast of a date to which hours are added: DataFusion would leave them out."""
    if not isinstance(node, exp.Add | exp.Sub):
        return
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        if kinds.of(one, scope) == MomentKind.DATE and _has_hours(other):
            yield cast_of(one, _TYPE)


def _has_hours(node: exp.Expr) -> bool:
    return isinstance(node, exp.Interval) and _HOURS.search(node.sql()) is not None


def _seconds(casts: Sequence[Cast], text: str) -> list[Edit]:
    """Return the edits that write the seconds of literals which are cast."""
    return [Edit(end - 1, end - 1, ":00") for start, end, _ in casts if _SHORT.fullmatch(text[start + 1 : end - 1])]


def _rounded(operands: Group, kinds: MomentKinds, text: str) -> Iterator[Edit]:
    """Yield the edits that round literals which are compared with timestamps to microseconds."""
    if kinds.most_of(operands) not in (MomentKind.MOMENT, MomentKind.NANOSECONDS):
        return
    for operand, _ in operands:
        literal = operand.this if isinstance(operand, exp.Cast) else operand
        if isinstance(literal, exp.Literal) and literal.is_string and not isinstance(operand.parent, exp.Sub):
            start, end = literal.meta["start"] + 1, literal.meta["end"]
            end -= text[end - 1] == "'"  # an operand's place ends after it, that of a token with it
            if (rounded := with_six_digits(literal.name)) != literal.name:
                yield Edit(start, end, rounded)


def kind_of_type(kind: pa.DataType) -> int:
    """Return what moments the cells of a column are."""
    if pa.types.is_timestamp(kind):
        return MomentKind.OTHER if kind.unit == "ns" else MomentKind.MOMENT
    return MomentKind.DATE if pa.types.is_date(kind) else MomentKind.OTHER


def _parameter(value: pa.Scalar) -> MomentKind:
    if not value.is_valid:
        return MomentKind.NULL
    return MomentKind.TEXT if pa.types.is_string(value.type) else MomentKind(kind_of_type(value.type))


def _operands(node: exp.Expr) -> Iterator[Sequence[exp.Expr]]:
    yield from operands_of(node)
    if isinstance(node, exp.Sub):
        yield [node.this, node.expression]


def _casts(operands: Group, kinds: MomentKinds) -> Iterator[Cast]:
    """Yield the casts of what is compared with timestamps."""
    if kinds.most_of(operands) not in (MomentKind.MOMENT, MomentKind.NANOSECONDS):
        return
    for operand, scope in operands:
        kind = kinds.of(operand, scope)
        if kind == MomentKind.TEXT and isinstance(operand.parent, exp.Sub):
            continue
        if kind in (MomentKind.TEXT, MomentKind.DATE, MomentKind.NANOSECONDS):
            yield from casts_of(operand, _TYPE)


@dataclass
class MomentKinds(Kinds):
    """Which of the expressions of an SQL query are timestamps, dates and others."""

    parameters: Mapping[str, MomentKind] = field(default_factory=dict)
    BEGUN: ClassVar[int] = MomentKind.NULL

    def _of(self, node: Any, scope: Scope) -> Kind:
        if isinstance(node, exp.Null):
            return MomentKind.NULL
        if isinstance(node, exp.Literal):
            return MomentKind.TEXT if node.is_string else MomentKind.OTHER
        if isinstance(node, exp.Parameter):
            return self.parameters.get(node.name, MomentKind.OTHER)
        if isinstance(node, _NOW):
            return MomentKind.NANOSECONDS
        if isinstance(node, exp.CurrentDate):
            return MomentKind.DATE
        if isinstance(node, exp.Add | exp.Sub):
            return self._of_sum(node, scope)
        if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            return self.of(node.this, scope)
        return self._of_any(node, scope)

    def _of_sum(self, node: exp.Add | exp.Sub, scope: Scope) -> Kind:
        """Return what a moment with an interval added is; the difference of two moments is none."""
        left, right = self.number(node.this, scope), self.number(node.expression, scope)
        if MomentKind.DATE in (left, right) and (_has_hours(node.this) or _has_hours(node.expression)):
            return MomentKind.MOMENT
        if left >= MomentKind.DATE and right == MomentKind.OTHER:
            return left
        is_later = isinstance(node, exp.Add) and left == MomentKind.OTHER
        return right if is_later and right >= MomentKind.DATE else MomentKind.OTHER

    def _of_type(self, kind: Any) -> int:
        return _CASTS.get(kind, MomentKind.OTHER)
