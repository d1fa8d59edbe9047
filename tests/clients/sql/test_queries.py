"""Queries in SQL: what they answer, at which snapshot, and how they refuse."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.sql import engine as sql_engine
from nyala.clients.sql.engine import SqlEngine
from nyala.clients.sql.fences import SqlLimits
from nyala.clients.sql.functions import FUNCTIONS
from nyala.clients.sql.leaves.table_read import TableRead
from nyala.schemas.errors import (
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
    StoreError,
    UnavailableError,
)
from tests.clients.sql.random_queries import Queries, fill, ordered
from tests.dose import dose

HOMES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("cents", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
        ("Odd name", pa.int32()),
    ]
)
CITIES = ["Oslo", "Bergen", None]


@pytest.fixture
def homes(db: Database) -> nyala.Table:
    table = db.create_table("homes", HOMES, ["id"], [nyala.hash("id", buckets=2)])
    table.insert(
        [
            {
                "id": number,
                "city": CITIES[number % 3],
                "price": number / 4,
                "cents": Decimal(number) / 100,
                "at": dt.datetime(2026, 1, 1) + dt.timedelta(hours=number),
                "day": dt.date(2026, 1, 1 + number % 20),
                "raw": bytes([number % 256]),
                "ok": number % 2 == 0,
                "Odd name": number % 5,
            }
            for number in range(300)
        ]
    )
    return table


QUERIES: list[tuple[str, Any, list[tuple[Any, ...]]]] = [
    ("SELECT 1 AS one, 'x' AS text", None, [(1, "x")]),
    ("VALUES (1), (2)", None, [(1,), (2,)]),
    ("SELECT count(*) FROM homes", None, [(300,)]),
    ("SELECT count(*) FROM nyala.public.homes WHERE id < 10", None, [(10,)]),
    (
        "SELECT city, count(*) FROM homes GROUP BY city ORDER BY city NULLS LAST",
        None,
        [("Bergen", 100), ("Oslo", 100), (None, 100)],
    ),
    ("SELECT id FROM homes WHERE id = ?", [7], [(7,)]),
    ("SELECT id FROM homes WHERE id = $2 AND city = $1", ["Bergen", 7], [(7,)]),
    ("SELECT id FROM homes WHERE id = $wanted", {"wanted": 7}, [(7,)]),
    ("SELECT id FROM homes WHERE at = ?", [dt.datetime(2026, 1, 1, 3, tzinfo=dt.UTC)], [(3,)]),
    ("SELECT id FROM homes WHERE cents = ?", [Decimal("0.05")], [(5,)]),
    ("SELECT id FROM homes WHERE raw = ? AND id < 100", [b"\x09"], [(9,)]),
    ("SELECT id FROM homes WHERE city = ?", [None], []),
    ("SELECT '?' || ? -- ?", ["x"], [("?x",)]),
    ('SELECT max("Odd name") FROM homes', None, [(4,)]),
    ("SELECT a.id FROM homes a JOIN homes b ON a.id = b.id + 1 WHERE b.id < 2 ORDER BY a.id", None, [(1,), (2,)]),
    ("SELECT count(*) FROM homes JOIN homes AS b ON homes.id = b.id", None, [(300,)]),
    ("WITH homes AS (SELECT id FROM homes WHERE id < 4) SELECT count(*) FROM homes", None, [(4,)]),
    ("SELECT count(*) FROM (SELECT id AS a, city AS b FROM homes) q WHERE a < 3", None, [(3,)]),
    ("SELECT (SELECT max(id) FROM homes) - id FROM homes WHERE id = 298", None, [(1,)]),
    ("SELECT count(*) FROM homes WHERE id NOT IN (SELECT id FROM homes WHERE ok)", None, [(150,)]),
    ("SELECT id FROM homes ORDER BY price DESC LIMIT 2 OFFSET 1", None, [(298,), (297,)]),
    ("SELECT id, row_number() OVER (ORDER BY id DESC) FROM homes WHERE id < 2 ORDER BY id", None, [(0, 2), (1, 1)]),
]


@pytest.mark.parametrize(("text", "params", "expected"), QUERIES, ids=[text[:60] for text, _, _ in QUERIES])
def test_answers(db: Database, homes: nyala.Table, text: str, params: Any, expected: list[tuple[Any, ...]]) -> None:
    assert cells(db.sql(text, params).to_arrow()) == expected


def cells(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(column[row].as_py() for column in table.columns) for row in range(table.num_rows)]


@pytest.mark.parametrize("leaf_bytes", [0, 1 << 28], ids=["streamed", "read first"])
def test_all_types_come_as_they_are(db: Database, homes: nyala.Table, leaf_bytes: int) -> None:
    result = SqlEngine(db._store, SqlLimits(leaf_bytes=leaf_bytes)).query("SELECT * FROM homes ORDER BY id")
    assert result.schema.types == HOMES.types
    assert result.to_arrow().to_pylist() == db.table("homes").scan(ordered=True).to_arrow().to_pylist()


def test_forms_of_a_result(db: Database, homes: nyala.Table) -> None:
    text = "SELECT id, city FROM homes WHERE id < 3 ORDER BY id"
    assert db.sql(text).to_pandas()["id"].tolist() == [0, 1, 2]
    assert db.sql(text).to_polars()["city"].to_list() == ["Oslo", "Bergen", None]
    assert pa.table(db.sql(text)).num_rows == 3
    assert sum(batch.num_rows for batch in db.sql(text)) == 3
    with db.sql(text) as result:
        assert result.rows == 3 and result.to_arrow() is result.to_arrow()
        assert result.snapshot and result.to_reader().read_all().num_rows == 3
    read = db.sql(text)
    assert len(list(read)) == 1
    with pytest.raises(InvalidArgumentError, match="run the statement again"):
        read.to_arrow()


def test_one_snapshot(db: Database, homes: nyala.Table) -> None:
    before = db.now()
    result = db.sql("SELECT count(*) AS n FROM homes a, homes b WHERE a.id = b.id")
    homes.delete({"id": list(range(100))})
    assert result.rows == 1 and result.to_arrow()["n"][0].as_py() == 300
    count = "SELECT count(*) FROM "
    assert cells(db.sql(count + "homes").to_arrow()) == [(200,)]
    assert cells(db.sql(count + "homes", as_of=before).to_arrow()) == [(300,)]
    assert cells(db.sql(count + "at('homes', ?)", [before]).to_arrow()) == [(300,)]
    assert cells(db.sql(count + f"homes FOR SYSTEM_TIME AS OF {before} AS old").to_arrow()) == [(300,)]
    gone = (
        f"SELECT old.id FROM at('homes', {before}) AS old LEFT JOIN homes ON homes.id = old.id WHERE homes.id IS NULL"
    )
    assert db.sql(gone).rows == 100
    changes = cells(db.sql("SELECT _op, count(*) FROM changes('homes', ?) GROUP BY _op", [before]).to_arrow())
    assert changes == [("delete", 100)]
    with pytest.raises(SnapshotTooOldError):
        db.sql("SELECT * FROM homes", as_of=dt.datetime(2001, 1, 1, tzinfo=dt.UTC)).to_arrow()


def test_a_table_of_another_time_takes_no_name(db: Database, homes: nyala.Table) -> None:
    db.create_table("homes@1", primary_key="id", data={"id": [1], "city": ["Alta"]})
    moment = db.now()
    homes.delete({"id": [1]})
    text = """SELECT old.city, r.city AS other FROM at('homes', ?) AS old JOIN "homes@1" AS r ON r.id = old.id"""
    assert cells(db.sql(text, [moment]).to_arrow()) == [("Bergen", "Alta")]
    text = """WITH "homes@1" AS (SELECT 1 AS id) SELECT r.*, old.city FROM at('homes', ?) AS old JOIN "homes@1" AS r"""
    assert cells(db.sql(text + " ON r.id = old.id", [moment]).to_arrow()) == [(1, "Bergen")]
    db.drop_table("homes@1")


@pytest.mark.parametrize("name", ["Homes", "Odd homes", "a.b", 'say "x"'])
def test_names_of_tables_keep_their_letters(db: Database, name: str) -> None:
    """Also in plans that the store does not answer alone: with an expression, a join, a change."""
    db.create_table(name, primary_key="id", data={"id": [1, 2]})
    own = '"' + name.replace('"', '""') + '"'
    assert db.sql(f"SELECT id + 1 AS n FROM {own} ORDER BY n").to_arrow()["n"].to_pylist() == [2, 3]
    joined = f"SELECT a.id FROM {own} AS a JOIN nyala.public.{own} AS b ON a.id = b.id + 1"
    assert db.sql(joined).to_arrow()["id"].to_pylist() == [2]
    assert db.sql(f"DELETE FROM {own} WHERE id IN (SELECT max(id) FROM {own})").changed == 1
    db.drop_table(name)


def test_letters_beyond_ascii_stay_as_they_are(db: Database) -> None:
    db.sql("CREATE TABLE \u00c4A (id bigint PRIMARY KEY, \u00d6B int)")
    db.sql("INSERT INTO \u00c4a (id, \u00d6b) VALUES (1, 2)")
    assert db.tables() == ["\u00c4a"]
    for text in ("", " WHERE \u00d6b > 1 ORDER BY id", " AS t WHERE t.id + 0 = 1"):
        assert cells(db.sql(f"SELECT \u00d6B FROM \u00c4A{text}").to_arrow()) == [(2,)]
        with pytest.raises(NotFoundError, match="there is no table '\u00e4a'"):
            db.sql(f"SELECT id FROM \u00e4a{text}")
    before = db.now()
    assert db.sql(f"SELECT \u00d6B FROM \u00c4A FOR SYSTEM_TIME AS OF {before}").rows == 1
    with pytest.raises(InvalidArgumentError, match="out of the range of bigint"):
        db.sql("SELECT \u00d6B + 9223372036854775807 FROM \u00c4A").to_arrow()


def test_what_there_is(db: Database, homes: nyala.Table) -> None:
    assert cells(db.sql("SHOW TABLES").to_arrow()) == [("homes",)]
    described = db.sql("DESCRIBE homes").to_arrow().to_pylist()
    assert described[0] == {"column_name": "id", "data_type": "bigint", "is_nullable": "NO", "key": 1, "comment": None}
    columns = "SELECT column_name, data_type FROM information_schema.columns ORDER BY table_name, ordinal_position"
    assert cells(db.sql(columns).to_arrow())[3:5] == [("cents", "numeric"), ("at", "timestamp without time zone")]
    keys = "SELECT column_name FROM information_schema.key_column_usage WHERE table_name = 'homes'"
    assert cells(db.sql(keys).to_arrow()) == [("id",)]


def test_a_plan_tells_what_the_store_does(db: Database, homes: nyala.Table) -> None:
    lines = "\n".join(db.sql("EXPLAIN SELECT city FROM homes WHERE id < 5").to_arrow()["plan"].to_pylist())
    assert "table homes" in lines and "columns: city, id" in lines and '"op": "<"' in lines
    lines = "\n".join(db.sql("EXPLAIN ANALYZE SELECT city FROM homes WHERE id < 5").to_arrow()["plan"].to_pylist())
    assert "read: 5 rows" in lines and "result: 5 rows" in lines


REFUSED: list[tuple[str, Any, type[StoreError], str]] = [
    ("", None, InvalidArgumentError, "empty"),
    ("SELECT 1; SELECT 2", None, InvalidArgumentError, "send one statement at a time"),
    ("selec 1", None, InvalidArgumentError, "line 1, column 7, near '1'"),
    ("SELECT *\nFROM homes WHERE", None, InvalidArgumentError, "line 2"),
    ("SELECT 'x", None, InvalidArgumentError, "not closed"),
    ("SELECT * FROM home", None, NotFoundError, "there is no table 'home', perhaps 'homes'"),
    ('SELECT * FROM "Homes"', None, NotFoundError, 'write "homes", with its quotes'),
    ("SELECT * FROM other.homes", None, InvalidArgumentError, "no schema 'other'"),
    ("SELECT citi FROM homes", None, InvalidArgumentError, "no column 'citi', perhaps 'city'"),
    ("SELECT id FROM homes WHERE id = ?", None, InvalidArgumentError, "1 parameter, but params has 0: parameter 1"),
    ("SELECT id FROM homes WHERE id = ?", [1, 2], InvalidArgumentError, "has no parameter 2"),
    ("SELECT id FROM homes WHERE id = ? OR id = $2", [1, 2], InvalidArgumentError, "several forms"),
    ("SELECT ?", [object()], InvalidArgumentError, "parameter 1 cannot be of type object"),
    ("SELECT 1", "x", InvalidArgumentError, "params must be a list"),
    ("SELECT id / 0 FROM homes", None, InvalidArgumentError, "division by zero"),
    ("SELECT CAST('x' AS INT)", None, InvalidArgumentError, "'x' cannot be cast to an integer"),
    ("SELECT CAST(city AS INT) FROM homes", None, InvalidArgumentError, "cannot be cast to an integer"),
    ("SELECT lowr('x')", None, InvalidArgumentError, "no function 'lowr', perhaps 'lower'"),
    ("SELECT sum(city) FROM homes", None, InvalidArgumentError, "cannot be run"),
    ("SELECT id, EXISTS (SELECT 1 FROM homes) AS k FROM homes", None, InvalidArgumentError, "conditions of WHERE"),
    ("SELECT id IN (SELECT id FROM homes) AS k FROM homes", None, InvalidArgumentError, "conditions of WHERE"),
    ("SELECT id FROM homes ORDER BY id IN (SELECT 1)", None, InvalidArgumentError, "conditions of WHERE"),
    ("SELECT sum(CASE WHEN id IN (SELECT 1) THEN 1 END) FROM homes", None, InvalidArgumentError, "conditions of WHERE"),
    ("SELECT count(*) FILTER (WHERE id IN (SELECT 1)) FROM homes", None, InvalidArgumentError, "conditions of WHERE"),
    ("SELECT (SELECT max(id) FROM homes u WHERE u.id < t.id) FROM homes t", None, InvalidArgumentError, "only with ="),
    ("SELECT u FROM homes h, unnest(ARRAY[h.id]) AS x(u)", None, InvalidArgumentError, "no column h.id here"),
    ("SELECT u FROM homes, unnest(string_to_array(city, 'a')) AS x(u)", None, InvalidArgumentError, "write a join"),
    ("SELECT id FROM homes WHERE avg(id) OVER () > 3", None, InvalidArgumentError, "window functions are not allowed"),
    (
        "SELECT arrays_overlap([1], [1])",
        None,
        InvalidArgumentError,
        "there is no function 'arrays_overlap'",
    ),
    ("SELECT * FROM at('homes', '1999-01-01T00:00:00Z')", None, SnapshotTooOldError, "older than the history"),
    ("SELECT * FROM at('homes')", None, InvalidArgumentError, "write at"),
    ("SELECT * FROM at('homes', now())", None, InvalidArgumentError, "a moment in a query"),
    ("SELECT * FROM information_schema.nothing", None, NotFoundError, "there are: schemata"),
    ("SHOW ALL", None, InvalidArgumentError, "SHOW TABLES"),
    ("BEGIN", None, InvalidArgumentError, "BEGIN needs a session: open one by Database.sql_session()"),
    ("ROLLBACK", None, InvalidArgumentError, "ROLLBACK needs a session"),
    ("EXPLAIN DELETE FROM homes", None, InvalidArgumentError, "EXPLAIN takes a query"),
    ("WITH a AS (DELETE FROM homes RETURNING id) SELECT * FROM a", None, InvalidArgumentError, "inside WITH"),
    ("SELECT * INTO copy FROM homes", None, InvalidArgumentError, "SELECT INTO"),
    ("SELECT " + "(" * 600 + "1" + ")" * 600, None, InvalidArgumentError, "too deeply"),
]


@pytest.mark.parametrize(("text", "params", "kind", "why"), REFUSED, ids=[text[:50] for text, *_ in REFUSED])
def test_refusals(db: Database, homes: nyala.Table, text: str, params: Any, kind: type[StoreError], why: str) -> None:
    with pytest.raises(kind) as caught:
        db.sql(text, params).to_arrow()
    assert why in caught.value.message
    assert "\n" not in caught.value.message
    assert not any(inside in caught.value.message for inside in ("{", "Physical plan", "logical", "<subquery>"))


def test_all_functions_are_there(embedded: Database) -> None:
    for name in FUNCTIONS:
        with contextlib.suppress(InvalidArgumentError):
            embedded.sql(f"SELECT {name}()").to_arrow()
            continue
        with pytest.raises(InvalidArgumentError, match=r"^(?!there is no function)"):
            embedded.sql(f"SELECT {name}()").to_arrow()


def test_a_change_says_what_is_out_of_range(db: Database) -> None:
    db.sql("CREATE TABLE t (id bigint PRIMARY KEY, a smallint)")
    db.sql("INSERT INTO t VALUES (1, 32767)")
    for text in (
        "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET a = t.a + excluded.a WHERE t.id > 0",
        "UPDATE t SET a = u.a + t.a FROM t u WHERE u.id = t.id",
        "INSERT INTO t SELECT 2, a + a FROM t",
    ):
        with pytest.raises(InvalidArgumentError, match=r"^a computed value is out of the range of int16"):
            db.sql(text)


HOSTILE = [
    "COPY homes TO '/tmp/x.csv'",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 'file:///etc/passwd'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/etc/passwd')",
    "SELECT * FROM generate_series(1, 1000000000000)",
    "SELECT * FROM range(1, 1000000000000)",
    "SELECT repeat('x', 1000000000)",
    "SELECT lpad('x', 1000000000, 'y')",
    "SELECT array_resize([1], 1000000000)",
    "SELECT version()",
    "SELECT current_setting('data_directory')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT getenv('HOME')",
    "SET datafusion.catalog.location = '/etc'",
    "SET x = 1",
    "RESET ALL",
    "LOAD 'x.so'",
    "INSTALL httpfs",
    "ATTACH ':memory:'",
    "PRAGMA database_list",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "CALL x()",
    "DO $$ BEGIN END $$",
    "LISTEN x",
    "VACUUM",
    "CREATE FUNCTION f() RETURNS INT RETURN 1",
    "CREATE VIEW v AS SELECT 1",
    "EXPLAIN COPY (SELECT 1) TO '/tmp/x'",
    "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
    "SELECT * FROM nyala.pg_catalog.pg_user",
    "SELECT * FROM datafusion.public.homes",
    "SELECT * FROM information_schema.df_settings",
    "GRANT ALL ON homes TO x",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_but_queries_of_tables_runs(embedded: Database, text: str) -> None:
    embedded.create_table("homes", HOMES, ["id"])
    with pytest.raises(StoreError) as caught:
        embedded.sql(text).to_arrow()
    assert "root:" not in caught.value.message and "/tmp" not in caught.value.message.replace(text, "")


def test_a_statement_has_a_timeout(embedded: Database) -> None:
    table = embedded.create_table("t", pa.schema([pa.field("id", pa.int64(), nullable=False)]), ["id"])
    table.insert(pa.table({"id": range(20_000)}))
    text = "SELECT count(*) FROM t a, t b WHERE a.id + b.id = -1"  # some seconds, which nothing ends
    with pytest.raises(UnavailableError, match=r"longer than its timeout of 0\.1 s"):
        embedded.sql(text, timeout=0.1).to_arrow()
    with pytest.raises(InvalidArgumentError, match="above 0 seconds"):
        embedded.sql(text, timeout=0)


def test_memory_is_bounded(embedded: Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    embedded.create_table("t", schema, ["id"]).insert(
        pa.table({"id": range(200_000), "s": [f"{number:040}" for number in range(200_000)]})
    )
    engine = SqlEngine(embedded._store, SqlLimits(memory_bytes=4 << 20))
    with pytest.raises(UnavailableError, match=r"needs more memory.*4,194,304 bytes of sql_memory_bytes"):
        engine.query("SELECT count(*) FROM t a JOIN t b ON a.s = b.s").to_arrow()
    assert engine.query("SELECT count(*) AS n FROM t").to_arrow()["n"][0].as_py() == 200_000


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    yield connection
    connection.close()


@pytest.mark.parametrize("seed", range(dose(6, 25)))
def test_random_queries(embedded: Database, oracle: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Twenty queries of a seed, the tables read first and streamed, beside DuckDB."""
    fill(embedded, oracle, 100 * seed, {"a": 200, "b": 60, "c": 0})
    embedded.table("a").maintain("flush")
    engines = [SqlEngine(embedded._store, SqlLimits(leaf_bytes=size, partitions=2)) for size in (0, 1 << 28)]
    queries = Queries(seed)
    for _ in range(20):
        text = queries.query()
        expected = ordered(oracle.sql(text).to_arrow_table())
        for engine in engines:
            assert ordered(engine.query(text).to_arrow()) == expected, text


