"""CREATE, ALTER and DROP through the catalog: said in SQL, then looked up in the store."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import PermissionDeniedError
from tests.clients.spark.sessions import Sql, refused
from tests.dose import by_night
from tests.doubles.cut_proxy import CutProxy

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]


def about(uri: str, table: str) -> dict[str, Any]:
    """What the store says of a table, without what is each table's own."""
    with nyala.connect(uri) as db:
        told = db.table(table).describe()
    for own in ("name", "table_id", "schema_version", "stores"):
        del told[own]
    for column in told["columns"]:
        del column["id"]
    return told


def columns_of(uri: str, table: str) -> dict[str, dict[str, Any]]:
    return {column["name"]: column for column in about(uri, table)["columns"]}


CREATE = """
CREATE TABLE all_of_it (
  city VARCHAR(10) DEFAULT 'it''s' COMMENT 'town', ok BOOLEAN DEFAULT true, tiny TINYINT DEFAULT 1 + 1,
  small SMALLINT, number INT DEFAULT NULL, id BIGINT, day DATE DEFAULT DATE'2020-02-29',
  at TIMESTAMP DEFAULT timestamp'2020-01-01 01:00:00.5Z', single FLOAT DEFAULT 0.1, `a.b` DOUBLE DEFAULT double('NaN'),
  price DECIMAL(10,2) NOT NULL DEFAULT 1, note STRING DEFAULT concat('a', 'b'), raw BINARY DEFAULT X'00ff',
  old TIMESTAMP DEFAULT timestamp_micros(-62300000000000001),
  PRIMARY KEY (id, day))
PARTITIONED BY (bucket(4, id), hash(day, 2, 7), range(day))
COMMENT 'all of it'
TBLPROPERTIES ('encoding.city' = 'dictionary', 'compression.price' = 'lz4', 'block_rows.PRICE' = '4096',
  'immutable.note' = 'true', 'too_long.city' = 'error', 'read_default.small' = '7', 'encoding.a.b' = 'alp',
  'max_rows' = '100', 'history_max_age_seconds' = '3600', 'order_by' = 'number',
  'bounds' = '2020-01-01..2021-01-01, 2021-01-01..', 'splits' = '2020-07-01')
"""


def test_a_table_is_created_with_all_that_the_store_has(sql: Sql, uri: str) -> None:
    """Key columns come first; they are NOT NULL."""
    sql(CREATE)
    told = about(uri, "all_of_it")
    assert told["primary_key"] == ["id", "day"] and told["unique_key"]
    columns = columns_of(uri, "all_of_it")
    types = "int64 date varchar(10) bool int8 int16 int32 timestamp[us] float double decimal(10,2) string binary "
    types += "timestamp[us]"
    assert [column["type"] for column in columns.values()] == types.split()
    assert [name for name in columns if not columns[name]["nullable"]] == ["id", "day", "price"]
    assert {name: column["write_default"] for name, column in columns.items()} == {
        "id": None, "day": "2020-02-29", "city": "it's", "ok": True, "tiny": 2, "small": None, "number": None,
        "at": "2020-01-01T01:00:00.500000", "single": 0.1, "a.b": {"float": "nan"}, "price": "1.00", "note": "ab",
        "raw": {"base64": "AP8="}, "old": -62300000000000001,
    }  # fmt: skip
    assert (columns["city"]["encoding"], columns["city"]["comment"]) == ("dictionary", "town")
    assert [name for name in columns if "too_long" in columns[name]] == ["city"]
    assert (columns["price"]["compression"], columns["price"]["block_rows"]) == ("lz4", 4096)
    assert (columns["note"]["immutable"], columns["small"]["read_default"]) == (True, 7)
    assert columns["a.b"]["encoding"] == "alp"
    wanted = {"max_rows": 100, "history_max_age_seconds": 3600, "order_by": "number", "comment": "all of it"}
    assert {name: told["options"][name] for name in wanted} == wanted
    ends = [("2020-01-01", "2020-07-01"), ("2020-07-01", "2021-01-01"), ("2021-01-01", None)]
    assert told["partitions"] == [
        {"hash": ["id"], "buckets": 4, "seed": 0},
        {"hash": ["day"], "buckets": 2, "seed": 7},
        {"range": ["day"], "bounds": [{"lower": low and [low], "upper": high and [high]} for low, high in ends]},
    ]


