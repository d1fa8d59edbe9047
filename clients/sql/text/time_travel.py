"""Tables of another time in a query: ``t FOR SYSTEM_TIME AS OF ...``, ``at('t', ...)`` and ``changes('t', ...)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ....schemas.cells.timestamp import read_moment
from ....schemas.errors import InvalidArgumentError
from .edits import Edit, edited
from .names import lower, quoted
from .parsed_text import ParsedText
from .written import place_of

_MOMENT = "a moment in a query must be text, as in '2026-01-31 12:00:00', a timestamp of the store, or a parameter"


@dataclass(frozen=True, slots=True)
class Moments:
    """The times of which an SQL query reads a table: as of ``first``; with ``changes``, its changes after ``first`` up
    to ``last``."""

    table: str
    first: exp.Expr
    last: exp.Expr | None = None
    changes: bool = False

    def since(self, values: Mapping[str, pa.Scalar]) -> int:
        """Return the timestamp of ``first``; ``values`` are the statement's parameters."""
        return _moment(self.first, values)

    def until(self, values: Mapping[str, pa.Scalar]) -> int | None:
        """Return the timestamp of ``last``; None for now."""
        return None if self.last is None else _moment(self.last, values)


def moves_in_time(tables: Iterable[exp.Table]) -> bool:
    """Whether an SQL query reads one of its tables as of another time."""
    return any(_is_moved(node) for node in tables)


def in_time(text: str, parts: ParsedText) -> tuple[str, dict[str, Moments]]:
    """Return the text of an SQL query, whose ``parts`` these are, in which each table of another time has a name of its
    own, and what the names stand for.

    Raises:
        InvalidArgumentError: a table, or a moment, is not written as such.
    """
    moved: dict[str, Moments] = {}
    edits: list[Edit] = []
    taken = {node.alias_or_name for node in parts.of(exp.CTE)} | {node.name for node in parts.of(exp.Table)}
    for node in parts.of(exp.Table):
        if not _is_moved(node):
            continue
        moments = _of_function(node.this) if isinstance(node.this, exp.Func) else _of_version(node)
        own_names = (f"{moments.table}@{number}" for number in count(len(moved) + 1))
        name = next(own for own in own_names if own not in taken and own not in moved)
        moved[name] = moments
        first, last = place_of(node), place_of(node.args.get("version") or node)
        assert first is not None and last is not None, "the parser notes the places of tables"
        alias = "" if node.alias else f" AS {quoted(moments.table)}"
        edits.append(Edit(first.start, last.end, quoted(name) + alias))
    return edited(text, edits), moved


def _is_moved(node: exp.Table) -> bool:
    if node.args.get("version") is not None:
        return True
    return isinstance(node.this, exp.Anonymous) and node.this.name.lower() in ("at", "changes")


def _of_function(call: exp.Expr) -> Moments:
    name, arguments = call.name.lower(), call.expressions
    counts = (2, 2) if name == "at" else (2, 3)
    if not counts[0] <= len(arguments) <= counts[1] or not _is_text(arguments[0]):
        form = "at('table', moment)" if name == "at" else "changes('table', since) or changes('table', since, until)"
        raise InvalidArgumentError(f"write {form}")
    table, first = arguments[0].name, _checked(arguments[1])
    return Moments(table, first, _checked(arguments[2]) if len(arguments) == 3 else None, name == "changes")


def _of_version(node: exp.Table) -> Moments:
    version = node.args["version"]
    if str(version.args.get("kind")).upper() != "AS OF" or not isinstance(node.this, exp.Identifier):
        raise InvalidArgumentError("write FOR SYSTEM_TIME AS OF moment; changes('table', since, until) reads a range")
    table = node.name if node.this.args.get("quoted") else lower(node.name)
    return Moments(table, _checked(version.expression))


def _is_text(node: Any) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _checked(node: exp.Expr) -> exp.Expr:
    inner = node.this if isinstance(node, exp.Cast) else node
    if isinstance(inner, exp.Literal | exp.Parameter):
        return inner
    raise InvalidArgumentError(_MOMENT)


def _moment(node: exp.Expr, values: Mapping[str, pa.Scalar]) -> int:
    if isinstance(node, exp.Literal):
        return read_moment(node.name if node.is_string else int(node.name))
    if node.name not in values:
        raise InvalidArgumentError(_MOMENT)
    try:
        moment = values[node.name].as_py()
    except (OverflowError, ValueError):
        raise InvalidArgumentError("a moment must lie in the years 1970 to 9999") from None
    return read_moment(moment)
