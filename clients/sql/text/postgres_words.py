"""Words of PostgreSQL for which DataFusion has others: ``mod(a, b)``, ``variance(a)``, ``FETCH FIRST 2 ROWS ONLY`` and
``AS MATERIALIZED``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from .edits import Edit, edited
from .null_lists import elements_of
from .parsed_text import ParsedText

_NAMES = {
    "variance": "var_samp",
    "sign": "signum",
    "every": "bool_and",
    "array_cat": "array_concat",
    "array_join": "array_to_string",
    "array_remove": "array_remove_all",
}


_TYPES = {"character varying": "varchar", "character": "char"}


def with_known_words(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, in words that DataFusion has."""
    words = [token.text.lower() for token in parts.tokens]
    edits = [*_functions(parts.tokens, words)]
    for place, word in enumerate(words):
        if word == "materialized":
            edits += _materialized(parts.tokens, words, place)
        elif word in _TYPES and parts.tokens[place].token_type in (TokenType.VARCHAR, TokenType.CHAR):
            edits.append(Edit(parts.tokens[place].start, parts.tokens[place].end + 1, _TYPES[word]))
        elif word == "fetch" and words[place + 1 : place + 2] in (["first"], ["next"]):
            edits += _fetched(parts.tokens, words, place)
    return edited(text, edits) if edits else text


def _functions(tokens: Sequence[Token], words: Sequence[str]) -> Iterator[Edit]:
    """Yield the edits of functions."""
    for place, word in enumerate(words):
        token = tokens[place]
        if token.token_type is not TokenType.VAR or word not in ("mod", *_NAMES):
            continue
        arguments = elements_of(tokens, place + 1)
        if arguments and word in _NAMES:
            yield Edit(token.start, token.end + 1, _NAMES[word])
        elif len(arguments) == 2:
            left, right = arguments
            yield Edit(token.start, left[0].start, "((")
            yield Edit(left[-1].end + 1, right[0].start, ") % (")
            yield Edit(right[-1].end + 1, right[-1].end + 1, ")")


def _materialized(tokens: Sequence[Token], words: Sequence[str], place: int) -> Iterator[Edit]:
    """Yield the edit of AS [NOT] MATERIALIZED, which says how a query is to run."""
    first = place - (words[place - 1] == "not")
    if first > 0 and words[first - 1] == "as" and words[place + 1 : place + 2] == ["("]:
        yield Edit(tokens[first].start, tokens[place].end + 1, "")


def _fetched(tokens: Sequence[Token], words: Sequence[str], place: int) -> Iterator[Edit]:
    """Yield the edits of FETCH FIRST 2 ROWS ONLY."""
    rows = next((at for at in range(place + 2, len(words)) if words[at] in ("row", "rows")), None)
    if rows is not None and words[rows + 1 : rows + 2] == ["only"]:
        yield Edit(tokens[place].start, tokens[place + 1].end + 1, "LIMIT 1" if rows == place + 2 else "LIMIT")
        yield Edit(tokens[rows].start, tokens[rows + 1].end + 1, "")
