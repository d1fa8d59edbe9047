"""Backups as a repair sees them: the rows of one tablet at one moment, by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ...schemas.description import TableDescription
from ...schemas.table import TableSchema
from ..rowset.diskrowset import DiskRowSet
from ..tablet.tablet import Tablet
from ..vectors.arrow import from_arrow, to_arrow
from ..vectors.keys import KeyVector, concat_keys, first_occurrences, hash_keys, take_keys
from ..vectors.physical import physical_of
from ..vectors.vector import Vector, conformed

Range = tuple[bytes | None, bytes | None]
"""Encoded keys, both themselves left out; None: from the least on, up to the greatest."""


class TabletBackup(Protocol):
    """The rows that a tablet, or more of its table, had at ``until``, in columns as the table has them now."""

    @property
    def until(self) -> int: ...

    @property
    def told(self) -> str:
        """What it is, in words: when it was made, and where it lies."""
        ...

    def rows_of(self, keys: pa.RecordBatch) -> pa.Table:
        """Return the rows of some keys, those that there are, in the order asked."""
        ...

    def batches(self, between: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows between two keys, in key order."""
        ...


class Backups(Protocol):
    """Where a repair takes from what no sound file has."""

    def of(self, about: TableDescription, tablet_ids: tuple[int, ...]) -> TabletBackup:
        """Return the newest backup of a table that has a tablet, by the numbers that it had.

        Raises:
            NotFoundError: there is none.
            StoreError: it cannot be read.
        """
        ...


class BackupRows:
    """A backup beside the rowsets of the tablet: what it has for rows that are there, and which rows only it has."""

    def __init__(self, backup: TabletBackup, tablet: Tablet, is_of_tablet: RowTest, sound: list[DiskRowSet]) -> None:
        """``sound`` are the rowsets of the tablet whose keys are all known."""
        self.until = backup.until
        self.told = backup.told
        self._backup = backup
        self._tablet = tablet
        self._is_of_tablet = is_of_tablet
        self._sound = sound
        self._known = np.empty(0, np.uint64)
        """The hashes of keys that are in no sound rowset. That two keys share theirs is rarer than a damaged disk."""

    def note(self, hashes: list[np.ndarray]) -> None:
        """Say which keys are, alive or dead, in rowsets that are not sound."""
        self._known = np.unique(np.concatenate([self._known, *hashes]))

    def find(self, keys: KeyVector, cells: dict[int, Vector]) -> tuple[np.ndarray, dict[int, Vector]]:
        """Return which of some rows, by position, the backup has, and their cells by column id; ``cells`` are those of
        the keys."""
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
        """Yield keys and cells, by column id, of rows of the tablet between two keys that no rowset knows."""
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
    """Says of rows, by their cells, which are meant."""

    def __call__(self, cells: dict[int, Vector], count: int) -> np.ndarray: ...


def _cells(rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> dict[int, Vector]:
    return {column.id: _vector(rows.column(column.name), column) for column in schema.columns}


def _vector(cells: pa.Array | pa.ChunkedArray, column: ColumnSchema) -> Vector:
    kind = column.logical.arrow
    if isinstance(cells, pa.ChunkedArray):
        cells = pa.concat_arrays(cells.chunks) if cells.num_chunks else pa.array([], kind)
    return conformed(from_arrow(cells.cast(kind), physical_of(kind)), physical_of(kind))
