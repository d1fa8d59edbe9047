"""Tables of PostgreSQL whose columns, keys and slots change while they are mirrored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Thread, Timer
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala import AlreadyPresentError, ConflictError, NotFoundError
from nyala.clients.api.database import Database
from nyala.clients.sources.positions import State
from nyala.clients.sources.postgres.connection import Dsn
from nyala.clients.sources.postgres.postgres_source import PostgresSource
from nyala.sources import Position, Progress

from .postgres_server import PostgresServer
from .rows import of_postgres, of_store

CatchUp = Callable[..., Position]


@pytest.fixture
def orders(embedded: Database, source: PostgresServer, catch_up: CatchUp) -> Database:
    """A store that mirrors a table of three rows."""
    source.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note varchar(5), amount int, price numeric(6,2))",
        "INSERT INTO orders VALUES (1, 'a', 1, 1), (2, 'b', 2, 2), (3, 'c', 3, 3)",
    )
    catch_up(embedded, "public.orders")
    return embedded


def test_columns_that_are_added_and_widened_are_followed(
    orders: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute("UPDATE orders SET amount = 10 WHERE id = 1", "ALTER TABLE orders ADD COLUMN city text")
    source.execute("INSERT INTO orders VALUES (4, 'd', 4, 4, 'Oslo')", "UPDATE orders SET city = 'Bonn' WHERE id = 2")
    source.execute("ALTER TABLE orders ALTER COLUMN amount TYPE bigint, ALTER COLUMN price TYPE numeric(9,2)")
    source.execute("ALTER TABLE orders ALTER COLUMN note TYPE text")
    source.execute("INSERT INTO orders VALUES (5, 'longer than five', 5000000000, 1234567.5, NULL)")
    source.execute("ALTER TABLE orders ADD COLUMN rank int NOT NULL DEFAULT 7, ADD COLUMN tag text DEFAULT 'x,\"y\"'")
    source.execute("UPDATE orders SET rank = 8 WHERE id = 1")
    catch_up(orders, "public.orders")
    assert of_store(orders, "orders") == of_postgres(source, "orders")
    assert [str(field.type) for field in orders.table("orders").schema][2:4] == ["int64", "decimal128(9, 2)"]


def test_a_column_that_is_added_within_a_transaction(
    orders: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.together(
        "INSERT INTO orders VALUES (10, 'x', 1, 1)",
        "ALTER TABLE orders ADD COLUMN city text",
        "UPDATE orders SET city = 'Oslo' WHERE id IN (1, 10)",
        "DELETE FROM orders WHERE id = 2",
    )
    catch_up(orders, "public.orders")
    assert of_store(orders, "orders") == of_postgres(source, "orders")


def test_a_dropped_column_stays_with_its_values(orders: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    source.execute("ALTER TABLE orders DROP COLUMN note", "INSERT INTO orders VALUES (4, 4, 4)")
    source.execute("UPDATE orders SET amount = 5 WHERE id = 1")
    source.together("DELETE FROM orders WHERE id = 2", "INSERT INTO orders VALUES (2, 22, 22)")
    catch_up(orders, "public.orders")
    rows = {row["id"]: row for row in orders.table("orders").scan().to_arrow().to_pylist()}
    assert [rows[number]["note"] for number in (1, 2, 3, 4)] == ["a", None, "c", None]
    assert of_store(orders, "orders", ["id", "amount", "price"]) == of_postgres(source, "orders")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE orders RENAME COLUMN amount TO count", "'amount' was renamed to 'count'"),
        ("ALTER TABLE orders ALTER COLUMN amount TYPE text USING amount::text", "'amount' got another type"),
        ("ALTER TABLE orders ALTER COLUMN price TYPE numeric(9,3)", "'price' got another type"),
        ("ALTER TABLE orders ALTER COLUMN id TYPE bigint", "'id' of the primary key became int64"),
        ("ALTER TABLE orders DROP COLUMN amount, ADD COLUMN amount int", "dropped, and another column has its name"),
        ("ALTER TABLE orders ADD COLUMN at timestamptz DEFAULT clock_timestamp()", "a default that differs between"),
        (
            "CREATE DOMAIN stamp AS time DEFAULT clock_timestamp(); ALTER TABLE orders ADD COLUMN at stamp",
            "a default that differs between",
        ),
        ("ALTER TABLE orders ADD COLUMN place point", "point"),
        (
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, price)",
            "key (id, price), not (id)",
        ),
    ],
)
def test_other_changes_stop_with_all_rows_before_and_a_new_copy_goes_on(
    orders: Database, source: PostgresServer, catch_up: CatchUp, statement: str, words: str
) -> None:
    source.execute("INSERT INTO orders (id, price) VALUES (4, 0)")
    before = of_postgres(source, "orders")
    source.execute(statement, "INSERT INTO orders (id, price) VALUES (5, 0)")
    for _ in range(2):  # the second run finds the position where the first one left it
        with pytest.raises(ConflictError, match="--again") as error:
            catch_up(orders, "public.orders")
        assert words in str(error.value)
        # The catalog, which is ahead of the stream, tells of a column that came again before the stream does.
        assert of_store(orders, "orders") == (before[:-1] if "DROP COLUMN" in statement else before)
    if "point" in statement:
        source.execute("ALTER TABLE orders DROP COLUMN place")
    catch_up(orders, "public.orders", again=True)
    source.execute("UPDATE orders SET price = 9 WHERE id = 5")
    catch_up(orders, "public.orders")
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0"
    names = [name for (name,) in source.execute(f"{columns} AND NOT attisdropped ORDER BY attnum")]
    assert of_store(orders, "orders", names) == of_postgres(source, "orders")


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["RENAME note TO text", None, "RENAME text TO note"], "'note' was renamed"),
        (["RENAME note TO text", None, "RENAME text TO word"], "'note' was renamed"),
        (["RENAME note TO text", None, "RENAME text TO note, ADD text text"], "'note' was renamed"),
        (["ADD city text", None, "RENAME city TO town"], "'city' was renamed to 'town'"),
        (["ADD city text", None, "RENAME city TO town", None, "RENAME town TO city"], "'city' was renamed"),
        (["ADD x text", "DROP x", "ADD city text", None, "RENAME city TO town"], "'city' was renamed to 'town'"),
        (["ADD city text", None, "DROP city", "ADD city text"], "'city' was dropped, and another column"),
        (["ADD city text", None, "DROP city", "ADD city text DEFAULT 'Oslo'", None], "'city' was dropped, and another"),
    ],
)
def test_a_column_that_was_renamed_before_the_stream_is_read_stops(
    orders: Database, source: PostgresServer, catch_up: CatchUp, statements: list[str | None], words: str
) -> None:
    for number, statement in enumerate(statements, 4):
        for each in [f"INSERT INTO orders VALUES ({number}, 'n')"] if statement is None else statement.split(", "):
            source.execute(each if statement is None else f"ALTER TABLE orders {each}")
    source.execute("INSERT INTO orders VALUES (10, 'j', 10, 10)")
    with pytest.raises(ConflictError, match=f"{words}.*--again"):
        catch_up(orders, "public.orders")
    assert not {(None,), ("j",)} & set(of_store(orders, "orders", ["note"])), "nothing after the first such row"


def test_a_generated_column_that_becomes_a_plain_one_stops(
    embedded: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    source.execute("INSERT INTO a VALUES (1)")
    catch_up(embedded, "public.a")
    source.execute("ALTER TABLE a ALTER COLUMN twice DROP EXPRESSION", "INSERT INTO a VALUES (2, 4)")
    with pytest.raises(ConflictError, match=r"'twice' is not new.*--again"):
        catch_up(embedded, "public.a")
    catch_up(embedded, "public.a", again=True)
    source.execute("INSERT INTO a VALUES (3, 7)", "ALTER TABLE a ADD COLUMN b int", "UPDATE a SET b = 1")
    catch_up(embedded, "public.a")
    assert of_store(embedded, "a") == of_postgres(source, "a")


def test_columns_that_were_dropped_before_the_stream_is_read_are_followed(
    orders: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    for statement in ("ADD a text", "ADD b text", "DROP a", "DROP note"):
        source.execute(f"ALTER TABLE orders {statement}", "UPDATE orders SET amount = amount + 1")
    source.execute("UPDATE orders SET b = 'x'")
    catch_up(orders, "public.orders")
    assert of_store(orders, "orders", ["id", "amount", "price", "b"]) == of_postgres(source, "orders")


def test_columns_that_were_dropped_at_once_are_not_taken_for_others(
    orders: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    for statement in ("ADD x text", "DROP x", "ADD a text", "ADD y int", "DROP y", "ADD b text"):
        source.execute(f"ALTER TABLE orders {statement}")
    source.execute("UPDATE orders SET a = 'a', b = 'b' WHERE id = 1", "ALTER TABLE orders DROP a")
    source.execute("UPDATE orders SET b = 'x' WHERE id = 2")
    catch_up(orders, "public.orders")
    assert of_store(orders, "orders", ["id", "note", "amount", "price", "b"]) == of_postgres(source, "orders")
    assert orders.table("orders").get(1)["a"] == "a"  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize(
    ("options", "default", "follows"),
    [
        ({}, "", True),
        ({}, " DEFAULT 'x'", False),
        ({"read_default": "x", "write_default": "x"}, " DEFAULT 'x'", True),
        ({"read_default": "x", "write_default": "y"}, " DEFAULT 'x'", False),
        ({"write_default": "y"}, "", False),
    ],
)
def test_a_column_that_the_store_has_before_the_source(
    embedded: Database,
    source: PostgresServer,
    catch_up: CatchUp,
    options: dict[str, str],
    default: str,
    follows: bool,
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("note", pa.string())])
    embedded.create_table("a", schema, "id", column_options={"note": options} if options else None)
    catch_up(embedded, "public.a")
    source.execute("INSERT INTO a VALUES (2)", f"ALTER TABLE a ADD note text{default}", "INSERT INTO a VALUES (3, 'z')")
    if follows:
        catch_up(embedded, "public.a")
        assert of_store(embedded, "a") == of_postgres(source, "a")
    else:
        with pytest.raises(ConflictError, match=r"already has a column 'note'.*--again"):
            catch_up(embedded, "public.a")


@pytest.mark.parametrize(
    ("change", "key"), [("ADD PRIMARY KEY (amount)", "amount"), ("ADD PRIMARY KEY (id) DEFERRABLE", "id"), ("", "")]
)
def test_another_key_of_a_table_that_tells_whole_rows_stops(
    orders: Database, source: PostgresServer, catch_up: CatchUp, change: str, key: str
) -> None:
    source.execute("ALTER TABLE orders REPLICA IDENTITY FULL", "UPDATE orders SET note = 'x' WHERE id = 1")
    catch_up(orders, "public.orders")
    before = of_store(orders, "orders")
    assert before == of_postgres(source, "orders")
    source.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey" + (change and f", {change}"))
    source.execute("INSERT INTO orders VALUES (4, 'd', 5, 5)", "UPDATE orders SET price = 7 WHERE id = 1")
    with pytest.raises(ConflictError, match=rf"key \({key}\)"):
        catch_up(orders, "public.orders")
    assert of_store(orders, "orders") == before


def test_a_new_copy_keeps_partitions_and_refuses_other_tables_up_front(
    embedded: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 100)")
    source.execute("CREATE TABLE b (id int PRIMARY KEY)")
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    embedded.create_table("a", schema, "id", partition_by=[nyala.partition.hash("id", buckets=3)])
    catch_up(embedded, "public.a")
    embedded.create_table("b", data={"id": [1]}, primary_key="id")
    with pytest.raises(AlreadyPresentError, match="'b' already exists and has rows"):
        catch_up(embedded, "public.a", "public.b", again=True)
    source.execute("DELETE FROM a WHERE id = 1")
    catch_up(embedded, "public.a")  # the mirror is as it was
    assert embedded.table("a").count() == 99
    catch_up(embedded, "public.a", again=True)
    assert embedded.table("a").count() == 99 and len(embedded.table("a").tablets()) == 3


def test_a_lost_slot_stops_and_a_new_copy_goes_on(orders: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    [(slot,)] = source.execute("SELECT slot_name FROM pg_replication_slots")
    before = of_store(orders, "orders")
    source.execute(f"SELECT pg_drop_replication_slot('{slot}')", "DELETE FROM orders WHERE id = 1")
    with pytest.raises(NotFoundError, match=r"was dropped, so the changes since.*--again"):
        catch_up(orders, "public.orders")
    assert of_store(orders, "orders") == before
    catch_up(orders, "public.orders", again=True)
    assert of_store(orders, "orders") == of_postgres(source, "orders")
    assert source.execute("SELECT count(*) FROM pg_publication") == [(1,)]


def test_a_slot_that_another_reader_moved_stops(orders: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    [(slot,)] = source.execute("SELECT slot_name FROM pg_replication_slots")
    source.execute("DELETE FROM orders WHERE id = 1")
    source.execute(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    with pytest.raises(ConflictError, match=r"beyond the commit.*--again"):
        catch_up(orders, "public.orders")


def test_a_table_that_is_dropped_stops(orders: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    source.execute("DROP TABLE orders")
    with pytest.raises(NotFoundError, match=r"public\.orders was dropped"):
        catch_up(orders, "public.orders")


def test_a_table_that_is_dropped_here_stops(orders: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    orders.drop_table("orders")
    with pytest.raises(NotFoundError, match=r"which mirrors public\.orders.*--again"):
        catch_up(orders, "public.orders")
    catch_up(orders, "public.orders", again=True)
    assert of_store(orders, "orders") == of_postgres(source, "orders")


def copied(reports: list[Progress]) -> int:
    """Return how many rows the last copy had."""
    return [report.rows for report in reports if report.state is State.COPYING][-1]


@pytest.mark.parametrize("statement", ["ALTER TABLE orders ALTER COLUMN amount TYPE bigint", "TRUNCATE orders"])
def test_a_table_that_is_rewritten_while_others_are_copied(
    orders: Database, source: PostgresServer, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    begun = PostgresSource.snapshot
    writer = Thread(target=source.execute, args=(statement, "INSERT INTO orders VALUES (4, 'd', 4, 4)"))

    @contextmanager
    def slow(*arguments: Any) -> Iterator[Any]:
        with begun(*arguments) as snapshot:
            writer.start()
            while writer.is_alive() and not source.execute("SELECT 1 FROM pg_locks WHERE NOT granted"):
                time.sleep(0.01)
            yield snapshot

    monkeypatch.setattr(PostgresSource, "snapshot", slow)
    reports: list[Progress] = []
    catch_up(orders, "public.orders", again=True, reports=reports)
    writer.join()
    assert copied(reports) == 3, "the rows at the moment of the copy"
    catch_up(orders, "public.orders")
    assert of_store(orders, "orders") == of_postgres(source, "orders")


def test_a_table_that_is_rewritten_as_its_copy_begins_is_copied_again(
    orders: Database, source: PostgresServer, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, calls = Dsn.connect_for_rows, count()

    def late(dsn: Dsn) -> Any:
        if next(calls) == 0:  # the snapshot is there, and no lock yet
            source.execute("TRUNCATE orders", "INSERT INTO orders VALUES (4, 'd', 4, 4)")
        return connect(dsn)

    monkeypatch.setattr(Dsn, "connect_for_rows", late)
    reports: list[Progress] = []
    catch_up(orders, "public.orders", again=True, reports=reports)
    assert copied(reports) == 1, "an old snapshot sees no row of a table that was truncated"
    assert of_store(orders, "orders") == of_postgres(source, "orders")


def test_a_copy_does_not_wait_for_ever_for_its_locks(
    orders: Database, source: PostgresServer, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.clients.sources.postgres.copying.LOCK_SECONDS", 1)
    connect, calls = Dsn.connect_for_rows, count()
    with source.connection() as other, other.cursor() as cursor:
        end = Timer(2.0, cursor.execute, ["ROLLBACK"])

        def late(dsn: Dsn) -> Any:
            if next(calls) == 0:
                cursor.execute("BEGIN; LOCK TABLE orders")
                end.start()
            return connect(dsn)

        monkeypatch.setattr(Dsn, "connect_for_rows", late)
        reports: list[Progress] = []
        catch_up(orders, "public.orders", again=True, reports=reports)
        end.join()
    assert any("lock timeout" in report.note for report in reports)
    assert of_store(orders, "orders") == of_postgres(source, "orders")
