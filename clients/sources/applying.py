"""Applies the changes of a source to the tables of the store: the last change of each key, staged as few parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ...schemas.errors import NotFoundError
from ...schemas.rows.operation import Operation
from ...schemas.store.description import TableDescription
from ..api.database import Database
from ..convert.net_changes import net_changes
from ..convert.row_shapes import key_codes
from .source import ChangedRows, NewColumns, SourceChangedError, SourceTable, Step, Truncation
from .staging import StagedCommit
from .targets import AGAIN, follow_columns


class Applier:
    """Stages the steps of a source's batches. One thread uses it."""

    def __init__(self, database: Database, tables: list[SourceTable]) -> None:
        """Raises NotFoundError: a table of the store is gone."""
        self._database = database
        self.tables: dict[str, SourceTable] = {table.name: table for table in tables}
        """The source's tables by their names there."""
        self._about = {table.name: self._described(table) for table in tables}

    def apply(self, step: Step, staging: StagedCommit) -> None:
        """Stage one step.

        Raises:
            SourceChangedError: a table cannot follow its columns, or was dropped meanwhile.
        """
        if isinstance(step, NewColumns):
            self._about[step.table.name] = follow_columns(self._database, step.table, step.filled)
            self.tables[step.table.name] = step.table
        elif isinstance(step, Truncation):
            staging.truncate(self._about[step.table])
        else:
            self._stage(step, self._about[step.table], staging)

    def _stage(self, changes: ChangedRows, about: TableDescription, staging: StagedCommit) -> None:
        if changes.is_moved is not None:
            changes = self._with_moved_cells(changes, about, staging)
        rows, is_delete = changes.rows, changes.is_delete
        key = self.tables[changes.table].key
        names = rows.schema.names
        has = presence(changes)
        is_whole = len(names) == len(about.columns)
        resets = is_delete | has.all(axis=1) if is_whole else is_delete
        gone, images = net_changes(rows, key_codes(rows, key), names, is_delete, resets, has)
        if len(gone):
            staging.write(about, rows.select(key).take(pa.array(gone)), Operation.DELETE_IGNORE)
        for image in images:
            staging.write(about, image, Operation.UPSERT)

    def _with_moved_cells(self, changes: ChangedRows, about: TableDescription, staging: StagedCommit) -> ChangedRows:
        """Return changes whose rows under new keys have all cells: those that the source left out are read from the
        batch, or else from the store. Row by row: an update of the key beside a large value that stays is rare."""
        if staging.has(about.name):
            raise SourceChangedError(
                "the store cannot look up the large values of rows whose keys change, because one transaction changes "
                f"too many rows of {changes.table}: run ALTER TABLE {changes.table} REPLICA IDENTITY FULL in the "
                f"source, and {AGAIN}"
            )
        assert changes.is_moved is not None
        key = self.tables[changes.table].key
        keys = list(zip(*(changes.rows.column(name).to_pylist() for name in key), strict=True))
        absent = {name: mask.copy() for name, mask in changes.absent.items()}
        cells = {name: changes.rows.column(name).to_pylist() for name in absent}
        for at in np.flatnonzero(changes.is_moved):
            for name, mask in absent.items():
                if mask[at]:
                    cells[name][at] = self._cell(changes, keys, cells[name], mask, int(at) - 1, name)
                    mask[at] = False
        columns = {name: changes.rows.column(name) for name in changes.rows.schema.names}
        for name, values in cells.items():
            columns[name] = pa.array(values, changes.rows.schema.field(name).type)
        left = {name: mask for name, mask in absent.items() if mask.any()}
        whole = pa.RecordBatch.from_arrays(list(columns.values()), schema=changes.rows.schema)
        return ChangedRows(changes.table, whole, changes.is_delete, left)

    def _cell(
        self,
        changes: ChangedRows,
        keys: list[tuple[object, ...]],
        cells: list[object],
        absent: np.ndarray,
        before: int,
        name: str,
    ) -> object:
        """Return the cell that a key had before a change of the batch."""
        key = keys[before]
        for at in range(before - 1, -1, -1):
            if keys[at] == key and not changes.is_delete[at] and not absent[at]:
                return cells[at]
        row = self._database.table(self.tables[changes.table].target).get(key)
        if row is None:
            raise SourceChangedError(
                f"the store lacks the row of {changes.table} with the key {key}, because another writer deleted it: "
                f"{AGAIN}, and let no other program write to the table"
            )
        return row[name]

    def _described(self, table: SourceTable) -> TableDescription:
        try:
            return self._database._store.describe_table(table.target)
        except NotFoundError as error:
            raise NotFoundError(f"{error.message}, which mirrors {table.name}: {AGAIN}") from None


def presence(changes: ChangedRows) -> np.ndarray:
    """Return which cells the changes of a source bring: bools of rows by columns."""
    has = np.ones((changes.rows.num_rows, changes.rows.num_columns), np.bool_)
    absent: Mapping[str, np.ndarray] = changes.absent
    for at, name in enumerate(changes.rows.schema.names):
        if name in absent:
            has[:, at] = ~absent[name]
    return has
