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
from ..schemas.partition_schema import UNPARTITIONED, PartitionSchema
from ..schemas.table import TableOptions, TableSchema
from .partition.router import NOWHERE, Router
from .tablet.tablet import Tablet
from .vectors.arrow import from_arrow
from .vectors.keys import KeyEncoder, KeyVector
from .vectors.physical import physical_of


@dataclass(frozen=True, eq=False)
class Layout:
    """Schema, options and tablets that go together; immutable. The tablets stand in ascending id."""

    schema: TableSchema
    options: TableOptions
    tablets: tuple[Tablet, ...]
    partitions: PartitionSchema = UNPARTITIONED

    @cached_property
    def router(self) -> Router:
        """Finds the tablet of a row, by its place in ``tablets``."""
        return Router(self.partitions, self.schema, [tablet.partition for tablet in self.tablets])

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
        return {column_id: pa.array([cell.as_py()], cell.type).nbytes for column_id, cell in self.defaults.items()}

    @cached_property
    def encoder(self) -> KeyEncoder:
        """The encoder of the table's keys."""
        return KeyEncoder([physical_of(column.logical.arrow) for column in self.schema.key])

    def keys_of(self, rows: pa.RecordBatch) -> KeyVector:
        """Return the encoded keys of a batch whose columns are named by id."""
        columns = [rows.column(str(column.id)) for column in self.schema.key]
        return self.encoder.encode([from_arrow(cells, physical_of(cells.type)) for cells in columns])

    def covers(self, rows: pa.RecordBatch) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return where in ``tablets`` the tablet of each row is, and which rows (bool) have none.

        The first is None when all are in the one tablet that there is, the second when all have one. The columns of
        ``rows`` are named by id.
        """
        numbers = self.router.numbers_of(rows)
        if numbers is None:
            return None, None
        missing = numbers == NOWHERE
        return numbers, missing if missing.any() else None


def grouped(numbers: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Return the order that brings rows together by number, else as they stand, and (number, first, last) of each."""
    order = np.argsort(numbers, kind="stable")
    sorted_numbers = numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=-1))
    ends = np.append(starts[1:], len(numbers))
    return order, list(zip(sorted_numbers[starts].tolist(), starts.tolist(), ends.tolist(), strict=True))


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
