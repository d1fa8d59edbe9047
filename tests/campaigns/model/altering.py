"""A table that is written, altered, flushed, merged and restarted at random, beside its mirror.

After Kudu's alter_table-randomized-test, with old snapshots, the change feed and power failures besides.
"""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.convert.cells import python_rows
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.cells.moment import DAY_MICROSECONDS, microseconds_of
from nyala.schemas.cells.timestamp import last_of
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import ConflictError, InvalidArgumentError, NotFoundError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.options import columns as stored_columns
from tests.campaigns.options import stored, unlocked
from tests.campaigns.options import table as table_options
from tests.doubles.clock import ManualClock

from .mirror import Cells, Key, Mirror, MirrorColumn, MirrorSchema, Steps
from .ranges import Ends, Ranges
from .subjects import crashed

KEY_TYPES: tuple[tuple[pa.DataType, ...], ...] = (
    (pa.int32(),),
    (pa.string(),),
    (pa.int64(), pa.string()),
)
KEY_CELLS = {
    pa.int32(): (0, 1, -5, 1 << 30),
    pa.int64(): (0, -1, 1 << 62),
    pa.string(): ("", "a", "a\0", "long enough"),
}
OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12)
UNUSUAL = OPTIONS.model_copy(update={"direct_load_bytes": 1, "direct_load_unsorted_bytes": 1, "key_index_bytes": 0})
"""New rows become rowsets of their own, and no key is in an index."""


