"""The end of statements: by their client, by time, by memory. The store answers throughout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import adbc_driver_manager as manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.sql import messages, statement_child
from tests.flight_server.sql.served_sql import SqlServer

RUNAWAY = "SELECT count(*) AS n FROM numbers a, numbers b, numbers c WHERE (a.id * b.id + c.id) % 7 = 3"
SECONDS = 20.0
"""How long a test waits at most, on a busy machine. A quiet one needs one or two."""


@pytest.fixture(scope="module")
def served() -> Iterator[SqlServer]:
    server = SqlServer(sql_timeout_seconds=60.0, sql_places=2)
    server.db.create_table("numbers", primary_key="id", data=pa.table({"id": range(20_000)}))
    yield server
    server.close()


def _spent(pids: Sequence[int]) -> int:
    """Return the processor time of processes, in hundredths of a second."""
    total = 0
    for pid in pids:
        path = Path(f"/proc/{pid}/stat")
        if path.exists():
            total += sum(map(int, path.read_text().rpartition(")")[2].split()[11:13]))
    return total


def _becomes_idle(pids: Sequence[int]) -> bool:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        before = _spent(pids)
        time.sleep(0.4)
        if _spent(pids) - before <= 2:
            return True
    return False


def _started(served: SqlServer) -> list[int]:
    """Wait until a statement runs; return the processes that run statements."""
    end = time.monotonic() + 2 * SECONDS
    before = None
    while time.monotonic() < end:
        if pids := served.busy_processes():
            before = _spent(pids) if before is None else before
            if _spent(pids) - before > 40:
                return pids
        time.sleep(0.05)
    raise AssertionError("the statement does not run")


def test_a_cancelled_statement_ends(served: SqlServer) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        failures: list[Exception] = []

        def run() -> None:
            try:
                cursor.execute(RUNAWAY)
                cursor.fetchall()
            except manager.Error as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        pids = _started(served)
        assert served.db.table("numbers").get(5) == {"id": 5}
        cursor.adbc_cancel()
        thread.join(SECONDS)
        assert failures and _becomes_idle(pids)
        cursor.execute("SELECT count(*) AS n FROM numbers")
        assert cursor.fetchall() == [(20_000,)]


def test_a_cancelled_statement_ends_while_its_rows_flow(served: SqlServer) -> None:
    text = "SELECT a.id, b.id AS other FROM numbers a CROSS JOIN numbers b"
    info = served.client.get_flight_info(
        fl.FlightDescriptor.for_command(messages.wrapped("CommandStatementQuery", query=text))
    )
    rows = served.client.do_get(info.endpoints[0].ticket)
    rows.read_chunk()
    body = messages.plain("CancelFlightInfoRequest", info=info.serialize())
    (result,) = served.client.do_action(fl.Action("CancelFlightInfo", body))
    assert messages.read_plain("CancelFlightInfoResult", result.body.to_pybytes()).status == 1
    end = time.monotonic() + SECONDS
    with pytest.raises(fl.FlightUnavailableError, match="the statement was cancelled"):
        while time.monotonic() < end:
            rows.read_chunk()
            time.sleep(0.05)  # the next rows are there before they are asked for


def test_a_statement_that_takes_too_long_ends() -> None:
    server = SqlServer(sql_timeout_seconds=1.0)
    try:
        server.db.create_table("numbers", primary_key="id", data=pa.table({"id": range(20_000)}))
        with server.connected() as connection, connection.cursor() as cursor:
            began = time.monotonic()
            with pytest.raises(manager.Error, match=r"takes more than 1 seconds \(sql_timeout_seconds\)"):
                cursor.execute(RUNAWAY)
                cursor.fetchall()
            assert time.monotonic() - began < 1 + SECONDS
            assert _becomes_idle(server.processes())
            cursor.execute("SELECT 1 + 0 AS one")
            assert cursor.fetchall() == [(1,)]
    finally:
        server.close()


CLIENT = """
import sys
import adbc_driver_flightsql.dbapi as adbc
with adbc.connect(sys.argv[1], autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute(sys.argv[2])
    cursor.fetchall()
"""


def test_the_statement_of_a_killed_client_ends(served: SqlServer) -> None:
    process = subprocess.Popen([sys.executable, "-c", CLIENT, served.url, RUNAWAY])
    pids = _started(served)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert _becomes_idle(pids)
    with served.connected() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 + 0 AS one")
        assert cursor.fetchall() == [(1,)]


def test_a_killed_child_fails_its_statement_alone(served: SqlServer) -> None:
    with served.connected() as connection, connection.cursor() as cursor:
        failures: list[Exception] = []

        def run() -> None:
            try:
                cursor.execute(RUNAWAY)
                cursor.fetchall()
            except manager.Error as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        for pid in _started(served):
            os.kill(pid, signal.SIGTERM)
        thread.join(SECONDS)
        assert "run it again" in str(failures[0])
        cursor.execute("SELECT 1 + 0 AS one")
        assert cursor.fetchall() == [(1,)]


def test_a_join_beyond_its_memory_fails_and_the_server_lives() -> None:
    server = SqlServer(sql_memory_bytes=16 << 20, sql_leaf_bytes=64 << 20)
    try:
        text = [f"a rather long text that is number {number}" for number in range(400_000)]
        server.db.create_table("wide", primary_key="id", data=pa.table({"id": range(400_000), "text": text}))
        with server.connected() as connection, connection.cursor() as cursor:
            with pytest.raises(manager.Error, match="sql_memory_bytes"):
                cursor.execute("SELECT a.text, b.text AS more FROM wide a JOIN wide b ON a.text = b.text")
                cursor.fetchall()
            cursor.execute("SELECT count(*) AS n FROM wide")
            assert cursor.fetchall() == [(400_000,)]
    finally:
        server.close()


def test_a_child_that_cannot_start_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SqlServer(sql_places=1, user_share=1.0)
    failures = [BlockingIOError(11, "Resource temporarily unavailable")]
    start = subprocess.Popen

    def may_fail(*given: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return start(*given, **named)

    try:
        statements = server.server.sql._statements  # pyright: ignore
        (first,) = statements._places._idle
        first.kill()
        with server.connected() as connection, connection.cursor() as cursor:
            monkeypatch.setattr(statement_child.subprocess, "Popen", may_fail)
            with pytest.raises(manager.OperationalError, match=r"UNAVAILABLE.*no process can be started") as caught:
                cursor.execute("SELECT 1 + 0 AS one")
            assert "Resource" not in str(caught.value)
            assert not list(statements._folder.glob("spills-*"))
            for _ in range(3):
                cursor.execute("SELECT 1 + 0 AS one")
                assert cursor.fetchall() == [(1,)]
    finally:
        server.close()


def test_children_end_with_their_server(tmp_path: Path) -> None:
    server = SqlServer()
    with server.connected() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 + 0 AS one")
        cursor.fetchall()
    pids = server.processes()
    assert pids
    server.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
