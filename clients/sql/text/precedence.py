"""Operators that DataFusion binds, or means, otherwise than PostgreSQL.

It reads ``a IS DISTINCT FROM b AND c`` as ``a IS DISTINCT FROM (b AND c)``, ``a || b + c`` as ``(a || b) + c``,
``a LIKE b = c`` as ``a LIKE (b = c)``, and ``a | b & c`` as ``a | (b & c)``. So such expressions get parentheses.
``a ^ b`` is a power, and not the exclusive or that DataFusion takes it for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from .edits import Edit, edited
from .parsed_text import ParsedText
from .written import TextPlace, WrittenParser, WrittenSql, place_of

_DISTINCT = (exp.NullSafeEQ, exp.NullSafeNEQ)
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, *_DISTINCT)
_RANGES = (
    exp.In,
    exp.Between,
    exp.Like,
    exp.ILike,
    exp.SimilarTo,
    exp.Escape,
    exp.RegexpLike,
    exp.RegexpILike,
    exp.ArrayContainsAll,
    exp.Not,  # of one of these: NOT before a comparison is outside of it
)
_OTHERS = (
    exp.DPipe,
    exp.BitwiseAnd,
    exp.BitwiseOr,
    exp.BitwiseLeftShift,
    exp.BitwiseRightShift,
)
"""PostgreSQL has one precedence for them."""
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


def with_parentheses(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, in which DataFusion binds operators as PostgreSQL does."""
    if not any(_unclear(parts.of(*_COMPARED, *_OTHERS))):
        return text
    unclear = _unclear(sqlglot.parse_one(text, dialect=OperandSql).find_all(*_COMPARED, *_OTHERS))
    places = [place for node in unclear if (place := place_in_chain(node)) is not None]
    ends = [Edit(place.end, place.end, ")") for place in places]
    return edited(text, ends + [Edit(place.start, place.start, "(") for place in places])


def with_powers(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, with ``power(a, b)`` for each ``a ^ b``."""
    if not any(token.token_type is TokenType.CARET for token in parts.tokens):
        return text
    edits: list[Edit] = []
    powers = [*sqlglot.parse_one(text, dialect=OperandSql).find_all(exp.Pow)]
    for node in reversed(powers):  # an inner one ends before what follows it
        left, right = place_in_chain(node.this), place_in_chain(node.expression)
        if left is not None and right is not None and text[left.end : right.start].strip() == "^":
            edits += [Edit(right.end, right.end, ")"), Edit(left.end, right.start, ", ")]
            edits.append(Edit(left.start, left.start, "power("))
    return edited(text, edits)


def _unclear(nodes: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the expressions whose ends DataFusion may take for others."""
    for node in nodes:
        if isinstance(node, _DISTINCT) and not isinstance(node.parent, exp.Paren):
            yield node
        left, right = node.this, node.args.get("expression")
        for operand in (left, right):
            if isinstance(node, _COMPARED):
                is_other = isinstance(operand, _RANGES)
            elif isinstance(operand, _OTHERS):
                is_other = operand is right or type(operand) is not type(node)
            else:
                is_other = isinstance(node, exp.DPipe) and isinstance(operand, _ARITHMETIC)
            if is_other and operand is not None:
                yield operand


def place_in_chain(node: Any) -> TextPlace | None:
    """Return where an expression stands; that of a chain's left side begins with its first operand."""
    if (place := place_of(node)) is not None:
        return place
    if isinstance(node, exp.Paren):  # one that the parser adds
        return place_in_chain(node.this)
    if not isinstance(node, exp.Binary):
        return None
    first, last = place_in_chain(node.this), place_in_chain(node.expression)
    return None if first is None or last is None else TextPlace(first.text, first.start, last.end)


class _OperandParser(WrittenParser):
    """Notes where the operands of all operators stand."""

    def _parse_range(self, *given: Any, **named: Any) -> Any:
        first = self._curr
        node = super()._parse_range(*given, **named)
        return node if given or named else self._from(first, node)

    def _parse_term(self) -> Any:
        return self._placed(super()._parse_term)

    def _parse_unary(self) -> Any:
        return self._placed(super()._parse_unary)


class OperandSql(WrittenSql):
    """The dialect of SQL statements whose operands know where they stand."""

    Parser = _OperandParser
