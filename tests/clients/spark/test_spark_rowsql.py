"""DELETE, UPDATE, MERGE and REPLACE WHERE of the catalog: one commit each, of what was read, or nothing."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.transaction.commit import Transactions
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import ConflictError, InvalidArgumentError, StorageFullError, UnavailableError
from tests.clients.spark.row_statements import DEFAULT, Refused, Rows, random_row, statement
from tests.clients.spark.sessions import held_bytes
from tests.dose import by_night, diagonal, dose

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

T = "nyala.default.homes"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("born", pa.int32()),
        ("at", pa.timestamp("us")),
    ]
)


@pytest.fixture
def homes(db: Database) -> Table:
    options = {"born": nyala.ColumnOptions(immutable=True), "price": nyala.ColumnOptions(write_default=DEFAULT)}
    table = db.create_table("homes", SCHEMA, ["id"], [nyala.hash("id", buckets=2)], column_options=options)
    table.insert({"id": range(4), "city": list("abcd"), "price": [1.0] * 4, "born": [1] * 4})
    return table


def state(table: Table) -> dict[int, tuple[Any, ...]]:
    """The rows, without those columns that nothing changes."""
    return {row["id"]: (row["city"], row["price"]) for row in table.scan().to_arrow().to_pylist()}


START = {0: ("a", 1.0), 1: ("b", 1.0), 2: ("c", 1.0), 3: ("d", 1.0)}
STATEMENTS = {
    "UPDATE": f"UPDATE {T} SET city = 'x' WHERE id < 3",
    "DELETE": f"DELETE FROM {T} WHERE id % 2 = 0",
    "MERGE": f"""MERGE INTO {T} t USING (SELECT id, 'm' city FROM range(2, 6)) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET city = s.city WHEN NOT MATCHED THEN INSERT (id, city) VALUES (s.id, s.city)
        WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE""",
    "moved keys": f"UPDATE {T} SET id = id + 1",
    "INSERT": f"INSERT INTO {T} (city, id) SELECT 'n', id FROM range(4, 6)",
    "OVERWRITE": f"INSERT OVERWRITE {T} (city, id) SELECT 'n', id FROM range(4, 6)",
}
DONE = {
    "UPDATE": {0: ("x", 1.0), 1: ("x", 1.0), 2: ("x", 1.0), 3: ("d", 1.0)},
    "DELETE": {1: ("b", 1.0), 3: ("d", 1.0)},
    "MERGE": {1: ("b", 1.0), 2: ("m", 1.0), 3: ("m", 1.0), 4: ("m", DEFAULT), 5: ("m", DEFAULT)},
    "moved keys": {1: ("a", 1.0), 2: ("b", 1.0), 3: ("c", 1.0), 4: ("d", 1.0)},
    "INSERT": START | {4: ("n", DEFAULT), 5: ("n", DEFAULT)},
    "OVERWRITE": {4: ("n", DEFAULT), 5: ("n", DEFAULT)},
}


@pytest.mark.parametrize("key", [("k",), ("k", "s")], ids=["one column", "two columns"])
def test_random_statements(spark: SparkSession, db: Database, key: tuple[str, ...]) -> None:
    """NYALA_ROW_STATEMENTS and NYALA_SEED set how many, and which."""
    seed, count = int(os.environ.get("NYALA_SEED", "1")), int(os.environ.get("NYALA_ROW_STATEMENTS", dose(5, 10)))
    print(f"seed {seed}")
    rng = Random(seed * len(key))
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("s", pa.string(), "s" not in key),
                        ("a", pa.int32()), ("b", pa.string()), ("c", pa.float64())])  # fmt: skip
    partitions = [nyala.hash("k", buckets=3)] if len(key) == 1 else [nyala.range("k", splits=[10, 25])]
    options = {"c": nyala.ColumnOptions(write_default=DEFAULT)}
    table = db.create_table("rows", schema, key, partition_by=partitions, column_options=options)
    model, refused = Rows(key), 0
    for number in range(count):
        if len(model.rows) < 10:
            more = [row for row in (random_row(rng) for _ in range(25)) if model.of(row) not in model.rows]
            model.rows |= {model.of(row): row for row in more}
            table.upsert([model.rows[model.of(row)] for row in more])
        sql, act = statement(rng, "nyala.default.rows", key)
        before = db.now()
        try:
            act(model)
        except Refused as reason:
            refused += 1
            with pytest.raises(PySparkException, match=str(reason)):
                spark.sql(sql)
        else:
            spark.sql(sql)
        found = {model.of(row): row for row in table.scan().to_arrow().to_pylist()}
        assert found == model.rows, f"statement {number}: {sql}"
        assert db.commits("rows", since=before).num_rows <= 1, f"statement {number}: {sql}"
        if rng.random() < 0.2:
            table.maintain(rng.choice(["flush", "flush_deltas"]))
    print(f"{refused} of {count} refused")
    assert held_bytes(spark) == 0


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Do something around the first calls of ``stage`` or ``commit`` in the server; return what was done."""

    def planted(name: str, before: Any = None, after: Any = None) -> list[str]:
        real, done = getattr(Transactions, name), list[str]()

        def call(*given: Any) -> Any:
            if done:
                return real(*given)
            done.append(name)
            if before is not None:
                before()
            result = real(*given)
            if after is not None:
                after()
            return result

        monkeypatch.setattr(Transactions, name, call)
        return done

    return planted


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("kind", by_night(["UPDATE", "DELETE", "MERGE", "moved keys"], day=["DELETE", "MERGE"]))
def test_a_row_that_changed_since_refuses_the_statement(
    spark: SparkSession, homes: Table, plant: Callable[..., list[str]], kind: str
) -> None:
    """Nothing of it is applied; a row that it does not touch may change meanwhile."""
    done = plant("commit", before=lambda: homes.update({"id": [2], "price": [9.0]}))
    with pytest.raises(PySparkException, match=r"CONFLICT: \d of \d rows rejected, and nothing was applied") as caught:
        spark.sql(STATEMENTS[kind])
    said = "the row with the key (id=2) changed since the statement read it; run the statement again"
    assert said in str(caught.value) and "if_timestamp" not in str(caught.value)
    assert done and state(homes) == START | {2: ("c", 9.0)}


