"""Columns that a join merges: those of USING, and of NATURAL.

In WHERE and ON DataFusion knows no such column. Elsewhere it takes it for that of the left side, which is NULL in rows
that a FULL JOIN has of the right one alone, and puts it where the left side has it. It compares a decimal with a
double, or a date with a timestamp, as another type than both. Here such a join says ON, each merged column is written
as what it is, and ``SELECT *`` has the merged columns first, as in PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from ...schemas.errors import InvalidArgumentError
from .kinds import Kind, Kinds, columns_of
from .text.edits import Edit, edited
from .text.names import lower, quoted
from .text.placed import scopes_of
from .text.right_joins import JoinSql

_MERGING = re.compile(r"\b(?:using|natural)\b", re.IGNORECASE)
_LEFT_ALONE = ("SEMI", "ANTI")


class _Type(IntEnum):
    """What a column is, as far as joins compare it."""

    OTHER = 0
    DECIMAL = 1
    DOUBLE = 2
    DATE = 3
    MOMENT = 4


_MIXED = ({_Type.DECIMAL, _Type.DOUBLE}, {_Type.DATE, _Type.MOMENT})
_CASTS = {
    exp.DType.DECIMAL: _Type.DECIMAL,
    exp.DType.FLOAT: _Type.DOUBLE,
    exp.DType.DOUBLE: _Type.DOUBLE,
    exp.DType.DATE: _Type.DATE,
    exp.DType.TIMESTAMP: _Type.MOMENT,
    exp.DType.TIMESTAMPTZ: _Type.MOMENT,
}


def merged_columns(text: str, tables: Mapping[str, pa.Schema]) -> str:
    """Return an SQL query without the joins by USING and NATURAL that DataFusion means otherwise. ``tables`` are those
    that it names.

    Raises:
        InvalidArgumentError: it has such a join of tables whose columns are not known here.
    """
    if not _MERGING.search(text):
        return text
    scopes, by_query = scopes_of(text, JoinSql)
    columns = {name: dict(columns_of(schema, _type_of)) for name, schema in tables.items()}
    kinds = _Types(columns, by_query)
    edits = [edit for scope in scopes for edit in _Joins(text, scope, kinds).edits()]
    return edited(text, edits) if edits else text


def _type_of(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return _Type.DECIMAL
    if pa.types.is_floating(kind):
        return _Type.DOUBLE
    return _Type.DATE if pa.types.is_date(kind) else _Type.MOMENT if pa.types.is_timestamp(kind) else _Type.OTHER


class _Types(Kinds):
    BEGUN: ClassVar[int] = _Type.OTHER

    def _of(self, node: Any, scope: Scope) -> Kind:
        return self._of_any(node, scope)

    def _of_type(self, kind: Any) -> int:
        return _CASTS.get(kind, _Type.OTHER)


class _Column(NamedTuple):
    """A column of a join: its name, how the query may write it, and its type."""

    name: str
    text: str
    kind: Kind
    is_merged: bool = False


@dataclass
class _Side:
    """What one side of a join has, in the order of ``SELECT *``."""

    columns: Sequence[_Column]
    is_known: bool

    def of(self, name: str) -> _Column:
        """Return a column. Raises InvalidArgumentError: it has none of this name, several, or nobody knows."""
        named = [each for each in self.columns if each.name == name]
        if len(named) != 1 or not self.is_known:
            raise _unclear(f"which column {name!r} a join with USING merges")
        return named[0]

    def beside(self, other: _Side) -> _Side:
        """Return what both sides have."""
        return _Side([*self.columns, *other.columns], self.is_known and other.is_known)


def _unclear(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the statement cannot be run: it is not clear {what}: write the condition after ON, and name the columns"
    )


class _Joins:
    """The joins of one SELECT."""

    def __init__(self, text: str, scope: Scope, kinds: Kinds) -> None:
        self._text = text
        self._scope = scope
        self._kinds = kinds
        self._edits: list[Edit] = []
        self._is_wrong = self._is_moved = False
        """Whether DataFusion means one of them otherwise, and whether ``*`` has another order there."""

    def edits(self) -> Iterator[Edit]:
        """Yield the edits of the query. Raises InvalidArgumentError: see ``merged_columns``."""
        query = self._scope.expression
        source = query.args.get("from_") if isinstance(query, exp.Select) else None
        joins: list[exp.Join] = [] if source is None else query.args.get("joins") or []
        merging = [each for item in (source, *joins) if item is not None for each in _merging(item)]
        if source is None or not merging:
            return
        try:
            side = self._joined(self._source(source.this), joins)
        except InvalidArgumentError:
            if any(each.side == "FULL" for each in merging):
                raise
            return
        if self._is_wrong:
            yield from self._edits
        yield from self._names({each.name: each.text for each in side.columns if each.is_merged})
        if self._is_wrong or self._is_moved:
            yield from self._stars(side)

    def _source(self, node: Any) -> _Side:
        """Return what an item of FROM has."""
        if isinstance(node, exp.Subquery) and not node.alias and not isinstance(node.this, exp.Query):
            inner = self._joined(self._source(node.this), node.this.args.get("joins") or ())
            return self._joined(inner, node.args.get("joins") or ())
        source = self._scope.sources.get(node.alias_or_name)
        columns = {} if source is None else self._kinds.columns(source, node.alias_or_name)
        alias = node.args.get("alias")
        table = quoted(_name(node.this if alias is None else alias.this))
        return _Side([_Column(name, f"{table}.{quoted(name)}", kind) for name, kind in columns.items()], bool(columns))

    def _joined(self, left: _Side, joins: Sequence[exp.Join]) -> _Side:
        before: list[_Side] = []
        for join in joins:
            right = self._source(join.this)
            if self._text[join.meta["start"]] == ",":
                before.append(left)
                left = right
            elif _is_merging(join):
                left = self._merged(join, left, right)
            elif join.kind not in _LEFT_ALONE:
                left = left.beside(right)
        for side in reversed(before):
            left = side.beside(left)
        return left

    def _merged(self, join: exp.Join, left: _Side, right: _Side) -> _Side:
        """Return what a join with USING or NATURAL has, and note the edits that write it with ON."""
        names = [_name(each) for each in join.args.get("using") or ()]
        if join.method:
            if not (left.is_known and right.is_known):
                raise _unclear("which columns a NATURAL JOIN merges")
            others = {each.name for each in right.columns}
            names = [each.name for each in left.columns if each.name in others]
        if join.this.args.get("joins"):
            raise _unclear("which tables belong to a join without parentheses")
        pairs = [(left.of(name), right.of(name)) for name in names]
        is_full = join.side == "FULL"
        self._is_wrong |= is_full or any({one.kind, other.kind} in _MIXED for one, other in pairs)
        condition = " AND ".join(f"{one.text} = {other.text}" for one, other in pairs) or "true"
        start, end = join.meta["start"], join.meta["end"]
        if join.method:
            self._edits.append(Edit(start, start + len(join.method), ""))
        self._edits.append(Edit(end if join.method else join.this.meta["end"], end, f" ON {condition}"))
        if join.kind in _LEFT_ALONE:
            return left
        merged = [
            _Column(one.name, f"coalesce({one.text}, {other.text})" if is_full else one.text, one.kind, True)
            for one, other in pairs
        ]
        left_rest = [each for each in left.columns if each.name not in names]
        right_rest = [each for each in right.columns if each.name not in names]
        self._is_moved |= names != [each.name for each in left.columns][: len(names)]
        return _Side([*merged, *left_rest, *right_rest], left.is_known and right.is_known)

    def _names(self, merged: Mapping[str, str]) -> Iterator[Edit]:
        """Yield the edits of the names that stand for merged columns."""
        query = self._scope.expression
        has_star = any(isinstance(each, exp.Star) for each in query.expressions)
        for node in self._scope.walk():
            if not isinstance(node, exp.Column) or node.table or (name := _name(node.this)) not in merged:
                continue
            if not (
                self._is_wrong or isinstance(node.find_ancestor(exp.Where, exp.Join, exp.Select), exp.Where | exp.Join)
            ):
                continue  # DataFusion knows it elsewhere
            is_key = isinstance(node.parent, exp.Ordered) and node.parent.parent is query.args.get("order")
            if is_key and (has_star or any(_output(each) == name for each in query.expressions)):
                continue
            alias = f" AS {quoted(name)}" if node.parent is query and node.arg_key == "expressions" else ""
            yield Edit(node.this.meta["start"], node.this.meta["end"] + 1, f"{merged[name]}{alias}")

    def _stars(self, side: _Side) -> Iterator[Edit]:
        """Yield the edits of ``SELECT *``."""
        shown = (f"{each.text} AS {quoted(each.name)}" if each.is_merged else each.text for each in side.columns)
        for star in self._scope.expression.expressions:
            if isinstance(star, exp.Star):
                if star.args.get("except_") or not side.is_known:
                    raise _unclear("which columns * stands for")
                yield Edit(star.meta["start"], star.meta["end"], ", ".join(shown))


def _merging(node: Any) -> Iterator[exp.Join]:
    """Yield the joins of an item of FROM that merge columns, but for those of its subqueries."""
    for each in node.dfs(prune=lambda part: isinstance(part, exp.Query) and not isinstance(part, exp.Subquery)):
        if isinstance(each, exp.Join) and _is_merging(each):
            yield each


def _is_merging(join: exp.Join) -> bool:
    return bool(join.method or join.args.get("using"))


def _output(node: exp.Expr) -> str:
    return _name(node.args["alias"]) if isinstance(node, exp.Alias) else _name(node.this)


def _name(identifier: Any) -> str:
    if not isinstance(identifier, exp.Identifier):
        return ""
    return identifier.name if identifier.args.get("quoted") else lower(identifier.name)
