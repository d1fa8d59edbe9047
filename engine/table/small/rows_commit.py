"""Commits a few rows by their plan: decides, logs and applies them together, as one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from ....schemas.rows.write import Durability
from ...commit.commit_authors import Origin, origin_of
from ...commit.commit_log import Commit, CommitLog
from ...commit.numbered_writes import Ticket
from ...record.change import ChangeKind, pack_change, pack_record
from ...tablet.point_batch import places_of_keys
from ...tablet.tablet import Tablet
from ...vectors.raw_cell import one_cell
from ...vectors.vector import Vector
from ..table import Table
from ..table_version import write_locks
from .row_commit import applied, is_plain
from .row_plan import RowPlan, Written
from .rows_plan import PlannedRows, RowsOfTablet


class _RowsChange(NamedTuple):
    """What rows of a tablet change."""

    tablet: Tablet
    kind: ChangeKind
    cells: Mapping[int, Vector]
    locations: np.ndarray


def commit_together(
    table: Table, plan: RowPlan, planned: PlannedRows, log: CommitLog, durability: Durability, ticket: Ticket | None
) -> Commit | None:
    """Write rows of different keys as one commit; None, with nothing done, if only the batch lane can tell what
    becomes of one of them, or refuses it.

    Raises:
        InternalError: they were logged, and perhaps applied: nobody may try again.
        StorageFullError, UnavailableError: nothing was applied.
    """
    with _locks(planned.parts):
        if table.version is not plan.version or table.dropped_until is not None:
            return None
        changes: list[_RowsChange] = []
        for part in planned.parts:
            found = _changes(plan, part)
            if found is None:
                return None
            changes += found
        origin = origin_of(plan.operation, table.table_id, ticket)
        hashes = [part.hashes for part in planned.parts]
        return _committed(table, changes, hashes, planned.row_count, log, origin, durability, ticket)


def _committed(
    table: Table,
    changes: Sequence[_RowsChange],
    hashes: Sequence[np.ndarray],
    row_count: int,
    log: CommitLog,
    origin: Origin,
    durability: Durability,
    ticket: Ticket | None,
) -> Commit:
    said = None if ticket is None else applied(0, durability, row_count)
    record = pack_record([], [ticket.note(said)]) if ticket and said else []
    record += [pack_change(each.tablet.tablet_id, each.kind, each.cells, len(each.locations)) for each in changes]
    made: list[Commit] = []

    def apply(commits: Sequence[Commit]) -> None:
        made.extend(commits)
        log.authors.add((made[0].timestamp, origin))
        for each in changes:
            each.tablet.apply_cells(each.kind, each.cells, each.locations, made[0].timestamp, made[0].lsn)
        table.changed(made[0].timestamp, hashes)
        if ticket and said:
            ticket.keep(said, made[0].lsn, made[0].timestamp)

    log.commit_rows([b"".join(map(bytes, record))], durability, apply, may_wait=True)
    return made[0]


def _locks(parts: Sequence[RowsOfTablet]) -> AbstractContextManager[object]:
    return parts[0].tablet.write_lock if len(parts) == 1 else write_locks([part.tablet for part in parts])


def _changes(plan: RowPlan, part: RowsOfTablet) -> list[_RowsChange] | None:
    """Decide what becomes of the rows of a tablet; None if only the batch lane can tell, or refuses one."""
    if not is_plain(part.tablet):
        return None
    tablet, keys, hashes = part.tablet, part.keys, part.hashes
    locations, alive = places_of_keys(tablet, keys, hashes, plan.key_columns) or tablet.find(keys, hashes)
    absent = len(alive) - int(np.count_nonzero(alive))
    changes: list[_RowsChange] = []
    for written, count, chosen in ((plan.if_absent, absent, ~alive), (plan.if_alive, len(alive) - absent, alive)):
        if not count:
            continue
        if written is None:
            return None
        rows = None if count == len(alive) else np.flatnonzero(chosen)
        where = locations if rows is None else locations[rows]
        changes.append(_RowsChange(part.tablet, written.change.kind, _cells(written, part, rows), where))
    return changes


def _cells(written: Written, part: RowsOfTablet, rows: np.ndarray | None) -> dict[int, Vector]:
    """Return the cells that these rows of a part change, None for all rows, by column id."""
    count = len(part.hashes) if rows is None else len(rows)
    cells: dict[int, Vector] = {}
    for column_id, (i, default) in zip(written.ids, written.sources, strict=True):
        if i < 0:
            one = one_cell(default, written.values[column_id][0])
            cells[column_id] = one.take(np.zeros(count, np.int64))
        else:
            cells[column_id] = part.columns[i] if rows is None else part.columns[i].take(rows)
    return cells