def test_what_a_statement_does_not_touch_may_change(
    spark: SparkSession, homes: Table, plant: Callable[..., list[str]]
) -> None:
    plant("commit", before=lambda: homes.upsert({"id": [3, 7], "price": [9.0, 9.0]}))
    spark.sql(STATEMENTS["UPDATE"])
    assert state(homes) == DONE["UPDATE"] | {3: ("d", 9.0), 7: (None, 9.0)}


def test_a_key_that_came_meanwhile_refuses_a_merge(
    spark: SparkSession, homes: Table, plant: Callable[..., list[str]]
) -> None:
    plant("commit", before=lambda: homes.insert({"id": [5]}))
    with pytest.raises(PySparkException, match="CONFLICT"):
        spark.sql(STATEMENTS["MERGE"])
    assert state(homes) == START | {5: (None, DEFAULT)}


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a task fails once it has staged": ("stage", {"after": raising(InvalidArgumentError("planted"))}),
    "the connection breaks": ("stage", {"after": raising(UnavailableError("planted", 0.01))}),
    "the answer to the commit is lost": ("commit", {"after": raising(UnavailableError("planted", 0.01))}),
}


@pytest.mark.parametrize(("kind", "fault"), diagonal(["MERGE", "moved keys", "INSERT", "OVERWRITE"], FAULTS))
def test_each_change_is_applied_once(
    spark: SparkSession, db: Database, homes: Table, plant: Callable[..., list[str]], kind: str, fault: str
) -> None:
    before = db.now()
    verb, acts = FAULTS[fault]
    done = plant(verb, **acts)
    spark.sql(STATEMENTS[kind])
    assert done and state(homes) == DONE[kind]
    assert db.commits("homes", since=before).num_rows == 1
    assert held_bytes(spark) == 0


