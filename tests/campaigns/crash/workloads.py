"""Fixed workloads, run on any disk until they end or the disk does, with the model beside them.

One writer, which waits for each answer: so the calls of the file system come in the same order every time, and at a
crash at most one batch is neither acknowledged nor refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from nyala.engine.fs import PowerFailure
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand, WriteResult
from nyala.schemas.table.alter import AddColumn, Alteration, DropColumn, RenameColumn, Step, WidenColumn
from nyala.schemas.table.column import ColumnOptions
from nyala.schemas.table.partition import HashLevel
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.model.oracle import Key, ModelSchema, Oracle, Plan, Row
from tests.campaigns.options import columns, stored
from tests.campaigns.options import table as table_options
from tests.doubles.clock import ManualClock

TABLE = "t"
TAGS = pa.list_(pa.struct([("n", pa.int16()), ("word", pa.string())]))
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("batch", pa.int32()), ("text", pa.string()), ("tags", TAGS)])
_DEFAULTS = {"batch": None, "text": None, "tags": None}
MODEL = ModelSchema(("id",), _DEFAULTS, merges={"batch": operator.add, "tags": lambda old, new: new + old})
MERGES = {"batch": ColumnOptions(merge="batch + excluded.batch"), "tags": ColumnOptions(merge="excluded.tags || tags")}
OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12, scan_threads=1)
"""One thread reads: so the same call comes n-th every time, and stores of few rows are opened and read cheaply."""
FLUSHING = OPTIONS.model_copy(update={"flush_bytes": 1})
"""Makes recovery flush after every record."""
DIRECT = OPTIONS.model_copy(update={"direct_load_bytes": 1, "direct_load_unsorted_bytes": 1})
"""Makes every batch of new rows a rowset of its own."""
ADDED_DEFAULT = 7
"""What every row shows of every column that an alteration has added."""
WRITER = "the workload"
CLOCK_MICROSECONDS = 1_700_000_000_000_000
HISTORY_SECONDS = 3_600


def open_store(fs: FileSystem, options: StoreOptions = OPTIONS, clock: ManualClock | None = None) -> Store:
    """Open the store on ``fs``. The clock starts where it always starts: only the store can know how late it is."""
    return Store.open(fs, stored(options), clock or ManualClock(CLOCK_MICROSECONDS))


def read(store: Store, as_of: int | None = None) -> dict[Key, Row]:
    """Return the whole table without the columns that were added; a key that comes twice is an error."""
    rows = store.scan(ScanSpec(table=TABLE, as_of=as_of)).to_reader().read_all().to_pylist()
    for name in {name for row in rows for name in row}.difference(SCHEMA.names):
        assert {row.pop(name) for row in rows} == {ADDED_DEFAULT}, f"added column {name}"
    found = {(row["id"],): row for row in rows}
    assert len(found) == len(rows), f"a key is there twice: {rows}"
    return found


def write(store: Store, op: str, rows: Sequence[Row], seq: int | None = None) -> WriteResult:
    """Write rows of the same columns, none of which may be refused."""
    assert all(given.keys() == rows[0].keys() for given in rows)
    batch = pa.RecordBatch.from_pylist(list(rows), pa.schema([SCHEMA.field(name) for name in rows[0]]))
    command = WriteCommand(table=TABLE, op=Operation(op), writer=None if seq is None else WRITER)
    result = store.write(command, batch, seq)
    assert not result.errors, result.errors
    return result


Part = Sequence[tuple[str, Sequence[Row]]]


def stage(store: Store, transaction: str, part: str, writes: Part) -> None:
    """Stage a part of a transaction."""
    command = WriteCommand(table=TABLE, stage=Stage(transaction=transaction, part=part))
    batches = [
        StagedBatch(
            pa.RecordBatch.from_pylist(list(rows), pa.schema([SCHEMA.field(name) for name in rows[0]])), Operation(op)
        )
        for op, rows in writes
    ]
    assert store.stage(command, batches).rows == sum(len(rows) for _, rows in writes)


@dataclass
class Batch:
    """A batch that was sent, or a transaction: ``plan`` is what must become of it."""

    op: str
    rows: Sequence[Row]
    seq: int
    plan: Plan
    commit: TransactionCommit | None = None

    def send(self, store: Store) -> WriteResult:
        """Send it, for the first time or once more."""
        if self.commit is None:
            return write(store, self.op, self.rows, self.seq)
        result = store.commit_transaction(self.commit)
        assert not result.errors, result.errors
        return result


@dataclass
class Run:
    """A workload under way. ``oracle`` holds what was acknowledged, ``pending`` what may or may not be there."""

    fs: FileSystem
    options: StoreOptions = OPTIONS
    store: Store | None = None
    clock: ManualClock = field(default_factory=lambda: ManualClock(CLOCK_MICROSECONDS))
    oracle: Oracle = field(default_factory=lambda: Oracle(MODEL))
    pending: Batch | None = None
    last: tuple[Batch, WriteResult] | None = None
    """The last batch that was acknowledged, with its answer."""
    tables: frozenset[bool] = frozenset([False])
    """Whether the table is there; both while it is being made or dropped."""
    moments: list[int] = field(default_factory=list)
    """Commits at which the table must be readable."""
    batches: int = 0
    partition_by: tuple[HashLevel, ...] = ()
    """How the table is cut into tablets."""
    row_column: bool = False
    """Whether files have each row once more as a whole."""
    order_by: str | None = None
    """The column that orders the changes of each row."""
    columns: frozenset[tuple[str, ...]] = frozenset([()])
    """The columns that alterations have added; several possibilities after one that failed."""

    def start(self) -> None:
        """Open the store and make the table."""
        self.restart()
        self.create()

    def create(self) -> None:
        self.tables = frozenset([False, True])
        self.oracle = Oracle(replace(MODEL, order=self.order_by))
        own = {"history_max_age_seconds": HISTORY_SECONDS, "order_by": self.order_by}
        options = table_options(**own, row_column=self.row_column or None)
        more = {"options": options, "partition_by": self.partition_by}
        rules = columns(SCHEMA, None if self.order_by else MERGES)
        self.row_column = bool(options.get("row_column"))
        self.opened.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"], rules, **more))
        self.tables = frozenset([True])

    def drop(self) -> None:
        """Drop the table and forget what was in it."""
        self.tables = frozenset([False, True])
        self.opened.drop_table(TABLE)
        self.tables = frozenset([False])
        self.moments, self.last = [], None
        self.oracle = Oracle(MODEL)

    def restart(self) -> None:
        """Close the store if it is open, and open it."""
        if self.store:
            self.store.close()
            self.store = None
        self.clock = ManualClock(CLOCK_MICROSECONDS)
        self.store = open_store(self.fs, self.options, self.clock)

    def write(self, op: str, rows: Sequence[Row]) -> None:
        """Write one batch. After an error it is ``pending``."""
        plan = self.oracle.plan(op, rows)
        assert not plan.errors, "a workload holds only what must succeed"
        self.batches += 1
        self.pending = Batch(op, rows, self.batches, plan)
        self.send(self.pending)

    def transact(self, *parts: Part, truncate: bool = False) -> None:
        """Stage the parts of a transaction and commit them. After an error of the commit it is ``pending``."""
        plan = self.oracle.plan_many([one for part in parts for one in part], truncate)
        assert not plan.errors, "a workload holds only what must succeed"
        self.batches += 1
        name = f"transaction {self.batches}"
        for number, part in enumerate(parts):
            stage(self.opened, name, str(number), part)
        names = [str(number) for number in range(len(parts))]
        commit = TransactionCommit(
            transaction=name,
            parts=names,
            truncate=[TABLE] if truncate else [],
            app_id="workload",
            app_version=self.batches,
        )
        self.pending = Batch("", (), self.batches, plan, commit)
        self.send(self.pending)

    def send(self, batch: Batch) -> None:
        """Send what is pending."""
        result = batch.send(self.opened)
        self.oracle.commit(batch.plan, result.timestamp)
        self.last, self.pending = (batch, result), None
        self.moments.append(result.timestamp)

    def stage(self, name: str, part: Part) -> None:
        """Stage rows that are never committed."""
        stage(self.opened, name, "lost", part)

    def maintain(self, op: str) -> None:
        self.opened.maintain(TABLE, op)

    def alter(self, steps: Sequence[Step], added: tuple[str, ...]) -> None:
        """Alter the table; afterwards it has the columns ``added`` beside its first ones."""
        self.columns |= {added}
        self.opened.alter_table(Alteration(table=TABLE, steps=list(steps)))
        self.columns = frozenset([added])

    def forget(self) -> None:
        """Let so much time pass that no moment up to now need be readable."""
        self.clock.advance((HISTORY_SECONDS + 1) * 1_000_000)
        self.moments.clear()

    def abandon(self) -> None:
        """End the store's threads; on a disk without power this writes nothing."""
        if self.store:
            with suppress(PowerFailure, StoreError, OSError):
                self.store.close()
            self.store = None

    @property
    def opened(self) -> Store:
        assert self.store is not None, "the store is open"
        return self.store


