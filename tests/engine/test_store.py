"""Store from its one door: every operation, scan and kind of restart, on a disk in memory and on a real one."""

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import (
    AlreadyPresentError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
    UnavailableError,
)
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand, WriteResult
from nyala.schemas.table.table import TableDefinition

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 14, scan_threads=2)
ITEMS = pa.schema([("id", pa.int64()), ("price", pa.int32()), ("name", pa.string())])
EVENTS = pa.schema(
    [("place", pa.string()), ("unit", pa.int32()), ("at", pa.timestamp("us")), ("amount", pa.decimal128(12, 2))]
)
Row = dict[str, Any]


@pytest.fixture(params=["memory", "local"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    return MemoryFileSystem() if request.param == "memory" else LocalFileSystem(tmp_path)


@pytest.fixture
def store(fs: FileSystem) -> Iterator[Store]:
    with Store.open(fs, OPTIONS) as store:
        store.create_table(TableDefinition.from_arrow("items", ITEMS, ["id"]))
        store.create_table(TableDefinition.from_arrow("events", EVENTS, ["place", "unit", "at"]))
        yield store


def write(store: Store, op: str, rows: list[Row], table: str = "items", atomic: bool = False) -> WriteResult:
    schema = ITEMS if table == "items" else EVENTS
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([schema.field(name) for name in rows[0]]))
    return store.write(WriteCommand(table=table, op=Operation(op), atomic=atomic), batch)


def scan(store: Store, table: str = "items", **spec: Any) -> list[Row]:
    return store.scan(ScanSpec(table=table, **spec)).to_reader().read_all().to_pylist()


def by_id(store: Store, **spec: Any) -> dict[int, tuple[int | None, str | None]]:
    return {row["id"]: (row["price"], row["name"]) for row in scan(store, **spec)}


def item(key: int, price: int | None = 0, name: str | None = "") -> Row:
    return {"id": key, "price": price, "name": name}


def codes(result: WriteResult) -> list[tuple[int, str]]:
    assert result.error_count == len(result.errors)
    return [(error.row, error.code) for error in result.errors]


OPERATIONS = [
    # operation, answer for the live key 1 and the absent key 2: (applied, ignored, errors), rows afterwards
    ("insert", (1, 0, [(0, "ALREADY_PRESENT")]), {1: (1, "one"), 2: (20, "new")}),
    ("insert_ignore", (1, 1, []), {1: (1, "one"), 2: (20, "new")}),
    ("upsert", (2, 0, []), {1: (10, "new"), 2: (20, "new")}),
    ("upsert_ignore", (2, 0, []), {1: (10, "new"), 2: (20, "new")}),
    ("update", (1, 0, [(1, "NOT_FOUND")]), {1: (10, "new")}),
    ("update_ignore", (1, 1, []), {1: (10, "new")}),
    ("delete", (1, 0, [(1, "NOT_FOUND")]), {}),
    ("delete_ignore", (1, 1, []), {}),
]


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize(("op", "answer", "after"), OPERATIONS, ids=[case[0] for case in OPERATIONS])
def test_each_operation_meets_a_live_and_an_absent_key(
    store: Store, op: str, answer: tuple, after: dict, flushed: bool
) -> None:
    write(store, "insert", [item(1, 1, "one")])
    if flushed:
        store.maintain("items", "flush")
    rows = [item(1, 10, "new"), item(2, 20, "new")]
    result = write(store, op, [{"id": row["id"]} for row in rows] if op.startswith("delete") else rows)
    assert (result.applied, result.ignored, codes(result)) == answer
    assert result.rows == 2
    assert by_id(store) == after


def test_an_atomic_batch_with_one_bad_row_changes_nothing(store: Store) -> None:
    write(store, "insert", [item(1)])
    result = write(store, "insert", [item(2), item(1), item(3)], atomic=True)
    assert (result.applied, result.ignored, codes(result)) == (0, 0, [(1, "ALREADY_PRESENT")])
    assert set(by_id(store)) == {1}
    assert write(store, "insert", [item(2), item(3)], atomic=True).applied == 2


def test_rows_of_one_key_apply_in_their_order(store: Store) -> None:
    assert write(store, "upsert", [item(1, 1), item(1, 2), item(2, 5), item(1, 3)]).applied == 4
    assert by_id(store) == {1: (3, ""), 2: (5, "")}
    assert codes(write(store, "insert", [item(3, 1), item(3, 2)])) == [(1, "ALREADY_PRESENT")]
    assert codes(write(store, "delete", [{"id": 3}, {"id": 3}])) == [(1, "NOT_FOUND")]
    assert by_id(store) == {1: (3, ""), 2: (5, "")}


def test_an_upsert_changes_only_the_columns_it_has(store: Store) -> None:
    write(store, "insert", [item(1, 1, "one"), item(2, None, None)])
    write(store, "upsert", [{"id": 1, "price": None}, {"id": 2, "price": 2}, {"id": 3, "price": 3}])
    assert by_id(store) == {1: (None, "one"), 2: (2, None), 3: (3, None)}
    assert write(store, "upsert", [{"id": 1}]).applied == 1
    assert by_id(store)[1] == (None, "one")


def test_bad_cells_refuse_their_rows_only() -> None:
    options = OPTIONS.model_copy(update={"limits": Limits(cell_bytes=8, key_bytes=24)})
    with Store.open(MemoryFileSystem(), options) as store:
        fields = [pa.field("key", pa.string()), pa.field("more", pa.binary()), pa.field("size", pa.int32(), False)]
        store.create_table(TableDefinition.from_arrow("t", pa.schema(fields), ["key", "more"]))
        rows = [
            {"key": "good", "more": b"", "size": 1},
            {"key": "nine char", "more": b"", "size": 1},
            {"key": "null", "more": b"", "size": None},
            {"key": None, "more": b"", "size": 1},
            {"key": "", "more": b"", "size": 2},
            {"key": "\0" * 8, "more": b"\0" * 8, "size": 1},
        ]
        batch = pa.RecordBatch.from_pylist(rows, pa.schema([field.with_nullable(True) for field in fields]))
        result = store.write(WriteCommand(table="t", op=Operation.UPSERT), batch)
        invalid, large = "INVALID_ARGUMENT", "TOO_LARGE"
        assert codes(result) == [(1, large), (2, invalid), (3, invalid), (5, large)]
        assert [row["key"] for row in scan(store, "t", ordered=True)] == ["", "good"]


@pytest.mark.parametrize("flush", ["", "flush", "flush_deltas"])
def test_scans_read_any_earlier_moment(store: Store, flush: str) -> None:
    moments: list[tuple[int, dict]] = [(store.now(), {})]
    for op, rows in [
        ("insert", [item(1, 1, "one"), item(2, 2, "two")]),
        ("update", [item(1, 10, "ten")]),
        ("delete", [{"id": 2}]),
        ("insert", [item(2, 20, None), item(3, 3, "three")]),
        ("upsert", [{"id": 3, "price": None}]),
    ]:
        moments.append((write(store, op, rows).timestamp, by_id(store)))
        if flush:
            store.maintain("items", "flush")
            store.maintain("items", flush)
    for timestamp, expected in moments:
        assert by_id(store, as_of=timestamp) == expected
        assert by_id(store, as_of=timestamp, ordered=True) == expected
    assert moments[-1][1] == {1: (10, "ten"), 2: (20, None), 3: (None, "three")}


def test_scans_project_filter_order_and_limit(store: Store) -> None:
    write(store, "insert", [item(key, key % 5, f"n{key}") for key in (7, 3, 9, 1)])
    store.maintain("items", "flush")
    write(store, "insert", [item(key, key % 5, None) for key in (8, 2, 4)])
    assert [row["id"] for row in scan(store, ordered=True)] == [1, 2, 3, 4, 7, 8, 9]
    assert scan(store, ordered=True, limit=2, columns=["name"]) == [{"name": "n1"}, {"name": None}]
    assert scan(store, columns=["price", "id"], where="price = 2 and name is not null") == [{"price": 2, "id": 7}]
    assert {row["id"] for row in scan(store, where="name is null or id >= 9")} == {2, 4, 8, 9}
    assert [row["id"] for row in scan(store, where="id between 2 and 7", ordered=True)] == [2, 3, 4, 7]
    assert len(scan(store, limit=3)) == 3
    assert scan(store, limit=0) == []
    stream = store.scan(ScanSpec(table="items", columns=[]))
    assert sum(batch.num_rows for batch in stream.batches) == 7


def test_get_answers_in_the_order_asked(store: Store) -> None:
    write(store, "insert", [item(1, 1, "one"), item(2, 2, "two")])
    store.maintain("items", "flush")
    write(store, "insert", [item(3, 3, "three")])
    write(store, "delete", [{"id": 2}])
    asked = pa.RecordBatch.from_pydict({"id": [3, 2, 9, 1, 3]})
    assert [row["name"] for row in store.get("items", asked).to_pylist()] == ["three", "one", "three"]
    assert store.get("items", asked.slice(1, 2)).num_rows == 0


def test_composite_keys_sort_by_their_columns(store: Store) -> None:
    moment = datetime(2013, 1, 1, 5)
    keys = [("b", 1), ("", 2), ("b", -1), ("a\0", 0), ("a", 5)]
    rows = [{"place": place, "unit": unit, "at": moment, "amount": Decimal("1.50")} for place, unit in keys]
    write(store, "insert", rows[:3], "events")
    store.maintain("events", "flush")
    write(store, "insert", rows[3:], "events")
    for _ in range(2):
        found = scan(store, "events", ordered=True)
        assert [(row["place"], row["unit"]) for row in found] == [("", 2), ("a", 5), ("a\0", 0), ("b", -1), ("b", 1)]
        assert {row["amount"] for row in found} == {Decimal("1.50")}
        store.maintain("events", "flush")
    codes_found = codes(write(store, "insert", [rows[0] | {"amount": None}], "events"))
    assert codes_found == [(0, "ALREADY_PRESENT")]


def close(store: Store, fs: FileSystem) -> FileSystem:
    store.close()
    return fs


def kill(store: Store, fs: FileSystem) -> FileSystem:
    """Leave the store as a killed process does: nothing more is written, and its lock is gone."""
    assert isinstance(fs, MemoryFileSystem)
    return fs.crash_image(Random(1))


@pytest.mark.parametrize("stop", [close, kill])
def test_a_restart_finds_all_and_goes_on(store: Store, fs: FileSystem, stop: Callable) -> None:
    if stop is kill and not isinstance(fs, MemoryFileSystem):
        pytest.skip("a real process is killed in tests/campaigns/crash/kill9.py")
    write(store, "insert", [item(1, 1, "one"), item(2, 2, "two")])
    store.maintain("items", "flush")
    first = write(store, "update", [item(1, None, "uno")]).timestamp
    write(store, "delete", [{"id": 2}])
    store.maintain("items", "flush_deltas")
    write(store, "insert", [item(3, 3, "three"), item(2, 22, "again")])
    last = write(store, "upsert", [{"id": 3, "name": None}]).timestamp
    expected = {1: (None, "uno"), 2: (22, "again"), 3: (3, None)}
    with Store.open(stop(store, fs), OPTIONS) as again:
        assert by_id(again) == expected
        assert by_id(again, as_of=first) == {1: (None, "uno"), 2: (2, "two")}
        assert again.table_stats("items").live_rows == 3
        later = write(again, "insert", [item(4)])
        assert later.timestamp > last
        assert by_id(again, as_of=last) == expected
        assert codes(write(again, "insert", [item(1), item(2), item(3), item(4)])) == [
            (row, "ALREADY_PRESENT") for row in range(4)
        ]


def test_a_second_opening_is_refused(store: Store, fs: FileSystem) -> None:
    with pytest.raises(UnavailableError):
        Store.open(fs, OPTIONS)


def test_tables_come_and_go(store: Store, fs: FileSystem) -> None:
    write(store, "insert", [item(1)])
    store.maintain("items", "flush")
    running = store.scan(ScanSpec(table="items"))
    assert store.tables() == ["events", "items"]
    store.drop_table("items")
    assert store.tables() == ["events"]
    assert running.to_reader().read_all().num_rows == 1
    with pytest.raises(NotFoundError):
        scan(store)
    store.create_table(TableDefinition.from_arrow("items", ITEMS, ["id"]))
    assert scan(store) == []
    with pytest.raises(AlreadyPresentError):
        store.create_table(TableDefinition.from_arrow("items", ITEMS, ["id"]))
    store.close()
    with Store.open(fs, OPTIONS) as again:
        assert again.tables() == ["events", "items"]
        assert scan(again) == []
        assert again.describe_table("items").primary_key == ["id"]


def test_what_cannot_be_asked_is_refused_by_name(store: Store) -> None:
    with pytest.raises(InvalidArgumentError, match="nope"):
        write_batch = pa.RecordBatch.from_pydict({"id": [1], "nope": [1]})
        store.write(WriteCommand(table="items"), write_batch)
    with pytest.raises(InvalidArgumentError, match="'id'"):
        store.write(WriteCommand(table="items"), pa.RecordBatch.from_pydict({"price": [1]}))
    with pytest.raises((InvalidArgumentError, NotFoundError), match="nope"):
        scan(store, columns=["nope"])
    with pytest.raises(InvalidArgumentError):
        scan(store, where="price >")
    with pytest.raises(InvalidArgumentError):
        store.maintain("items", "nonsense")
    with pytest.raises(InvalidArgumentError, match="future"):
        scan(store, as_of=store.now() + (3600 * 1_000_000 << 12))
    with pytest.raises(SnapshotTooOldError):
        scan(store, as_of=1)


def test_stats_follow_the_rows_to_disk(store: Store) -> None:
    write(store, "insert", [item(key) for key in range(100)])
    before = store.table_stats("items")
    assert (before.live_rows, before.bytes_on_disk, before.tablets[0].rowsets) == (100, 0, 0)
    store.maintain("items", "flush")
    write(store, "delete", [{"id": key} for key in range(30)])
    store.maintain("items", "flush_deltas")
    after = store.table_stats("items")
    assert (after.live_rows, after.tablets[0].rowsets, after.tablets[0].delta_files) == (70, 1, 2)
    assert after.bytes_on_disk > 0
    assert store.plan(ScanSpec(table="items", where="id > 1000")).explain["rows_to_read"] == 0
