"""Offline check of a data directory: every byte of every file, and that the files fit together.

Finds all that a scan would find, and more: pages that no scan has touched, files that nothing names, rows that are out
of order, deltas of rows that are not there. Changes nothing on disk.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ..schemas.errors import CorruptionError, NotFoundError, StoreError
from ..schemas.table import TableSchema
from .cfile.cache import PageCache
from .cfile.format import StreamKey
from .cfile.reader import CFileReader
from .fs.failures import named
from .fs.filesystem import FileSystem
from .rowset.base_file import ColumnsFile
from .rowset.diskrowset import DiskRowSet
from .tablet import files
from .tablet.change import unpack_changes, unpack_notes
from .tablet.manifest import PATH, CleanStopEntry, Manifest, RowsetEntry, TabletEntry, read_manifest
from .tablet.tablet import Tablet
from .vectors.keys import key_bytes, keys_ascend
from .vectors.vector import FixedVector
from .wal.reader import CleanStop, LogReader
from .writers import Writers

_ROWS_AT_ONCE = 1 << 18


@dataclass(slots=True)
class VerifyReport:
    """What was checked, and what is wrong."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    log_records: int = 0
    problems: list[str] = field(default_factory=list)
    """One line each: code, path, offset, what is wrong."""
    notes: list[str] = field(default_factory=list)
    """What is not wrong but worth knowing: files that a crash left, a torn tail of the log."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


Progress = Callable[[str], None]
Result = TypeVar("Result")


def verify_store(fs: FileSystem, progress: Progress | None = None) -> VerifyReport:
    """Check a store that no process has open.

    Raises:
        NotFoundError: there is no store.
        UnavailableError: a process has it open.
    """
    report = VerifyReport()
    if not fs.exists(PATH):
        raise NotFoundError("there is no store here: a store has a manifest")
    with fs.lock("lock"):
        manifest = _attempt(report, lambda: read_manifest(fs))
        if manifest is None:
            return report
        report.files += 1
        _verify_tables(fs, manifest, report, progress or (lambda path: None))
        _attempt(report, lambda: _verify_log(fs, manifest, report))
    return report


def _verify_tables(fs: FileSystem, manifest: Manifest, report: VerifyReport, progress: Progress) -> None:
    named: set[str] = set()
    cache = PageCache()
    for table in manifest.tables:
        for tablet in table.tablets:
            for rowset in tablet.rowsets:
                named |= set(_paths(tablet, rowset))
                progress(files.path(tablet.id, rowset.id, "base"))
                _attempt(report, lambda r=rowset, t=tablet, s=table.schema_: _verify_rowset(fs, t, r, s, cache, report))
    for path in _all_files(fs):
        if path not in named:
            report.notes.append(f"{path}: no table names this file; a crash left it, the next start removes it")


def _verify_rowset(
    fs: FileSystem, tablet: TabletEntry, entry: RowsetEntry, schema: TableSchema, cache: PageCache, report: VerifyReport
) -> None:
    base_path, *other_paths = _paths(tablet, entry)
    if not fs.exists(base_path):
        raise CorruptionError(base_path, 0, "the manifest names this file, but it is not there")
    reader = CFileReader.open(fs, base_path, entry.id, cache)
    _count(reader, report)
    reader.verify()
    rowset = DiskRowSet(entry.id, 0, reader, base_path, schema.key, Tablet(tablet.id, schema).encoder)
    _verify_keys(rowset)
    report.rows += len(rowset)
    column_files = sorted(set(entry.columns.values()))
    for path, file_id in zip(other_paths, column_files, strict=False):
        _attempt(report, lambda p=path, f=file_id: _verify_columns(fs, p, f, entry, rowset, cache, report))
    for path, file_id in zip(other_paths[len(column_files) :], (*entry.undo, *entry.redo), strict=True):
        _attempt(report, lambda p=path, f=file_id: _verify_deltas(fs, p, f, len(rowset), cache, report))
    reader.close()


def _verify_keys(rowset: DiskRowSet) -> None:
    """Check that the rows stand in the order of their keys, without repeats, from the first key to the last."""
    previous = b""
    for first in range(0, len(rowset), _ROWS_AT_ONCE):
        keys = rowset.keys_in(first, min(first + _ROWS_AT_ONCE, len(rowset)))
        lowest = key_bytes(keys, 0)
        if not keys_ascend(keys) or (first and lowest <= previous):
            raise CorruptionError(rowset.path, 0, f"rows from {first} on are not in the order of their keys")
        if first == 0 and lowest != rowset.min_key:
            raise CorruptionError(rowset.path, 0, "the first key is not the one in the footer")
        previous = key_bytes(keys, len(keys) - 1)
    if previous != rowset.max_key:
        raise CorruptionError(rowset.path, 0, "the last key is not the one in the footer")


def _verify_columns(
    fs: FileSystem,
    path: str,
    file_id: int,
    entry: RowsetEntry,
    rowset: DiskRowSet,
    cache: PageCache,
    report: VerifyReport,
) -> None:
    """Check a base file with rewritten columns: those that the manifest finds there are in it."""
    if not fs.exists(path):
        raise CorruptionError(path, 0, "the manifest names this file, but it is not there")
    file = ColumnsFile.open(fs, path, file_id, cache)
    _count(file.reader, report)
    file.reader.verify()
    columns = {column_id: file for column_id, found in entry.columns.items() if found == file_id}
    rowset.load_columns(columns)
    for column_id in columns:
        if StreamKey(column_id, "base") not in file.reader.streams():
            raise CorruptionError(path, 0, f"the manifest finds column {column_id} in this file, but it is not there")
    file.close()


def _verify_deltas(
    fs: FileSystem, path: str, file_id: int, row_count: int, cache: PageCache, report: VerifyReport
) -> None:
    if not fs.exists(path):
        raise CorruptionError(path, 0, "the manifest names this file, but it is not there")
    reader = CFileReader.open(fs, path, file_id, cache)
    _count(reader, report)
    reader.verify()
    for key in reader.streams():
        if key.role == "rowid":
            _verify_rowids(reader, key, path, row_count)
    reader.close()


def _verify_rowids(reader: CFileReader, key: StreamKey, path: str, row_count: int) -> None:
    stream = reader.stream(key)
    timestamps = reader.stream(StreamKey(key.column_id, "timestamp"))
    rowids, times = stream.read(0, stream.row_count), timestamps.read(0, timestamps.row_count)
    assert isinstance(rowids, FixedVector) and isinstance(times, FixedVector)
    ids, moments = rowids.values, times.values
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= row_count):
        raise CorruptionError(path, 0, f"column {key.column_id} has deltas of rows outside 0 to {row_count - 1}")
    later_row, same_row = ids[1:] > ids[:-1], ids[1:] == ids[:-1]
    if not np.all(later_row | (same_row & (moments[1:] > moments[:-1]))):
        raise CorruptionError(path, 0, f"the deltas of column {key.column_id} are out of order")


def _verify_log(fs: FileSystem, manifest: Manifest, report: VerifyReport) -> None:
    stop: CleanStopEntry | None = manifest.clean_stop
    expect = CleanStop(stop.last_lsn, stop.crc) if stop else None
    reader = LogReader(fs, "wal", uuid.UUID(manifest.store_uuid).bytes, expect, manifest.last_durable_lsn)
    if reader.first_lsn > manifest.log_needed_from:
        why = f"the log starts at record {reader.first_lsn}, but is needed from {manifest.log_needed_from} on"
        raise CorruptionError("wal", 0, why)
    writers = Writers()
    for group in reader.groups():
        for record in group.records:
            report.log_records += 1
            for _ in unpack_changes(record.payload, record.lsn):
                pass
            for note in unpack_notes(record.payload, record.lsn):
                writers.restore(note, record.lsn, record.timestamp)
    report.files += len(reader.segments)
    report.bytes += sum(segment.size_bytes for segment in reader.segments)
    if reader.torn_bytes:
        report.notes.append(
            f"wal: a torn tail of {reader.torn_bytes} bytes, never acknowledged, is cut at the next start"
        )


def _count(reader: CFileReader, report: VerifyReport) -> None:
    report.files += 1
    report.bytes += reader.size_bytes


def _attempt(report: VerifyReport, check: Callable[[], Result]) -> Result | None:
    """Run a check; a problem goes into the report, so that the rest is checked too."""
    try:
        with named("a file could not be read"):
            return check()
    except StoreError as error:
        report.problems.append(f"{error.code}: {error.message}")
        return None


def _paths(tablet: TabletEntry, rowset: RowsetEntry) -> list[str]:
    return [f"{files.directory(tablet.id)}/{name}" for name in rowset.file_names]


def _all_files(fs: FileSystem) -> Iterator[str]:
    for tablet in fs.list(files.ROOT) if fs.exists(files.ROOT) else []:
        directory = f"{files.ROOT}/{tablet}"
        try:
            names = fs.list(directory)
        except NotADirectoryError:
            yield directory
            continue
        yield from (f"{directory}/{name}" for name in names)
