"""Random histories of a store: all that a log can hold, and what is to be seen of it at every moment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import RowErrors, StoreError

KEYS = 12
_PLAIN = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("a", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(20, 2)),
        ("b", pa.bool_()),
    ]
)
_TEXT = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("q", pa.int16(), nullable=False), ("v", pa.binary())]
)
_COUNTED = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.string())])


class History:
    """A store on a disk in memory to which random things happen."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.options = StoreOptions(
            maintenance="off",
            scan_threads=1,
            wal_segment_bytes=random.choice([1 << 12, 1 << 16]),
            key_index_bytes=random.choice([0, 1 << 20]),
            direct_load_bytes=random.choice([1, 1 << 30]),
            direct_load_unsorted_bytes=1 << 30,
        )
        self.disk = MemoryFileSystem()
        self.database = Database(Store.open(self.disk, self.options))
        self.database.create_table("plain", _PLAIN, ["k"])
        halves = [nyala.range("p", splits=["m"])] if random.random() < 0.5 else []
        self.database.create_table("text", _TEXT, ["p", "q"], partition_by=[nyala.hash("q", buckets=3), *halves])
        self.database.create_table("ranged", _PLAIN, ["k"], partition_by=[nyala.range("k", splits=[6])])
        self.database.create_table("counted", _COUNTED, ["k"], unique_key=False)
        self._sequence = 0
        self._added: list[str] = []

    def run(self, steps: int) -> None:
        """Let so many things happen, mostly writes of one row."""
        acts: list[Callable[[], object]] = [self._row] * 30
        acts += [self._rows, self._rows, self._many, self._numbered, self._numbered, self._numbered, self._statement]
        acts += [self._transaction, self._maintain, self._counted, self._counted, self._alter, self._split]
        for _ in range(steps):
            with suppress(RowErrors):
                self.random.choice(acts)()

    def image(self) -> MemoryFileSystem:
        """Return what the disk has now; the store goes on."""
        return self.disk.crash_image(Random(1))

    def _table(self) -> Table:
        return self.database.table(self.random.choice(["plain", "plain", "ranged", "text"]))

    def _key(self, table: Table) -> dict[str, Any]:
        number = self.random.randrange(KEYS)
        return {"k": number} if table.primary_key == ["k"] else {"p": "az"[number % 2] * (number // 4), "q": number % 4}

    def _cell(self, kind: pa.DataType) -> Any:
        random = self.random
        if random.random() < 0.15:
            return None
        if pa.types.is_integer(kind):
            return random.randint(-99, 99)
        if pa.types.is_boolean(kind):
            return random.random() < 0.5
        if pa.types.is_decimal(kind):
            return f"{random.randint(-(10**6), 10**6) / 100:.2f}"
        text = random.choice(["", "x", "some text", "y" * 70])
        return text.encode() if pa.types.is_binary(kind) else text if pa.types.is_string(kind) else random.random()

    def _image_of(self, table: Table, some: bool) -> dict[str, Any]:
        """Return a row of a table, with some of its columns or all."""
        row = self._key(table)
        others = [column for column in table.schema if column.name not in row]
        if some:
            others = self.random.sample(others, self.random.randint(1, len(others)))
        return row | {column.name: self._cell(column.type) for column in others}

    def _batch(self, table: Table, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        names = list(rows[0])
        self.random.shuffle(names)
        by_name = {field.name: field.type for field in table.schema}
        columns = []
        for name in names:
            cells = [row[name] for row in rows]
            is_decimal = pa.types.is_decimal(by_name[name])
            columns.append(
                pa.array(cells, pa.string()).cast(by_name[name]) if is_decimal else pa.array(cells, by_name[name])
            )
        return pa.RecordBatch.from_arrays(columns, names)

    def _write(self, table: Table, count: int, **how: Any) -> None:
        op = self.random.choice(["upsert", "upsert", "insert_ignore", "update_ignore", "delete_ignore"])
        image = self._image_of(table, some=op == "update_ignore")
        rows = [{**self._image_of(table, some=False), **self._key(table)} for _ in range(count)]
        names = list(self._key(table)) if op == "delete_ignore" else list(image)
        kept = [{name: row[name] for name in names} for row in rows]
        table.write(self._batch(table, kept), op, **how)

    def _row(self) -> None:
        self._write(self._table(), 1)

    def _rows(self) -> None:
        self._write(self._table(), self.random.randint(2, 8))

    def _many(self) -> None:
        self._write(self._table(), 100)

    def _numbered(self) -> None:
        self._sequence += self.random.choice([0, 1, 1, 1])
        writer = self.random.choice(["loader", "other", 'odd "\u00e9"'])
        with suppress(StoreError):
            self._write(self._table(), self.random.choice([1, 3]), writer=writer, seq=self._sequence)

    def _statement(self) -> None:
        table = self.database.table("plain")
        first = self.random.randrange(KEYS)
        where = f"k BETWEEN {first} AND {first + 3}"
        if self.random.random() < 0.5:
            table.update_where({"a": "a + 1", "s": "'set'"}, where)
        else:
            table.delete_where(where)

    def _transaction(self) -> None:
        with suppress(StoreError), self.database.transaction(app_id="app", app_version=self._sequence) as transaction:
            if self.random.random() < 0.2:
                transaction.truncate("ranged")
            for _ in range(self.random.randint(1, 4)):
                table = self._table()
                op = self.random.choice(["upsert", "insert_ignore", "delete_ignore"])
                rows = [self._key(table) if op == "delete_ignore" else self._image_of(table, some=False) for _ in "xy"]
                transaction.write(table.name, self._batch(table, rows), op)

    def _counted(self) -> None:
        table = self.database.table("counted")
        if self.random.random() < 0.3:
            table.upsert([{"k": 1, "auto_incrementing_id": self.random.randint(1, 40), "v": "own"}])
        else:
            table.insert([{"k": self.random.randrange(5), "v": "x"} for _ in range(self.random.randint(1, 3))])

    def _maintain(self) -> None:
        self._table().maintain(self.random.choice(["flush", "flush_deltas", "compact", "major_compact"]))

    def _alter(self) -> None:
        table = self.database.table("plain")
        names = table.schema.names
        if "w" not in names:
            table.alter().add_column("w", "int8", read_default=7).apply()
        elif self.random.random() < 0.5:
            table.alter().drop_column("w").apply()
        else:
            with suppress(StoreError):
                table.alter().widen_column("w", self.random.choice(["int16", "int32"])).apply()

    def _split(self) -> None:
        with suppress(StoreError):
            self.database.table("ranged").alter().split_partition(self.random.randrange(KEYS)).apply()


def seen(database: Database) -> dict[str, Any]:
    """Return all there is to be seen: each table at each of its commits, its changes, and what it says of itself."""
    found: dict[str, Any] = {}
    for name in database.list_tables():
        table = database.table(name)
        commits = database.commits(table).drop_columns(["operation", "user"])  # which a crash costs
        moments = sorted({commit["timestamp"] for commit in commits.to_pylist()})
        found[name] = {
            "commits": commits.to_pylist(),
            "rows": [_sorted(table.scan(as_of=moment).to_arrow()) for moment in moments],
            "now": _sorted(table.scan(ordered=True).to_arrow()),
            "changes": _sorted(table.changes(moments[0], every=True, before=True).to_arrow()) if moments else None,
            "last change": table.last_change(),
            "rows alive": table.stats()["live_rows"],
        }
    return found


def positions(store: Store) -> dict[int, Any]:
    """Return where each tablet stands, as flushes and the log will have it."""
    found: dict[int, Any] = {}
    for table in store._catalog.tables():
        for tablet in table.tablets:
            found[tablet.tablet_id] = (
                (tablet.last_timestamp, tablet.last_lsn, tablet.first_unflushed_lsn()),
                (tablet.live_rows, tablet.rows_written, [len(rowset) for rowset in tablet.version.rowsets()]),
                [rowset.deltas.first_lsn for rowset in tablet.version.rowsets()],
                (table.auto_increment.last, table.last_change),
            )
    return found


def remembered(store: Store) -> Any:
    """Return the answers and transactions that a store remembers."""
    writers, transactions = store._writers, store._transaction_memory
    answers = {
        key: (kept.floor, kept.logged_from, dict(sorted(kept.answers.items())))
        for key, kept in writers._writers.items()
    }
    told = dict(transactions._transactions), dict(transactions._applications), transactions._logged_from
    return list(writers._writers), answers, writers._answer_bytes, told


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))
