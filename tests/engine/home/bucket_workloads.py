"""Workloads over a store in a bucket, each of several lives of a process, and what must be true whatever failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.bucket_state import state_of
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.engine.wal.slots import pace
from nyala.engine.wal.slots.slot import SlotKind, decode_slot
from nyala.schemas.errors import (
    AlreadyPresentError,
    InvalidArgumentError,
    NotFoundError,
    RowErrors,
    StoreError,
    UnavailableError,
)
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
RANGES = [nyala.partition.range("id", splits=[20, 40])]
ADDED = 7
"""What every row shows in a column that is added."""
Row = tuple[str, int]
"""A table, and the key there."""


@dataclass
class History:
    """What was told of each row: its last acknowledged value, None if there is no such row, and those that it may have
    had since. So for tables, and for a column that is added."""

    acked: dict[Row, int | None] = field(default_factory=dict)
    open: dict[Row, set[int | None]] = field(default_factory=dict)
    has_column: bool = False
    """Whether it was acknowledged that the table t has the column ``added``."""
    errors: list[StoreError] = field(default_factory=list)
    values: Iterator[int] = field(default_factory=count)

    def step(self, act: Callable[[], object]) -> bool:
        """Whether a step came through; its error is kept."""
        try:
            act()
        except StoreError as error:
            self.errors.append(error)
            return False
        return True

    def change(self, table: str, ids: Iterable[int], v: int | None, act: Callable[[], object]) -> None:
        """Take a step that gives rows a value, or deletes them; a failure leaves their outcome open."""
        rows = [(table, each) for each in ids]
        for row in rows:
            self.open.setdefault(row, set()).add(v)
        if self.step(act):
            self.acked.update(dict.fromkeys(rows, v))
            for row in rows:
                del self.open[row]

    def ids(self, table: str) -> list[int]:
        """Return the keys that a table has, or may have had."""
        return sorted({each for name, each in (*self.acked, *self.open) if name == table})

    def check_errors(self) -> None:
        """Each error is named, and says that the bucket did not answer; later ones may be of what was not made then."""
        followers = (NotFoundError, AlreadyPresentError, InvalidArgumentError, RowErrors)
        for number, error in enumerate(self.errors):
            assert isinstance(error, UnavailableError) or (number and isinstance(error, followers)), error

    def check(self, store: Store) -> None:
        """Compare all tables with what was told of them."""
        database, tables = Database(store), store.tables()
        found: dict[Row, int | None] = {}
        for name in tables:
            rows = database.table(name).scan().to_arrow()
            found.update({(name, row["id"]): row["v"] for row in rows.to_pylist()})
            if name == "t" and "added" in rows.column_names:
                assert set(rows["added"].to_pylist()) <= {ADDED}
            else:
                assert name != "t" or not self.has_column, "the column was acknowledged"
        for row in self.acked.keys() | self.open.keys() | found.keys():
            allowed = {self.acked.get(row), *self.open.get(row, ())}
            assert found.get(row) in allowed, f"row {row} is {found.get(row)}, not one of {allowed}"


@dataclass
class Life:
    """What one process does with the store; nothing that fails ends it."""

    store: Store
    history: History

    def create(self, table: str, **how: list[object]) -> None:
        self.history.step(lambda: self._database.create_table(table, SCHEMA, ["id"], **how))  # pyright: ignore

    def upsert(self, table: str, *ids: int) -> None:
        v = next(self.history.values)
        rows = [{"id": each, "v": v} for each in ids]
        self.history.change(table, ids, v, lambda: self._table(table).upsert(rows))

    def delete(self, table: str, *ids: int) -> None:
        rows = [{"id": each} for each in ids]
        self.history.change(table, ids, None, lambda: self._table(table).delete_ignore(rows))

    def maintain(self, table: str, *ops: str) -> None:
        for op in ops:
            self.history.step(lambda op=op: self.store.maintain(table, op))

    def add_column(self) -> None:
        def add() -> None:
            alteration = self._table("t").alter().add_column("added", "int64", read_default=ADDED, write_default=ADDED)
            alteration.apply()

        self.history.has_column |= self.history.step(add)

    def drop_range(self, lower: int, upper: int) -> None:
        ids = [each for each in self.history.ids("r") if lower <= each < upper]
        drop = lambda: self._table("r").alter().drop_range_partition(lower, upper).apply()  # noqa: E731
        self.history.change("r", ids, None, drop)

    def add_range(self, lower: int, upper: int) -> None:
        self.history.step(lambda: self._table("r").alter().add_range_partition(lower, upper).apply())

    def drop(self, table: str) -> None:
        self.history.change(table, self.history.ids(table), None, lambda: self._database.drop_table(table))

    def rest(self) -> None:
        """Do the maintenance that is due, as an idle server does."""
        for _ in range(20):
            if not self.history.step(self.store.run_maintenance_once):
                return

    @property
    def _database(self) -> Database:
        return Database(self.store)

    def _table(self, name: str) -> Table:
        return self._database.table(name)


def _small_writes(life: Life) -> None:
    for each in range(4):
        life.upsert("t", each, each + 1, 90)
    life.maintain("t", "flush")
    life.upsert("t", 50, 1)
    life.delete("t", 2)
    life.upsert("t", 2, 60)


def _first_changes(life: Life) -> None:
    for first in (0, 20):
        life.upsert("t", *range(first, first + 40))
        life.maintain("t", "flush")
    life.delete("t", *range(10))
    life.maintain("t", "flush_deltas", "compact")
    life.upsert("t", *range(5, 70, 5))


def _later_changes(life: Life) -> None:
    life.add_column()
    life.upsert("t", *range(30, 50))
    life.maintain("t", "flush_deltas", "minor_compact", "major_compact", "flush")
    life.delete("t", *range(45, 60))
    life.maintain("t", "gc", "compact")


def _first_ranges(life: Life) -> None:
    life.create("r", partition_by=[*RANGES])
    life.upsert("r", *range(0, 60, 3))
    life.upsert("u", *range(30))
    life.maintain("r", "flush")
    life.maintain("u", "flush")
    life.upsert("r", *range(1, 60, 3))
    life.drop_range(20, 40)
    life.drop("u")
    life.rest()


def _later_ranges(life: Life) -> None:
    life.add_range(20, 40)
    life.upsert("r", 21, 45)
    life.maintain("r", "flush", "compact")
    for each in range(3):
        life.upsert("r", each)
    life.rest()


Steps = Callable[[Life], None]
WORKLOADS: dict[str, tuple[Steps, ...]] = {
    "small writes": (lambda life: life.create("t"), _small_writes, _small_writes),
    "changes": (lambda life: life.create("t"), _first_changes, _later_changes),
    "ranges": (lambda life: life.create("u"), _first_ranges, _later_ranges),
    "writes in chunks": (lambda life: life.create("t"), _small_writes, _small_writes),
}
IN_CHUNKS = frozenset({"writes in chunks"})
"""The workloads whose records take several chunks each."""
"""The lives of a process, each from the opening of the store to a clean stop."""


def have_small_chunks(patch: pytest.MonkeyPatch) -> None:
    """Put each record in several chunks."""
    patch.setattr(pace, "BYTES_MIN", 64)
    patch.setattr(pace, "BYTES_MAX", 64)


def run(machine: Machine, name: str, history: History, options: StoreOptions = OPTIONS) -> None:
    """Live through a workload on one machine."""
    with pytest.MonkeyPatch.context() as patch:
        if name in IN_CHUNKS:
            have_small_chunks(patch)
        for steps in WORKLOADS[name]:
            opened: list[Store] = []
            if history.step(lambda opened=opened: opened.append(Store.open(machine.home(), options))):
                try:
                    steps(Life(opened[0], history))
                finally:
                    history.step(opened[0].close)


@cache
def calls(name: str) -> int:
    """Return how many calls of the bucket a workload makes without a fault; nothing fails then."""
    machine, history = Machine(), History()
    run(machine, name, history)
    assert not history.errors
    check(machine, history)
    return len(machine.objects.calls)


def check(machine: Machine, history: History) -> None:
    """Open the store elsewhere: it has what was acknowledged, its log and files are sound, and a sweep leaves exactly
    what is needed."""
    machine.objects.land_late_ones()
    with Store.open(machine.other().home(), OPTIONS) as store:
        history.check(store)
        known = len(history.errors)
        life = Life(store, history)
        for table in store.tables():
            life.upsert(table, *range(100, 110))
            life.maintain(table, "flush")
        assert len(history.errors) == known
        history.check(store)
    home = machine.other().home()
    report = verify_bucket(home)
    assert report.is_sound, report.problems
    sweep(home)
    assert not leftovers(home)
    check_objects(home)
    with Store.open(machine.other().home(), OPTIONS) as store:
        history.check(store)


def check_objects(home: BucketHome) -> None:
    """Assert that the bucket has what a store that was released and swept needs, and nothing else."""
    state = state_of(home)
    tablets = [tablet for table in state.manifest.tables for tablet in table.tablets]
    needed = {
        f"tablets/{tablet.home}/{name}" for tablet in tablets for rowset in tablet.rowsets for name in rowset.file_names
    }
    needed |= {f"manifests/{state.newest.header.manifest}"} if state.newest.header.manifest else set()
    there = {name.removeprefix(home.prefix) for name, _ in home.bucket.list(home.prefix)}
    for number in home.slots.numbers():
        slot = decode_slot(number, home.slots.read(number) or b"")
        if number >= state.newest.header.needed_slot or slot.header.kind is SlotKind.CLAIM:
            needed.add(home.slots.name(number).removeprefix(home.prefix))
            needed.update(f"chunks/{name}" for name in slot.chunk_names)
    assert there - {"where", "authors"} == needed, f"missing: {needed - there}, left: {there - needed}"
