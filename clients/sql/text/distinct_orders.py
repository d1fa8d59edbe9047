"""ORDER BY of SELECT DISTINCT by an expression of the answer, which DataFusion knows by its number alone."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from .edits import Edit, edited
from .parsed_text import ParsedText
from .written import place_of


def with_numbered_orders(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, in which such expressions are numbers of columns."""
    if not parts.nodes.get(exp.Distinct):
        return text
    edits = [edit for query in parts.of(exp.Select) for edit in _edits(query)]
    return edited(text, edits) if edits else text


def _edits(query: exp.Select) -> Iterator[Edit]:
    order, distinct = query.args.get("order"), query.args.get("distinct")
    answer = [each.unalias() for each in query.expressions]
    if order is None or distinct is None or distinct.args.get("on") or any(each.is_star for each in answer):
        return
    for each in order.expressions:
        node = each.this
        place = place_of(node)
        if place is not None and not isinstance(node, exp.Column | exp.Literal) and node in answer:
            yield Edit(place.start, place.end, str(answer.index(node) + 1))
