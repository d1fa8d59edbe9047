"""LIKE patterns: ``%`` matches any characters, ``_`` one, a backslash takes the next character literally.

A pattern becomes a substring search, a comparison of suffixes, or a regular expression. RE2 takes a time proportional
to the text, for some patterns multiplied by their length. So long texts are searched in steps, between which a request
may end. Arrow's own ``match_like`` is not used: between two ``%`` it takes an escaped backslash for two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.request import check
from .literal import shown

ESCAPE = "\\"
PIECES_MAX = 1_000
"""Wildcards and runs of characters between them."""
ANY, ONE = "%", "_"
_RE2_SPECIAL = frozenset("\\.+*?()|[]{}^$")
_STEP = 1 << 22
"""The most bytes of text multiplied by pieces to search at once: 40 ms for the slowest patterns."""

Piece: TypeAlias = tuple[bool, str]
"""(whether it is a wildcard, the wildcard or the literal characters)"""


@dataclass(frozen=True, slots=True)
class Matcher:
    """A LIKE pattern as an Arrow function: ``match_substring``, ``ends_with`` or ``match_substring_regex``."""

    function: str
    pattern: str
    ignores_case: bool = False
    weight: int = 1
    """Steps for each byte of text, at most."""

    @classmethod
    def of(cls, pattern: str, ignores_case: bool = False) -> Matcher:
        """Return the matcher of a pattern.

        Raises:
            InvalidArgumentError: the pattern ends in its escape, or is too large.
        """
        pieces = pieces_of(pattern)
        matcher = cls(*_function(pieces), ignores_case, max(len(pieces), 1))
        try:
            matcher._search(pa.array([""]))
        except pa.ArrowInvalid:
            raise InvalidArgumentError(
                f"the LIKE pattern {shown(pattern)} is too long: shorten it, or use several patterns"
            ) from None
        return matcher

    def find(self, texts: pa.Array) -> pa.BooleanArray:
        """Return which texts match; NULL for NULL."""
        size = texts.nbytes * self.weight
        if size <= _STEP:
            return self._search(texts)
        rows = max(len(texts) * _STEP // size, 1)
        parts: list[pa.Array] = []
        for first in range(0, len(texts), rows):
            check()
            parts.append(self._search(texts.slice(first, rows)))
        return pa.concat_arrays(parts)  # pyright: ignore[reportReturnType]

    def _search(self, texts: pa.Array) -> pa.BooleanArray:
        options = pc.MatchSubstringOptions(self.pattern, ignore_case=self.ignores_case)
        return pc.call_function(self.function, [texts], options)


def pieces_of(pattern: str) -> list[Piece]:
    """Split a LIKE pattern into wildcards and literal characters; ``%%`` is one wildcard.

    Raises:
        InvalidArgumentError: the pattern ends in its escape, or has too many pieces.
    """
    pieces: list[Piece] = []
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character not in (ANY, ONE):
            literal.append(_literal(character, characters, pattern))
            continue
        if literal:
            pieces.append((False, "".join(literal)))
            literal.clear()
        if character == ONE or pieces[-1:] != [(True, ANY)]:
            pieces.append((True, character))
    if literal:
        pieces.append((False, "".join(literal)))
    if len(pieces) > PIECES_MAX:
        raise InvalidArgumentError(
            f"the LIKE pattern {shown(pattern)} has more than {PIECES_MAX:,} wildcards and words"
        )
    return pieces


def with_backslash(pattern: str, escape: str) -> str | None:
    """Return a LIKE pattern whose escape is ``escape`` as one whose escape is the backslash; None if it ends in its
    escape."""
    written: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                return None
            written.append(f"\\{literal}")
        else:
            written.append("\\\\" if character == "\\" else character)
    return "".join(written)


def _literal(character: str, following: Iterator[str], pattern: str) -> str:
    if character != ESCAPE:
        return character
    escaped = next(following, None)
    if escaped is None:
        raise InvalidArgumentError(
            f"the LIKE pattern {shown(pattern)} ends in a backslash, which has nothing to escape: write two backslashes"
        )
    return escaped


def _function(pieces: list[Piece]) -> tuple[str, str]:
    match pieces:
        case [(True, "%"), (False, literal), (True, "%")]:
            return "match_substring", literal
        case [(True, "%"), (False, literal)]:
            return "ends_with", literal
    return "match_substring_regex", rf"(?s)\A{''.join(map(_regex, pieces))}\z"


def _regex(piece: Piece) -> str:
    is_wildcard, text = piece
    if is_wildcard:
        return ".*" if text == ANY else "."
    return "".join(f"\\{character}" if character in _RE2_SPECIAL else character for character in text)
