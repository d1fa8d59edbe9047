"""Operators of PostgreSQL that DataFusion has not: ``a # b``, ``~a``, ``a && b`` of lists, ``BETWEEN SYMMETRIC``,
``COLLATE "C"``, which is how all texts are compared, and ``GROUP BY ()``."""

from __future__ import annotations

from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ....schemas.errors import InvalidArgumentError
from .edits import Edit, edited
from .parsed_text import ParsedText, read_text
from .precedence import OperandSql, place_in_chain
from .row_values import with_numbers

_KNOWN = (exp.BitwiseXor, exp.BitwiseNot, exp.ArrayOverlaps, exp.Collate, exp.Between, exp.Group)
_CLOSER = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Pow, exp.Neg)
_BYTES = ("C", "POSIX")


def with_known_operators(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, with operators that DataFusion has.

    Raises:
        InvalidArgumentError: ``~`` stands beside arithmetic, which PostgreSQL binds closer.
    """
    nodes = [node for node in parts.of(*_KNOWN) if _is_known(node)]
    if any(isinstance(node, exp.BitwiseNot) and isinstance(node.parent, _CLOSER) for node in nodes):
        raise InvalidArgumentError("write ~a in parentheses beside + - * / %: PostgreSQL takes ~a + 1 for ~(a + 1)")
    if any(isinstance(node, exp.Between) for node in nodes):  # its operands are repeated
        text = with_numbers(text, parts.tokens)
    for _ in nodes:  # one changes the places of others
        tree = sqlglot.parse_one(text, dialect=OperandSql)
        answers = (_written(text, node) for node in tree.find_all(*_KNOWN) if _is_known(node))
        text = next((answer for answer in answers if answer is not None), text)
    return text


def _is_known(node: exp.Expr) -> bool:
    if isinstance(node, exp.Between):
        return bool(node.args.get("symmetric"))
    if isinstance(node, exp.Collate):
        return node.expression.name in _BYTES
    if isinstance(node, exp.Group):
        return [type(each) for each in node.expressions] == [exp.Tuple] and not node.expressions[0].expressions
    return True


def _written(text: str, node: exp.Expr) -> str | None:
    """Return the text with another form of an operator; None: nobody knows where it stands."""
    if isinstance(node, exp.Group):
        return edited(text, _grouped(read_text(text).tokens))
    names = ("this", "low", "high") if isinstance(node, exp.Between) else ("this", "expression")
    operands = [node.args[name] for name in names if name in node.args]
    places = [place_in_chain(each) for each in operands if not isinstance(each, exp.Identifier)]
    if None in places:
        return None
    there = [place for place in places if place is not None]
    start, end = there[0].start, there[-1].end
    first, *others = (text[place.start : place.end] for place in there)
    if isinstance(node, exp.BitwiseXor):
        answer = f"(({first}) ^ ({others[0]}))"
    elif isinstance(node, exp.BitwiseNot):
        start, answer = text.rindex("~", 0, start), f"(({first}) ^ (-1))"
    elif isinstance(node, exp.ArrayOverlaps):
        answer = f"array_has_any(array_compact({first}), array_compact({others[0]}))"
    elif isinstance(node, exp.Collate):
        end, answer = node.expression.meta["end"] + 1, first
    else:
        low, high = others
        is_not = "not" in text[there[0].end : there[1].start].lower().split()
        answer = f"({'NOT ' * is_not}({first} BETWEEN {low} AND {high} OR {first} BETWEEN {high} AND {low}))"
    return edited(text, [Edit(start, end, answer)])


def _grouped(tokens: list[Token]) -> Iterator[Edit]:
    """Yield the edits of GROUP BY ()."""
    for place, token in enumerate(tokens[:-2]):
        kinds = [each.token_type for each in tokens[place : place + 3]]
        if kinds == [TokenType.GROUP_BY, TokenType.L_PAREN, TokenType.R_PAREN]:
            yield Edit(token.end + 1, tokens[place + 2].end + 1, " GROUPING SETS (())")
