"""Evaluates expressions, a batch at a time, with Arrow's functions: no loop over rows.

Each node is evaluated once for the rows that need it. A CASE evaluates each branch only for its own rows, so that one
may guard another against a division by zero. Between nodes the request may end, and the values that are kept for a node
are counted: they may not take more memory than a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.request import check
from .assign import convert
from .comparing import cells_listed, compared, compared_with, listed
from .constants import value_of
from .functions import FUNCTIONS, common, joined
from .numbers import Value, arithmetic, mask, negative, spread, word
from .pattern import Matcher
from .rows import Rows
from .sizes import TooLargeError, check_result, check_size
from .tree import (
    FLIPPED,
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
    IsNull,
    IsTruth,
    Junction,
    Matches,
    Negative,
    Not,
    computes,
)


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """An expression over the columns of a table: its ``text`` as errors show it, its ``tree``, and the ``columns`` that
    it names."""

    text: str
    tree: Expr
    columns: frozenset[str]
    prepared: dict[Any, Any] = field(default_factory=dict)
    """What LIKE and IN search with, by the identities of their nodes: made once for all batches."""


def evaluate(expression: Expression, rows: Rows, target: LogicalType) -> pa.Array:
    """Return the value of an expression for each row, as cells of a column's type.

    Raises:
        InvalidArgumentError: types that do not match, an overflow, a division by zero, a value that does not fit.
    """

    def cells(value: Value, count: int) -> pa.Array:
        return spread(convert(value, target, is_cast=False), count)

    return _explained(expression, rows, cells, f" as {target}")


def truth(expression: Expression, rows: Rows) -> pa.BooleanArray:
    """Return whether an expression is true for each row, NULL where that is unknown. Raises as ``evaluate``."""

    def flags(value: Value, count: int) -> Any:
        return spread(_as_condition(value), count)

    return _explained(expression, rows, flags, "")


def constant(tree: Expr) -> pa.Scalar | None:
    """Return the value of an expression without columns; None if it has none, or cannot be computed."""
    try:
        value = _Evaluator(Rows(1, _no_column), {}).value(tree)
    except (InvalidArgumentError, pa.ArrowException, ArithmeticError, ValueError):
        return None
    return value if isinstance(value, pa.Scalar) else value[0]


def _no_column(name: str) -> pa.Array:
    raise AssertionError(f"a constant has no columns: {name}")


def _explained(expression: Expression, rows: Rows, result: Callable[[Value, int], pa.Array], kind: str) -> Any:
    try:
        return _in_parts(expression, rows, result)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{expression.text!r}: {error.message}") from None
    except (pa.ArrowException, ArithmeticError, ValueError) as error:
        why = str(error).partition("\n")[0].lower()
        if "divide by zero" in why:
            why = "division by zero; write NULLIF(divisor, 0) to get NULL"
        raise InvalidArgumentError(f"{expression.text!r} cannot be computed{kind} for every row: {why}") from None


def _in_parts(expression: Expression, rows: Rows, result: Callable[[Value, int], pa.Array]) -> pa.Array:
    """Evaluate an expression on all rows at once, or on fewer of them if their values are too large."""
    parts: list[pa.Array] = []
    first, step, size = 0, rows.count, 0
    while True:
        part = rows if step == rows.count else rows.taken(np.arange(first, min(first + step, rows.count)))
        try:
            value = _Evaluator(part, expression.prepared).value(expression.tree)
            parts.append(result(value, part.count))
        except TooLargeError:
            if part.count <= 1:
                raise
            step = (part.count + 1) // 2
            continue
        size += parts[-1].nbytes
        check_result(size)
        first += part.count
        if first >= rows.count:
            return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _as_condition(value: Value) -> Value:
    if not (pa.types.is_boolean(value.type) or pa.types.is_null(value.type)):
        raise InvalidArgumentError(f"a condition must be true or false, not {word(value.type)}")
    return value.cast(pa.bool_())


class _Evaluator:
    """Evaluates nodes over some rows. Recurses as deep as the tree, which ``parse`` bounds."""

    def __init__(self, rows: Rows, prepared: dict[Any, Any], live_bytes: int = 0) -> None:
        """``live_bytes`` are those of the values that are kept elsewhere meanwhile."""
        self._rows = rows
        self._prepared = prepared
        self._live_bytes = live_bytes

    def value(self, node: Expr) -> Value:
        """Return a node's value."""
        check()
        before = self._live_bytes
        value = _NODES[type(node)](self, node)
        # What the node was computed from is dropped now; what it is computed to is kept, for the node above it.
        if not isinstance(node, ColumnName) and not isinstance(value, pa.Scalar):
            self._live_bytes = before + value.nbytes
            check_size(self._live_bytes)
        else:
            self._live_bytes = before
        return value

    def _column(self, node: ColumnName) -> Value:
        return self._rows.column(node.name)

    def _negative(self, node: Negative) -> Value:
        return negative(self.value(node.arg))

    def _arithmetic(self, node: Arithmetic) -> Value:
        chain = [node]  # a sum of a thousand terms is no deeper than one of two
        while isinstance(left := chain[-1].left, Arithmetic):
            chain.append(left)
        before = self._live_bytes
        value = self.value(left)
        for op, terms in groupby(reversed(chain), lambda each: each.op):
            if op == "||":  # texts are joined at once: one by one, each would be copied for all that follow
                value = joined([value, *(self.value(each.right) for each in terms)])
                self._live_bytes = before + _kept_bytes(value)
                continue
            for each in terms:
                value = arithmetic(op, value, self.value(each.right))
                self._live_bytes = before + _kept_bytes(value)
        return value

    def _cast(self, node: Cast) -> Value:
        return convert(self.value(node.arg), node.kind, is_cast=True)

    def _compared(self, node: Compared) -> Value:
        if isinstance(node.left, Constant) and not isinstance(node.right, Constant):
            return self.compare(FLIPPED[node.op], self.value(node.right), node.left)
        return self.compare(node.op, self.value(node.left), node.right)

    def compare(self, op: ComparisonOp, value: Value, node: Expr) -> Value:
        """Return ``value op node``."""
        if isinstance(node, Constant) and node.value is not None:
            answer = compared_with(op, value, node.value)
            if answer is not None:
                return answer
        return compared(op, value, self.value(node))

    def _junction(self, node: Junction) -> Value:
        """Compute no part for rows that another decides: parts that compute come last, as in a filter."""
        decides = node.op == "or"
        join = pc.or_kleene if decides else pc.and_kleene
        value: Value = pa.scalar(not decides)
        for part in sorted(node.args, key=self._computes):
            decided = mask(value if decides else pc.invert(value), self._rows.count) if self._computes(part) else None
            if decided is None or not decided.any():
                value = join(value, self.condition(part))
                continue
            left = np.flatnonzero(~decided)
            before = value if isinstance(value, pa.Scalar) else value.take(pa.array(left))
            flags = join(before, _as_condition(self._branch(left, part)))
            value = _united([(np.flatnonzero(decided), pa.scalar(decides)), (left, flags)])
        return value

    def _computes(self, node: Expr) -> bool:
        key = "computes", id(node)
        if key not in self._prepared:
            self._prepared[key] = computes(node)
        return self._prepared[key]

    def _not(self, node: Not) -> Value:
        return pc.invert(self.condition(node.arg))

    def condition(self, node: Expr) -> Value:
        """Return the value of a node that must be true or false."""
        return _as_condition(self.value(node))

    def _is_null(self, node: IsNull) -> Value:
        return pc.is_null(self.value(node.arg))

    def _is_truth(self, node: IsTruth) -> Value:
        return pc.fill_null(pc.equal(self.condition(node.arg), node.truth), False)

    def _among(self, node: Among) -> Value:
        value = self.value(node.arg)
        answer: Value = pa.scalar(False)
        if node.values:
            answer = self._listed(value, node)
        for other in node.others:
            answer = pc.or_kleene(answer, self.compare("=", value, other))
        return answer

    def _listed(self, value: Value, node: Among) -> Value:
        """Return where a value is among the literals of a list."""
        key = id(node), value.type
        if key not in self._prepared:
            self._prepared[key] = cells_listed(value.type, node.values)
        cells = self._prepared[key]
        if cells is not None:
            return listed(value, cells)
        answer: Value = pa.scalar(False)
        for literal in node.values:
            check()
            answer = pc.or_kleene(answer, compared("=", value, value_of(literal)))
        return answer

    def _between(self, node: Between) -> Value:
        value = self.value(node.arg)
        return pc.and_kleene(self.compare(">=", value, node.low), self.compare("<=", value, node.high))

    def _matches(self, node: Matches) -> Value:
        value = self.value(node.arg)
        if pa.types.is_null(value.type):
            return pa.scalar(None, pa.bool_())
        if not pa.types.is_string(value.type):
            raise InvalidArgumentError(f"LIKE takes text, not {word(value.type)}; CAST(... AS TEXT) converts")
        matcher = self._prepared.get(id(node))
        if matcher is None:
            matcher = self._prepared[id(node)] = Matcher.of(node.pattern, node.ignores_case)
        if isinstance(value, pa.Scalar):
            return matcher.find(spread(value, 1))[0]
        return matcher.find(value)

    def _case(self, node: Case) -> Value:
        """Evaluate each branch for the rows that reach it."""
        subject = None if node.subject is None else self.value(node.subject)
        left = np.arange(self._rows.count)
        parts: list[tuple[np.ndarray, Value]] = []
        for condition, then in node.branches:
            here = self._among_rows(left)
            if subject is None:
                flags = here.condition(condition)
            else:
                mine = subject if isinstance(subject, pa.Scalar) else subject.take(pa.array(left))
                flags = here.compare("=", mine, condition)
            chosen = mask(flags, len(left))
            parts.append((left[chosen], self._branch(left[chosen], then)))
            left = left[~chosen]
        default = pa.scalar(None) if node.default is None else self._branch(left, node.default)
        return _united([*parts, (left, default)])

    def _among_rows(self, places: np.ndarray) -> _Evaluator:
        return _Evaluator(self._rows.taken(places), self._prepared, self._live_bytes)

    def _branch(self, places: np.ndarray, node: Expr) -> Value:
        value: Value
        try:
            value = self._among_rows(places).value(node)
        except pa.ArrowException:
            if len(places):
                raise
            return pa.scalar(None)  # no row reaches it: only its type matters, and that has an error for no row
        self._live_bytes += _kept_bytes(value)
        return value

    def _coalesce(self, node: Call) -> Value:
        """Evaluate each argument for the rows in which those before it are NULL."""
        left = np.arange(self._rows.count)
        parts: list[tuple[np.ndarray, Value]] = []
        for arg in node.args:
            value = self._branch(left, arg)
            is_null = mask(pc.is_null(value), len(left))
            mine = value if isinstance(value, pa.Scalar) else value.filter(pa.array(~is_null))
            parts.append((left[~is_null], mine))
            left = left[is_null]
        return _united([*parts, (left, pa.scalar(None))])

    def _call(self, node: Call) -> Value:
        if node.name == "COALESCE" and any(map(self._computes, node.args[1:])):
            return self._coalesce(node)
        return FUNCTIONS[node.name](self, node.args)


