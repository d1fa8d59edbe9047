"""Store: the only entry to the engine. Implements ``schemas.service.StoreService`` in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate

import pyarrow as pa

from ..schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from ..schemas.rows.write import WriteCommand, WriteResult
from ..schemas.store.description import Health, TableDescription, TableStats, TabletMap
from ..schemas.store.moving import MoveProgress
from ..schemas.store.placement import Placement
from ..schemas.table.alter import Alteration
from ..schemas.table.table import TableDefinition
from . import threads
from .catalog.grants import Grants
from .checkpoint.checkpoints import Checkpoints
from .commit.authors_file import AuthorsFile
from .commit.commit_log import CommitLog
from .commit.memory_gate import MemoryGate
from .commit.memory_shares import share_memory
from .commit.room import Room
from .fs import FileSystem, LocalFileSystem
from .fs.failures import named
from .fs.far import FarFileSystem
from .home.directory import DirectoryHome
from .home.holding import Answer, Asked, Holding, held_answer, held_verb, verb
from .home.home import Home, Opening
from .maintenance.log_freeing import LogFreeing
from .maintenance.manager import MaintenanceManager
from .maintenance.op import MaintenanceOp, TabletOp, followed_by, kind_of
from .maintenance.replay_cost import ReplayCost
from .maintenance.together import perform_on_all, table_operations
from .manifest import pin_note
from .manifest.damage import DamageRegistry
from .manifest.manifest import CleanStopEntry
from .moving.moves import Mover
from .mvcc.clock import Clock, SystemClock
from .offload.bulk.commit import Importer
from .offload.bulk.imports import Imports, Storage
from .offload.direct import directory_pins
from .offload.merge import compactions
from .options import StoreOptions
from .recovery import recovery
from .recovery.recovered import recovered
from .scan.plan import commits
from .scan.plan.facade import Reads
from .scan.plan.planned_scans import PlannedScans
from .scan.plan.snapshots import Snapshots
from .scan.read.pool import ScanPool
from .statement.execute import Statements
from .store_metrics import StoreMetrics
from .table.direct_load import DirectLoad
from .table.small.writes import Writes
from .table.stats import damaged_files, described, health_of, table_stats, tablet_map
from .transaction.commit import Transactions
from .transaction.stage import ExpiryOp
from .transaction.staging.area import StagingArea
from .transaction.tablet_versions import TabletVersions
from .vectors.memory.reused import release_all, release_unused


def _of(part: Callable[[Store], Callable[Asked, Answer]]) -> Callable[Concatenate[Store, Asked], Answer]:
    """Return a verb that delegates to a part of the store."""

    def delegated(self: Store, *args: Asked.args, **named: Asked.kwargs) -> Answer:
        return part(self)(*args, **named)

    return verb(delegated)


class Store:
    """An open store. Thread safe. Closing it or crashing loses nothing that was acknowledged."""

    def __init__(self, home: Home, options: StoreOptions, clock: Clock) -> None:
        """Use ``Store.open``."""
        self.options = options
        self._where = home.where
        self.damage = DamageRegistry()
        """The damaged files found since the store opened."""
        self._home = home.take(Opening(options, self.damage.note, uuid.uuid4, clock))
        self._fs, self._clock = self._home.fs, self._home.clock
        try:
            with named("the store could not be opened"), recovery.saying_what_to_do(self._home.check_held):
                self._open()
            if damage := self._environment.manifest.damage:
                self.damage.note(damage)
        except BaseException:
            self._home.close()
            raise

    @classmethod
    def open(
        cls, where: str | Path | FileSystem | Home, options: StoreOptions | None = None, clock: Clock | None = None
    ) -> Store:
        """Open the store in a directory or another home, created if missing, and recover what a crash left in the log.

        Raises:
            UnavailableError: another process has it open, or the disk fails.
            CorruptionError: a file is not what was written; the text says which and where.
        """
        if isinstance(where, str | Path):
            where = LocalFileSystem(where)
        home = where if isinstance(where, Home) else DirectoryHome(where)
        return cls(home, options or StoreOptions(), clock or SystemClock())

    def _open(self) -> None:
        manifest_file = self._home.open_manifest()
        store_uuid = manifest_file.current.store_uuid
        self._identity = self.options.server, store_uuid
        self._described = partial(described, store_uuid=store_uuid, server=self.options.server)
        self._import_storage = Storage.of(self._fs, self.options.import_storage, store_uuid, self._home.place)
        self._import_storage.sweep()
        pin_note.sweep(self._fs)
        compactions.sweep(self._fs)
        found = recovered(self._home, manifest_file, self.options, self.damage)
        self._environment, self._catalog = found.environment, found.catalog
        self._wal, self._mvcc = found.environment.wal, found.environment.mvcc
        self.holding = Holding(self._mvcc.check_now, self._home.place is not None, self.damage.note)
        self._writers, self._transaction_memory = self._memories = found.writers, found.transaction_memory
        self._replayed, self._newest = found.replayed, found.newest
        self._make_parts()
        self._make_row_parts()
        self._make_offload_parts()
        self._home.opened()
        if self.options.maintenance == "on":
            self._maintenance.start()

    def _make_parts(self) -> None:
        """Make the parts that the others share."""
        options, now = self.options, self._clock.physical_microseconds
        self._log = CommitLog(self._wal.writer, self._mvcc, self._environment.latch)
        self._authors = AuthorsFile(self._home, self._log.authors, self._newest)
        cost = ReplayCost(self._wal, self._catalog.tablets, self._replayed, options.recovery_seconds_max)
        self._log_freeing = LogFreeing(self._log, self._environment, self._catalog.tables, *self._memories, cost)
        self._maintenance = MaintenanceManager(
            self._operations, self.damage.note, now, idle=release_unused, between=self._authors.save_if_due
        )
        self._gate = MemoryGate(
            options, self._fs, self._catalog.tablets, self._catalog.maintained_tablets, flush=self._maintenance.notify
        )
        self._snapshots = Snapshots(self._clock, self._mvcc, options.clock_error_seconds, options.server)
        room = self._room = Room(self._fs, options)
        self._grants = Grants(self._catalog, self._environment.manifest, self._mvcc.check_now, self._log.stamps)
        self._staging = StagingArea(self._fs, self._clock, options.staging_ttl_seconds, room, self._home.first_number)
        parts = self._log_freeing, options, uuid.uuid4, self._authors
        self._checkpoints = Checkpoints(self._environment, self._log, *parts)

    def _make_row_parts(self) -> None:
        """Make the parts that read and write rows."""
        options, notify = self.options, self._maintenance.notify
        self._planned = PlannedScans(self._clock.physical_microseconds, uuid.uuid4, options, self._gate.disk)
        self._pool = ScanPool(options.scan_threads)
        self._reads = Reads(
            table=self._catalog.table,
            mvcc=self._mvcc,
            snapshots=self._snapshots,
            planned=self._planned,
            damage=self.damage,
            pool=self._pool,
            options=options,
            stamps=self._log.stamps,
            keeps_answers=self._home.place is None,  # else they end with a lease
            is_far=isinstance(self._environment.fs, FarFileSystem),
        )
        share_memory(options, self._environment, self._gate, self._reads.used_bytes)
        self._statements = Statements(
            table=self._catalog.table,
            log=self._log,
            snapshots=self._snapshots,
            gate=self._gate,
            writers=self._writers,
            options=options,
            scan=self._reads.ways.scan_table,
            notify=notify,
        )
        direct_load = DirectLoad(self._environment, options.direct_load_bytes, options.direct_load_unsorted_bytes)
        self._writes = Writes(
            table=self._catalog.table,
            log=self._log,
            writers=self._writers,
            gate=self._gate,
            direct_load=direct_load,
            check_moment=self._snapshots.checked,
            notify=notify,
            options=options,
        )
        self._load_pool = threads.ThreadPoolExecutor(options.load_threads, "nyala-load")
        self._transactions = Transactions(
            area=self._staging,
            transaction_memory=self._transaction_memory,
            tablet_versions=TabletVersions(self._writers, can_move=self._environment.here is not None),
            log=self._log,
            gate=self._gate,
            direct_load=direct_load,
            options=options,
            table=self._catalog.table,
            tables=self._catalog.tables,
            pool=self._load_pool,
            check_moment=self._snapshots.checked,
            notify=notify,
        )

    def _make_offload_parts(self) -> None:
        """Make the parts that serve other processes, which keep files here or bring them."""
        now, notify = self._clock.steady_microseconds, self._maintenance.notify
        self._imports = Imports(
            catalog=self._catalog,
            importer=Importer(self._environment, self._log, self.options.limits, self._gate.admitted, now),
            writers=self._writers,
            storage=self._import_storage,
            room=self._room,
            clock=self._clock,
            new_timestamp=self._clock.now,
            notify=notify,
        )
        shared = self._catalog, self._environment, self._snapshots, self.options.limits, self._room
        self._pins = directory_pins.kind_for(self._home.pinned)(*shared, self._clock, self._clock.now)
        self._compactions = compactions.Compactions(
            catalog=self._catalog,
            environment=self._environment,
            snapshots=self._snapshots,
            room=self._room,
            clock=self._clock,
            new_timestamp=self._clock.now,
            flushed=self._after_flush,
            notify=notify,
            bucket=self._home.place,
        )
        self._mover = Mover(
            catalog=self._catalog,
            environment=self._environment,
            log=self._log,
            writers=self._writers,
            staging=self._staging,
            snapshots=self._snapshots,
            now=now,
            room=self._room,
            notify=notify,
            root=self._home.shared_root,
        )
        unfinished = self._staging, self._imports, self._pins, self._compactions
        parts = self._environment, self._catalog, self._gate, self._reads, self._planned
        self._metrics = StoreMetrics(self.options, *parts, unfinished, self.health, self._log_freeing.replay_seconds)

    # Tables

    @held_verb
    def create_table(self, definition: TableDefinition) -> TableDescription:
        """See StoreService."""
        return self._described(self._catalog.create(definition))

    @held_verb
    def alter_table(self, alteration: Alteration) -> TableDescription:
        """See StoreService."""
        table = self._catalog.alter(alteration, self._clock.physical_microseconds(), self._forget)
        self._gate.freed()  # dropped tablets free memory
        self._maintenance.retry(table.name)  # rows in memory may have been set aside to be flushed
        return self._described(table)

    @held_verb
    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """See StoreService."""
        if keep_seconds == 0:
            self._forget(self._catalog.drop(name).table_id)
        else:
            self._catalog.set_aside(name, keep_seconds, self._clock.physical_microseconds())

    def _forget(self, gone: int) -> None:
        self._writers.forget(lambda table_id: table_id == gone)
        with suppress(StoreError):  # the next flush frees the log, too
            self._after_flush()

    @held_verb
    def recall_table(self, table: str | int, new_name: str | None = None) -> TableDescription:
        """See StoreService."""
        return self._described(self._catalog.recall(table, new_name))

    dropped_tables = held_verb(_of(lambda store: store._catalog.dropped))
    tables = _of(lambda store: store._catalog.names)

    @verb
    def describe_table(self, name: str) -> TableDescription:
        """See StoreService."""
        return self._described(self._catalog.table(name))

    @verb
    def tablets(self, name: str) -> TabletMap:
        """See StoreService."""
        return tablet_map(self._catalog.table(name))

    @verb
    def table_stats(self, name: str) -> TableStats:
        """See StoreService."""
        return table_stats(self._catalog.table(name)).model_copy(update={"memory": self._gate.state()})

    grant = held_verb(_of(lambda store: store._grants.grant))
    revoke = held_verb(_of(lambda store: store._grants.revoke))
    grants = _of(lambda store: store._grants.listed)
    grants_version = _of(lambda store: store._grants.version)

    # Rows

    write = _of(lambda store: store._writes.write)
    write_row = _of(lambda store: store._writes.write_row)
    write_rows = _of(lambda store: store._writes.write_rows)
    begin_write = _of(lambda store: store._writes.begin)
    begin_row = _of(lambda store: store._writes.begin_row)
    planned_row = _of(lambda store: store._writes.planned_row)
    gatherer = _of(lambda store: lambda: store._writes)

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """See StoreService."""
        with self.holding.judging():
            yield from self._all_written(command, batches)

    _all_written = _of(lambda store: store._writes.write_all)

    last_change = _of(lambda store: store._reads.last_change)
    stage = held_answer(_of(lambda store: store._transactions.stage))
    commit_transaction = _of(lambda store: store._transactions.commit)
    staged_parts = held_verb(_of(lambda store: store._transactions.staged_parts))
    abort_transaction = held_answer(_of(lambda store: store._transactions.abort))
    execute = _of(lambda store: store._statements.execute)

    @verb
    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """See StoreService."""
        found = self._catalog.table(table)
        scan = self._reads.ways.scan_table
        return commits.commits(found, since, self._snapshots, scan, *self._memories, self._authors.authored)

    scan = _of(lambda store: store._reads.ways.scan)
    plan = _of(lambda store: store._reads.plan)
    release_scan = _of(lambda store: store._reads.release)
    look_up = _of(lambda store: store._reads.ways.look_up)

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """See StoreService."""
        return self.look_up(table, keys).to_table()

    get_row = _of(lambda store: store._reads.ways.get_row)
    stamped_row = _of(lambda store: store._reads.ways.stamped_row)
    kept_answers = _of(lambda store: store._reads.kept_answers)

    # Work that other processes do, and moves of tablets

    import_begin = held_verb(_of(lambda store: store._imports.begin))
    import_commit = _of(lambda store: store._imports.commit)
    import_abort = _of(lambda store: store._imports.abort)
    pin_snapshot = held_verb(_of(lambda store: store._pins.pin))
    renew_pin = _of(lambda store: store._pins.renew)
    release_pin = _of(lambda store: store._pins.release)
    create_pin = held_verb(_of(lambda store: store._pins.create))
    pins = held_verb(_of(lambda store: store._pins.kept))
    open_pin = _of(lambda store: store._pins.open)
    drop_pin = held_verb(_of(lambda store: store._pins.drop))
    compaction_begin = held_verb(_of(lambda store: store._compactions.begin))
    compaction_commit = _of(lambda store: store._compactions.commit)
    compaction_renew = _of(lambda store: store._compactions.renew)
    compaction_abort = _of(lambda store: store._compactions.abort)

    moves = _of(lambda store: store._mover.moves)
    move_begin = _of(lambda store: store._mover.begin)
    move_round = _of(lambda store: store._mover.departures.round)
    move_read = _of(lambda store: store._mover.departures.read)
    move_receive = _of(lambda store: store._mover.receive)
    move_fetch = _of(lambda store: store._mover.fetch)
    move_copy = _of(lambda store: store._mover.arrivals.copy)
    move_write = _of(lambda store: store._mover.arrivals.write)
    move_prepare = _of(lambda store: store._mover.prepare)
    move_hand_over = _of(lambda store: store._mover.departures.hand_over)
    move_take_over = _of(lambda store: store._mover.take_over)
    move_forget = _of(lambda store: store._mover.departures.forget)
    move_status = _of(lambda store: store._mover.departures.status)
    move_abort = _of(lambda store: store._mover.abort)

    @verb
    def placement(self) -> Placement:
        """See StoreService."""
        if self.options.here is None:
            raise NotFoundError("this server shares its tables with no other server")
        return self.options.here.placement

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """Raises InvalidArgumentError: tablets move between the servers of a placement."""
        raise InvalidArgumentError("to move a tablet, connect to one of the servers with nyala.connect")

    # The store

    @property
    def directory(self) -> FileSystem:
        """The store's directory, for those in this process that build files for it or read them."""
        return self._fs

    @held_verb
    def maintain(self, table: str, op: str) -> dict[str, Any]:
        """See StoreService."""
        kind, found = kind_of(op), self._catalog.table(table)
        mark, environment = self._snapshots.ancient_history_mark(found), self._environment
        work = perform_on_all(kind, found.tablets, environment, mark, lambda each: each not in found.tablets)
        with followed_by(self._after_flush), self._maintenance.noted(f"{op} table {table}", op, table):
            done = list(work)
        self._maintenance.retry(table)
        self._home.remove_garbage()
        counts = "rows", "bytes_written", "bytes_freed"
        return {"op": op} | {name: sum(getattr(report, name) for report in done) for name in counts}

    maintenance = _of(lambda store: store._maintenance.state)
    pause_maintenance = _of(lambda store: store._maintenance.pause)
    checkpoint = _of(lambda store: store._in_directory("a checkpoint")._checkpoints.make)
    now = _of(lambda store: store._snapshots.now)

    @verb
    def health(self) -> Health:
        """See StoreService."""
        damaged = damaged_files(self.damage.found(), self._environment.manifest.current, self._catalog.tablets())
        ahead = self._snapshots.seconds_ahead
        failing = self._maintenance.failing()
        return health_of(self._log.read_only_reason, self._gate.disk.why(), damaged, failing, *self._identity, ahead)

    metrics = _of(lambda store: store._metrics.now)

    def run_maintenance_once(self) -> str | None:
        """Do the most worthwhile maintenance now, on this thread; return its name, None when there is none."""
        with self.damage.noticing():
            return self._maintenance.run_once()

    def close(self) -> None:
        """See StoreService."""
        if not self.holding.close():
            return
        self._wal.writer.hurry()
        self._reads.close()
        self._maintenance.stop()
        for pool in (self._pool, self._load_pool):
            pool.shutdown(wait=True, cancel_futures=True)
        tablets = self._catalog.tablets()
        for tablet in tablets:
            with tablet.maintenance_lock:
                tablet.retired = "the store is closed"
        try:
            self._stop_cleanly()
        finally:
            self._environment.manifest.close()
            for tablet in tablets:
                tablet.close()
            release_all()
            self._home.close()

    def __repr__(self) -> str:
        return f"Store({self._where!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop_cleanly(self) -> None:
        self._authors.save()  # while nobody else can have the store
        if (stop := self._wal.close()) and not self._environment.manifest.failed:
            self._log_freeing.note_clean_stop(CleanStopEntry(last_lsn=stop.last_lsn, crc=stop.crc), self._clock.now())
            self._environment.manifest.copy()

    def _in_directory(self, what: str) -> Store:
        """Return the store. Raises InvalidArgumentError if it is in a bucket, where ``what`` is not possible."""
        self._home.check_directory(what)
        return self

    def _operations(self) -> list[MaintenanceOp]:
        if self._environment.latch.reason:
            return []
        gone = self._catalog.removals(self._clock, self._forget)
        operations: list[MaintenanceOp] = [*gone, ExpiryOp(self._staging)]
        for part in (self._imports, self._pins, self._compactions, self._mover):
            operations += part.removals()
        log_grows = self._home.is_log_never_idle
        operations += self._log_freeing.operations(self._snapshots.ancient_history_mark, self._after_flush, log_grows)
        if self._home.has_garbage():
            operations.append(TabletOp("delete replaced files", lambda: 1.0, self._home.remove_garbage))
        self._planned.tidy()
        self._gate.measure()
        parts = self._environment, self.options, self._gate.is_pressed, self._snapshots.ancient_history_mark
        for table in self._catalog.tables():
            operations += table_operations(table, *parts, self._after_flush)
        return operations

    def _after_flush(self) -> None:
        """Admit waiting writers and free the log that no memory store needs any more."""
        self._gate.freed()
        self._log_freeing.free()
