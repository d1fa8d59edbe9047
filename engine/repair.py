"""Offline repair of a data directory: what can be kept of damaged files is kept, and what is lost is said.

The files under ``tablets/`` are read, every byte. Of a rowset with a damaged file, an older version of a cell is kept
where there is one, NULL where there is none, and a row is given up where a cell may not be NULL or its key is gone:

* Without an UNDO file the rows are as they were; moments before the base can no longer be read.
* Without a REDO file the changes in it are lost, deletes too: older cells are shown, and dead rows are back.
* Without a file of rewritten columns their older cells are shown.
* Where a page of a base file is damaged, its cells become NULL, or its rows are given up.
* A base file whose directory of pages is damaged, or that is missing, is given up with all of its rows.

A rowset is written anew with its rows as they are now, without their history. Then the manifest is committed, once for
all. Every file of an old rowset gets a name under ``damaged/`` before, so that nothing is destroyed; a crash before the
commit leaves the store as it was, one after it leaves orphans, which the next start sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ..schemas.column import ColumnSchema
from ..schemas.errors import CorruptionError, NotFoundError, UnreadableFileError
from ..schemas.table import TableSchema
from .cfile.cache import PageCache
from .cfile.reader import CFileReader
from .fs.failures import is_of_the_file, named
from .fs.filesystem import FileSystem, join, parent_of
from .fs.whole import bring
from .rowset.absent import absent_cells
from .rowset.base_file import BaseFileWriter
from .rowset.diskrowset import NEWEST, DiskRowSet
from .tablet import files
from .tablet.attach import with_logged
from .tablet.environment import LooseFiles
from .tablet.manifest import PATH, ManifestFile, RowsetEntry, TableEntry, TabletEntry, read_manifest
from .tablet.open import open_rowset, unlink_quietly
from .tablet.tablet import Tablet
from .vectors.arrow import to_arrow
from .vectors.keys import KeyVector
from .vectors.physical import physical_of
from .vectors.vector import Vector, zeros
from .verify import attached_rowsets

ROOT = "damaged"
"""Where the old files of repaired rowsets are kept."""
_DAMAGE = (CorruptionError, UnreadableFileError, OSError)


@dataclass(slots=True)
class RowsetRepair:
    """What is done about one rowset, and what is lost by it."""

    table: str
    tablet: int
    rowset: int
    damaged: list[str]
    """One line for each damaged file: path and why."""
    action: str = ""
    rows_kept: int = 0
    rows_lost: int | None = 0
    """None: all, and nobody knows how many there were."""
    keys_lost: list[str] = field(default_factory=list)
    """Ranges of keys, ends included, in which rows are lost."""
    cells_lost: dict[str, int] = field(default_factory=dict)
    """By column: cells of rows that are kept which are NULL now."""
    changes_lost: list[str] = field(default_factory=list)
    """Which changes are forgotten, so that older cells are shown."""
    history_floor: int = 0
    """Moments of the tablet before this timestamp can no longer be read."""


@dataclass(slots=True)
class RepairReport:
    """What can be done, or was."""

    is_applied: bool = False
    kept_in: str = ROOT
    repairs: list[RowsetRepair] = field(default_factory=list)


def repair_store(fs: FileSystem, apply: bool = False) -> RepairReport:
    """Find out what a repair of a store that no process has open would keep and lose; with ``apply`` make it.

    Raises:
        NotFoundError: there is no store.
        UnavailableError: a process has it open, or the disk failed; nothing was changed.
        CorruptionError: the manifest or the log is damaged: without them nobody knows what the files mean.
        StorageFullError: nothing was changed.
    """
    if not fs.exists(PATH):
        raise NotFoundError("there is no store here: a store has a manifest")
    with fs.lock("lock"), named("the store could not be repaired"):
        try:
            manifest = read_manifest(fs)
            attached = attached_rowsets(fs, manifest)
        except CorruptionError as error:
            why = f"{error.why}; this cannot be repaired: take the store from a copy, or its tables from a backup"
            raise CorruptionError(error.path, error.offset, why) from error
        file = ManifestFile(fs, manifest)
        file.assume(lambda current: with_logged(current, attached), max((entry.id for _, entry in attached), default=0))
        return _Repair(fs, file, apply).run()


class _Repair:
    """One run over a store."""

    def __init__(self, fs: FileSystem, manifest: ManifestFile, apply: bool) -> None:
        self._fs = fs
        self._manifest = manifest
        self._apply = apply
        self._files = LooseFiles(fs, PageCache())
        self._report = RepairReport()
        self._old: list[str] = []
        """The files of rowsets that have been replaced."""

    def run(self) -> RepairReport:
        new: dict[int, TabletEntry] = {}
        for table in self._manifest.current.tables:
            for entry in table.tablets:
                repaired = self._tablet(table, entry)
                if repaired is not entry:
                    new[entry.id] = repaired
        if self._apply and new:
            self._keep_old_files()
            edits = [(tablet_id, lambda _, entry=entry: entry) for tablet_id, entry in new.items()]
            self._manifest.commit(lambda manifest: manifest.with_tablets(edits))
            for path in self._old:
                unlink_quietly(self._fs, path)
            self._report.is_applied = True
        return self._report

    def _tablet(self, table: TableEntry, entry: TabletEntry) -> TabletEntry:
        tablet = Tablet(entry.id, table.schema_, partition=entry.partition, directory_id=entry.home)
        for rowset in entry.rowsets:
            damaged = dict(self._damaged(entry, rowset))
            if damaged:
                lines = [f"{path}: {why}" for path, why in damaged.items()]
                repair = RowsetRepair(table.name, entry.id, rowset.id, lines)
                repair.history_floor = max(self._manifest.current.last_timestamp, table.last_change)
                new = self._rowset(tablet, rowset, damaged, repair)
                self._report.repairs.append(repair)
                gone = set(rowset.file_names).difference(new.file_names if new else ())
                self._old += [f"{files.directory(entry.home)}/{name}" for name in sorted(gone)]
                kept = tuple(new if each.id == rowset.id else each for each in entry.rowsets)
                floor = max(entry.history_floor, repair.history_floor)
                update = {"rowsets": tuple(each for each in kept if each), "history_floor": floor}
                entry = entry.model_copy(update=update)
        return entry

    def _damaged(self, entry: TabletEntry, rowset: RowsetEntry) -> Iterator[tuple[str, str]]:
        """Yield the damaged files of a rowset and what is wrong with each."""
        for name in rowset.file_names:
            path = f"{files.directory(entry.home)}/{name}"
            try:
                if not self._fs.exists(path):
                    raise CorruptionError(path, 0, "the file is not there")
                reader = CFileReader.open(self._fs, path, int(name.partition(".")[0]), self._files.page_cache)
                reader.verify()
                reader.close()
            except (CorruptionError, UnreadableFileError) as error:
                yield path, error.why
            except OSError as error:
                if not is_of_the_file(error):
                    raise
                yield path, f"it cannot be read: {error.strerror}"

    def _rowset(
        self, tablet: Tablet, entry: RowsetEntry, damaged: dict[str, str], repair: RowsetRepair
    ) -> RowsetEntry | None:
        """Return what the manifest is to say of a rowset with damaged files; None for nothing at all."""

        def is_sound(file_id: int, kind: str) -> bool:
            return files.path(tablet.directory_id, file_id, kind) not in damaged

        sound = entry.model_copy(
            update={
                "undo": (),
                "redo": tuple(file_id for file_id in entry.redo if is_sound(file_id, "redo")),
                "columns": {column: file_id for column, file_id in entry.columns.items() if is_sound(file_id, "base")},
            }
        )
        try:
            rowset = open_rowset(tablet, self._files, sound, slot=-1)
        except (CorruptionError, UnreadableFileError):
            repair.action, repair.rows_lost = "give it up", None
            return None
        try:
            bases = [rowset.base_timestamp, *(file.metadata.base_timestamp for file in rowset.columns_files)]
            if sound.redo == entry.redo and sound.columns == entry.columns and is_sound(entry.id, "base"):
                repair.action, repair.rows_kept, repair.history_floor = "drop its history", len(rowset), max(bases)
                return sound
            repair.action = "write it anew"
            repair.history_floor = max(*bases, *(file.metadata.last_timestamp for file in rowset.deltas.files), 0)
            repair.changes_lost = _forgotten(entry, sound, tablet.schema)
            return self._written(tablet, rowset, entry, repair)
        finally:
            rowset.close()

    def _written(
        self, tablet: Tablet, rowset: DiskRowSet, entry: RowsetEntry, repair: RowsetRepair
    ) -> RowsetEntry | None:
        """Write the rows that can be read as they are now; None when there are none. A dry run counts them only."""
        schema = tablet.schema
        new_id = self._manifest.new_id()
        writer: BaseFileWriter | None = None
        try:
            for keys, alive, cells in _salvaged(rowset, schema, repair):
                if writer is None and self._apply:
                    path = files.path(tablet.directory_id, new_id, "base")
                    unlink_quietly(self._fs, path)  # of a repair that a crash stopped: no manifest knows the number
                    writer = BaseFileWriter(self._fs, path, new_id, files.encodings(schema), cells)
                if writer:
                    for column_id, vector in cells.items():
                        writer.append(column_id, vector)
                    writer.end_run(keys, alive)
            if writer is None:
                return None
            writer.finish(repair.history_floor, schema.version)
            self._fs.sync_directory(files.directory(tablet.directory_id))
            return RowsetEntry(id=new_id, durable_lsn=entry.durable_lsn)
        finally:
            if writer:
                writer.abort()

    def _keep_old_files(self) -> None:
        """Give the files that go a name under ``damaged/``, durably."""
        fs = self._fs
        directories = {parent_of(join(ROOT, path)) for path in self._old}
        for directory in sorted(directories):
            fs.make_directory(directory)
        for path in self._old:
            if fs.exists(path) and not fs.exists(join(ROOT, path)):
                try:
                    bring(fs, path, fs, join(ROOT, path))
                except OSError as error:
                    why = f"it cannot be kept under {ROOT}/ ({error.strerror}): move it away by hand"
                    raise UnreadableFileError(path, why) from error
        for directory in (*sorted(directories), join(ROOT, files.ROOT), ROOT, ""):
            fs.sync_directory(directory)


def _forgotten(entry: RowsetEntry, sound: RowsetEntry, schema: TableSchema) -> list[str]:
    """Say which changes are in no sound file."""
    by_id = {column.id: column.name for column in schema.columns}
    redo = [f"all changes and deletes in {number}.redo" for number in entry.redo if number not in sound.redo]
    rewritten = sorted(by_id[number] for number in set(entry.columns) - set(sound.columns) if number in by_id)
    return [*redo, *(f"the newest cells of column {name}" for name in rewritten)]


def _salvaged(
    rowset: DiskRowSet, schema: TableSchema, repair: RowsetRepair
) -> Iterator[tuple[KeyVector, np.ndarray, dict[int, Vector]]]:
    """Yield the rows whose keys can be read, a page at a time: keys, which of them live, cells by column id."""
    for first, last in _windows(rowset, schema):
        count = last - first
        try:
            keys = rowset.keys_in(first, last)
        except _DAMAGE:
            repair.rows_lost = (repair.rows_lost or 0) + count
            repair.keys_lost.append(f"above {_key(rowset, schema, first - 1)}, below {_key(rowset, schema, last)}")
            continue
        alive = _alive(rowset, first, last, repair)
        cells: dict[int, Vector] = {}
        is_lost = False
        for column in schema.columns:
            try:
                cells[column.id] = rowset.read(column, first, last, NEWEST)
            except _DAMAGE:
                cells[column.id] = _nothing(column, count)
                if column.nullable:
                    lost = repair.cells_lost.get(column.name, 0) + int(np.count_nonzero(alive))
                    repair.cells_lost[column.name] = lost
                is_lost = is_lost or not column.nullable
        if is_lost:
            repair.rows_lost = (repair.rows_lost or 0) + int(np.count_nonzero(alive))
            repair.keys_lost.append(f"{_key(rowset, schema, first)} to {_key(rowset, schema, last - 1)}")
            alive = np.zeros(count, np.bool_)
        repair.rows_kept += int(np.count_nonzero(alive))
        yield keys, alive, cells


def _alive(rowset: DiskRowSet, first: int, last: int, repair: RowsetRepair) -> np.ndarray:
    try:
        alive = rowset.live_in(first, last, NEWEST)
    except _DAMAGE:
        repair.changes_lost.append(f"which of {last - first:,} rows had been deleted before they were written")
        alive = None
    return np.ones(last - first, np.bool_) if alive is None else alive


def _windows(rowset: DiskRowSet, schema: TableSchema) -> list[tuple[int, int]]:
    """Return the rows cut wherever a page of a column begins: what cannot be read is not more than it must be."""
    streams = [rowset.base_stream(column.id) for column in schema.columns if rowset.has_base(column.id)]
    cuts = {0, len(rowset), *(stream.first_row(number) for stream in streams for number in range(stream.page_count))}
    return list(pairwise(sorted(cuts)))


def _nothing(column: ColumnSchema, count: int) -> Vector:
    """Return NULLs; zeroes where there may be none, for rows that are given up."""
    if column.nullable:
        return absent_cells(column.model_copy(update={"read_default": None}), count)
    return zeros(physical_of(column.logical.arrow), count)


def _key(rowset: DiskRowSet, schema: TableSchema, row: int) -> str:
    """Return the key of a row as a user knows it."""
    if not 0 <= row < len(rowset):
        return "the least key" if row < 0 else "the greatest key"
    try:
        cells = [to_arrow(rowset.base_at(column, np.array([row])), column.logical.arrow) for column in schema.key]
    except _DAMAGE:
        return "a key that cannot be read"
    return "(" + ", ".join(repr(cell[0].as_py()) for cell in cells) + ")"