def row(key: int, batch: int, **more: Any) -> Row:
    tags = [{"n": batch, "word": None}, None][: key % 3]
    return {"id": key, "batch": batch, "text": f"text {key} of {batch}", "tags": tags, **more}


def load(run: Run) -> None:
    """Fill a few log segments, and flush once on the way."""
    run.start()
    for batch in range(4):
        run.write("insert", [row(batch * 10 + number, batch) for number in range(3)])
    run.maintain("flush")
    run.write("insert", [row(90, 4, text="x" * 3_000), row(91, 4)])
    run.write("upsert", [row(0, 5), row(92, 5)])


def update(run: Run) -> None:
    """Change, kill and revive rows that are on disk, in delta files and in memory."""
    run.start()
    run.write("insert", [row(number, 0) for number in range(4)])
    run.maintain("flush")
    run.write("update", [{"id": 0, "batch": 1}, {"id": 3, "batch": 1}])
    run.write("delete", [{"id": 1}])
    run.maintain("flush_deltas")
    run.write("insert", [row(1, 3), row(5, 3)])
    run.write("update", [{"id": 0, "text": None, "tags": None}, {"id": 5, "text": "", "tags": [{"n": 1, "word": "x"}]}])
    run.maintain("flush")
    run.write("delete", [{"id": 5}, {"id": 2}])
    run.maintain("flush_deltas")
    run.write("merge", [row(2, 6), row(3, 6), row(2, 7)])


