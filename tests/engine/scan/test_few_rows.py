"""The few rows that a filter leaves of a chunk are read like gets: the same cells as column by column."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.read import read_chunk as read
from nyala.engine.store import Store

ROWS = 4_000
SCHEMA = pa.schema([
    pa.field("id", pa.string(), False),
    pa.field("n", pa.int32(), False),
    ("v", pa.int64()),
    ("text", pa.string()),
    ("raw", pa.binary()),
    ("ok", pa.bool_()),
    ("amount", pa.decimal128(20, 2)),
    ("at", pa.timestamp("us")),
])  # fmt: skip
FILTERS = ("v = 7", "v IS NULL AND ok", "text LIKE 'text 1%' AND v < 20", "n < 50 AND v > 3", "id >= '1' AND v = 3")


@pytest.fixture
def database() -> Iterator[Database]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        yield Database(store)


@pytest.fixture
def table(database: Database) -> Table:
    return database.create_table("t", SCHEMA, ["id", "n"])


def some(random: Random, count: int) -> pa.RecordBatch:
    numbers = random.sample(range(ROWS), count)

    def maybe(cell: Any) -> Any:
        return None if random.random() < 0.05 else cell

    rows = [
        {
            "id": str(number % 10),
            "n": number,
            "v": maybe(random.randrange(50)),
            "text": maybe(f"text {random.randrange(300)}"),
            "raw": maybe(random.randbytes(random.randrange(9))),
            "ok": maybe(random.random() < 0.5),
            "amount": maybe(random.randrange(10**15)),
            "at": maybe(random.randrange(10**15)),
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def steps(database: Database, table: Table, random: Random) -> Iterator[int]:
    """Change the table in every way that leaves rows in another place, and yield a snapshot after each."""
    table.upsert(some(random, ROWS))
    for step in ("", "flush", "", "flush_deltas", "minor_compact", "", "major_compact", "", "flush", "compact", ""):
        if step:
            table.maintain(step)
        if step != "compact":
            table.upsert(some(random, 300))
            table.delete_ignore(some(random, 40).select(["id", "n"]))
        yield database.now()


@pytest.mark.parametrize("seed", range(3))
def test_few_rows_have_the_cells_of_a_scan(
    database: Database, table: Table, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, outcomes, snapshots = Random(seed), [], []
    few = read._few

    def noted(*given: Any) -> list[pa.Array] | None:
        outcomes.append(few(*given))
        return outcomes[-1]

    for snapshot in steps(database, table, random):
        snapshots.append(snapshot)
        for as_of in (None, random.choice(snapshots)):
            for where in FILTERS:
                columns = random.choice([None, ["text"], ["at", "id", "v"]])
                how = {"where": where, "as_of": as_of, "columns": columns, "ordered": random.random() < 0.5}
                monkeypatch.setattr(read, "_few", noted)
                found = table.scan(**how).to_arrow()
                monkeypatch.setattr(read, "_few", lambda *_: None)
                found.validate(full=True)
                assert found.equals(table.scan(**how).to_arrow())
    assert sum(each is not None for each in outcomes) > 50


def test_what_kernels_cannot_read_is_read_column_by_column(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.upsert(some(Random(1), ROWS))
    table.maintain("flush")
    expected = table.scan(where="v = 7").to_arrow()
    met: list[object] = []

    def failing(*given: object) -> None:
        met.append(given)
        raise CorruptPageError("planted")

    monkeypatch.setattr(read, "fill", failing)
    assert table.scan(where="v = 7").to_arrow().equals(expected) and len(expected) > 10 and met