def _kept_bytes(value: Value) -> int:
    """Return the bytes of a value for the rows; one that is the same for all of them takes none."""
    return 0 if isinstance(value, pa.Scalar) else value.nbytes


def _united(parts: list[tuple[np.ndarray, Value]]) -> Value:
    """Return values of several sets of rows as one column, in row order."""
    values = common([value for _, value in parts])
    cells = [spread(value, len(rows)) for (rows, _), value in zip(parts, values, strict=True)]
    check_size(sum(each.nbytes for each in cells))
    order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
    return pa.concat_arrays(cells).take(pa.array(order))


_NODES: dict[type, Callable[[_Evaluator, Any], Value]] = {
    ColumnName: _Evaluator._column,
    Constant: lambda _, node: value_of(node.value),
    Negative: _Evaluator._negative,
    Arithmetic: _Evaluator._arithmetic,
    Cast: _Evaluator._cast,
    Compared: _Evaluator._compared,
    Between: _Evaluator._between,
    Among: _Evaluator._among,
    Matches: _Evaluator._matches,
    IsNull: _Evaluator._is_null,
    IsTruth: _Evaluator._is_truth,
    Not: _Evaluator._not,
    Junction: _Evaluator._junction,
    Case: _Evaluator._case,
    Call: _Evaluator._call,
}
