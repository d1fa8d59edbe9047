"""The manifest: the tables of a store and the files that hold them, as one checksummed document.

Every change writes the whole document again, which then replaces the one before (`place`). That is the only commit
point for files: before it they are orphans, after it they are the store. A document that is always whole has no torn
tail; the cost, some kilobytes for each flush, is small beside the flush. In a directory, a clean stop leaves a copy,
which is used if the first is damaged. Layout (little-endian), drawn in docs/format/manifest.md::

    magic 8 | format version u4 | body length u8 | crc u4 of magic to length and body | body: JSON
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt, SerializerFunctionWrapHandler, model_serializer

from ...schemas.errors import CorruptionError, InvalidArgumentError, StorageFullError, UnavailableError
from ...schemas.message import Message, new_dict
from ...schemas.store.grants import Grantee, Privilege
from ...schemas.table.partition_schema import PartitionSchema, TabletPartition
from ...schemas.table.table import TableOptions, TableSchema
from .. import threads
from ..fs.document import HEADER, pack, parsed, read
from ..fs.failures import is_full
from ..fs.filesystem import FileSystem
from .interrupts import interrupts_later
from .moving_entries import ArrivingEntry, MovedEntry
from .place import COPY_PATH, NEW_PATH, PATH, ManifestInDirectory, ManifestPlace
from .read_only_latch import ReadOnlyLatch
from .rowset_entry import RowsetEntry, without_empty

_MAGIC = b"NYALAMAN"
_VERSION = 1


class TabletEntry(Message, frozen=True, extra="forbid"):
    id: PositiveInt
    inserts_durable_lsn: NonNegativeInt = 0
    """New rows up to this log position are in base files."""
    in_files_lsn: NonNegativeInt = 0
    """All changes up to this log position are in files: a replay can skip them."""
    attached_durable_lsn: NonNegativeInt = 0
    """Rowsets that the log attaches up to this position are named here, or were and are gone."""
    rowsets: tuple[RowsetEntry, ...] = ()
    history_floor: NonNegativeInt = 0
    """Snapshots below this timestamp can no longer be read: what they need was dropped."""
    partition: TabletPartition = TabletPartition()
    """The part of the table's rows that it holds."""
    directory: PositiveInt | None = None
    """The number of the directory of its files, which the tablets of a split share; None: its own id."""
    ancestors: tuple[int, ...] = ()
    """The tablets that it was split from: their log records apply to their descendants."""

    elsewhere: str | None = None
    """The server that has its rows, if the table is shared and that is another one; None: this one."""
    aliases: tuple[int, ...] = ()
    """The numbers that it had here before it moved: tickets may use them, the log does not."""
    moved: MovedEntry | None = None
    """With ``elsewhere``: the move that took it, until that server has confirmed it. Else the move that brought it."""
    arriving: ArrivingEntry | None = None
    """With ``elsewhere``: the part of it that has arrived so far."""

    def told(self) -> dict[str, Any]:
        """Return it for a reader outside of the store, as the manifest has it."""
        return without_empty(self.model_dump(mode="json"))

    @property
    def home(self) -> int:
        """The number of the directory of its files."""
        return self.directory or self.id

    @property
    def covered_lsn(self) -> int:
        """All changes up to this log position are in files, as the entry says: of a clean stop and of earlier flushes
        in ``in_files_lsn``, of the last flush only in its rowsets."""
        rowsets = (rowset.durable_lsn for rowset in self.rowsets)
        return max(self.in_files_lsn, min([self.inserts_durable_lsn, *rowsets]))

    def with_rowset(self, rowset: RowsetEntry, history_floor: int = 0) -> TabletEntry:
        """Return the tablet with ``rowset`` instead of the entry of the same id, and a floor at least as high."""
        rowsets = tuple(rowset if old.id == rowset.id else old for old in self.rowsets)
        return self.model_copy(update={"rowsets": rowsets, "history_floor": max(self.history_floor, history_floor)})

    def with_attached(self, rowsets: Sequence[RowsetEntry]) -> TabletEntry:
        """Return the tablet with rowsets that the log attaches, in the order of their log positions; known ones stay.

        A replay may meet a position that an earlier one has passed, never the reverse.
        """
        new = [rowset for rowset in rowsets if rowset.durable_lsn > self.attached_durable_lsn]
        if not new:
            return self
        update = {"rowsets": (*self.rowsets, *new), "attached_durable_lsn": new[-1].durable_lsn}
        return self.model_copy(update=update)

    def without_rowsets(self, rowset_ids: Collection[int], history_floor: int) -> TabletEntry:
        """Return the tablet without some rowsets, and a floor at least as high."""
        rowsets = tuple(rowset for rowset in self.rowsets if rowset.id not in rowset_ids)
        return self.model_copy(update={"rowsets": rowsets, "history_floor": max(self.history_floor, history_floor)})

    def rowset(self, rowset_id: int) -> RowsetEntry:
        return next(rowset for rowset in self.rowsets if rowset.id == rowset_id)


