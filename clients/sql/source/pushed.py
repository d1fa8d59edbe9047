"""The filter that an engine pushes into a source, in SQL's logic: what the store evaluates of it, and what is left.

DataFusion never filters again what it has pushed, so nothing may be lost or be too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.errors import InvalidArgumentError
from .bounds import Tree, bound_of, fits, joined
from .evaluation import kept
from .parts import PushedPart, columns_of, conjuncts, part_of


@dataclass(frozen=True)
class PushedFilter:
    """A filter that an SQL engine pushes into a table, cut at its ANDs."""

    where: Tree | None = None
    """A filter for ``ScanSpec.where``. None selects all rows."""
    rest: tuple[PushedPart, ...] = ()
    """The conditions that ``where`` does not tell exactly."""

    @property
    def is_exact(self) -> bool:
        """Whether ``where`` selects exactly the rows of the filter, and none besides."""
        return not self.rest

    @property
    def columns(self) -> list[str]:
        """The columns that ``kept`` reads."""
        return list(dict.fromkeys(columns_of(self.rest)))

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that the filter selects, among those that ``where`` selects.

        Raises:
            InvalidArgumentError: the filter has a function that is not supported, or compares types without an order.
        """
        return kept(batch, self.rest)


def read_pushed(expression: Any, schema: pa.Schema) -> PushedFilter:
    """Read a filter that an SQL engine pushes: a ``pyarrow.compute.Expression``, or a bare true, false or None, as SQL
    means it.

    ``schema`` has the columns of the table. NaN equals itself and is greater than all numbers; IN and NOT IN are
    unknown for NULL.

    Raises:
        InvalidArgumentError: it names a column that the table lacks.
    """
    return pushed_of(conjuncts(part_of(expression)), schema)


def pushed_of(conditions: Sequence[PushedPart], schema: pa.Schema) -> PushedFilter:
    """Return the pushed filter of conditions that must all be true. Raises as ``read_pushed``."""
    for name in columns_of(conditions):
        if schema.get_field_index(name) < 0:
            raise InvalidArgumentError(f"the filter names the column {name!r}; there are: {', '.join(schema.names)}")
    trees: list[Tree] = []
    rest: list[PushedPart] = []
    for condition in conditions:
        bound = bound_of(condition, schema)
        taken = bound.tree is not None and fits(bound.tree, joined("and", trees) if trees else None)
        if taken and bound.tree is not None:
            trees.append(bound.tree)
        if not (taken and bound.is_exact):
            rest.append(condition)
    return PushedFilter(joined("and", trees) if trees else None, tuple(rest))


def one_nan(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch for an SQL engine in which every NaN is the same.

    A NaN has a sign and further bits, by which DataFusion tells and sorts them. Processors make negative ones: 0 / 0.
    """
    columns = batch.columns
    changed = False
    for place, column in enumerate(columns):
        if not pa.types.is_floating(column.type):
            continue
        is_nan = pc.is_nan(column)
        if is_nan.true_count:
            columns[place] = pc.if_else(is_nan, pa.scalar(float("nan"), column.type), column)
            changed = True
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if changed else batch
