"""The rows that a statement writes: batches by operation and columns, from which keys can be removed again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.rows.batches import in_one
from ...schemas.rows.operation import Operation
from ..table.table_version import TableVersion
from ..vectors.arrow import from_arrow, to_arrow
from ..vectors.differing import differing
from ..vectors.keys.keys import U64Keys, keys_as_bytes
from ..vectors.physical import physical_of


def key_ids(rows: pa.RecordBatch, version: TableVersion) -> pa.Array:
    """Return one value per row of an ``update_where`` or another statement of the engine, which identifies its key;
    columns are named as in the table."""
    columns = [rows.column(column.name) for column in version.schema.key]
    keys = version.encoder.encode([from_arrow(cells, physical_of(cells.type)) for cells in columns])
    return pa.array(keys.values) if isinstance(keys, U64Keys) else to_arrow(keys_as_bytes(keys), pa.binary())


class StatementRows:
    """The rows that a statement writes so far. A key occurs once; to replace it, ``take_out`` and ``add`` again. For
    one thread."""

    def __init__(self, version: TableVersion, bytes_max: int) -> None:
        self._version = version
        self._bytes_max = bytes_max
        self._batches: dict[tuple[Operation, tuple[str, ...]], list[pa.RecordBatch]] = {}
        self.size_bytes = 0

    def add(self, operation: Operation, rows: pa.RecordBatch) -> None:
        """Add rows to write by an operation.

        Raises:
            InvalidArgumentError: all rows together are too large for one commit.
        """
        if rows.num_rows:
            self._batches.setdefault((operation, tuple(rows.schema.names)), []).append(rows)
            self.size_bytes += rows.nbytes
        if self.size_bytes > self._bytes_max:
            raise InvalidArgumentError(
                f"the statement changes rows of more than {self._bytes_max:,} bytes (keys and changed columns), too "
                "many for one commit; split it into several with where, such as by ranges of the key"
            )

    def take_out(self, ids: pa.Array) -> None:
        """Remove the rows of keys."""
        batches, self._batches, self.size_bytes = self._batches, {}, 0
        for (operation, _), parts in batches.items():
            for rows in parts:
                stays = pc.invert(pc.is_in(key_ids(rows, self._version), value_set=ids))
                self.add(operation, rows.filter(stays))

    def whole(self) -> Iterator[tuple[Operation, pa.RecordBatch]]:
        """Yield all rows of each operation and set of columns as one batch."""
        for (operation, _), parts in self._batches.items():
            yield operation, in_one(parts)


def distinct(rows: pa.RecordBatch, other: pa.RecordBatch, names: list[str]) -> dict[str, np.ndarray]:
    """Return, for each column, in which rows of a statement the cells of two batches differ; a NaN equals a NaN."""
    return {name: _differ(rows.column(name), other.column(name)) for name in names}


def _differ(one: pa.Array, other: pa.Array) -> np.ndarray:
    physical = physical_of(one.type)
    return differing(from_arrow(one, physical), from_arrow(other, physical))
