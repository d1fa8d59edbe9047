"""Opens the files that the manifest names, and removes those that it does not."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...schemas.errors import CorruptionError, StoreError, UnreadableFileError
from ...schemas.table.table import TableSchema
from ..cfile.footer import TAIL_AT_ONCE
from ..delta.file import DeltaFile
from ..fs.failures import is_of_the_file
from ..fs.far import FarFileSystem
from ..fs.filesystem import FileSystem
from ..manifest import files
from ..manifest.damage import DamageRegistry, damage_of
from ..manifest.environment import Environment, Files
from ..manifest.manifest import Manifest, TabletEntry
from ..manifest.rowset_entry import RowsetEntry
from ..rowset.base_file import ColumnsFile
from ..rowset.diskrowset import DiskRowSet
from .tablet import Tablet

Opened = TypeVar("Opened", DiskRowSet, ColumnsFile, DeltaFile)


def fetch_ends(fs: FileSystem, entries: Iterable[TabletEntry]) -> None:
    """Begin to fetch what opening these tablets reads, if their files are far away: many at once take hardly longer
    than one."""
    if isinstance(fs, FarFileSystem):
        paths = (f"{files.directory(entry.home)}/{name}" for entry in entries for name in sorted(_file_names(entry)))
        fs.fetch_ends(paths, 0, TAIL_AT_ONCE)


def open_tablet(entry: TabletEntry, schema: TableSchema, environment: Files) -> Tablet:
    """Open a tablet with its rowsets; the caller replays the log.

    Raises:
        CorruptionError: a file is missing or not what was written.
        UnreadableFileError: the disk does not return one.
    """
    tablet = _empty(entry, schema, environment)
    try:
        _open_rowsets(tablet, entry, environment)
    except BaseException:
        tablet.close()
        raise
    return tablet


def open_sound(entry: TabletEntry, schema: TableSchema, environment: Files, damage: DamageRegistry) -> Tablet:
    """Open a tablet as ``open_tablet`` does, in quarantine if a file is missing, damaged or unreadable."""
    try:
        return open_tablet(entry, schema, environment)
    except StoreError as error:
        tablet = _empty(entry, schema, environment)
        if not quarantined(tablet, error, damage):
            raise
        return tablet


def quarantined(tablet: Tablet, error: StoreError, damage: DamageRegistry) -> bool:
    """While a tablet is opened: put it into quarantine if ``error`` names one of its files; return whether it does."""
    found = damage_of(error)
    if found is None or not found.path.startswith(files.directory(tablet.directory_id) + "/"):
        return False
    damage.note(error)
    why = (
        f"{found.why}; tablet {tablet.tablet_id} is in quarantine: its rows cannot be read or written until it "
        "is repaired or dropped; all other tablets work; to repair it, stop the server and run `nyala repair`"
    )
    tablet.set_in_quarantine(CorruptionError(found.path, found.offset, why))
    return True


def _empty(entry: TabletEntry, schema: TableSchema, environment: Files) -> Tablet:
    tablet = Tablet(
        entry.id, schema, environment.key_index, entry.partition, entry.home, entry.ancestors, entry.elsewhere
    )
    tablet.aliases = entry.aliases
    tablet.version = replace(tablet.version, history_floor=entry.history_floor)
    tablet.inserts_durable_lsn = tablet.last_lsn = entry.inserts_durable_lsn
    tablet.in_files_lsn = entry.in_files_lsn
    return tablet


def _open_rowsets(tablet: Tablet, entry: TabletEntry, environment: Files) -> None:
    for rowset_entry in entry.rowsets:
        rowset = open_rowset(tablet, environment, rowset_entry, tablet.free_slot())
        rowset.load_liveness()
        tablet.add_diskrowset(rowset)
        tablet.last_lsn = max(tablet.last_lsn, rowset.durable_lsn)
        newest = [file.metadata.last_timestamp for file in rowset.deltas.files]
        newest += [file.metadata.base_timestamp for file in rowset.columns_files]
        tablet.last_timestamp = max(tablet.last_timestamp, rowset.base_timestamp, *newest)
    tablet.in_files_lsn = entry.covered_lsn


def open_rowset(tablet: Tablet, environment: Files, entry: RowsetEntry, slot: int) -> DiskRowSet:
    """Open the files of a tablet's rowset.

    Raises:
        CorruptionError: one is missing or not what was written.
        UnreadableFileError: the disk does not return one.
    """
    fs, cache = environment.fs, environment.page_cache
    key, encoder = tablet.schema.key, tablet.encoder

    def path(file_id: int, kind: str) -> str:
        return files.path(tablet.directory_id, file_id, kind)

    with ExitStack() as undo:

        def opened(where: str, open_file: Callable[[str], Opened]) -> Opened:
            file = _open_file(fs, where, open_file)
            undo.callback(file.close)
            return file

        rowset = opened(
            path(entry.id, "base"),
            lambda where: DiskRowSet.open(
                fs, where, entry.id, slot, key, encoder, cache, entry.born, entry.written_as.get(entry.id)
            ),
        )
        rowset.durable_lsn = entry.durable_lsn

        def columns(file_id: int) -> ColumnsFile:
            written_as = entry.written_as.get(file_id)
            return opened(path(file_id, "base"), lambda where: ColumnsFile.open(fs, where, file_id, cache, written_as))

        def deltas(file_ids: Iterable[int], kind: str) -> tuple[DeltaFile, ...]:
            paths = [(file_id, path(file_id, kind)) for file_id in file_ids]
            return tuple(opened(where, partial(delta_file, file_id, kind)) for file_id, where in paths)

        def delta_file(file_id: int, kind: str, where: str) -> DeltaFile:
            return DeltaFile.open(fs, where, file_id, kind, entry.id, cache, entry.written_as.get(file_id))

        if entry.columns:
            by_id = {file_id: columns(file_id) for file_id in sorted(set(entry.columns.values()))}
            rowset.load_columns({column_id: by_id[file_id] for column_id, file_id in entry.columns.items()})
        rowset.deltas.load(deltas(entry.undo, "undo"), deltas(entry.redo, "redo"))
        undo.pop_all()
        return rowset


def _open_file(fs: FileSystem, where: str, open_file: Callable[[str], Opened]) -> Opened:
    """Open a file that the manifest names."""
    try:
        if not fs.exists(where):
            raise CorruptionError(where, 0, "the manifest names this file, but it is missing")
        return open_file(where)
    except OSError as error:
        if is_of_the_file(error):
            raise UnreadableFileError(where, error.strerror or str(error)) from error
        raise


def remove_orphans(environment: Environment, *paths: str) -> None:
    """Remove files of a tablet that no manifest names; the next start removes what cannot be removed."""
    for path in paths:
        unlink_quietly(environment.fs, path)


def unlink_quietly(fs: FileSystem, path: str) -> None:
    """Remove a file of a tablet that is not needed any more, if it exists and can be removed."""
    with suppress(OSError):
        if fs.exists(path):
            fs.unlink(path)


def sweep(environment: Environment, manifest: Manifest, first_number: int = 0) -> list[str]:
    """Remove files and directories of tablets that a crash left and no manifest names; return the paths of the
    files.

    In a bucket, files of later reigns than this one, which begins at ``first_number``, stay: they are of a history that
    is gone, since the bucket was put back to an earlier state. Later holders may use their names, and a request to
    delete them may come late.
    """
    fs, reign = environment.fs, files.reign_of(first_number)
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
            others = [file for file in fs.list(directory) if file not in wanted]
            orphans = [f"{directory}/{file}" for file in others if files.reign_of(_number_of(file)) <= reign]
        except NotADirectoryError:
            fs.unlink(directory)
            swept.append(directory)
            continue
        for path in orphans:
            fs.unlink(path)
        if name not in names and len(orphans) == len(others):
            fs.remove_directory(directory)
        swept += orphans
    return swept


def _number_of(name: str) -> int:
    """Return the number of a file; 0 if its name is not one of a tablet's file."""
    number = name.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _file_names(tablet: TabletEntry) -> set[str]:
    return {name for rowset in tablet.rowsets for name in rowset.file_names}
