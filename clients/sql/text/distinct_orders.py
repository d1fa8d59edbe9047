"""ORDER BY an expression of the answer, which DataFusion knows by its number alone: of SELECT DISTINCT, and where a
column of the answer has the name of one in the expression, as in ``SELECT sum(a) AS a ... ORDER BY sum(a)``."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from .edits import Edit, edited
from .names import lower
from .parsed_text import ParsedText
from .written import place_of


def with_numbered_orders(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, in which such expressions are numbers of columns."""
    if not (parts.nodes.get(exp.Distinct) or (parts.nodes.get(exp.Order) and parts.nodes.get(exp.Alias))):
        return text
    edits = [edit for query in parts.of(exp.Select) for edit in _edits(query)]
    return edited(text, edits) if edits else text


def _edits(query: exp.Select) -> Iterator[Edit]:
    order, distinct = query.args.get("order"), query.args.get("distinct")
    answer = [each.unalias() for each in query.expressions]
    if order is None or (distinct is not None and distinct.args.get("on")) or any(each.is_star for each in answer):
        return
    names = {lower(each.alias) for each in query.expressions if isinstance(each, exp.Alias)}
    for each in order.expressions:
        node = each.this
        place = place_of(node)
        if place is None or isinstance(node, exp.Column | exp.Literal) or node not in answer:
            continue
        if distinct is not None or any(lower(column.name) in names for column in node.find_all(exp.Column)):
            yield Edit(place.start, place.end, str(answer.index(node) + 1))
