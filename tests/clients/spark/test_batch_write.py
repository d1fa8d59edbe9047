"""Writing, by calling what Spark calls: no Java needed. Tasks are calls of ``write``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DateType, MapType, StringType, StructType, TimestampNTZType

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.spark.batch_write import BatchWriter, StagedParts
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.stream_write import StagedPartsOfBatch, StreamWriter
from nyala.schemas.errors import InvalidArgumentError, RowErrors

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("price", pa.float64())])
ROWS = StructType().add("id", "long").add("city", "string").add("price", "double")
WITH_OP = StructType().add("op", "string").add("id", "long").add("city", "string").add("price", "double")

Source = Callable[..., NyalaDataSource]


@pytest.fixture
def homes(db: Database) -> Table:
    table = db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert({"id": [1, 2, 3], "city": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]})
    return table


def batch(schema: pa.Schema | None = None, **columns: list) -> pa.RecordBatch:
    return pa.record_batch(columns, schema)


def write(writer: BatchWriter, *tasks: list[pa.RecordBatch]) -> list[StagedParts | None]:
    return [writer.write(iter(task)) for task in tasks]


def state(table: Table) -> dict[int, tuple]:
    return {row["id"]: (row["city"], row["price"]) for row in table.scan().to_arrow().to_pylist()}


BEFORE = {1: ("a", 1.0), 2: ("b", 2.0), 3: ("c", 3.0)}
OPERATIONS: dict[str, dict[int, tuple]] = {
    "upsert": {**BEFORE, 3: ("z", 9.0), 4: ("y", 8.0)},
    "upsert_ignore": {**BEFORE, 3: ("z", 9.0), 4: ("y", 8.0)},
    "insert_ignore": {**BEFORE, 4: ("y", 8.0)},
    "update_ignore": {**BEFORE, 3: ("z", 9.0)},
    "delete_ignore": {1: ("a", 1.0), 2: ("b", 2.0)},
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation(homes: Table, source: Source, operation: str) -> None:
    writer = source(operation=operation).writer(ROWS, False)
    messages = write(writer, [batch(id=[3], city=["z"], price=[9.0])], [batch(id=[4], city=["y"], price=[8.0])], [])
    assert state(homes) == BEFORE, "nothing is visible before the commit"
    before = homes.stats()["last_change"]
    writer.commit(messages)
    assert state(homes) == OPERATIONS[operation]
    changes = homes.changes(before, every=True).to_arrow()
    assert len(set(changes["_timestamp"].to_pylist())) == 1, "one commit"


@pytest.mark.parametrize("operation", ["delete", "delete_ignore"])
def test_a_delete_sends_the_column_that_orders_changes(db: Database, source: Source, operation: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("at", pa.int64())])
    table = db.create_table("homes", schema, "id", order_by="at")
    table.insert({"id": [1, 2], "city": ["a", "b"], "at": [5, 5]})
    rows = StructType().add("id", "long").add("city", "string").add("at", "long")
    writer = source(operation=operation).writer(rows, False)
    writer.commit(write(writer, [batch(id=[1, 2, 3], city=["a", "b", "c"], at=[4, 6, 6])]))
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "city": "a", "at": 5}]
    assert table.upsert({"id": [2, 3], "city": ["late", "late"], "at": [5, 5]}).stale == 2


NOON, MIDNIGHT = dt.datetime(2026, 1, 1, 12), dt.datetime(2026, 1, 1)
EARLIER = dt.timedelta(hours=5, minutes=45)
CLOCK = pa.timestamp("us")


def test_times_of_a_clock_are_moments_inside_of_cells_too(db: Database, source: Source) -> None:
    """The zone of the session is that of another timestamp, however deep."""
    zoned = pa.timestamp("us", "Asia/Kathmandu")
    kinds = {
        "at": CLOCK,
        "many": pa.list_(CLOCK),
        "part": pa.struct([("at", CLOCK), ("n", pa.int64()), ("sure", CLOCK)]),
        "named": pa.map_(CLOCK, pa.list_(pa.struct([("at", CLOCK)]))),
        "days": pa.large_list(CLOCK),
    }
    table = db.create_table("homes", pa.schema([("id", pa.int64()), *kinds.items()]), ["id"])
    clock = TimestampNTZType()
    part = StructType().add("at", clock).add("n", "long").add("sure", "timestamp")
    rows = StructType().add("id", "long").add("at", clock).add("many", ArrayType(clock)).add("part", part)
    rows = rows.add("named", MapType(clock, ArrayType(StructType().add("at", clock))))
    rows = rows.add("days", ArrayType(DateType()))
    sent = {**kinds, "days": pa.list_(pa.date32()), "part": pa.struct([*list(kinds["part"])[:2], ("sure", zoned)])}
    cells = {
        "at": [NOON, None],
        "many": [[NOON, None], None],
        "part": [{"at": NOON, "n": 1, "sure": NOON.replace(tzinfo=dt.UTC)}, None],
        "named": [[(NOON, [{"at": NOON}, None])], []],
        "days": [[NOON.date(), None], None],
    }
    arrays = [pa.array(cells[name], kind) for name, kind in sent.items()]
    batch = pa.record_batch([pa.array([1, 2]), *arrays], ["id", *sent])
    writer = source().writer(rows, False)
    writer.commit(write(writer, [batch]))
    assert table.scan(ordered=True).to_arrow().to_pylist() == [
        {
            "id": 1,
            "at": NOON - EARLIER,
            "many": [NOON - EARLIER, None],
            "part": {"at": NOON - EARLIER, "n": 1, "sure": NOON},
            "named": [(NOON - EARLIER, [{"at": NOON - EARLIER}, None])],
            "days": [MIDNIGHT - EARLIER, None],
        },
        {"id": 2, "at": None, "many": None, "part": None, "named": [], "days": None},
    ]


def test_cells_that_spark_would_cast_otherwise_are_refused_inside_of_others_too(db: Database, source: Source) -> None:
    kinds = [("many", pa.list_(CLOCK)), ("part", pa.struct([("day", pa.date32())]))]
    db.create_table("homes", pa.schema([("id", pa.int64()), *kinds]), ["id"])
    with pytest.raises(InvalidArgumentError, match=r"column 'many'\[\] is string, but the table's .* a timestamp"):
        source().writer(StructType().add("id", "long").add("many", ArrayType(StringType())), False)
    part = StructType().add("day", "timestamp")
    with pytest.raises(InvalidArgumentError, match=r"column 'part'\.day is timestamp, but the table's .* a date"):
        source().writer(StructType().add("id", "long").add("part", part), False)


REFUSED = {"insert": "ALREADY_PRESENT", "update": "NOT_FOUND", "delete": "NOT_FOUND"}


@pytest.mark.parametrize("operation", REFUSED)
def test_a_row_that_is_refused_refuses_all(homes: Table, source: Source, operation: str) -> None:
    writer = source(operation=operation).writer(ROWS, False)
    rows = [batch(id=[3], city=["z"], price=[9.0])], [batch(id=[4], city=["y"], price=[8.0])]
    with pytest.raises(RowErrors, match=REFUSED[operation]):
        writer.commit(write(writer, *rows))
    assert state(homes) == BEFORE
    again = source(operation="upsert").writer(ROWS, False)
    again.commit(write(again, *rows))
    assert state(homes)[4] == ("y", 8.0)


def test_an_operation_for_each_row(homes: Table, source: Source) -> None:
    writer = source(operationColumn="op").writer(WITH_OP, False)
    rows = batch(
        op=["delete", "insert", "UPDATE", "insert", "delete", "upsert"],
        id=[1, 1, 2, 4, 4, 5],
        city=[None, "new", "B", "x", None, "five"],
        price=[None, 0.0, None, 1.0, None, 5.0],
    )
    writer.commit(write(writer, [rows.slice(0, 3), rows.slice(3)]))
    assert state(homes) == {1: ("new", 0.0), 2: ("B", None), 3: ("c", 3.0), 5: ("five", 5.0)}


def test_nulls_that_say_nothing(homes: Table, source: Source) -> None:
    writer = source(ignoreNull=True).writer(ROWS, False)
    rows = batch(id=[1, 2, 3, 4], city=["A", None, None, None], price=[None, 22.0, None, 4.0])
    writer.commit(write(writer, [rows]))
    assert state(homes) == {1: ("A", 1.0), 2: ("b", 22.0), 3: ("c", 3.0), 4: (None, 4.0)}


def test_columns_are_found_by_name_and_others_left(homes: Table, source: Source) -> None:
    schema = StructType().add("price", "integer").add("id", "byte")
    writer = source().writer(schema, False)
    rows = batch(pa.schema([("price", pa.int32()), ("id", pa.int8())]), price=[7], id=[1])
    writer.commit(write(writer, [rows]))
    assert state(homes)[1] == ("a", 7.0)


def test_names_in_another_case(homes: Table, source: Source) -> None:
    writer = source(operationColumn="OP").writer(StructType().add("ID", "long").add("Op", "string"), False)
    writer.commit(write(writer, [batch(ID=[1], Op=["delete"])]))
    assert sorted(state(homes)) == [2, 3]
    with pytest.raises(InvalidArgumentError, match="'id' and 'ID', but the table has only one column 'id'"):
        source().writer(StructType().add("id", "long").add("ID", "long"), False)


def test_overwrite_is_one_commit(homes: Table, source: Source, db: Database) -> None:
    before = db.now()
    writer = source().writer(ROWS, True)
    messages = write(writer, [batch(id=[3], city=["z"], price=[9.0])], [batch(id=[9], city=["n"], price=[9.0])])
    assert state(homes) == BEFORE
    writer.commit(messages)
    assert state(homes) == {3: ("z", 9.0), 9: ("n", 9.0)}
    assert homes.scan(as_of=before).count() == 3
    assert len(set(homes.changes(before, every=True).to_arrow()["_timestamp"].to_pylist())) == 1
    empty = source().writer(ROWS, True)
    empty.commit(write(empty, []))
    assert state(homes) == {}


def test_only_the_attempts_that_spark_took_count(homes: Table, source: Source) -> None:
    """A task that ran twice, as speculation does it, has staged its rows twice under two names."""
    writer = source(operation="insert").writer(ROWS, False)
    rows = batch(id=[7], city=["s"], price=[7.0])
    lost, won = write(writer, [rows], [rows])
    assert lost is not None and won is not None and lost.parts != won.parts
    writer.commit([won])
    assert state(homes) == BEFORE | {7: ("s", 7.0)}


def test_the_log_tells_of_cells_that_were_cut(db: Database, source: Source, caplog: pytest.LogCaptureFixture) -> None:
    db.create_table("homes", SCHEMA, ["id"], column_options={"city": {"type": "varchar(2)"}})
    writer = source().writer(ROWS, False)
    writer.commit(write(writer, [batch(id=[7, 8], city=["abc", "ab"], price=[7.0, 8.0])]))
    assert [record.getMessage() for record in caplog.records] == [
        "table homes: 1 cell cut to the length of the column, see its option too_long"
    ]


def test_a_task_that_dies_leaves_nothing(homes: Table, source: Source) -> None:
    def dies() -> Iterator[pa.RecordBatch]:
        yield batch(id=[8], city=["s"], price=[7.0])
        raise RuntimeError("killed")

    writer = source().writer(ROWS, False)
    with pytest.raises(RuntimeError, match="killed"):
        writer.write(dies())
    writer.commit(write(writer, [batch(id=[7], city=["s"], price=[7.0])]))
    assert state(homes) == BEFORE | {7: ("s", 7.0)}


def test_an_aborted_write_leaves_nothing(homes: Table, source: Source) -> None:
    writer = source().writer(ROWS, False)
    messages = write(writer, [batch(id=[7], city=["s"], price=[7.0])])
    writer.abort([*messages, None])
    assert state(homes) == BEFORE
    with pytest.raises(nyala.StoreError):
        writer.commit(messages)
    assert state(homes) == BEFORE


def test_a_version_of_an_application_is_written_once(homes: Table, source: Source, db: Database) -> None:
    def once(table: str, version: int, **row: list) -> None:
        writer = source(table, txnAppId="load", txnVersion=version).writer(ROWS, False)
        writer.commit(write(writer, [batch(**row)]))

    once("homes", 5, id=[7], city=["first"], price=[7.0])
    once("homes", 5, id=[7], city=["again"], price=[7.0])
    once("homes", 4, id=[7], city=["older"], price=[7.0])
    assert state(homes)[7] == ("first", 7.0)
    once("homes", 6, id=[7], city=["newer"], price=[7.0])
    assert state(homes)[7] == ("newer", 7.0)
    barns = db.create_table("barns", SCHEMA, ["id"])
    once("barns", 5, id=[7], city=["other table"], price=[7.0])
    assert state(barns) == {7: ("other table", 7.0)}


WRONG: dict[str, tuple[StructType, bool, dict[str, object], str]] = {
    "unknown column": (StructType().add("id", "long").add("cty", "string"), False, {}, "did you mean 'city'"),
    "no key": (StructType().add("city", "string"), False, {}, "have no column 'id', a key column"),
    "other type": (StructType().add("id", "long").add("price", "string"), False, {}, "'price' is string"),
    "text for moments": (StructType().add("id", "long").add("at", "string"), False, {}, "cast it to timestamp"),
    "moments for days": (StructType().add("id", "long").add("day", "timestamp"), False, {}, "cast it to date"),
    "no cells of it": (StructType().add("id", "long").add("city", WITH_OP), False, {}, "struct<op: string"),
    "no operation column": (ROWS, False, {"operationColumn": "op"}, "operationColumn 'op' is not a column"),
    "operation of another type": (ROWS, False, {"operationColumn": "price"}, "'price' is double, not string"),
    "overwrite and delete": (ROWS, True, {"operation": "delete"}, "overwrite"),
    "no such table": (ROWS, False, {"table": "barns"}, "barns"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_written_is_refused_before_any_task(homes: Table, source: Source, case: str) -> None:
    schema, overwrite, options, why = WRONG[case]
    homes.alter().add_column("at", "timestamp[us]").add_column("day", "date").apply()
    with pytest.raises(nyala.StoreError, match=why):
        source(**options).writer(schema, overwrite)


def test_nulls_in_the_key_are_refused_by_the_task(homes: Table, source: Source) -> None:
    writer = source().writer(ROWS, False)
    with pytest.raises(InvalidArgumentError, match="'id' is NULL in 2 rows"):
        writer.write(iter([batch(id=[1, None, None], city=["a"] * 3, price=[1.0] * 3)]))


class Batch:
    """A micro-batch as Spark runs one: a writer for the tasks, sent to them, and another one that commits."""

    def __init__(self, source: NyalaDataSource, query: str, overwrite: bool = False) -> None:
        self._make = lambda: source.streamWriter(ROWS, overwrite)
        self._query = query

    def run(self, number: int, *rows: pa.RecordBatch, fails: bool = False) -> None:
        writer = self._make()
        staged: list[Any] = [writer.write(iter([each])) for each in rows]
        messages = [StagedPartsOfBatch(each.transaction, each.parts, each.rows, self._query) for each in staged]
        finisher: StreamWriter = self._make()
        finisher.abort([*messages, None], number) if fails else finisher.commit(messages, number)


def test_a_micro_batch_is_applied_once(homes: Table, source: Source) -> None:
    query = Batch(source(operation="insert"), "q1")
    query.run(0, batch(id=[10], city=["x"], price=[1.0]), batch(id=[11], city=["x"], price=[1.0]))
    query.run(1, batch(id=[12], city=["x"], price=[1.0]), fails=True)
    query.run(1, batch(id=[12], city=["x"], price=[1.0]))
    query.run(1, batch(id=[12], city=["x"], price=[1.0]))
    query.run(2)
    assert state(homes).keys() == {1, 2, 3, 10, 11, 12}
    Batch(source(operation="upsert"), "q2").run(0, batch(id=[10], city=["of another query"], price=[1.0]))
    assert state(homes)[10] == ("of another query", 1.0)


def test_frames_and_streams_leave_the_number_of_the_rows_to_the_store(source: Source, db: Database) -> None:
    homes = db.create_table("homes", SCHEMA, ["id"], unique_key=False)
    writer = source().writer(ROWS, True)
    writer.commit(write(writer, [batch(id=[7, 7], city=["a", "b"], price=[1.0, 2.0])]))
    query = Batch(source(), "q1")
    for _ in range(2):
        query.run(0, batch(id=[7], city=["c"], price=[3.0]))
    rows = homes.scan().to_arrow().to_pylist()
    assert sorted((row["city"], row["auto_incrementing_id"]) for row in rows) == [("a", 1), ("b", 2), ("c", 3)]
    with pytest.raises(InvalidArgumentError, match="no column 'auto_incrementing_id'"):
        source(operation="upsert").writer(ROWS, False)


def test_complete_mode_takes_the_place_of_all_rows(homes: Table, source: Source) -> None:
    query = Batch(source(), "q1", overwrite=True)
    query.run(0, batch(id=[10], city=["x"], price=[1.0]))
    query.run(1, batch(id=[11], city=["x"], price=[1.0]))
    assert state(homes) == {11: ("x", 1.0)}


def test_a_query_that_nobody_names_is_not_run_at_least_once_in_silence(homes: Table, source: Source) -> None:
    with pytest.raises(InvalidArgumentError, match="txnAppId"):
        Batch(source(), "").run(0, batch(id=[10], city=["x"], price=[1.0]))
    Batch(source(txnAppId="mine"), "").run(0, batch(id=[10], city=["x"], price=[1.0]))
    assert 10 in state(homes)
