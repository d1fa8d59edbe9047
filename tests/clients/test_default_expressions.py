"""Defaults that are computed from the other columns of a new row, embedded and over Flight."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import backup, restore
from nyala.schemas.errors import InvalidArgumentError

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("price", pa.float64()),
        pa.field("amount", pa.int32()),
        pa.field("total", pa.float64()),
        pa.field("seen", pa.timestamp("us"), False),
    ]
)
OPTIONS: dict[str, Any] = {
    "amount": nyala.ColumnOptions(write_default=2),
    "total": nyala.ColumnOptions(default_expression="price * amount"),
    "seen": nyala.ColumnOptions(default_expression="now()"),
}


def make(db: Database, **options: Any) -> Table:
    return db.create_table("t", SCHEMA, "k", column_options=OPTIONS, **options)


def rows_of(table: Table, *names: str) -> list[tuple]:
    return [tuple(row.values()) for row in table.scan(columns=["k", *names], ordered=True).to_arrow().to_pylist()]


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


@pytest.mark.parametrize("verb", ["insert", "insert_ignore", "upsert", "upsert_ignore", "merge"])
def test_new_rows_get_what_is_computed(db: Database, verb: str) -> None:
    table, before = make(db), now() - dt.timedelta(seconds=1)
    write = getattr(table, verb)
    write([{"k": 1, "price": 1.5}])
    write({"k": [2, 3], "price": [2.0, None], "amount": [5, 5]})
    write([{"k": 4, "total": 7.0, "seen": dt.datetime(2020, 1, 1)}])
    write([{"k": 5, "total": None}])
    assert rows_of(table, "amount", "total") == [(1, 2, 3.0), (2, 5, 10.0), (3, 5, None), (4, 2, 7.0), (5, 2, None)]
    seen = [row[1] for row in rows_of(table, "seen")]
    assert seen[1] == seen[2] and seen[3] == dt.datetime(2020, 1, 1)
    assert all(before < moment < before + dt.timedelta(minutes=5) for moment in (*seen[:3], seen[4]))


def test_now_is_the_moment_of_the_commit(db: Database) -> None:
    table = make(db)
    result = table.insert([{"k": 1}])
    ((_, seen),) = rows_of(table, "seen")
    committed = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=result.timestamp >> 12)
    assert dt.timedelta(0) <= committed - seen < dt.timedelta(minutes=1)


def test_live_rows_keep_their_cells(db: Database) -> None:
    table = make(db)
    table.insert([{"k": 1, "price": 1.0}])
    before = rows_of(table, "seen")
    table.upsert([{"k": 1, "price": 9.0}])
    table.update([{"k": 1, "amount": 4}])
    table.upsert({"k": [1, 1, 2], "price": [8.0, 7.0, 6.0]})
    assert rows_of(table, "price", "total") == [(1, 7.0, 2.0), (2, 6.0, 12.0)]
    assert rows_of(table, "seen")[:1] == before


def test_of_several_new_rows_of_a_key_the_first_decides(db: Database) -> None:
    table = make(db)
    table.upsert({"k": [1, 1], "price": [1.0, 5.0]})
    assert rows_of(table, "price", "total") == [(1, 5.0, 2.0)]


def test_a_default_that_cannot_be_computed_refuses_its_row(db: Database) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("share", pa.int64())])
    options = {"share": nyala.ColumnOptions(default_expression="100 / n")}
    table = db.create_table("t", schema, "k", column_options=options)
    result = table.upsert({"k": [1, 2, 3], "n": [5, 0, 10]}, on_error="return")
    assert (result.applied, [(error.row, error.code) for error in result.errors]) == (2, [(1, "INVALID_ARGUMENT")])
    assert "(k=2): the default_expression of column 'share'" in result.errors[0].message
    assert "division by zero" in result.errors[0].message
    assert rows_of(table, "share") == [(1, 20), (3, 10)]
    assert table.upsert({"k": [1], "n": [0]}).applied == 1  # the row is there: nothing is computed


def test_large_loads_compute_too(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("share", pa.int64())])
    options = {"share": nyala.ColumnOptions(default_expression="100 / n")}
    with nyala.open(tmp_path / "store", direct_load_bytes=10_000) as db:
        table = db.create_table("t", schema, "k", column_options=options)
        table.insert({"k": range(20_000), "n": [4] * 20_000})
        with db.transaction() as transaction:
            transaction.insert(table, {"k": range(20_000, 40_000), "n": [5] * 20_000})
        table.bulk_import(pa.table({"k": range(40_000, 50_000), "n": [10] * 10_000}))
        result = table.insert({"k": range(50_000, 70_000), "n": [1] * 19_999 + [0]}, on_error="return")
        assert (result.applied, result.error_count, result.errors[0].row) == (19_999, 1, 19_999)
        with pytest.raises(nyala.StoreError, match="division by zero"), db.transaction() as transaction:
            transaction.insert(table, {"k": range(70_000, 90_000), "n": [0] * 20_000})
        with pytest.raises(InvalidArgumentError, match="division by zero"):
            table.bulk_import(pa.table({"k": [99_999], "n": [0]}))
    with nyala.open(tmp_path / "store") as db:
        counts = db.table("t").scan(columns=["share"]).to_arrow()["share"].value_counts().to_pylist()
        assert {each["values"]: each["counts"] for each in counts} == {25: 20_000, 20: 20_000, 10: 10_000, 100: 19_999}


def test_null_in_a_not_null_column_is_refused(db: Database) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), ("n", pa.int64()), pa.field("must", pa.int64(), False)])
    options = {"must": nyala.ColumnOptions(default_expression="n + 1")}
    table = db.create_table("t", schema, "k", column_options=options)
    result = table.insert({"k": [1, 2], "n": [1, None]}, on_error="return")
    assert (result.applied, result.errors[0].row) == (1, 1) and "NOT NULL" in result.errors[0].message


def test_defaults_are_altered(db: Database) -> None:
    table = make(db)
    table.insert([{"k": 1, "price": 1.0}])
    table.alter().set_default("total", expression="price + k").set_default("amount", expression="k * 2").apply()
    table.insert([{"k": 2, "price": 1.0}])
    table.alter().set_default("total", 9.0).add_column("name", "string", default_expression="'n' || k::text").apply()
    table.insert([{"k": 3, "price": 1.0}])
    table.alter().set_default("total", None).apply()
    table.insert([{"k": 4, "price": 1.0}])
    assert rows_of(table, "amount", "total", "name") == [
        (1, 2, 2.0, None),
        (2, 4, 3.0, None),
        (3, 6, 9.0, "n3"),
        (4, 8, None, "n4"),
    ]
    about = {column["name"]: column for column in table.describe()["columns"]}
    assert about["name"]["default_expression"] == "'n' || k::text" and "default_expression" not in about["total"]


def test_a_named_column_stays(db: Database) -> None:
    table = make(db)
    with pytest.raises(InvalidArgumentError, match="default_expression of column 'total': there is no column 'price'"):
        table.alter().rename_column("price", "cost").apply()
    with pytest.raises(InvalidArgumentError, match="default_expression of column 'total': there is no column 'price'"):
        table.alter().drop_column("price").apply()
    table.alter().rename_column("price", "cost").set_default("total", expression="cost * amount").apply()
    table.insert([{"k": 1, "cost": 3.0}])
    assert rows_of(table, "total") == [(1, 6.0)]


def test_they_survive_a_restart_and_go_along_with_a_backup(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        make(db).insert([{"k": 1, "price": 1.0}])
    with nyala.open(tmp_path / "store") as db:
        db.table("t").insert([{"k": 2, "price": 2.0}])
        backup(db, "t", tmp_path / "backup")
        restore(db, tmp_path / "backup", "t", name="again")
        db.table("again").insert([{"k": 3, "price": 3.0}])
        assert rows_of(db.table("again"), "total") == [(1, 2.0), (2, 4.0), (3, 6.0)]


def options_of(text: str) -> dict[str, Any]:
    return {"total": nyala.ColumnOptions(default_expression=text)}


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (options_of("nothing * 2"), "there is no column 'nothing'"),
        (options_of("total + 1"), "names 'total', which is also computed"),
        (options_of("excluded.price"), "cannot use 'excluded', which only merges have"),
        (options_of("price +"), "expected a literal or a column"),
        (options_of("'text'"), "cannot be stored as double"),
        (options_of("1 / 0"), "division by zero"),
        (options_of("'" + "x" * 5_000 + "'"), "more than 4,096 bytes"),
        ({"total": nyala.ColumnOptions(default_expression="price", write_default=1.0)}, "leave one out"),
        ({"k": nyala.ColumnOptions(default_expression="1")}, "part of the primary key"),
        ({**OPTIONS, "price": nyala.ColumnOptions(default_expression="k")}, "names 'price', which is also computed"),
    ],
)
def test_wrong_expressions_are_refused(db: Database, attempt: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        db.create_table("t", SCHEMA, "k", column_options=attempt)
    assert db.tables() == []


def in_sql(db: Database, text: str) -> Any:
    pytest.importorskip("datafusion")
    return db.sql(text)


def test_sql_has_defaults_that_are_computed(db: Database) -> None:
    in_sql(
        db,
        "CREATE TABLE o (id bigint PRIMARY KEY, price double precision, n int DEFAULT 1, "
        "total double precision DEFAULT price * n, seen timestamp DEFAULT now(), day date DEFAULT current_date)",
    )
    in_sql(db, "INSERT INTO o (id, price) VALUES (1, 2.5), (2, 3)")
    in_sql(db, "INSERT INTO o (id, price, n, seen) VALUES (3, 2.5, 4, DEFAULT)")
    in_sql(db, "INSERT INTO o (id, price) SELECT id + 10, price FROM o WHERE id = 1")
    in_sql(
        db,
        "MERGE INTO o USING (SELECT 20 AS id, 7.0 AS price) s ON o.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, price) VALUES (s.id, s.price)",
    )
    in_sql(db, "INSERT INTO o (id, price) VALUES (1, 9), (30, 4) ON CONFLICT (id) DO UPDATE SET price = excluded.price")
    table = db.table("o")
    rows = table.scan(ordered=True).to_arrow().to_pylist()
    assert [(row["id"], row["price"], row["total"]) for row in rows] == [
        (1, 9.0, 2.5),
        (2, 3.0, 3.0),
        (3, 2.5, 10.0),
        (11, 2.5, 2.5),
        (20, 7.0, 7.0),
        (30, 4.0, 4.0),
    ]
    assert all(row["seen"].date() == row["day"] for row in rows)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("INSERT INTO t (k, total) VALUES (1, DEFAULT), (2, 3.0)", "its default is computed, so insert these rows"),
        ("UPDATE t SET total = DEFAULT WHERE k = 1", "has a computed default, which is only for new rows"),
        ("ALTER TABLE t ALTER COLUMN total SET DEFAULT nothing * 2", "there is no column 'nothing'"),
    ],
)
def test_sql_refuses(db: Database, text: str, why: str) -> None:
    make(db).insert([{"k": 1, "price": 1.0}])
    with pytest.raises(InvalidArgumentError, match=why):
        in_sql(db, text)


def test_sql_alters_defaults(db: Database) -> None:
    table = make(db)
    in_sql(db, "ALTER TABLE t ALTER COLUMN total SET DEFAULT price * 100")
    in_sql(db, "ALTER TABLE t ADD COLUMN noted timestamp DEFAULT now()")
    table.insert([{"k": 1, "price": 1.0}])
    in_sql(db, "ALTER TABLE t ALTER COLUMN total DROP DEFAULT")
    in_sql(db, "INSERT INTO t (k, price) VALUES (2, 1.0)")
    assert [(row[1], row[2] is None) for row in rows_of(table, "total", "noted")] == [(100.0, False), (None, False)]


def test_the_words_of_the_refusal_name_the_row(embedded: Database) -> None:
    attempts: list[Callable[[Table], object]] = [
        lambda table: table.insert([{"k": 7, "price": 1e308, "amount": 100}]),
        lambda table: table.upsert({"k": [7], "price": [1e308], "amount": [100]}),
    ]
    table = make(embedded)
    for attempt in attempts:
        with pytest.raises(nyala.RowErrors, match=r"\(k=7\)"):
            attempt(table)
