"""Store: the engine's one door. Implements ``schemas.service.StoreService`` in this process."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..schemas.alter import Alteration
from ..schemas.description import DroppedTable, Health, TableDescription, TableStats, TabletMap
from ..schemas.errors import InvalidArgumentError, StoreError, UnavailableError
from ..schemas.service import MaintenanceKind
from ..schemas.statement import Statement
from ..schemas.table import TableDefinition
from ..schemas.transaction import StagedBatch, StageResult, TransactionCommit, TransactionResult
from ..schemas.write import CommitMode, WriteCommand, WriteResult
from .catalog.catalog import Catalog
from .cfile.cache import PageCache
from .commit.commit_log import CommitLog
from .commit.memory_gate import MemoryGate, patiently
from .commit.numbered_writes import NumberedWrites, Ticket, number_of
from .commit.transaction_memory import TransactionMemory
from .damage import DamageRegistry, noticing
from .fs.failures import named
from .fs.filesystem import FileSystem
from .fs.local import LocalFileSystem
from .maintenance import upkeep
from .maintenance.log_freeing import LogFreeing
from .maintenance.manager import MaintenanceManager
from .maintenance.op import MaintenanceOp
from .manifest.environment import Environment
from .manifest.key_budget import KeyIndexBudget
from .manifest.manifest import CleanStopEntry, ManifestFile
from .moving.moves import Mover
from .mvcc.clock import Clock, SystemClock
from .mvcc.mvcc import MvccManager
from .offload.bulk import imports
from .offload.bulk.commit import Importer
from .offload.direct import pins
from .offload.merge import compactions
from .options import StoreOptions
from .outside import Outside
from .reading import Reading
from .recovery import recovery
from .room import Room
from .scan import commits
from .scan.caller_runs import CallerRuns
from .scan.planned_scans import PlannedScans
from .scan.snapshots import Snapshots
from .statement.execute import Statements
from .table.checked_batch import in_one_batch
from .table.direct_load import DirectLoad
from .table.pending_write import PendingWrite, RepeatedWrite
from .table.stats import damaged_files, described, health_of, table_stats, tablet_map
from .table.table import Table
from .tablet.open import sweep
from .tablet.tablet import Tablet
from .transaction.commit import Transactions
from .transaction.stage import ExpiryOp, stage
from .transaction.staging.area import StagingArea
from .vectors.lending import READ_BUFFERS

_LOCK_PATH = "lock"
_WRITES_AHEAD = 4
"""Batches of one ``write_all`` that are applied while the first of them is made durable."""
_BYTES_AHEAD = 32 << 20
"""Of them; one may always be."""


class Store(Outside, Reading):
    """An open data directory. Thread safe. Closed or left to recovery: nothing acknowledged is lost either way."""

    def __init__(self, fs: FileSystem, options: StoreOptions, clock: Clock) -> None:
        """Use ``Store.open``."""
        self.options = options
        self._fs = fs
        self._where = getattr(fs, "root", "")
        self._clock = clock
        self._closed = False
        self.damage = DamageRegistry()
        """The damaged files that were found since the opening."""
        with named(f"the data directory {self._where} could not be made or locked"):
            fs.make_directory("")
            self._lock = fs.lock(_LOCK_PATH)
        try:
            with named("the store could not be opened"), recovery.saying_what_to_do():
                self._open()
            if damage := self._environment.manifest.damage:
                self.damage.note(damage)
        except BaseException:
            self._lock.close()
            raise

    @classmethod
    def open(
        cls, where: str | Path | FileSystem, options: StoreOptions | None = None, clock: Clock | None = None
    ) -> Store:
        """Open the store in a directory, which is made when it is missing, and recover what a crash left in the log.

        Raises:
            UnavailableError: another process has it open, or the disk fails.
            CorruptionError: a file is not what was written; the text says which and where.
        """
        fs = LocalFileSystem(where) if isinstance(where, str | Path) else where
        return cls(fs, options or StoreOptions(), clock or SystemClock())

    @classmethod
    def check_free(cls, where: str | Path) -> None:
        """Look, before long preparations, whether ``open`` would find the store in the hands of another process.

        Raises:
            UnavailableError: it would; the text says what to do.
        """
        if (Path(where) / _LOCK_PATH).exists():
            LocalFileSystem(where).lock(_LOCK_PATH).close()

    def _open(self) -> None:
        manifest_file = ManifestFile.open(self._fs) or recovery.create(self._fs, uuid.uuid4().hex)
        manifest = manifest_file.current
        self._identity = self.options.server, manifest.store_uuid
        self._described = partial(described, store_uuid=manifest.store_uuid, server=self.options.server)
        storage = imports.Storage.of(self._fs, self.options.import_storage, manifest.store_uuid)
        self._mvcc = MvccManager(self._clock)
        self._snapshots = Snapshots(self._clock, self._mvcc, self.options.clock_error_seconds, self.options.server)
        self._wal = recovery.open_log(self._fs, manifest, self.options)
        cache = PageCache(self.options.page_cache_bytes)
        budget = KeyIndexBudget(self.options.key_index_bytes, on_demand=self.options.maintenance == "off")
        self._environment = Environment(
            self._fs, manifest_file, self._wal, self._mvcc, cache, budget, self.options.here, self.damage
        )
        recovery.check_log(self._wal, manifest)
        recovery.assume_attached(self._wal, manifest_file)
        self._catalog = Catalog(self._environment, self.options.limits)
        self._catalog.load()
        sweep(self._environment, manifest_file.current)
        storage.sweep()
        pins.sweep(self._fs)
        compactions.sweep(self._fs)
        known = [max(tablet.last_timestamp, tablet.version.history_floor) for tablet in self._catalog.tablets()]
        known += [table.last_change for table in self._catalog.tables()]  # some of it in tablets in quarantine
        self._clock.update(max([manifest.last_timestamp, *known]))
        remembered = self._writers, self._transaction_memory = NumberedWrites(), TransactionMemory()
        tablets = recovery.LoggedTablets(self._catalog.tables())
        _, newest = recovery.replay(self._wal, tablets, *remembered, self._environment, self.options)
        table_ids = {table.table_id for table in self._catalog.tables()}
        self._writers.forget(lambda table_id: table_id not in table_ids)
        self._clock.update(newest)
        self._log = CommitLog(self._wal, self._mvcc, self._environment.latch)
        self._log_freeing = LogFreeing(self._wal, self._log, self._environment, self._catalog.tables, *remembered)
        threads = self.options.scan_threads
        self._pool: Executor = ThreadPoolExecutor(threads, "nyala-scan") if threads else CallerRuns()
        self._load_pool = ThreadPoolExecutor(self.options.load_threads, "nyala-load")
        at_least = self.options.direct_load_bytes, self.options.direct_load_unsorted_bytes
        self._direct_load = DirectLoad(self._environment, *at_least)
        physical, idle = self._clock.physical_microseconds, READ_BUFFERS.release_unused
        self._maintenance = MaintenanceManager(self._operations, self.damage.note, physical, idle)
        notify = self._maintenance.notify
        self._gate = MemoryGate(self.options, self._catalog.tablets, self._maintained_tablets, notify)
        room = Room(self._fs, self.options)
        self._staging = StagingArea(self._fs, physical, self.options.staging_ttl_seconds, room)
        shared = self._transaction_memory, self._log, self._gate, self._direct_load, self.options
        self._transactions = Transactions(self._staging, *shared, self._catalog.tables, self._load_pool)
        shared = self._log, self._snapshots, self._gate, self._writers
        self._statements = Statements(*shared, self.options, self.scan)
        times = self._clock.physical_microseconds, self._clock.now
        importer = Importer(self._environment, self._log, self.options.limits, self._gate.admitted, physical)
        self._imports = imports.Imports(importer, self._writers, storage, room, *times)
        self._pins = pins.Pins(self._environment, self.options.limits, room, *times)
        self._compactions = compactions.Compactions(self._environment, room, *times)
        shared = self._log, self._writers, self._staging, self._snapshots, self._catalog.tables
        self._mover = Mover(self._environment, *shared, physical, room)
        self._planned = PlannedScans(*times, self.options)
        if self.options.maintenance == "on":
            self._maintenance.start()

    # Tables

    def create_table(self, definition: TableDefinition) -> TableDescription:
        """See StoreService."""
        self._check_open()
        return self._described(self._catalog.create(definition))

    def alter_table(self, alteration: Alteration) -> TableDescription:
        """See StoreService."""
        self._check_open()
        table = self._catalog.alter(alteration)
        self._gate.freed()  # with tablets that went
        self._maintenance.notify()  # rows in memory may have been set aside, to be flushed
        return self._described(table)

    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """See StoreService."""
        self._check_open()
        if keep_seconds == 0:
            self._forget(self._catalog.drop(name).table_id)
        else:
            self._catalog.set_aside(name, keep_seconds, self._clock.physical_microseconds())

    def _forget(self, gone: int) -> None:
        self._writers.forget(lambda table_id: table_id == gone)
        self._gate.freed()

    def recall_table(self, table: str | int, new_name: str | None = None) -> TableDescription:
        """See StoreService."""
        self._check_open()
        return self._described(self._catalog.recall(table, new_name))

    def dropped_tables(self) -> list[DroppedTable]:
        """See StoreService."""
        self._check_open()
        return self._catalog.dropped()

    def tables(self) -> list[str]:
        """See StoreService."""
        self._check_open()
        return self._catalog.names()

    def describe_table(self, name: str) -> TableDescription:
        """See StoreService."""
        self._check_open()
        return self._described(self._catalog.table(name))

    def tablets(self, name: str) -> TabletMap:
        """See StoreService."""
        self._check_open()
        return tablet_map(self._catalog.table(name))

    def table_stats(self, name: str) -> TableStats:
        """See StoreService."""
        self._check_open()
        return table_stats(self._catalog.table(name)).model_copy(update={"memory": self._gate.state()})

    # Rows

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """See StoreService."""
        return self._begin_patiently(command, batch, seq).result()

    @noticing
    def begin_write(
        self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None
    ) -> PendingWrite | RepeatedWrite:
        """See StoreService."""
        self._check_open()
        table = self._catalog.table(command.table)
        limits = self.options.limits
        if batch.nbytes > limits.batch_bytes:
            raise InvalidArgumentError(
                f"a batch of {batch.nbytes:,} bytes is too large: it is one commit, of at most "
                f"{limits.batch_bytes:,} bytes; cut it into several"
            )
        if command.writer is None or seq is None:
            return self._begin(table, command, batch, None)
        with self._writers.begin(number_of(table.table_id, command.writer, seq)) as found:
            if isinstance(found, Ticket):
                return self._begin(table, command, batch, found)
        found.check(batch.num_rows)
        return RepeatedWrite(found, self._log, command.durability or self.options.durability)

    def _begin_patiently(
        self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None
    ) -> PendingWrite | RepeatedWrite:
        """Begin a write for a caller in this process, who has no client that tries again when memory is full."""
        patience = self.options.memory_patience_seconds if self._gate.is_relieved() else 0
        return patiently(lambda: self.begin_write(command, batch, seq), patience)

    def _begin(self, table: Table, command: WriteCommand, batch: pa.RecordBatch, ticket: Ticket | None) -> PendingWrite:
        if command.if_timestamp is not None:
            self._snapshots.checked(command.if_timestamp, table, "if_timestamp")
        durability = command.durability or self.options.durability
        limits, options = self.options.limits, self.options
        with self._gate.admitted(batch.nbytes):
            pending = table.begin_write(command, batch, self._log, limits, durability, ticket, self._direct_load)
        if any(
            tablet.version.active.nbytes >= options.flush_bytes or tablet.version.attached for tablet in pending.tablets
        ):
            self._maintenance.notify()
        return pending

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """See StoreService."""
        if command.commit is CommitMode.STREAM:
            batches = in_one_batch(batches, self.options.limits)
        pending: deque[PendingWrite | RepeatedWrite] = deque()
        sizes: deque[int] = deque()
        try:
            for batch in batches:
                pending.append(self._begin_patiently(command, batch))
                sizes.append(batch.nbytes)
                while len(pending) > _WRITES_AHEAD or (len(pending) > 1 and sum(sizes) > _BYTES_AHEAD):
                    sizes.popleft()
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except Exception:
            # A batch was refused. Those before it are applied: whoever hears of it finds them.
            while pending:
                with suppress(StoreError):
                    pending.popleft().result()
            raise

    def last_change(self, table: str) -> int:
        """See StoreService."""
        self._check_open()
        timestamp = self._catalog.table(table).last_change
        self._mvcc.wait_for(timestamp)
        return timestamp

    @noticing
    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """See StoreService."""
        self._check_open()
        self._staging.expire()
        return stage(self._staging, self._catalog.table(command.table), command, batches, self.options.limits)

    @noticing
    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        """See StoreService."""
        self._check_open()
        result = self._transactions.commit(commit)
        self._maintenance.notify()
        return result

    @noticing
    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """See StoreService."""
        self._check_open()
        found = self._catalog.table(table)
        return commits.commits(found, since, self._snapshots, self.scan, self._writers, self._transaction_memory)

    @noticing
    def execute(self, statement: Statement) -> WriteResult:
        """See StoreService."""
        self._check_open()
        result = self._statements.execute(self._catalog.table(statement.table), statement)
        self._maintenance.notify()
        return result

    def abort_transaction(self, transaction: str) -> None:
        """See StoreService."""
        self._check_open()
        self._transactions.abort(transaction)

    # The store

    @noticing
    def maintain(self, table: str, op: str) -> dict[str, Any]:
        """See StoreService."""
        self._check_open()
        if op not in set(MaintenanceKind):
            known = ", ".join(MaintenanceKind)
            raise InvalidArgumentError(f"no maintenance is called {op!r}; there are {known}")
        found = self._catalog.table(table)
        mark, kind = self._snapshots.ancient_history_mark(found), MaintenanceKind(op)
        work = upkeep.perform_on_all(
            kind, found.tablets, self._environment, mark, lambda tablet: tablet not in found.tablets
        )
        done = list(work)
        self._after_flush()
        return {
            "op": op,
            "rows": sum(report.rows for report in done),
            "bytes_written": sum(report.bytes_written for report in done),
            "bytes_freed": sum(report.bytes_freed for report in done),
        }

    def now(self, at_least: int = 0) -> int:
        """See StoreService."""
        self._check_open()
        return self._snapshots.now(at_least)

    def health(self) -> Health:
        """See StoreService."""
        self._check_open()
        damaged = damaged_files(self.damage.found(), self._environment.manifest.current, self._catalog.tablets())
        ahead = self._snapshots.seconds_ahead
        return health_of(self._log.read_only_reason, damaged, *self._identity, ahead)

    @noticing
    def run_maintenance_once(self) -> str | None:
        """Do the most worthwhile maintenance now, on this thread; return its name, None when there is none."""
        return self._maintenance.run_once()

    def close(self) -> None:
        """See StoreService."""
        if self._closed:
            return
        self._closed = True
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
            READ_BUFFERS.release()
            self._lock.close()

    def __repr__(self) -> str:
        return f"Store({self._where!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop_cleanly(self) -> None:
        stop = self._wal.close()
        if stop is None or self._environment.manifest.failed:
            return
        entry = CleanStopEntry(last_lsn=stop.last_lsn, crc=stop.crc)
        edit = {"clean_stop": entry, "last_timestamp": self._clock.now()}
        # Of a store that is read-only a commit may be in no memory store.
        in_files = {} if self._environment.latch.reason else self._log_freeing.needed()[1]
        self._environment.manifest.commit(lambda manifest: manifest.with_in_files(in_files).model_copy(update=edit))
        self._environment.manifest.copy()

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("the store is closed")

    def _operations(self) -> list[MaintenanceOp]:
        operations: list[MaintenanceOp] = []
        if self._environment.latch.reason:
            return operations
        operations += self._catalog.removals(self._clock.physical_microseconds(), self._forget)
        operations.append(ExpiryOp(self._staging))
        operations += self._removals()
        self._planned.tidy()
        for table in self._catalog.tables():
            mark = partial(self._snapshots.ancient_history_mark, table)
            for tablet in table.tablets:
                if tablet.is_empty:
                    continue
                work = upkeep.TabletUpkeep(tablet, self._environment, self.options, self._gate.is_pressed, mark)
                operations.append(work.index())
                if table.is_maintained:
                    operations += work.operations(self._after_flush)
        return operations

    def _after_flush(self) -> None:
        """Let waiting writers in and free the log that no memory store needs any more."""
        self._gate.freed()
        self._log_freeing.free()

    def _maintained_tablets(self) -> list[Tablet]:
        """Return the tablets that the maintenance of this store flushes."""
        return [tablet for table in self._catalog.tables() if table.is_maintained for tablet in table.tablets]
