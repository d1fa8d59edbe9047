"""Reads what is left of a rowset with damaged files, page by page, and takes the rest from a backup.

For each cell, the newest known version wins. If a file cannot be read, an older file is used. A known change newer than
the backup precedes the backup; then come an older cell and, at last, NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ....schemas.cells.moment import python_cell
from ....schemas.errors import CorruptionError, UnreadableFileError
from ....schemas.table.column import ColumnSchema
from ....schemas.table.table import TableSchema
from ...cfile.format import StreamKey
from ...delta import LIVE
from ...rowset.diskrowset import NEWEST, DiskRowSet
from ...rowset.native.absent import absent_cells
from ...vectors.arrow import from_arrow, to_arrow
from ...vectors.differing import differing
from ...vectors.keys.keys import KeyVector, hash_keys, key_bytes
from ...vectors.physical import physical_of
from ...vectors.vector import FixedVector, Vector, concat, conformed, zeros
from .report import RowsetRepair
from .source import BackupRows, Range

_DAMAGE = (CorruptionError, UnreadableFileError, OSError)
Rows = tuple[KeyVector, np.ndarray, dict[int, Vector]]
"""Keys, a mask of live rows, cells by column id."""


@dataclass(frozen=True)
class Readings:
    """Two ways to read the rows of a damaged rowset."""

    best: DiskRowSet
    """With every file that can be opened, even with damaged pages."""
    sound: DiskRowSet
    """With sound files only, beside the base file."""
    older: frozenset[int] | None
    """Columns, or liveness, with newer cells in files that cannot be opened; None: any."""

    def is_older(self, column_id: int) -> bool:
        """Whether there may be newer cells than ``best`` shows."""
        return self.older is None or column_id in self.older


@dataclass(slots=True)
class _Cells:
    """The cells of a column in a window, by one of the readings."""

    vector: Vector
    reading: DiskRowSet
    is_newest: bool
    """False: there may be newer cells."""
    is_there: np.ndarray | None = None
    """Which rows have a cell; None: all."""


def readable_hashes(rowset: DiskRowSet, schema: TableSchema) -> Iterator[np.ndarray]:
    for first, last in _windows(rowset, schema):
        try:
            yield hash_keys(rowset.keys_in(first, last))
        except _DAMAGE:
            continue


class Salvage:
    """One pass over the rows of a damaged rowset. Counts its findings in ``repair``."""

    def __init__(
        self, readings: Readings, schema: TableSchema, repair: RowsetRepair, backup: BackupRows | None = None
    ) -> None:
        self._readings = readings
        self._rowset = readings.best
        self._schema = schema
        self._repair = repair
        self._backup = backup
        self._passed_over: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """By file and content: the rows that could not be read from it."""

    def rows(self) -> Iterator[Rows]:
        """Yield the rows with readable keys, and those that only the backup has, in key order."""
        lost, low = 0, None
        first_lost = 0
        for first, last in _windows(self._rowset, self._schema):
            try:
                keys = self._rowset.keys_in(first, last)
            except _DAMAGE:
                first_lost = first_lost if lost else first
                lost += self._live_count(first, last)
                self._note_lost_keys(first_lost if lost else first, last)
                continue
            if lost:
                yield from self.restored((low, key_bytes(keys, 0)), lost)
                lost = 0
            yield self._window(first, last, keys)
            low = key_bytes(keys, len(keys) - 1)
        if lost:
            yield from self.restored((low, None), lost)
        self._tell_passed_over()

    def restored(self, between: Range, lost: int | None) -> Iterator[Rows]:
        """Yield the rows between two keys that only the backup has; ``lost`` rows were there (None: unknown)."""
        yield from restored(self._backup, between, lost, self._repair)

    def _note_lost_keys(self, first: int, last: int) -> None:
        told = f"above {self._key(first - 1)}, below {self._key(last)}"
        before = f"above {self._key(first - 1)}, "
        lost = self._repair.keys_lost
        if lost and lost[-1].startswith(before):
            lost[-1] = told
        else:
            lost.append(told)

    def _window(self, first: int, last: int, keys: KeyVector) -> Rows:
        alive = self._live(first, last)
        columns = {column.id: self._cells(column, first, last) for column in self._schema.columns}
        theirs = self._theirs(keys, columns, alive)
        exists = self._exists(alive, theirs, first, last)
        lost = np.zeros(last - first, np.bool_)
        for column in self._schema.values:
            lost |= self._mend(column, columns[column.id], theirs, exists, first, last)
        if lost.any():
            self._repair.rows_lost = (self._repair.rows_lost or 0) + int(np.count_nonzero(lost))
            rows = np.flatnonzero(lost)
            self._repair.keys_lost.append(f"{self._key(first + int(rows[0]))} to {self._key(first + int(rows[-1]))}")
            exists = exists & ~lost
        self._repair.rows_kept += int(np.count_nonzero(exists))
        return keys, exists, {column_id: cells.vector for column_id, cells in columns.items()}

    # From the files

    def _cells(self, column: ColumnSchema, first: int, last: int) -> _Cells:
        best, sound = self._readings.best, self._readings.sound
        try:
            return _Cells(best.read(column, first, last, NEWEST), best, not self._readings.is_older(column.id))
        except _DAMAGE as error:
            self._pass_over(error, f"changes of column {column.name}", first, last)
        try:
            return _Cells(sound.read(column, first, last, NEWEST), sound, False)
        except _DAMAGE:
            return self._cells_of_deltas(column, first, last)

    def _cells_of_deltas(self, column: ColumnSchema, first: int, last: int) -> _Cells:
        """Return cells that changed since an unreadable base, and NULL or zero for the others."""
        empty = _nothing(column, last - first)
        for reading in (self._readings.best, self._readings.sound):
            try:
                vector = reading.deltas.apply(column.id, empty, first, NEWEST)
                is_there = np.zeros(last - first, np.bool_)
                is_there[reading.touched([column.id], first, last, NEWEST) - first] = True
            except _DAMAGE:
                continue
            return _Cells(vector, reading, False, is_there)
        return _Cells(empty, self._readings.sound, False, np.zeros(last - first, np.bool_))

    def _live(self, first: int, last: int) -> _Cells:
        """Return the liveness of each row as a cell."""
        everyone = np.ones(last - first, np.bool_)
        best, sound = self._readings.best, self._readings.sound
        try:
            alive = best.live_in(first, last, NEWEST)
            return _live_cells(everyone if alive is None else alive, best, not self._readings.is_older(LIVE))
        except _DAMAGE as error:
            self._pass_over(error, "deletes", first, last)
        try:
            alive = sound.live_in(first, last, NEWEST)
            return _live_cells(everyone if alive is None else alive, sound, False)
        except _DAMAGE:
            told = f"which of {last - first:,} rows had been deleted before they were written"
            self._repair.changes_lost.append(told)
            return _live_cells(everyone, sound, False)

    def _live_count(self, first: int, last: int) -> int:
        try:
            alive = self._rowset.live_in(first, last, NEWEST)
        except _DAMAGE:
            return last - first
        return last - first if alive is None else int(np.count_nonzero(alive))

    def _pass_over(self, error: Exception, what: str, first: int, last: int) -> None:
        path = getattr(error, "path", "")
        if not path.endswith(f"/{self._rowset.rowset_id}.base"):
            self._passed_over.setdefault((path.rpartition("/")[2], what), []).append((first, last))

    def _tell_passed_over(self) -> None:
        for (name, what), windows in self._passed_over.items():
            count = sum(last - first for first, last in windows)
            keys = f"{self._key(windows[0][0])} to {self._key(windows[-1][1] - 1)}"
            told = f"{what} in {name}, of up to {count:,} rows with keys {keys}"
            self._repair.changes_lost.append(told)

    # From the backup

    def _theirs(
        self, keys: KeyVector, columns: dict[int, _Cells], alive: _Cells
    ) -> tuple[np.ndarray, dict[int, Vector]] | None:
        """Return the backup's rows for a window; None if the backup is not needed."""
        if self._backup is None or all(cells.is_newest for cells in (*columns.values(), alive)):
            return None
        return self._backup.find(keys, {column.id: columns[column.id].vector for column in self._schema.key})

    def _exists(
        self, alive: _Cells, theirs: tuple[np.ndarray, dict[int, Vector]] | None, first: int, last: int
    ) -> np.ndarray:
        """Return which rows are alive."""
        assert isinstance(alive.vector, FixedVector)
        exists = alive.vector.values.astype(np.bool_)
        if theirs is None or alive.is_newest or self._is_newer(alive.reading, LIVE):
            return exists
        found = np.zeros(last - first, np.bool_)
        found[theirs[0]] = True
        return np.where(self._changed_since(alive.reading, LIVE, first, last), exists, found)

    def _mend(
        self,
        column: ColumnSchema,
        cells: _Cells,
        theirs: tuple[np.ndarray, dict[int, Vector]] | None,
        exists: np.ndarray,
        first: int,
        last: int,
    ) -> np.ndarray:
        """Use the backup's cells where nothing newer is known; return which rows are lost for lack of a cell."""
        missing = np.zeros(last - first, np.bool_) if cells.is_there is None else ~cells.is_there
        if theirs is not None and not cells.is_newest:
            positions, given = theirs
            wanted = missing.copy()
            if not self._is_newer(cells.reading, column.id):
                wanted |= ~self._changed_since(cells.reading, column.id, first, last)
            taken = np.flatnonzero(wanted[positions])
            if len(taken):
                before, rows = cells.vector, positions[taken]
                cells.vector = _replaced(before, rows, given[column.id].take(taken))
                self._count_mended(column, before, cells.vector, exists, missing)
                missing[rows] = False
        missing &= exists
        if not column.nullable:
            return missing
        if missing.any():
            lost = self._repair.cells_lost
            lost[column.name] = lost.get(column.name, 0) + int(np.count_nonzero(missing))
        return np.zeros(last - first, np.bool_)

    def _count_mended(
        self, column: ColumnSchema, before: Vector, after: Vector, exists: np.ndarray, missing: np.ndarray
    ) -> None:
        physical = physical_of(column.logical.arrow)
        differs = differing(conformed(before, physical), conformed(after, physical)) | missing
        if count := int(np.count_nonzero(differs & exists)):
            counts = self._repair.cells_from_backup
            counts[column.name] = counts.get(column.name, 0) + count

    def _is_newer(self, reading: DiskRowSet, column_id: int) -> bool:
        """Whether a column's base is newer than the backup."""
        return self._backup is not None and reading.deltas.base_timestamp(column_id) > self._backup.until

    def _changed_since(self, reading: DiskRowSet, column_id: int, first: int, last: int) -> np.ndarray:
        """Return the rows with a known change after the backup."""
        changed = np.zeros(last - first, np.bool_)
        for file in reading.deltas.files:
            if self._backup and column_id in file.column_ids:
                try:
                    stamps = file.stamps(column_id, first, last, self._backup.until, NEWEST)
                except _DAMAGE:
                    continue
                if stamps:
                    changed[stamps[0] - first] = True
        return changed

    def _key(self, row: int) -> str:
        """Return the key of a row as text."""
        if not 0 <= row < len(self._rowset):
            return "the least key" if row < 0 else "the greatest key"
        try:
            cells = [
                to_arrow(self._rowset.base_at(column, np.array([row])), column.logical.arrow)
                for column in self._schema.key
            ]
        except _DAMAGE:
            return "a key that cannot be read"
        return "(" + ", ".join(repr(python_cell(cell[0])) for cell in cells) + ")"


