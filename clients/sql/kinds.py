"""What the expressions of a query are, as far as its tables and its scopes show.

A kind is a number that whoever asks gives a meaning: 0 is not known, and of several that have to be of one type, the
highest is that type. Lists, maps and structs have the kinds of what is in them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .text.names import CATALOG, SCHEMA, lower


@dataclass(frozen=True, slots=True)
class Nested:
    """What is in a list, a map or a struct of a query."""

    cells: Kind = 0
    """Of a list; of a map its values."""
    fields: tuple[tuple[str, Kind], ...] = ()
    """Of a struct."""


Kind = int | Nested
Columns = tuple[tuple[str, Kind], ...]
"""The columns of a table, and what each is."""
_VALUES = (
    exp.Alias,
    exp.Paren,
    exp.Window,
    exp.Filter,
    exp.IgnoreNulls,
    exp.Min,
    exp.Max,
    exp.Abs,
    exp.AnyValue,
    exp.Lag,
    exp.Lead,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
)
"""Nodes whose value is one of those of their first operand."""
_CHOSEN = (exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Nvl2, exp.Greatest, exp.Least)
_AFTER = (exp.Order, exp.Having, exp.Qualify, exp.Group)
"""Clauses in which names of the answer count."""


def words(text: str) -> frozenset[str]:
    """Return names of functions as ``called`` gives them."""
    return frozenset(text.replace("_", "").split())


_OF_CELLS = words("array_max array_min array_any_value array_element element_at explode unnest flatten")
_LISTS = words(
    "array_append array_cat array_compact array_concat array_distinct array_except array_intersect array_pop_back "
    "array_pop_front array_prepend array_remove array_remove_all array_remove_n "
    "array_replace array_replace_all array_replace_n array_reverse array_slice array_sort array_union map_extract "
    "map_values"
)
_MADE = words("array make_array make_list array_agg")
INTEGERS = words(
    "array_length array_ndims array_position array_size ascii bit_length cardinality char_length "
    "character_length count dense_rank factorial find_in_set instr length levenshtein ntile octet_length position rank "
    "regexp_count regexp_instr row_number str_position strpos to_unixtime approx_distinct"
)
"""Functions that give integers, whatever they are given."""


def columns_of(schema: pa.Schema, kind_of: Callable[[pa.DataType], int]) -> Columns:
    """Return the columns of a table that a query reads; ``kind_of`` says what a type is that has no others in it."""

    def inside(kind: pa.DataType) -> Kind:
        if pa.types.is_struct(kind):
            return Nested(fields=tuple((each.name, inside(each.type)) for each in kind))
        if pa.types.is_map(kind):
            return Nested(inside(kind.item_type))
        return Nested(inside(kind.value_type)) if hasattr(kind, "value_field") else kind_of(kind)

    return tuple((each.name, inside(each.type)) for each in schema)


def called(node: Any) -> str:
    """Return the name of a function in a query, without underscores."""
    return (node.name if isinstance(node, exp.Anonymous) else node.key).lower().replace("_", "")


def common(kinds: Iterable[Kind]) -> Kind:
    """Return what values are that have to be of one type."""
    all_kinds = list(kinds)
    lists = [kind for kind in all_kinds if isinstance(kind, Nested)]
    numbers = [kind for kind in all_kinds if isinstance(kind, int)]
    if not lists:
        return max(numbers) if numbers and all(numbers) else 0
    if numbers or len({tuple(name for name, _ in kind.fields) for kind in lists}) > 1:
        return 0
    names = [name for name, _ in lists[0].fields]
    columns = zip(*([kind for _, kind in each.fields] for each in lists), strict=True)
    fields = tuple(zip(names, map(common, columns), strict=True))
    return Nested(common(kind.cells for kind in lists), fields)


@dataclass
class Kinds(ABC):
    """What the expressions of an SQL query are. Here is what holds for all kinds."""

    tables: Mapping[str, Mapping[str, Kind]]
    scopes: Mapping[int, Scope]
    """By the id of their query."""
    memory: dict[int, Kind] = field(default_factory=dict)
    """By the id of a node."""
    BEGUN: ClassVar[int]
    """Of an expression until it is known: a recursive query is what its first part is."""

    def of(self, node: Any, scope: Scope) -> Kind:
        """Return what ``node`` is, which stands in ``scope``."""
        if id(node) not in self.memory:
            self.memory[id(node)] = self.BEGUN
            self.memory[id(node)] = self._of(node, scope)
        return self.memory[id(node)]

    def number(self, node: Any, scope: Scope) -> int:
        """Return what ``node`` is; 0 if that has others in it."""
        kind = self.of(node, scope)
        return kind if isinstance(kind, int) else 0

    @abstractmethod
    def _of(self, node: Any, scope: Scope) -> Kind:
        """Return what ``node`` is."""

    @abstractmethod
    def _of_type(self, kind: Any) -> int:
        """Return what a type of SQL is."""

    def _of_any(self, node: Any, scope: Scope) -> Kind:
        """Return what a node is that is the same for all kinds."""
        if isinstance(node, exp.Column):
            return self._of_column(node, scope)
        if isinstance(node, _CHOSEN):
            return self.most(_answers(node), scope)
        if isinstance(node, exp.Distinct):
            return self.of(node.expressions[0], scope)
        if isinstance(node, _VALUES):
            return self.of(node.this, scope)
        if isinstance(node, exp.Subquery | exp.Any | exp.All):
            columns = self.answer(node).columns
            return columns[0][1] if len(columns) == 1 else 0
        if isinstance(node, exp.Cast):
            return self._of_cast(node.to)
        if isinstance(node, exp.Dot):
            return _part(self.of(node.this, scope), node.expression.name)
        if isinstance(node, exp.Bracket):
            kind, place = self.of(node.this, scope), node.expressions[0]
            if isinstance(place, exp.Slice):
                return kind
            return _part(kind, place.name if isinstance(place, exp.Literal) and place.is_string else None)
        return self._of_function(node, scope) if isinstance(node, exp.Func | exp.Array) else 0

    def _of_function(self, node: exp.Expr, scope: Scope) -> Kind:
        name, given = called(node), list(node.iter_expressions())
        if name in _OF_CELLS:
            return _part(self._list(given, scope))
        if name in _LISTS:
            return self._list(given, scope)
        if name in _MADE:
            return Nested(self.most(given, scope))
        if name == "map" and len(given) == 2:
            return Nested(_part(self.of(given[1], scope)))
        if name == "getfield" and len(given) == 2:
            return _part(self.of(given[0], scope), given[1].name)
        if name == "namedstruct":
            pairs = zip(given[::2], given[1::2], strict=False)
            return Nested(fields=tuple((key.name, self.of(value, scope)) for key, value in pairs))
        return 0

    def _list(self, given: Sequence[Any], scope: Scope) -> Kind:
        return next((kind for each in given if isinstance(kind := self.of(each, scope), Nested)), 0)

    def _of_cast(self, kind: exp.Expr) -> Kind:
        inner = kind.expressions
        if kind.this is exp.DType.ARRAY and inner:
            return Nested(self._of_cast(inner[0]))
        if kind.this is exp.DType.MAP and len(inner) == 2:
            return Nested(self._of_cast(inner[1]))
        if kind.this is exp.DType.STRUCT:
            fields = (each for each in inner if isinstance(each, exp.ColumnDef))
            return Nested(fields=tuple((_name(each.this), self._of_cast(each.args["kind"])) for each in fields))
        return self._of_type(kind.this)

    def most(self, nodes: Sequence[Any], scope: Scope) -> Kind:
        """Return what nodes are that have to be of one type."""
        return self.most_of((node, scope) for node in nodes)

    def most_of(self, nodes: Iterable[tuple[Any, Scope]]) -> Kind:
        """Return what nodes of several scopes are that have to be of one type."""
        return common(self.of(node, scope) for node, scope in nodes if not isinstance(node, exp.Null))

    def _of_column(self, column: exp.Column, scope: Scope | None) -> Kind:
        parts = [_name(part) for part in column.parts]
        while len(parts) > 2 and parts[0] in (CATALOG, SCHEMA):
            parts = parts[1:]
        named = self._named(column, parts[0], scope) if scope is not None and len(parts) == 1 else []
        while scope is not None:
            for alias, source in scope.sources.items():
                if len(parts) > 1 and parts[0].lower() == alias.lower():
                    return _below(self.columns(source, alias), parts[1:])
            for alias, source in selected(scope):
                columns = self.columns(source, alias)
                if parts[0] in columns or not columns:  # it may be a column of a table that is not known
                    return common([_below(columns, parts), *named])
            scope = scope.parent
        return 0

    def _named(self, column: exp.Column, name: str, scope: Scope) -> list[Kind]:
        """Return the columns of the answer that a name in ORDER BY or HAVING may stand for."""
        if isinstance(column.find_ancestor(*_AFTER, exp.Select), exp.Select):
            return []
        query = scope.expression
        answer = [each for each in query.selects if isinstance(each, exp.Alias)] if isinstance(query, exp.Query) else []
        return [self.of(each, scope) for each in answer if _name(each.args["alias"]) == name]

    def columns(self, source: Any, alias: str) -> Mapping[str, Kind]:
        """Return the columns of a table of FROM."""
        if isinstance(source, Scope):
            query = source.expression
            names = _renamed(query) or ([alias] if isinstance(query, exp.Unnest) else [])
            answer = self.answer(query)
            if not names:
                return dict(answer.columns)
            return {} if answer.has_star else dict(zip(names, (kind for _, kind in answer.columns), strict=False))
        if not isinstance(source, exp.Table) or source.db.lower() == "information_schema":
            return {}
        return self.tables.get(_name(source.this), {})

    def answer(self, query: Any) -> Answer:
        """Return the columns of a query's answer."""
        while isinstance(query, exp.Subquery | exp.Lateral | exp.CTE | exp.Any | exp.All):
            query = query.this
        if isinstance(query, exp.SetOperation):
            return self.answer(query.this).joined(self.answer(query.expression))
        scope = self.scopes.get(id(query))
        if scope is None:
            return Answer([])
        if isinstance(query, exp.Unnest):
            return Answer([("", _part(self.of(each, scope))) for each in query.expressions])
        if isinstance(query, exp.Values):
            rows = [row.expressions for row in query.expressions if isinstance(row, exp.Tuple)]
            kinds = [self.most(list(cells), scope) for cells in zip(*rows, strict=False)]
            return Answer([(f"column{place + 1}", kind) for place, kind in enumerate(kinds)])
        answer = Answer([])
        for each in query.selects if isinstance(query, exp.Select) else []:
            if each.is_star:
                answer.has_star = True
                table = each.args.get("table")  # of t.*
                for alias, source in selected(scope):
                    if table is None or table.name == alias:
                        answer.columns += self.columns(source, alias).items()
            else:
                answer.columns.append((_output(each), self.of(each, scope)))
        return answer


