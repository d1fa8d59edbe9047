"""Lists of IN that DataFusion makes one of, and so forgets NULL.

``x NOT IN (1, 2) OR x NOT IN (3, 4)`` is true for it, also where x is NULL. ``NOT (x IN (1, NULL) AND x IN (1, 2))`` is
``x <> 1``. So a list gets no NULL: ``x IN (1) OR NULL`` means the same. And of several lists for the same columns the
second is for ``nullif(x, NULL)``, which is x, and which the optimizer takes for something else; the third has two of
these calls. Equal lists have as many, since GROUP BY, DISTINCT and ORDER BY name expressions of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from .dialect import NyalaSql
from .edits import Edit, edited
from .parsed_text import ParsedText
from .written import TextPlace, place_of

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_CALLS_MAX = 16
"""More lists for the same columns share numbers of calls: the optimizer looks at lists side by side."""


class _List(NamedTuple):
    """An IN with a list of expressions."""

    node: exp.In
    operand: TextPlace
    place: int
    """Of the word IN among the tokens."""
    elements: list[list[Token]]

    @property
    def words(self) -> tuple[str, ...]:
        """What it compares, and with what: equal ones may be one expression of the query."""
        operand = self.node.this.copy()
        while isinstance(operand, exp.Paren):
            operand = operand.this
        for column in operand.find_all(exp.Column):
            column.set("table", None)
        return (operand.sql(dialect=NyalaSql).lower(), *(word for cell in self.elements for word in _words(cell)))


def _words(element: Sequence[Token]) -> Iterator[str]:
    """Yield the words of an element; each ``?`` is a parameter of its own."""
    for token in element:
        yield f"?{token.start}" if token.token_type is TokenType.PLACEHOLDER else token.text
    yield ","


def without_null_lists(text: str, parts: ParsedText) -> str:
    """Return the text of a statement, whose ``parts`` these are, with lists that keep to NULL."""
    lists = sorted(_lists(parts), key=lambda each: each.place)
    cuts: list[Edit] = []
    wraps: list[tuple[TextPlace, str, str]] = []
    seen: dict[Any, dict[tuple[str, ...], int]] = {}
    """For a query and the columns of operands: the lists, and the number of calls that each has."""
    for each in lists:
        columns = frozenset(column.name.lower() for column in each.node.this.find_all(exp.Column))
        calls = 0
        if columns:
            numbers = seen.setdefault((id(each.node.find_ancestor(exp.Select)), columns), {})
            calls = numbers.setdefault(each.words, len(numbers) % _CALLS_MAX)
        list_cuts, whole = _edits(parts.tokens, each)
        cuts += list_cuts
        wraps += whole
        if calls:
            wraps.append((each.operand, "nullif(" * calls, ", NULL)" * calls))
    if not (cuts or wraps):
        return text
    wraps.sort(key=lambda wrap: wrap[0].end - wrap[0].start)  # inner ones first
    ends = [Edit(place.end, place.end, after) for place, _, after in wraps]
    starts = [Edit(place.start, place.start, before) for place, before, _ in reversed(wraps)]
    return edited(text, [*ends, *starts, *cuts])


def _lists(parts: ParsedText) -> Iterator[_List]:
    nodes = [node for node in parts.of(exp.In) if node.expressions]
    starts = {token.start: place for place, token in enumerate(parts.tokens)} if nodes else {}
    ends = {token.end + 1: place for place, token in enumerate(parts.tokens)} if nodes else {}
    for node in nodes:
        operand = place_of(node.this)
        if operand is None or operand.start not in starts or isinstance(node.this, exp.Tuple):
            continue
        place = ends[operand.end] + 1
        place += parts.tokens[place].token_type is TokenType.NOT
        if parts.tokens[place].token_type is TokenType.IN and (elements := elements_of(parts.tokens, place + 1)):
            yield _List(node, operand, place, elements)


def _edits(tokens: Sequence[Token], each: _List) -> tuple[list[Edit], list[tuple[TextPlace, str, str]]]:
    """Return the edits that take NULL out of a list, and what goes around the whole."""
    elements, operand = each.elements, each.operand
    is_null = [[token.token_type for token in element] == [TokenType.NULL] for element in elements]
    if not any(is_null):
        return [], []
    is_not = tokens[each.place - 1].token_type is TokenType.NOT
    end = elements[-1][-1].end + 1
    last = next(token for token in tokens[each.place :] if token.start >= end)  # the closing parenthesis
    whole = TextPlace(operand.text, operand.start, last.end + 1)
    if all(is_null):
        at = tokens[each.place - is_not].start
        return [Edit(at, last.end + 1, "<> NULL" if is_not else "= NULL")], [(whole, "(", ")")]
    edits: list[Edit] = []
    for number, element in enumerate(elements):
        if is_null[number]:  # with the comma before it, or after it if it is the first
            before = number > 0 and not all(is_null[:number])
            since = elements[number - 1][-1].end + 1 if before else element[0].start
            until = element[-1].end + 1 if before else elements[number + 1][0].start
            edits.append(Edit(since, until, ""))
    return edits, [(whole, "(", " AND NULL)" if is_not else " OR NULL)")]


def elements_of(tokens: Sequence[Token], place: int) -> list[list[Token]]:
    """Return the elements of the list in an SQL statement that begins at a place; nothing if there is none, or it is a
    query."""
    if [token.token_type for token in tokens[place : place + 1]] != [TokenType.L_PAREN]:
        return []
    if place + 1 < len(tokens) and tokens[place + 1].token_type in (TokenType.SELECT, TokenType.WITH):
        return []
    elements: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[place:]:
        if token.token_type in _OPENING:
            depth += 1
            if depth == 1:
                continue
        if token.token_type in _CLOSING:
            depth -= 1
            if depth == 0:
                return elements if all(elements) else []
        if token.token_type is TokenType.COMMA and depth == 1:
            elements.append([])
        else:
            elements[-1].append(token)
    return []