def single_rows(run: Run) -> None:
    """Write flat rows one by one, in all the ways in which a row comes, changes, goes and comes back."""
    run.start()
    for number in range(3):
        run.write("insert", [row(number, 0, tags=None)])
    run.write("update", [{"id": 0, "batch": 1}])
    run.maintain("flush")
    run.write("upsert", [row(3, 2, text="x" * 900, tags=None)])
    run.write("update", [{"id": 1, "batch": None, "text": ""}])
    run.write("delete", [{"id": 2}])
    run.write("insert", [row(2, 3, tags=None)])
    run.maintain("flush_deltas")
    run.write("delete", [{"id": 3}])
    run.write("upsert", [{"id": 3, "batch": 4}])
    run.restart()
    run.write("upsert", [row(0, 5, text="x" * 900, tags=None)])
    run.write("delete_ignore", [{"id": 2}])
    run.maintain("flush")
    run.write("update_ignore", [{"id": 3, "text": "y"}])


def restarts(run: Run) -> None:
    """Stop cleanly twice: with rows in the log only, and with rows in files."""
    run.start()
    run.write("insert", [row(1, 0), row(2, 0)])
    run.restart()
    run.write("upsert", [row(2, 1), row(3, 1)])
    run.maintain("flush")
    run.write("delete", [{"id": 1}])
    run.restart()
    run.write("insert", [row(1, 3), row(4, 3)])
    run.maintain("flush_deltas")


