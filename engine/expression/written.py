"""Writes a tree as SQL text, for people: in the explanation of a scan, and in errors."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from ...schemas.errors import InvalidArgumentError
from . import moments
from .constants import value_of
from .operand import INTERVALS, RESERVED
from .tree import (
    FIELD,
    Among,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    ColumnName,
    Compared,
    Constant,
    Expr,
    IsNull,
    IsTruth,
    Junction,
    Matches,
    Negative,
    Not,
)

_VALUES_SHOWN = 10
_LETTERS_SHOWN = 60


def sql_of(tree: Expr) -> str:
    """Return the tree of an expression as SQL text that parses to the same tree. Long lists and long literals are cut
    short."""
    match tree:
        case ColumnName():
            return column_of(tree.name)
        case Constant():
            return _literal(tree.value)
        case Arithmetic():
            return _chain(tree)
        case Compared():
            return f"{_inside(tree.left)} {tree.op} {_inside(tree.right)}"
        case Between():
            return f"{_inside(tree.arg)} BETWEEN {_inside(tree.low)} AND {_inside(tree.high)}"
        case Among():
            return f"{_inside(tree.arg)} IN ({_listed(tree.values, tree.others)})"
        case Matches():
            return f"{_inside(tree.arg)} {'ILIKE' if tree.ignores_case else 'LIKE'} {_literal(tree.pattern)}"
        case IsNull():
            return f"{_inside(tree.arg)} IS NULL"
        case IsTruth():
            return f"{_inside(tree.arg)} IS {str(tree.truth).upper()}"
        case Not():
            return f"NOT {_inside(tree.arg)}"
        case Negative():
            return f"-{_inside(tree.arg)}"
        case Junction():
            if not tree.args:
                return "TRUE" if tree.op == "and" else "FALSE"
            return f" {tree.op.upper()} ".join(map(_inside, tree.args))
        case Case():
            return _case(tree)
        case Cast():
            return f"CAST({sql_of(tree.arg)} AS {tree.kind})"
        case Call(name="." | "[]", args=(value, Constant(value=part))):
            text = sql_of(value) if isinstance(value, ColumnName | Call) else f"({sql_of(value)})"
            return f"{text}.{column_of(part)}" if tree.name == FIELD else f"{text}[{_literal(part)}]"
        case Call(name="->" | "->>", args=(value, Constant(value=path))):
            text = sql_of(value) if isinstance(value, ColumnName | Call) else f"({sql_of(value)})"
            return f"{text} {tree.name} {_literal(path)}"
        case Call():
            return f"{tree.name}({', '.join(map(sql_of, tree.args))})"


def column_of(name: str) -> str:
    """Return a column's name as an expression has it."""
    is_plain = name.isidentifier() and name.isascii() and name.upper() not in RESERVED
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _inside(tree: Expr) -> str:
    """Return a part of a larger expression, in parentheses if it is more than a word or a function."""
    text = sql_of(tree)
    return text if isinstance(tree, ColumnName | Constant | Call | Cast) else f"({text})"


def _chain(tree: Arithmetic) -> str:
    """Write ``a + b - c`` without parentheses where they change nothing, and without recursion."""
    chain = [tree]
    while isinstance(left := chain[-1].left, Arithmetic):
        chain.append(left)
    text, strength = _inside(chain[-1].left), 3
    for node in reversed(chain):
        if strength < _strength(node.op):
            text = f"({text})"
        strength = _strength(node.op)
        text += f" {node.op} {_inside(node.right)}"
    return text


def _strength(op: str) -> int:
    return {"||": 0, "+": 1, "-": 1}.get(op, 2)


def _case(tree: Case) -> str:
    subject = "" if tree.subject is None else f" {_inside(tree.subject)}"
    branches = "".join(f" WHEN {sql_of(condition)} THEN {sql_of(then)}" for condition, then in tree.branches)
    default = "" if tree.default is None else f" ELSE {sql_of(tree.default)}"
    return f"CASE{subject}{branches}{default} END"


def _listed(values: Sequence[Any], others: Sequence[Expr]) -> str:
    shown = [*map(_literal, values[:_VALUES_SHOWN]), *map(sql_of, others)]
    more = len(values) - _VALUES_SHOWN
    return ", ".join([*shown, *([f"and {more:,} more"] if more > 0 else [])])


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return repr(value) if "e" in repr(value) else f"{value!r}e0"
    if not isinstance(value, dict):
        return str(value)
    ((kind, content),) = value.items()
    if kind == "base64":
        return f"X'{base64.b64decode(content)[:_LETTERS_SHOWN].hex()}'"
    if kind == "float":
        return f"CAST('{content}' AS DOUBLE)"
    if kind in ("date", "timestamp"):
        return f"{kind.upper()} {_quoted(_moment(value, content))}"
    if kind == "nanoseconds":
        return f"INTERVAL '{content}' NANOSECOND"
    return _interval(content) if kind == "interval" else str(content)


def _interval(microseconds: int) -> str:
    """Return a span of time in the longest unit in which it is a whole number."""
    unit = [name for name, size in INTERVALS.items() if microseconds % size == 0][-1]
    return f"INTERVAL '{microseconds // INTERVALS[unit]}' {unit}"


def _moment(literal: dict[str, Any], content: Any) -> str:
    """Return the text of a date or timestamp; the number of one that no column can have."""
    if isinstance(content, str):
        return content
    try:
        return str(moments.text(value_of(literal)).as_py())
    except InvalidArgumentError:
        return str(content)


def _quoted(text: str) -> str:
    short = text if len(text) <= _LETTERS_SHOWN else f"{text[: _LETTERS_SHOWN - 3]}..."
    return "'" + short.replace("'", "''") + "'"
