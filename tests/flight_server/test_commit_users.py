"""``commits`` tells which user made each commit, by whichever way it came, to those who may know."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import PermissionDeniedError
from tests.doubles.grant_statements import ALL, SCHEMA, Caller
from tests.flight_server.guarded import Guarded
from tests.flight_server.served import Served

OFF = StoreOptions(maintenance="off")


def whose(commits: pa.Table) -> list[tuple[str | None, str | None]]:
    return list(zip(commits["operation"].to_pylist(), commits["user"].to_pylist(), strict=True))


def seen_by(guarded: Guarded, token: str) -> list[tuple[str | None, str | None]]:
    with nyala.connect(guarded.served.url, token=token) as db:
        return whose(db.commits("t"))


@pytest.fixture
def writer(guarded: Guarded) -> Guarded:
    guarded.set_grants({name: frozenset(ALL) for name in ("read", "insert", "update", "delete")})
    return guarded


def write_by_every_way(table: Table, db: nyala.Database) -> list[str]:
    """Write; return the operations in their order."""
    table.upsert([{"k": 1, "a": 1, "b": "row"}])
    table.insert([{"k": 100, "a": 1, "b": "row"}])
    table.upsert([{"k": number, "a": 1, "b": "rows"} for number in range(5)])
    table.update_ignore([{"k": number, "a": 2} for number in (0, 999)])
    table.insert_ignore(pa.table({"k": range(200, 600), "a": range(400), "b": ["x"] * 400}, SCHEMA))
    table.delete([{"k": 100}])
    table.update_where({"a": "a + 1"}, "k < 3")
    table.delete_where("k = 2")
    table.restore(table.last_change() - 1)
    with db.transaction() as work:
        work.upsert("t", [{"k": 7, "a": 7, "b": "staged"}])
    ways = "upsert", "insert", "upsert", "update_ignore", "insert_ignore", "delete"
    return [*ways, "update_where", "delete_where", "restore", "transaction"]


def test_every_way_of_writing_has_its_operation_and_its_user(writer: Guarded) -> None:
    with nyala.connect(writer.served.url, token=writer.user_token) as db:
        ways = write_by_every_way(db.table("t"), db)
    assert seen_by(writer, writer.admin_token) == [("insert", "root"), *((way, "alice") for way in ways)]


def test_sessions_of_two_users(writer: Guarded) -> None:
    with (
        nyala.connect(writer.served.url, token=writer.user_token) as mine,
        nyala.connect(writer.served.url, token=writer.admin_token) as others,
    ):
        for number in range(20):
            (mine if number % 3 else others).table("t").upsert([{"k": number, "a": number, "b": "x"}])
    found = seen_by(writer, writer.admin_token)[1:]
    assert found == [("upsert", "alice" if number % 3 else "root") for number in range(20)]


def test_a_plain_client_without_numbers(writer: Guarded) -> None:
    writer.user.put("upsert", "k a b")
    assert seen_by(writer, writer.admin_token)[-1] == ("upsert", "alice")


def test_who_only_reads_sees_no_other_user(writer: Guarded) -> None:
    with nyala.connect(writer.served.url, token=writer.user_token) as db:
        db.table("t").upsert([{"k": 1, "a": 1, "b": "x"}])
    assert seen_by(writer, writer.user_token) == [("insert", None), ("upsert", "alice")]
    writer.set_grants({"read": frozenset("a")})
    assert seen_by(writer, writer.user_token) == [("insert", None), ("upsert", "alice")]
    writer.set_grants({"admin": frozenset()})
    assert seen_by(writer, writer.user_token) == [("insert", "root"), ("upsert", "alice")]
    writer.set_grants({"insert": frozenset(ALL)})
    with pytest.raises(PermissionDeniedError):
        seen_by(writer, writer.user_token)


def test_users_are_known_after_a_restart(tmp_path: Path) -> None:
    fs = MemoryFileSystem()
    first = Guarded(tmp_path, Store.open(fs, OFF))
    first.make_table()
    first.set_grants({"read": frozenset(ALL), "update": frozenset(ALL)})
    with nyala.connect(first.served.url, token=first.user_token) as db:
        db.table("t").update_where({"a": "1"}, "k = 1")
    first.close()
    second = Guarded(tmp_path, Store.open(fs, OFF))
    assert seen_by(second, second.admin_token) == [("insert", "root"), ("update_where", "alice")]
    second.close()


def test_numbered_writes_and_transactions_tell_some_after_a_crash(tmp_path: Path) -> None:
    """The log has the names of writers, with their users, and of transactions."""
    fs = MemoryFileSystem()
    first = Guarded(tmp_path, Store.open(fs, OFF))
    first.make_table()
    with nyala.connect(first.served.url, token=first.admin_token) as db, db.transaction() as work:
        work.upsert("t", [{"k": 7, "a": 7, "b": "staged"}])
    first.admin.put("upsert", "k a b")
    image = fs.crash_image(Random(0))
    first.close()
    second = Guarded(tmp_path, Store.open(image, OFF))
    assert seen_by(second, second.admin_token) == [(None, "root"), ("transaction", None), (None, None)]
    second.close()


def test_without_a_login_there_is_no_user() -> None:
    with Store.open(MemoryFileSystem(), OFF) as store:
        served = Served(store)
        with nyala.connect(served.url) as db:
            table = db.create_table("t", SCHEMA, primary_key=["k"])
            ways = write_by_every_way(table, db)
            assert whose(db.commits("t")) == [(way, None) for way in ways]
        served.client.close()
        served.server.shutdown()


def test_nobody_takes_the_name_of_another(writer: Guarded) -> None:
    """A client may send any name of a writer."""
    for name in ("\x01root\x01w", "root/w"):
        told = json.dumps({"table": "t", "op": "upsert", "writer": name}).encode()
        put(writer.user, told)
        assert seen_by(writer, writer.admin_token)[-1] == ("upsert", "alice")


def put(caller: Caller, command: bytes) -> None:
    rows: Any = pa.RecordBatch.from_pylist([{"k": 1, "a": 1, "b": "x"}], SCHEMA)
    stream, answers = caller.client.do_put(fl.FlightDescriptor.for_command(command), SCHEMA, caller.options)
    with stream:
        stream.write_with_metadata(rows, b'{"seq":1}')
        stream.done_writing()
        assert b'"applied":1' in answers.read().to_pybytes()
