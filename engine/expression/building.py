"""Builds the nodes of a tree from their parts: flat where the meaning allows, within the limits on depth and number.

A chain such as ``a AND b AND c`` or ``a + b + c`` is one level deep, whatever its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from .operand import WordReader
from .tree import (
    Among,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    ColumnName,
    Compared,
    ComparisonOp,
    Constant,
    Expr,
    Junction,
    Negative,
    Not,
)
from .words import Word

DEPTH_MAX = 100
"""Levels of nodes inside each other."""


class Part(NamedTuple):
    """An operand of an expression that is being parsed: its tree, the levels of it, and its first word."""

    expr: Expr
    depth: int
    word: Word


class Builder:
    """Builds the tree of one expression, and counts what is computed: columns, functions and arithmetic."""

    def __init__(self, reader: WordReader, limits: Limits, what: str) -> None:
        self._reader = reader
        self._limits = limits
        self._what = what
        self.count = 0

    def add(self) -> None:
        """Count a node. Raises InvalidArgumentError: there are too many."""
        self.count += 1
        if self.count > self._limits.predicate_nodes:
            raise InvalidArgumentError(f"the {self._what} has more than {self._limits.predicate_nodes:,} parts")

    def check_condition(self, part: Part) -> None:
        """Raise InvalidArgumentError if a part is a literal that is neither true nor false."""
        if isinstance(part.expr, Constant) and not isinstance(part.expr.value, bool):
            self._reader.refuse(part.word, "a literal alone is not a condition")

    def negated(self, part: Part) -> Part:
        """Return NOT ``part``."""
        self.check_condition(part)
        if isinstance(part.expr, Not):
            return Part(part.expr.arg, part.depth - 1, part.word)
        return self._above(Not(part.expr), [part])

    def signed(self, sign: str, part: Part) -> Part:
        """Return ``+ part`` or ``- part``; a literal takes the sign itself."""
        expr = part.expr
        if isinstance(expr, Constant) and (number := _with_sign(sign, expr.value)) is not None:
            return Part(Constant(number), 1, part.word)
        if sign == "+":
            return part
        if isinstance(expr, Negative):
            return Part(expr.arg, part.depth - 1, part.word)
        self.add()
        return self._above(Negative(expr), [part])

    def arithmetic(self, op: Any, left: Part, right: Part) -> Part:
        """Return ``left op right``."""
        self.add()
        depth = max(left.depth if isinstance(left.expr, Arithmetic) else left.depth + 1, right.depth + 1)
        return self._checked(Part(Arithmetic(op, left.expr, right.expr), depth, left.word))

    def compared(self, op: ComparisonOp, left: Part, right: Part) -> Part:
        """Return ``left op right``."""
        for one, other in ((right, left), (left, right)):
            if isinstance(one.expr, Constant) and one.expr.value is None:
                name = other.expr.name if isinstance(other.expr, ColumnName) else "..."
                test = f"{name} IS {'NOT NULL' if op == '<>' else 'NULL'}"
                self._reader.refuse(one.word, f"a comparison with NULL is never true; write {test}")
        return self._above(Compared(op, left.expr, right.expr), [left, right])

    def between(self, arg: Part, low: Part, high: Part, negated: bool) -> Part:
        """Return ``arg BETWEEN low AND high``."""
        for end in (low, high):
            self._check_not_null(end)
        return self._maybe_not(self._above(Between(arg.expr, low.expr, high.expr), [arg, low, high], arg.word), negated)

    def among(self, arg: Part, items: Sequence[Part], negated: bool) -> Part:
        """Return ``arg IN (items)``."""
        for item in items:
            self._check_not_null(item)
        values = [item.expr.value for item in items if isinstance(item.expr, Constant)]
        others = [item for item in items if not isinstance(item.expr, Constant)]
        node = Among(arg.expr, values, tuple(item.expr for item in others))
        return self._maybe_not(self._above(node, [arg, *others], arg.word), negated)

    def wrapped(self, part: Part, build: Callable[[Expr], Expr], negated: bool) -> Part:
        """Return what ``build`` makes of a part, or NOT that."""
        return self._maybe_not(self._above(build(part.expr), [part]), negated)

    def cast(self, part: Part, kind: LogicalType) -> Part:
        """Return a part as another type. Text that is a date or a timestamp is a literal of that type."""
        expr = part.expr
        word = {"date": "date", "timestamp[us]": "timestamp"}.get(kind.name)
        if word and isinstance(expr, Constant) and isinstance(expr.value, str):
            return Part(Constant({word: expr.value}), 1, part.word)
        self.add()
        return self._above(Cast(expr, kind), [part])

    def call(self, name: str, args: Sequence[Part], word: Word) -> Part:
        """Return a function of ``args``."""
        exprs = tuple(each.expr for each in args)
        if name == "MOD":
            return self._above(Arithmetic("%", *exprs), args, word)
        if name == "IF":
            self.check_condition(args[0])
            condition, then, *rest = exprs
            return self._above(Case(None, ((condition, then),), rest[0] if rest else None), args, word)
        return self._above(Call(name, exprs), args, word)

    def case(self, subject: Part | None, parts: Sequence[Part], default: Part | None, word: Word) -> Part:
        """Return a CASE: ``parts`` are its conditions and results in turns."""
        exprs = [each.expr for each in parts]
        branches = tuple(zip(exprs[::2], exprs[1::2], strict=True))
        node = Case(subject and subject.expr, branches, default and default.expr)
        return self._above(node, [*parts, *(each for each in (subject, default) if each)], word)

    def joined(self, op: Any, left: Part, right: Part) -> Part:
        """Return ``left AND right`` or ``left OR right``, flat."""
        self.check_condition(left)
        self.check_condition(right)
        chain, depth = left.expr, left.depth
        if not (isinstance(chain, Junction) and chain.op == op):
            chain, depth = Junction(op, [left.expr]), left.depth + 1
        assert isinstance(chain.args, list), "a chain grows"
        if isinstance(right.expr, Junction) and right.expr.op == op:
            chain.args.extend(right.expr.args)
            depth = max(depth, right.depth)
        else:
            chain.args.append(right.expr)
            depth = max(depth, right.depth + 1)
        return self._checked(Part(chain, depth, left.word))

    def _maybe_not(self, part: Part, negated: bool) -> Part:
        return self.negated(part) if negated else part

    def _check_not_null(self, part: Part) -> None:
        if isinstance(part.expr, Constant) and part.expr.value is None:
            self._reader.refuse(part.word, "NULL cannot be compared; write IS NULL or IS NOT NULL")

    def _above(self, expr: Expr, parts: Sequence[Part], word: Word | None = None) -> Part:
        depth = 1 + max((part.depth for part in parts), default=0)
        return self._checked(Part(expr, depth, word or parts[0].word))

    def _checked(self, part: Part) -> Part:
        if part.depth > DEPTH_MAX:
            raise InvalidArgumentError(f"the {self._what} is nested more than {DEPTH_MAX} levels deep")
        return part


def _with_sign(sign: str, value: Any) -> Any:
    """Return a number with a sign before it; None if the value is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return -value if sign == "-" else value
    if isinstance(value, dict) and "decimal" in value:
        digits = value["decimal"]
        if sign == "-":
            digits = digits[1:] if digits.startswith("-") else f"-{digits.removeprefix('+')}"
        return {"decimal": digits}
    return None
