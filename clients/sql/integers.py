"""How large the integers of a query may be, by the types of its columns and of what is computed of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

Columns = tuple[tuple[str, int], ...]
"""The columns of a table, and the bits of the absolute values of each; 0: they are no integers."""
COMPUTED = (exp.Add, exp.Sub, exp.Mul)
CHAIN = (*COMPUTED, exp.Neg, exp.Paren)
"""One computation: what is cast to bigint as a whole."""
_SAME = (
    exp.Alias,
    exp.Window,
    exp.Filter,
    exp.IgnoreNulls,
    exp.Min,
    exp.Max,
    exp.Abs,
    exp.Lag,
    exp.Lead,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
)
"""Nodes whose value is one of those of their first operand."""
_AFTER = (exp.Order, exp.Having, exp.Qualify, exp.Group)
"""Clauses in which names of the answer count."""
_LENGTHS = (exp.Length, exp.Ascii, exp.StrPosition)
FAR = 1 << 63
WHOLE, HALF = 63, 31
"""Bits of a bigint, and of an integer."""
_CASTS = {
    exp.DType.TINYINT: 7,
    exp.DType.SMALLINT: 15,
    exp.DType.INT: HALF,
    exp.DType.BIGINT: WHOLE,
}
ROWS = 40
"""A query has fewer than 2 to the power of this many rows."""


def columns_of(schema: pa.Schema) -> Columns:
    """Return the columns of a table that a query reads, with the bits of their integers."""
    return tuple((field.name, _bits(field.type)) for field in schema)


def _bits(kind: pa.DataType) -> int:
    if not pa.types.is_integer(kind):
        return 0
    return kind.bit_width - pa.types.is_signed_integer(kind)


@dataclass
class Integers:
    """The bits of the absolute values of the integers that an SQL query computes; 0 where they are none, or where that
    is not known."""

    tables: Mapping[str, Mapping[str, int]]
    parameters: frozenset[str]
    scopes: Mapping[int, Scope]
    """By the id of their query."""
    memory: dict[int, int] = field(default_factory=dict)
    """By the id of a node."""

    def bits(self, node: Any, scope: Scope) -> int:
        """Return the bits of ``node``, which stands in ``scope``."""
        if id(node) not in self.memory:
            self.memory[id(node)] = WHOLE  # until it is known: a recursive query is of integers if its first part is
            self.memory[id(node)] = min(self._bits(node, scope), WHOLE)
        return self.memory[id(node)]

    def computed(self, node: Any, scope: Scope) -> int:
        """Return the bits of a computation, which may be more than a bigint has."""
        if isinstance(node, exp.Paren | exp.Neg):
            return self.computed(node.this, scope)
        if not isinstance(node, COMPUTED):
            return self.bits(node, scope)
        left, right = self.computed(node.this, scope), self.computed(node.expression, scope)
        if not (left and right):
            return 0
        return left + right if isinstance(node, exp.Mul) else max(left, right) + 1

    def _bits(self, node: Any, scope: Scope) -> int:
        if isinstance(node, exp.Literal):
            return max(int(node.this).bit_length(), 1) if node.is_int and int(node.this) < FAR else 0
        if isinstance(node, exp.Column):
            return self._bits_of_column(node, scope)
        if isinstance(node, exp.Cast):
            return _CASTS.get(node.to.this, 0)
        if isinstance(node, exp.Parameter | exp.Placeholder):
            return WHOLE if node.name in self.parameters else 0
        if isinstance(node, exp.Case | exp.Coalesce | exp.Nullif | exp.If | exp.Greatest | exp.Least):
            return self._most(_answers(node), scope)
        if isinstance(node, CHAIN):
            return self.computed(node, scope)
        if isinstance(node, exp.Div | exp.Mod):
            return self._most([node.this, node.expression], scope)
        if isinstance(node, exp.Sum):
            bits = self.bits(node.this, scope)
            return bits and bits + ROWS
        if isinstance(node, exp.Count):
            return ROWS
        if isinstance(node, exp.Distinct):
            return self.bits(node.expressions[0], scope)
        if isinstance(node, _SAME):
            return self.bits(node.this, scope)
        if isinstance(node, exp.Subquery):
            columns = self._answer(node).columns
            return columns[0][1] if len(columns) == 1 else 0
        return HALF if isinstance(node, _LENGTHS) else 0

    def _most(self, nodes: list[Any], scope: Scope) -> int:
        bits = [self.bits(node, scope) for node in nodes if not isinstance(node, exp.Null)]
        return max(bits) if bits and all(bits) else 0

    def _bits_of_column(self, column: exp.Column, scope: Scope | None) -> int:
        name = _name(column.this)
        if scope is not None and not column.table and self._is_another(column, name, scope):
            return 0
        while scope is not None:
            for alias, source in scope.sources.items():
                if column.table not in ("", alias):
                    continue
                columns = self._columns_of(source)
                if name in columns or not columns:  # it may be a column of a table that is not known
                    return columns.get(name, 0)
            scope = scope.parent
        return 0

    def _is_another(self, column: exp.Column, name: str, scope: Scope) -> bool:
        """Return whether a name in ORDER BY or HAVING may stand for a column of the answer that has no integers."""
        if isinstance(column.find_ancestor(*_AFTER, exp.Select), exp.Select):
            return False
        query = scope.expression
        answer = [each for each in query.selects if isinstance(each, exp.Alias)] if isinstance(query, exp.Query) else []
        return any(_name(each.args["alias"]) == name and not self.bits(each, scope) for each in answer)

    def _columns_of(self, source: Any) -> Mapping[str, int]:
        """Return the columns of a table of FROM, and the bits of each."""
        if isinstance(source, Scope):
            query = source.expression
            names = _renamed(query)
            answer = self._answer(query)
            if not names:
                return dict(answer.columns)
            return {} if answer.has_star else dict(zip(names, (bits for _, bits in answer.columns), strict=False))
        if not isinstance(source, exp.Table) or source.db.lower() == "information_schema":
            return {}
        return self.tables.get(_name(source.this), {})

    def _answer(self, query: Any) -> _Answer:
        """Return the columns of a query's answer."""
        while isinstance(query, exp.Subquery | exp.Lateral | exp.CTE):
            query = query.this
        if isinstance(query, exp.SetOperation):
            return self._answer(query.this).joined(self._answer(query.expression))
        scope = self.scopes.get(id(query))
        if scope is None:
            return _Answer([])
        if isinstance(query, exp.Values):
            rows = [row.expressions for row in query.expressions if isinstance(row, exp.Tuple)]
            kinds = [self._most(list(cells), scope) for cells in zip(*rows, strict=False)]
            return _Answer([(f"column{place + 1}", bits) for place, bits in enumerate(kinds)])
        answer = _Answer([])
        for each in query.selects if isinstance(query, exp.Select) else []:
            if each.is_star:
                answer.has_star = True
                table = each.args.get("table")  # of t.*
                for alias, source in scope.sources.items():
                    if table is None or table.name == alias:
                        answer.columns += self._columns_of(source).items()
            else:
                answer.columns.append((_output(each), self.bits(each, scope)))
        return answer


