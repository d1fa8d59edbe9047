"""Offline check of a data directory: every byte of every file, and that the files fit together.

Finds all errors that a scan would find, and more: in pages that no scan has read; files that nothing refers to; rows
out of order; keys in two rowsets; deltas of wrong rows or timestamps; NULLs in NOT NULL columns. Changes nothing on
disk.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from ...schemas.errors import CorruptionError, InvalidArgumentError, NotFoundError, StoreError
from ...schemas.limits.limits import Limits
from ...schemas.table.partition_schema import UNPARTITIONED
from ...schemas.table.table import TableSchema
from ..cfile.cache import PageCache
from ..cfile.format import StreamKey
from ..cfile.reader import CFileReader
from ..cfile.stream import StreamReader
from ..commit.authors_file import NAME as AUTHORS
from ..commit.authors_file import unpack_authors
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..compaction.key_merge import shared_key
from ..delta import LIVE
from ..delta.file import DeltaFile
from ..fs import document as documents
from ..fs.encryption.opening import damage_of_keys
from ..fs.failures import named
from ..fs.filesystem import FileSystem
from ..fs.subdirectory import DirectoryFileSystem
from ..home.checkpoint_mark import check_finished
from ..manifest import files, pin_note
from ..manifest.manifest import CleanStopEntry, Manifest, TabletEntry, read_with_damage, unpack_manifest
from ..manifest.place import COPY_PATH, PATH
from ..manifest.rowset_entry import RowsetEntry
from ..partition.router import Router
from ..record.logged_rows import rows_of
from ..record.parts import find_parts
from ..rowset.base_file import ColumnsFile
from ..rowset.diskrowset import DiskRowSet
from ..rowset.soundness import (
    verify_cells,
    verify_deltas,
    verify_keys,
    verify_nulls,
    verify_partition,
    verify_rows,
)
from ..tablet.attach import logged_attachments, with_logged
from ..tablet.tablet import Tablet
from ..transaction.staging.area import staged_files
from ..transaction.staging.file import read_info, read_rows
from ..wal.reader import CleanStop, LogReader
from ..wal.records import LogRecords, gathered
from ..wal.replacement import check_not_under_way
from .log_replay import restore_notes

_ROWS_AT_ONCE = 1 << 18
_LOG_BYTES_AT_ONCE = 8 << 20


@dataclass(slots=True)
class VerifyReport:
    """The counts of a verification, and its findings."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    log_records: int = 0
    problems: list[str] = field(default_factory=list)
    """One line for each problem: code, path, offset, reason."""
    notes: list[str] = field(default_factory=list)
    """Not problems, but worth knowing: files that a crash left, a torn end of the log."""

    @property
    def is_sound(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class _Scope:
    """Shared state of the checks of one table."""

    fs: FileSystem
    cache: PageCache
    schema: TableSchema
    report: VerifyReport

    def present(self, path: str) -> str:
        if not self.fs.exists(path):
            raise CorruptionError(path, 0, "the manifest names this file, but it is missing")
        return path

    def verify(self, reader: CFileReader) -> None:
        """Check every byte of a file and count it."""
        self.report.files += 1
        self.report.bytes += reader.size_bytes
        reader.verify()


Progress = Callable[[str], None]
Result = TypeVar("Result")


def verify_store(fs: FileSystem, progress: Progress | None = None) -> VerifyReport:
    """Check a store that no process has open.

    Raises:
        NotFoundError: there is no store.
        UnavailableError: a process has it open.
    """
    report = VerifyReport()
    check_finished(fs)
    if not fs.exists(PATH):
        raise NotFoundError("there is no store here, since there is no manifest")
    with fs.lock("lock"):
        found = attempt(report, lambda: read_with_damage(fs))
        if found is None:
            return report
        manifest, damage = found
        for each in (*damage_of_keys(fs), *([damage] if damage else ())):
            report.problems.append(f"{each.code}: {each.message}; its intact copy is used instead")
        attempt(report, lambda: _verify_copy(fs))
        report.files += 1
        manifest = with_logged(manifest, _attached(fs, manifest))
        verify_tables(fs, manifest, report, progress or (lambda path: None))
        attempt(report, lambda: _verify_log(fs, manifest, report))
        attempt(report, lambda: _verify_authors(fs, report))
        for path in staged_files(fs):
            attempt(report, partial(_verify_staged, fs, path, report))
        for directory in pin_note.kept(fs):
            attempt(report, partial(_verify_pin, fs, directory, report))
    return report


def log_reader(fs: FileSystem, manifest: Manifest) -> LogReader:
    """Return a reader of the log of a store to verify. Raises CorruptionError for a damaged one."""
    check_not_under_way(fs)
    stop: CleanStopEntry | None = manifest.clean_stop
    expect = CleanStop(stop.last_lsn, stop.crc) if stop else None
    return LogReader(fs, "wal", uuid.UUID(manifest.store_uuid).bytes, expect, manifest.last_durable_lsn)


def attached_rowsets(fs: FileSystem, manifest: Manifest) -> list[tuple[int, RowsetEntry]]:
    """Return the rowsets that the log of a store to verify attaches, each with its tablet. Raises CorruptionError for a
    damaged log."""
    return logged_attachments(log_reader(fs, manifest).records())


def _attached(fs: FileSystem, manifest: Manifest) -> list[tuple[int, RowsetEntry]]:
    """Return the rowsets that the log attaches; damage of the log is reported later."""
    try:
        return attached_rowsets(fs, manifest)
    except CorruptionError:
        return []


def verify_tables(
    fs: FileSystem, manifest: Manifest, report: VerifyReport, progress: Progress, pinned: Sequence[Manifest | None] = ()
) -> None:
    """Check all files of the tables, and note those that no table has. ``pinned`` are manifests of pins: of these, only
    rowsets with files that others do not name are checked. None: one cannot be read, so nobody knows what is left."""
    named: set[str] = set()
    for each in (manifest, *pinned):
        named |= _verify_named(fs, each, named, report, progress) if each else set()
    if None in pinned:
        return
    for path in _all_files(fs):
        if path not in named:
            report.notes.append(f"{path}: no table refers to this file; a crash left it, and the next start removes it")


def _verify_named(
    fs: FileSystem, manifest: Manifest, checked: set[str], report: VerifyReport, progress: Progress
) -> set[str]:
    """Check the files of a manifest, but for rowsets whose files are all ``checked``; return the paths of the rest."""
    named: set[str] = set()
    cache = PageCache()
    for table in manifest.tables:
        scope = _Scope(fs, cache, table.schema_, report)
        tablets = [tablet.partition for tablet in table.tablets]
        router = Router(table.partitions, table.schema_, tablets) if table.partitions != UNPARTITIONED else None
        for number, tablet in enumerate(table.tablets):
            for held in _held(tablet):
                sound: list[DiskRowSet] = []
                for rowset in held.rowsets:
                    if checked.issuperset(paths := _paths(held, rowset)):
                        continue
                    named.update(paths)
                    progress(files.path(held.home, rowset.id, "base"))
                    if found := attempt(report, partial(_verify_rowset, scope, held, rowset)):
                        sound.append(found)
                if router:
                    for rowset in sound:
                        attempt(report, partial(verify_partition, table.schema_, router, number, rowset))
                attempt(report, partial(_verify_disjoint, sound))
    return named


def _held(tablet: TabletEntry) -> list[TabletEntry]:
    """Return the tablet, and with an arriving move also the tablet that would replace it."""
    coming = tablet.arriving
    if coming is None:
        return [tablet]
    return [tablet, tablet.model_copy(update={"rowsets": coming.rowsets, "directory": coming.tablet})]


def _verify_rowset(scope: _Scope, tablet: TabletEntry, entry: RowsetEntry) -> DiskRowSet:
    """Check the files of a rowset; return it if its keys are sound, whatever else is not."""
    schema, report = scope.schema, scope.report
    base_path, *other_paths = _paths(tablet, entry)
    written_as = entry.written_as.get
    reader = CFileReader.open(scope.fs, scope.present(base_path), entry.id, scope.cache, written_as(entry.id))
    scope.verify(reader)
    rowset = DiskRowSet(entry.id, 0, reader, base_path, schema.key, Tablet(tablet.id, schema).encoder, entry.born)
    verify_keys(rowset)
    report.rows += len(rowset)
    attempt(report, partial(verify_rows, rowset))
    attempt(report, partial(verify_nulls, scope.schema, reader))
    attempt(report, partial(_verify_cells, scope, reader))
    moments: dict[int, int | None] = dict.fromkeys((LIVE, *schema.by_id), rowset.base_timestamp)
    column_files = sorted(set(entry.columns.values()))
    for path, file_id in zip(other_paths, column_files, strict=False):
        columns = [column_id for column_id, found in entry.columns.items() if found == file_id]
        moment = attempt(report, partial(_verify_columns, scope, path, file_id, columns, rowset, written_as(file_id)))
        moments.update(dict.fromkeys(columns, moment))
    deltas = [*((file_id, "undo") for file_id in entry.undo), *((file_id, "redo") for file_id in entry.redo)]
    for path, (file_id, kind) in zip(other_paths[len(column_files) :], deltas, strict=True):
        attempt(report, partial(_verify_deltas, scope, path, file_id, kind, rowset, moments, written_as(file_id)))
    reader.close()
    return rowset


def _verify_disjoint(rowsets: Sequence[DiskRowSet]) -> None:
    """Check that no key is in two rowsets of a tablet."""
    if shared := shared_key(rowsets):
        raise CorruptionError(shared.one.path, 0, f"a key of this rowset is also in {shared.other.path}")


def _verify_columns(
    scope: _Scope, path: str, file_id: int, column_ids: Sequence[int], rowset: DiskRowSet, written_as: int | None
) -> int:
    """Check that a base file with rewritten columns has those that the manifest expects. Return its timestamp."""
    file = ColumnsFile.open(scope.fs, scope.present(path), file_id, scope.cache, written_as)
    scope.verify(file.reader)
    rowset.load_columns(dict.fromkeys(column_ids, file))
    for column_id in column_ids:
        if StreamKey(column_id, "base") not in file.reader.streams():
            raise CorruptionError(path, 0, f"the manifest says this file has column {column_id}, but it does not")
    verify_nulls(scope.schema, file.reader)
    _verify_cells(scope, file.reader)
    file.close()
    return file.metadata.base_timestamp


def _verify_deltas(
    scope: _Scope,
    path: str,
    file_id: int,
    kind: str,
    rowset: DiskRowSet,
    moments: Mapping[int, int | None],
    written_as: int | None,
) -> None:
    """Check a delta file; ``moments`` are the timestamps of the columns' bases, as far as they are known."""
    file = DeltaFile.open(scope.fs, scope.present(path), file_id, kind, rowset.rowset_id, scope.cache, written_as)
    scope.verify(file.reader)
    for column_id in file.column_ids:
        stamps = verify_deltas(file.reader, column_id, len(rowset))
        moment = moments.get(column_id)
        if moment is not None and np.any(stamps <= moment if kind == "redo" else stamps > moment):
            raise CorruptionError(path, 0, f"column {column_id} has {kind} deltas on the wrong side of its base")
        column = scope.schema.by_id.get(column_id)
        if column and not column.nullable and _has_null(file.reader.stream(StreamKey(column_id, "value"))):
            raise CorruptionError(path, 0, f"column {column.name!r} is NOT NULL, but has a NULL")
    file.close()


def _verify_cells(scope: _Scope, reader: CFileReader) -> None:
    """Check text cells. A long one is only noted, as the store may have been used with other limits."""
    verify_cells(scope.schema, reader)
    try:
        verify_cells(scope.schema, reader, lambda column: scope.schema.stored_cell_bytes(column, Limits()))
    except CorruptionError as error:
        scope.report.notes.append(f"{error.message}, the default limit; a store may set another")


def _has_null(stream: StreamReader) -> bool:
    spans = (
        (first, min(first + _ROWS_AT_ONCE, stream.row_count)) for first in range(0, stream.row_count, _ROWS_AT_ONCE)
    )
    valid = (stream.read(first, last).valid for first, last in spans)
    return any(bits is not None and not bits.all() for bits in valid)


def _verify_log(fs: FileSystem, manifest: Manifest, report: VerifyReport) -> None:
    reader = log_reader(fs, manifest)
    if reader.first_lsn > manifest.log_needed_from:
        why = f"the log starts at record {reader.first_lsn}, but records from {manifest.log_needed_from} are needed"
        raise CorruptionError("wal", 0, why)
    verify_records(reader.records(), report)
    report.files += len(reader.segments)
    report.bytes += sum(segment.size_bytes for segment in reader.segments)
    if reader.torn_bytes:
        report.notes.append(
            f"wal: a torn tail of {reader.torn_bytes} bytes, never acknowledged; the next start removes it"
        )


def verify_records(log: Iterable[LogRecords], report: VerifyReport) -> None:
    """Check that the records of a log can be replayed, and count them."""
    writers, transaction_memory = NumberedWrites(), TransactionMemory()
    for records in gathered(log, _LOG_BYTES_AT_ONCE):
        report.log_records += len(records)
        parts = find_parts(records.first_lsn, records.addresses, records.lengths, records.memory)
        rows_of(parts.changes)
        restore_notes(parts, records.timestamps, writers, transaction_memory)


def _verify_authors(fs: FileSystem, report: VerifyReport) -> None:
    if fs.exists(AUTHORS):
        verify_authors(documents.read(fs, AUTHORS), report)


def verify_authors(document: bytes, report: VerifyReport) -> None:
    """Check the file with the users of commits, which a store opens without."""
    report.files += 1
    report.bytes += len(document)
    try:
        unpack_authors(document)
    except CorruptionError as error:
        report.problems.append(
            f"{error.code}: {error.message}; the store opens without this file, and older commits show no user"
        )
    except InvalidArgumentError as error:
        report.notes.append(f"{AUTHORS}: {error.message}; so this file is ignored")


def _verify_copy(fs: FileSystem) -> None:
    """Check the copy of the manifest that a clean stop left: it may be of an earlier state, but must be whole."""
    if not fs.exists(COPY_PATH):
        return
    try:
        unpack_manifest(documents.read(fs, COPY_PATH))
    except CorruptionError as error:
        raise CorruptionError(COPY_PATH, error.offset, f"{error.why}; the next clean stop writes it again") from error


def _verify_staged(fs: FileSystem, path: str, report: VerifyReport) -> None:
    if read_info(fs, path) is None:
        report.notes.append(f"{path}: incomplete staged rows, never acknowledged; the next start removes them")
        return
    for _ in read_rows(fs, path):
        pass
    report.files += 1
    report.bytes += fs.size(path)


def _verify_pin(fs: FileSystem, directory: str, report: VerifyReport) -> None:
    """Check the files of a pin that is kept."""
    note = pin_note.read_note(fs, directory)
    report.files += 1
    found = VerifyReport()
    verify_tables(DirectoryFileSystem(fs, directory), note.manifest, found, lambda path: None)
    report.files, report.bytes = report.files + found.files, report.bytes + found.bytes
    report.problems += [f"{directory}: {problem}" for problem in found.problems]


def attempt(report: VerifyReport, check: Callable[[], Result]) -> Result | None:
    """Run a check of a verification; a problem goes into the report, so that the other checks still run."""
    try:
        with named("a file could not be read"):
            return check()
    except StoreError as error:
        report.problems.append(f"{error.code}: {error.message}")
        return None


def _paths(tablet: TabletEntry, rowset: RowsetEntry) -> list[str]:
    return [f"{files.directory(tablet.home)}/{name}" for name in rowset.file_names]


def _all_files(fs: FileSystem) -> Iterator[str]:
    for tablet in fs.list(files.ROOT) if fs.exists(files.ROOT) else []:
        directory = f"{files.ROOT}/{tablet}"
        try:
            names = fs.list(directory)
        except NotADirectoryError:
            yield directory
            continue
        yield from (f"{directory}/{name}" for name in names)
