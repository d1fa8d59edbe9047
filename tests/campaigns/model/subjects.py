"""What the model is compared with: a store in this process, its disk in memory, as it is or behind Arrow Flight."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from random import Random
from typing import Any, Literal, Protocol
from unittest.mock import patch

import pyarrow as pa

import nyala
from nyala.clients.api.alter import TableAlteration
from nyala.clients.api.database import Database
from nyala.clients.convert.cells import python_rows
from nyala.engine.fs import FileSystem, MemoryFileSystem, PowerFailure
from nyala.engine.home.home import Home
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.tablet import lookup
from nyala.flight_server.server import FlightServer
from nyala.schemas.cells.timestamp import last_of
from nyala.schemas.errors import RowErrors, UnavailableError
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit, TransactionResult
from nyala.schemas.rows.write import Stage, WriteCommand, WriteResult
from tests.campaigns.options import stored
from tests.doubles.clock import ManualClock
from tests.doubles.gathered_row import write_gathered
from tests.doubles.kept_reader import KeptReader
from tests.doubles.machines import Machine

from .aggregates import Measure
from .oracle import Key
from .shapes import TABLE, Shape

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12)

Stop = Literal["close", "kill", "power"]
"""A clean stop; a killed process on a living machine; a power failure."""


class Subject(Protocol):
    """One store with one table."""

    def write(self, op: str, batch: pa.RecordBatch, atomic: bool, since: int | None) -> WriteResult: ...
    def transact(self, writes: Sequence[tuple[str, pa.RecordBatch]], truncate: bool) -> TransactionResult: ...
    def scan(self, **spec: Any) -> pa.Table: ...
    def scan_in_engine(
        self, **spec: Any
    ) -> pa.Table: ...  # with no wire between: what the engine holds is looked at often
    def aggregate(
        self, measures: dict[str, Measure], group_by: list[str], where: str | None, as_of: int | None
    ) -> pa.Table: ...
    def changes(self, since: int, until: int, **spec: Any) -> pa.Table: ...
    def get(self, keys: Sequence[Key]) -> pa.Table: ...  # the rows found, in the order asked
    def alteration(self) -> TableAlteration: ...
    def maintain(self, op: str) -> None: ...
    def restart(self, stop: Stop, seed: int) -> None: ...
    def advance(self, seconds: int) -> None: ...  # the clock
    def history_mark(self) -> int: ...  # the oldest moment that must be readable
    def now(self) -> int: ...
    def close(self) -> None: ...


class EmbeddedSubject:
    """The engine itself, its clock in the test's hands."""

    options = OPTIONS

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._microseconds = self._latest = 1_700_000_000_000_000
        self._fs = MemoryFileSystem()
        self._transactions = self._writes = 0
        self._store = self._open()
        self._store.create_table(shape.definition)

    def write(self, op: str, batch: pa.RecordBatch, atomic: bool, since: int | None) -> WriteResult:
        """Write rows as Python values now and then, which is another way."""
        command = WriteCommand(table=TABLE, op=Operation(op), atomic=atomic, if_timestamp=since)
        self._writes += 1
        if batch.num_rows and self._writes % 2:
            rows = list(python_rows(batch))
            if len(rows) == 1 and self._writes % 4 == 1:
                result = write_gathered(self._store, command, rows[0], self._writes)
            elif len(rows) == 1:
                result = self._store.write_row(command, rows[0])
            else:
                result = self._store.write_rows(command, rows)
            if result is not None:
                return result
        return self._store.write(command, batch)

    def transact(self, writes: Sequence[tuple[str, pa.RecordBatch]], truncate: bool) -> TransactionResult:
        """All in one part."""
        self._transactions += 1
        name = f"transaction {self._transactions}"
        command = WriteCommand(table=TABLE, stage=Stage(transaction=name, part="1"))
        self._store.stage(command, [StagedBatch(batch, Operation(op)) for op, batch in writes])
        tables = [TABLE] if truncate else []
        return self._store.commit_transaction(TransactionCommit(transaction=name, parts=["1"], truncate=tables))

    def scan(self, **spec: Any) -> pa.Table:
        return self._store.scan(ScanSpec(table=TABLE, **spec)).to_reader().read_all()

    scan_in_engine = scan

    def aggregate(
        self, measures: dict[str, Measure], group_by: list[str], where: str | None, as_of: int | None
    ) -> pa.Table:
        return self.scan(aggregate=measures, group_by=group_by, where=where, as_of=as_of)

    def changes(self, since: int, until: int, before: bool = False, every: bool = False, **spec: Any) -> pa.Table:
        feed = ChangeSpec(since=since, until=until, before=before, every=every)
        return self._store.scan(ScanSpec(table=TABLE, changes=feed, **spec)).to_reader().read_all()

    def get(self, keys: Sequence[Key]) -> pa.Table:
        """Read all keys at once, natively and generally, and each alone, which is another way."""
        found = self._store.get(TABLE, self._shape.keys(keys))
        with patch.object(lookup, "KEYS_MAX", 0):
            generally = self._store.get(TABLE, self._shape.keys(keys))
        assert rows_of(found) == rows_of(generally), keys
        table = Database(self._store).table(TABLE)
        alone = [row for key in keys if (row := table.get(key)) is not None]
        together = [row for batch in found.to_batches() for row in python_rows(batch)]
        assert repr(alone) == repr(together), keys
        if self._kept is not None:
            kept = [row for key in keys if (row := self._kept.get(TABLE, key)) is not None]
            assert repr(kept) == repr(together), keys
        return found

    def alteration(self) -> TableAlteration:
        return Database(self._store).table(TABLE).alter()

    def maintain(self, op: str) -> None:
        self._store.maintain(TABLE, op)

    def restart(self, stop: Stop, seed: int) -> None:
        self._latest = max(self._latest, self._microseconds)
        if stop == "close":
            self._store.close()
            self._microseconds = self._latest - 2_000_000  # set back: the store has noted how late it was
        else:
            self._fs = crashed(self._store, self._fs, Random(seed) if stop == "power" else None)
            self._microseconds = self._latest + 1_000  # it could not: but a start takes some time
        self._store = self._open()

    def advance(self, seconds: int) -> None:
        self._microseconds += seconds * 1_000_000
        self._clock.advance(seconds * 1_000_000)

    def history_mark(self) -> int:
        return last_of(self._microseconds - self._shape.history_seconds * 1_000_000)

    def now(self) -> int:
        return self._store.now()

    def close(self) -> None:
        self._store.close()

    def _open(self) -> Store:
        self._clock = ManualClock(self._microseconds)
        limit = self._shape.key_index_bytes
        options = self.options if limit is None else self.options.model_copy(update={"key_index_bytes": limit})
        store = Store.open(self._home(), stored(options), self._clock)
        assert not store.health().damaged, "the disk keeps what was synced"
        self._kept = None if store.kept_answers() is None else KeptReader(store)
        return store

    def _home(self) -> FileSystem | Home:
        return self._fs