def test_what_saveAsTable_says_works(sql: Sql, spark: SparkSession, uri: str) -> None:
    frame = spark.createDataFrame([(1, "a")], "id int, city string")
    for write in (
        lambda: frame.write.saveAsTable("nyala.default.made"),
        lambda: frame.write.mode("overwrite").saveAsTable("nyala.default.made"),
        lambda: frame.write.format("orc").saveAsTable("nyala.default.made"),
        lambda: frame.write.format("nyala").saveAsTable("nyala.default.made"),
        lambda: frame.writeTo("nyala.default.made").create(),
    ):
        with pytest.raises(AnalysisException, match=r"df.writeTo\(...\).tableProperty\('primary_key', 'id'\)"):
            write()
    frame.writeTo("nyala.default.made").tableProperty("primary_key", "id").create()
    frame.writeTo("nyala.default.made").tableProperty("primary_key", "id").createOrReplace()
    frame.selectExpr("id + 1 AS id", "city").write.mode("append").saveAsTable("nyala.default.made")
    assert sql("SELECT * FROM made ORDER BY id") == [(1, "a"), (2, "a")]


def test_show_create_table_makes_an_equal_table(sql: Sql, uri: str, db: Database) -> None:
    sql(CREATE)
    sql('CREATE TABLE dry (day DATE, `a, b` STRING) TBLPROPERTIES (primary_key = \'["a, b", "day"]\')')
    sql("CREATE TABLE repeated (day DATE, x INT) TBLPROPERTIES (primary_key = 'day', unique_key = 'false')")
    sql("CREATE TABLE clustered (id INT PRIMARY KEY) CLUSTERED BY (id) INTO 3 BUCKETS")
    bounds = [
        {"lower": (1, "x"), "upper": (2,), "hash": [nyala.hash("b", buckets=3)]},
        {"lower": (5, "it's \\ \" 1,2"), "upper": None},
    ]
    schema = pa.schema([pa.field("a", pa.int32()), ("b", pa.string()), ("c", pa.decimal128(30, 3))])
    levels = [nyala.hash("a", "b", buckets=2), nyala.range("a", "b", bounds=bounds)]
    made = db.create_table("made", schema, ["a", "b"], partition_by=levels, comment='it\'s \\ a\nlong "day"')
    made.alter().add_column(
        "d", "timestamp[us]", read_default=dt.datetime(1970, 1, 2), write_default=dt.datetime(1969, 7, 20, 0, 0, 0, 5)
    ).add_column("e", "string", default_expression="b || 'x, '", merge="append").apply()
    for table in ("all_of_it", "dry", "repeated", "clustered", "made"):
        [(statement,)] = sql(f"SHOW CREATE TABLE {table}")
        sql(statement.replace(f"default.{table} (", "default.again (", 1))
        assert about(uri, "again") == about(uri, table), statement
        sql("DROP TABLE again")
    sql("CREATE TABLE again LIKE all_of_it")
    assert about(uri, "again") == about(uri, "all_of_it")
    sql("CREATE TABLE other LIKE repeated TBLPROPERTIES ('encoding.x' = 'plain')")
    assert columns_of(uri, "other")["x"]["encoding"] == "plain" and not about(uri, "other")["unique_key"]


