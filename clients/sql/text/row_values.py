"""Comparisons of rows of several values, as in ``(a, b) < (1, 2)`` and ``(a, b) IN (SELECT x, y FROM t)``.

DataFusion compares rows as structs: NULL equals NULL and is less than all others, where PostgreSQL gives NULL. It has
no lists of rows that are queries. So comparisons of rows become those of their values. Long lists stay where a row
without NULL decides: there both mean the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ....schemas.errors import InvalidArgumentError
from .edits import Edit, edited
from .null_lists import elements_of
from .parsed_text import ParsedText, read_text
from .written import place_of

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_COMPARED = (*_OPERATORS, exp.In, exp.Is, exp.Between)
_LONG = 16
"""A list of more rows is not written as comparisons, which take longer."""
_CONDITIONS = (exp.Where, exp.Having, exp.Join)


def with_row_values(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, that compares the values of rows.

    Raises:
        InvalidArgumentError: rows have different numbers of values, or a list that is a query is no condition.
    """
    if not any(_rows(parts)):
        return text
    if (numbered := with_numbers(text, parts.tokens)) != text:  # values are repeated
        text, parts = numbered, read_text(numbered)
    while edits := [edit for node in _rows(parts) for edit in _edits(text, parts, node)]:
        text = edited(text, edits)
        parts = read_text(text)
    return text


def _rows(parts: ParsedText) -> Iterator[exp.Expr]:
    """Yield the comparisons of rows that are not within others."""
    if not (parts.nodes.get(exp.Tuple) or parts.nodes.get(exp.Anonymous)):
        return
    for node in parts.of(*_COMPARED):
        if _values(node.this) and not any(_values(above.this) for above in _above(node)):
            yield node


def _above(node: exp.Expr) -> Iterator[exp.Expr]:
    while (above := node.parent) is not None:
        if isinstance(above, _COMPARED):
            yield above
        node = above


def _values(node: Any) -> Sequence[exp.Expr]:
    """Return the values of a row; none if it is no row."""
    is_row = isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and node.name.lower() == "row")
    return node.expressions if is_row else ()


def with_numbers(text: str, tokens: Sequence[Token]) -> str:
    """Return the text of a query with ``$1`` for ``?``; parameters of several forms stay, and are refused later."""
    if any(token.token_type is TokenType.PARAMETER for token in tokens):
        return text
    marks = [token for token in tokens if token.token_type is TokenType.PLACEHOLDER and token.text == "?"]
    return edited(text, [Edit(mark.start, mark.end + 1, f"${place + 1} ") for place, mark in enumerate(marks)])


def _edits(text: str, parts: ParsedText, node: exp.Expr) -> Iterator[Edit]:
    """Yield the edit of a comparison of rows; none if it stays."""
    row = place_of(node.this)
    values = _texts(text, parts, node.this)
    if row is None or not values:
        return
    if type(node) in _OPERATORS:
        if (other := place_of(node.expression)) is not None and (others := _texts(text, parts, node.expression)):
            yield Edit(row.start, other.end, f"({_compared(values, others, _OPERATORS[type(node)])})")
        return
    tokens = [token for token in parts.tokens if token.start >= row.end]
    is_not = tokens[0].token_type is TokenType.NOT
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        is_not = tokens[1].token_type is TokenType.NOT
        test = " IS NOT NULL" if is_not else " IS NULL"
        yield Edit(row.start, tokens[2 if is_not else 1].end + 1, f"({' AND '.join(value + test for value in values)})")
    elif isinstance(node, exp.Between):
        low, high = (_texts(text, parts, node.args[side]) for side in ("low", "high"))
        if low and high and (last := place_of(node.args["high"])) is not None:
            condition = f"({_compared(values, low, '>=')}) AND ({_compared(values, high, '<=')})"
            yield Edit(row.start, last.end, f"({'NOT ' * is_not}({condition}))")
    elif isinstance(node, exp.In):
        opening, closing = _list(tokens)
        if node.args.get("query") is not None or isinstance(node.expressions[0], exp.Values):
            condition = _in_query(node, values, text[opening : closing + 1], is_not)
        else:
            condition = _in_list(node, values, [_texts(text, parts, each) for each in node.expressions], is_not)
        if condition:
            yield Edit(row.start, closing + 1, condition)


