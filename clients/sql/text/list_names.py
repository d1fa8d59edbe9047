"""Queries of ANY and ALL: ``x = ANY (SELECT x FROM t)``.

DataFusion looks their column up by its name. If a table of the query around has the same name, it compares this column
with itself. So their columns get names of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

from sqlglot import exp

from .edits import Edit, edited
from .names import quoted
from .parsed_text import read_text
from .written import place_of

_LISTS = re.compile(r"\b(?:any|all|some)\b\s*\(", re.IGNORECASE)


def with_named_lists(text: str) -> str:
    """Return an SQL query whose lists of ANY and ALL have columns of other names than its tables."""
    if not _LISTS.search(text):
        return text
    parts = read_text(text)
    columns = [column for node in parts.of(exp.Any, exp.All) for column in _columns(node.this)]
    numbers = (number for number in count(1) if f"list#{number}" not in text)
    edits = [
        Edit(place.end, place.end, f" AS {quoted(f'list#{next(numbers)}')}")
        for place in map(place_of, columns)
        if place
    ]
    return edited(text, edits) if edits else text


def _columns(query: Any) -> Iterator[exp.Column]:
    """Yield the bare columns of a list; of a set operation those of its parts."""
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    if isinstance(query, exp.SetOperation):
        yield from _columns(query.this)
        yield from _columns(query.expression)
    elif isinstance(query, exp.Select):
        yield from (each for each in query.expressions if isinstance(each, exp.Column) and not each.is_star)
