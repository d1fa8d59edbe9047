"""Computations of whole numbers and decimals that are too large in the same cases in a query and in the store.

A query computes a chain of integers without a bound, and its result must fit the widest type in it, in which a literal
is a bigint. The store computes every step as a bigint, and its result must fit the column. So both refuse the same
where no step but the last may pass a bigint, and the last one either cannot pass its type or is the new value of a
column that is no wider. Decimals have 38 digits in a query and 76 in the store: they are the same below the fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlglot import exp

from ....schemas.table.column import ColumnSchema
from ..text.names import name_of
from .literals import DIGITS_MAX, NO_LITERAL, literal
from .translate import Foreign

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_BITS_MAX = 64
_CASTS = {exp.DType.SMALLINT: 16, exp.DType.INT: 32, exp.DType.BIGINT: 64}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Of the decimals that a query makes of integers, by their bits."""
_CHAINED = (exp.Add, exp.Sub, exp.Mul)
_COMPUTED = (*_CHAINED, exp.Div, exp.Mod, exp.Neg, exp.Abs)


class _Size(NamedTuple):
    """How large a number may be."""

    whole: int
    """Bits of an integer, or digits of a decimal before its point."""
    width: int
    """Bits of an integer's type in a query; 0: it is a decimal."""
    scale: int = 0

    @property
    def as_decimal(self) -> _Size:
        return _Size(_DIGITS[self.width], 0) if self.width else self


class Overflows:
    """Checks the values that an SQL statement computes for the columns of one table."""

    def __init__(self, columns: Mapping[str, ColumnSchema]) -> None:
        self._columns = columns

    def check(self, node: exp.Expr, column: ColumnSchema) -> None:
        """Check that an expression, whose columns are those of the table, fits a column in the same cases in a query
        and in the store. Raises Foreign: it may not."""
        self._size(node, _BITS.get(column.logical.name, 0))

    def _size(self, node: exp.Expr, target: int) -> _Size | None:
        """Return the size of a number; None: it is a double, or no number. ``target`` is the bits of the column whose
        new value it is; 0: something else."""
        if (value := literal(node)) is not NO_LITERAL:
            return _size_of(value)
        if isinstance(node, exp.Column):
            return self._of_column(node)
        if isinstance(node, exp.Paren):
            return self._size(node.this, target)
        if isinstance(node, _COMPUTED):
            size = self._computed(node)
            if size is not None and size.width and size.whole > size.width and not 0 < target <= size.width:
                raise Foreign
            return size
        if isinstance(node, exp.Case):
            for each in node.args["ifs"]:
                self._size(each.this, 0)
            values = [each.args["true"] for each in node.args["ifs"]]
            if (default := node.args.get("default")) is not None:
                values.append(default)
            return _largest([self._size(each, target) for each in values])
        if isinstance(node, exp.Cast):
            self._size(node.this, 0)
            bits = _CASTS.get(node.to.this)
            return None if bits is None else _Size(bits, bits)
        parts = [each for each in node.iter_expressions() if isinstance(each, exp.Expr)]
        first = target if isinstance(node, exp.Coalesce) else 0
        return _largest([self._size(each, 0 if at else first) for at, each in enumerate(parts)])

    def _of_column(self, node: exp.Column) -> _Size | None:
        logical = self._columns[name_of(node)].logical
        if logical.name == "decimal":
            return _Size(logical.arrow.precision - logical.arrow.scale, 0, logical.arrow.scale)
        bits = _BITS.get(logical.name)
        return None if bits is None else _Size(bits, bits)

    def _computed(self, node: exp.Expr) -> _Size | None:
        """Return the size of the result of an operator, of which only the last in a chain may pass a bigint."""
        size_of = self._operand if isinstance(node, _CHAINED) else self._alone
        sizes = [size_of(each) for each in (node.this, node.args.get("expression")) if each is not None]
        numbers = [size for size in sizes if size is not None]
        width = max(size.width for size in numbers) if all(size and size.width for size in sizes) else 0
        if not width and any(0 < size.width < size.whole for size in numbers):  # the chain of integers ends before
            raise Foreign
        if None in sizes:
            return None
        numbers = numbers if width else [size.as_decimal for size in numbers]
        if isinstance(node, exp.Mul):
            whole, scale = sum(size.whole for size in numbers), sum(size.scale for size in numbers)
        else:
            whole, scale = max(size.whole for size in numbers) + 1, max(size.scale for size in numbers)
        if not width and whole + scale >= DIGITS_MAX:  # a product has one digit more
            raise Foreign
        return _Size(whole, width, scale)

    def _alone(self, node: exp.Expr) -> _Size | None:
        return self._size(node, 0)

    def _operand(self, node: exp.Expr) -> _Size | None:
        """Return the size of an operand within a chain."""
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, _CHAINED):
            return self._alone(node)
        size = self._computed(node)
        if size is not None and size.width and size.whole > _BITS_MAX:
            raise Foreign
        return size


def _size_of(value: object) -> _Size | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return _Size(value.bit_length() + 1, _BITS_MAX)
    digits = getattr(value, "as_tuple", None)
    if digits is None:
        return None
    _, figures, exponent = digits()
    return _Size(max(len(figures) + exponent, 1), 0, max(-exponent, 0))


def _largest(sizes: list[_Size | None]) -> _Size | None:
    """Return a size that holds all numbers; what is no number has none."""
    numbers = [size for size in sizes if size is not None]
    if not numbers:
        return None
    if all(size.width for size in numbers):
        return _Size(max(size.whole for size in numbers), max(size.width for size in numbers))
    decimals = [size.as_decimal for size in numbers]
    return _Size(max(size.whole for size in decimals), 0, max(size.scale for size in decimals))
