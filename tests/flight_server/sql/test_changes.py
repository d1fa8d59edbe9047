"""Changes and transactions over Flight SQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import adbc_driver_manager as manager
import pyarrow as pa
import pytest

import nyala
from tests.flight_server.sql.served_sql import SqlServer


def _rows(table: nyala.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.scan(["id", "city"], ordered=True).to_arrow().to_pylist()]


def test_counts_are_exact(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        for text, count in (
            ("INSERT INTO homes (id, city) VALUES (4, 'Alta'), (5, 'Oslo')", 2),
            ("UPDATE homes SET city = 'Bodo' WHERE city = 'Oslo'", 2),
            ("DELETE FROM homes WHERE id IN (SELECT max(id) FROM homes)", 1),
            ("DELETE FROM homes WHERE id = 99", 0),
            ("INSERT INTO homes (id) VALUES (1) ON CONFLICT DO NOTHING", 0),
            ("CREATE TABLE copy (PRIMARY KEY (id)) AS SELECT id, city FROM homes", 4),
            ("DROP TABLE copy", 0),
        ):
            cursor.execute(text)
            assert cursor.rowcount == count, text
    assert _rows(homes) == [(1, "Bodo"), (2, "Bergen"), (3, None), (4, "Alta")]


def test_a_change_that_is_sent_as_a_query_runs(served: SqlServer, homes: nyala.Table) -> None:
    import pyarrow.flight as fl

    from nyala.flight_server.sql import messages

    command = messages.wrapped("CommandStatementQuery", query="UPDATE homes SET city = 'x' WHERE id < 3")
    info = served.client.get_flight_info(fl.FlightDescriptor.for_command(command))
    assert _rows(homes)[0] == (1, "Oslo"), "it runs when its rows are asked for"
    assert served.client.do_get(info.endpoints[0].ticket).read_all().to_pylist() == [{"rows": 2}]
    assert _rows(homes)[0] == (1, "x")


def test_parameters_of_changes(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE homes SET city = ?, price = ? WHERE id = ?", ["it's", None, 2])
        assert cursor.rowcount == 1
        cursor.executemany(
            "INSERT INTO homes (id, city) VALUES (?, ?)", [(number, f"c{number}") for number in range(10, 1010)]
        )
        assert cursor.rowcount == 1000
        cursor.executemany("INSERT INTO homes (id, city) VALUES (?, ?)", [])
        cursor.executemany("DELETE FROM homes WHERE id = ?", [(number,) for number in range(10, 15)])
        assert cursor.rowcount == 5
        with pytest.raises(manager.Error, match="ALREADY_PRESENT"):
            cursor.executemany("INSERT INTO homes (id, city) VALUES (?, ?)", [(5000, "new"), (1, "there")])
    assert homes.get(5000) is None, "one statement, all or nothing"
    assert homes.get(2) == {"id": 2, "city": "it's", "price": None}
    assert homes.scan().count() == 3 + 1000 - 5


def test_a_transaction_is_one_commit(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO homes (id, city) VALUES (7, 'Alta')")
        assert homes.get(7) is None
        connection.commit()
        first = homes.get(7)
        assert first is not None and first["city"] == "Alta"
        cursor.execute("DELETE FROM homes WHERE id = 7")
        connection.rollback()
        assert homes.get(7) == first


def test_a_transaction_reads_at_its_begin(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) AS n FROM homes")
        assert cursor.fetchall() == [(3,)]
        homes.insert({"id": [50]})
        cursor.execute("SELECT count(*) AS n FROM homes")
        assert cursor.fetchall() == [(3,)]
        connection.commit()
        cursor.execute("SELECT count(*) AS n FROM homes")
        assert cursor.fetchall() == [(4,)]


def test_a_conflict_refuses_the_commit(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE homes SET city = 'mine' WHERE id = 1")
        homes.update({"id": [1], "city": ["theirs"]})
        with pytest.raises(manager.Error, match="CONFLICT"):
            connection.commit()
    assert _rows(homes)[0] == (1, "theirs")


def test_a_transaction_of_another_user_is_unknown(served: SqlServer, homes: nyala.Table) -> None:
    import pyarrow.flight as fl

    from nyala.flight_server.sql import messages

    body = messages.wrapped("ActionEndTransactionRequest", transaction_id=b"guessed", action=1)
    with pytest.raises(fl.FlightServerError, match="there is no such transaction"):
        list(served.client.do_action(fl.Action("EndTransaction", body)))


@pytest.fixture
def counter(served: SqlServer) -> Iterator[nyala.Table]:
    table = served.db.create_table("counter", primary_key="id", data=pa.table({"id": [1], "n": [0]}))
    yield table
    served.db.drop_table("counter")


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE counter SET n = n + 1 WHERE id = 1",
        "UPDATE counter SET n = (SELECT n + 1 FROM counter WHERE id = 1)",
        "INSERT INTO counter VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = counter.n + excluded.n",
    ],
)
def test_nobody_gives_up(served: SqlServer, counter: nyala.Table, text: str) -> None:
    threads, times = 6, 8

    def raise_it(_: int) -> None:
        with served.connected() as connection, connection.cursor() as cursor:
            for _ in range(times):
                cursor.execute(text)
                assert cursor.rowcount == 1

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(raise_it, range(threads)))
    assert counter.get(1) == {"id": 1, "n": threads * times}


def test_ddl_through_the_shell_of_a_driver(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, at timestamp, note varchar(5)) PARTITION BY HASH (id) INTO 3"
        )
        cursor.execute("ALTER TABLE t ADD COLUMN x double precision")
        cursor.execute("INSERT INTO t VALUES (1, TIMESTAMP '2026-01-02 03:04:05', 'a', 0.5)")
        cursor.execute("TRUNCATE t")
        assert served.db.table("t").scan().count() == 0
        assert [column.name for column in served.store.describe_table("t").columns] == ["id", "at", "note", "x"]
