"""sqlglot's tokenizer, set up for filters. Only text between long lists of literals comes here; see `words`."""

from typing import Any

from sqlglot import Tokenizer, TokenType
from sqlglot.errors import TokenError

from ...schemas.errors import InvalidArgumentError

KINDS = {
    TokenType.VAR: "WORD",
    TokenType.IDENTIFIER: "QUOTED",
    TokenType.NUMBER: "NUMBER",
    TokenType.STRING: "STRING",
    TokenType.HEX_STRING: "BINARY",
}
"""The names of `words.Kind` by type of token; all others are symbols."""


class _Tokenizer(Tokenizer):
    """No keywords: a column may be called ``date`` or ``order``; the parser knows the few keywords it needs."""

    HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012 - sqlglot's form
    KEYWORDS = {  # noqa: RUF012
        "<>": TokenType.NEQ,
        "!=": TokenType.NEQ,
        "<=": TokenType.LTE,
        ">=": TokenType.GTE,
        "==": TokenType.EQ,
        "||": TokenType.DPIPE,
        "::": TokenType.DCOLON,
    }


def tokens_of(text: str) -> list[Any]:
    """Return sqlglot's tokens of ``text``. Raises InvalidArgumentError for a quote or comment that does not end."""
    try:
        return _Tokenizer().tokenize(text)
    except TokenError:
        raise InvalidArgumentError(
            "the filter cannot be parsed: a quote or a comment is not closed, or X'...' is not hexadecimal"
        ) from None