NOT_CREATED = {
    "(id BIGINT)": "table bad needs a primary key, as in PRIMARY KEY (id) among its columns",
    "(id BIGINT) TBLPROPERTIES (primary_key = 'ID2')": "the table has no column 'ID2'; it has id",
    "(id BIGINT PRIMARY KEY) TBLPROPERTIES (primary_ky = 'id')": "unknown table property 'primary_ky', did you mean",
    "(id BIGINT PRIMARY KEY) TBLPROPERTIES (`Encodin.id` = 'x')": "did you mean 'encoding.id'",
    "(id BIGINT PRIMARY KEY) TBLPROPERTIES (colour = 'red')": "unknown table property 'colour'; known: history_max_age",
    "(id BIGINT PRIMARY KEY) TBLPROPERTIES (`encoding.x` = 'plain')": "the table has no column 'x'",
    "(id BIGINT PRIMARY KEY) TBLPROPERTIES (`encoding.id` = 'fsst')": "type int64 cannot be encoded as 'fsst'",
    "(id BIGINT PRIMARY KEY) TBLPROPERTIES (bounds = '1..2')": "bounds and splits need PARTITIONED BY (range(columns))",
    "(id BIGINT PRIMARY KEY) PARTITIONED BY (id)": "PARTITIONED BY id: a table is divided by bucket(number, columns)",
    "(id DATE PRIMARY KEY) PARTITIONED BY (years(id))": "PARTITIONED BY years(id): a table is divided by",
    "(id INT PRIMARY KEY) PARTITIONED BY (range(id)) TBLPROPERTIES (bounds = '1')": "is not of the form lower..upper",
    "(id INT PRIMARY KEY) PARTITIONED BY (range(id)) TBLPROPERTIES (bounds = 'a..b')": "'a' is not a valid int32",
    "(id INT, x INT UNIQUE, PRIMARY KEY (id))": "a table has one PRIMARY KEY, and no other constraint",
    "(id INT PRIMARY KEY, x ARRAY<VARIANT>)": "column 'x' is VARIANT, which a table cannot hold; use STRING",
    "(id INT PRIMARY KEY, x TIMESTAMP_NTZ)": "a table stores moments in UTC: use TIMESTAMP",
    "(id INT PRIMARY KEY, x STRING COLLATE UNICODE_CI)": "which a table cannot hold; use STRING or VARCHAR(n)",
    "(id DOUBLE PRIMARY KEY)": "INVALID_ARGUMENT: key column 'id' cannot be a key: it has the type double",
    "(id INT PRIMARY KEY, x DATE DEFAULT current_date)": "the default of column 'x' is current_date: a default must be",
    "(id INT PRIMARY KEY, x TIMESTAMP DEFAULT now() - INTERVAL 1 DAY)": ": a default must be a constant",
    "(id INT PRIMARY KEY) USING parquet": "the tables of this catalog are Nyala's, not parquet: leave out USING",
    "(id INT PRIMARY KEY) LOCATION '/x'": "the store keeps tables in its own files: leave out LOCATION and EXTERNAL",
    "(id INT PRIMARY KEY) OPTIONS (a 'b')": "a table has no OPTIONS: give TBLPROPERTIES",
    "AS SELECT 1 AS id": "table bad needs a primary key",
}


def test_what_a_table_cannot_be_is_said(sql: Sql, db: Database) -> None:
    for rest, why in NOT_CREATED.items():
        assert why in refused(sql, f"CREATE TABLE bad {rest}"), rest
    sql("CREATE TABLE IF NOT EXISTS homes (id INT PRIMARY KEY)")
    sql("CREATE TABLE IF NOT EXISTS homes (id INT PRIMARY KEY)")
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in refused(sql, "CREATE TABLE homes (id INT PRIMARY KEY)")
    assert "SCHEMA_NOT_FOUND" in refused(sql, "CREATE TABLE nyala.other.homes (id INT PRIMARY KEY)")
    assert db.tables() == ["homes"]


