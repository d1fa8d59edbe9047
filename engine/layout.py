"""Layout: what a table is made of at one moment, replaced as a whole by an alteration.

A writer takes the layout, prepares its batch by it, takes the write locks of the tablets that the batch touches in
ascending tablet id, and then asks whether the table still has that layout: an alteration replaces it while it holds the
write locks of all tablets. A scan keeps the layout that it began with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ..schemas.column import ColumnSchema
from ..schemas.literal import from_json
from ..schemas.table import TableOptions, TableSchema
from .tablet.tablet import Tablet
from .vectors.key_encoder import KeyEncoder


@dataclass(frozen=True, eq=False)
class Layout:
    """Schema, options and tablets that go together; immutable. The tablets stand in ascending id."""

    schema: TableSchema
    options: TableOptions
    tablets: tuple[Tablet, ...]

    @cached_property
    def immutable(self) -> frozenset[int]:
        """The ids of the columns that only a new row may take."""
        return frozenset(column.id for column in self.schema.values if column.immutable)

    @cached_property
    def defaults(self) -> dict[int, pa.Scalar]:
        """What a new row gets in each column beside the key that its batch does not have, by column id."""
        return {column.id: _default_cell(column) for column in self.schema.values}

    @cached_property
    def default_bytes(self) -> dict[int, int]:
        """The size of each of ``defaults`` in a row."""
        return {column_id: pa.repeat(cell, 1).nbytes for column_id, cell in self.defaults.items()}

    @property
    def encoder(self) -> KeyEncoder:
        """The encoder of the table's keys."""
        return self.tablets[0].encoder

    def route(self, rows: pa.RecordBatch) -> list[tuple[Tablet, np.ndarray | None]]:
        """Return the tablets that hold ``rows``, in ascending id, each with the positions of its rows, ascending.

        There is at least one; None stands for all rows.
        """
        del rows
        return [(self.tablets[0], None)]


@contextmanager
def write_locks(tablets: Collection[Tablet]) -> Iterator[None]:
    """Hold the write locks of ``tablets``, taken in ascending id: so no two that take several wait for each other."""
    with ExitStack() as held:
        for tablet in sorted(tablets, key=lambda tablet: tablet.tablet_id):
            held.enter_context(tablet.write_lock)
        yield


def _default_cell(column: ColumnSchema) -> pa.Scalar:
    value = from_json(column.write_default, column.logical, f"the write_default of column {column.name!r}:")
    return pa.scalar(value, column.logical.arrow)
