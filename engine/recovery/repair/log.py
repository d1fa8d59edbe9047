"""Repair of a damaged log: keeps all sound records, and puts empty records in the place of lost ones.

Records after a gap are kept too. Some tablets' files contain them anyway, so the store has no consistent timestamp
either way. Records contain whole rows, and a commit is one record. A change of a row that a lost record inserted finds
no row, and is skipped.

The tablets of the lost records are unknown; those whose files hold all changes up to there have lost nothing. The
history of the others begins at the repair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from uuid import UUID

from ....schemas.errors import CorruptionError, UnreadableFileError
from ...fs.filesystem import FileSystem
from ...manifest import files
from ...manifest.manifest import Manifest, ManifestFile, TabletEntry
from ...manifest.place import ManifestInDirectory
from ...mvcc.clock import SystemClock
from ...record.logged_rows import rows_of
from ...record.parts import find_parts
from ...tablet.attach import logged_attachments, with_logged
from ...wal import replacement
from ...wal.records import LogRecords
from ...wal.salvage import Hole, LogSalvage
from ..verify import log_reader
from .keeping import keep
from .report import LogRepair

LOG = "wal"


class LogFound:
    """A damaged log as it is, or as a repair will write it."""

    def __init__(self, fs: FileSystem, manifest: Manifest) -> None:
        """Raises CorruptionError if the log cannot be repaired."""
        self._fs = fs
        self._manifest = manifest
        self.repair: LogRepair | None = None
        """The repair; None if the log is sound."""
        self._last_lost = 0
        if why := self._fault():
            self.repair = LogRepair([])
            self._look(why)

    def records(self) -> Iterator[LogRecords]:
        """Yield all readable records."""
        if self.repair is None:
            yield from log_reader(self._fs, self._manifest).records()
            return
        for each in self._salvage().found():
            if not isinstance(each, Hole):
                yield each.records

    def apply(self) -> None:
        """Replace the damaged log by the repaired one; the old files are kept.

        Raises:
            StorageFullError: there is no room for both; nothing was changed.
        """
        assert self.repair is not None, "a sound log is left alone"
        keep(self._fs, [*self._salvage().paths, *self.repair.set_aside])
        hurt = [tablet.id for _, tablet in self._hurt()]
        uuid = UUID(self._manifest.store_uuid).bytes
        replacement.write(self._fs, self._salvage(), uuid, json.dumps({"tablets": hurt}).encode())
        finish(self._fs, ManifestFile(ManifestInDirectory(self._fs), self._manifest))

    def _fault(self) -> str | None:
        try:
            reader = log_reader(self._fs, self._manifest)
            for _ in reader.runs():
                pass
        except CorruptionError as error:
            return f"{error.path} at byte {error.offset}: {error.why}"
        except UnreadableFileError as error:
            return f"{error.path}: {error.why}"
        if reader.first_lsn > self._manifest.log_needed_from:
            needed = self._manifest.log_needed_from
            return f"{LOG}: it starts at record {reader.first_lsn}, but records from {needed} are needed"
        return None

    def _salvage(self) -> LogSalvage:
        manifest = self._manifest
        tablets = [tablet for table in manifest.tables for tablet in table.tablets]
        told = [max(tablet.in_files_lsn, tablet.attached_durable_lsn) for tablet in tablets]
        stop = manifest.clean_stop.last_lsn if manifest.clean_stop else 0
        reached = max(manifest.last_durable_lsn, stop, manifest.log_needed_from - 1, *told, 0)
        return LogSalvage(self._fs, LOG, UUID(manifest.store_uuid).bytes, manifest.log_needed_from, reached)

    def _look(self, why: str) -> None:
        repair = self.repair
        assert repair is not None
        salvage = self._salvage()
        for each in salvage.found():
            if isinstance(each, Hole):
                repair.records_lost += each.last_lsn + 1 - each.first_lsn
                self._last_lost = each.last_lsn
                continue
            repair.records_kept += len(each.records)
            if self._last_lost:
                repair.records_after += len(each.records)
                repair.rows_after += _row_count(each.records)
        repair.damaged = salvage.faults or [why]
        if self._last_lost:
            repair.tablets = [f"{name}/{tablet.id}" for name, tablet in self._hurt()]
            repair.set_aside = list(self._nameless())

    def _hurt(self) -> Iterable[tuple[str, TabletEntry]]:
        for table in self._manifest.tables:
            for tablet in table.tablets:
                if tablet.elsewhere is None and tablet.in_files_lsn < self._last_lost:
                    yield table.name, tablet

    def _nameless(self) -> Iterator[str]:
        manifest = with_logged(self._manifest, logged_attachments(self.records()))
        tablets = [tablet for table in manifest.tables for tablet in table.tablets]
        named = {
            f"{files.directory(each.home)}/{name}"
            for each in tablets
            for row in each.rowsets
            for name in row.file_names
        }
        for each in tablets:
            if each.arriving:
                named |= {f"{files.directory(each.arriving.tablet)}/{name}" for name in each.arriving.file_names}
        for directory in self._fs.list(files.ROOT) if self._fs.exists(files.ROOT) else []:
            try:
                names = self._fs.list(f"{files.ROOT}/{directory}")
            except NotADirectoryError:
                continue
            yield from (path for name in names if (path := f"{files.ROOT}/{directory}/{name}") not in named)


def is_interrupted(fs: FileSystem) -> bool:
    """Whether a repair of the log was interrupted; ``finish`` completes it."""
    return replacement.note_of(fs) is not None


def finish(fs: FileSystem, manifest: ManifestFile) -> None:
    """Finish the repair of a log: install the log that was written. Can be repeated after a crash."""
    note = replacement.note_of(fs)
    assert note is not None, "there is a log to put in place"
    floor = max(SystemClock().now(), manifest.current.last_timestamp)

    def edit(entry: TabletEntry) -> TabletEntry:
        return entry.model_copy(update={"history_floor": max(entry.history_floor, floor)})

    def edited(current: Manifest) -> Manifest:
        hurt = [(tablet_id, edit) for tablet_id in json.loads(note)["tablets"]]
        return current.with_tablets(hurt).model_copy(update={"clean_stop": None})

    manifest.commit(edited)
    replacement.finish(fs, LOG)


def _row_count(records: LogRecords) -> int:
    parts = find_parts(records.first_lsn, records.addresses, records.lengths, records.memory)
    return sum(map(len, rows_of(parts.changes)))