@pytest.fixture
def homes(sql: Sql, db: Database) -> None:
    sql(
        "CREATE TABLE homes (id INT PRIMARY KEY, city VARCHAR(9), rooms TINYINT NOT NULL, price DECIMAL(5,2), "
        "note STRING)"
    )
    db.table("homes").insert({"id": [1], "city": ["Oslo"], "rooms": [3], "price": [1], "note": ["n"]})


def test_every_step_of_alter(sql: Sql, homes: None, uri: str) -> None:
    for step in (
        "ADD COLUMNS (z STRING DEFAULT 'q' COMMENT 'last', w VARCHAR(3), n INT NOT NULL DEFAULT 5)",
        "ALTER COLUMN rooms TYPE INT, price TYPE DECIMAL(9,2)",
        "ALTER COLUMN rooms DROP NOT NULL",
        "ALTER COLUMN rooms SET DEFAULT 1 + 1",
        "ALTER COLUMN price SET DEFAULT 7",
        "ALTER COLUMN price COMMENT 'in euros'",
        "ALTER COLUMN price DROP DEFAULT",
        "RENAME COLUMN note TO text",
        "DROP COLUMNS (w)",
        "DROP COLUMN IF EXISTS nothing",
        "SET TBLPROPERTIES ('encoding.City' = 'plain', 'compression.text' = 'zstd', 'block_rows.text' = '1024', "
        "'type.city' = 'varchar(20)', 'max_rows' = '7', 'maintenance' = 'off', 'cell_bytes_max' = '1048576')",
        "SET TBLPROPERTIES ('too_long.city' = 'error', 'merge.rooms' = 'sum', 'default_expression.price' = 'id * 2')",
        "ALTER COLUMN city TYPE VARCHAR(30)",
        "UNSET TBLPROPERTIES ('maintenance')",
    ):  # fmt: skip
        sql(f"ALTER TABLE homes {step}")
    sql("COMMENT ON TABLE homes IS 'where people live'")
    columns = columns_of(uri, "homes")
    assert list(columns) == ["id", "city", "rooms", "price", "text", "z", "n"]
    assert (columns["rooms"]["type"], columns["rooms"]["nullable"], columns["rooms"]["write_default"]) == (
        "int32",
        True,
        2,
    )
    assert (columns["price"]["type"], columns["price"]["write_default"]) == ("decimal(9,2)", None)
    assert columns["price"]["comment"] == "in euros" and columns["z"]["comment"] == "last"
    assert (columns["city"]["type"], columns["city"]["encoding"]) == ("varchar(30)", "plain")
    assert columns["city"]["too_long"] == "error"
    assert (columns["rooms"]["merge"], columns["price"]["default_expression"]) == ("sum", "id * 2")
    assert (columns["text"]["compression"], columns["text"]["block_rows"]) == ("zstd", 1024)
    options = about(uri, "homes")["options"]
    assert (options["max_rows"], options["maintenance"], options["comment"]) == (7, "on", "where people live")
    assert options["cell_bytes_max"] == 1 << 20
    sql("INSERT INTO homes (id, text) VALUES (7, repeat('x', 1048576))")
    assert sql("SELECT length(text) AS n FROM homes WHERE id = 7") == [(1 << 20,)]
    sql("DELETE FROM homes WHERE id = 7")
    sql("ALTER TABLE homes UNSET TBLPROPERTIES ('max_rows', 'encoding.city', 'compression.text', 'block_rows.text')")
    sql("ALTER TABLE homes UNSET TBLPROPERTIES ('too_long.city', 'merge.rooms', 'default_expression.price')")
    columns = columns_of(uri, "homes")
    assert "too_long" not in columns["city"] and "merge" not in columns["rooms"]
    assert "default_expression" not in columns["price"]
    assert "max_rows" not in about(uri, "homes")["options"] and "block_rows" not in columns["text"]
    assert (columns["city"]["encoding"], columns["text"]["compression"]) == ("auto", "none")
    sql("INSERT INTO homes (id, city) VALUES (2, 'Bern')")
    assert sql("SELECT id, rooms, price, z, n FROM homes ORDER BY id") == [(1, 3, 1, "q", 5), (2, 2, None, "q", 5)]


