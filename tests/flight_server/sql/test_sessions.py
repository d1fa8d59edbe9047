"""Transactions that clients begin by a statement, known by a cookie, and the options of their sessions."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager as manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.flight_server.sql import messages, statements
from nyala.flight_server.sql.statement_child import _size
from tests.doubles.waiting import until
from tests.flight_server.sql.served_sql import SqlServer

COOKIES = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}


@contextmanager
def _session(served: SqlServer) -> Iterator[tuple[adbc.Connection, adbc.Cursor]]:
    with served.connected(True, None, **COOKIES) as connection, connection.cursor() as cursor:
        yield connection, cursor


def _count(cursor: adbc.Cursor) -> int:
    cursor.execute("SELECT count(*) AS n FROM homes")
    (row,) = cursor.fetchall()
    return row[0]


def test_begin_and_commit_as_statements(served: SqlServer, homes: nyala.Table) -> None:
    with _session(served) as (_, cursor), _session(served) as (_, other):
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM homes WHERE id = 1")
        cursor.execute("INSERT INTO homes (id, city) VALUES (7, 'Alta'), (8, 'Moss')")
        assert cursor.rowcount == 2
        assert homes.get(7) is None and _count(other) == 3
        cursor.execute("COMMIT")
        assert homes.get(1) is None and _count(other) == _count(cursor) == 4
        cursor.execute("START TRANSACTION")
        cursor.execute("DELETE FROM homes WHERE id > 0")
        cursor.execute("ROLLBACK")
        assert _count(cursor) == 4


def test_reads_are_at_the_moment_of_begin(served: SqlServer, homes: nyala.Table) -> None:
    with _session(served) as (_, cursor):
        cursor.execute("BEGIN")
        homes.delete([{"id": 1}])
        assert _count(cursor) == 3
        cursor.execute("SELECT id FROM homes WHERE id = 1")
        assert cursor.fetchall() == [(1,)]
        cursor.execute("COMMIT")
        assert _count(cursor) == 2


def test_a_client_without_cookies_begins_nothing(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        for word in ("BEGIN", "COMMIT"):
            with pytest.raises(manager.Error, match="needs a client that keeps cookies"):
                cursor.execute(word)
        cursor.execute("INSERT INTO homes (id) VALUES (9)")
    assert homes.get(9) is not None


def test_a_transaction_of_the_driver_is_ended_by_the_driver(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO homes (id) VALUES (50)")
        for word in ("BEGIN", "COMMIT", "ROLLBACK"):
            with pytest.raises(manager.Error, match=f"the driver has begun this transaction: instead of {word}"):
                cursor.execute(word)
        connection.commit()
    assert homes.get(50) is not None


def test_statements_that_do_not_fit(served: SqlServer, homes: nyala.Table) -> None:
    with _session(served) as (_, cursor):
        for text, message in (
            ("COMMIT", "no transaction is open: BEGIN comes before COMMIT"),
            ("ROLLBACK", "no transaction is open: BEGIN comes before ROLLBACK"),
            ("BEGIN ISOLATION LEVEL SERIALIZABLE", "snapshot isolation, not SERIALIZABLE"),
            ("COMMIT AND CHAIN", "AND CHAIN is not supported"),
        ):
            with pytest.raises(manager.Error, match=message):
                cursor.execute(text)
        cursor.execute("BEGIN")
        for text, message in (
            ("BEGIN", "a transaction is open already"),
            ("ROLLBACK TO SAVEPOINT a", "there are no savepoints"),
        ):
            with pytest.raises(manager.Error, match=message):
                cursor.execute(text)
        cursor.execute("INSERT INTO homes (id) VALUES (9)")
        with pytest.raises(manager.Error, match="a transaction changes rows only"):
            cursor.execute("DROP TABLE homes")
        with pytest.raises(manager.Error, match="a statement of the transaction has failed: roll back"):
            cursor.execute("COMMIT")
    assert homes.get(9) is None


def test_a_commit_that_is_refused_ends_its_transaction(served: SqlServer, homes: nyala.Table) -> None:
    with _session(served) as (_, cursor):
        cursor.execute("BEGIN")
        cursor.execute("UPDATE homes SET city = 'Alta' WHERE id = 1")
        homes.update([{"id": 1, "city": "Moss"}])
        with pytest.raises(manager.Error, match="CONFLICT"):
            cursor.execute("COMMIT")
        cursor.execute("UPDATE homes SET city = 'Alta' WHERE id = 1")
    row = homes.get(1)
    assert row is not None and row["city"] == "Alta"


def _raw_begin(served: SqlServer) -> bytes:
    """Begin a transaction as drivers do."""
    (result,) = served.client.do_action(
        fl.Action("BeginTransaction", messages.wrapped("ActionBeginTransactionRequest"))
    )
    return messages.read(result.body.to_pybytes())[1].transaction_id


def _raw_end(served: SqlServer, transaction: bytes, is_commit: bool) -> None:
    fields = {"transaction_id": transaction, "action": 1 if is_commit else 2}
    list(
        served.client.do_action(fl.Action("EndTransaction", messages.wrapped("ActionEndTransactionRequest", **fields)))
    )


def _raw_query(served: SqlServer, text: str, transaction: bytes) -> fl.FlightStreamReader:
    command = messages.wrapped("CommandStatementQuery", query=text, transaction_id=transaction)
    info = served.client.get_flight_info(fl.FlightDescriptor.for_command(command))
    return served.client.do_get(info.endpoints[0].ticket)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_commit_that_finds_no_place_can_be_repeated(
    served: SqlServer, homes: nyala.Table, is_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = served.server.sql._statements._places  # pyright: ignore
    word = "COMMIT" if is_commit else "ROLLBACK"
    before = sum(child.transactions for child in places._idle)
    transaction = _raw_begin(served)
    _raw_query(served, "INSERT INTO homes (id) VALUES (8)", transaction).read_all()
    with _session(served) as (connection, cursor), connection.cursor() as ending:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO homes (id) VALUES (9)")
        ending.adbc_prepare(word)
        with monkeypatch.context() as patch:
            patch.setattr(places, "_waiting_max", 0)
            with pytest.raises(manager.Error, match="too many statements wait for a place"):
                ending.execute(word)
            with pytest.raises(fl.FlightUnavailableError, match="too many statements wait for a place"):
                _raw_end(served, transaction, is_commit)
        ending.execute(word)
        _raw_end(served, transaction, is_commit)
    assert [homes.get(key) is not None for key in (8, 9)] == [is_commit, is_commit]
    assert sum(child.transactions for child in places._idle) == before
    with pytest.raises(fl.FlightError, match="there is no such transaction"):
        _raw_end(served, transaction, is_commit)


def test_a_long_statement_keeps_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "TRANSACTION_SECONDS", 4.0)
    served = SqlServer()
    try:
        ids = range(500_000)
        served.db.create_table("many", primary_key="id", data={"id": ids, "text": ["x" * 50] * len(ids)})
        transaction = _raw_begin(served)
        rows = _raw_query(served, "SELECT id, text, id + 1 AS next FROM many", transaction)
        count = rows.read_chunk().data.num_rows
        time.sleep(6)  # the client reads no more: the statement runs
        assert count + rows.read_all().num_rows == len(ids)
        count = _raw_query(served, "SELECT count(*) AS n FROM many", transaction).read_all()
        assert count.to_pydict() == {"n": [len(ids)]}
        held = served.server.sql._statements._transactions  # pyright: ignore
        until(lambda: not held.items())  # it is idle now
    finally:
        served.close()


def test_a_statement_that_was_prepared_before_begin_is_within(served: SqlServer, homes: nyala.Table) -> None:
    text = "INSERT INTO homes (id) VALUES (?)"
    with _session(served) as (connection, cursor), connection.cursor() as prepared:
        prepared.execute(text, [20])
        cursor.execute("BEGIN")
        prepared.execute(text, [21])
        cursor.execute("ROLLBACK")
    assert homes.get(20) is not None and homes.get(21) is None


def test_an_ingest_within_a_transaction_is_refused(served: SqlServer, homes: nyala.Table) -> None:
    with _session(served) as (_, cursor):
        cursor.execute("BEGIN")
        with pytest.raises(manager.Error, match="an ingest is a separate commit"):
            cursor.adbc_ingest("homes", pa.table({"id": [30]}), mode="append")
        cursor.execute("ROLLBACK")
        cursor.adbc_ingest("homes", pa.table({"id": [30]}), mode="append")
    assert homes.get(30) is not None


def test_a_connection_that_is_closed_rolls_back(served: SqlServer, homes: nyala.Table) -> None:
    with _session(served) as (_, cursor):
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM homes WHERE id = 1")
    assert homes.get(1) is not None
    homes.update([{"id": 1, "city": "x"}])


def test_a_transaction_whose_process_is_gone_waits_for_rollback(served: SqlServer, homes: nyala.Table) -> None:
    with _session(served) as (_, cursor):
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO homes (id) VALUES (40)")
        for pid in served.processes():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(manager.Error, match=r"begin another transaction|run it again|was ended"):
            cursor.execute("INSERT INTO homes (id) VALUES (41)")
        with pytest.raises(manager.Error):
            cursor.execute("INSERT INTO homes (id) VALUES (42)")
        cursor.execute("ROLLBACK")
        cursor.execute("INSERT INTO homes (id) VALUES (43)")
    assert [homes.get(key) is not None for key in (40, 41, 42, 43)] == [False, False, False, True]


def test_options_of_a_session(served: SqlServer) -> None:
    def act(name: str, body: bytes = b"") -> bytes:
        (result,) = served.client.do_action(fl.Action(name, body))
        return result.body.to_pybytes()

    with _session(served) as (connection, _):
        assert (connection.adbc_current_catalog, connection.adbc_current_db_schema) == ("nyala", "public")
        connection.adbc_current_db_schema = "public"
        with pytest.raises(manager.Error):
            connection.adbc_current_db_schema = "private"
    entries: list[dict[str, Any]] = [
        {"key": "catalog", "value": {"string_value": "nyala"}},
        {"key": "schema", "value": {"string_value": "other"}},
        {"key": "mood", "value": {"double_value": 0.5}},
    ]
    body = act("SetSessionOptions", messages.plain("SetSessionOptionsRequest", session_options=entries))
    errors = messages.read_plain("SetSessionOptionsResult", body).errors
    assert {error.key: error.value.value for error in errors} == {"schema": 2, "mood": 1}
    options = messages.read_plain("GetSessionOptionsResult", act("GetSessionOptions")).session_options
    assert {entry.key: entry.value.string_value for entry in options} == {"catalog": "nyala", "schema": "public"}
    assert messages.read_plain("CloseSessionResult", act("CloseSession")).status == 1


def test_the_size_of_a_folder_whose_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    (tmp_path / "file").write_bytes(b"12345")
    scandir = os.scandir

    def listed(path: Any) -> Any:
        if Path(path) == spill and spill.exists():
            spill.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    assert _size(tmp_path) == 5
    assert not spill.exists() and _size(spill) == 0