@dataclass
class _Answer:
    """The columns of a query's answer: their names and bits."""

    columns: list[tuple[str, int]]
    has_star: bool = False
    """Then their order is not known."""

    def joined(self, other: _Answer) -> _Answer:
        """Return the columns of a set operation."""
        if self.has_star or other.has_star:
            others = dict(other.columns)
            pairs = [(name, bits, others.get(name, 0)) for name, bits in self.columns]
        else:
            pairs = [(name, bits, more) for (name, bits), (_, more) in zip(self.columns, other.columns, strict=False)]
        columns = [(name, max(bits, more) if bits and more else 0) for name, bits, more in pairs]
        return _Answer(columns, self.has_star or other.has_star)


def _renamed(query: exp.Expr) -> list[str]:
    """Return the names that FROM or WITH gives to the columns of a query, if it does."""
    holder = query if isinstance(query, exp.Values | exp.Lateral) else query.parent
    alias = holder.args.get("alias") if holder is not None else None
    return [_name(column) for column in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []


def _answers(node: exp.Expr) -> list[Any]:
    """Return the expressions that one of is the value of ``node``."""
    if isinstance(node, exp.Case):
        return [
            *(each.args["true"] for each in node.args["ifs"]),
            *([node.args["default"]] if node.args.get("default") else []),
        ]
    if isinstance(node, exp.If):
        return [each for each in (node.args["true"], node.args.get("false")) if each is not None]
    if isinstance(node, exp.Nullif):
        return [node.this]
    return [node.this, *node.expressions]


def _output(node: exp.Expr) -> str:
    if isinstance(node, exp.Alias):
        return _name(node.args["alias"])
    return _name(node.this) if isinstance(node, exp.Column) else ""


def _name(identifier: Any) -> str:
    if not isinstance(identifier, exp.Identifier):
        return ""
    return identifier.name if identifier.args.get("quoted") else identifier.name.lower()
