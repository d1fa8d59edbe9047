"""Lists of IN with NULL in them, which DataFusion gets wrong: ``NOT (x IN (1, NULL) AND x IN (1, 2))`` is ``x <> 1``.

Its optimizer makes one list of two, and forgets NULL. As ``x IN (1) OR NULL``, which means the same, it keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from .edits import Edit, edited

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def without_null_lists(text: str, tokens: Sequence[Token]) -> str:
    """Return the text of a statement, whose ``tokens`` these are, with no NULL in the lists that a column is compared
    with."""
    edits: list[Edit] = []
    if any(token.token_type is TokenType.NULL for token in tokens):
        for place, token in enumerate(tokens):
            if token.token_type is TokenType.IN:
                edits += _edits(tokens, place)
    return edited(text, edits) if edits else text


def _edits(tokens: Sequence[Token], place: int) -> list[Edit]:
    """Return the edits for the IN at a place: none if its list has no NULL, or is a query."""
    elements = _elements(tokens, place + 1)
    is_null = [[token.token_type for token in element] == [TokenType.NULL] for element in elements]
    if not any(is_null):
        return []
    is_not = tokens[place - 1].token_type is TokenType.NOT
    first = place - 2 if is_not else place - 1  # the last token of the column
    while first >= 2 and tokens[first - 1].token_type is TokenType.DOT:
        first -= 2
    if first < 0 or not _is_name(tokens[first]):
        return []
    end = elements[-1][-1].end + 1
    last = next(token for token in tokens if token.start >= end)  # the closing parenthesis
    kept = [element for element, without in zip(elements, is_null, strict=True) if not without]
    if not kept:
        start = tokens[place - 1].start if is_not else tokens[place].start
        return [Edit(start, last.end + 1, "<> NULL" if is_not else "= NULL")]
    edits = [Edit(tokens[first].start, tokens[first].start, "(")]
    for number, element in enumerate(elements):
        if is_null[number]:  # with the comma before it, or after it if it is the first
            before = number > 0 and not all(is_null[:number])
            start = elements[number - 1][-1].end + 1 if before else element[0].start
            stop = element[-1].end + 1 if before else elements[number + 1][0].start
            edits.append(Edit(start, stop, ""))
    return [*edits, Edit(last.end + 1, last.end + 1, " AND NULL)" if is_not else " OR NULL)")]


def _elements(tokens: Sequence[Token], place: int) -> list[list[Token]]:
    """Return the elements of the list that begins at a place; nothing if there is none."""
    if place >= len(tokens) or tokens[place].token_type is not TokenType.L_PAREN:
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
