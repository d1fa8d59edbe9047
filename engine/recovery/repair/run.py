"""The repair of a store: finds damaged rowsets, repairs each, and commits all at once.

It reads every byte of the files under ``tablets/``. In a rowset with a damaged file, an older version of a cell is kept
if there is one, else NULL. A row is dropped if the column is NOT NULL or the key is lost:

* Without an UNDO file the rows are intact; snapshots before the base can no longer be read.
* If a page of a REDO file is damaged, its changes are lost, deletes too: older cells are shown, and dead rows come
  back. If its directory is damaged, all of its changes are lost.
* If a page of a file of rewritten columns is damaged, its older cells are shown.
* If a page of a base file is damaged, its cells become NULL, or its rows are dropped.
* A base file that is missing, or whose page directory is damaged, is dropped with all of its rows.

A backup supplies such cells and rows where nothing newer is known (`salvage`). The next start applies the log's records
of the tablet again, over all of it, as if its files held none of them. Log records contain the resulting rows, so
applying the end of the log to an older state leads to the same rows.

A repaired rowset is rewritten with its newest rows, without history. Then the manifest is committed, once for all.
Before that, every file of an old rowset gets a name under ``damaged/``, so that nothing is destroyed. A crash before
the commit leaves the store unchanged; one after it leaves orphans, which the next start removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

import numpy as np

from ....schemas.errors import CorruptionError, NotFoundError, StoreError, UnreadableFileError
from ....schemas.store.description import TableDescription
from ....schemas.table.partition_schema import UNPARTITIONED
from ...cfile.cache import PageCache
from ...cfile.reader import CFileReader
from ...fs.failures import is_of_the_file, named
from ...fs.filesystem import FileSystem
from ...home.checkpoint_mark import check_finished
from ...manifest import files
from ...manifest.environment import LooseFiles
from ...manifest.manifest import Manifest, ManifestFile, TableEntry, TabletEntry, read_manifest, read_with_damage
from ...manifest.place import PATH, ManifestInDirectory
from ...manifest.rowset_entry import RowsetEntry
from ...mvcc.clock import SystemClock
from ...partition.router import Router
from ...rowset.base_file import BaseFileWriter
from ...rowset.diskrowset import DiskRowSet
from ...table.stats import described
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.attach import logged_attachments, with_logged
from ...tablet.open import open_rowset, unlink_quietly
from ...tablet.tablet import Tablet
from ...vectors.vector import Vector
from .keeping import keep, set_aside
from .log import LogFound, finish, is_interrupted
from .report import LogRepair, RepairReport, RowsetRepair
from .salvage import Readings, Rows, Salvage, readable_hashes, restored
from .source import BackupRows, Backups


def repair_store(fs: FileSystem, apply: bool = False, backups: Backups | None = None) -> RepairReport:
    """Find out what a repair of a closed store would keep and lose; with ``apply`` do it.

    ``backups`` supply what no sound file has.

    Raises:
        NotFoundError: there is no store.
        UnavailableError: a process has it open, or the disk failed; nothing was changed.
        CorruptionError: the manifest and its copy are damaged, or the copy is of another time, so the meaning of the
            files is unknown; or a segment of the log is of another store, or another time.
        StorageFullError: nothing was changed.
    """
    check_finished(fs)
    if not fs.exists(PATH):
        raise NotFoundError("there is no store here, since there is no manifest")
    with fs.lock("lock"), named("the store could not be repaired"):
        try:
            manifest, damage = read_with_damage(fs)
        except CorruptionError as error:
            step = "restore each table into a new store with `nyala job restore TABLE FOLDER --data DIRECTORY`"
            why = f"{error.why}; this cannot be repaired: use a copy of the store, or {step}"
            raise CorruptionError(error.path, error.offset, why) from error
        if apply and damage:
            set_aside(fs, PATH)
            ManifestFile(ManifestInDirectory(fs), manifest).commit(lambda current: current)
        if is_interrupted(fs):
            if not apply:
                return RepairReport(log=LogRepair(["wal.repaired: a repair of the log was interrupted"]))
            finish(fs, ManifestFile(ManifestInDirectory(fs), manifest))
            manifest = read_manifest(fs)
        log = LogFound(fs, manifest)
        told = log.repair
        if apply and told:
            log.apply()
            manifest = read_manifest(fs)
            log = LogFound(fs, manifest)
        report = _Repair(fs, manifest, log, apply, backups).run()
        report.log, report.manifest = told, damage.message if damage else None
        report.is_applied = apply and report.is_needed
        return report


class _Repair:
    """One run over a store."""

    def __init__(self, fs: FileSystem, manifest: Manifest, log: LogFound, apply: bool, backups: Backups | None) -> None:
        attached = logged_attachments(log.records())
        self._fs = fs
        self._manifest = ManifestFile(ManifestInDirectory(fs), manifest)
        self._manifest.assume(
            lambda current: with_logged(current, attached), max((entry.id for _, entry in attached), default=0)
        )
        self._apply = apply
        self._backups = backups
        self._files = LooseFiles(fs, PageCache())
        self._report = RepairReport()
        firsts = (records.timestamps[records.lengths > 0][:1].tolist() for records in log.records())
        self._log_from = min(chain.from_iterable(firsts), default=None)
        self._old: list[str] = []
        """The files of replaced rowsets."""

    def run(self) -> RepairReport:
        new: dict[int, TabletEntry] = {}
        for table in self._manifest.current.tables:
            for entry in table.tablets:
                repaired = self._tablet(table, entry)
                if repaired is not entry:
                    new[entry.id] = repaired
        if any(repair.history_floor is None for repair in self._report.repairs):
            self._report.log_reaches_back_to = self._log_from
        if self._apply and new:
            keep(self._fs, self._old)
            edits = [(tablet_id, lambda _, entry=entry: entry) for tablet_id, entry in new.items()]
            self._manifest.commit(lambda manifest: manifest.with_tablets(edits))
            for path in self._old:
                unlink_quietly(self._fs, path)
            self._report.is_applied = True
        return self._report

    def _tablet(self, table: TableEntry, entry: TabletEntry) -> TabletEntry:
        damaged = {rowset.id: dict(self._damaged(entry, rowset)) for rowset in entry.rowsets}
        if not any(damaged.values()):
            return entry
        tablet = Tablet(entry.id, table.schema_, partition=entry.partition, directory_id=entry.home)
        lines = {number: [f"{path}: {why}" for path, why in found.items()] for number, found in damaged.items()}
        repairs = {number: RowsetRepair(table.name, entry.id, number, said) for number, said in lines.items() if said}
        needs_rows = any(is_lossy(rowset, entry, damaged[rowset.id]) for rowset in entry.rowsets)
        backup = self._backup_of(table, entry, tablet, damaged) if needs_rows else None
        floors = [entry.history_floor]
        kept: list[RowsetEntry] = []
        for rowset in entry.rowsets:
            repair = repairs.get(rowset.id)
            new = self._rowset(tablet, rowset, damaged[rowset.id], repair, backup) if repair else rowset
            kept += [new] if new else []
            if repair:
                self._report.repairs.append(repair)
                floors.append(_now(self._manifest, table) if repair.history_floor is None else repair.history_floor)
                gone = set(rowset.file_names).difference(new.file_names if new else ())
                self._old += [f"{files.directory(entry.home)}/{name}" for name in sorted(gone)]
        update = {"rowsets": tuple(kept), "history_floor": max(floors)}
        if needs_rows:  # the next start applies the log again
            update |= {"in_files_lsn": 0, "inserts_durable_lsn": 0}
        return entry.model_copy(update=update)

    def _damaged(self, entry: TabletEntry, rowset: RowsetEntry) -> Iterator[tuple[str, str]]:
        """Yield the damaged files of a rowset and what is wrong with each."""
        for name in rowset.file_names:
            path = f"{files.directory(entry.home)}/{name}"
            try:
                if not self._fs.exists(path):
                    raise CorruptionError(path, 0, "the file is missing")
                reader = CFileReader.open(self._fs, path, int(name.partition(".")[0]), self._files.page_cache)
                reader.verify()
                reader.close()
            except (CorruptionError, UnreadableFileError) as error:
                yield path, error.why
            except OSError as error:
                if not is_of_the_file(error):
                    raise
                yield path, f"it cannot be read: {error.strerror}"

    def _backup_of(
        self, table: TableEntry, entry: TabletEntry, tablet: Tablet, damaged: dict[int, dict[str, str]]
    ) -> BackupRows | None:
        """Return the backup with the known keys of the tablet; None if there is no backup."""
        if self._backups is None:
            return None
        try:
            backup = self._backups.of(self._described(table), (entry.id, *entry.aliases, *entry.ancestors))
        except StoreError as error:
            told = f"no backup of {table.name} can be used: {error.message}"
            if told not in self._report.advice:
                self._report.advice.append(told)
            return None
        sound = [open_rowset(tablet, self._files, each, slot=-1) for each in entry.rowsets if not damaged[each.id]]
        partitions = [each.partition for each in table.tablets]
        router = Router(table.partitions, table.schema_, partitions) if table.partitions != UNPARTITIONED else None
        number = next(place for place, each in enumerate(table.tablets) if each.id == entry.id)
        rows = BackupRows(backup, tablet, partial(_is_of_tablet, router, number), sound)
        for each in entry.rowsets:
            if damaged[each.id] and (rowset := self._opened(tablet, each, damaged[each.id], ())):
                rows.note(list(readable_hashes(rowset, table.schema_)))
        return rows

    def _described(self, table: TableEntry) -> TableDescription:
        tablets = tuple(Tablet(each.id, table.schema_, partition=each.partition) for each in table.tablets)
        version = TableVersion(table.schema_, table.options, tablets, table.partitions)
        return described(Table(table.id, table.name, version), self._manifest.current.store_uuid, None)

    def _rowset(
        self,
        tablet: Tablet,
        entry: RowsetEntry,
        damaged: dict[str, str],
        repair: RowsetRepair,
        backup: BackupRows | None,
    ) -> RowsetEntry | None:
        """Return the new manifest entry of a rowset with damaged files; None if nothing is left."""
        sound = self._opened(tablet, entry, damaged, damaged)
        if sound and not is_lossy(entry, tablet, damaged):
            repair.action, repair.rows_kept = "drop its history", len(sound)
            repair.history_floor = max(
                sound.base_timestamp, *(file.metadata.base_timestamp for file in sound.columns_files), 0
            )
            sound.close()
            return entry.model_copy(update={"undo": ()})
        repair.history_floor = None
        repair.backup = backup.told if backup else None
        if sound is None:
            repair.action, repair.rows_lost = "take it from the backup" if backup else "give it up", None
            return self._written(tablet, restored(backup, (None, None), None, repair))
        repair.action = "write it anew"
        best = self._opened(tablet, entry, damaged, ()) or sound
        salvage = Salvage(self._readings(entry, best, sound, repair, tablet), tablet.schema, repair, backup)
        try:
            return self._written(tablet, salvage.rows())
        finally:
            best.close()
            sound.close()

    def _opened(
        self, tablet: Tablet, entry: RowsetEntry, damaged: dict[str, str], without: Iterable[str]
    ) -> DiskRowSet | None:
        """Open a rowset without its history, the files ``without``, and damaged files that cannot be opened; None if
        its base file is one of those."""
        left_out = set(without) | {path for path in damaged if not self._can_be_opened(path)}

        def is_in(file_id: int, kind: str) -> bool:
            return files.path(tablet.directory_id, file_id, kind) not in left_out

        update = {
            "undo": (),
            "redo": tuple(file_id for file_id in entry.redo if is_in(file_id, "redo")),
            "columns": {column: file_id for column, file_id in entry.columns.items() if is_in(file_id, "base")},
        }
        try:
            return open_rowset(tablet, self._files, entry.model_copy(update=update), slot=-1)
        except (CorruptionError, UnreadableFileError):
            return None

    def _can_be_opened(self, path: str) -> bool:
        try:
            name = path.rpartition("/")[2]
            CFileReader.open(self._fs, path, int(name.partition(".")[0]), self._files.page_cache).close()
        except (CorruptionError, UnreadableFileError, OSError):
            return False
        return True

    def _readings(
        self, entry: RowsetEntry, best: DiskRowSet, sound: DiskRowSet, repair: RowsetRepair, tablet: Tablet
    ) -> Readings:
        """Return both ways to read a rowset; reports the files that cannot be read."""
        by_id = {column.id: column.name for column in tablet.schema.columns}
        in_best = {file.file_id for file in best.deltas.files}
        redo = [number for number in entry.redo if number not in in_best]
        columns = set(entry.columns) - set(best.columns)
        repair.changes_lost += [f"all changes and deletes in {number}.redo" for number in redo]
        rewritten = sorted(by_id[number] for number in columns if number in by_id)
        repair.changes_lost += [f"the newest cells of column {name}" for name in rewritten]
        return Readings(best, sound, None if redo else frozenset(columns))

    def _written(self, tablet: Tablet, rows: Iterator[Rows]) -> RowsetEntry | None:
        """Write the newest rows; None if there are none. A dry run only counts them."""
        schema = tablet.schema
        new_id = self._manifest.new_file_id()
        moment = max(min(_newest(self._manifest), (self._log_from or 1 << 63) - 1), 0)
        writer: BaseFileWriter | None = None
        try:
            for keys, alive, cells in rows:
                if writer is None and self._apply:
                    writer = self._writer(tablet, new_id, cells)
                if writer:
                    for column_id, vector in cells.items():
                        writer.append(column_id, vector)
                    writer.end_run(keys, alive)
            if writer is None:
                return None
            writer.finish(moment, schema.version)
            self._fs.sync_directory(files.directory(tablet.directory_id))
            return RowsetEntry(id=new_id, durable_lsn=0)
        finally:
            if writer:
                writer.abort()

    def _writer(self, tablet: Tablet, new_id: int, cells: dict[int, Vector]) -> BaseFileWriter:
        path = files.path(tablet.directory_id, new_id, "base")
        unlink_quietly(self._fs, path)  # from an interrupted repair: no manifest has this number
        return BaseFileWriter(self._fs, path, new_id, files.encodings(tablet.schema), cells, tablet.schema.row_column)


def is_lossy(rowset: RowsetEntry, home: TabletEntry | Tablet, damaged: dict[str, str]) -> bool:
    """Whether damaged files of a rowset cost more than history."""
    directory = home.home if isinstance(home, TabletEntry) else home.directory_id
    undo = {files.path(directory, number, "undo") for number in rowset.undo}
    return not undo.issuperset(damaged)


def _is_of_tablet(router: Router | None, number: int, cells: dict[int, Vector], count: int) -> np.ndarray:
    if router is None:
        return np.ones(count, np.bool_)
    return router.numbers_of_cells(cells, count) == number


def _newest(manifest: ManifestFile) -> int:
    return max([manifest.current.last_timestamp, *(table.last_change for table in manifest.current.tables)])


def _now(manifest: ManifestFile, table: TableEntry) -> int:
    """Return a timestamp after anything that clients may have read of the table: an incremental backup that continued
    from an earlier one would miss the losses."""
    return max(SystemClock().now(), _newest(manifest), table.last_change)
