"""Compiles a caller's ``where`` against a table, and remembers the result: a plan and its tickets repeat it, and so do
clients that ask for the same again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ...schemas.limits.limits import Limits
from ...schemas.table.table import TableSchema
from .. import threads
from ..expression.folding import uses_now
from ..expression.tree import Expr, Not, conjuncts_of
from ..vectors.keys.keys import KeyEncoder, KeyVector
from .bind import BoundFilter, bind
from .few import few_keys
from .points import key_points
from .prune import KeyRange, is_key_range, key_range
from .where import parse_where

_DESCRIBED_MAX = 100
"""Parts of a filter that an explanation lists."""
_REMEMBERED = 256
_TEXT_MAX = 1024
"""Longer filters are compiled each time: their lists would take memory."""
_POINTS_MAX = 1000
"""So are filters with more keys: a short text may combine the lists of several columns to many."""


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """What a ``where`` means for the rows and keys of a table with a certain schema."""

    tree: Expr | None
    """What was compiled."""
    bound: BoundFilter
    inverse: BoundFilter | None
    """The filter that is true where ``bound`` is false; None if it would read other columns.

    A comparison that can only be false or NULL, like ``tiny > 127``, is dropped from an OR, but its negation is IS NOT
    NULL. So the inverse may depend on a column that the filter does not read.
    """
    keys: KeyRange
    """No row with a key outside matches."""
    is_key_range: bool
    """Whether all rows with a key inside match."""
    points: KeyVector | None
    """If given, only rows with these keys can match."""
    few: KeyVector | None
    """If given, the rows with these keys, ascending, match, and no others."""

    @classmethod
    def of(
        cls, where: str | dict[str, Any] | None, schema: TableSchema, encoder: KeyEncoder, limits: Limits, now: int
    ) -> CompiledFilter:
        """Compile ``where``; ``now`` is the moment of NOW(), in microseconds since 1970.

        Raises:
            InvalidArgumentError: it is invalid, exceeds a limit, or names a column that does not exist.
        """
        tree = parse_where(where, limits)
        bound = bind(tree, schema, now)
        inverse = None if tree is None else bind(Not(tree), schema, now)
        if inverse and not set(inverse.column_ids) <= set(bound.column_ids):
            inverse = None
        return cls(
            tree,
            bound,
            inverse,
            key_range(bound, schema, encoder),
            is_key_range(bound, schema),
            key_points(bound, schema, encoder),
            few_keys(bound, schema, encoder),
        )


def described(tree: Expr | None, schema: TableSchema, now: int) -> tuple[list[str], list[str]]:
    """Return the parts of a filter that are joined by AND, as text: those that skip pages and keys, and those that are
    evaluated on rows."""
    from ..expression.written import sql_of  # needed by few stores

    pushed: list[str] = []
    evaluated: list[str] = []
    parts = [] if tree is None else conjuncts_of(tree)
    for part in parts[:_DESCRIBED_MAX]:
        (evaluated if bind(part, schema, now).has_test else pushed).append(sql_of(part))
    return pushed, evaluated


class FilterCache:
    """The filters compiled last, by schema and text. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: OrderedDict[tuple[int, str | None], tuple[TableSchema, CompiledFilter]] = OrderedDict()
        """By the identity of the schema, which each entry keeps alive, so that no other one gets it."""
        self._lock = threads.Lock()

    def compiled(
        self, where: str | dict[str, Any] | None, schema: TableSchema, encoder: KeyEncoder, now: int = 0
    ) -> CompiledFilter:
        """Return the filter as `CompiledFilter.of` does, which may raise."""
        if isinstance(where, dict) or (where is not None and len(where) > _TEXT_MAX):
            return CompiledFilter.of(where, schema, encoder, self._limits, now)
        key = id(schema), where
        with self._lock:
            if found := self._known.get(key):
                self._known.move_to_end(key)
                return found[1]
        compiled = CompiledFilter.of(where, schema, encoder, self._limits, now)
        if compiled.tree is not None and uses_now(compiled.tree):
            return compiled
        if compiled.points is not None and len(compiled.points) > _POINTS_MAX:
            return compiled
        with self._lock:
            self._known[key] = schema, compiled
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return compiled
