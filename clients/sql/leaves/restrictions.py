"""What a plan tells of the rows that a query needs, beside the filters that DataFusion pushes: keys and LIKE.

Tables restrict each other: a row is not needed if a join by equality finds it no partner.

That is a semi-join reduction (Bernstein and Chiu, "Using Semi-Joins to Solve Relational Queries", 1981). The plan shows
where it holds: the keys of a table restrict another one if no operator between that table and the join looks at rows
that the join would drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..source.bounds import Tree

_Origin = tuple[int, str]
"""A scan of the plan, and a column of it."""
_Origins = dict[tuple[str, str], _Origin]
"""Of columns of a plan, by qualifier and name: where they come from, if a restriction may go down to there."""
_BOTH_SIDES, _RIGHT_ALONE, _LEFT_ALONE = ("Inner", "LeftSemi", "RightSemi"), ("Left",), ("Right",)
_KEEPS_LEFT, _KEEPS_RIGHT = (
    ("LeftSemi", "LeftAnti", "Left", "LeftMark"),
    ("RightSemi", "RightAnti", "Right", "RightMark"),
)


@dataclass(frozen=True, slots=True)
class Edge:
    """What a query restricts a leaf to: rows are needed only where ``column`` equals a cell of a column of another
    table, the source."""

    column: str
    source: str
    """The query's name of the source."""
    source_column: str


@dataclass(frozen=True, slots=True)
class ScanPlace:
    """A place where DataFusion's plan of a query scans a leaf."""

    edges: list[Edge] = field(default_factory=list)
    """What restricts the rows by keys."""
    trees: list[Tree] = field(default_factory=list)
    """Filters that DataFusion does not push: LIKE."""
    has_rows: bool = True
    """Whether rows may pass the filters that DataFusion pushes: none passes a literal NULL."""


def places_of(plan: Any) -> dict[str, list[ScanPlace]]:
    """Return the places of each leaf, by the query's name of it, in a logical plan of DataFusion. Places within
    subqueries that the optimizer has left in expressions are missing."""
    walk = _Walk()
    walk.origins(plan)
    places: dict[str, list[ScanPlace]] = {}
    for name, place in walk.scans:
        places.setdefault(name, []).append(place)
    return places


class _Walk:
    """One way down a plan and up again."""

    def __init__(self) -> None:
        self.scans: list[tuple[str, ScanPlace]] = []

    def origins(self, plan: Any) -> _Origins:
        """Note the places of a plan; return where its columns come from."""
        node, inputs = plan.to_variant(), plan.inputs()
        kind = type(node).__name__
        if kind == "TableScan":
            name = node.table_name()
            self.scans.append((name, ScanPlace(has_rows=not any(map(_is_null, node.filters())))))
            if node.fetch() is not None:  # it ends after so many rows, whichever they are
                return {}
            return {(name, column): (len(self.scans) - 1, column) for _, column in node.projection()}
        if kind == "Join":
            return self._join(node, self.origins(inputs[0]), self.origins(inputs[1]))
        below = [self.origins(each) for each in inputs]
        if len(below) != 1:
            return {}
        (origins,) = below
        if kind == "Filter":
            self._filter(node.predicate(), origins)
        if kind == "Filter" or (kind == "Sort" and node.get_fetch_val() is None):
            return origins
        if kind == "SubqueryAlias":
            return {(node.alias(), name): origin for (_, name), origin in origins.items()}
        if kind == "Projection":
            return _columns(node.projections(), origins)
        if kind == "Aggregate":  # rows of one group have the same key, so they go together
            return _columns(node.group_by_exprs(), origins)
        return {}

    def _join(self, node: Any, left: _Origins, right: _Origins) -> _Origins:
        kind = str(node.join_type())
        for one, other in () if node.null_equals_null() else node.on():
            on_left, on_right = _origin(one, left), _origin(other, right)
            if on_left is None or on_right is None:
                continue
            if kind in (*_BOTH_SIDES, *_RIGHT_ALONE):
                self._edge(on_left, on_right)
            if kind in (*_BOTH_SIDES, *_LEFT_ALONE):
                self._edge(on_right, on_left)
        if kind == "Inner":
            return {**left, **right}
        return left if kind in _KEEPS_LEFT else right if kind in _KEEPS_RIGHT else {}

    def _edge(self, source: _Origin, target: _Origin) -> None:
        self.scans[target[0]][1].edges.append(Edge(target[1], self.scans[source[0]][0], source[1]))

    def _filter(self, condition: Any, known: _Origins) -> None:
        kind = condition.variant_name()
        if kind == "BinaryExpr" and (both := condition.to_variant()).op() == "AND":
            self._filter(both.left(), known)
            self._filter(both.right(), known)
        elif kind == "Like" and " ILIKE " not in condition.canonical_name():  # their variants look alike
            like = condition.to_variant()
            origin, pattern = _origin(like.expr(), known), like.pattern()
            if origin is None or like.negated() or like.escape_char() or pattern.variant_name() != "Literal":
                return
            text = pattern.python_value().as_py()
            if isinstance(text, str) and "\\" not in text:
                self.scans[origin[0]][1].trees.append({"op": "like", "column": origin[1], "pattern": text})


def _origin(expression: Any, known: _Origins) -> _Origin | None:
    if expression.variant_name() != "Column":
        return None
    column = expression.to_variant()
    return known.get((column.relation() or "", column.name()))


def _is_null(filter: Any) -> bool:
    return filter.variant_name() == "Literal" and filter.python_value().as_py() is None


def _columns(expressions: Sequence[Any], known: _Origins) -> _Origins:
    """Return where the columns of a projection come from."""
    origins: _Origins = {}
    for expression in expressions:
        kind = expression.variant_name()
        if kind not in ("Column", "Alias"):
            continue
        column = expression.to_variant()
        if kind == "Alias":
            origin, place = _origin(column.expr(), known), ("", column.alias())
        else:
            origin, place = _origin(expression, known), (column.relation() or "", column.name())
        if origin is not None:
            origins[place] = origin
    return origins
