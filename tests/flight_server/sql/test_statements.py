"""Statements over Flight SQL: queries, parameters, errors."""

from __future__ import annotations

from pathlib import Path

import adbc_driver_manager as manager
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nyala
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.store.grants import GrantChange, Privilege
from tests.flight_server.sql.served_sql import SqlServer


def test_a_query(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, city FROM homes ORDER BY id DESC")
        assert cursor.fetchall() == [(3, None), (2, "Bergen"), (1, "Oslo")]
        cursor.execute("SELECT city, count(*) AS n FROM homes GROUP BY city ORDER BY city NULLS LAST")
        assert cursor.fetch_arrow_table().to_pydict() == {"city": ["Bergen", "Oslo", None], "n": [1, 1, 1]}
        cursor.execute("SELECT id, city, id AS again FROM homes WHERE id = 2")
        assert cursor.fetchall() == [(2, "Bergen", 2)]
        cursor.execute("SELECT map(['city'], [city]) AS m, CASE WHEN id = 2 THEN 1 ELSE 2.5 END AS x FROM homes")
        assert (2.5, [("city", "Oslo")]) in [(x, m) for m, x in cursor.fetchall()]
        cursor.execute("SELECT id, city, id FROM homes WHERE id = 2")
        assert cursor.fetchall() == [(2, "Bergen", 2)]
        cursor.execute("SELECT id FROM homes WHERE id > 100")
        table = cursor.fetch_arrow_table()
        assert table.num_rows == 0 and table.schema.field("id").type == pa.int64()


@pytest.mark.parametrize("rows", [1, 10_000, 300_000])
def test_all_rows_arrive(served: SqlServer, homes: nyala.Table, rows: int) -> None:
    table = pa.table({"id": range(rows), "text": [f"row {number}" for number in range(rows)]})
    served.db.create_table("many", primary_key="id", data=table)
    with served.connected() as connection, connection.cursor() as cursor:
        for text in ("SELECT * FROM many", "SELECT id, text FROM many WHERE id >= 0 ORDER BY id"):
            cursor.execute(text)
            assert cursor.fetch_arrow_table().sort_by("id").equals(table)


def test_parameters(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM homes WHERE city = ? AND id < ?", ["Oslo", 9])
        assert cursor.fetchall() == [(1,)]
        cursor.execute("SELECT id FROM homes WHERE id IN ($2, $1) ORDER BY id", [3, 1])
        assert cursor.fetchall() == [(1,), (3,)]
        cursor.execute("SELECT ? AS x, ? AS y", [2.5, None])
        assert cursor.fetchall() == [(2.5, None)]
        for text in ("SELECT CASE WHEN id = 1 THEN 1 ELSE ? END", "SELECT coalesce(nullif(id, 2), ?), id"):
            cursor.execute(f"{text} FROM homes WHERE id = 2", [2.5])
            assert cursor.fetchall()[0][0] == 2.5, text


def test_parameters_of_several_rows(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        cursor.adbc_prepare("SELECT id, city FROM homes WHERE id = ?")
        cursor.execute("SELECT id, city FROM homes WHERE id = ?", pa.record_batch({"0": [2, 1, 7]}))
        assert cursor.fetchall() == [(2, "Bergen"), (1, "Oslo")]


def test_a_prepared_statement_runs_again(served: SqlServer, homes: nyala.Table) -> None:
    text = "SELECT count(*) AS n FROM homes WHERE id > ?"
    with served.connected() as connection, connection.cursor() as cursor:
        parameters = cursor.adbc_prepare(text)
        assert parameters is not None and parameters.types == [pa.int64()]
        for least, expected in ((0, 3), (1, 2), (9, 0)):
            cursor.execute(text, [least])
            assert cursor.fetchall() == [(expected,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT nope FROM homes", "there is no column 'nope'"),
        ("SELECT * FROM hoems", "there is no table 'hoems', perhaps 'homes'"),
        ("SELEC 1", "at line 1"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT city + 1 FROM homes WHERE id < ?", "text + bigint"),
        ("COPY homes TO '/tmp/x'", "not supported"),
        ("SELECT * FROM 'passwd.csv'", "there is no table 'passwd.csv'"),
    ],
)
def test_errors_say_what_is_wrong(served: SqlServer, homes: nyala.Table, text: str, message: str) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        with pytest.raises(manager.Error) as caught:
            cursor.execute(text)
            cursor.fetchall()
        assert message in str(caught.value)
        assert "datafusion" not in str(caught.value).lower() and "/" not in str(caught.value)
        cursor.execute("SELECT 1 + 0 AS one")
        assert cursor.fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("SELECT 1", True),
        ("SELECT -1 AS a, ('x') AS b, true AS c, NULL AS d", True),
        ("SELECT 1 + 0 AS a", False),
        ("SELECT 1 AS a WHERE false", False),
        ("SELECT 1 AS a LIMIT 0", False),
        ("SELECT random() < 2 AS a", False),
        ("SELECT count(*) AS n FROM homes WHERE length(city) > 0", False),
        (f"SELECT '{'x' * 300}' AS a", False),
    ],
)
def test_constants_need_no_child_again(
    served: SqlServer, homes: nyala.Table, text: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pools of connections ask for them to learn whether the server lives."""
    with served.connected() as connection:

        def answer() -> pa.Table:
            with connection.cursor() as cursor:  # a new one prepares the statement anew
                cursor.execute(text)
                return cursor.fetch_arrow_table()

        first, began = answer(), []
        statements = served.server.sql._statements  # pyright: ignore
        frames = statements.frames
        monkeypatch.setattr(statements, "frames", lambda *given: began.append(given) or frames(*given))
        assert answer().equals(first)
        assert (began == []) is is_kept
        with served.connected(autocommit=False) as within, within.cursor() as cursor:
            cursor.execute(text)
            assert cursor.fetch_arrow_table().equals(first)
            assert began, "a transaction has a child of its own"


def test_constants_take_no_parameters(served: SqlServer) -> None:
    one = pa.table({"0": [5]})
    with served.connected() as connection:
        for _ in range(2):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 AS a")
                assert cursor.fetchall() == [(1,)]
        with connection.cursor() as cursor, pytest.raises(manager.Error, match="0 parameters"):
            cursor.execute("SELECT 1 AS a", one)
            cursor.fetchall()


def test_pandas_and_polars(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection:
        frame = pd.read_sql("SELECT id, city FROM homes ORDER BY id", connection)
        assert frame["id"].tolist() == [1, 2, 3]
        read = pl.read_database("SELECT id, city FROM homes ORDER BY id", connection)
        assert read["city"].to_list() == ["Oslo", "Bergen", None]


DESCRIBED = [
    "SELECT * FROM many",
    "SELECT id, text FROM many ORDER BY id LIMIT 3",
    "SELECT text, count(*) AS n, sum(id) FROM many GROUP BY text",
    "SELECT count(*), sum(small), min(text) FROM many",
    "SELECT id % 10 AS k, count(*) FROM many GROUP BY id % 10",
    "SELECT small + small, id + 1, sum(id) OVER (ORDER BY id) FROM many",
    "SELECT a.id, b.text, row_number() OVER (ORDER BY a.id) FROM many a JOIN many b ON a.id = b.id + 1",
    "SELECT id FROM many WHERE id NOT IN (SELECT id FROM many WHERE id > 5)",
    "SELECT 1 AS one, 'a' AS text, true AS ok",
    "SELECT table_name, column_name, ordinal_position FROM information_schema.columns",
    "SHOW TABLES",
    "DESCRIBE many",
    "EXPLAIN SELECT id FROM many",
]


@pytest.mark.parametrize("leaf_bytes", [1 << 10, 256 << 20], ids=["streams", "at once"])
def test_an_answer_has_the_schema_that_was_described(leaf_bytes: int) -> None:
    served = SqlServer(sql_leaf_bytes=leaf_bytes)
    ids = pa.array(range(10_000))
    columns = {"id": ids, "small": ids.cast(pa.int16()), "text": [f"row {number % 7}" for number in range(10_000)]}
    schema = pa.schema([("id", pa.int64(), False), ("small", pa.int16(), False), ("text", pa.string(), False)])
    served.db.create_table("many", schema, "id").insert(pa.table(columns, schema=schema))
    try:
        with served.connected() as connection, connection.cursor() as cursor:
            for text in DESCRIBED:
                described = cursor.adbc_execute_schema(text)
                cursor.execute(text)  # the driver compares what the ticket gives with what the statement was said to
                assert cursor.fetch_arrow_table().schema == described, text
    finally:
        served.close()


def test_a_token_with_fewer_roles_reads_no_more_after_one_with_more(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    strong, weak = (create_token(file, "alice", roles)[0] for roles in (("team",), ()))
    served = SqlServer(Security(ServeOptions(tokens=file)), sql_places=1, user_share=1.0)
    served.db.create_table("notes", primary_key="id", data={"id": [1, 2], "secret": ["a", "b"]})
    read = [Privilege.READ]
    served.store.grant(GrantChange(role="team", table="notes", privileges=read))
    served.store.grant(GrantChange(user="alice", table="notes", privileges=read, columns=["id"]))
    text = "SELECT x.id, y.secret FROM notes x JOIN notes y ON x.id = y.id ORDER BY 1"
    try:
        with (
            served.connected(token=strong, autocommit=False) as stronger,
            served.connected(token=weak) as weaker,
            stronger.cursor() as cursor,
            weaker.cursor() as other,
        ):
            cursor.execute(text)
            assert cursor.fetchall() == [(1, "a"), (2, "b")]
            with pytest.raises(manager.Error, match="secret"):
                other.execute(text)
                other.fetchall()
            held = served.server.sql._statements._transactions  # pyright: ignore
            ((handle, transaction),) = held.items()
            with pytest.raises(InvalidArgumentError, match="made with a token of other roles"):
                held.get(handle, transaction.owner._replace(roles=frozenset()))
    finally:
        served.close()