def test_a_commit_that_fails_leaves_nothing(
    spark: SparkSession, db: Database, homes: Table, plant: Callable[..., list[str]]
) -> None:
    before = len(db._store._staging)  # pyright: ignore  # a late attempt of another test may have left its parts
    plant("commit", before=raising(StorageFullError("planted")))
    with pytest.raises(PySparkException, match="STORAGE_FULL: planted"):
        spark.sql(STATEMENTS["MERGE"])
    assert state(homes) == START
    assert len(db._store._staging) <= before, "nothing staged is left"  # pyright: ignore
    spark.sql(STATEMENTS["MERGE"])
    assert state(homes) == DONE["MERGE"]


@pytest.fixture
def swap(db: Database) -> Callable[[], None]:
    """Give the name of the table to another one."""
    db.create_table("homes_new", SCHEMA, ["id"]).insert({"id": [0, 7], "city": ["new", "new"]})

    def rename() -> None:
        db.table("homes").alter().rename("homes_old").apply()
        db.table("homes_new").alter().rename("homes").apply()

    return rename


PYTHON = f"INSERT {{}} {T} WITH (txnAppId = 'a', txnVersion = 1) (city, id) VALUES ('x', 9)"
SWAPPED = {
    **{f"{kind} stages": ("stage", STATEMENTS[kind]) for kind in ("MERGE", "INSERT", "OVERWRITE")},
    "OVERWRITE commits": ("commit", STATEMENTS["OVERWRITE"]),
    "REPLACE WHERE commits": ("stage", f"INSERT INTO {T} REPLACE WHERE id < 2 SELECT 8L, 'x', 1D, 1, NULL"),
    "Python stages": ("stage", PYTHON.format("INTO")),
    "Python commits": ("commit", PYTHON.format("OVERWRITE")),
}


@pytest.mark.parametrize("case", by_night(SWAPPED, day=["MERGE stages", "OVERWRITE commits", "Python stages"]))
def test_a_table_that_gets_the_name_meanwhile_is_left_alone(
    spark: SparkSession, db: Database, homes: Table, plant: Callable[..., list[str]], swap: Any, case: str
) -> None:
    """A statement is for the table that had the name when it began."""
    verb, sql = SWAPPED[case]
    done = plant(verb, before=swap)
    with pytest.raises(
        Exception, match=r"(CONFLICT|ConflictError): table 'homes' was renamed or dropped during the request"
    ):
        spark.sql(sql)
    assert done and state(db.table("homes_old")) == START
    assert state(db.table("homes")) == {0: ("new", None), 7: ("new", None)}


