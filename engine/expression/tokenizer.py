"""Cuts SQL text into words: one regular expression a word, and checks in between whether the request goes on.

Double quotes enclose names and single ones strings, with the quote itself doubled inside; comments are ``-- to the end
of the line`` and ``/* ... */``, which may be nested. There are no keywords here: a column may be called ``order``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.request import check

NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(
    rf"""\s+ | --[^\r\n]* | (?P<comment>/\*)
    | (?P<HEXADECIMAL>0[xX]\w+)
    | (?P<NUMBER>{NUMBER})
    | [xX]'(?P<BINARY>[^']*)'
    | '(?P<STRING>[^']*(?:''[^']*)*)'
    | "(?P<QUOTED>[^"]*(?:""[^"]*)*)"
    | (?P<WORD>[^\W\d][\w$]*)
    | (?P<SYMBOL>->>|->|<>|!=|<=|>=|==|\|\||::|[^'"])""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_END = re.compile(r"/\*|\*/")
_AT_ONCE = 256
"""Words between two checks."""


class Token(NamedTuple):
    """A word of SQL text: what it is, its text without quotes, and the place of its first character."""

    kind: str
    text: str
    start: int


def tokens_of(text: str, what: str) -> Iterator[Token]:
    """Yield the words of SQL ``text``; ``what`` names it in errors.

    Raises:
        InvalidArgumentError: a quote or a comment does not end.
    """
    at = count = 0
    while at < len(text):
        if (count := count + 1) % _AT_ONCE == 0:
            check()
        match = _TOKEN.match(text, at)
        if match is None:
            raise _not_closed(what)
        kind = match.lastgroup
        if kind == "comment":
            at = _after_comment(text, match.end(), what)
            continue
        if kind is not None:
            yield _token(kind, match[kind], at)
        at = match.end()


def _token(kind: str, text: str, start: int) -> Token:
    if kind == "STRING":
        return Token(kind, text.replace("''", "'"), start)
    return Token(kind, text.replace('""', '"') if kind == "QUOTED" else text, start)


def _after_comment(text: str, at: int, what: str) -> int:
    """Return the end of a comment, of which the beginning is read."""
    depth = 1
    while depth:
        match = _COMMENT_END.search(text, at)
        if match is None:
            raise _not_closed(what)
        check()
        depth += 1 if match[0] == "/*" else -1
        at = match.end()
    return at


def _not_closed(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the {what} cannot be parsed: a quote or a comment is not closed")
