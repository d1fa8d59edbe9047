"""What the catalog shows of tables beside their rows, and its procedures, compared with the store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.cells.timestamp import datetime_of
from tests.clients.spark.sessions import Sql, refused

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int32()), ("day", pa.date32()), ("city", pa.string())])


@pytest.fixture
def sales(sql: Sql, db: Database) -> Table:
    """A table of four tablets and some commits."""
    bounds = [
        {"lower": None, "upper": "2020-01-01", "hash": [nyala.hash("day", buckets=2)]},
        ("2020-01-01", "2021-01-01"),
    ]
    levels = [nyala.hash("id", buckets=2), nyala.range("day", bounds=bounds)]
    table = db.create_table("sales", SCHEMA, ["id", "day"], partition_by=levels)
    day = pa.array(["2020-02-02", "2019-02-02", "2020-05-05"]).cast(pa.date32())
    table.insert({"id": [1, 2, 3], "day": day, "city": ["a", "b", "c"]})
    table.upsert({"id": [1, 4], "day": day[:2], "city": ["x", "y"]})
    table.delete({"id": [3], "day": day[2:]})
    return table


def test_show_partitions(sql: Sql, sales: Table) -> None:
    """A range may have its own hash levels."""
    early, late = "range(day)=..2020-01-01", "range(day)=2020-01-01..2021-01-01"
    assert sql("SHOW PARTITIONS sales") == [
        (f"{early}/hash(day)=0/hash(id)=null",),
        (f"{early}/hash(day)=1/hash(id)=null",),
        (f"{late}/hash(day)=null/hash(id)=0",),
        (f"{late}/hash(day)=null/hash(id)=1",),
    ]
    assert len(sql("SHOW PARTITIONS sales PARTITION (`hash(id)` = 1)")) == 1
    assert len(sql("SHOW PARTITIONS sales PARTITION (`range(day)` = '..2020-01-01')")) == 2
    sql("CREATE TABLE halves (id INT PRIMARY KEY) PARTITIONED BY (bucket(2, id))")
    for statement in ("ADD PARTITION (`hash(id)` = 2)", "DROP PARTITION (`hash(id)` = 1)"):
        assert "CALL system.add_range_partition" in refused(sql, f"ALTER TABLE halves {statement}")
    sql("CREATE TABLE whole (id INT PRIMARY KEY)")
    assert "does not support partition management" in refused(sql, "SHOW PARTITIONS whole")


def test_the_tables_beside_one_are_there_where_its_namespace_is_in_use(sql: Sql, sales: Table) -> None:
    """The session uses nyala.default."""
    for name in ("history", "tablets"):
        whole = sql(f"SELECT * FROM nyala.default.sales.{name}")
        for short in (f"sales.{name}", f"default.sales.{name}", f"nyala.sales.{name}"):
            assert sql(f"SELECT * FROM {short}") == whole and len(whole) in (3, 4)
        assert "cannot be found" in refused(sql, f"SELECT * FROM nothing.{name}")
    [(first,)] = sql("SELECT min(timestamp) FROM sales.history")
    assert sql(f"SELECT count(*) FROM sales.changes WITH (startTimestamp = '{first}')") == [(3,)]
    assert "is dropped with its table: drop sales" in refused(sql, "DROP TABLE sales.history")
    sql("CREATE TABLE default (id INT PRIMARY KEY)")
    assert sql("SELECT count(*) FROM default.default.history") == [(0,)]


def test_what_describe_says(sql: Sql, sales: Table) -> None:
    sales.alter().set_encoding("city", "prefix").set_comment("city", "of the shop").apply()
    rows = {row[0]: row[1:] for row in sql("DESCRIBE EXTENDED sales")}
    assert rows["city"] == ("string", "of the shop")
    assert [rows["Part 0"][0], rows["Part 1"][0]] == ["bucket(2, id)", "range(day)"]
    told = rows["Table Properties"][0]
    assert "primary_key=id, day" in told and "encoding.city=prefix" in told
    properties = dict(sql("SHOW TBLPROPERTIES sales"))
    assert properties["primary_key"] == "id, day" and properties["maintenance"] == "on"
    assert sql("SHOW TBLPROPERTIES sales ('encoding.city')") == [("encoding.city", "prefix")]


def test_the_tablets_of_a_table(sql: Sql, sales: Table) -> None:
    sales.maintain("flush")
    stored = sales.stats()["tablets"]
    assert sql("SELECT tablet, lower, upper, buckets, server, history_from FROM default.sales.tablets") == [
        (each["tablet"], *((each["partition"][end] or [None])[0] for end in ("lower", "upper")),
         each["partition"]["buckets"], None, None)
        for each in stored
    ]  # fmt: skip
    names = "live_rows bytes_on_disk memory_bytes rowsets delta_files redo_bytes undo_bytes dropped_bytes"
    columns = [*names.split(), "average_rowset_height", "rows_read", "rows_written"]
    found = sql(f"SELECT {', '.join(columns)} FROM default.sales.tablets")
    assert found == [tuple(each[name] for name in columns) for each in stored]
    assert sum(row[0] for row in found) == 3 and max(row[1] for row in found) > 0
    some = [each for each in stored if each["live_rows"] and each["partition"]["upper"] == ["2020-01-01"]]
    assert sql("SELECT count(*) FROM default.sales.tablets WHERE live_rows > 0 AND upper < '2020-02'") == [(len(some),)]


def test_the_history_of_a_table(sql: Sql, sales: Table, db: Database) -> None:
    sql("INSERT INTO sales VALUES (9, DATE'2020-09-09', 'z')")
    commits = db.commits(sales).to_pylist()
    names = "timestamp, writer, transaction, inserted, updated, deleted, operation, user"
    found = sql(f"SELECT {names}, unix_micros(at) FROM default.sales.history ORDER BY timestamp")
    assert [row[:8] for row in found] == [tuple(each[name] for name in names.split(", ")) for each in commits]
    assert found[3][6] == "transaction" and found[3][7] is None
    assert [row[3:6] for row in found] == [(3, 0, 0), (1, 1, 0), (0, 0, 1), (1, 0, 0)] and found[3][2]
    assert [row[8] for row in found] == [int(datetime_of(row[0]).timestamp() * 1e6 + 0.5) for row in found]
    for table in ("nothing.history", "nothing.tablets", "sales.nothing"):
        assert "TABLE_OR_VIEW_NOT_FOUND" in refused(sql, f"SELECT * FROM default.{table}")


def test_procedures(sql: Sql, sales: Table, db: Database) -> None:
    before, rows = db.now(), sales.scan(ordered=True).to_arrow()
    assert sql("CALL nyala.system.compact(table => 'sales', op => 'flush')")[0][:2] == ("flush", 4)
    [(op, _, written, freed)] = sql("CALL nyala.system.compact('sales')")
    assert op == "compact" and sales.stats()["tablets"][0]["memory_bytes"] < 100_000 and written >= 0 and freed >= 0
    sql("INSERT OVERWRITE sales VALUES (7, DATE'2020-07-07', 'gone')")
    [(found, applied, timestamp)] = sql(f"CALL nyala.system.restore('sales', as_of => '{before}')")
    assert (found, applied) == (4, 4) and timestamp > before and sales.scan(ordered=True).to_arrow().equals(rows)
    ranges = [("..2020-01-01",), ("2020-01-01..2021-01-01",), ("2021-01-01..2022-01-01",)]
    assert sql("CALL nyala.system.add_range_partition('sales', '2021-01-01', '2022-01-01')") == ranges
    assert sql("CALL nyala.system.split_partition('sales', '2020-03-01')") == [
        ranges[0], ("2020-01-01..2020-03-01",), ("2020-03-01..2021-01-01",), ranges[2],
    ]  # fmt: skip
    sql("CALL nyala.system.drop_range_partition(table => 'sales', upper => '[\"2020-01-01\"]')")
    assert sales.scan(ordered=True).to_arrow()["id"].to_pylist() == [1]
    db.drop_table("sales", keep_seconds=100)
    assert sql("CALL nyala.system.recall_table('sales', 'again')") == [("again",)] and db.tables() == ["again"]


@pytest.mark.night
def test_a_table_is_backed_up_and_made_of_its_backup(sql: Sql, sales: Table, db: Database, tmp_path: Path) -> None:
    folder = str(tmp_path / "backups")
    assert [row[0] for row in sql(f"CALL nyala.system.backup('sales', '{folder}')")] == ["full"]
    sql("INSERT INTO sales VALUES (9, DATE'2020-09-09', 'z')")
    [(kind, place, until, rows, size)] = sql(f"CALL nyala.system.backup(table => 'sales', directory => '{folder}')")
    assert (kind, rows) == ("increment", 1) and Path(place).is_dir() and until <= db.now() and size > 0
    made = sql(f"CALL nyala.system.restore_backup('sales', '{folder}', new_name => 'again')")
    assert made == [("again", until, sales.count())]
    assert db.table("again").scan(ordered=True).to_arrow().equals(sales.scan(ordered=True).to_arrow())
    assert sql(f"CALL nyala.system.backup('sales', '{folder}', force_full => 'true')")[0][0] == "full"
    again = refused(sql, f"CALL nyala.system.restore_backup('sales', '{folder}')")
    assert again.startswith("ALREADY_PRESENT: table 'sales' already exists"), again
    assert "NOT_FOUND" in refused(sql, f"CALL nyala.system.backup('nothing', '{folder}')")


def test_what_procedures_refuse(sql: Sql, sales: Table, tmp_path: Path) -> None:
    names = "compact restore recall_table checkpoint backup restore_backup "
    names += "add_range_partition drop_range_partition split_partition"
    assert [row[-1] for row in sql("SHOW PROCEDURES IN nyala.system")] == names.split()
    for call, why in {
        "compat('sales')": "there is no procedure system.compat, did you mean compact?",
        "tidy('sales')": "there is no procedure system.tidy; there are compact, restore,",
        "compact('nothing')": "NOT_FOUND: there is no table 'nothing'",
        "compact('sales', 'tidy')": "unknown maintenance operation 'tidy'; known: flush",
        "restore('sales', '2020-01-01')": "needs a time zone",
        "restore('sales', '1')": "SNAPSHOT_TOO_OLD",
        "split_partition('sales', 'x')": "'x' is not a valid date",
        "add_range_partition('sales', '2020-03-01')": "overlap",
        "checkpoint('relative')": "INVALID_ARGUMENT",
    }.items():
        assert why in refused(sql, f"CALL nyala.system.{call}"), call


def test_the_range_of_all_rows_is_not_dropped_by_oversight(sql: Sql, db: Database) -> None:
    undivided = db.create_table("undivided", SCHEMA, ["id"], partition_by=[nyala.range("id", bounds=[(None, None)])])
    undivided.insert({"id": [1]})
    why = "drop_range_partition needs lower, upper or both: without ends it would drop all rows of undivided"
    for ends in ("", ", ' '", ", lower => '[]', upper => NULL"):
        assert why in refused(sql, f"CALL nyala.system.drop_range_partition('undivided'{ends})")
    assert undivided.count() == 1