def test_a_commit_of_which_nobody_knows_says_so(
    spark: SparkSession, homes: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transactions.commit

    def commit(*given: Any) -> Any:
        real(*given)
        raise UnavailableError("planted")

    monkeypatch.setattr(Transactions, "commit", commit)
    with pytest.raises(PySparkException, match="it is unknown whether it was applied") as caught:
        spark.sql(STATEMENTS["MERGE"])
    named = re.search(r"has the transaction (\w{32})", str(caught.value))
    assert named and state(homes) == DONE["MERGE"]
    assert (named[1],) in [tuple(row) for row in spark.table(f"{T}.history").select("transaction").collect()]


def test_the_reason_of_a_refusal_is_said_also_where_nothing_can_be_discarded(
    spark: SparkSession, homes: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while another attempt of a task still stages."""
    monkeypatch.setattr(Transactions, "abort", lambda *given: raising(ConflictError("planted"))())
    with pytest.raises(PySparkException, match="ALREADY_PRESENT"):
        spark.sql(f"INSERT INTO {T} (city, id) VALUES ('x', 1)")


def test_statements_are_written_without_python(spark: SparkSession, homes: Table) -> None:
    """Unless they have options that only Python knows."""
    for kind, sql in STATEMENTS.items():
        assert re.search(r"\bnyala (insert|upsert|MERGE|UPDATE|DELETE) ", plan(spark, sql)), kind
    python = f"INSERT INTO {T} WITH (txnAppId = 'a', txnVersion = 1) (city, id) VALUES ('x', 9)"
    assert "nyala insert" not in plan(spark, python)
    with pytest.raises(PySparkException, match="did you mean operation"):
        spark.sql(f"INSERT INTO {T} WITH (operatoin = 'upsert') (city, id) VALUES ('x', 1)")


def plan(spark: SparkSession, sql: str) -> str:
    return spark.sql(f"EXPLAIN {sql}").collect()[0][0]


def test_keys_move_unless_they_meet(spark: SparkSession, homes: Table) -> None:
    spark.sql(STATEMENTS["moved keys"])
    assert state(homes) == DONE["moved keys"]
    with pytest.raises(PySparkException, match="ALREADY_PRESENT"):
        spark.sql(f"UPDATE {T} SET id = 3 WHERE id = 1")
    with pytest.raises(PySparkException, match="NOT_NULL_ASSERT_VIOLATION"):
        spark.sql(f"UPDATE {T} SET id = nullif(id, 1) WHERE id = 1")
    assert state(homes) == DONE["moved keys"]
    assert set(homes.scan(columns=["born"]).to_arrow()["born"].to_pylist()) == {1}


def test_rows_that_move_must_still_be_there(spark: SparkSession, homes: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    real, found = Transactions.commit, list[tuple[str, list[str]]]()

    def commit(self: Transactions, asked: Any) -> Any:
        found.extend((part.operation.value, part.columns) for part in self.staged_parts(asked.transaction))
        return real(self, asked)

    monkeypatch.setattr(Transactions, "commit", commit)
    spark.sql(STATEMENTS["moved keys"])
    assert {operation for operation, _ in found} == {"delete", "insert"} and state(homes) == DONE["moved keys"]


@pytest.mark.night
def test_options_of_one_write_say_where_it_goes_and_as_whom(spark: SparkSession, db: Database, homes: Table) -> None:
    """Whether it appends, or replaces what a condition selects."""
    other = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    server = FlightServer(other, "grpc://127.0.0.1:0")
    try:
        there = Database(other).create_table("homes", SCHEMA, ["id"])
        beside = db.create_table("beside", SCHEMA, ["id"])
        places = [({"uri": f"grpc://127.0.0.1:{server.port}"}, there), ({"table": "beside"}, beside)]
        frame = spark.createDataFrame([("x", 7)], "city string, id long")
        writes: list[Callable[[Any], None]] = [lambda to: to.append(), lambda to: to.overwrite(f.col("id") == 7)]
        for options, table in places:
            for write in writes:
                write(frame.writeTo(T).options(**options))
                assert {id: city for id, (city, _) in state(table).items()} == {7: "x"}
        for write in writes:
            with pytest.raises(Exception, match="exclude each other"):
                write(frame.writeTo(T).options(token="planted", tokenFile="nowhere"))
    finally:
        server.shutdown()
        other.close()
    assert state(homes) == START


def test_rows_that_the_store_numbers(spark: SparkSession, db: Database) -> None:
    """They have no key of their own to move to."""
    schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
    table = db.create_table("numbered", schema, ["k"], unique_key=False)
    table.insert({"k": [1, 1, 2], "v": ["a", "b", "c"]})
    spark.sql("UPDATE nyala.default.numbered SET v = concat(v, v) WHERE k = 1")
    spark.sql("DELETE FROM nyala.default.numbered WHERE v = 'aa'")
    with pytest.raises(PySparkException, match="a number that the store gives to new rows"):
        spark.sql("UPDATE nyala.default.numbered SET k = 3 WHERE k = 1")
    assert sorted(table.scan(columns=["k", "v"]).to_arrow().to_pylist(), key=str) == [
        {"k": 1, "v": "bb"},
        {"k": 2, "v": "c"},
    ]


def test_cells_that_an_update_does_not_assign_are_not_written(spark: SparkSession, homes: Table) -> None:
    """Immutable ones need not be: `born` is one. Names match whatever their case."""
    spark.sql(f"UPDATE {T} SET CITY = 'x' WHERE Id = 1L")
    spark.sql(f"UPDATE {T} SET city = 'y' WHERE id IN (SELECT id FROM {T} WHERE price = 1 AND id > 1)")
    assert state(homes) == {0: ("a", 1.0), 1: ("x", 1.0), 2: ("y", 1.0), 3: ("y", 1.0)}
    with pytest.raises(PySparkException, match="IMMUTABLE"):
        spark.sql(f"UPDATE {T} SET born = 2 WHERE id = 1")
    with pytest.raises(PySparkException, match="TOO_LARGE"):
        spark.sql(f"UPDATE {T} SET city = repeat('x', 70000) WHERE id = 1")
    assert state(homes)[1] == ("x", 1.0)


def test_only_what_a_statement_needs_is_read(spark: SparkSession, homes: Table) -> None:
    changed = {
        f"UPDATE {T} SET city = 'x' WHERE id < 2": "id",
        f"DELETE FROM {T} WHERE city = 'x'": "id",
        f"UPDATE {T} SET price = price + born": "id, price, born",
        f"MERGE INTO {T} t USING (SELECT 1L i) ON id = i WHEN MATCHED THEN UPDATE SET city = 'x'": "id",
        f"UPDATE {T} SET id = id + 1": "id, city, price, born, at",
    }
    for sql, columns in changed.items():
        said = plan(spark, sql)
        assert f"[columns: {columns}]" in said and said.count("BatchScan") == 1, said


def test_merges(spark: SparkSession, homes: Table) -> None:
    """Several matches are an error, unless all that match is deleted; an insert only inserts."""
    twice = f"MERGE INTO {T} t USING (SELECT 1L id, 'm' city UNION ALL SELECT 1L, 'n') s ON t.id = s.id"
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(f"{twice} WHEN MATCHED THEN UPDATE SET city = s.city")
    spark.conf.set("spark.sql.catalog.nyala.operation", "upsert")
    try:
        for rest in ("", " WHEN NOT MATCHED BY SOURCE AND false THEN DELETE"):
            with pytest.raises(PySparkException, match="ALREADY_PRESENT"):
                spark.sql(f"{twice} AND false WHEN NOT MATCHED THEN INSERT (city, id) VALUES (city, id){rest}")
    finally:
        spark.conf.unset("spark.sql.catalog.nyala.operation")
    assert state(homes) == START
    spark.sql(f"{twice} WHEN MATCHED THEN DELETE")
    assert state(homes) == {id: row for id, row in START.items() if id != 1}
    spark.sql(f"""MERGE INTO {T} t USING (SELECT CAST(id AS INT) iD, 'm' CITY FROM range(1, 3)) s ON t.id = s.id
        WHEN NOT MATCHED THEN INSERT (city, id) VALUES (s.city, s.id)""")
    assert state(homes) == START | {1: ("m", DEFAULT)}


def test_all_rows_go_in_one_commit(spark: SparkSession, db: Database, homes: Table) -> None:
    for sql in (f"DELETE FROM {T}", f"TRUNCATE TABLE {T}"):
        homes.upsert({"id": [7, 8]})
        before = db.now()
        spark.sql(sql)
        assert state(homes) == {}
        assert db.commits("homes", since=before).num_rows == 1
    with pytest.raises(PySparkException, match="TRUNCATE needs a whole table as it is now"):
        spark.sql(f"TRUNCATE TABLE {T}.changes")
    with pytest.raises(PySparkException, match="DELETE needs a whole table as it is now"):
        spark.sql(f"DELETE FROM {T}.changes WHERE id = 1")


def test_rows_replace_those_of_a_condition(spark: SparkSession, homes: Table, plant: Callable[..., list[str]]) -> None:
    """In one commit, as they were when the statement began; the condition must be one that the store evaluates."""
    spark.sql(
        f"INSERT INTO {T} REPLACE WHERE id < 2 OR city = 'd' SELECT id + 1, city, 2.5, NULL, NULL FROM {T} WHERE id < 1"
    )
    assert state(homes) == {1: ("a", DEFAULT), 2: ("c", 1.0)}
    frame = spark.createDataFrame([("x", 7), ("y", 2)], "city string, ID int")
    with pytest.raises(PySparkException, match="ALREADY_PRESENT"):
        frame.writeTo(T).overwrite(f.col("id") == 1)
    with pytest.raises(PySparkException, match="the store finds the rows to replace, and cannot evaluate ABS"):
        frame.writeTo(T).overwrite(f.abs("id") == 1)
    with pytest.raises(PySparkException, match="is inserted or upserted"):
        frame.writeTo(T).option("operation", "delete").overwrite(f.col("id") == 1)
    assert state(homes) == {1: ("a", DEFAULT), 2: ("c", 1.0)}
    frame.writeTo(T).option("operation", "upsert").overwrite(f.col("id") == 1)
    assert state(homes) == {2: ("y", 1.0), 7: ("x", DEFAULT)}
    plant("commit", before=lambda: homes.update({"id": [7], "city": ["z"]}))
    with pytest.raises(PySparkException, match="CONFLICT"):
        frame.writeTo(T).overwrite(f.col("id") > 1)
    assert state(homes) == {2: ("y", 1.0), 7: ("z", DEFAULT)}


@pytest.mark.parametrize("zone", by_night(["UTC", "America/New_York"], day=["America/New_York"]))
def test_every_type_is_written_as_it_is_read(spark: SparkSession, db: Database, zone: str) -> None:
    """As a key and as a cell; times without a zone are what the clock of the session shows."""
    cells: dict[str, tuple[pa.DataType, Any]] = {
        "at": (pa.timestamp("us"), dt.datetime(2026, 3, 8, 12, 30, 0, 1)), "day": (pa.date32(), dt.date(1, 1, 1)),
        "text": (pa.string(), "it's \u00e9"), "raw": (pa.binary(), b"\x00\xff"), "ok": (pa.bool_(), True),
        "tiny": (pa.int8(), -128), "small": (pa.int16(), 7), "whole": (pa.int32(), -7), "long": (pa.int64(), 1 << 62),
        "price": (pa.decimal128(9, 2), Decimal("-9999999.99")), "wide": (pa.decimal128(38, 10), Decimal("1E-10")),
        "half": (pa.float32(), 1.5), "full": (pa.float64(), 5e-324), "byte": (pa.uint8(), 255),
        "clock": (pa.time64("us"), dt.time(23, 59, 59, 1)), "span": (pa.duration("us"), dt.timedelta(days=-2)),
        "tags": (pa.list_(pa.string()), ["a", None, ""]), "labels": (pa.map_(pa.string(), pa.int64()), [("k", None)]),
        "who": (pa.struct([("name", pa.string()), ("at", pa.list_(pa.float64()))]), {"name": None, "at": [0.5, None]}),
    }  # fmt: skip
    keys = ["at", "day", "text", "raw", "price", "long"]
    schema = pa.schema(
        [(f"k_{name}", cells[name][0]) for name in keys] + [(name, kind) for name, (kind, _) in cells.items()]
    )
    table = db.create_table("kinds", schema, [f"k_{name}" for name in keys])
    row = {name: value for name, (_, value) in cells.items()}
    full = {f"k_{name}": row[name] for name in keys}
    table.insert([full | row, full | row | {"k_long": 2}])
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        names = ", ".join(f"{name} = t.k_{name}" for name in keys)
        spark.sql(f"UPDATE nyala.default.kinds t SET {', '.join(f'{name} = NULL' for name in cells)} WHERE k_long = 2")
        assert table.scan(where="k_long = 2").to_arrow().to_pylist() == [full | {"k_long": 2} | dict.fromkeys(cells)]
        spark.sql(f"UPDATE nyala.default.kinds t SET {names} WHERE long IS NULL")
        spark.sql("""MERGE INTO nyala.default.kinds t USING (SELECT * FROM nyala.default.kinds WHERE k_long > 2) s
            ON t.k_long = 2 WHEN MATCHED THEN UPDATE SET ok = s.ok, tiny = s.tiny, small = s.small, whole = s.whole,
            wide = s.wide, half = s.half, full = s.full, byte = s.byte, clock = s.clock, span = s.span, tags = s.tags,
            labels = s.labels, who = s.who, at = TIMESTAMP_NTZ '2026-03-08 12:30:00'""")
        spark.sql("DELETE FROM nyala.default.kinds WHERE k_long > 2")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    hours = {"UTC": 12, "America/New_York": 16}[zone]
    assert table.scan().to_arrow().to_pylist() == [
        full | row | {"k_long": 2, "long": 2, "at": dt.datetime(2026, 3, 8, hours, 30)}
    ]
