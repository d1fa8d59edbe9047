"""A cancelled statement: all of its runs end that run now, and none that begins later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.flight as fl
import pytest

from nyala.flight_server.sql import messages, statements
from nyala.flight_server.sql.statements import owner_of
from tests.doubles.waiting import until
from tests.flight_server.sql.served_sql import SqlServer

COUNT = 2_000
LONG = "SELECT a.id, b.id AS other FROM numbers a CROSS JOIN numbers b"


@pytest.fixture
def served() -> Iterator[SqlServer]:
    server = SqlServer(sql_timeout_seconds=60.0, sql_places=3, user_share=1.0)
    server.db.create_table("numbers", primary_key="id", data={"id": range(COUNT)})
    yield server
    server.close()


@pytest.fixture
def info(served: SqlServer) -> fl.FlightInfo:
    """A prepared statement that has more rows than its transport takes ahead."""
    body = messages.wrapped("ActionCreatePreparedStatementRequest", query=LONG)
    (answer,) = served.client.do_action(fl.Action("CreatePreparedStatement", body))
    handle = messages.read(answer.body.to_pybytes())[1].prepared_statement_handle
    command = messages.wrapped("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    return served.client.get_flight_info(fl.FlightDescriptor.for_command(command))


def begun(served: SqlServer, info: fl.FlightInfo) -> fl.FlightStreamReader:
    rows = served.client.do_get(info.endpoints[0].ticket)
    rows.read_chunk()
    return rows


def rest(rows: fl.FlightStreamReader) -> int:
    return sum(batch.num_rows for batch in rows.read_all().to_batches())


def cancel(served: SqlServer, info: fl.FlightInfo) -> int:
    body = messages.plain("CancelFlightInfoRequest", info=info.serialize())
    (result,) = served.client.do_action(fl.Action("CancelFlightInfo", body))
    return messages.read_plain("CancelFlightInfoResult", result.body.to_pybytes()).status


def ended(served: SqlServer, count: int) -> None:
    """Return once only so many statements run."""
    until(lambda: len(served.server.sql._statements._places._busy) == count)  # pyright: ignore


def test_all_runs_of_a_statement_are_cancelled(served: SqlServer, info: fl.FlightInfo) -> None:
    first, second, third = (begun(served, info) for _ in range(3))
    assert rest(first) > 0
    ended(served, 2)
    assert cancel(served, info) == 1
    for rows in (second, third):
        with pytest.raises(fl.FlightUnavailableError, match="the statement was cancelled"):
            rest(rows)
    ended(served, 0)
    assert cancel(served, info) == 3, "it does not run"


def test_a_cancel_that_comes_too_late_ends_no_later_run(
    served: SqlServer, info: fl.FlightInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = begun(served, info)

    def meanwhile(call: Any) -> Any:
        monkeypatch.undo()
        rest(rows)
        ended(served, 0)
        return owner_of(call)

    monkeypatch.setattr(statements, "owner_of", meanwhile)
    assert cancel(served, info) in (1, 3)
    again = begun(served, info)
    assert rest(again) > COUNT * COUNT // 2
