"""LIKE patterns: ``%`` matches any characters, ``_`` one, a backslash takes the next character literally.

A pattern that is equivalent to a comparison becomes one, so that it runs on bytes, prunes pages and bounds keys::

    'abc'     =  'abc'
    'abc%'    >= 'abc' AND < 'abd'         memcmp order is the order of UTF-8, so the range holds exactly that prefix
    '%'       IS NOT NULL
    '%abc%'   substring search
    '%abc'    suffix comparison
    others    a regular expression (RE2: linear in the text, whatever the pattern)

Arrow's own ``match_like`` is not used: between two ``%`` it takes an escaped backslash for two.
"""

from collections.abc import Iterator

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ..vectors.physical import PhysicalType
from .bound import FALSE, Compare, LikeMatch, Matcher, Node, NullTest, all_of, any_of
from .literal import shown

ESCAPE = "\\"
MAX_PIECES = 1_000
"""Wildcards and runs of characters between them: RE2's time is proportional to the text multiplied by these."""
_ANY, _ONE = "%", "_"
_RE2_SPECIAL = frozenset("\\.+*?()|[]{}^$")

Piece = tuple[bool, str]
"""(whether it is a wildcard, the wildcard or the literal characters)"""


def bind_like(column_id: int, pattern: str, negated: bool) -> Node:
    """Return the leaf or comparisons that select the strings LIKE ``pattern``, or, ``negated``, the others.

    Raises:
        InvalidArgumentError: a pattern ends in its escape, or is too large.
    """
    pieces = _pieces(pattern)
    prefix = pieces[0][1].encode() if pieces and not pieces[0][0] else b""
    rest = pieces[1:] if prefix else pieces
    if len(pieces) > MAX_PIECES:
        raise InvalidArgumentError(
            f"the LIKE pattern {shown(pattern)} has more than {MAX_PIECES:,} wildcards and words"
        )
    if not rest:
        return Compare(column_id, PhysicalType.BYTES, "<>" if negated else "=", prefix)
    if rest == [(True, _ANY)]:
        return _prefix_range(column_id, prefix, negated)
    matcher = _matcher(pieces)
    _check_compiles(matcher, pattern)
    return LikeMatch(column_id, matcher, prefix, negated)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least bytes above all that begin with ``prefix``; None if there are none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def _pieces(pattern: str) -> list[Piece]:
    """Split a pattern into wildcards and literal characters; ``%%`` is one wildcard."""
    pieces: list[Piece] = []
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character not in (_ANY, _ONE):
            literal.append(_literal(character, characters, pattern))
            continue
        if literal:
            pieces.append((False, "".join(literal)))
            literal.clear()
        if character == _ONE or pieces[-1:] != [(True, _ANY)]:
            pieces.append((True, character))
    return [*pieces, (False, "".join(literal))] if literal else pieces


def _literal(character: str, following: Iterator[str], pattern: str) -> str:
    if character != ESCAPE:
        return character
    escaped = next(following, None)
    if escaped is None:
        raise InvalidArgumentError(f"the LIKE pattern {shown(pattern)} ends in a backslash that escapes nothing")
    return escaped


def _prefix_range(column_id: int, prefix: bytes, negated: bool) -> Node:
    if not prefix:
        return FALSE if negated else NullTest(column_id, is_null=False)
    end = prefix_end(prefix)
    assert end is not None, "no UTF-8 text is all 0xff"
    if negated:
        below = Compare(column_id, PhysicalType.BYTES, "<", prefix)
        return any_of([below, Compare(column_id, PhysicalType.BYTES, ">=", end)])
    from_prefix = Compare(column_id, PhysicalType.BYTES, ">=", prefix)
    return all_of([from_prefix, Compare(column_id, PhysicalType.BYTES, "<", end)])


def _matcher(pieces: list[Piece]) -> Matcher:
    match pieces:
        case [(True, "%"), (False, literal), (True, "%")]:
            return Matcher("match_substring", literal)
        case [(True, "%"), (False, literal)]:
            return Matcher("ends_with", literal)
    return Matcher("match_substring_regex", rf"(?s)\A{''.join(map(_regex, pieces))}\z")


def _regex(piece: Piece) -> str:
    is_wildcard, text = piece
    if is_wildcard:
        return ".*" if text == _ANY else "."
    return "".join(f"\\{character}" if character in _RE2_SPECIAL else character for character in text)


def _check_compiles(matcher: Matcher, pattern: str) -> None:
    """Raise now for a pattern that RE2 rejects, not in the middle of a scan."""
    try:
        pc.call_function(matcher.function, [pa.array([""])], pc.MatchSubstringOptions(matcher.pattern))
    except pa.ArrowInvalid:
        raise InvalidArgumentError(f"the LIKE pattern {shown(pattern)} is too large") from None
