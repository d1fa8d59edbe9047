"""The changes that a batch makes in one tablet, for the log and for memory."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...schemas.table.column import ColumnSchema
from ..record.change import Change, ChangeKind
from ..tablet.outcome import Outcome
from ..tablet.tablet import Tablet
from ..tablet.tablet_change import TabletChange
from .table_version import TableVersion


class DefaultCells(Protocol):
    """Computes the defaults of new rows."""

    def default(self, column: ColumnSchema, rows: pa.RecordBatch) -> pa.Array | None:
        """Return the default of a column for rows of a batch; None: it is the same in all rows. Raises
        InvalidArgumentError: it cannot be computed."""
        ...


def tablet_changes(version: TableVersion, tablet: Tablet, rows: pa.RecordBatch, decided: Outcome) -> list[TabletChange]:
    """Return what a tablet must log and apply for ``rows`` of a batch, whose columns are named by id."""
    changes: list[TabletChange] = []
    if len(decided.stores):
        stored = Change(tablet.tablet_id, ChangeKind.STORE, stored_rows(version, rows, decided))
        changes.append(TabletChange(tablet, stored, decided.store_locations))
    if len(decided.updates):
        updated = Change(tablet.tablet_id, ChangeKind.UPDATE, updated_rows(version, rows, decided))
        changes.append(TabletChange(tablet, updated, decided.update_locations))
    if len(decided.marks):
        changes += marked(version, tablet, taken(rows, decided.marks), decided.mark_locations)
    if len(decided.deletes):
        keys = taken(rows.select([str(column.id) for column in version.schema.key]), decided.deletes)
        deleted = Change(tablet.tablet_id, ChangeKind.DELETE, keys)
        changes.append(TabletChange(tablet, deleted, decided.delete_locations))
    return changes


def marked(version: TableVersion, tablet: Tablet, rows: pa.RecordBatch, locations: np.ndarray) -> list[TabletChange]:
    """Return what leaves the ordering values of a batch's deletes behind, before these: rows of keys that have none are
    stored, with cells that nobody sees."""
    new, changes = locations < 0, []
    if new.any():
        at = np.flatnonzero(new)
        stored = Change(tablet.tablet_id, ChangeKind.STORE, _unseen_rows(version, taken(rows, at)))
        changes.append(TabletChange(tablet, stored, locations[at], is_mark=True))
    if not new.all():
        at = np.flatnonzero(~new)
        update = Change(tablet.tablet_id, ChangeKind.UPDATE, taken(rows, at))
        changes.append(TabletChange(tablet, update, locations[at], is_mark=True))
    return changes


def _unseen_rows(version: TableVersion, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with every column of the table: NULL, or nothing, in those that a batch lacks."""
    present = set(rows.schema.names)

    def cells(column: ColumnSchema) -> pa.Array:
        if str(column.id) in present:
            return rows.column(str(column.id))
        kind = column.logical.arrow
        return pa.nulls(rows.num_rows, kind) if column.nullable else _nothing(rows.num_rows, kind)

    arrays = [cells(column) for column in version.schema.columns]
    return pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in version.schema.columns])


def _nothing(count: int, kind: pa.DataType) -> pa.Array:
    """Return cells that are zero, or empty."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.repeat(pa.scalar(b"").cast(kind), count)
    if pa.types.is_nested(kind):
        return pa.repeat(pa.scalar(_empty(kind), kind), count)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(count * kind.bit_width // 8 + 8))])


def _empty(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {}
    return [None] * kind.list_size if pa.types.is_fixed_size_list(kind) else []


def stored_rows(version: TableVersion, rows: pa.RecordBatch, decided: Outcome) -> pa.RecordBatch:
    """Return the rows of a batch that are stored, with every column of the table."""
    if decided.stored is not None:
        return decided.stored
    stored = first = taken(rows, decided.stores)
    if version.immutable and not np.array_equal(decided.stores, decided.store_leaders):
        first = taken(rows, decided.store_leaders)
    return whole_rows(version, stored, first)


def updated_rows(version: TableVersion, rows: pa.RecordBatch, decided: Outcome) -> pa.RecordBatch:
    """Return the keys of the live rows that a batch changes, and their new cells."""
    if decided.updated is not None:
        return decided.updated
    mutable = [name for name in rows.schema.names if int(name) not in version.immutable]
    return taken(rows.select(mutable), decided.updates)


def whole_rows(
    version: TableVersion, rows: pa.RecordBatch, first: pa.RecordBatch, defaults: DefaultCells | None = None
) -> pa.RecordBatch:
    """Return new rows of a batch with every column of the table, and defaults for missing columns.

    Immutable cells are those of ``first``, which has for each row the first row with its key. ``defaults`` computes
    those that are not the same in all rows, from ``first`` too; None: there are none.

    Raises:
        InvalidArgumentError: one cannot be computed.
    """
    present = set(rows.schema.names)

    def cells(column: ColumnSchema) -> pa.Array:
        if str(column.id) in present:
            return (first if column.id in version.immutable else rows).column(str(column.id))
        computed = None if defaults is None else defaults.default(column, first)
        return pa.repeat(version.defaults[column.id], rows.num_rows) if computed is None else computed

    arrays = [cells(column) for column in version.schema.columns]
    return pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in version.schema.columns])


def taken(rows: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    """Return the chosen rows of a batch; without a copy when these are all rows in their order."""
    return rows if len(chosen) == rows.num_rows and _is_ascending(chosen) else rows.take(pa.array(chosen))


def _is_ascending(rows: np.ndarray) -> bool:
    return len(rows) < 2 or bool((rows[1:] > rows[:-1]).all())
