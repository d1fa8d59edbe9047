"""Patterns of SIMILAR TO, as the regular expressions that DataFusion takes them for, and of LIKE with ESCAPE.

In SIMILAR TO ``%`` stands for any text and ``_`` for one character; ``|``, ``*``, ``+``, ``?``, ``{m,n}``, ``()`` and
``[]`` are as in regular expressions; all others stand for themselves. The whole text has to match.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ....schemas.errors import InvalidArgumentError
from .edits import Edit, edited
from .parsed_text import ParsedText
from .written import place_of

_WORDS = {"%": "(?s:.*)", "_": "(?s:.)", "(": "(?:"}
_KEPT = "|*+?{},)"


def with_regular_patterns(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, with regular expressions for patterns of SIMILAR TO.

    Raises:
        InvalidArgumentError: a pattern is no literal, or not one.
    """
    edits = [edit for node in parts.of(exp.SimilarTo) for edit in _edits(parts, node)]
    edits += [edit for node in parts.of(exp.Escape) for edit in _escapes(parts, node)]
    return edited(text, edits) if edits else text


def _escapes(parts: ParsedText, node: exp.Escape) -> Iterator[Edit]:
    """Yield the edit of a LIKE with ESCAPE: DataFusion has the backslash alone."""
    like = node.this
    pattern = like.expression if isinstance(like, exp.Like | exp.ILike) else None
    place = None if pattern is None else place_of(pattern)
    if place is None or not (isinstance(pattern, exp.Literal) and pattern.is_string):
        return
    at = next(at for at, token in enumerate(parts.tokens) if token.start >= place.end)
    escape, answer = _one(parts.tokens[at + 1].text), ""
    letters = iter(pattern.name)
    for letter in letters:
        answer += f"\\{next(letters, '')}" if letter == escape else "\\\\" if letter == "\\" else letter
    written = answer.replace("'", "''")
    yield Edit(place.start, parts.tokens[at + 1].end + 1, f"'{written}'")


def _one(escape: str) -> str:
    """Return what stands after ESCAPE. Raises InvalidArgumentError: it has several characters."""
    if len(escape) > 1:
        raise InvalidArgumentError(f"ESCAPE takes one character or none, not {escape!r}")
    return escape


def _edits(parts: ParsedText, node: exp.SimilarTo) -> Iterator[Edit]:
    pattern = node.expression
    while isinstance(pattern, exp.Paren):
        pattern = pattern.this
    place = place_of(node.expression)
    if isinstance(pattern, exp.Null):
        return
    if place is None or not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise InvalidArgumentError("SIMILAR TO takes a pattern in quotes: use LIKE or ~ for a computed pattern")
    tokens = parts.tokens
    after = next((at for at, token in enumerate(tokens) if token.start >= place.end), len(tokens))
    before = max(at for at in range(after) if tokens[at].token_type is TokenType.SIMILAR_TO)
    escape, end = "\\", place.end
    if isinstance(node.parent, exp.Escape):
        escape, end = _one(tokens[after + 1].text), tokens[after + 1].end + 1
    is_not = tokens[before - 1].token_type is TokenType.NOT
    regular = _regular(pattern.name, escape).replace("'", "''")
    yield Edit(tokens[before - is_not].start, end, f"{'!' if is_not else ''}~ '{regular}'")


def _regular(pattern: str, escape: str) -> str:
    """Return the regular expression of a pattern of SQL."""
    answer: list[str] = []
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        place += 1
        if escape and letter == escape:
            if place == len(pattern):
                raise InvalidArgumentError(f"the pattern {pattern!r} ends with its character of ESCAPE")
            answer.append(_plain(pattern[place]))
            place += 1
        elif letter == "[":
            letters, place = _set(pattern, place, escape)
            answer.append(letters)
        else:
            answer.append(_WORDS.get(letter) or (letter if letter in _KEPT else _plain(letter)))
    return f"^(?:{''.join(answer)})$"


def _plain(letter: str) -> str:
    """Return the regular expression of one character."""
    return letter if letter.isalnum() or letter in " _" or not letter.isascii() else f"\\x{ord(letter):02x}"


def _set(pattern: str, place: int, escape: str) -> tuple[str, int]:
    """Return the regular expression of a set of characters, which begins at a place of a pattern, and its end."""
    answer = ["["]
    if pattern.startswith("^", place):
        answer.append("^")
        place += 1
    first = place
    while place < len(pattern):
        letter = pattern[place]
        if letter == "]" and place > first:
            return "".join([*answer, "]"]), place + 1
        if letter == escape and place + 1 < len(pattern):
            answer.append(_plain(pattern[place + 1]))
            place += 2
        elif pattern.startswith("[:", place) and (end := pattern.find(":]", place)) > 0:
            answer.append(pattern[place : end + 2])
            place = end + 2
        elif letter == answer[-1] == "-":
            raise InvalidArgumentError(
                f"the pattern {pattern!r} has two dashes in brackets: write only one dash, as the last character"
            )
        else:
            answer.append("-" if letter == "-" else _plain(letter))
            place += 1
    raise InvalidArgumentError(f"the pattern {pattern!r} has a [ without its ]")