def test_a_statement_keeps_nothing_after_its_result(
    db: Database, homes: nyala.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables would stay in memory until Python looks for circles."""
    statements: weakref.WeakSet[Any] = weakref.WeakSet()
    prepare = sql_engine._Running.__init__
    monkeypatch.setattr(
        sql_engine._Running, "__init__", lambda self, *given: (prepare(self, *given), statements.add(self))[0]
    )
    gc.disable()
    try:
        for text in (
            "SELECT city, count(*) FROM homes GROUP BY city",
            "SELECT id + 1 FROM homes",
            "SELECT nothing FROM homes",
        ):
            with contextlib.suppress(InvalidArgumentError):
                db.sql(text).to_arrow()
            assert not statements, text
    finally:
        gc.enable()


def test_a_table_is_read_once_for_two_places(db: Database, homes: nyala.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    begin = TableRead.__init__
    monkeypatch.setattr(TableRead, "__init__", lambda self, *given: (reads.append(given), begin(self, *given))[1])
    once = "SELECT a.city, b.price FROM homes a JOIN homes b ON a.id = b.id ORDER BY a.id LIMIT 2"
    assert db.sql(once).to_pylist() == [{"city": "Oslo", "price": 0.0}, {"city": "Bergen", "price": 0.25}]
    assert len(reads) == 1
    assert db.sql('SELECT a.id FROM homes a JOIN homes b ON a.id = b.id WHERE a.ok AND b."Odd name" = 3').rows == 30
    assert len(reads) == 3


def test_a_compiled_sqlglot_is_refused(tmp_path: Path) -> None:
    """`sqlglot[c]` comes with other tools. Its classes take no further grammar."""
    program = (
        "import sqlglot.parsers.postgres as it; it.__file__ = 'postgres.cpython-311-x86_64-linux-gnu.so'\n"
        f"import nyala; nyala.open({str(tmp_path / 'store')!r}).sql('SELECT 1')"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "pip uninstall sqlglotc" in ran.stderr.splitlines()[-1]
    assert "InvalidArgumentError" in ran.stderr


def test_marks_in_a_list_of_rows_quote_nothing(db: Database) -> None:
    db.create_table("t", pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string())]), "k")
    db.sql("INSERT INTO t VALUES (?,'a'),(?,'b')", [1, 2])
    assert cells(db.sql("SELECT k, v FROM t ORDER BY k").to_arrow()) == [(1, "a"), (2, "b")]