def cleanup(run: Run) -> None:
    """Fill and free log segments, and put files together, so that old ones must go."""
    run.start()
    run.write("insert", [row(number, 0, text="x" * 500) for number in range(5)])
    run.maintain("flush")
    run.write("upsert", [row(number, 1, text="y" * 600) for number in range(5)])
    run.write("insert", [row(10, 2, text="z" * 3_000)])
    run.maintain("flush_deltas")
    run.maintain("flush")
    run.write("update", [{"id": 10, "batch": 3}])
    run.write("delete", [{"id": 0}])
    run.maintain("flush_deltas")
    for op in sorted(set(MaintenanceKind) - {"flush", "flush_deltas"}):
        run.maintain(op)
    run.write("upsert", [row(0, 4), row(1, 4)])


def whole_rows(run: Run) -> None:
    """Flush and compact files that have each row once more as a whole."""
    run.row_column = True
    compactions(run)


def compactions(run: Run) -> None:
    """Compact deltas, rowsets that overlap and history that is old, with deltas in memory each time."""
    run.start()
    run.write("insert", [row(0, 0), row(2, 0), row(4, 0)])
    run.maintain("flush")
    run.write("insert", [row(1, 1), row(3, 1), row(5, 1)])
    run.write("update", [{"id": 0, "batch": 2}, {"id": 2, "batch": 2}])
    run.maintain("flush")
    run.maintain("flush_deltas")
    run.write("delete", [{"id": 2}, {"id": 3}])
    run.maintain("flush_deltas")
    run.write("update", [{"id": 0, "text": None}])
    run.maintain("minor_compact")
    run.maintain("major_compact")
    run.write("upsert", [row(0, 5), row(3, 5), row(9, 5)])
    run.maintain("compact")
    run.write("delete", [{"id": 5}, {"id": 9}])
    run.maintain("flush")
    run.forget()
    run.write("upsert", [row(1, 7)])
    run.maintain("gc")
    run.maintain("compact")
    run.write("insert", [row(5, 8), row(9, 8)])


def attachments(run: Run) -> None:
    """Bring rows to disk before they are logged; change and kill them, before the manifest names them and after."""
    run.options = DIRECT
    run.start()
    run.write("insert", [row(0, 0), row(2, 0), row(4, 0)])
    run.write("update", [{"id": 2, "batch": 1}])
    run.write("delete", [{"id": 4}])
    run.write("insert", [row(5, 2), row(1, 2), row(3, 2)])
    run.maintain("flush_deltas")
    run.write("upsert", [row(4, 3), row(6, 3)])
    run.write("upsert", [row(number, 4, text="x" * 900) for number in range(10, 15)])
    run.maintain("compact")
    run.write("insert", [row(20, 5)])
    run.restart()
    run.write("delete", [{"id": 20}, {"id": 0}])
    run.maintain("flush")
    run.maintain("flush_deltas")
    run.forget()
    run.write("upsert", [row(1, 6)])
    run.maintain("gc")
    run.write("insert", [row(20, 6), row(21, 6)])
    run.write("insert", [row(7, 7)])


def tablets(run: Run) -> None:
    """Flush rows and deltas of several tablets by one commit of the manifest."""
    run.partition_by = (HashLevel(hash=["id"], buckets=2),)
    run.start()
    run.write("insert", [row(number, 0) for number in range(6)])
    run.write("delete", [{"id": 0}, {"id": 1}])
    run.maintain("flush")
    run.write("update", [{"id": number, "batch": 2} for number in range(2, 6)])
    run.write("insert", [row(number, 3) for number in (0, 6, 7)])
    run.maintain("flush_deltas")
    run.maintain("flush")
    run.write("upsert", [row(2, 4), row(8, 4)])


def alterations(run: Run) -> None:
    """Add, widen, rename and drop columns, with rows in memory, in deltas, on disk and in the log."""
    added = AddColumn(name="a", type="int8", read_default=ADDED_DEFAULT, write_default=ADDED_DEFAULT)
    run.start()
    run.write("insert", [row(number, 0) for number in range(4)])
    run.maintain("flush")
    run.write("update", [{"id": 0, "batch": 1}])
    run.alter([added], ("a",))
    run.write("insert", [row(4, 2), row(5, 2)])
    run.write("update", [{"id": 4, "batch": 3}, {"id": 1, "batch": 3}])
    run.alter([WidenColumn(name="a", type="int32"), RenameColumn(name="a", to="b")], ("b",))
    run.write("delete", [{"id": 5}, {"id": 2}])
    run.maintain("flush")
    run.maintain("flush_deltas")
    run.alter([DropColumn(name="b"), added], ("a",))
    run.write("insert", [row(2, 4), row(6, 4)])
    run.restart()
    run.alter([RenameColumn(name="a", to="c")], ("c",))
    run.maintain("major_compact")
    run.maintain("compact")
    run.write("upsert", [row(0, 6), row(7, 6)])


