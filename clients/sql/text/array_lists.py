"""``= ANY (ARRAY[...])`` and ``<> ALL (ARRAY[...])``, written as IN and NOT IN, which keep to NULL and to types."""

from __future__ import annotations

from itertools import pairwise

from sqlglot.tokenizer_core import TokenType

from .edits import Edit, edited
from .parsed_text import ParsedText

_LISTS = {
    (TokenType.EQ, TokenType.ANY): "IN (",
    (TokenType.EQ, TokenType.SOME): "IN (",
    (TokenType.NEQ, TokenType.ALL): "NOT IN (",
}
_ARRAY = [TokenType.L_PAREN, TokenType.ARRAY, TokenType.L_BRACKET]
_OPENING, _CLOSING = (TokenType.L_PAREN, TokenType.L_BRACKET), (TokenType.R_PAREN, TokenType.R_BRACKET)


def with_lists_of_arrays(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, with IN for comparisons with arrays that it writes."""
    tokens = parts.tokens
    kinds = [token.token_type for token in tokens]
    edits: list[Edit] = []
    for place, pair in enumerate(pairwise(kinds)):
        first = place + 2 + len(_ARRAY)
        if pair not in _LISTS or kinds[place + 2 : first] != _ARRAY or kinds[first] is TokenType.R_BRACKET:
            continue
        depth = 1
        end = first
        while depth and end < len(kinds):
            depth += (kinds[end] in _OPENING) - (kinds[end] in _CLOSING)
            end += 1
        if kinds[end : end + 1] == [TokenType.R_PAREN]:  # else the array is a part of an expression
            edits.append(Edit(tokens[place].start, tokens[first - 1].end + 1, _LISTS[pair]))
            edits.append(Edit(tokens[end - 1].start, tokens[end].end + 1, ")"))
    return edited(text, edits) if edits else text
