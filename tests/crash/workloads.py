"""Three fixed workloads, run on any disk until they end or the disk does, with the model beside them.

One writer, which waits for each answer: so the calls of the file system come in the same order every time, and at a
crash at most one batch is neither acknowledged nor refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.mvcc.clock import ManualClock
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.operation import Operation
from nyala.schemas.scan import ScanSpec
from nyala.schemas.table import TableDefinition
from nyala.schemas.write import WriteCommand
from tests.model.oracle import Key, ModelSchema, Oracle, Plan, Row

TABLE = "t"
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("batch", pa.int32()), pa.field("text", pa.string())])
MODEL = ModelSchema(key=("id",), defaults={"batch": None, "text": None})
OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12, scan_threads=1)
_START_MICROSECONDS = 1_700_000_000_000_000


def open_store(fs: FileSystem, lives: int = 0) -> Store:
    """Open the store on ``fs``, in the ``lives``-th life of its machine; the clock never goes back."""
    return Store.open(fs, OPTIONS, ManualClock(_START_MICROSECONDS + lives * 1_000_000))


def read(store: Store, as_of: int | None = None) -> dict[Key, Row]:
    """Return the whole table; a key that comes twice is an error."""
    rows = store.scan(ScanSpec(table=TABLE, as_of=as_of)).to_reader().read_all().to_pylist()
    found = {(row["id"],): row for row in rows}
    assert len(found) == len(rows), f"a key is there twice: {rows}"
    return found


def write(store: Store, op: str, rows: Sequence[Row]) -> int:
    """Write rows of the same columns, none of which may be refused; return the timestamp."""
    assert all(given.keys() == rows[0].keys() for given in rows)
    batch = pa.RecordBatch.from_pylist(list(rows), pa.schema([SCHEMA.field(name) for name in rows[0]]))
    result = store.write(WriteCommand(table=TABLE, op=Operation(op)), batch)
    assert not result.errors, result.errors
    return result.timestamp


@dataclass
class Run:
    """A workload under way. ``oracle`` holds what was acknowledged, ``pending`` what may or may not be there."""

    fs: FileSystem
    store: Store | None = None
    oracle: Oracle = field(default_factory=lambda: Oracle(MODEL))
    pending: Plan | None = None
    has_table: bool = False
    moments: list[int] = field(default_factory=list)
    lives: int = 0

    def start(self) -> None:
        """Open the store and make the table unless it is there."""
        self.restart()
        self._store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"], if_not_exists=True))
        self.has_table = True

    def restart(self) -> None:
        """Close the store if it is open, and open it."""
        if self.store:
            self.store.close()
            self.store = None
        self.lives += 1
        self.store = open_store(self.fs, self.lives)

    def write(self, op: str, rows: Sequence[Row]) -> None:
        """Write one batch. After an error it is ``pending``; the next batch is planned without it."""
        plan = self.oracle.plan(op, rows)
        assert not plan.errors, "a workload holds only what must succeed"
        self.pending = plan
        timestamp = write(self._store, op, rows)
        self.oracle.commit(plan, timestamp)
        self.pending = None
        self.moments.append(timestamp)

    def maintain(self, op: str) -> None:
        self._store.maintain(TABLE, op)

    def abandon(self) -> None:
        """End the store's threads; on a disk without power this writes nothing."""
        if self.store:
            try:
                self.store.close()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
            self.store = None

    @property
    def _store(self) -> Store:
        assert self.store is not None, "the store is open"
        return self.store


def row(key: int, batch: int, **more: Any) -> Row:
    return {"id": key, "batch": batch, "text": f"text {key} of {batch}", **more}


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
    run.write("update", [{"id": 0, "text": None}, {"id": 5, "text": ""}])
    run.maintain("flush")
    run.write("delete", [{"id": 5}, {"id": 2}])
    run.maintain("flush_deltas")
    run.write("upsert", [row(2, 6), row(3, 6)])


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


WORKLOADS: dict[str, Callable[[Run], None]] = {"load": load, "update": update, "restarts": restarts}