NOT_ALTERED = {
    "ADD COLUMN x INT FIRST": "column 'x' FIRST: the store adds columns last",
    "ADD COLUMN x INT NOT NULL": "column 'x' is NOT NULL: give it a read_default",
    "ADD COLUMNS (x INT, y VARIANT)": "column 'y' is VARIANT, which a table cannot hold",
    "ALTER COLUMN city FIRST": "ALTER TABLE: the position of a column cannot change",
    "ALTER COLUMN rooms SET DEFAULT CAST(rand() AS TINYINT)": "rand",
    "ALTER COLUMN note SET DEFAULT current_user()": "the default of column 'note' is current_user(): a default must be",
    "ALTER COLUMN id DROP NOT NULL": "INVALID_ARGUMENT: column 'id' is part of the primary key: it may never be NULL",
    "ALTER COLUMN city SET NOT NULL": "Cannot change nullable column to non-nullable",
    "DROP COLUMNS (note, id)": "INVALID_ARGUMENT: step 2 (drop_column): column 'id' is part of the primary key",
    "SET TBLPROPERTIES ('max_rows' = '7', 'max_row' = '7')": "property 'max_row', did you mean 'max_rows'?",
    "SET TBLPROPERTIES ('max_rows' = 'many')": "table option 'max_rows' cannot be 'many'",
    "SET TBLPROPERTIES ('primary_key' = 'city')": "'primary_key' is set when a table is created, and cannot change",
    "SET TBLPROPERTIES ('immutable.city' = 'true')": "property 'immutable.city' is set when a table is created",
    "ADD CONSTRAINT c CHECK (id > 0)": "ALTER TABLE: the store has no constraints but NOT NULL and its key",
    "CLUSTER BY (id)": "ALTER TABLE: the partitioning of a table cannot change",
}  # fmt: skip


def test_an_alteration_that_is_refused_changes_nothing(sql: Sql, homes: None, uri: str) -> None:
    before = about(uri, "homes")
    for step, why in NOT_ALTERED.items():
        assert why in refused(sql, f"ALTER TABLE homes {step}"), step
        assert about(uri, "homes") == before, step


def test_rename_and_drop(sql: Sql, homes: None, db: Database) -> None:
    sql("CREATE TABLE other (id INT PRIMARY KEY)")
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in refused(sql, "ALTER TABLE homes RENAME TO other")
    assert "a table cannot move out of nyala.default" in refused(sql, "ALTER TABLE homes RENAME TO elsewhere.homes")
    sql("ALTER TABLE homes RENAME TO barns")
    sql("ALTER TABLE barns RENAME TO nyala.default.farms")
    assert sql("SELECT id FROM farms") == [(1,)] and db.tables() == ["farms", "other"]
    sql("DROP TABLE farms")
    assert "TABLE_OR_VIEW_NOT_FOUND" in refused(sql, "DROP TABLE farms")
    sql("DROP TABLE IF EXISTS farms")
    sql("DROP TABLE other PURGE")
    assert db.tables() == [] and db.dropped_tables() == []


def test_a_table_may_be_kept_when_it_is_dropped(
    sql: Sql, spark: SparkSession, homes: None, db: Database, uri: str
) -> None:
    spark.conf.set("spark.sql.catalog.careful", "io.nyala.spark.NyalaCatalog")
    spark.conf.set("spark.sql.catalog.careful.uri", uri)
    spark.conf.set("spark.sql.catalog.careful.dropKeepSeconds", "100")
    sql("CREATE TABLE other (id INT PRIMARY KEY)")
    sql("DROP TABLE careful.default.other PURGE")
    sql("DROP TABLE careful.default.homes")
    assert [each.name for each in db.dropped_tables()] == ["homes"]
    sql("CALL careful.system.recall_table('homes')")
    assert sql("SELECT id FROM homes") == [(1,)] and db.tables() == ["homes"]
    spark.conf.set("spark.sql.catalog.vague", "io.nyala.spark.NyalaCatalog")
    spark.conf.set("spark.sql.catalog.vague.dropKeepSeconds", "a day")
    assert "dropKeepSeconds is 'a day': it must be a whole number" in refused(sql, "DROP TABLE vague.default.homes")