class TableEntry(Message, frozen=True, extra="forbid"):
    id: PositiveInt
    name: str
    schema_: TableSchema
    options: TableOptions
    tablets: tuple[TabletEntry, ...]
    partitions: PartitionSchema = PartitionSchema()
    last_auto_id: NonNegativeInt = 0
    """Ids up to this one were assigned in a table with a non-unique key; the log has newer ones."""
    dropped_until: NonNegativeInt | None = None
    """The end of a dropped table's recall time, in microseconds since 1970; None: it is in use."""
    last_change: NonNegativeInt = 0
    """The newest commit that changed rows, unless the log has a newer one."""


class GrantEntry(Grantee, frozen=True):
    """A grant in the manifest: what a user or role may do with one table, or with all."""

    table: PositiveInt | None = None
    """The table's number; None: all tables."""
    privileges: dict[Privilege, tuple[int, ...] | None]
    """Each with the ids of its columns, ascending; None: all columns."""


class PinEntry(Message, frozen=True, extra="forbid"):
    """A pin in the manifest: files of a store in a bucket that stay for readers outside of it, whatever becomes of the
    store meanwhile."""

    id: str
    manifest: str
    """The name of the manifest in which the pin was made: the pin holds it, and files that it names."""
    table: PositiveInt | None
    """The table whose files it holds; None: all tables."""
    snapshot: NonNegativeInt
    """They have all commits up to this timestamp."""
    ttl_seconds: PositiveInt | None
    """For how long each renewal keeps them; None: they stay until the pin is dropped."""
    expires: PositiveInt | None
    """Until when, in microseconds since 1970; None as above."""
    name: str | None = None
    """That of a pin which stays."""


class CleanStopEntry(Message, frozen=True, extra="forbid"):
    """The end of the log in the manifest, as it was when the store was closed; removed while it is open."""

    last_lsn: NonNegativeInt
    crc: NonNegativeInt


