"""Backups for a repair: the rows of one tablet at one timestamp, by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from ....schemas.store.description import TableDescription
from ....schemas.table.column import ColumnSchema
from ....schemas.table.table import TableSchema
from ...rowset.diskrowset import DiskRowSet
from ...tablet.tablet import Tablet
from ...vectors.arrow import from_arrow, to_arrow
from ...vectors.keys.keys import KeyVector, concat_keys, first_occurrences, hash_keys, take_keys
from ...vectors.physical import physical_of
from ...vectors.vector import Vector, conformed

Range = tuple[bytes | None, bytes | None]
"""Encoded keys, both exclusive; None: unbounded."""


class TabletBackup(Protocol):
    """A backup for a repair: the rows that a tablet, or more of its table, had at ``until``, in the table's present
    columns."""

    @property
    def until(self) -> int: ...

    @property
    def told(self) -> str:
        """Its time and location, as text."""
        ...

    def rows_of(self, keys: pa.RecordBatch) -> pa.Table:
        """Return the existing rows among some keys, in the order asked."""
        ...

    def batches(self, between: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows between two keys, in key order."""
        ...


class Backups(Protocol):
    """The backups that a repair can use."""

    def of(self, about: TableDescription, tablet_ids: tuple[int, ...]) -> TabletBackup:
        """Return the newest backup of a table with a tablet, given all ids that it has had.

        Raises:
            NotFoundError: there is none.
            StoreError: it cannot be read.
        """
        ...


class BackupRows:
    """A backup for a repair beside the rowsets of its tablet: finds its cells of existing rows, and rows that only it
    has."""

    def __init__(self, backup: TabletBackup, tablet: Tablet, is_of_tablet: RowTest, sound: list[DiskRowSet]) -> None:
        """``sound`` are the rowsets of the tablet whose keys are all readable."""
        self.until = backup.until
        self.told = backup.told
        self._backup = backup
        self._tablet = tablet
        self._is_of_tablet = is_of_tablet
        self._sound = sound
        self._known = np.empty(0, np.uint64)
        """Hashes of keys outside the sound rowsets. Two keys sharing one are rarer than a damaged disk."""

    def note(self, hashes: list[np.ndarray]) -> None:
        """Add keys, alive or dead, of rowsets that are not sound."""
        self._known = np.unique(np.concatenate([self._known, *hashes]))

    def find(self, keys: KeyVector, cells: dict[int, Vector]) -> tuple[np.ndarray, dict[int, Vector]]:
        """Return which of some rows, by position, the backup has, and their cells by column id; ``cells`` are the
        cells of the keys."""
        schema = self._tablet.schema
        arrays = [to_arrow(cells[column.id], column.logical.arrow) for column in schema.key]
        asked = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in schema.key])
        found = self._backup.rows_of(asked)
        theirs = _cells(found, schema)
        if not found.num_rows:
            return np.empty(0, np.int64), theirs
        both = concat_keys([keys, self._encoded(theirs)])
        return first_occurrences(both, hash_keys(both))[len(keys) :], theirs

    def missing(self, between: Range) -> Iterator[tuple[KeyVector, dict[int, Vector]]]:
        """Yield keys and cells, by column id, of the tablet's rows between two keys that no rowset has."""
        for batch in self._backup.batches(between):
            cells = _cells(batch, self._tablet.schema)
            keys = self._encoded(cells)
            hashes = hash_keys(keys)
            wanted = self._is_of_tablet(cells, batch.num_rows) & ~np.isin(hashes, self._known)
            for rowset in self._sound:
                wanted &= rowset.find(keys, hashes) < 0
            rows = np.flatnonzero(wanted)
            if len(rows):
                self.note([hashes[rows]])
                yield take_keys(keys, rows), {column_id: vector.take(rows) for column_id, vector in cells.items()}

    def _encoded(self, cells: dict[int, Vector]) -> KeyVector:
        return self._tablet.encoder.encode([cells[column.id] for column in self._tablet.schema.key])


class RowTest(Protocol):
    """Selects rows of a backup by their cells."""

    def __call__(self, cells: dict[int, Vector], count: int) -> np.ndarray: ...


def _cells(rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> dict[int, Vector]:
    return {column.id: _vector(rows.column(column.name), column) for column in schema.columns}


def _vector(cells: pa.Array | pa.ChunkedArray, column: ColumnSchema) -> Vector:
    kind = column.logical.arrow
    if isinstance(cells, pa.ChunkedArray):
        cells = pa.concat_arrays(cells.chunks) if cells.num_chunks else pa.array([], kind)
    return conformed(from_arrow(cells.cast(kind), physical_of(kind)), physical_of(kind))