def recoveries(run: Run) -> None:
    """Start with logs of rows, changes of rows on disk and dead rows, flushing after every record."""
    run.options = FLUSHING
    run.start()
    run.write("insert", [row(number, 0) for number in range(4)])
    run.write("update", [{"id": 0, "batch": 1}, {"id": 3, "batch": 1}])
    run.restart()
    run.write("delete", [{"id": 1}])
    run.write("upsert", [row(1, 3), row(5, 3, text="x" * 3_000)])
    run.write("update", [{"id": 0, "text": None}])
    run.restart()
    run.maintain("minor_compact")
    run.write("delete", [{"id": 5}, {"id": 2}])
    run.maintain("compact")
    run.write("insert", [row(2, 6)])
    run.restart()
    run.write("upsert", [row(2, 7), row(8, 7)])


def transactions(run: Run) -> None:
    """Stage and commit transactions that insert, change, delete and truncate, in memory and as rowsets of their own."""
    run.start()
    run.write("insert", [row(number, 0) for number in range(3)])
    run.transact([("upsert", [row(1, 1), row(5, 1)]), ("delete", [{"id": 0}, {"id": 5}])], [("insert", [row(0, 1)])])
    run.stage("lost", [("delete", [{"id": 1}])])
    run.options = DIRECT
    run.restart()
    run.transact([("insert", [row(1, 3), row(9, 3)]), ("update", [{"id": 9, "batch": 4}])], truncate=True)
    run.transact([("upsert", [row(20, 4), row(21, 4), row(9, 4)])], [("merge", [row(9, 5), row(1, 5), row(9, 6)])])
    run.maintain("flush_deltas")


def tables(run: Run) -> None:
    """Drop a table and make one of the same name: nothing of the old one may come back."""
    run.start()
    run.write("insert", [row(1, 0), row(2, 0)])
    run.maintain("flush")
    run.write("upsert", [row(2, 1), row(3, 1)])
    run.drop()
    run.create()
    run.write("insert", [row(2, 2)])
    run.drop()
    run.create()
    run.restart()
    run.write("insert", [row(3, 3)])


def ordered(run: Run) -> None:
    """Write rows that come late, and delete rows before they come, in memory, on disk, in deltas and after restarts."""
    run.order_by = "batch"
    run.start()
    run.write("upsert", [row(number, 5) for number in range(4)])
    run.write("delete", [{"id": 0, "batch": 9}, {"id": 7, "batch": 9}])
    run.write("upsert", [row(0, 8), row(1, 4), row(2, 6)])
    run.maintain("flush")
    run.write("delete", [{"id": 1, "batch": 7}])
    run.maintain("flush_deltas")
    run.write("upsert", [row(1, 6), row(7, 8), row(3, 7)])
    run.restart()
    run.write("upsert", [row(0, 8), row(1, 6), row(7, 8)])
    run.write("delete", [{"id": 8, "batch": 20}])
    run.maintain("flush")
    run.maintain("compact")
    run.write("upsert", [row(0, 8), row(7, 10), row(8, 19)])
    run.transact([("delete", [{"id": 3, "batch": 12}])], [("upsert", [row(3, 11), row(9, 1)])])
    run.restart()
    run.maintain("flush_deltas")
    run.write("upsert", [row(3, 11), row(8, 21)])


WORKLOADS: dict[str, Callable[[Run], None]] = {
    workload.__name__: workload
    for workload in (
        load,
        update,
        single_rows,
        restarts,
        cleanup,
        compactions,
        whole_rows,
        attachments,
        tablets,
        alterations,
        recoveries,
        transactions,
        ordered,
        tables,
    )
}