class Manifest(Message, frozen=True, extra="forbid"):
    """The manifest of a store: its tables, tablets and files, as one document."""

    store_uuid: str
    next_id: PositiveInt = 1
    """The next id for tables, tablets and files; ids are never reused."""
    tables: tuple[TableEntry, ...] = ()
    log_needed_from: PositiveInt = 1
    """The log must reach back to this position; files hold everything before it."""
    last_timestamp: NonNegativeInt = 0
    """The clock starts above this."""
    clean_stop: CleanStopEntry | None = None
    grants: tuple[GrantEntry, ...] = ()
    pins: tuple[PinEntry, ...] = ()
    """Oldest first. The same object until one is made, renewed or ended."""
    makers: dict[int, str] = Field(default_factory=new_dict)
    """Of a store in a bucket: the uuids of the processes that made the files which are named here, by their reigns, and
    that of the newest reign. See ``makers``."""

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``grants``, ``pins``, ``makers`` and ``written_as`` if there are none: version 0.1 rejects members
        that it does not know, and so a store whose grants it would not enforce, or whose files it would delete or not
        read."""
        parts = written(self)
        for tablet in (tablet for table in parts["tables"] for tablet in table["tablets"]):
            without_empty(tablet)
        for name in ("grants", "pins", "makers"):
            if not parts[name]:
                parts.pop(name)
        return parts

    def with_table(self, table: TableEntry) -> Manifest:
        """Return the manifest with one more table."""
        return self.model_copy(update={"tables": (*self.tables, table)})

    def with_altered(self, table_id: int, edit: Callable[[TableEntry], TableEntry]) -> Manifest:
        """Return the manifest with one table edited."""
        tables = (edit(table) if table.id == table_id else table for table in self.tables)
        return self.model_copy(update={"tables": tuple(tables)})

    def without_table(self, table_id: int) -> Manifest:
        return self.model_copy(update={"tables": tuple(table for table in self.tables if table.id != table_id)})

    def replaced(self, old: int, new: int, until: int | None) -> Manifest:
        """Return the manifest without a table, or with it set aside until its recall time ends, whose place another
        takes: it gets the grants on the old one, those on columns by the names of these."""
        tables = {table.id: table.schema_ for table in self.tables}
        names = {column.id: column.name for column in tables[old].columns}
        places = {column.name: column.id for column in tables[new].columns}

        def moved(entry: GrantEntry) -> GrantEntry:
            found = {
                each: None if ids is None else tuple(sorted(places[names[id]] for id in ids if names.get(id) in places))
                for each, ids in entry.privileges.items()
            }
            kept = {each: ids for each, ids in found.items() if ids != ()}
            return entry.model_copy(update={"table": new, "privileges": kept})

        granted = (moved(entry) for entry in self.grants if entry.table == old)
        grants = (
            *(entry for entry in self.grants if entry.table != new),
            *(each for each in granted if each.privileges),
        )
        left = self.model_copy(update={"grants": grants})
        if until is None:
            return left.without_table(old)
        return left.with_altered(old, lambda entry: entry.model_copy(update={"dropped_until": until}))

    def with_pin(self, pin: PinEntry) -> Manifest:
        """Return the manifest with a pin, in place of the one of the same id."""
        ids = [each.id for each in self.pins]
        pins = [pin if each.id == pin.id else each for each in self.pins]
        return self.model_copy(update={"pins": tuple(pins if pin.id in ids else [*pins, pin])})

    def without_pins(self, pin_ids: Collection[str]) -> Manifest:
        return self.model_copy(update={"pins": tuple(pin for pin in self.pins if pin.id not in pin_ids)})

    def with_tablet(self, tablet_id: int, edit: Callable[[TabletEntry], TabletEntry]) -> Manifest:
        """Return the manifest with one tablet edited; unchanged if the tablet was dropped meanwhile."""
        return self.with_tablets([(tablet_id, edit)])

    def with_tablets(self, edits: Iterable[tuple[int, Callable[[TabletEntry], TabletEntry]]]) -> Manifest:
        """Return the manifest with tablets, by id, edited in this order; skips those that were dropped meanwhile."""
        by_tablet: dict[int, list[Callable[[TabletEntry], TabletEntry]]] = {}
        for tablet_id, edit in edits:
            by_tablet.setdefault(tablet_id, []).append(edit)

        def edited(tablet: TabletEntry) -> TabletEntry:
            for edit in by_tablet.get(tablet.id, ()):
                tablet = edit(tablet)
            return tablet

        return self._with_tablets(edited)

    def _with_tablets(self, edited: Callable[[TabletEntry], TabletEntry]) -> Manifest:
        tables = (
            table.model_copy(update={"tablets": tuple(edited(tablet) for tablet in table.tablets)})
            for table in self.tables
        )
        return self.model_copy(update={"tables": tuple(tables)})

    def with_auto_ids(self, last_ids: Mapping[int, int]) -> Manifest:
        """Return the manifest with the newest assigned ids of tables, by table id."""
        tables = (
            table.model_copy(update={"last_auto_id": max(table.last_auto_id, last_ids.get(table.id, 0))})
            for table in self.tables
        )
        return self.model_copy(update={"tables": tuple(tables)})

    def with_last_changes(self, timestamps: Mapping[int, int]) -> Manifest:
        """Return the manifest with the newest commits that changed rows of tables, by table id."""
        tables = (
            table.model_copy(update={"last_change": max(table.last_change, timestamps.get(table.id, 0))})
            for table in self.tables
        )
        return self.model_copy(update={"tables": tuple(tables)})

    def with_in_files(self, positions: Mapping[int, int]) -> Manifest:
        """Return the manifest with the log positions up to which the files of tablets, by id, hold all changes."""

        def edited(tablet: TabletEntry) -> TabletEntry:
            position = positions.get(tablet.id, 0)
            return tablet.model_copy(update={"in_files_lsn": position}) if position > tablet.in_files_lsn else tablet

        return self._with_tablets(edited)

    def within_log(self, last_lsn: int) -> Manifest:
        """Return the manifest without what ``in_files_lsn`` says of positions after ``last_lsn``, the log's last. An
        earlier build could write that before the records were durable."""

        def edited(tablet: TabletEntry) -> TabletEntry:
            return tablet.model_copy(update={"in_files_lsn": min(tablet.in_files_lsn, last_lsn)})

        return self._with_tablets(edited)

    def with_log_from(self, lsn: int) -> Manifest:
        """Return the manifest that needs the log only from ``lsn`` on.

        The position never goes back: two flushes may end at once, and what the later one freed is gone.
        """
        return self.model_copy(update={"log_needed_from": max(self.log_needed_from, lsn)})

    def tablet(self, tablet_id: int) -> TabletEntry | None:
        """Return a tablet's entry, the same object until it is edited; None if there is none."""
        return next((tablet for table in self.tables for tablet in table.tablets if tablet.id == tablet_id), None)

    @property
    def last_durable_lsn(self) -> int:
        """The newest log position that any file is known to hold; the log must reach it."""
        tablets = [tablet for table in self.tables for tablet in table.tablets]
        rowsets = [rowset.durable_lsn for tablet in tablets for rowset in tablet.rowsets]
        return max([tablet.inserts_durable_lsn for tablet in tablets] + rowsets, default=0)


