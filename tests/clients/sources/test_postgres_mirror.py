"""A mirror of PostgreSQL tables has their rows: after the copy, and after every kind of change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from nyala import AlreadyPresentError, ConflictError, InvalidArgumentError, NotFoundError, UnauthenticatedError
from nyala.clients.api.database import Database
from nyala.clients.sources.postgres import copying
from nyala.sources import POSITIONS, BatchLimits, Position
from nyala.sources.postgres import mirror

from .postgres_server import PASSWORD, PostgresServer
from .rows import of_postgres, of_store

CatchUp = Callable[..., Position]

TYPES = {
    "a_bool": ("boolean", ["true", "false"]),
    "a_small": ("smallint", ["-32768", "32767"]),
    "an_int": ("integer", ["-2147483648", "2147483647"]),
    "a_big": ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    "a_real": ("real", ["1.1", "'NaN'", "'-Infinity'", "3.4028235e38"]),
    "a_double": ("double precision", ["0.1", "'NaN'", "'Infinity'", "5e-324", "'-0'"]),
    "a_decimal": ("numeric(20,4)", ["1.5", "-9999999999999999.9999"]),
    "a_text": ("text", ["''", "'NULL'", "'a,\"b\"'", "E'line\\nand\\t\\\\tab'", "'\u00e6\u20ac'", "'\\.'"]),
    "a_varchar": ("varchar(10)", ["'abc'", "''"]),
    "a_char": ("char(4)", ["'ab'", "'abcd'"]),
    "a_date": ("date", ["'0001-01-01'", "'9999-12-31'"]),
    "a_time": ("time", ["'00:00:00'", "'23:59:59.999999'"]),
    "a_moment": ("timestamp", ["'1999-12-31 23:59:59.5'", "'0001-01-01 00:00:00'"]),
    "a_zoned": ("timestamptz", ["'2024-03-31 02:30:00+02'", "'2024-01-01 00:00:00-11:30'"]),
    "a_uuid": ("uuid", ["'6ecd8c99-4036-403d-bf84-cf8400f67836'"]),
    "a_json": ("json", ['\'{"b" : 1,  "a": [null]}\'']),
    "a_jsonb": ("jsonb", ["'{\"b\": 1}'", "'\"text\"'", "'null'"]),
    "some_bytes": ("bytea", ["'\\x00ff5c'", "''"]),
    "an_address": ("inet", ["'10.0.0.1/24'", "'10.0.0.1'"]),
    "a_network": ("cidr", ["'10.0.0.0/8'", "'10.0.0.1'"]),
    "a_number": ("oid", ["4294967295"]),
    "a_name": ("name", ["'pg'"]),
    "a_letter": ('"char"', ["'x'"]),
    "a_mood": ("mood", ["'sad'", "'ok'"]),
    "a_domain": ("small_number", ["3"]),
    "a_padded_domain": ("four_letters", ["'ab'"]),
    "a_moment_domain": ("moment", ["'2020-01-01 10:00:00.123456'"]),
    "some_ints": ("int[]", ["'{}'", "'{1,NULL,-3}'"]),
    "some_texts": ("text[]", ["'{}'", '\'{a,"b,c",NULL,"NULL","","q\\"\\\\\\\\"}\'', "'{x,y}'"]),
    "some_days": ("date[]", ["'{2020-01-01,NULL}'"]),
    "some_flags": ("boolean[]", ["'{t,f}'"]),
    "some_decimals": ("numeric(6,2)[]", ["'{1.5,-2.25}'"]),
    "some_moments": ("timestamp[]", ["'{2020-01-01 10:00:00.5}'"]),
}
CASTS = dict.fromkeys(("a_json", "a_jsonb", "a_uuid", "a_mood"), "text") | {"a_real": "float8"}
"""The types as which psycopg2 gives the values that the store has."""


def all_types(server: PostgresServer) -> str:
    """Create a table with a column of every type; return its columns as text where the store has text."""
    server.execute(
        "DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "DROP DOMAIN IF EXISTS small_number CASCADE; CREATE DOMAIN small_number AS integer CHECK (VALUE < 10)",
        "DROP DOMAIN IF EXISTS four_letters CASCADE; CREATE DOMAIN four_letters AS char(4)",
        "DROP DOMAIN IF EXISTS moment CASCADE; CREATE DOMAIN moment AS timestamp",
        f"CREATE TABLE things (id int PRIMARY KEY, {', '.join(f'{name} {kind}' for name, (kind, _) in TYPES.items())})",
    )
    return ", ".join(["id", *(f"{name}::{CASTS[name]}" if name in CASTS else name for name in TYPES)])


def type_rows(first: int) -> list[str]:
    """Return statements that insert each value of each type once, the other columns NULL."""
    values = [(name, value) for name, (_, choices) in TYPES.items() for value in choices]
    rows = [
        f"INSERT INTO things (id, {name}) VALUES ({first + at}, {value})" for at, (name, value) in enumerate(values)
    ]
    return [*rows, f"INSERT INTO things (id) VALUES ({first + len(rows)})"]


def test_every_type_comes_by_the_copy_and_by_the_stream(
    db: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    columns = all_types(source)
    source.execute(*type_rows(0))
    catch_up(db, "public.things")
    assert of_store(db, "things") == of_postgres(source, "things", columns)
    source.together(*type_rows(1000))
    catch_up(db, "public.things")
    rows = of_store(db, "things")
    assert rows == of_postgres(source, "things", columns)
    assert len(rows) == 2 * len(type_rows(0))


def test_changes_of_every_kind(db: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    source.execute(
        "CREATE TABLE orders (note text, id int, part int, price numeric(10,2), PRIMARY KEY (id, part))",
        "INSERT INTO orders SELECT 'n' || i, i, i % 3, i FROM generate_series(1, 100) i",
    )
    catch_up(db, "public.orders")
    assert db.table("orders").primary_key == ["id", "part"]
    source.execute(
        "INSERT INTO orders VALUES ('new', 200, 1, 1.5)",
        "UPDATE orders SET price = price + 1 WHERE id <= 50",
        "UPDATE orders SET id = id + 1000 WHERE id BETWEEN 10 AND 20",
        "DELETE FROM orders WHERE id BETWEEN 60 AND 70",
        "INSERT INTO orders VALUES ('again', 61, 1, NULL)",
    )
    source.together(
        "UPDATE orders SET note = 'first' WHERE id = 1",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES ('second', 1, 1, 7)",
        "UPDATE orders SET id = 5000 WHERE id = 1",
        "UPDATE orders SET id = 1 WHERE id = 5000",
        "UPDATE orders SET note = 'third' WHERE id = 1",
    )
    source.together("INSERT INTO orders VALUES ('gone', 300, 1, 1)", "DELETE FROM orders WHERE id = 300")
    catch_up(db, "public.orders")
    assert of_store(db, "orders", ["note", "id", "part", "price"]) == of_postgres(source, "orders")


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_large_values_that_an_update_leaves_stay(
    db: Database, source: PostgresServer, catch_up: CatchUp, identity: str
) -> None:
    source.execute(
        "CREATE TABLE texts (id int PRIMARY KEY, number int, long text, other text)",
        "ALTER TABLE texts ALTER COLUMN long SET STORAGE EXTERNAL, ALTER COLUMN other SET STORAGE EXTERNAL",
        f"ALTER TABLE texts REPLICA IDENTITY {identity}",
        "INSERT INTO texts SELECT i, i, repeat(i::text, 9000), repeat('x', 9000) FROM generate_series(1, 9) i",
    )
    catch_up(db, "public.texts")
    source.execute("UPDATE texts SET number = 10 WHERE id = 1", "UPDATE texts SET other = 'short' WHERE id = 2")
    source.execute("UPDATE texts SET id = 103 WHERE id = 3")  # its large values are in the store alone
    source.together(
        "UPDATE texts SET long = repeat('new', 5000) WHERE id = 4",
        "UPDATE texts SET id = 104 WHERE id = 4",
        "UPDATE texts SET id = 204 WHERE id = 104",
        "UPDATE texts SET number = -1 WHERE id = 204",
    )
    source.together(
        "DELETE FROM texts WHERE id = 5",
        "INSERT INTO texts VALUES (5, 0, repeat('back', 5000), NULL)",
        "UPDATE texts SET number = 1 WHERE id = 5",
        "UPDATE texts SET id = 6, number = 2 WHERE id = 5 AND false",
    )
    catch_up(db, "public.texts")
    assert of_store(db, "texts") == of_postgres(source, "texts")


def test_truncate_empties_the_table_in_its_commit(db: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    source.execute(
        "CREATE TABLE a (id int PRIMARY KEY, n int)", "INSERT INTO a SELECT i, i FROM generate_series(1, 9) i"
    )
    catch_up(db, "public.a")
    source.together("INSERT INTO a VALUES (10, 1)", "TRUNCATE a", "INSERT INTO a VALUES (1, 100), (11, 2)")
    source.execute("UPDATE a SET n = 3 WHERE id = 11")
    catch_up(db, "public.a")
    assert of_store(db, "a") == of_postgres(source, "a") == [(1, 100), (11, 3)]


def test_names_that_need_quotes(db: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    source.execute(
        'CREATE TABLE "Odd ""Name" ("Key" int PRIMARY KEY, "a,b" text)', 'INSERT INTO "Odd ""Name" VALUES (1, \'x\')'
    )
    name = 'public."Odd ""Name"'
    mirror(db, source.url, {name: "odd"}, until_caught_up=True)
    source.execute('UPDATE "Odd ""Name" SET "a,b" = \'y\'')
    mirror(db, source.url, {name: "odd"}, until_caught_up=True)
    assert db.table("odd").scan().to_arrow().to_pylist() == [{"Key": 1, "a,b": "y"}]


def test_a_large_transaction_comes_in_parts_and_is_one_commit(
    db: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY, n int)", "CREATE TABLE b (id int PRIMARY KEY, n int)")
    catch_up(db, "public.a", "public.b")
    before = db.now()
    source.together(
        "INSERT INTO a SELECT i, i FROM generate_series(1, 5000) i",
        "INSERT INTO b SELECT i, i FROM generate_series(1, 5000) i",
        "UPDATE a SET n = -n WHERE id % 2 = 0",
        "DELETE FROM b WHERE id > 2500",
    )
    tables = ["public.a", "public.b"]
    mirror(db, source.url, tables, until_caught_up=True, limits=BatchLimits(rows=1000))
    assert of_store(db, "a") == of_postgres(source, "a")
    assert of_store(db, "b") == of_postgres(source, "b")
    commits = db.commits("a", since=before)["timestamp"].to_pylist()
    assert len(commits) == 1 and commits == db.commits("b", since=before)["timestamp"].to_pylist()


def test_the_position_is_told_and_the_password_is_not(db: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    catch_up(db, "public.a")
    source.execute("INSERT INTO a VALUES (2)")
    position = catch_up(db, "public.a")
    [row] = db.table(POSITIONS).scan().to_arrow().to_pylist()
    assert (row["source"], row["state"], row["position"]) == ("postgres", "following", position.position)
    assert 0 <= (row["applied_at"] - row["source_time"]).total_seconds() < 60 and row["behind_bytes"] is not None
    assert PASSWORD not in str(row)


def test_only_what_is_committed_here_is_confirmed_there(
    db: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE other (id int)")
    catch_up(db, "public.a")
    source.execute("INSERT INTO a VALUES (2)")
    position = catch_up(db, "public.a").position
    source.execute("INSERT INTO other SELECT generate_series(1, 1000)")
    catch_up(db, "public.a")
    [(is_not_beyond,)] = source.execute(f"SELECT confirmed_flush_lsn <= '{position}' FROM pg_replication_slots")
    assert is_not_beyond


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TABLE a (id int)", "no primary key"),
        ("CREATE TABLE a (id int PRIMARY KEY); ALTER TABLE a REPLICA IDENTITY NOTHING", "REPLICA IDENTITY DEFAULT"),
        ("CREATE VIEW a AS SELECT 1 AS id", "not a plain table"),
        ("CREATE UNLOGGED TABLE a (id int PRIMARY KEY)", "SET LOGGED"),
        ("CREATE TABLE a (id int PRIMARY KEY, p point)", "public.a: column 'p' has the type point"),
        ("CREATE TABLE a (id int PRIMARY KEY, n numeric)", "numeric(18,4)"),
        ("CREATE TABLE a (id int PRIMARY KEY, n interval)", "interval"),
        ("CREATE TABLE a (id float8 PRIMARY KEY)", "primary key has the type double"),
    ],
)
def test_tables_that_cannot_be_mirrored_are_refused_up_front(
    embedded: Database, source: PostgresServer, catch_up: CatchUp, statement: str, words: str
) -> None:
    source.execute(statement)
    with pytest.raises(InvalidArgumentError, match=words.replace("(", r"\(").replace(")", r"\)")):
        catch_up(embedded, "public.a")
    assert "a" not in embedded.tables()
    assert source.execute("SELECT count(*) FROM pg_replication_slots") == [(0,)]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_deferrable_key_is_refused(
    embedded: Database, source: PostgresServer, catch_up: CatchUp, identity: str
) -> None:
    source.execute(
        "CREATE TABLE a (id int PRIMARY KEY DEFERRABLE, n int)",
        "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)",
        f"ALTER TABLE a REPLICA IDENTITY {identity}",
    )
    with pytest.raises(InvalidArgumentError, match="DEFERRABLE primary key"):
        catch_up(embedded, "public.a")
    assert source.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    source.execute("UPDATE a SET id = id + 1")  # a publication would refuse it


def test_a_table_that_is_not_there(embedded: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    with pytest.raises(NotFoundError, match=r"public\.nowhere"):
        catch_up(embedded, "public.nowhere")


def test_errors_of_the_connection_do_not_have_the_password(embedded: Database, source: PostgresServer) -> None:
    wrong = source.url.replace("very", "wrong-word")
    with pytest.raises(UnauthenticatedError) as error:
        mirror(embedded, wrong, ["public.a"])
    assert "wrong-word" not in str(error.value) and "secret" not in str(error.value)
    with pytest.raises(InvalidArgumentError) as invalid:
        mirror(embedded, "postgresql://me:very%secret@[x", ["public.a"])
    assert "secret" not in str(invalid.value)


def test_rows_that_are_here_already_are_not_touched(
    embedded: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY)")
    embedded.create_table("a", data={"id": [7]}, primary_key="id")
    with pytest.raises(AlreadyPresentError, match="--as"):
        catch_up(embedded, "public.a")
    assert of_store(embedded, "a") == [(7,)]


def test_other_tables_need_another_mirror(embedded: Database, source: PostgresServer, catch_up: CatchUp) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    catch_up(embedded, "public.a")
    with pytest.raises(InvalidArgumentError, match=r"public\.a as a"):
        catch_up(embedded, "public.a", "public.b")
    mirror(embedded, source.url, ["public.b"], source="second", until_caught_up=True)
    assert {row["source"] for row in embedded.table(POSITIONS).scan().to_arrow().to_pylist()} == {"postgres", "second"}


def test_a_value_without_a_place_stops_and_loses_nothing(
    embedded: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY, n numeric(5,2), d date)")
    catch_up(embedded, "public.a")
    source.execute("INSERT INTO a VALUES (1, 1, NULL)")
    catch_up(embedded, "public.a")
    source.execute("INSERT INTO a VALUES (2, 'NaN', NULL)")
    with pytest.raises(ConflictError, match="'n' does not fit the type decimal"):
        catch_up(embedded, "public.a")
    assert len(of_store(embedded, "a")) == 1
    source.execute("UPDATE a SET n = 0, d = 'infinity' WHERE id = 2")
    with pytest.raises(ConflictError, match="'d' does not fit the type date"):
        catch_up(embedded, "public.a", again=True)
    source.execute("UPDATE a SET d = '2020-01-01' WHERE id = 2")
    catch_up(embedded, "public.a", again=True)
    assert of_store(embedded, "a") == of_postgres(source, "a")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"])
def test_a_copy_refuses_moments_that_the_store_does_not_have(
    embedded: Database, source: PostgresServer, catch_up: CatchUp, kind: str, value: str
) -> None:
    source.execute(f"CREATE TABLE a (id int PRIMARY KEY, d {kind})", "INSERT INTO a VALUES (1, NULL), (2, now())")
    source.execute(f"INSERT INTO a VALUES (3, '{value}')")
    with pytest.raises(ConflictError, match=r"'d' does not fit the type .*between 1 and 9999"):
        catch_up(embedded, "public.a")
    source.execute("UPDATE a SET d = '9999-12-31' WHERE id = 3", "INSERT INTO a VALUES (4, '0001-01-01')")
    catch_up(embedded, "public.a")
    assert of_store(embedded, "a") == of_postgres(source, "a")


def test_a_copy_whose_connections_end_begins_again(
    embedded: Database, source: PostgresServer, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY, n text)")
    source.execute("INSERT INTO a SELECT i, 'text ' || i FROM generate_series(1, 20000) i", "VACUUM a")
    monkeypatch.setattr(copying, "PART_BYTES", 100_000)
    statement, calls = copying._statement, count()

    def cut(*arguments: Any) -> str:
        if next(calls) == 3:
            source.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nyala mirror' "
                "AND state = 'idle in transaction'"
            )
        return statement(*arguments)

    monkeypatch.setattr(copying, "_statement", cut)
    catch_up(embedded, "public.a")
    assert of_store(embedded, "a") == of_postgres(source, "a")
    assert next(calls) == 20, "ten parts, twice"


def test_a_second_mirror_of_the_slot_stops(
    embedded: Database, source: PostgresServer, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.clients.sources.postgres.slot._LOCK_SECONDS", 0.5)
    source.execute("CREATE TABLE a (id int PRIMARY KEY)")
    catch_up(embedded, "public.a")
    [(slot,)] = source.execute("SELECT slot_name FROM pg_replication_slots")
    with source.connection() as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (slot,))
        with pytest.raises(ConflictError, match="another process runs this mirror"):
            catch_up(embedded, "public.a")
    catch_up(embedded, "public.a")


def test_a_table_that_is_described_again_between_its_rows(
    embedded: Database, source: PostgresServer, catch_up: CatchUp
) -> None:
    source.execute(
        "CREATE TABLE a (id int PRIMARY KEY, n int, long text)",
        "ALTER TABLE a ALTER COLUMN long SET STORAGE EXTERNAL",
        "INSERT INTO a SELECT i, i, repeat('x', 9000) FROM generate_series(1, 9) i",
    )
    catch_up(embedded, "public.a")
    before = embedded.now()
    source.execute("UPDATE a SET id = 101 WHERE id = 1", "ANALYZE a", "VACUUM a")
    source.execute("UPDATE a SET id = 102 WHERE id = 2", "UPDATE a SET id = 201 WHERE id = 101")
    catch_up(embedded, "public.a")
    assert of_store(embedded, "a") == of_postgres(source, "a")
    assert len(embedded.commits("a", since=before)) == 1  # all in one batch: nothing failed in between