def restored(backup: BackupRows | None, between: Range, lost: int | None, repair: RowsetRepair) -> Iterator[Rows]:
    """Yield the rows of a damaged rowset between two keys that only the backup has; ``lost`` rows were there (None:
    unknown)."""
    count = 0
    for keys, cells in backup.missing(between) if backup else ():
        count += len(keys)
        yield keys, np.ones(len(keys), np.bool_), cells
    repair.rows_from_backup += count
    repair.rows_lost = None if lost is None else (repair.rows_lost or 0) + max(lost - count, 0)


def _windows(rowset: DiskRowSet, schema: TableSchema) -> list[tuple[int, int]]:
    """Return row ranges that end wherever a page of a column, or of its changes, begins, to lose no more rows than
    necessary."""
    streams = [rowset.base_stream(column.id) for column in schema.columns if rowset.has_base(column.id)]
    cuts = {0, len(rowset), *(stream.first_row(number) for stream in streams for number in range(stream.page_count))}
    for file in rowset.deltas.files:
        for column_id in file.column_ids:
            zones = file.reader.stream(StreamKey(column_id, "rowid")).zone_maps
            cuts.update(row for zone in zones for row in (int(zone.min or 0), int(zone.max or 0) + 1))
    return list(pairwise(sorted(cut for cut in cuts if cut <= len(rowset))))


def _live_cells(alive: np.ndarray, reading: DiskRowSet, is_newest: bool) -> _Cells:
    return _Cells(FixedVector(alive.astype(np.uint8)), reading, is_newest)


def _nothing(column: ColumnSchema, count: int) -> Vector:
    """Return NULLs; zeroes or empty cells in a NOT NULL column, for rows that are dropped."""
    if column.nullable:
        return absent_cells(column.model_copy(update={"read_default": None}), count)
    kind = column.logical.arrow
    if pa.types.is_nested(kind):
        return from_arrow(pa.array([_empty(kind)] * count, kind), physical_of(kind))
    return zeros(physical_of(kind), count)


def _empty(kind: pa.DataType) -> object:
    """Return the least that a nested cell holds."""
    if pa.types.is_struct(kind):
        return {}
    return [None] * kind.list_size if pa.types.is_fixed_size_list(kind) else []


def _replaced(vector: Vector, rows: np.ndarray, cells: Vector) -> Vector:
    """Return a vector with other cells in some rows."""
    places = np.arange(len(vector))
    places[rows] = len(vector) + np.arange(len(rows))
    return concat([vector, cells]).take(places)