class Altering:
    """One table of a random key, in a store on a disk in memory; ``steps`` tells what was done to it."""

    def __init__(
        self,
        seed: int,
        over_flight: bool = False,
        history_seconds: int = 7 * 24 * 3600,
        options: StoreOptions = OPTIONS,
    ) -> None:
        self.random = random = Random(seed)
        self._options = options
        self._history = history_seconds
        self._microseconds = 1_700_000_000_000_000
        self._fs = MemoryFileSystem()
        self._store = self._open()
        self._server = FlightServer(self._store, "grpc://127.0.0.1:0") if over_flight else None
        self._database = self._connect()
        self._key_types = random.choice(KEY_TYPES)
        key = tuple("xyz"[: len(self._key_types)])
        columns = (MirrorColumn(len(key) + 1, "a", "int8"), MirrorColumn(len(key) + 2, "b", "varchar(3)", False))
        self.mirror = Mirror(MirrorSchema("t", key, columns, len(key) + 3))
        values = ("a", pa.int8()), pa.field("b", pa.string(), False)
        schema = pa.schema([*zip(key, self._key_types, strict=True), *values])
        self._database.create_table(
            "t",
            schema,
            list(key),
            column_options=stored_columns(schema, {"b": nyala.ColumnOptions(type="varchar(3)")}),
            partition_by=[nyala.hash(*key, buckets=2)] if random.random() < 0.3 else [],
            **table_options(history_max_age_seconds=history_seconds),
        )
        self.ranges = Ranges()
        self.moments = [self._database.now()]
        self.done: list[str] = []

    @property
    def table(self) -> Table:
        return self._database.table(self.mirror.schema.name)

    def run(self, count: int) -> None:
        """Do and check ``count`` random things; a failure carries what was done."""
        things = [self.write] * 6 + [self.alter] * 3 + [self.maintain] * 4 + [self.restart, self.advance]
        things += [self.split, self.repartition]
        try:
            for _ in range(count):
                self.random.choice(things)()
                self.check()
            self.close()
        except Exception as error:
            error.add_note("\n".join(self.done))
            raise

    # What is done

    def write(self) -> None:
        random, schema = self.random, self.mirror.schema
        op = random.choice(["upsert", "upsert", "insert_ignore", "update_ignore", "delete_ignore"])
        chosen = [column for column in schema.columns if random.random() < 0.6]
        if op in ("upsert", "insert_ignore"):
            chosen = [column for column in schema.columns if column in chosen or column.is_required]
        if op == "delete_ignore":
            chosen = []
        if op == "update_ignore" and not chosen:
            return
        keys = {tuple(random.choice(KEY_CELLS[kind]) for kind in self._key_types) for _ in range(random.randint(1, 6))}
        rows: dict[Key, Cells] = {key: {column.id: column.cell(random) for column in chosen} for key in sorted(keys)}
        self.done.append(f"{op} {[column.name for column in chosen]} {rows}")
        now = self._database.now()
        result = self.table.write(self._batch(rows, chosen), op, on_error="return")
        refused = [(number, "NO_PARTITION") for number, key in enumerate(rows) if not self.ranges.holds(key)]
        assert [(error.row, error.code) for error in result.errors] == refused
        taken = {key: row for key, row in rows.items() if self.ranges.holds(key)}
        self.mirror.write(op, [], taken, result.timestamp, now)
        self.moments.append(result.timestamp)

    def alter(self) -> None:
        random, before = self.random, self.mirror.schema
        steps = Steps(before, random)
        chosen = [steps.draw() for _ in range(random.randint(1, 10))]
        is_wrong, is_stale = random.random() < 0.1, random.random() < 0.1
        if is_wrong:
            chosen.append(steps.wrong())
        ranges, moves = self._moves() if random.random() < 0.2 else (self.ranges, [])
        chosen += [(method, ends, {}) for method, ends in moves]
        self.done.append(f"alter {chosen} wrong={is_wrong} stale={is_stale}")
        alteration = self.table.alter()
        for method, arguments, words in chosen:
            getattr(alteration, method)(*arguments, **words)
        version = before.version + 1 if is_stale else random.choice([None, before.version])
        if is_stale:
            with pytest.raises(ConflictError):
                alteration.apply(version)
        elif is_wrong:
            with pytest.raises((InvalidArgumentError, NotFoundError)):
                alteration.apply(version)
        else:
            alteration.apply(version)
            self.mirror.schema = steps.schema
            self._have(ranges, moves)

    def split(self) -> None:
        """Divide a tablet at a random key; no row and no snapshot may show it."""
        at = self.random.choice(self._keys)
        self.done.append(f"split {at}")
        ranges, alteration = self.ranges.split(at), self.table.alter().split_partition(at)
        if ranges is None:
            with pytest.raises(InvalidArgumentError):
                alteration.apply()
            return
        alteration.apply()
        self._altered_once(ranges, [])

    def repartition(self) -> None:
        """Drop and add ranges, in one change."""
        ranges, moves = self._moves()
        self.done.append(f"repartition {moves}")
        alteration = self.table.alter()
        for method, ends in moves:
            getattr(alteration, method)(*ends)
        if moves:
            alteration.apply()
            self._altered_once(ranges, moves)

    def maintain(self) -> None:
        op = self.random.choice(["flush", "flush", "flush_deltas", *MaintenanceKind])
        self.done.append(f"maintain {op}")
        self.table.maintain(op)

    def restart(self) -> None:
        stop = self.random.choice(["close", "kill", "power"])
        self.done.append(f"restart {stop}")
        if stop == "close":
            self._store.close()
        else:
            self._fs = crashed(self._store, self._fs, self.random if stop == "power" else None)
        self._microseconds += 1_000
        self._store = self._open()
        if self._server:
            self._server.serve_store(self._store)
            self._database.close()  # an open session keeps its store
        self._database = self._connect()

    def advance(self) -> None:
        seconds = self.random.randint(0, 8)
        self.done.append(f"advance {seconds}")
        self._microseconds += seconds * 1_000_000
        self._clock.advance(seconds * 1_000_000)

    # What is checked

    def check(self) -> None:
        schema, table = self.mirror.schema, self.table
        described = table.describe()
        columns = described["columns"]
        assert (described["schema_version"], described["primary_key"]) == (schema.version, list(schema.key))
        known = [(column["id"], column["name"], column["type"], column["nullable"]) for column in columns]
        levels = [level for level in described["partitions"] if "range" in level]
        bounds = [(one["lower"], one["upper"]) for level in levels for one in level["bounds"]]
        expected = [tuple(None if end is None else list(end) for end in ends) for ends in self.ranges.ends]
        assert sorted(bounds, key=repr) == (sorted(expected, key=repr) if self.ranges.is_ranged else [])
        assert known[len(schema.key) :] == [(one.id, one.name, one.kind, one.nullable) for one in schema.columns]
        self._check_scan(None)
        past = [moment for moment in self.moments if moment >= self._oldest()]
        for moment in self.random.sample(past, min(len(past), 2)):
            self._check_scan(moment)
        if len(past) > 1:
            self._check_changes(*sorted(self.random.sample(past, 2)))
        self._check_filter()
        self._check_get()

    def _check_scan(self, moment: int | None) -> None:
        ordered = self.random.random() < 0.5
        found = cells(self.table.scan(as_of=moment, ordered=ordered).to_arrow())
        expected = exact(self.mirror.as_of(self._database.now() if moment is None else moment))
        assert found == expected if ordered else sorted(found, key=repr) == sorted(expected, key=repr)

    def _check_filter(self) -> None:
        schema = self.mirror.schema
        if not schema.columns:
            return
        column = self.random.choice(schema.columns)
        at = schema.names.index(column.name)
        rows = self.mirror.as_of(self._database.now())
        nulls = [row for row in rows if row[at] is None]
        where = f"{column.name} IS NULL"
        assert sorted(cells(self.table.scan(where=where).to_arrow()), key=repr) == sorted(exact(nulls), key=repr)
        if column.kind not in ("float", "double", "bool", "binary") and len(rows) > len(nulls):
            value = self.random.choice([row[at] for row in rows if row[at] is not None])
            expected = [row for row in rows if row[at] is not None and row[at] >= value]
            tree = [(column.name, ">=", value)]
            assert sorted(cells(self.table.scan(where=tree).to_arrow()), key=repr) == sorted(exact(expected), key=repr)

    def _check_get(self) -> None:
        rows = {row[: len(self._key_types)]: row for row in self.mirror.as_of(self._database.now())}
        key = tuple(self.random.choice(KEY_CELLS[kind]) for kind in self._key_types)
        found = self.table.get(key)
        assert exact([tuple(found.values())] if found else []) == exact([rows[key]] if key in rows else [])

    def _check_changes(self, since: int, until: int) -> None:
        table = self.table.changes(since, until, before=True, ordered=True).to_arrow()
        width = len(self.mirror.schema.names)
        expected = []
        for op, timestamp, row, before in self.mirror.changes(since, until):
            expected.append((op, timestamp, *row, *(before or (None,) * width)))
        assert cells(table) == exact(expected)

    def close(self) -> None:
        """Stop, and verify the files."""
        self._database.close()
        if self._server:
            self._server.shutdown()
        self._store.close()
        report = verify_store(unlocked(self._fs))
        assert report.is_sound, report.problems

    # Inner workings

    @property
    def _keys(self) -> list[Key]:
        return list(product(*(KEY_CELLS[kind] for kind in self._key_types)))

    def _moves(self) -> tuple[Ranges, list[tuple[str, Ends]]]:
        """Return steps that drop and add ranges, none while there is no range level, and what they leave."""
        ranges, moves = self.ranges, []
        for _ in range(self.random.randint(1, 3)):
            if drawn := ranges.draw(self.random, self._keys):
                method, ends, ranges = drawn
                moves.append((method, ends))
        return ranges, moves

    def _altered_once(self, ranges: Ranges, moves: list[tuple[str, Ends]]) -> None:
        self.mirror.schema = replace(self.mirror.schema, version=self.mirror.schema.version + 1)
        self._have(ranges, moves)

    def _have(self, ranges: Ranges, moves: list[tuple[str, Ends]]) -> None:
        self.ranges = ranges
        for method, ends in moves:
            if method == "drop_range_partition":
                self.mirror.drop_range(ends)

    def _batch(self, rows: dict[Key, Cells], chosen: list[MirrorColumn]) -> pa.Table:
        schema = self.mirror.schema
        arrays = [pa.array([key[at] for key in rows], kind) for at, kind in enumerate(self._key_types)] + [
            pa.array([row[column.id] for row in rows.values()], LogicalType.parse(column.kind).arrow)
            for column in chosen
        ]
        return pa.table(arrays, names=[*schema.key, *(column.name for column in chosen)])

    def _oldest(self) -> int:
        return last_of(self._microseconds - self._history * 1_000_000)

    def _connect(self) -> Database:
        if self._server:
            return nyala.connect(f"grpc://127.0.0.1:{self._server.port}")
        return Database(self._store)

    def _open(self) -> Store:
        self._clock = ManualClock(self._microseconds)
        store = Store.open(self._fs, stored(self._options), self._clock)
        assert not store.health().damaged, "the disk keeps what was synced"
        return store


def cells(table: pa.Table) -> list[tuple]:
    """Return rows as tuples that compare bit by bit."""
    return exact([tuple(row.values()) for batch in table.to_batches() for row in python_rows(batch)])


def exact(rows: list[Any]) -> list[tuple]:
    return [tuple(map(_exact, row)) for row in rows]


def _exact(cell: Any) -> Any:
    if isinstance(cell, dt.date):
        return microseconds_of(cell) if isinstance(cell, dt.datetime) else microseconds_of(cell) // DAY_MICROSECONDS
    return struct.pack("d", cell) if type(cell) is float else cell
