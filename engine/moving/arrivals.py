"""The target of a move: receives the files of a tablet, prepares them, and takes the tablet over.

A file arrives as bytes and stays in a directory of its own (``moves/<number>``) until it is complete and has the
source's checksum. Then all of it is checked, and it is written again as a file of this store, with a number of this
store, into the tablet's future directory. Or both stores are below one root of a bucket, which then copies the file:
it has a number of this store as its name, and checksums by the one that it was written with, which the manifest tells.
The log of this store holds none of the rows, so files hold all of them: ``durable_lsn`` is 0, and no log record has the
tablet's new number.

With the last round the manifest names the files, as ``arriving`` (`prepare`); nobody reads them until the source has
handed the tablet over. Files that are not prepared are removed at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from ...schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    StoreError,
)
from ...schemas.protocol.request import NOBODY
from ...schemas.rows.write import Durability
from ...schemas.store.moving import HandedOver, MoveFile, MoveLacking, MoveRound
from .. import threads
from ..cfile.reader import CFileReader
from ..cfile.renumber import write_renumbered
from ..codecs.checksum import crc32
from ..commit.commit_log import CommitLog
from ..commit.numbered_writes import NumberedWrites, moved_note
from ..commit.room import Room
from ..fs.failures import named
from ..fs.tree import remove_quietly
from ..home.shared_root import SharedRoot
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.manifest import Manifest, TableEntry, TabletEntry
from ..manifest.moving_entries import ArrivingEntry, MovedEntry
from ..manifest.rowset_entry import RowsetEntry
from ..rowset.soundness import verify_partition
from ..scan.plan.snapshots import Snapshots
from ..table.table import Table
from ..table.table_version import write_locks
from ..tablet.directories import retire
from ..tablet.open import open_tablet, unlink_quietly
from ..tablet.tablet import Tablet
from .arrival import Arrival

ROOT = "moves"


class Arrivals:
    """The moves of tablets to one store. Thread safe; the files of one move come one after the other, and each once."""

    def __init__(
        self,
        environment: Environment,
        log: CommitLog,
        writers: NumberedWrites,
        snapshots: Snapshots,
        now: Callable[[], int],
        room: Room,
        root: SharedRoot | None,
    ) -> None:
        """``now`` gives microseconds, and never jumps; ``root`` is that of the bucket that the store is in."""
        self._environment = environment
        self._log = log
        self._writers = writers
        self._snapshots = snapshots
        self._now = now
        self._room = room
        self._root = root
        self._open: dict[str, Arrival] = {}
        self._lock = threads.Lock()
        remove_quietly(environment.fs, ROOT)

    def receive(self, asked: MoveRound, table: Table) -> MoveLacking:
        """Start a round; return which of its files are not here yet.

        Raises:
            InvalidArgumentError: the round is for another server, or its clock is too far ahead of this one's.
            NotFoundError, AlreadyPresentError: the table has no such tablet, or it is here.
            ConflictError: the table has another schema here.
            StorageFullError, UnavailableError: there is no room.
        """
        self._check(asked, table)
        is_near = bool(self._root and asked.objects and self._root.has(asked.objects))
        with self._lock:
            arrival = self._open.get(asked.move)
            done = arrival.done if arrival else ()
            with named("a tablet could not be received"):
                here = () if is_near else asked.files
                self._room.check_disk(sum(file.bytes for file in here if file.name not in done))
            if arrival is None:
                self._room.check_count("moves to this server", [NOBODY] * len(self._open))
                arrival = Arrival(asked, self._environment.manifest.new_id(), is_near=is_near)
                self._make_directories(arrival.tablet)
                self._open[asked.move] = arrival
            arrival.begin_round(asked)
            arrival.used_at = self._now()
            return MoveLacking(names=tuple(file.name for file in asked.files if file.name not in arrival.done))

    def copy(self, move: str, file: MoveFile) -> bool:
        """Have the bucket copy a file, unless it is here; return False if it has to come as bytes, since the source is
        not in this bucket. Its end is checked here, its pages whenever they are read.

        Raises:
            NotFoundError: the move has no such file.
            ConflictError: the source has deleted it: the move was aborted. Or it was aborted here meanwhile.
            CorruptionError: it is not what the source describes.
            UnavailableError: the bucket does not answer; or another request of the move stands still.
        """
        with self._bringing(move, file) as (arrival, rowset):
            if rowset is None or not arrival.is_near:
                return rowset is None
            with named("a file of an arriving tablet could not be copied"):
                self._copy(arrival, file, rowset)
            arrival.done.add(file.name)
            return True

    def write(self, move: str, file: MoveFile, chunks: Iterable[bytes]) -> None:
        """Receive a file, unless it is here.

        Raises:
            NotFoundError: the move has no such file.
            ConflictError: the move was aborted meanwhile.
            CorruptionError: it differs from the source's, or is not sound; it is not kept.
            StorageFullError, UnavailableError: it could not be written; or as for ``copy``.
        """
        with self._bringing(move, file) as (arrival, rowset):
            if rowset is None:
                return
            path = f"{ROOT}/{arrival.tablet}/{file.name}"
            with named("a file of an arriving tablet could not be written"):
                try:
                    self._write_as_it_is(path, file, arrival.counted(chunks))
                    self._renumber(arrival, file, rowset, path)
                finally:
                    unlink_quietly(self._environment.fs, path)
            arrival.done.add(file.name)

    def prepare(self, asked: MoveRound, table: Table) -> None:
        """Add the files of the last round to the manifest. The source still owns the tablet.

        Raises:
            ConflictError: a file is missing, the round is not the last, or another move has prepared the tablet: its
                source may have handed it over. Or the move was aborted meanwhile.
            CorruptionError: the files are not those of the tablet.
            StorageFullError, UnavailableError: it could not be made durable; or as for ``copy``.
        """
        self._check(asked, table)
        arrival = self._of(asked.move)
        with arrival.turn("the preparation of the tablet"), self._unless_aborted(arrival):
            missing = [file.name for file in asked.files if file.name not in arrival.done]
            if missing or not asked.last:
                raise ConflictError(
                    f"the move cannot be prepared, since its round is incomplete: {missing or 'the last round'} "
                    "did not arrive"
                )
            arriving = ArrivingEntry(
                name=asked.move,
                server=asked.source,
                came_as=asked.tablet,
                number=asked.number,
                tablet=arrival.tablet,
                rowsets=tuple(arrival.here(entry) for entry in asked.rowsets),
                history_floor=asked.history_floor,
            )
            with named("the files of an arriving tablet could not be made durable"):
                self._environment.fs.sync_directory(files.directory(arriving.tablet))
            with table.alteration_lock:  # nobody takes the tablet over, and writes files of its own, before all is done
                empty = self._check(asked, table)
                self._verify(arriving, empty, table, arrival)
                with self._lock:
                    self._install(arrival, empty, arriving)

    def take_over(self, asked: HandedOver, table: Table) -> None:
        """Serve the tablet, durably; a repeated call does nothing.

        Raises:
            NotFoundError: that move prepared nothing.
            InvalidArgumentError: the clock of the source is too far ahead of this one's.
            StorageFullError, UnavailableError: the log or the manifest could not be written; retry.
        """
        with table.alteration_lock:
            if any(moved.name == asked.move for _, moved in arrived(self._manifest, table)):
                return
            empty, arriving = self._prepared(asked.move, table)
            self._snapshots.check_not_ahead(asked.clock, asked.clock, f"the clock of the server {arriving.server!r},")
            self._environment.mvcc.wait_for(asked.clock)
            entry = _entry(empty, arriving)
            tablet = open_tablet(entry, table.schema, self._environment)
            with write_locks(table.tablets):
                table.check_in_use()
                self._keep_answers(table, asked)
                self._put_in_place(table, asked, empty, entry, tablet)
            with self._lock:
                self._open.pop(asked.move, None)
        retire(self._environment, [empty], "another tablet took its place")
        remove_quietly(self._environment.fs, f"{ROOT}/{entry.id}")

    def abort(self, move: str) -> bool:
        """Discard what a move brought; return whether there was anything. The source must have aborted the move.

        Raises:
            StorageFullError, UnavailableError: the manifest could not be written.
        """
        with self._lock:
            arrival = self._open.pop(move, None)
            gone = {arrival.tablet} if arrival else set()
            for entry in [tablet for table in self._manifest.tables for tablet in table.tablets]:
                if entry.arriving and entry.arriving.name == move:
                    gone.add(entry.arriving.tablet)
                    self._set_arriving_of(entry.id, None)
            for number in gone:
                self._remove(number)
        return bool(gone)

    def drop_idle(self, move: str) -> None:
        """Remove the files of an abandoned move, except prepared ones: their tablet may have been handed over."""
        with self._lock:
            if arrival := self._open.pop(move, None):
                self._remove(arrival.tablet)

    def _remove(self, number: int) -> None:
        """Remove the files of a tablet that the manifest has neither as prepared nor as served here."""
        remove_quietly(self._environment.fs, f"{ROOT}/{number}")
        entries = [entry for table in self._manifest.tables for entry in table.tablets]
        if all(entry.id != number and (not entry.arriving or entry.arriving.tablet != number) for entry in entries):
            remove_quietly(self._environment.fs, files.directory(number))

    def idle(self, before: int) -> list[str]:
        """Return the moves without a request since a time that ``now`` gave."""
        return [move for move, each in list(self._open.items()) if each.used_at < before]

    @property
    def _manifest(self) -> Manifest:
        return self._environment.manifest.current

    def _check(self, asked: MoveRound, table: Table) -> Tablet:
        """Return the empty tablet that the round fills."""
        here = self._environment.here
        if here is None or here.server != asked.to:
            name = repr(here.server) if here else "without a placement"
            raise InvalidArgumentError(f"the tablet is to move to {asked.to!r}, but this server is {name}")
        found = next((each for each in table.tablets if each.partition == asked.partition), None)
        if found is None or table.schema.version != asked.schema_.version:
            raise ConflictError(
                f"table {table.name!r} differs between {asked.source!r} and {asked.to!r}: an alteration reached "
                "only some of the servers; repeat it to apply it on the others"
            )
        if found.elsewhere is None:
            raise AlreadyPresentError(f"the tablet is already here, with the number {found.tablet_id}")
        self._snapshots.check_not_ahead(asked.clock, asked.clock, f"the clock of the server {asked.source!r},")
        return found

    def _make_directories(self, number: int) -> None:
        fs = self._environment.fs
        with named("the directory of an arriving tablet could not be created"):
            fs.make_directory(ROOT)
            fs.make_directory(f"{ROOT}/{number}")
            fs.make_directory(files.directory(number))
            fs.sync_directory(files.ROOT)

    def _of(self, move: str) -> Arrival:
        arrival = self._open.get(move)
        if arrival is None:
            self._environment.mvcc.check_now()  # else another process may have the store, and know it
            raise NotFoundError(f"there is no move {move!r} to this server: start a new move")
        return arrival

    @contextmanager
    def _bringing(self, move: str, file: MoveFile) -> Iterator[tuple[Arrival, RowsetEntry | None]]:
        """Let one file of a move come at a time; yield the move, and the rowset of the file, None if it is here. If the
        move is aborted meanwhile, nothing of the file stays."""
        arrival = self._of(move)
        with arrival.turn(f"the file {file.name!r}"):
            if self._of(move) is not arrival:
                raise _aborted(move)
            arrival.used_at = self._now()
            rowset = arrival.rowset_of(file)
            if file.name in arrival.done:  # a manifest may name it by now
                yield arrival, None
                return
            try:
                with self._unless_aborted(arrival):
                    yield arrival, rowset
            finally:
                arrival.used_at = self._now()
                with self._lock:
                    is_open = self._open.get(move) is arrival
                    if not is_open:
                        self._remove_late(arrival, file)
            if not is_open:
                raise _aborted(move)

    @contextmanager
    def _unless_aborted(self, arrival: Arrival) -> Iterator[None]:
        """Raise ConflictError for whatever fails because the move was aborted meanwhile: its files were removed."""
        try:
            yield
        except StoreError as error:
            if self._open.get(arrival.round.move) is not arrival:
                raise _aborted(arrival.round.move) from error
            raise

    def _remove_late(self, arrival: Arrival, file: MoveFile) -> None:
        """Remove what came of a file after its move was aborted."""
        self._remove(arrival.tablet)
        if here := arrival.numbers.get(files.id_of(file.name)):  # beside files that an earlier round has prepared
            kind = file.name.partition(".")[2]
            unlink_quietly(self._environment.fs, files.path(arrival.tablet, here, kind))

    def _copy(self, arrival: Arrival, file: MoveFile, rowset: RowsetEntry) -> None:
        root, objects = self._root, arrival.round.objects
        assert root and objects, "it was checked when the move began"
        there, kind = files.id_of(file.name), file.name.partition(".")[2]
        here = arrival.number(there, self._environment.manifest.new_file_id)
        path = files.path(arrival.tablet, here, kind)
        try:
            try:
                size = root.copy(objects, file.name, path)
            except FileNotFoundError:
                gone = f"the file {file.name!r} is gone: the move was aborted; start a new move"
                raise ConflictError(gone) from None
            self._check_copy(path, here, file, size, rowset.written_as.get(there, there))
        except BaseException:
            del arrival.numbers[there]  # the object may appear later: no name is used twice
            unlink_quietly(self._environment.fs, path)
            raise

    def _check_copy(self, path: str, number: int, file: MoveFile, size: int, written_as: int) -> None:
        reader = CFileReader.open(self._environment.fs, path, number, written_as=written_as)
        reader.close()
        if (size, reader.kind) != (file.bytes, file.name.partition(".")[2]):
            raise CorruptionError(path, size, f"this is a file of kind {reader.kind} with {size:,} bytes, not {file!r}")

    def _write_as_it_is(self, path: str, file: MoveFile, chunks: Iterable[bytes]) -> None:
        fs = self._environment.fs
        if fs.exists(path):
            fs.unlink(path)
        crc, new = 0, fs.create(path)
        try:
            for chunk in chunks:
                crc = crc32(chunk, crc)
                new.append(chunk)
                if new.size > file.bytes:
                    break
            size = new.size
        finally:
            new.close()
        if (size, crc) != (file.bytes, crc if file.crc is None else file.crc):
            why = f"{size:,} of {file.bytes:,} bytes were received, or the checksum is wrong"
            raise CorruptionError(path, min(size, file.bytes), why)

    def _renumber(self, arrival: Arrival, file: MoveFile, rowset: RowsetEntry, path: str) -> None:
        fs, new = self._environment.fs, self._environment.manifest.new_file_id
        at_source, kind = file.name.split(".")
        reader = CFileReader.open(fs, path, int(at_source), written_as=rowset.written_as.get(int(at_source)))
        if reader.kind != kind:
            raise CorruptionError(path, 0, f"this is a file of kind {reader.kind}, not {kind}")
        number = arrival.number(int(at_source), new)
        target = files.path(arrival.tablet, number, kind)
        if fs.exists(target):  # what is left of an attempt that failed
            fs.unlink(target)
        metadata = reader.metadata
        if "rowset_id" in metadata:  # here it is the number of its base file here
            metadata = {**metadata, "rowset_id": arrival.number(rowset.id, new)}
        write_renumbered(reader, fs, target, number, metadata)
        reader.close()

    def _install(self, arrival: Arrival, empty: Tablet, arriving: ArrivingEntry) -> None:
        """Let the manifest name the files, and then remove those that only an earlier round had: the source compacted
        them away after they had arrived."""
        if self._open.get(arriving.name) is not arrival:
            raise _aborted(arriving.name)
        old = self._arriving_at(empty)
        if old and old.name != arriving.name:
            raise ConflictError(
                f"another move, {old.name!r} from {old.server!r}, has already prepared the tablet: try again "
                "when that move has ended"
            )
        self._set_arriving(empty, arriving)
        arrival.keep(arriving.rowsets)
        fs, directory = self._environment.fs, files.directory(arriving.tablet)
        with suppress(OSError):
            for name in set(fs.list(directory)).difference(arriving.file_names):
                fs.unlink(f"{directory}/{name}")

    def _verify(self, arriving: ArrivingEntry, empty: Tablet, table: Table, arrival: Arrival) -> None:
        """Open the tablet as it will be, and check that its rows belong to its partition, but for rowsets of which
        that is known: keys never change."""
        with named("the files of an arriving tablet could not be read"):
            tablet = open_tablet(_entry(empty, arriving), table.schema, self._environment)
        try:
            version = table.version
            if len(version.tablets) > 1 or version.partitions.range_columns:
                for rowset in (each for each in tablet.version.disk if each.rowset_id not in arrival.checked):
                    verify_partition(version.schema, version.router, version.tablets.index(empty), rowset)
                    arrival.checked.add(rowset.rowset_id)
                    arrival.steps += 1
        finally:
            tablet.close()

    def _prepared(self, move: str, table: Table) -> tuple[Tablet, ArrivingEntry]:
        for tablet in table.tablets:
            arriving = self._arriving_at(tablet)
            if arriving and arriving.name == move:
                return tablet, arriving
        raise NotFoundError(f"the move {move!r} of a tablet of {table.name!r} was not prepared here")

    def _arriving_at(self, tablet: Tablet) -> ArrivingEntry | None:
        entry = self._manifest.tablet(tablet.tablet_id)
        return entry.arriving if entry else None

    def _set_arriving(self, tablet: Tablet, arriving: ArrivingEntry | None) -> None:
        self._set_arriving_of(tablet.tablet_id, arriving)

    def _set_arriving_of(self, tablet_id: int, arriving: ArrivingEntry | None) -> None:
        self._environment.manifest.commit(
            lambda manifest: manifest.with_tablet(
                tablet_id, lambda entry: entry.model_copy(update={"arriving": arriving})
            )
        )

    def _keep_answers(self, table: Table, asked: HandedOver) -> None:
        """Remember the answers to numbered writes, durably, before clients can repeat the writes here."""
        if not asked.answers:
            return
        note = moved_note(table.table_id, asked.answers)
        with self._log.commit([], [note]) as commit:
            self._writers.restore(note, commit.lsn, commit.timestamp)
        self._log.acknowledge(commit, Durability.FSYNC)

    def _put_in_place(self, table: Table, asked: HandedOver, empty: Tablet, entry: TabletEntry, tablet: Tablet) -> None:
        table.auto_increment.follow(asked.last_auto_id)
        version = table.version.with_tablet(empty, tablet)

        def edited(old: TableEntry) -> TableEntry:
            kept = tuple(each for each in old.tablets if each.id != empty.tablet_id)
            return old.model_copy(
                update={
                    "tablets": (*kept, entry),
                    "last_auto_id": max(old.last_auto_id, asked.last_auto_id),
                    "last_change": max(old.last_change, asked.last_change),
                }
            )

        self._environment.manifest.commit(lambda manifest: manifest.with_altered(table.table_id, edited))
        with self._environment.latch.on_failure("an arrived tablet could not be installed"):
            table.changed(asked.last_change)
            table.version = version
            table.redefined()


def _aborted(move: str) -> ConflictError:
    return ConflictError(f"the move {move!r} was aborted")


def arrived(manifest: Manifest, table: Table) -> list[tuple[TabletEntry, MovedEntry]]:
    """Return the tablets of a table that came from other servers, with their moves."""
    entry = next((each for each in manifest.tables if each.id == table.table_id), None)
    tablets = entry.tablets if entry else ()
    return [(tablet, tablet.moved) for tablet in tablets if tablet.elsewhere is None and tablet.moved]


def _entry(empty: Tablet, arriving: ArrivingEntry) -> TabletEntry:
    """Return the manifest entry that replaces the empty tablet's."""
    return TabletEntry(
        id=arriving.tablet,
        rowsets=arriving.rowsets,
        history_floor=arriving.history_floor,
        partition=empty.partition,
        aliases=(*empty.aliases, empty.tablet_id),
        moved=MovedEntry(name=arriving.name, server=arriving.server, tablet=arriving.came_as),
    )
