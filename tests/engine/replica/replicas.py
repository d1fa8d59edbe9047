"""A holder of a store in a bucket, and a replica of it on another machine, that a test moves step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nyala.clients.api.database import Database
from nyala.engine.mvcc.clock import Clock
from nyala.engine.options import StoreOptions
from nyala.engine.replica.slots import SlotReplica
from nyala.engine.store import Store
from nyala.engine.wal.slots.tail import Tail
from nyala.schemas.errors import StoreError
from nyala.schemas.rows.scan import ScanSpec
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("name", pa.string())])
SMALL = OPTIONS.model_copy(update={"direct_load_bytes": 2_000, "direct_load_unsorted_bytes": 2_000})
"""A batch of some hundred rows becomes a file, which the log attaches."""


@dataclass
class Holder:
    """The process that has the store."""

    machine: Machine
    store: Store
    others: list[Store] = field(default_factory=list)

    @classmethod
    def of(cls, machine: Machine, options: StoreOptions = SMALL) -> Holder:
        store = Store.open(machine.home(), options)
        log: Any = store._wal
        log._options = type(log._options)(**{**_fields(log._options), "free_slots": 1})
        return cls(machine, store)

    @property
    def database(self) -> Database:
        return Database(self.store)


def _fields(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in type(options).__slots__}


class Follower:
    """A replica on a machine of its own, and the end of the log as it sees it."""

    def __init__(self, holder: Machine, options: StoreOptions = SMALL, clock: Clock | None = None) -> None:
        machine = holder.other()
        self.machine = machine
        home = machine.home()
        self.slots = home.slots
        self.tail = Tail(home.slots, 20, machine.boot.now)
        self.replica = SlotReplica(home, home.slots, options, clock)

    def step(self, looks: int) -> None:
        """See some slots more, and apply what is known; a failure leaves what was there before."""
        for _ in range(looks):
            self.tail.look()
        self._advance()

    def catch_up(self) -> None:
        """Go to the end of the log."""
        for _ in range(4):
            self.tail.seek()
            if self._advance():
                break
        assert self.tail.seen is not None and self.replica.end == self.tail.seen.header.number

    def _advance(self) -> bool:
        assert self.tail.seen is not None
        try:
            self.replica.advance_to(self.tail.seen, self.tail.looked)
        except StoreError:
            if self.slots.end() == self.tail.seen.header.number:
                raise  # nothing has changed meanwhile
            return False
        return True


def rows(stream: Any) -> list[dict[str, Any]]:
    """Return the rows of a scan by key."""
    table = pa.Table.from_batches(list(stream.batches), schema=stream.schema)
    return table.sort_by([(table.column_names[0], "ascending")]).to_pylist() if table.num_rows else []


def compare(holder: Store, replica: SlotReplica, random: Random) -> int:
    """Compare all tables that are the same for both at the newest snapshot of the replica; return how many rows."""
    safe, count = replica.safe, 0
    for name in replica.tables():
        here = replica.describe_table(name)
        if name not in holder.tables():
            continue
        there = holder.describe_table(name)
        if (here.table_id, here.schema_version) != (there.table_id, there.schema_version):
            continue
        specs = [
            ScanSpec(table=name, as_of=safe),
            ScanSpec(table=name, as_of=safe, ordered=True, limit=7),
            ScanSpec(table=name, as_of=safe, where=f"id = {random.randrange(60)}"),
            ScanSpec(table=name, as_of=safe, where="v >= 3"),
            ScanSpec(table=name, as_of=safe, aggregate={"n": ("*", "count"), "s": ("v", "sum")}),
        ]
        for spec in specs:
            expected, found = rows(holder.scan(spec)), rows(replica.scan(spec))
            assert found == expected, f"{spec} at slot {replica.end}"
            count += len(found)
    return count


def moment_of(store: Store) -> int:
    """Return a snapshot with all commits so far."""
    return store.now()


__all__ = ["SCHEMA", "SMALL", "Follower", "Holder", "compare", "moment_of", "pc", "rows"]
