"""TabletChange: what a batch changes in one tablet, for the log and for memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..record.change import Change, ChangeKind
from ..tablet.outcome import Outcome
from ..tablet.tablet import Tablet
from .routed_batch import whole_rows
from .table_version import TableVersion


@dataclass(frozen=True, slots=True, eq=False)
class TabletChange:
    """A change to log and apply, with the locations of its rows."""

    tablet: Tablet
    change: Change
    locations: np.ndarray


def tablet_changes(version: TableVersion, tablet: Tablet, rows: pa.RecordBatch, decided: Outcome) -> list[TabletChange]:
    """Return what a tablet must log and apply for ``rows``, whose columns are named by id."""
    changes: list[TabletChange] = []

    def add(kind: ChangeKind, part: pa.RecordBatch, chosen: np.ndarray, locations: np.ndarray) -> None:
        if len(chosen):
            changes.append(TabletChange(tablet, Change(tablet.tablet_id, kind, taken(part, chosen)), locations))

    if len(decided.stores):
        stored = Change(tablet.tablet_id, ChangeKind.STORE, stored_rows(version, rows, decided))
        changes.append(TabletChange(tablet, stored, decided.store_locations))
    mutable = [name for name in rows.schema.names if int(name) not in version.immutable]
    add(ChangeKind.UPDATE, rows.select(mutable), decided.updates, decided.update_locations)
    keys = rows.select([str(column.id) for column in version.schema.key])
    add(ChangeKind.DELETE, keys, decided.deletes, decided.delete_locations)
    return changes


def stored_rows(version: TableVersion, rows: pa.RecordBatch, decided: Outcome) -> pa.RecordBatch:
    """Return the rows that are stored, with every column of the table."""
    stored = first = taken(rows, decided.stores)
    if version.immutable and not np.array_equal(decided.stores, decided.store_leaders):
        first = taken(rows, decided.store_leaders)
    return whole_rows(version, stored, first)


def taken(rows: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    """Return the chosen rows; without a copy when these are all rows in their order."""
    return rows if len(chosen) == rows.num_rows and _is_ascending(chosen) else rows.take(pa.array(chosen))


def _is_ascending(rows: np.ndarray) -> bool:
    return len(rows) < 2 or bool((rows[1:] > rows[:-1]).all())
