"""The source of a move: sends the files of a tablet, round by round, and hands the tablet over.

A round flushes the tablet and opens its files, which stay open whatever compactions do; it writes nothing to disk.
Before the last round the tablet is closed to writers for some seconds, only to help the move finish. The hand-over
checks, under the tablet's locks, that nothing is in memory and that the files are those of the round that the target
has prepared. Then the manifest replaces the tablet by an empty one that is ``elsewhere``. This is the one moment at
which the owner changes. The manifest remembers the move until the target has said that it serves the tablet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from ...schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, UnavailableError
from ...schemas.store.moving import (
    HandedOver,
    MoveBegin,
    MoveFile,
    MoveHandOver,
    MoveRead,
    MoveRound,
    MoveState,
    MoveStatus,
)
from ...schemas.table.partition_schema import TabletPartition, sum_of
from .. import threads
from ..cfile.reader import CFileReader
from ..codecs.checksum import crc32_of
from ..commit.numbered_writes import NumberedWrites
from ..fs.failures import named
from ..home.shared_root import SharedRoot
from ..maintenance.upkeep import flushed
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.manifest import TableEntry, TabletEntry
from ..manifest.moving_entries import MovedEntry
from ..table.table import Table
from ..table.table_version import check_here, write_locks
from ..tablet.directories import make_directories, retire
from ..tablet.tablet import Tablet
from ..transaction.staging.area import StagingArea

_CLOSED_SECONDS = 10
"""Writers are admitted again if a move does not finish this long after its last round."""
_PATIENCE_SECONDS = 2.0
_CHUNK_BYTES = 1 << 20
_WHY = "the tablet was moved to another server"


@dataclass(slots=True, eq=False)
class _Departure:
    """A running move."""

    asked: MoveBegin
    table: Table
    tablet: Tablet
    number: int = 0
    """Of the newest round."""
    round: MoveRound | None = None
    """The newest round, as it was sent."""
    is_last: bool = False
    entry: TabletEntry | None = None
    """The tablet's manifest entry at that round."""
    opened: dict[str, CFileReader] = field(default_factory=dict)
    files: dict[str, MoveFile] = field(default_factory=dict)
    used_at: int = 0
    """As ``now`` gives it."""


