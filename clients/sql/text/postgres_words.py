"""Functions of PostgreSQL that DataFusion has by other words: ``mod(a, b)`` and ``variance(a)``."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from .edits import Edit, edited
from .null_lists import elements_of
from .parsed_text import ParsedText

_NAMES = {"variance": "var_samp"}


def with_known_functions(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, with functions that DataFusion has."""
    edits: list[Edit] = []
    for place, token in enumerate(parts.tokens):
        word = token.text.lower()
        if token.token_type is not TokenType.VAR or word not in ("mod", *_NAMES):
            continue
        arguments = elements_of(parts.tokens, place + 1)
        if arguments and word in _NAMES:
            edits.append(Edit(token.start, token.end + 1, _NAMES[word]))
        elif len(arguments) == 2:
            left, right = arguments
            edits.append(Edit(token.start, left[0].start, "(("))
            edits.append(Edit(left[-1].end + 1, right[0].start, ") % ("))
            edits.append(Edit(right[-1].end + 1, right[-1].end + 1, ")"))
    return edited(text, edits) if edits else text
