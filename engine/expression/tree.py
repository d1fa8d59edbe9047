"""The tree of an expression, which is also that of a filter: one language, `parse` reads it.

Nodes are immutable. A literal is JSON as in ``schemas.literal.literal_json``, so that a number keeps its digits until
its column is known; ``NULL`` is None. A span of time is ``{"interval": n}``, of microseconds, or
``{"nanoseconds": n}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ...schemas.cells.types import LogicalType

ComparisonOp = Literal["=", "<>", "<", "<=", ">", ">="]
FLIPPED: dict[ComparisonOp, ComparisonOp] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparison with its sides exchanged."""
ARROW_COMPARISONS: dict[ComparisonOp, str] = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
"""Arrow's functions that compare."""


FIELD, ITEM, JSON, JSON_TEXT = ".", "[]", "->", "->>"
"""The names of the functions that ``struct.field``, ``list[0]``, ``text -> path`` and ``text ->> path`` stand for."""


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column that an expression names."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal in an expression."""

    value: Any


@dataclass(frozen=True, slots=True)
class Negative:
    """``-arg`` in an expression."""

    arg: Expr


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left op right`` in an expression: SQL's arithmetic."""

    op: Literal["+", "-", "*", "/", "%", "||"]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Compared:
    """``left op right`` in an expression: a comparison."""

    op: ComparisonOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Between:
    """``arg BETWEEN low AND high`` in an expression, both included."""

    arg: Expr
    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True)
class Among:
    """``arg IN (...)`` in an expression: literals, which may be a hundred thousand, and other expressions."""

    arg: Expr
    values: Sequence[Any]
    others: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Matches:
    """``arg LIKE pattern`` in an expression, or ILIKE; the pattern's escape is the backslash."""

    arg: Expr
    pattern: str
    ignores_case: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """``arg IS NULL`` in an expression."""

    arg: Expr


@dataclass(frozen=True, slots=True)
class IsTruth:
    """``arg IS TRUE`` in an expression, or IS FALSE; never NULL."""

    arg: Expr
    truth: bool


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT arg`` in an expression."""

    arg: Expr


@dataclass(frozen=True, slots=True)
class Junction:
    """``arg AND arg ...`` or ``arg OR arg ...`` in an expression; an empty AND is true, an empty OR false."""

    op: Literal["and", "or"]
    args: Sequence[Expr]


@dataclass(frozen=True, slots=True)
class Case:
    """``CASE WHEN condition THEN value ... ELSE default END`` in an expression; with a ``subject`` each condition is a
    value that is compared with it."""

    subject: Expr | None
    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Cast:
    """``CAST(arg AS kind)`` in an expression."""

    arg: Expr
    kind: LogicalType


@dataclass(frozen=True, slots=True)
class Call:
    """A function in an expression by its name, in upper case."""

    name: str
    args: tuple[Expr, ...]


Expr: TypeAlias = (
    ColumnName
    | Constant
    | Negative
    | Arithmetic
    | Compared
    | Between
    | Among
    | Matches
    | IsNull
    | IsTruth
    | Not
    | Junction
    | Case
    | Cast
    | Call
)


def parts_of(node: Expr) -> Sequence[Expr]:
    """Return the expressions that a node of an expression is made of."""
    match node:
        case Arithmetic() | Compared():
            return node.left, node.right
        case Between():
            return node.arg, node.low, node.high
        case Among():
            return node.arg, *node.others
        case Junction() | Call():
            return node.args
        case Case():
            pairs = [part for branch in node.branches for part in branch]
            return [*pairs, *(part for part in (node.subject, node.default) if part is not None)]
        case ColumnName() | Constant():
            return ()
    return (node.arg,)


def walk(tree: Expr) -> Iterator[Expr]:
    """Yield every node of an expression, without recursion."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(parts_of(node))


def computes(tree: Expr) -> bool:
    """Whether an expression does more than to read and compare: it may cost much, and it may fail for some rows."""
    return any(isinstance(node, Arithmetic | Negative | Cast | Case | Call) for node in walk(tree))


def columns_of(tree: Expr) -> frozenset[str]:
    """Return the columns that an expression names."""
    return frozenset(node.name for node in walk(tree) if isinstance(node, ColumnName))


def conjuncts_of(tree: Expr) -> list[Expr]:
    """Return the parts of an expression that are joined by AND at the top, at any depth, in order."""
    conjuncts: list[Expr] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Junction) and node.op == "and":
            waiting.extend(reversed(node.args))
        else:
            conjuncts.append(node)
    return conjuncts
