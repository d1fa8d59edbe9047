"""Lists of IN that DataFusion makes one of, and so forgets NULL.

``x NOT IN (1, 2) OR x NOT IN (3, 4)`` is true for it, also where x is NULL. ``NOT (x IN (1, NULL) AND x IN (1, 2))`` is
``x <> 1``. So a list gets no NULL: ``x IN (1) OR NULL`` means the same. And of two lists for one column the second
is for ``nullif(x, NULL)``, which is x, and which the optimizer takes for something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from .edits import Edit, edited
from .parsed_text import ParsedText

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_BEFORE = {
    TokenType.SELECT,
    TokenType.DISTINCT,
    TokenType.WHERE,
    TokenType.HAVING,
    TokenType.ON,
    TokenType.AND,
    TokenType.OR,
    TokenType.NOT,
    TokenType.CASE,
    TokenType.WHEN,
    TokenType.THEN,
    TokenType.ELSE,
    TokenType.COMMA,
    TokenType.L_PAREN,
}
"""What may stand before a column that is the whole operand."""


def without_null_lists(text: str, parts: ParsedText) -> str:
    """Return the text of a statement, whose ``parts`` these are, with lists for columns that keep to NULL."""
    tokens = parts.tokens
    edits: list[Edit] = []
    queries = [0]
    """At each depth of parentheses, where the SELECT begins that it belongs to."""
    columns: set[tuple[int, str]] = set()
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.SELECT:
            queries[-1] = place
        elif token.token_type in _OPENING:
            queries.append(queries[-1])
        elif token.token_type in _CLOSING and len(queries) > 1:
            queries.pop()
        elif token.token_type is TokenType.IN and (elements := elements_of(tokens, place + 1)):
            list_edits, column = _edits(tokens, place, elements, columns, queries[-1])
            edits += list_edits
            columns.add((queries[-1], column))
    return edited(text, edits) if edits else text


def _edits(
    tokens: Sequence[Token], place: int, elements: list[list[Token]], columns: set[tuple[int, str]], query: int
) -> tuple[list[Edit], str]:
    """Return the edits for the IN at a place, and the column that it is for; empty if it is for something else."""
    is_not = tokens[place - 1].token_type is TokenType.NOT
    first = place - 2 if is_not else place - 1  # the last token of the column
    if first < 0 or not _is_name(tokens[first]):
        return [], ""
    column, behind = tokens[first].text.lower(), tokens[first].end + 1
    while first >= 2 and tokens[first - 1].token_type is TokenType.DOT:
        first -= 2
    if not _is_name(tokens[first]) or (first > 0 and tokens[first - 1].token_type not in _BEFORE):
        return [], ""
    start = tokens[first].start
    is_null = [[token.token_type for token in element] == [TokenType.NULL] for element in elements]
    end = elements[-1][-1].end + 1
    last = next(token for token in tokens if token.start >= end)  # the closing parenthesis
    if all(is_null):
        at = tokens[place - 1].start if is_not else tokens[place].start
        return [Edit(start, start, "("), Edit(at, last.end + 1, "<> NULL)" if is_not else "= NULL)")], column
    edits: list[Edit] = []
    if any(is_null):
        edits.append(Edit(start, start, "("))
        edits.append(Edit(last.end + 1, last.end + 1, " AND NULL)" if is_not else " OR NULL)"))
    for number, element in enumerate(elements):
        if is_null[number]:  # with the comma before it, or after it if it is the first
            before = number > 0 and not all(is_null[:number])
            since = elements[number - 1][-1].end + 1 if before else element[0].start
            until = element[-1].end + 1 if before else elements[number + 1][0].start
            edits.append(Edit(since, until, ""))
    if (query, column) in columns:
        edits += [Edit(start, start, "nullif("), Edit(behind, behind, ", NULL)")]
    return edits, column


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


def _is_name(token: Token) -> bool:
    return token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
