"""LIKE on a column (see ``expression.pattern``) as nodes of a filter.

A pattern that is equivalent to a comparison becomes one, so that it runs on bytes, prunes pages and bounds keys::

    'abc'     =  'abc'
    'abc%'    >= 'abc' AND < 'abd'         memcmp order is the order of UTF-8, so the range holds exactly that prefix
    '%'       IS NOT NULL
    others    a search

ILIKE is always a search.
"""

from ..expression.pattern import ANY, Matcher, pieces_of
from ..vectors.physical import PhysicalType
from .bound import FALSE, Compare, LikeMatch, Node, NullTest, all_of, any_of


def bind_like(column_id: int, pattern: str, negated: bool, ignores_case: bool = False) -> Node:
    """Return the leaf or comparisons of a bound filter that select the strings LIKE ``pattern``, or, ``negated``, the
    others.

    Raises:
        InvalidArgumentError: a pattern ends in its escape, or is too large.
    """
    if ignores_case:
        return LikeMatch(column_id, Matcher.of(pattern, ignores_case), b"", negated)
    pieces = pieces_of(pattern)
    prefix = pieces[0][1].encode() if pieces and not pieces[0][0] else b""
    rest = pieces[1:] if prefix else pieces
    if not rest:
        return Compare(column_id, PhysicalType.BYTES, "<>" if negated else "=", prefix)
    if rest == [(True, ANY)]:
        return _prefix_range(column_id, prefix, negated)
    return LikeMatch(column_id, Matcher.of(pattern), prefix, negated)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the end of a range for a LIKE: the least bytes above all that begin with ``prefix``; None if there are
    none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


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
