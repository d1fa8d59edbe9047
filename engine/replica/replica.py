"""Replica: a store that another process writes, read here as of the end of its log.

It opens the newest manifest, and applies the records of each slot to rows in memory, by the code of the recovery. So it
has all commits up to the *safe* timestamp of the slot that it applied last, and answers at snapshots up to that. When a
slot names another manifest, the tablets whose files it changes are opened anew, and get the records that these files
lack; then the new tables take the place of the former ones, whose rows in memory go. Scans that run keep theirs.

It writes nothing, and pins nothing: the holder deletes the files that it replaces. Whoever needs one that is gone gets
UNAVAILABLE, and finds the same snapshot in the next manifest, as far as the table's history goes.

FRESHNESS. No clock of another machine is compared. A listing that was sent at some time shows every slot that had
landed by then. Once all of them are applied, every write that was acknowledged before that time is visible.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import CorruptionError, UnavailableError
from ...schemas.protocol.service import ScanStream
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.description import ScanPlan, TableDescription, TableStats, TabletMap
from ...schemas.store.grants import Grant, no_table
from ...schemas.table.table import TableSchema
from ..bucket.files import BucketFileSystem
from ..catalog.grants import listed_grants
from ..cfile.cache import PageCache
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..fs.failures import named
from ..fs.low_water import LowWater
from ..home.bucket import BucketHome
from ..home.manifests import read_manifest
from ..manifest import files
from ..manifest.damage import DamageRegistry
from ..manifest.environment import LooseFiles
from ..manifest.key_budget import KeyIndexBudget
from ..manifest.makers import maker_of, with_makers
from ..manifest.manifest import Manifest, TabletEntry
from ..manifest.rowset_entry import RowsetEntry
from ..mvcc.clock import Clock, SystemClock
from ..mvcc.replicated import ReplicatedMvcc
from ..options import StoreOptions
from ..recovery.log_replay import LoggedTablets, LogReplay
from ..scan.plan.facade import Reads
from ..scan.plan.planned_scans import PlannedScans
from ..scan.plan.snapshots import Snapshots
from ..scan.read.pool import ScanPool
from ..table.stats import described, table_stats, tablet_map
from ..table.table import Table
from ..tablet.attach import logged_attachments, with_logged
from ..tablet.open import fetch_ends, open_rowset, open_sound, open_tablet
from ..tablet.tablet import Tablet
from ..wal.records import gathered
from ..wal.slots.chain import Chain
from ..wal.slots.payload import whole
from ..wal.slots.reader import SlotReader, newest_slot
from ..wal.slots.slot import Slot, SlotHeader, SlotKind, decode_slot
from ..wal.slots.slot_store import SlotStore
from .log_listing import LogListing
from .open_tables import OpenTables, open_tables

_AT_ONCE_BYTES = 1 << 20
"""Log records are applied in parts of so many bytes: those who look up keys wait meanwhile."""
PATIENCE_SECONDS = 2.0
"""How long a reader waits for what the replica has not applied yet."""


class _GapError(Exception):
    """A slot was freed before it was applied, or is none of those that follow."""


class OtherHistoryError(UnavailableError):
    """The log is another one than that which a replica applied: the bucket was put back to an earlier state."""

    def __init__(self) -> None:
        super().__init__("the bucket was put back to an earlier state: rows that this replica has read are gone")


@dataclass(frozen=True, slots=True)
class _Applied:
    """How far the log is applied, and to what."""

    last: Slot
    tables: OpenTables
    replay: LogReplay


class Replica:
    """A store that another process writes, as of the end of its log. One thread calls ``advance``; any may read."""

    def __init__(self, home: BucketHome, slots: SlotStore, options: StoreOptions, clock: Clock | None = None) -> None:
        """``slots`` are those of the store at ``home``, whose cache this process has locked (``BucketHome.take``)."""
        self._home = home
        self._slots = slots
        self._options = options
        self._clock = clock or SystemClock()
        self._mvcc = ReplicatedMvcc(self._clock, PATIENCE_SECONDS)
        self._answers = NumberedWrites(), TransactionMemory()
        self._pool = ScanPool(options.scan_threads)
        self.damage = DamageRegistry()
        """The damaged files found so far."""
        self._files: LooseFiles | None = None
        self._fs: BucketFileSystem | None = None
        self._reads: Reads | None = None
        self._planned: PlannedScans | None = None
        self._applied: _Applied | None = None
        self._makers: dict[int, str] = {}
        """Of the files that can be read; see ``makers``."""
        self._end = 0
        self._is_sound = False
        """Whether the tablets have all of the slots up to the last one that was applied, and nothing of later ones."""
        self._fresh_at = float("-inf")
        self._listing = LogListing(home.seconds_since_boot)
        self._moved = threading.Condition()
        self._is_closed = False

    # What it has

    @property
    def end(self) -> int:
        """The number of the slot that was applied last; 0: none yet."""
        return self._end

    @property
    def safe(self) -> int:
        """The newest snapshot that can be read here."""
        return self._mvcc.snapshot()

    def snapshot(self, max_staleness: float) -> int:
        """Return a snapshot with every write that was acknowledged more than ``max_staleness`` seconds before the call.

        Raises:
            UnavailableError: the replica is further behind, or the bucket does not answer.
        """
        self._open_reads()
        since = self._home.seconds_since_boot() - max_staleness
        if self._fresh_at < since:
            at, end = self._listing.since(since, self._listed_end)
            with self._moved:
                if not self._moved.wait_for(lambda: self.end >= end or self._is_closed, PATIENCE_SECONDS):
                    raise UnavailableError(f"this replica is {end - self.end:,} slots of the log behind")
                self._fresh_at = max(self._fresh_at, at)
            self._check_open()
        return self._mvcc.snapshot()

    def _listed_end(self) -> int:
        known = self.end
        end = self._home.slots_within(PATIENCE_SECONDS).end(max(known - 1, 0))
        if end < known:
            raise UnavailableError(f"the log ends with slot {end:,}, though slot {known:,} was seen")
        return end

    # Reads

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService. Raises UnavailableError unless the snapshot is one here."""
        return self._reads_at(spec).ways.scan(spec)

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        return self._reads_at(spec).plan(spec)

    def release_scan(self, lease: str) -> None:
        """See StoreService."""
        self._open_reads().release(lease)

    def tables(self) -> list[str]:
        """See StoreService."""
        return sorted(self._state.tables.by_name)

    def describe_table(self, name: str) -> TableDescription:
        """See StoreService."""
        return described(self._table(name), self._state.tables.manifest.store_uuid, None)

    def table_stats(self, name: str) -> TableStats:
        """See StoreService."""
        return table_stats(self._table(name))

    def tablets(self, name: str) -> TabletMap:
        """See StoreService."""
        return tablet_map(self._table(name))

    def grants(self) -> list[Grant]:
        """See StoreService. As of the last slot that was applied."""
        tables = self._state.tables
        return listed_grants(tables.manifest.grants, tables.tables.values())

    def grants_version(self) -> object:
        """See GrantKeeper. Grants and names are those of the manifest."""
        header = self._state.last.header
        return header.store_uuid, header.manifest

    def close(self) -> None:
        """End what reads, and let its memory go; return at once. ``advance`` raises UnavailableError from then on."""
        with self._moved:
            self._is_closed = True
            applied, self._applied, self._reads, self._files, self._planned = self._applied, None, None, None, None
            self._moved.notify_all()
        self._pool.shutdown(wait=False)
        if self._fs is not None:
            self._fs.close(wait=False)
        if applied is not None:
            _release(applied.tables, None)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def _state(self) -> _Applied:
        applied = self._applied  # another thread may close it
        self._check_open()
        if applied is None:
            raise UnavailableError("this replica has not opened the store yet")
        return applied

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()

    def _open_reads(self) -> Reads:
        _, reads = self._state, self._reads
        if reads is None:
            raise _closed()
        return reads

    def _open_files(self) -> LooseFiles:
        files = self._files
        if files is None:
            raise _closed()
        return files

    def _reads_at(self, spec: ScanSpec) -> Reads:
        """Wait until the snapshot of a scan can be read: the tables that show it are there from then on."""
        reads, moment = self._open_reads(), spec.changes.until if spec.changes else spec.as_of
        if moment is not None:
            self._mvcc.wait_for(parse_moment(moment))
        return reads

    def _table(self, name: str) -> Table:
        by_name = self._state.tables.by_name
        if found := by_name.get(name):
            return found
        raise no_table(name, sorted(by_name))

    # Following the log

    def advance(self, newest: Slot) -> None:
        """Apply the log up to ``newest``, the newest slot that is known.

        Raises:
            UnavailableError: something is gone, since the log went on, or the bucket does not answer. What could be
                read before still can; call again with the newest slot of then. Or the replica was closed.
            CorruptionError: the log or the manifest is not what was written.
            OtherHistoryError: close it, and open another one.
        """
        try:
            self._advance(newest)
        finally:
            self._forget_plans()

    def _forget_plans(self) -> None:
        """Release planned scans whose time is over, and those that read tables which others have replaced here: no
        ticket finds them any more."""
        applied, planned = self._applied, self._planned
        if applied is not None and planned is not None:
            planned.forget_others(applied.tables.tables.values())
            planned.tidy()

    def _advance(self, newest: Slot) -> None:
        applied = self._applied
        self._check_open()
        if applied is not None and newest.header.number <= applied.last.header.number:
            if newest.crc != applied.last.crc:
                raise OtherHistoryError
            return
        if newest.header.kind is SlotKind.CLAIM and self._slots.end(newest.header.number - 1) != newest.header.number:
            return  # it may be void: the next slot tells
        with named("the replica could not follow the log"):
            advanced = self._advanced(applied if self._is_sound else None, newest)
        with self._moved:
            if self._is_closed:
                _release(advanced.tables, None)
                raise _closed()
            self._applied, self._is_sound = advanced, True
            self._mvcc.advance(newest.header.safe)  # after the tables that show it, and before anybody counts on it
            self._end = newest.header.number
            self._moved.notify_all()
        if applied is not None:
            _release(applied.tables, advanced.tables)

    def _advanced(self, applied: _Applied | None, newest: Slot) -> _Applied:
        self._is_sound = False
        if applied is not None and newest.header.manifest == applied.last.header.manifest:
            try:
                self._apply(self._following(applied.last, newest), applied.tables, applied.replay)
                return _Applied(newest, applied.tables, applied.replay)
            except _GapError:
                applied = None
        if applied is not None and newest.header.needed_slot > applied.last.header.number + 1:
            applied = None
        return self._opened(applied, newest)

    def _following(self, last: Slot, newest: Slot) -> Iterator[Slot]:
        """Yield the slots after ``last``. Raises _GapError if one is not the next."""
        chain = Chain()
        chain.last = last
        for number in range(last.header.number + 1, newest.header.number + 1):
            self._check_open()
            content = self._slots.read(number)
            if content is None:
                raise _GapError
            slot = decode_slot(number, content)
            try:
                chain.follow(slot)
                slot = whole(self._slots, slot)
            except CorruptionError:
                raise _GapError from None  # if the log is damaged, opening it says so
            self._know(slot.header.makers)
            yield slot

    def _opened(self, former: _Applied | None, newest: Slot) -> _Applied:
        """Open the manifest of the newest slot, and apply the log that it needs to what was opened."""
        header, reader = newest.header, SlotReader(self._slots, newest)
        self._make_files(header)
        attached = logged_attachments(slot.records() for slot in self._read(reader))
        manifest = self._manifest(header)
        self._know(with_makers(with_logged(manifest, attached), reader.makers).makers)
        if former is None and self._fs is not None:
            fetch_ends(self._fs, (tablet for table in manifest.tables for tablet in table.tablets))
        tables = open_tables(
            manifest, attached, former.tables if former else None, lambda *tablet: self._open(header, *tablet)
        )
        done = former.last.header.number if former else 0
        try:
            replay_opened = self._replay(tables, only_opened=True)
            replay = self._replay(tables)
            slots = _of_one_history(self._read(reader), former)
            for is_new, some in groupby(slots, lambda slot: slot.header.number > done):
                if is_new:
                    self._apply(some, tables, replay)
                else:
                    for records in gathered((slot.records() for slot in some), _AT_ONCE_BYTES):
                        replay_opened.apply(records)
        except BaseException:
            _release(tables, former.tables if former else None)
            raise
        return _Applied(newest, tables, replay)

    def _read(self, reader: SlotReader) -> Iterator[Slot]:
        for slot in reader.read():
            self._check_open()
            yield slot

    def _apply(self, slots: Iterable[Slot], tables: OpenTables, replay: LogReplay) -> None:
        for records in gathered((slot.records() for slot in slots), _AT_ONCE_BYTES):
            self._check_open()
            first = 0
            for lsn, attached in groupby(logged_attachments([records]), lambda each: each[1].durable_lsn):
                place = lsn - records.first_lsn
                replay.apply(records.part(first, place))
                self._attach(list(attached), tables)
                first = place
            replay.apply(records.part(first, len(records)))

    def _attach(self, attached: Sequence[tuple[int, RowsetEntry]], tables: OpenTables) -> None:
        """Open the rowsets that a record attaches, unless the manifest had them, or they were merged since."""
        for tablet_id in dict.fromkeys(tablet_id for tablet_id, _ in attached):
            tablet, entry = tables.tablets.get(tablet_id), tables.entries.get(tablet_id)
            if tablet is None or entry is None or tablet.quarantine:
                continue
            more = entry.with_attached([rowset for each, rowset in attached if each == tablet_id])
            self._look_for(more)
            opened = self._open_files()
            for rowset_entry in more.rowsets[len(entry.rowsets) :]:
                rowset = open_rowset(tablet, opened, rowset_entry, tablet.free_slot())
                rowset.load_liveness()
                with tablet.write_lock:
                    tablet.add_diskrowset(rowset)

    def _replay(self, tables: OpenTables, only_opened: bool = False) -> LogReplay:
        tablets = LoggedTablets(tables.tables.values(), tables.opened if only_opened else None)
        return LogReplay(tablets, *self._answers, self.damage)

    def _manifest(self, header: SlotHeader) -> Manifest:
        if not header.manifest:
            return Manifest(store_uuid=header.store_uuid.hex())
        try:
            return read_manifest(self._home.bucket, self._home.prefix, header.manifest, header.manifest_crc)
        except CorruptionError:
            self._check_newest(header)
            raise

    def _open(self, header: SlotHeader, entry: TabletEntry, schema: TableSchema) -> Tablet:
        opened = self._open_files()
        self._look_for(entry)
        fetch_ends(opened.fs, [entry])
        try:
            return open_tablet(entry, schema, opened)
        except CorruptionError:
            self._check_newest(header)
        return open_sound(entry, schema, opened, self.damage)

    def _look_for(self, entry: TabletEntry) -> None:
        """Look which files there are of a tablet, if some are new."""
        fs, directory = self._fs, files.directory(entry.home)
        assert fs is not None, "made before anything is opened"
        names = (f"{directory}/{name}" for rowset in entry.rowsets for name in rowset.file_names)
        if not all(map(fs.exists, names)):
            fs.look_again(directory)

    def _check_newest(self, header: SlotHeader) -> None:
        """Raise UnavailableError if the log names another manifest by now: then it is no damage that something is
        gone."""
        newest = newest_slot(self._slots)
        if newest is None or newest.header.manifest != header.manifest:
            raise UnavailableError("the process that has the store has replaced files meanwhile")

    def _know(self, makers: Mapping[int, str]) -> None:
        """Take note of who made the files that are to be read. Raises OtherHistoryError: the names of those that were
        read before mean others now."""
        known = self._makers
        if any(known.get(reign, maker) != maker for reign, maker in makers.items()):
            raise OtherHistoryError
        known.update(makers)  # the files look here

    def _make_files(self, header: SlotHeader) -> None:
        """Make what reads, once. The cache may be another's as soon as the replica is closed."""
        with self._moved:
            self._check_open()
            if self._fs is not None:
                return
            options, makers = self._options, self._makers  # not this replica: it is freed before another store opens
            fs = self._fs = self._home.files_beside(
                header.store_uuid.hex(), options.bucket_cache_bytes, lambda path: maker_of(makers, path)
            )
            # No key index, as in a recovery: one would be built of all keys whenever a flush opens the tablet anew.
            key_index = KeyIndexBudget(options.key_index_bytes, on_demand=False)
            self._files = LooseFiles(fs, PageCache(options.page_cache_bytes or options.budget_bytes // 4), key_index)
            disk = LowWater(fs, options.disk_low_bytes)
            self._planned = PlannedScans(self._clock.physical_microseconds, uuid.uuid4, options, disk)
            self._reads = Reads(
                table=self._table,
                mvcc=self._mvcc,
                snapshots=Snapshots(self._clock, self._mvcc, options.clock_error_seconds),
                planned=self._planned,
                damage=self.damage,
                pool=self._pool,
                options=options,
                is_far=True,
            )


def _of_one_history(slots: Iterable[Slot], former: _Applied | None) -> Iterator[Slot]:
    """Yield the slots. Raises OtherHistoryError at one in the place of the last that was applied, but another."""
    for slot in slots:
        if former and slot.header.number == former.last.header.number and slot.crc != former.last.crc:
            raise OtherHistoryError
        yield slot


def _closed() -> UnavailableError:
    return UnavailableError("this process is no longer a replica; connect to the store again")


def _release(tables: OpenTables, kept: OpenTables | None) -> None:
    """Give back the memory of the key indexes of tablets that are not kept, and what tables that are not kept have
    worked out for readers: it refers back to them. Scans that run keep their rowsets."""
    for number, tablet in tables.tablets.items():
        if kept is None or kept.tablets.get(number) is not tablet:
            tablet.key_lookup.release()
    for number, table in tables.tables.items():
        if kept is None or (now := kept.tables.get(number)) is None or now.version is not table.version:
            table.version.forget_plans()