def test_a_table_as_selected_is_there_whole_or_not_at_all(
    sql: Sql, spark: SparkSession, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key columns need not come first in the query. While it is filled, it has another name."""
    seen: list[list[str]] = []
    commit = Store.commit_transaction

    def looked(self: Store, *given: Any) -> Any:
        seen.append(db.tables())
        return commit(self, *given)

    monkeypatch.setattr(Store, "commit_transaction", looked)
    rows = "SELECT concat('c', id) AS city, id FROM range(3)"
    sql(f"CREATE TABLE homes PARTITIONED BY (bucket(2, id)) TBLPROPERTIES (primary_key = 'id') AS {rows}")
    assert db.table("homes").scan(ordered=True).to_arrow().to_pydict() == {"id": [0, 1, 2], "city": ["c0", "c1", "c2"]}
    assert db.table("homes").describe()["partitions"] == [{"hash": ["id"], "buckets": 2, "seed": 0}]
    assert len(seen) == 1 and len(seen[0]) == 1 and seen[0][0].startswith("_creating_homes_")
    repeated = "SELECT id % 2 AS id FROM range(3)"
    assert "ALREADY_PRESENT" in refused(sql, f"CREATE TABLE barns TBLPROPERTIES (primary_key = 'id') AS {repeated}")
    assert "EXISTS" in refused(sql, f"CREATE TABLE homes TBLPROPERTIES (primary_key = 'id') AS {rows}")
    spark.range(2).writeTo("barns").tableProperty("primary_key", "id").create()
    assert db.tables() == ["barns", "homes"] and db.table("barns").count() == 2


def test_a_table_as_selected_has_each_key_once(sql: Sql, spark: SparkSession, db: Database, uri: str) -> None:
    """Whatever the operation of statements is."""
    for operation in ("upsert", "update"):
        catalog = f"as_selected_{operation}"
        spark.conf.set(f"spark.sql.catalog.{catalog}", "io.nyala.spark.NyalaCatalog")
        spark.conf.set(f"spark.sql.catalog.{catalog}.uri", uri)
        spark.conf.set(f"spark.sql.catalog.{catalog}.operation", operation)
        made = f"CREATE TABLE {catalog}.default.{operation}s TBLPROPERTIES (primary_key = 'id') AS SELECT id"
        assert "ALREADY_PRESENT" in refused(sql, f"{made} % 2 AS id FROM range(3)")
        sql(f"{made} FROM range(3)")
        assert db.table(f"{operation}s").count() == 3


def test_a_statement_that_cannot_go_on_leaves_no_table_behind(
    sql: Sql, homes: None, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, asked, last = Store.describe_table, [], 0

    def failing(self: Store, name: str) -> Any:
        if name.startswith("_creating_"):
            asked.append(name)
            if len(asked) == last:
                raise PermissionDeniedError("planted")
        return describe(self, name)

    monkeypatch.setattr(Store, "describe_table", failing)
    rows = "TBLPROPERTIES (primary_key = 'id') AS SELECT id FROM range(1)"
    for statement, last in (("CREATE TABLE other", 1), ("REPLACE TABLE homes", 1), ("REPLACE TABLE homes", 2)):
        asked.clear()
        assert "PERMISSION_DENIED: planted" in refused(sql, f"{statement} {rows}")
        assert len(asked) == last and db.tables() == ["homes"]


def test_rows_of_the_same_definition_are_replaced_by_one_commit(sql: Sql, homes: None, db: Database) -> None:
    sql("CREATE OR REPLACE TABLE copy TBLPROPERTIES (primary_key = 'id') AS SELECT note, id FROM homes")
    copy, first = db.table("copy"), db.now()
    again = "CREATE OR REPLACE TABLE copy TBLPROPERTIES (primary_key = 'id') AS"
    assert "ALREADY_PRESENT" in refused(sql, f"{again} SELECT note, id FROM homes UNION ALL SELECT 'x', id FROM homes")
    sql(f"{again} SELECT 'new' AS note, id + 1 AS id FROM copy")
    assert copy.scan().to_arrow().to_pylist() == [{"id": 2, "note": "new"}]
    assert copy.scan(as_of=first).to_arrow().to_pylist() == [{"id": 1, "note": "n"}]
    assert len({change["_timestamp"] for change in copy.changes(since=first).to_arrow().to_pylist()}) == 1
    sql("REPLACE TABLE copy (note STRING, id INT) TBLPROPERTIES (primary_key = 'id')")
    assert copy.count() == 0 and db.tables() == ["copy", "homes"]


def test_a_table_is_replaced_by_one_of_another_definition(sql: Sql, spark: SparkSession, tmp_path: Path) -> None:
    """It may be made of itself. Its readers find the old one until it is whole; a server that is restarted, the new."""
    store = Store.open(LocalFileSystem(tmp_path / "store"), StoreOptions(maintenance="off"))
    server = FlightServer(store, "grpc://127.0.0.1:0")
    address, seen = f"grpc://127.0.0.1:{server.port}", []
    spark.conf.set("spark.sql.catalog.replaced", "io.nyala.spark.NyalaCatalog")
    spark.conf.set("spark.sql.catalog.replaced.uri", address)
    spark.conf.set("spark.sql.catalog.replaced.dropKeepSeconds", "100")
    homes = "replaced.default.homes"
    made = f"CREATE OR REPLACE TABLE {homes} PARTITIONED BY (bucket(2, city)) TBLPROPERTIES (primary_key = 'city, id')"
    try:
        sql(f"CREATE TABLE {homes} (id INT PRIMARY KEY, note STRING)")
        sql(f"INSERT INTO {homes} VALUES (1, 'a'), (2, 'b')")
        assert "ALREADY_PRESENT" in refused(sql, f"{made} AS SELECT 'x' AS city, 1 AS id FROM {homes}")
        assert sql(f"SELECT * FROM {homes} ORDER BY id") == [(1, "a"), (2, "b")]
        with pytest.MonkeyPatch.context() as patched:
            commit = Store.commit_transaction

            def looked(self: Store, *given: Any) -> Any:
                seen.append(Database(self).table("homes").scan(ordered=True).to_arrow().to_pylist())
                return commit(self, *given)

            patched.setattr(Store, "commit_transaction", looked)
            sql(f"{made} AS SELECT upper(note) AS city, id, id * 1.5D AS price FROM {homes}")
        assert seen == [[{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]]
        server.shutdown()
        store.close()
        store = Store.open(LocalFileSystem(tmp_path / "store"), StoreOptions(maintenance="off"))
        server = FlightServer(store, address)
        assert sql(f"SELECT * FROM {homes} ORDER BY id") == [("A", 1, 1.5), ("B", 2, 3.0)]
        told = about(address, "homes")
        assert told["primary_key"] == ["city", "id"]
        assert told["partitions"] == [{"hash": ["city"], "buckets": 2, "seed": 0}]
        sql(f"REPLACE TABLE {homes} (day DATE PRIMARY KEY, n INT DEFAULT 3 COMMENT 'of rooms')")
        sql(f"INSERT INTO {homes} (day) VALUES (DATE'2025-01-01')")
        assert [row[1] for row in sql(f"SELECT * FROM {homes}")] == [3] and store.tables() == ["homes"]
        assert [each.name for each in store.dropped_tables()] == ["homes", "homes"]
        oldest = min(each.table_id for each in store.dropped_tables())
        store.recall_table(oldest, "first")
        assert sql("SELECT * FROM replaced.default.first ORDER BY id") == [(1, "a"), (2, "b")]
    finally:
        server.shutdown()
        store.close()


def test_a_table_that_was_replaced_meanwhile_is_not(
    sql: Sql, homes: None, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Store.commit_transaction

    def overtaken(self: Store, *given: Any) -> Any:
        db.drop_table("homes")
        db.create_table("homes", pa.schema({"k": pa.int64()}), ["k"])
        return commit(self, *given)

    monkeypatch.setattr(Store, "commit_transaction", overtaken)
    other = "REPLACE TABLE homes TBLPROPERTIES (primary_key = 'note') AS SELECT 'x' AS note"
    assert re.match("CONFLICT: table 'homes', which '.*' is to replace, does not have the id", refused(sql, other))
    assert db.tables() == ["homes"] and db.table("homes").schema.names == ["k"]


def test_what_the_store_denies_is_said_as_it_is(sql: Sql, spark: SparkSession, tmp_path: Path) -> None:
    tokens = {
        name: create_token(tmp_path / "tokens.json", name, roles)[0]
        for name, roles in {"root": ("admin",), "alice": ()}.items()
    }
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    server = FlightServer(store, "grpc://127.0.0.1:0", security=Security(ServeOptions(tokens=tmp_path / "tokens.json")))
    try:
        with nyala.connect(f"grpc://127.0.0.1:{server.port}", token=tokens["root"]) as db:
            db.create_table("homes", pa.schema({"id": pa.int64()}), ["id"]).insert({"id": [1]})
            db.grant("read", on="homes", to="alice")
            spark.conf.set("spark.sql.catalog.denied", "io.nyala.spark.NyalaCatalog")
            spark.conf.set("spark.sql.catalog.denied.uri", f"grpc://127.0.0.1:{server.port}")
            spark.conf.set("spark.sql.catalog.denied.token", tokens["alice"])
            homes = "denied.default.homes"
            for statement in (
                "CREATE TABLE denied.default.mine (id INT PRIMARY KEY)", f"ALTER TABLE {homes} ADD COLUMN x INT",
                f"ALTER TABLE {homes} RENAME TO mine", f"DROP TABLE {homes}",
                f"CREATE OR REPLACE TABLE {homes} TBLPROPERTIES (primary_key = 'id') AS SELECT id FROM range(1)",
            ):  # fmt: skip
                assert refused(sql, statement).startswith("PERMISSION_DENIED: ")
            assert db.tables() == ["homes"] and db.table("homes").count() == 1
    finally:
        server.shutdown()
        store.close()


@pytest.mark.parametrize("is_silent", by_night([False, True], day=[False]))
def test_a_change_whose_answer_is_lost_is_not_repeated(
    sql: Sql, spark: SparkSession, db: Database, uri: str, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """A connection may end, or nobody answers there any more."""
    create, made = Store.create_table, []
    with CutProxy(int(uri.rpartition(":")[2])) as network:

        def lost(self: Store, definition: Any) -> Any:
            made.append(create(self, definition))
            network.cut() if is_silent else network.drop()
            return made[-1]

        monkeypatch.setattr(Store, "create_table", lost)
        spark.conf.set(f"spark.sql.catalog.cut_{is_silent}", "io.nyala.spark.NyalaCatalog")
        spark.conf.set(f"spark.sql.catalog.cut_{is_silent}.uri", f"grpc://127.0.0.1:{network.here}")
        why = refused(sql, f"CREATE TABLE cut_{is_silent}.default.homes (id INT PRIMARY KEY)")
    assert "it is unknown whether create_table was carried out: check, and repeat it if it was not" in why
    assert len(made) == 1 and db.tables() == ["homes"]