class ManifestFile:
    """The manifest in memory and where it is kept. Thread safe."""

    def __init__(self, place: ManifestPlace, manifest: Manifest, first_file_id: int | None = None) -> None:
        """Files get ids from ``first_file_id`` on, which no other process ever assigns; None: those that tables and
        tablets leave."""
        self.latch = ReadOnlyLatch()
        """Latch of the store. A failed write closes it: the manifest on disk may lack tablets of later log records."""
        self._place = place
        self._manifest = self._written = manifest
        self._lock = threads.Lock()
        self._next_id = manifest.next_id
        self._next_file_id = first_file_id
        self._closed = False
        self.damage: CorruptionError | None = None
        """The damage of the manifest on disk, if the store was opened from its copy."""
        self.failed: str | None = None
        """Why the manifest on disk is in doubt; then nothing more may be written."""

    @classmethod
    def open(cls, fs: FileSystem) -> ManifestFile | None:
        """Read the manifest in a directory; None if there is none. Raises CorruptionError if it is not what was
        written."""
        if fs.exists(NEW_PATH):
            fs.unlink(NEW_PATH)
        if not fs.exists(PATH):
            return None
        manifest, damage = read_with_damage(fs)
        file = cls(ManifestInDirectory(fs), manifest)
        file.damage = damage
        return file

    @classmethod
    def create(cls, fs: FileSystem, store_uuid: str) -> ManifestFile:
        """Write the manifest of an empty store into a directory."""
        file = cls(ManifestInDirectory(fs), Manifest(store_uuid=store_uuid))
        file.commit(lambda manifest: manifest)
        return file

    @property
    def current(self) -> Manifest:
        """The document on disk, with later assumed edits."""
        return self._manifest

    @property
    def written(self) -> Manifest:
        """The document on disk, without them: what a crash leaves."""
        return self._written

    def new_id(self) -> int:
        """Return an unused id for a table or a tablet."""
        with self._lock:
            self._next_id += 1
            return self._next_id - 1

    def new_file_id(self) -> int:
        """Return an unused id for a file."""
        return self.new_file_ids(1)

    def new_file_ids(self, count: int) -> int:
        """Return the first of ``count`` unused ids for files."""
        with self._lock:
            if self._next_file_id is not None:
                self._next_file_id += count
                return self._next_file_id - count
            self._next_id += count
            return self._next_id - count

    @property
    def is_writable(self) -> bool:
        """Whether more may be committed: no earlier commit is in doubt."""
        return not self._closed and not self.failed

    def close(self) -> None:
        """Forbid further writes: a late one must not overwrite what the next process writes."""
        with self._lock:
            self._closed = True

    def assume(self, edit: Callable[[Manifest], Manifest], ids_used: int = 0) -> None:
        """Edit the manifest in memory; the next commit writes the edit too. Until then only the log has it.

        Those log records must be durable. The ids of files up to ``ids_used`` are not assigned again.
        """
        with self._lock:
            self._manifest = edit(self._manifest)
            if self._next_file_id is None:
                self._next_id = max(self._next_id, ids_used + 1)

    def commit(self, edit: Callable[[Manifest], Manifest]) -> Manifest:
        """Edit the manifest and make the edit durable.

        Raises:
            StorageFullError: the disk is full; nothing changed.
            UnavailableError: the disk failed; its content is unknown until the store is opened again, and the store is
                read-only. Or a bucket did not take the manifest: nothing changed, and the store ``is_writable``.
        """
        with self._lock, interrupts_later():
            if self._closed:
                raise UnavailableError("the store is closed")
            if self.failed:
                raise UnavailableError(f"the store is read-only: {self.failed}; restart it to recover")
            edited = edit(self._manifest).model_copy(update={"next_id": self._next_id})
            self._write_new(pack_manifest(edited))
            self._install(edited.log_needed_from)
            self._manifest = self._written = edited
            return edited

    def copy(self) -> None:
        """Write a copy of the manifest, in case the first is damaged while the store is closed. A failure only leaves
        the store without a copy."""
        with self._lock, suppress(OSError):
            self._place.copy(pack_manifest(self._manifest))

    def _write_new(self, document: bytes) -> None:
        try:
            self._place.write(document)
        except OSError as error:
            if is_full(error):
                raise StorageFullError("the disk is full; the manifest could not be written") from error
            self._fail(error)

    def _install(self, log_needed_from: int) -> None:
        try:
            self._place.install(log_needed_from)
        except OSError as error:
            self._fail(error)
        except BaseException as error:  # after an interrupt, too, the file is in doubt
            self._stop(error)
            raise

    def _fail(self, error: OSError) -> None:
        why = self._stop(error.strerror or error)
        raise UnavailableError(f"{why}; reads continue; restart the store to recover") from error

    def _stop(self, error: object) -> str:
        self.failed = f"the manifest cannot be written ({error})"
        self.latch.stop(self.failed)
        return self.failed