@dataclass
class Answer:
    """The columns of a query's answer."""

    columns: list[tuple[str, Kind]]
    has_star: bool = False
    """Then their order is not known."""

    def joined(self, other: Answer) -> Answer:
        """Return the columns of a set operation."""
        if self.has_star or other.has_star:
            others = dict(other.columns)
            pairs = [(name, kind, others.get(name, 0)) for name, kind in self.columns]
        else:
            pairs = [(name, kind, more) for (name, kind), (_, more) in zip(self.columns, other.columns, strict=False)]
        columns = [(name, common([kind, more])) for name, kind, more in pairs]
        return Answer(columns, self.has_star or other.has_star)


def selected(scope: Scope) -> Iterator[tuple[str, Any]]:
    """Yield the tables of FROM, and of UNNEST those before it; a scope also has those of WITH."""
    names = [*dict.fromkeys(name for name, _ in scope.references), *scope.lateral_sources]
    yield from ((name, scope.sources[name]) for name in names if name in scope.sources)


def _part(kind: Kind, field: str | None = None) -> Kind:
    """Return what is in a list, a map or a struct."""
    if not isinstance(kind, Nested):
        return 0
    return dict(kind.fields).get(field, 0) if kind.fields and field is not None else kind.cells


def _below(columns: Mapping[str, Kind], names: Sequence[str]) -> Kind:
    """Return what a column is, or a field below it."""
    kind = columns.get(names[0], 0)
    for name in names[1:]:
        kind = _part(kind, name)
    return kind


def _renamed(query: exp.Expr) -> list[str]:
    """Return the names that FROM or WITH gives to the columns of a query, if it does."""
    holder = query if isinstance(query, exp.Values | exp.Lateral | exp.Unnest) else query.parent
    alias = holder.args.get("alias") if holder is not None else None
    return [_name(column) for column in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []


def _answers(node: exp.Expr) -> list[Any]:
    """Return the expressions that one of is the value of ``node``."""
    if isinstance(node, exp.Case):
        return [
            *(each.args["true"] for each in node.args["ifs"]),
            *([node.args["default"]] if node.args.get("default") else []),
        ]
    if isinstance(node, exp.If | exp.Nvl2):
        return [each for each in (node.args["true"], node.args.get("false")) if each is not None]
    return [node.this] if isinstance(node, exp.Nullif) else [node.this, *node.expressions]


def _output(node: exp.Expr) -> str:
    if isinstance(node, exp.Alias):
        return _name(node.args["alias"])
    return _name(node.this) if isinstance(node, exp.Column) else ""


def _name(identifier: Any) -> str:
    if not isinstance(identifier, exp.Identifier):
        return ""
    return identifier.name if identifier.args.get("quoted") else lower(identifier.name)