class BucketSubject(EmbeddedSubject):
    """A store in a bucket. Who starts again has lost the disk; who was killed is heard of no more."""

    options = OPTIONS.model_copy(update={"lease_seconds": 60, "log_patience_seconds": 0.2})

    def __init__(self, shape: Shape) -> None:
        self._machine = Machine()
        super().__init__(shape)

    def _home(self) -> FileSystem | Home:
        return self._machine.home()

    def restart(self, stop: Stop, seed: int) -> None:
        if stop != "close":
            self._machine.objects.is_away = True
        self._latest = max(self._latest, self._microseconds)
        with suppress(UnavailableError):
            self._store.close()
        self._microseconds = self._latest - 2_000_000  # set back: the log says how late it may have been
        self._machine = self._machine.other()
        self._store = self._open()


class DirectSubject(EmbeddedSubject):
    """Batches of new rows, however few, become rowsets of their own; another thread reads ahead of scans."""

    options = OPTIONS.model_copy(update={"direct_load_bytes": 1, "direct_load_unsorted_bytes": 1, "scan_threads": 1})


class FlightSubject(EmbeddedSubject):
    """The same store behind a real Flight server, used as an application does.

    The server outlives the restarts of the store: tests/campaigns/crash/kill9.py restarts whole servers.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self._server = FlightServer(self._store, "grpc://127.0.0.1:0")
        self._connect()

    def _connect(self) -> None:
        self._database = nyala.connect(f"grpc://127.0.0.1:{self._server.port}")
        self._table = self._database.table(TABLE)

    def write(self, op: str, batch: pa.RecordBatch, atomic: bool, since: int | None) -> WriteResult:
        """Write rows as Python values now and then, which is another way."""
        self._writes += 1
        data = list(python_rows(batch)) if batch.num_rows and self._writes % 2 else batch
        return self._table.write(data, op, atomic=atomic, if_timestamp=since, on_error="return")

    def transact(self, writes: Sequence[tuple[str, pa.RecordBatch]], truncate: bool) -> TransactionResult:
        """Each write a part of its own."""
        transaction = self._database.transaction()
        if truncate:
            transaction.truncate(self._table)
        for op, batch in writes:
            transaction.write(self._table, batch, op)
        try:
            return transaction.commit()
        except RowErrors as error:
            transaction.abort()
            assert isinstance(error.result, TransactionResult)
            ends = list(accumulate((batch.num_rows for _, batch in writes), initial=0))
            moved = [
                each.model_copy(update={"row": each.row + ends[int(each.part) - 1]}) for each in error.result.errors
            ]
            return error.result.model_copy(update={"errors": moved})

    def scan(self, **spec: Any) -> pa.Table:
        return self._table.scan(**spec).to_arrow()

    def aggregate(
        self, measures: dict[str, Measure], group_by: list[str], where: str | None, as_of: int | None
    ) -> pa.Table:
        return self._table.scan(where=where, as_of=as_of).aggregate(measures, group_by)

    def changes(self, since: int, until: int, **spec: Any) -> pa.Table:
        return self._table.changes(since, until, **spec).to_arrow()

    def get(self, keys: Sequence[Key]) -> pa.Table:
        rows = [row for key in keys if (row := self._table.get(key)) is not None]
        return pa.Table.from_pylist(rows, self._table.schema)

    def alteration(self) -> TableAlteration:
        return self._table.alter()

    def maintain(self, op: str) -> None:
        self._table.maintain(op)

    def restart(self, stop: Stop, seed: int) -> None:
        super().restart(stop, seed)
        self._server.serve_store(self._store)
        self._database.close()
        self._connect()  # an open session keeps its store

    def now(self) -> int:
        return self._database.now()

    def close(self) -> None:
        self._database.close()
        self._server.shutdown()
        super().close()


def crashed(store: Store, fs: MemoryFileSystem, random: Random | None) -> MemoryFileSystem:
    """Stop a store where it stands and return the disk that is found next: after a power failure drawn by ``random``,
    or, when that is None, with all that was written, because only the process died."""
    image = fs.crash_image(random) if random else fs
    fs.crash_at = fs.operations
    with suppress(PowerFailure, Exception):
        store.close()  # ends its threads; the disk takes nothing any more
    fs.crash_at = None
    return image


def rows_of(table: pa.Table) -> list[tuple]:
    """Return rows as tuples that compare bit by bit: NaN equals itself, and 0.0 is not -0.0."""
    return list(zip(*(_exact(column.to_pylist()) for column in table.columns), strict=True))


def exact_row(cells: Sequence[Any]) -> tuple:
    """Return the cells of a model's row as ``rows_of`` returns those of the store."""
    return tuple(_exact(cells))


def _exact(cells: Sequence[Any]) -> list:
    return [struct.pack("d", cell) if type(cell) is float else cell for cell in cells]
