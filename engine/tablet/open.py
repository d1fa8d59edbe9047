"""Open the files that the manifest names, and sweep those that it does not."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from ...schemas.errors import CorruptionError
from ...schemas.table import TableSchema
from ..delta.file import DeltaFile
from ..fs.filesystem import FileSystem
from ..rowset.base_file import ColumnsFile
from ..rowset.diskrowset import DiskRowSet
from . import files
from .environment import Environment, Files
from .manifest import Manifest, RowsetEntry, TabletEntry
from .tablet import Tablet


def open_tablet(entry: TabletEntry, schema: TableSchema, environment: Files) -> Tablet:
    """Open a tablet with its rowsets; what is only in the log is replayed by the caller.

    Raises:
        CorruptionError: when a file is missing or not what was written.
    """
    tablet = Tablet(
        entry.id, schema, environment.key_index, entry.partition, entry.home, entry.ancestors, entry.elsewhere
    )
    tablet.aliases = entry.aliases
    tablet.version = replace(tablet.version, history_floor=entry.history_floor)
    tablet.inserts_durable_lsn = tablet.last_lsn = entry.inserts_durable_lsn
    tablet.in_files_lsn = entry.in_files_lsn
    for rowset_entry in entry.rowsets:
        rowset = open_rowset(tablet, environment, rowset_entry, tablet.free_slot())
        rowset.load_liveness()
        tablet.add_diskrowset(rowset)
        tablet.last_lsn = max(tablet.last_lsn, rowset.durable_lsn)
        newest = [file.metadata.last_timestamp for file in rowset.deltas.files]
        newest += [file.metadata.base_timestamp for file in rowset.columns_files]
        tablet.last_timestamp = max(tablet.last_timestamp, rowset.base_timestamp, *newest)
    return tablet


def open_rowset(tablet: Tablet, environment: Files, entry: RowsetEntry, slot: int) -> DiskRowSet:
    """Open the files of a rowset. Raises CorruptionError when one is missing or not what was written."""
    fs, cache = environment.fs, environment.page_cache

    def present(file_id: int, kind: str) -> str:
        path = files.path(tablet.directory_id, file_id, kind)
        if not fs.exists(path):
            raise CorruptionError(path, 0, "the manifest names this file, but it is not there")
        return path

    path = present(entry.id, "base")
    rowset = DiskRowSet.open(fs, path, entry.id, slot, tablet.schema.key, tablet.encoder, cache, entry.born)
    rowset.durable_lsn = entry.durable_lsn
    if entry.columns:
        by_id = {
            file_id: ColumnsFile.open(fs, present(file_id, "base"), file_id, cache)
            for file_id in set(entry.columns.values())
        }
        rowset.load_columns({column_id: by_id[file_id] for column_id, file_id in entry.columns.items()})

    def deltas(file_ids: Iterable[int], kind: str) -> tuple[DeltaFile, ...]:
        paths = [(file_id, present(file_id, kind)) for file_id in file_ids]
        return tuple(DeltaFile.open(fs, path, file_id, kind, entry.id, cache) for file_id, path in paths)

    rowset.deltas.load(deltas(entry.undo, "undo"), deltas(entry.redo, "redo"))
    return rowset


def remove_orphans(environment: Environment, *paths: str) -> None:
    """Remove files that no manifest names; one that cannot be removed is swept at the next start."""
    for path in paths:
        unlink_quietly(environment.fs, path)


def unlink_quietly(fs: FileSystem, path: str) -> None:
    """Remove a file that nobody needs any more, if it is there and can be removed."""
    with suppress(OSError):
        if fs.exists(path):
            fs.unlink(path)


def sweep(environment: Environment, manifest: Manifest) -> list[str]:
    """Remove the files and directories that a crash left and no manifest names; return the paths of the files."""
    fs = environment.fs
    names: dict[str, set[str]] = {}
    for tablet in (tablet for table in manifest.tables for tablet in table.tablets):
        names.setdefault(str(tablet.home), set()).update(_file_names(tablet))
        if tablet.arriving:
            names.setdefault(str(tablet.arriving.tablet), set()).update(tablet.arriving.file_names)
    swept: list[str] = []
    for name in fs.list(files.ROOT):
        directory = f"{files.ROOT}/{name}"
        wanted = names.get(name, set())
        try:
            orphans = [f"{directory}/{file}" for file in fs.list(directory) if file not in wanted]
        except NotADirectoryError:
            fs.unlink(directory)
            swept.append(directory)
            continue
        for path in orphans:
            fs.unlink(path)
        if name not in names:
            fs.remove_directory(directory)
        swept += orphans
    return swept


def _file_names(tablet: TabletEntry) -> set[str]:
    return {name for rowset in tablet.rowsets for name in rowset.file_names}
