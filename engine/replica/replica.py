"""Replica: a store that another process writes, read here as of the end of its log.

It opens the newest manifest, and applies the log to rows in memory, by the code of the recovery. So it has all commits
up to the *safe* timestamp of the point of the log that it applied last, and answers at snapshots up to that. When
another manifest counts, the tablets whose files it changes are opened anew, and get the records that these files lack;
then the new tables take the place of the former ones, whose rows in memory go. Scans that run keep theirs.

Where the log and the manifests come from is its `Source`: slots in a bucket (`slots`), or the files of a directory
(`segments`).

It writes nothing, and pins nothing: the holder deletes the files that it replaces. Whoever needs one that is gone gets
UNAVAILABLE, and finds the same snapshot in the next manifest, as far as the table's history goes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import CorruptionError, UnavailableError, UnreadableFileError
from ...schemas.protocol.request import check_meant
from ...schemas.protocol.service import ScanStream
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan
from ...schemas.store.description import (
    DamagedFile,
    DroppedTable,
    TableDescription,
    TableStats,
    TabletMap,
)
from ...schemas.store.grants import Grant, no_table
from ...schemas.table.table import TableSchema
from .. import threads
from ..catalog.catalog import listed_dropped
from ..catalog.grants import listed_grants
from ..cfile.cache import PageCache
from ..commit.commit_authors import Authored
from ..commit.numbered_writes import NumberedWrites
from ..commit.row_stamps import RowStamps
from ..commit.transaction_memory import TransactionMemory
from ..fs.failures import named
from ..fs.low_water import LowWater
from ..manifest import files
from ..manifest.damage import DamageRegistry
from ..manifest.environment import LooseFiles
from ..manifest.key_budget import KeyIndexBudget
from ..manifest.manifest import TabletEntry
from ..manifest.rowset_entry import RowsetEntry
from ..mvcc.clock import Clock, SystemClock, boot_seconds
from ..mvcc.replicated import ReplicatedMvcc
from ..options import StoreOptions
from ..recovery.log_replay import LoggedTablets, LogReplay
from ..scan.plan.commits import commits
from ..scan.plan.facade import Reads
from ..scan.plan.planned_scans import PlannedScans
from ..scan.plan.snapshots import Snapshots
from ..scan.read.pool import ScanPool
from ..table.stats import damaged_files, described, table_stats, tablet_map
from ..table.table import Table
from ..tablet.attach import logged_attachments
from ..tablet.open import fetch_ends, open_rowset, open_sound, open_tablet
from ..tablet.tablet import Tablet
from ..wal.records import LogRecords, gathered
from .open_tables import OpenTables, open_tables
from .source import AnyPoint, GapError, Source

_AT_ONCE_BYTES = 1 << 20
"""Log records are applied in parts of so many bytes: those who look up keys wait meanwhile."""
Item = TypeVar("Item")
_KEYS_PER_SEARCH = 2_000
"""To find a single row without an index takes as long as to index so many keys."""
PATIENCE_SECONDS = 2.0
"""How long a reader waits for what the replica has not applied yet."""


@dataclass(frozen=True, slots=True)
class _Applied(Generic[AnyPoint]):
    """How far the log is applied, and to what."""

    last: AnyPoint
    tables: OpenTables
    replay: LogReplay


class Replica(Generic[AnyPoint]):
    """A store that another process writes, as of the end of its log. One thread calls ``advance``; any may read."""

    def __init__(
        self,
        source: Source[AnyPoint],
        options: StoreOptions,
        clock: Clock | None = None,
        is_far: bool = False,
        seconds: Callable[[], float] = boot_seconds,
    ) -> None:
        """``is_far`` says whether the files are far away (`FarFileSystem`). If they are, those that were replaced are
        gone, and so planned scans end with the tables that they read. ``seconds`` is the time of looks."""
        self._source = source
        self._options = options
        self._is_far = is_far
        self._clock = clock or SystemClock()
        self._seconds = seconds
        self._mvcc = ReplicatedMvcc(self._clock, PATIENCE_SECONDS)
        self._answers = NumberedWrites(), TransactionMemory()
        self._pool = ScanPool(options.scan_threads)
        self.damage = DamageRegistry()
        """The damaged files found so far."""
        self._files: LooseFiles | None = None
        self._reads: Reads | None = None
        self._planned: PlannedScans | None = None
        self._snapshots = Snapshots(self._clock, self._mvcc, options.clock_error_seconds)
        self._applied: _Applied[AnyPoint] | None = None
        self._single_reads: WeakKeyDictionary[Table, int] = WeakKeyDictionary()
        """How many single rows were read of each table."""
        self._end = 0
        self._is_sound = False
        """Whether the tablets have all of the log up to the last point that was applied, and nothing of later ones."""
        self._moved = threads.Condition()
        self._is_closed = False

    # What it has

    @property
    def end(self) -> int:
        """The number of the point of the log that was applied last; 0: none yet."""
        return self._end

    @property
    def safe(self) -> int:
        """The newest snapshot that can be read here."""
        return self._mvcc.snapshot()

    @property
    def readable(self) -> int:
        """The newest timestamp at which users may read here."""
        return self._mvcc.readable

    @property
    def store_uuid(self) -> str:
        return self._state.last.store_uuid

    @property
    def shown(self) -> object:
        """Another object whenever other tables take the place of the former ones: whoever has found a table before, and
        a snapshot after that, must find both again."""
        return self._state.tables

    def wait_for(self, number: int, seconds: float) -> bool:
        """Wait until the log is applied up to the point of a number; return whether it is. Raises UnavailableError if
        the replica is closed."""
        with self._moved:
            is_there = self._moved.wait_for(lambda: self.end >= number or self._is_closed, seconds)
        self._check_open()
        return is_there

    # Reads

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService. Raises UnavailableError unless the snapshot is one here."""
        return self._reads_at(spec).ways.scan(spec)

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        return self._reads_at(spec).plan(spec)

    def release_scan(self, lease: str) -> None:
        """See StoreService."""
        self.check_opened().release(lease)

    def tables(self) -> list[str]:
        """See StoreService."""
        return sorted(self._state.tables.by_name)

    def describe_table(self, name: str) -> TableDescription:
        """See StoreService."""
        return described(self.table(name), self._state.tables.manifest.store_uuid, None)

    def table_stats(self, name: str) -> TableStats:
        """See StoreService."""
        return table_stats(self.table(name))

    def tablets(self, name: str) -> TabletMap:
        """See StoreService."""
        return tablet_map(self.table(name))

    def index_keys(self, name: str, reads: int) -> None:
        """Index the keys of a table where that is worth it for single rows, of which ``reads`` more were read: a flush
        of the holder opens a tablet anew, without an index."""
        table = self.table(name)
        self._single_reads[table] = reads = self._single_reads.get(table, 0) + reads
        for tablet in table.tablets:
            if tablet.elsewhere is None and not tablet.quarantine:
                with tablet.write_lock:
                    tablet.key_lookup.build_for_searches(tablet.version, reads // len(table.tablets), _KEYS_PER_SEARCH)

    def commits(self, table: str, since: int | str | None, authored: Callable[[], Authored]) -> pa.Table:
        """See StoreService. ``authored`` returns who made them."""
        scan = self.check_opened().ways.scan_table
        return commits(self.table(table), since, self._snapshots, scan, *self._answers, authored)

    def now(self, at_least: int = 0) -> int:
        """See StoreService."""
        self.check_opened()
        return self._snapshots.now(at_least)

    def dropped_tables(self) -> list[DroppedTable]:
        """See StoreService."""
        return listed_dropped(self._state.tables.tables.values())

    def damaged_files(self) -> list[DamagedFile]:
        """Return the damaged files found so far, as far as they are of the store now."""
        tables = self._state.tables
        return damaged_files(self.damage.found(), tables.manifest, tables.tablets.values())

    def grants(self) -> list[Grant]:
        """See StoreService. As of the last slot that was applied."""
        tables = self._state.tables
        return listed_grants(tables.manifest.grants, tables.tables.values())

    def grants_version(self) -> object:
        """See GrantKeeper. Grants and names are those of the manifest."""
        last = self._state.last
        return last.store_uuid, last.manifest

    def close(self) -> None:
        """End what reads, and let its memory go; return at once. ``advance`` raises UnavailableError from then on."""
        with self._moved:
            self._is_closed = True
            applied, self._applied, self._reads, self._files, self._planned = self._applied, None, None, None, None
            self._moved.notify_all()
        self._pool.shutdown(wait=False)
        self._source.close_files()
        if applied is not None:
            _release(applied.tables, None)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def _state(self) -> _Applied[AnyPoint]:
        applied = self._applied  # another thread may close it
        self._check_open()
        if applied is None:
            raise UnavailableError("this replica has not opened the store yet")
        return applied

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()

    def check_opened(self) -> Reads:
        """Return what reads rows. Raises UnavailableError: it has not opened the store yet, or is closed."""
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
        reads = self.check_opened()
        for what, moment in spec.moments.items():
            self._wait_for_moment(moment, what)
        return reads

    def _wait_for_moment(self, moment: int | str, what: str) -> None:
        timestamp = parse_moment(moment, what)
        since = self._seconds()
        try:
            self._mvcc.wait_for(timestamp)
        except UnavailableError:
            if self._mvcc.looked > since:
                self.check_not_ahead(moment, what)
            raise

    def check_not_ahead(self, moment: int | str, what: str) -> None:
        """Reject a moment that this replica has not come to, though it has looked since it was named: unless it is
        close to the time of its clock, which may be behind, it is in the future."""
        self._snapshots.check_not_ahead(parse_moment(moment, what), moment, what)

    def table(self, name: str) -> Table:
        """Return the table of a name. Raises NotFoundError, and ConflictError if the request means another table by the
        name."""
        by_name = self._state.tables.by_name
        if found := by_name.get(name):
            check_meant(name, found.table_id)
            return found
        raise no_table(name, sorted(by_name))

    # Following the log

    def advance(self, newest: AnyPoint, looked: float = float("-inf")) -> None:
        """Apply the log up to ``newest``, the newest point that is known: there was none after it at ``looked``.

        Raises:
            UnavailableError: something is gone, since the log went on, or the store does not answer. What could be
                read before still can; call again with the newest point of then. Or the replica was closed.
            CorruptionError: the log or the manifest is not what was written.
            OtherHistoryError: close it, and open another one.
        """
        try:
            self._advance(newest, looked)
        finally:
            self._forget_plans()

    def _forget_plans(self) -> None:
        """Release planned scans whose time is over, and those that read tables which others have replaced here, and
        whose files are gone."""
        applied, planned = self._applied, self._planned
        if applied is not None and planned is not None:
            if self._is_far:
                planned.forget_others(applied.tables.tables.values())
            planned.tidy()

    def _advance(self, newest: AnyPoint, looked: float) -> None:
        applied = self._applied
        self._check_open()
        if applied is not None and newest.number <= applied.last.number:
            if (newest.number, newest.mark) != (applied.last.number, applied.last.mark):
                raise self._source.other_history()
            if newest.manifest == applied.last.manifest:
                self._mvcc.advance(newest.safe, newest.readable, looked)
                return
        if self._source.may_be_void(newest):
            return  # the next point tells
        with named("the log could not be followed"):
            advanced = self._advanced(applied if self._is_sound else None, newest)
        with self._moved:
            if self._is_closed:
                _release(advanced.tables, None)
                raise _closed()
            self._applied, self._is_sound = advanced, True
            # After the tables that show it, and before anybody counts on it.
            self._mvcc.advance(newest.safe, newest.readable, looked)
            self._end = newest.number
            self._moved.notify_all()
        if applied is not None:
            _release(applied.tables, advanced.tables)

    def _advanced(self, applied: _Applied[AnyPoint] | None, newest: AnyPoint) -> _Applied[AnyPoint]:
        self._is_sound = False
        if applied is not None and newest.manifest == applied.last.manifest:
            try:
                self._apply(self._source.following(applied.last, newest), applied.tables, applied.replay)
                return _Applied(newest, applied.tables, applied.replay)
            except GapError:
                applied = None
        if applied is not None and not self._source.reaches_back(applied.last, newest):
            applied = None
        try:
            return self._opened(applied, newest)
        except GapError:
            return self._opened(None, newest)

    def _opened(self, former: _Applied[AnyPoint] | None, newest: AnyPoint) -> _Applied[AnyPoint]:
        """Open the manifest of the newest point, and apply the log that it needs to what was opened."""
        self._make_files(newest)
        needed = self._source.needed(newest)
        manifest = needed.manifest
        if former is None:
            fetch_ends(self._open_files().fs, (tablet for table in manifest.tables for tablet in table.tablets))
        tables = open_tables(
            manifest, needed.attached, former.tables if former else None, lambda *tablet: self._open(newest, *tablet)
        )
        try:
            replay_opened = self._replay(tables, only_opened=True)
            replay = self._replay(tables)
            last = former.last if former else None
            for is_new, some in groupby(self._while_open(needed.records(last)), lambda each: each[0]):
                if is_new:
                    self._apply((records for _, records in some), tables, replay)
                else:
                    for records in gathered((records for _, records in some), _AT_ONCE_BYTES):
                        replay_opened.apply(records)
        except BaseException:
            _release(tables, former.tables if former else None)
            raise
        return _Applied(newest, tables, replay)

    def _while_open(self, items: Iterable[Item]) -> Iterator[Item]:
        iterator = iter(items)
        while True:
            self._check_open()
            try:
                item = next(iterator)
            except StopIteration:
                return
            yield item

    def _apply(self, log: Iterable[LogRecords], tables: OpenTables, replay: LogReplay) -> None:
        for records in gathered(self._while_open(log), _AT_ONCE_BYTES):
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

    def _open(self, point: AnyPoint, entry: TabletEntry, schema: TableSchema) -> Tablet:
        opened = self._open_files()
        self._look_for(entry)
        fetch_ends(opened.fs, [entry])
        try:
            return open_tablet(entry, schema, opened)
        except (CorruptionError, UnreadableFileError):
            self._source.check_newest(point)
        return open_sound(entry, schema, opened, self.damage)

    def _look_for(self, entry: TabletEntry) -> None:
        """Look which files there are of a tablet, if some are new."""
        directory = files.directory(entry.home)
        if names := [f"{directory}/{name}" for rowset in entry.rowsets for name in rowset.file_names]:
            self._source.look_for(names)

    def _make_files(self, point: AnyPoint) -> None:
        """Make what reads, once. A cache may be another's as soon as the replica is closed."""
        with self._moved:
            self._check_open()
            if self._files is not None:
                return
            options = self._options
            fs = self._source.make_files(point, options)
            # No key index, as in a recovery: one would be built of all keys whenever a flush opens the tablet anew.
            key_index = KeyIndexBudget(options.key_index_bytes, on_demand=False)
            self._files = LooseFiles(fs, PageCache(options.page_cache_bytes or options.budget_bytes // 4), key_index)
            disk = LowWater(fs, options.disk_low_bytes)
            self._planned = PlannedScans(self._clock.physical_microseconds, uuid.uuid4, options, disk)
            self._reads = Reads(
                table=self.table,
                mvcc=self._mvcc,
                snapshots=self._snapshots,
                planned=self._planned,
                damage=self.damage,
                pool=self._pool,
                options=options,
                stamps=RowStamps(self._clock.now),
                keeps_answers=False,
                is_far=self._is_far,
            )


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
