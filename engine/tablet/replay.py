"""Applies changes of the log to a tablet, many at once, with the outcome that they have one after the other.

All keys are looked up before anything is applied. A key that no rowset has is inserted by the first change that stores
it and is not in files; what comes later in the log changes this row. Each column's deltas are appended in the order of
the log, so that those of a row are in the order of time, whatever other columns its changes have.

Changes may have an older schema: cells of dropped columns are skipped, narrower ones widened, and missing columns show
their read default.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..delta import LIVE
from ..kernels.log import replay as kernels
from ..record.change import ChangeKind
from ..record.logged_rows import LoggedRows
from ..rowset.location import ROWID_BITS, by_slot, pack, rowids_of
from ..rowset.rowset import RowSet
from ..vectors.keys.keys import KeyVector, concat_keys, first_occurrences, hash_keys, take_keys
from ..vectors.memory.memory import address_of, allocate
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import FixedVector, Vector, concat, conformed
from .tablet import Tablet


class LogTimes(NamedTuple):
    """The log position and timestamp (int64) of each part that a tablet replays, as ``LoggedRows.parts`` names them."""

    lsns: np.ndarray
    timestamps: np.ndarray


def replay(tablet: Tablet, forms: Sequence[LoggedRows], times: LogTimes) -> int:
    """Apply to a tablet what its files lack of logged changes, under the write lock; return the number of rows applied.

    Raises:
        CorruptionError, UnreadableFileError: keys of a rowset cannot be read.
    """
    lacking = [form for form in (_lacking(tablet, each, times) for each in forms) if len(form)]
    if not lacking:
        return 0
    tablet.replays(int(times.lsns[min(int(form.parts[0]) for form in lacking)]))
    if tablet.quarantine is not None:
        return 0
    tablet.make_room(int(times.lsns[-1]))
    changes = _LoggedChanges(tablet, lacking, times)
    changes.place()
    changes.insert()
    changes.change()
    tablet.rows_written += changes.row_count
    return changes.row_count


def _lacking(tablet: Tablet, form: LoggedRows, times: LogTimes) -> LoggedRows:
    """Return the rows whose changes files may lack."""
    is_lacking = times.lsns[form.parts] > tablet.in_files_lsn
    return form if is_lacking.all() else form.taken(np.flatnonzero(is_lacking))


class _ColumnGroup(NamedTuple):
    """Columns that occur in the same forms."""

    column_ids: list[int]
    members: np.ndarray
    """Of each form, whether it is one of those."""


class _LoggedChanges:
    """Rows of several forms in the order of the log. Call ``place``, ``insert`` and ``change``, in this order."""

    def __init__(self, tablet: Tablet, forms: Sequence[LoggedRows], times: LogTimes) -> None:
        self._tablet = tablet
        self._forms = forms
        keys = [tablet.encoder.encode([form.cells[column.id] for column in tablet.schema.key]) for form in forms]
        parts = np.concatenate([form.parts for form in forms])
        self._form = np.repeat(np.arange(len(forms)), [len(form) for form in forms])
        self._row = np.concatenate([np.arange(len(form)) for form in forms])
        self._keys: KeyVector = concat_keys(keys)
        if len(forms) > 1:
            order = np.argsort(parts, kind="stable")  # a change has one form: its rows stay together
            parts, self._form, self._row = parts[order], self._form[order], self._row[order]
            self._keys = take_keys(self._keys, order)
        self._lsns, self._timestamps = times.lsns[parts], times.timestamps[parts]
        self._stores = np.array([form.kind is ChangeKind.STORE for form in forms])[self._form]
        self._locations = np.empty(0, np.int64)
        self._outcomes = np.empty(0, np.uint8)
        self._joined: dict[int, Vector] = {}

    @property
    def row_count(self) -> int:
        """How many rows are applied."""
        return int(np.count_nonzero(self._outcomes != kernels.SKIPPED))

    def place(self) -> None:
        """Look up the keys, and decide what becomes of the rows."""
        tablet, count = self._tablet, len(self._lsns)
        tablet.key_lookup.build_for_searches(tablet.version, count)
        hashes = hash_keys(self._keys)
        firsts = first_occurrences(self._keys, hashes)
        locations = tablet.key_lookup.find(tablet.version, self._keys, hashes)
        durable = np.zeros(max(rowset.slot for rowset in tablet.version.rowsets()) + 1, np.int64)
        for rowset in tablet.version.on_disk:
            durable[rowset.slot] = rowset.durable_lsn
        active = tablet.version.active
        (next_location,) = pack(active.slot, np.array([len(active)]))
        self._locations, self._outcomes = locations, allocate(count, np.uint8)
        kernels.place_changes(
            address_of(self._stores.view(np.uint8)),
            address_of(self._lsns),
            address_of(firsts),
            address_of(locations),
            count,
            ROWID_BITS,
            address_of(durable),
            tablet.inserts_durable_lsn,
            int(next_location),
            address_of(self._outcomes),
        )

    def insert(self) -> None:
        """Append the new rows."""
        rows = np.flatnonzero(self._outcomes == kernels.INSERTED)
        cuts = np.flatnonzero(np.diff(self._form[rows])) + 1
        for those in np.split(rows, cuts) if len(rows) else ():
            form = self._forms[int(self._form[those[0]])]
            is_whole = len(those) == len(form)
            cells = form.cells if is_whole else form.taken(self._row[those]).cells
            keys = self._keys if len(those) == len(self._keys) else take_keys(self._keys, those)
            self._tablet.insert(cells, keys, self._timestamps[those], int(self._lsns[those[0]]))

    def change(self) -> None:
        """Append the deltas of rows that are there."""
        rows = np.flatnonzero(self._outcomes == kernels.CHANGED)
        locations = self._locations[rows]
        for slot, group in by_slot(locations):
            self._change_rowset(self._tablet.rowset(slot), rows[group], rowids_of(locations[group]))

    def _change_rowset(self, rowset: RowSet, rows: np.ndarray, rowids: np.ndarray) -> None:
        """Change some rows, given with their numbers in a rowset."""
        leaves_some = np.logical_or.reduce([group.members for group in self._column_groups])[self._form[rows]]
        if not leaves_some.any():
            return  # all of their columns were dropped after they were logged
        first_lsn = int(self._lsns[rows[np.argmax(leaves_some)]])
        for group in self._column_groups:
            chosen = group.members[self._form[rows]]
            if not chosen.any():
                continue
            those, numbers = (rows, rowids) if chosen.all() else (rows[chosen], rowids[chosen])
            columns = {column_id: self._cells(column_id, group.members, those) for column_id in group.column_ids}
            timestamps = FixedVector(self._timestamps[those])
            rowset.deltas.active.append(FixedVector(numbers.astype(np.int32)), timestamps, columns, first_lsn)
            if LIVE in columns:
                rowset.live.follow(numbers, self._stores[those])

    @cached_property
    def _column_groups(self) -> list[_ColumnGroup]:
        groups: dict[tuple[bool, ...], list[int]] = {}
        for column in self._tablet.schema.values:
            members = (column.id in form.cells for form in self._forms)
            groups.setdefault(tuple(members), []).append(column.id)
        living = (form.kind is not ChangeKind.UPDATE for form in self._forms)
        groups.setdefault(tuple(living), []).append(LIVE)
        return [_ColumnGroup(column_ids, np.array(members)) for members, column_ids in groups.items()]

    def _cells(self, column_id: int, members: np.ndarray, rows: np.ndarray) -> tuple[PhysicalType, Vector]:
        """Return the new cells of a column, whose forms are ``members``."""
        if column_id == LIVE:
            return PhysicalType.BOOL, FixedVector(self._stores[rows].astype(np.uint8))
        physical = physical_of(self._tablet.schema.by_id[column_id].logical.arrow)
        if column_id not in self._joined:
            vectors = [self._forms[form].cells[column_id] for form in np.flatnonzero(members).tolist()]
            self._joined[column_id] = conformed(concat(vectors), physical)
        counts = [len(form) if is_member else 0 for form, is_member in zip(self._forms, members, strict=True)]
        starts = np.cumsum([0, *counts[:-1]])
        places = starts[self._form[rows]] + self._row[rows]
        return physical, self._joined[column_id].take(places)
