"""The operators ``->`` and ``->>`` of JSON, which DataFusion lacks: calls of functions that it is given.

``doc ->> '$.a'`` becomes ``json_get_text(doc,'$.a')``. Their left side is a name, a call, a parenthesis, a string or
another one of them, so they bind closest, as in the store's own expressions. ``doc::json ->> 'a'``, as PostgreSQL needs
it for text, loses its cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from datafusion import ScalarUDF, udf
from sqlglot.tokenizer_core import Token, TokenType

from ....schemas.cells.json_text import path_of, values_at
from ....schemas.errors import InvalidArgumentError
from .edits import Edit, edited
from .parsed_text import ParsedText

FUNCTIONS = {TokenType.ARROW: "json_get", TokenType.DARROW: "json_get_text"}
"""The functions of the operators."""
_JSON = (TokenType.JSON, TokenType.JSONB)
_PAIRS = {TokenType.R_PAREN: TokenType.L_PAREN, TokenType.R_BRACKET: TokenType.L_BRACKET}
_KEYWORDS = """
all and any as between by case distinct else from having ilike in is like limit not on or over select then union values
when where with
"""
_NO_CALLS = frozenset(_KEYWORDS.split())
"""Words before a parenthesis that is not one of a call."""


def with_json_functions(text: str, parts: ParsedText) -> str:
    """Return the text of a statement, whose ``parts`` these are, with calls in place of the operators.

    Raises:
        InvalidArgumentError: the path is no literal, or not one.
    """
    tokens = parts.tokens
    if not any(token.token_type in FUNCTIONS for token in tokens):
        return text
    firsts: dict[int, int] = {}
    """By the last token of an operator's right side: the first one of its left side."""
    calls: dict[int, str] = {}
    """What goes before a token: the calls that begin there, the outer one first."""
    edits: list[Edit] = []
    for place, token in enumerate(tokens):
        function = FUNCTIONS.get(token.token_type)
        if function is None:
            continue
        path, last = _path(tokens, place + 1)
        before = place - 1
        if before > 1 and tokens[before].token_type in _JSON and tokens[before - 1].token_type is TokenType.DCOLON:
            edits.append(Edit(tokens[before - 1].start, tokens[before].end + 1, ""))
            before -= 2
        first = _first_of(tokens, before, firsts)
        calls[first] = f"{function}({calls.get(first, '')}"
        edits.append(Edit(token.start, tokens[last].end + 1, f",{path})"))
        firsts[last] = first
    edits += [Edit(tokens[first].start, tokens[first].start, names) for first, names in calls.items()]
    return edited(text, edits)


def _path(tokens: Sequence[Token], place: int) -> tuple[str, int]:
    """Return the path that begins at a place, as a literal of text, and its last token."""
    sign = "-" if place < len(tokens) and tokens[place].token_type is TokenType.DASH else ""
    place += len(sign)
    token = tokens[place] if place < len(tokens) else None
    if token is not None and token.token_type is TokenType.NUMBER and token.text.isdecimal():
        path_of(int(token.text))
        return f"'$[{sign}{token.text}]'", place
    if token is None or token.token_type is not TokenType.STRING or sign:
        raise InvalidArgumentError(
            "after -> or ->>, write a JSON path in quotes, such as '$.a.b', or the number of an item"
        )
    path_of(token.text)
    quoted = token.text.replace("'", "''")
    return f"'{quoted}'", place


def _first_of(tokens: Sequence[Token], place: int, firsts: dict[int, int]) -> int:
    """Return the first token of the operand whose last one is at a place."""
    if place in firsts:
        return firsts[place]
    opening = _PAIRS.get(tokens[place].token_type) if place >= 0 else None
    if opening is not None:
        closing, depth = tokens[place].token_type, 0
        while place >= 0:
            depth += (tokens[place].token_type is closing) - (tokens[place].token_type is opening)
            if depth == 0:
                break
            place -= 1
        if opening is TokenType.L_BRACKET:
            return _first_of(tokens, place - 1, firsts)
        if place > 0 and _is_word(tokens[place - 1]):
            place -= 1
    while place > 1 and tokens[place - 1].token_type is TokenType.DOT:
        place -= 2
    if place < 0:
        raise InvalidArgumentError("before -> or ->>, write a column, a call or a parenthesis")
    return place


def _is_word(token: Token) -> bool:
    return token.text[:1].isalpha() and token.text.lower() not in _NO_CALLS


def json_functions() -> list[ScalarUDF]:
    """Return the functions for a session of DataFusion."""
    text = pa.string()
    return [
        udf(_applied(kind is TokenType.DARROW), [text, text], text, "immutable", name)
        for kind, name in FUNCTIONS.items()
    ]


def _applied(is_text: bool) -> Callable[[pa.Array, pa.Array], pa.Array]:
    def apply(texts: pa.Array, paths: pa.Array) -> pa.Array:
        given = paths.unique()
        if len(given) > 1:
            raise InvalidArgumentError("the path of json_get and json_get_text must be the same for all rows")
        if not len(given) or not given[0].is_valid:
            return pa.nulls(len(texts), pa.string())
        return values_at(texts, path_of(given[0].as_py()), is_text)

    return apply