class Departures:
    """The moves of tablets away from one store. Thread safe."""

    def __init__(
        self,
        environment: Environment,
        writers: NumberedWrites,
        staging: StagingArea,
        tables: Callable[[], list[Table]],
        now: Callable[[], int],
        root: SharedRoot | None,
    ) -> None:
        """``now`` gives microseconds, and never jumps; ``root`` is that of the bucket that the store is in."""
        self._environment = environment
        self._writers = writers
        self._staging = staging
        self._tables = tables
        self._now = now
        self._root = root
        self._open: dict[str, _Departure] = {}
        self._lock = threads.RLock()
        """Held during a hand-over: a move is aborted before it, or not at all."""

    def begin(self, asked: MoveBegin, table: Table) -> MoveRound:
        """Begin a move, which ends any other of the same tablet, or its next round; return the round.

        Raises:
            InvalidArgumentError: there is no such server to move to.
            NotFoundError, WrongServerError: the tablet is not here.
            ConflictError: the next round is requested, and the move was aborted.
            UnavailableError, StorageFullError: it could not be flushed, or rows of the table are staged.
        """
        self._check_target(asked.to)
        tablet = _found(table, asked.tablet)
        with self._lock:
            departure = self._open.get(asked.move)
            if departure is None:
                if asked.again:  # the files that the target prepared may be gone
                    raise self._unknown(asked.move)
                self._check_unstaged(table)
                self._open = {
                    name: each
                    for name, each in self._open.items()
                    if each.tablet is not tablet and not each.tablet.retired
                }
                departure = self._open[asked.move] = _Departure(asked, table, tablet)
            departure.used_at = self._now()
        if asked.last:
            with tablet.maintenance_lock:  # not during a long compaction
                until = threads.monotonic() + _CLOSED_SECONDS  # whatever becomes of the time of day
                tablet.is_closed = lambda: threads.monotonic() < until
        with flushed(tablet, self._environment):
            entry = self._environment.manifest.current.tablet(tablet.tablet_id)
            if entry is None:
                raise NotFoundError(f"tablet {tablet.tablet_id} was dropped")
            opened = self._opened(entry, departure.opened)
        found = {name: departure.files.get(name) or self._described(name, file) for name, file in opened.items()}
        with self._lock:
            if self._open.get(asked.move) is not departure:
                raise _given_up(asked.move)
            departure.number, departure.is_last, departure.entry = departure.number + 1, asked.last, entry
            departure.opened, departure.files = opened, found
            departure.round = self._round(departure, entry)
            return departure.round

    def round(self, move: str) -> MoveRound:
        """Return the newest round of a move.

        Raises:
            ConflictError: the move was aborted, the tablet was handed over, or the table was renamed.
            UnavailableError: another process may have the store, and know more.
        """
        with self._lock:
            departure = self._of(move)
            told = departure.round
        if told is None:
            raise self._unknown(move)
        _check_named(departure)
        return told

    def read(self, asked: MoveRead) -> Iterator[bytes]:
        """Return the bytes of a file of the newest round, piece by piece.

        Raises:
            ConflictError: the move was aborted.
            NotFoundError: the round has no such file.
        """
        with self._lock:
            departure = self._of(asked.move)
            departure.used_at = self._now()
            file = departure.opened.get(asked.name)
        if file is None:
            raise NotFoundError(f"the latest round of the move has no file {asked.name!r}")
        return map(bytes, _pieces(file))

    def hand_over(self, asked: MoveHandOver) -> HandedOver:
        """Hand the tablet over, durably; a repeated call gets the same answer. The caller knows that the target has
        the round.

        Raises:
            ConflictError: the move was aborted, the table was renamed, or the round is not the last.
            UnavailableError: the tablet has changed since and needs another round, or rows of the table are staged.
            StorageFullError: the manifest could not be written; nothing happened.
        """
        with ExitStack() as afterwards, self._lock:
            if known := self._told(asked.move):
                return known
            departure = self._of(asked.move)
            if (departure.number, departure.asked.to) != (asked.number, asked.to) or not departure.is_last:
                raise ConflictError(f"round {asked.number} of the move is not its last: begin another round")
            self._leave(departure)
            afterwards.callback(retire, self._environment, [departure.tablet], _WHY)  # may wait, and without the lock
            try:
                told = self._told(asked.move)  # the move cannot end before it is known as handed over
            finally:  # it is handed over, though the clock may lack a timestamp to say so
                del self._open[asked.move]
        if told is None:
            raise NotFoundError(f"table {asked.table!r} was dropped while its tablet was handed over")
        return told

    def status(self, move: str) -> MoveStatus:
        """Return the state of a move.

        Raises:
            UnavailableError: a manifest write has failed, so it is unknown whether the tablet was handed over; or
                another process may have the store, which alone knows.
        """
        status = self._status(move)
        self._environment.mvcc.check_now()  # last: it then held when the state was read
        return status

    def _status(self, move: str) -> MoveStatus:
        if self._environment.manifest.failed:
            self._environment.latch.check()
        departure = self._open.get(move)  # read before the manifest: a move that leaves here is in the manifest by then
        if departure and not departure.tablet.retired:  # a tablet that was split or dropped can't be handed over
            return MoveStatus(state=MoveState.UNDER_WAY)
        told = self._told(move)
        return MoveStatus(state=MoveState.HANDED_OVER if told else MoveState.UNKNOWN, handed_over=told)

    def abort(self, move: str) -> MoveStatus:
        """Abort a move unless the tablet was handed over; return its state. Raises as ``status``."""
        with self._lock:
            self.status(move)
            if departure := self._open.pop(move, None):
                departure.tablet.is_closed = None
            return self.status(move)

    def idle(self, before: int) -> list[str]:
        """Return the moves without a request since a time that ``now`` gave."""
        return [move for move, each in list(self._open.items()) if each.used_at < before]

    def forget(self, move: str) -> None:
        """End a move whose tablet the target serves."""
        tablets = [tablet.id for table in self._environment.manifest.current.tables for tablet in _left(table, move)]
        for tablet_id in tablets:
            self._environment.manifest.commit(
                lambda manifest, number=tablet_id: manifest.with_tablet(
                    number, lambda entry: entry.model_copy(update={"moved": None})
                )
            )

    def _of(self, move: str) -> _Departure:
        departure = self._open.get(move)
        if departure is None:
            raise self._unknown(move)
        return departure

    def _unknown(self, move: str) -> ConflictError:
        """Return the error about a move that is not under way. Raises UnavailableError: another process may have the
        store, where it is."""
        self._environment.mvcc.check_now()
        return _given_up(move)

    def _check_target(self, to: str) -> None:
        here = self._environment.here
        if here is None:
            raise InvalidArgumentError("this server shares its tables with no other server: tablets cannot be moved")
        if to not in here.placement.servers or to == here.server:
            others = ", ".join(name for name in here.placement.servers if name != here.server)
            raise InvalidArgumentError(f"a tablet of this server can move only to {others}, not to {to!r}")

    def _check_unstaged(self, table: Table) -> None:
        if self._staging.holds(table.table_id):
            raise UnavailableError(
                f"a transaction has staged rows of table {table.name!r}: commit it before you move tablets", 1.0
            )

    def _opened(self, entry: TabletEntry, known: dict[str, CFileReader]) -> dict[str, CFileReader]:
        home, fs = files.directory(entry.home), self._environment.fs
        names = [
            (name, rowset.written_as.get(files.id_of(name))) for rowset in entry.rowsets for name in rowset.file_names
        ]
        with named("a file of the tablet could not be read"):
            return {
                name: known.get(name)
                or CFileReader.open(fs, f"{home}/{name}", files.id_of(name), written_as=written_as)
                for name, written_as in names
            }

    def _described(self, name: str, file: CFileReader) -> MoveFile:
        """Describe a file. In a directory its pages are verified, and the target checks the bytes that it receives
        again. In a bucket nobody reads all of it for that."""
        if self._root:
            return MoveFile(name=name, bytes=file.size_bytes)
        file.verify_checksums()
        size, crc = crc32_of(_pieces(file))
        return MoveFile(name=name, bytes=size, crc=crc)

    def _round(self, departure: _Departure, entry: TabletEntry) -> MoveRound:
        here = self._environment.here
        assert here is not None, "it was checked"
        version = departure.table.version
        return MoveRound(
            move=departure.asked.move,
            number=departure.number,
            last=departure.is_last,
            table=departure.table.name,
            tablet=entry.id,
            partition=entry.partition,
            source=here.server,
            to=departure.asked.to,
            schema_=version.schema,
            options=version.options,
            partitions=version.partitions,
            clock=self._environment.mvcc.now(),
            rowsets=tuple(entry.told()["rowsets"]),
            history_floor=max(entry.history_floor, departure.tablet.version.history_floor),
            files=tuple(departure.files.values()),
            objects=self._root.objects_in(files.directory(entry.home)) if self._root else None,
        )

    def _leave(self, departure: _Departure) -> None:
        """Replace the tablet by an empty one that is elsewhere."""
        environment, table, tablet = self._environment, departure.table, departure.tablet
        with table.alteration_lock, _at_rest(tablet):
            if tablet not in table.tablets or tablet.retired:
                raise _given_up(departure.asked.move)
            number, budget, to = environment.manifest.new_id(), environment.key_index, departure.asked.to
            empty = Tablet(number, table.schema, budget, tablet.partition, None, tablet.ancestors, to)
            empty.aliases = (*tablet.aliases, tablet.tablet_id)
            make_directories(environment, [empty])
            with write_locks(table.tablets):
                table.check_in_use()
                _check_named(departure)
                self._check_same(departure)
                self._commit(departure, empty)
                with environment.latch.on_failure("a moved tablet could not be removed"):
                    table.version = table.version.with_tablet(tablet, empty)
                    table.redefined()

    def _check_same(self, departure: _Departure) -> None:
        """Check, under the locks, that the round contains the whole tablet."""
        tablet, known = departure.tablet, departure.entry
        now = self._environment.manifest.current.tablet(tablet.tablet_id)
        self._environment.latch.check()
        is_same = now and known and (now.rowsets, now.history_floor) == (known.rowsets, known.history_floor)
        if not is_same or tablet.version.attached or tablet.first_unflushed_lsn() is not None:
            raise UnavailableError("the tablet has changed since the last round of the move: begin another round", 0.0)
        self._check_unstaged(departure.table)

    def _commit(self, departure: _Departure, empty: Tablet) -> None:
        table, tablet, to = departure.table, departure.tablet, departure.asked.to
        moved = MovedEntry(name=departure.asked.move, server=to, tablet=tablet.tablet_id)
        entry = TabletEntry(
            id=empty.tablet_id,
            partition=empty.partition,
            ancestors=empty.ancestors,
            elsewhere=to,
            aliases=empty.aliases,
            moved=moved,
        )
        last_id, last_change = table.auto_increment.last, table.settled_change(self._environment.mvcc)

        def edited(old: TableEntry) -> TableEntry:
            kept = tuple(each for each in old.tablets if each.id != tablet.tablet_id)
            return old.model_copy(
                update={
                    "tablets": (*kept, entry),
                    "last_auto_id": max(old.last_auto_id, last_id),
                    "last_change": max(old.last_change, last_change),
                }
            )

        self._environment.manifest.commit(lambda manifest: manifest.with_altered(table.table_id, edited))

    def _told(self, move: str) -> HandedOver | None:
        """Return the hand-over of a move; None if there was none or it was forgotten."""
        tables = {table.table_id: table for table in self._tables()}
        for entry in self._environment.manifest.current.tables:
            for tablet in _left(entry, move):
                if table := tables.get(entry.id):  # else it was dropped just now
                    return self._handed_over(move, table, tablet.partition)
        return None

    def _handed_over(self, move: str, table: Table, partition: TabletPartition) -> HandedOver:
        return HandedOver(
            move=move,
            table=table.name,
            clock=self._environment.mvcc.now(),  # above the snapshot of every scan that read the tablet here
            last_auto_id=table.auto_increment.last,
            last_change=table.settled_change(self._environment.mvcc),
            answers=self._writers.of_tablet(table.table_id, f"@{sum_of([partition])}"),
        )