def pack_manifest(manifest: Manifest) -> bytes:
    return pack(_MAGIC, _VERSION, manifest.model_dump_json().encode())


def read_manifest(fs: FileSystem) -> Manifest:
    """Read the manifest on disk; if it is damaged, its copy, if that is surely of the same state.

    Raises:
        CorruptionError: it is not what was written.
    """
    return read_with_damage(fs)[0]


def read_with_damage(fs: FileSystem) -> tuple[Manifest, CorruptionError | None]:
    """Read the manifest on disk as ``read_manifest`` does; return its damage too, if the copy was used."""
    document = read(fs, PATH)
    try:
        return unpack_manifest(document), None
    except CorruptionError as error:
        if twin := _twin(fs, document):
            return twin, error
        raise


def unpack_manifest(document: bytes) -> Manifest:
    """Decode a manifest. Raises CorruptionError if the bytes are not what was written."""
    return parsed(Manifest, document, PATH, _MAGIC, _VERSION, "manifest")


def _twin(fs: FileSystem, damaged: bytes) -> Manifest | None:
    """Return the copy if it was written together with the damaged manifest: their checksums, or everything after the
    header, are equal. An older copy would bring back dropped tables, and forget rows."""
    if not fs.exists(COPY_PATH):
        return None
    copy = read(fs, COPY_PATH)
    size = HEADER.size
    if len(copy) != len(damaged) or (
        copy[size - 4 : size] != damaged[size - 4 : size] and copy[size:] != damaged[size:]
    ):
        return None
    try:
        return unpack_manifest(copy)
    except (CorruptionError, InvalidArgumentError):
        return None