def _list(tokens: Sequence[Token]) -> tuple[int, int]:
    """Return where the list of IN begins and ends, whose ``tokens`` come first."""
    first = next(place for place, token in enumerate(tokens) if token.token_type is TokenType.L_PAREN)
    depth = 0
    for token in tokens[first:]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return tokens[first].start, token.start
    raise AssertionError("a list that was read has an end")


def _texts(text: str, parts: ParsedText, row: Any) -> list[str]:
    """Return the values of a row as they are written, each in parentheses if it has several words."""
    place = place_of(row)
    if place is None or not _values(row):
        return []
    first = bisect_left(parts.tokens, place.start, key=lambda token: token.start)
    elements = elements_of(parts.tokens, first + isinstance(row, exp.Anonymous))
    written = [text[element[0].start : element[-1].end + 1] for element in elements]
    return [each if len(element) == 1 else f"({each})" for each, element in zip(written, elements, strict=True)]


def _compared(left: Sequence[str], right: Sequence[str], operator: str) -> str:
    """Return the comparison of two rows."""
    if len(left) != len(right):
        raise InvalidArgumentError(
            f"a comparison of rows needs the same number of values on both sides, not {len(left)} and {len(right)}"
        )
    if operator in ("=", "<>"):
        joined = " AND " if operator == "=" else " OR "
        return joined.join(f"{one} {operator} {other}" for one, other in zip(left, right, strict=True))
    answer = f"{left[-1]} {operator} {right[-1]}"
    for one, other in zip(left[-2::-1], right[-2::-1], strict=True):
        answer = f"{one} {operator[0]} {other} OR ({one} = {other} AND ({answer}))"
    return answer


def _in_list(node: exp.In, values: Sequence[str], rows: Sequence[Sequence[str]], is_not: bool) -> str:
    """Return the condition that a row is, or is not, in a list; empty if that stays as it is."""
    if not all(rows):
        return ""
    prefix = "NOT " * is_not
    tree = prefix + _either([_compared(values, each, "=") for each in rows])
    if len(rows) <= _LONG:
        return f"({tree})"
    listed = f"{_struct(values)} {prefix}IN ({', '.join(map(_struct, rows))})"
    is_whole = " AND ".join(f"{value} IS NOT NULL" for value in values)
    if not is_not and _is_condition(node):
        return f"({listed} AND {is_whole})"
    cells = [cell for each in node.expressions for cell in _values(each)]
    if not all(isinstance(cell, exp.Literal | exp.Neg) for cell in cells):
        return f"({tree})"
    return f"(CASE WHEN {is_whole} THEN {listed} ELSE {tree} END)"


def _struct(values: Sequence[str]) -> str:
    return f"struct({', '.join(values)})"


def _either(conditions: Sequence[str]) -> str:
    """Return the condition that one of several is true. Its depth grows slowly with their number."""
    if len(conditions) == 1:
        return f"({conditions[0]})"
    half = len(conditions) // 2
    return f"({_either(conditions[:half])} OR {_either(conditions[half:])})"


def _in_query(node: exp.In, values: Sequence[str], query: str, is_not: bool) -> str:
    """Return the condition that a row is, or is not, in the answer of a query.

    Raises:
        InvalidArgumentError: it is no condition of WHERE, HAVING or ON, or is within NOT with others.
    """
    above: Any = node.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    is_negative = isinstance(above, exp.Not)
    if not _is_condition(above if is_negative else node):
        raise InvalidArgumentError(
            "(a, b) IN and NOT IN with a query are allowed only in conditions of WHERE, HAVING and ON, joined by AND "
            "and OR: join with the query instead"
        )
    names = [f'"#{place + 1}"' for place in range(len(values))]
    pairs = [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
    condition = " AND ".join(f"({pair}) IS NOT FALSE" if is_negative else pair for pair in pairs)
    return f'{"NOT " * is_not}EXISTS (SELECT 1 FROM {query} AS "#row"({", ".join(names)}) WHERE {condition})'


def _is_condition(node: Any) -> bool:
    """Whether rows for which a condition is NULL are treated as if it were false."""
    above = node.parent
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        above = above.parent
    return isinstance(above, _CONDITIONS)
