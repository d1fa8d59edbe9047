"""Queries of FROM and WITH that have OFFSET.

Around them DataFusion sorts before it skips rows, and then skips twice. A condition that it does not know to be true
for all rows keeps the two apart.
"""

from __future__ import annotations

import re
from itertools import count

from sqlglot import exp

from .edits import Edit, edited
from .names import quoted
from .parsed_text import read_text
from .written import place_of

_OFFSET = re.compile(r"\boffset\b", re.IGNORECASE)


def with_whole_pages(text: str) -> str:
    """Return an SQL query whose inner queries with OFFSET keep all their rows."""
    if not _OFFSET.search(text):
        return text
    edits: list[Edit] = []
    numbers = (number for number in count(1) if f"page#{number}" not in text)
    for node in read_text(text).of(exp.Offset):
        query = node.parent
        place = place_of(query) if isinstance(query, exp.Select | exp.SetOperation) and _is_inner(query) else None
        if place is not None:
            edits.append(Edit(place.start, place.start, "SELECT * FROM ("))
            edits.append(Edit(place.end, place.end, f") AS {quoted(f'page#{next(numbers)}')} WHERE random() < 2"))
    return edited(text, edits) if edits else text


def _is_inner(query: exp.Expr) -> bool:
    """Whether a query is one of FROM, of WITH or a part of a set operation."""
    above = query.parent
    if isinstance(above, exp.Subquery):
        above = above.parent
    return isinstance(above, exp.From | exp.Join | exp.CTE | exp.SetOperation)
