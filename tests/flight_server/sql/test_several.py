"""Flight SQL where several servers or processes share the tables, and where a process only follows a store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager as manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql.dbapi import Connection, Cursor

import nyala
from nyala.clients.flight.credentials import Credentials, TokenFile
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.settings.settings import ServeOptions
from nyala.flight_server.sql.front import SqlFront
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.placement import Placement, ServerIdentity
from tests.clients.cluster.processes_server import ProcessesServer, children_of
from tests.doubles.ports import free_port
from tests.flight_server.both import Both

CREATE = "CREATE TABLE homes (id bigint PRIMARY KEY, city text, price numeric(9,2)) PARTITION BY HASH (id) INTO 4"


class Pair:
    """Two servers that share their tables and ask who calls. The first one answers Flight SQL."""

    def __init__(self, folder: Path) -> None:
        tokens = folder / "tokens.json"
        self.root, self.alice = create_token(tokens, "root", ("admin",))[0], create_token(tokens, "alice")[0]
        (folder / "secret").write_text(create_token(tokens, "server", ("admin",))[0])
        placement = Placement(servers={name: (f"grpc://127.0.0.1:{free_port()}",) for name in "ab"})
        self.urls = [placement.servers[name][0] for name in "ab"]
        self.gateways = [
            Gateway(
                Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", placement=placement, server=name)),
                ServerIdentity(placement, name),
                Credentials.of(TokenFile(folder / "secret")),
            )
            for name in "ab"
        ]
        self.servers = [
            FlightServer(
                cast(StoreService, gateway),
                url,
                ServerConfig(sql=sql is not None),
                Security(ServeOptions(tokens=tokens)),
                sql=sql,
            )
            for gateway, url, sql in zip(self.gateways, self.urls, (SqlFront, None), strict=True)
        ]

    def connected(self, token: str, autocommit: bool = True) -> Connection:
        known = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
        return adbc.connect(self.urls[0], db_kwargs=known, autocommit=autocommit)

    def close(self) -> None:
        for server in self.servers:
            server.shutdown()
        for gateway in self.gateways:
            gateway.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    yield pair
    pair.close()


def _run(cursor: Cursor, text: str) -> list[tuple[object, ...]]:
    cursor.execute(text)
    return cursor.fetchall()


def _changed(cursor: Cursor, text: str) -> int:
    cursor.execute(text)
    return cursor.rowcount


def _check_changes(cursor: Cursor) -> None:
    """Make a table whose rows are on several servers, change all of them, and read them again."""
    assert _changed(cursor, CREATE) == 0
    rows = ", ".join(f"({number}, 'city {number % 3}', {number}.25)" for number in range(40))
    assert _changed(cursor, f"INSERT INTO homes VALUES {rows}") == 40
    cursor.executemany("INSERT INTO homes (id, city) VALUES (?, ?)", [(number, "many") for number in range(40, 60)])
    assert cursor.adbc_ingest("homes", pa.table({"id": range(60, 80)}), mode="append") == 20
    assert _changed(cursor, "UPDATE homes SET price = price + 1 WHERE id < 40") == 40
    assert _changed(cursor, "UPDATE homes SET city = (SELECT max(city) FROM homes) WHERE id >= 70") == 10
    assert _changed(cursor, "DELETE FROM homes WHERE id >= 75") == 5
    upsert = "INSERT INTO homes (id, city) VALUES (1, 'x'), (2, 'x'), (3, 'x'), (99, 'x') ON CONFLICT (id) DO UPDATE"
    assert _changed(cursor, f"{upsert} SET city = excluded.city") == 4
    assert _run(cursor, "SELECT count(*) AS n, max(id) AS id FROM homes") == [(76, 99)]
    joined = "SELECT count(*) AS n FROM homes a JOIN homes b ON a.id = b.id + 1"
    assert _run(cursor, joined) == [(74,)]
    grouped = "SELECT city, count(*) AS n FROM homes WHERE city IN ('x', 'many') GROUP BY city ORDER BY city"
    assert _run(cursor, grouped) == [("many", 25), ("x", 4)]
    assert _run(cursor, "SHOW TABLES") == [("homes",)]
    with pytest.raises(manager.Error, match="several servers share the tables"):
        cursor.adbc_ingest("homes", pa.table({"id": [1]}), mode="replace")


def _check_transactions(autocommitted: Cursor, connection: Connection) -> None:
    with connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO homes (id) VALUES (100), (101), (102), (103)")
        assert _run(autocommitted, "SELECT count(*) AS n FROM homes WHERE id >= 100") == [(0,)]
        connection.commit()
        assert _run(autocommitted, "SELECT count(*) AS n FROM homes WHERE id >= 100") == [(4,)]
        cursor.execute("DELETE FROM homes WHERE id >= 100")
        connection.rollback()
        assert _run(autocommitted, "SELECT count(*) AS n FROM homes WHERE id >= 100") == [(4,)]


def test_statements_change_the_rows_of_all_servers(pair: Pair) -> None:
    with pair.connected(pair.root) as connection, connection.cursor() as cursor:
        _check_changes(cursor)
        _check_transactions(cursor, pair.connected(pair.root, autocommit=False))
        with nyala.connect(pair.urls[1], token=pair.root) as db:
            assert {place.server for place in db.table("homes").tablets()} == {"a", "b"}
            assert db.table("homes").scan().count() == 80
            cursor.execute("ALTER TABLE homes ADD COLUMN note text DEFAULT 'new'")
            assert _run(cursor, "SELECT note, count(*) AS n FROM homes GROUP BY note") == [("new", 80)]
            with pytest.raises(manager.Error, match=r"ALREADY_PRESENT.* rows of other servers were changed"):
                cursor.execute("INSERT INTO homes (id) VALUES (1), " + ", ".join(f"({id})" for id in range(200, 220)))
            cursor.execute("TRUNCATE homes")
            assert db.table("homes").scan().count() == 0
            cursor.execute("DROP TABLE homes")
            assert db.tables() == []


def test_grants_hold_for_the_rows_of_all_servers(pair: Pair) -> None:
    with (
        pair.connected(pair.root) as all_rights,
        all_rights.cursor() as root,
        pair.connected(pair.alice) as connection,
        connection.cursor() as alice,
        nyala.connect(pair.urls[0], token=pair.root) as db,
    ):
        root.execute(CREATE)
        root.execute("INSERT INTO homes VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)")
        try:
            with pytest.raises(manager.Error, match="there is no table 'homes'"):
                alice.execute("SELECT id FROM homes")
            db.grant("read", on="homes", to="alice", columns=["id", "city"])
            assert _run(alice, "SELECT id, city FROM homes ORDER BY id") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
            assert _run(alice, "SELECT count(*) AS n FROM homes a JOIN homes b ON a.id = b.id + 1") == [(3,)]
            with pytest.raises(manager.Error, match="price"):
                _run(alice, "SELECT price FROM homes")
            for text in (
                "INSERT INTO homes (id) VALUES (10), (11), (12), (13)",
                "UPDATE homes SET city = 'x'",
                "DELETE FROM homes",
                "DROP TABLE homes",
            ):
                with pytest.raises(manager.Error, match=r"PERMISSION_DENIED|grant"):
                    alice.execute(text)
            db.grant("insert", on="homes", to="alice")
            assert _changed(alice, "INSERT INTO homes (id) VALUES (10), (11), (12), (13)") == 4
        finally:
            root.execute("DROP TABLE homes")


@pytest.mark.night
def test_several_processes() -> None:
    with tempfile.TemporaryDirectory() as folder:  # short: the path of a socket has few characters
        server = ProcessesServer(Path(folder) / "data")
        server.start("--processes", "2", "--sql")
        try:
            with adbc.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(CREATE)
                assert cursor.adbc_ingest("homes", pa.table({"id": range(80)}), mode="append") == 80
                assert _changed(cursor, "UPDATE homes SET city = 'x' WHERE id < 40") == 40
                assert _run(cursor, "SELECT count(*) AS n FROM homes a JOIN homes b ON a.id = b.id + 1") == [(79,)]
                _check_transactions(cursor, adbc.connect(server.url, autocommit=False))
                assert not any(children_of(pid) for pid in server.pids().values()), "the parent runs all statements"
        finally:
            server.stop()


def test_a_replica_names_the_holder() -> None:
    both = Both()
    both.make_table("t")
    server = FlightServer(cast(StoreService, both.store), "grpc://127.0.0.1:0", ServerConfig(sql=True), sql=SqlFront)
    try:
        with adbc.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True) as connection:
            for text in (
                "SELECT count(*) AS n FROM t",
                "SELECT a.id FROM t a JOIN t b ON a.id = b.id",
                "DELETE FROM t",
                "CREATE TABLE other (id bigint PRIMARY KEY)",
            ):
                with connection.cursor() as cursor, pytest.raises(manager.Error, match=f"connect to {both.url}"):
                    _run(cursor, text)
            with connection.cursor() as cursor, pytest.raises(manager.Error, match=f"connect to {both.url}"):
                cursor.adbc_ingest("t", pa.table({"id": [1]}), mode="append")
            with connection.cursor() as cursor:
                assert _run(cursor, "SHOW TABLES") == [("t",)]
    finally:
        server.shutdown()
        both.close()