@contextmanager
def _at_rest(tablet: Tablet) -> Iterator[None]:
    """Hold a tablet's maintenance lock. Raises UnavailableError during a compaction."""
    if not tablet.maintenance_lock.acquire(timeout=_PATIENCE_SECONDS):
        raise UnavailableError("the tablet is being compacted: begin another round of the move", 0.0)
    try:
        yield
    finally:
        tablet.maintenance_lock.release()


def _found(table: Table, tablet_id: int) -> Tablet:
    tablet = next((each for each in table.tablets if tablet_id in (each.tablet_id, *each.aliases)), None)
    if tablet is None:
        raise NotFoundError(f"table {table.name!r} has no tablet {tablet_id} on this server")
    check_here(tablet)
    return tablet


def _check_named(departure: _Departure) -> None:
    """Raise ConflictError if the table was renamed since the newest round: the target has that for the table which it
    knows by the name, and another table may have got it."""
    if departure.round is not None and departure.round.table != departure.table.name:
        raise ConflictError(
            f"table {departure.round.table!r} was renamed to {departure.table.name!r} during the move "
            f"{departure.asked.move!r}: start a new move"
        )


def _left(table: TableEntry, move: str) -> list[TabletEntry]:
    return [each for each in table.tablets if each.elsewhere and each.moved and each.moved.name == move]


def _pieces(file: CFileReader) -> Iterator[memoryview]:
    end = file.size_bytes
    for first in range(0, end, _CHUNK_BYTES):
        yield file.image.read(first, min(_CHUNK_BYTES, end - first)).data


def _given_up(move: str) -> ConflictError:
    return ConflictError(f"the move {move!r} was aborted by another move or an alteration: start a new move")
