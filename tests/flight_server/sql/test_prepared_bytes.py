"""What prepared statements keep, with their parameters, has limits: of a user, and of all."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.sql import messages
from nyala.flight_server.sql.handles import Handles, Prepared
from nyala.flight_server.sql.owner import Owner
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from tests.flight_server.served import code_of
from tests.flight_server.sql.served_sql import SqlServer

MOST = 1000
ALICE, BOB, CAROL = (Owner(name) for name in ("alice", "bob", "carol"))


def prepared(owner: Owner, size: int) -> Prepared:
    return Prepared(owner, "", None, b"x" * size)


def handles() -> Handles[Prepared]:
    return Handles("prepared statement", 100, MOST)


def test_a_user_has_half_of_the_bytes() -> None:
    held = handles()
    first = held.add(prepared(ALICE, 0))
    second = held.add(prepared(ALICE, 200))
    held.replace(first, prepared(ALICE, 300))
    with pytest.raises(UnavailableError, match="500 bytes for each user: close some"):
        held.replace(second, prepared(ALICE, 201))
    assert held.get(second, ALICE).nbytes == 200, "the former stays"
    with pytest.raises(UnavailableError, match="500 bytes for each user: close some"):
        held.add(prepared(ALICE, 1))
    held.replace(held.add(prepared(BOB, 0)), prepared(BOB, 500))
    held.pop(first, ALICE)
    held.replace(second, prepared(ALICE, 500))


def test_what_is_bound_again_counts_once() -> None:
    held = handles()
    handle = held.add(prepared(ALICE, 0))
    for size in (400, 500, 0, 500):
        held.replace(handle, prepared(ALICE, size))
        assert held.get(handle, ALICE).nbytes == size


def test_all_users_have_a_limit_together() -> None:
    held = handles()
    for owner in (ALICE, BOB):
        held.add(prepared(owner, 450))
    handle = held.add(prepared(CAROL, 100))
    with pytest.raises(UnavailableError, match="of all users would have more than 1,000 bytes"):
        held.replace(handle, prepared(CAROL, 101))
    with pytest.raises(UnavailableError, match="of all users would have more than 1,000 bytes"):
        held.add(prepared(CAROL, 1))


def test_what_no_user_may_have_is_not_for_later() -> None:
    held = handles()
    handle = held.add(prepared(ALICE, 0))
    with pytest.raises(InvalidArgumentError, match="500 bytes for each user: send less"):
        held.replace(handle, prepared(ALICE, 501))


def test_only_what_its_owner_holds_is_replaced() -> None:
    held = handles()
    handle = held.add(prepared(ALICE, 1))
    for missing, owner in ((handle, BOB), (b"none", ALICE)):
        with pytest.raises(InvalidArgumentError, match="there is no such prepared statement"):
            held.replace(missing, prepared(owner, 1))
    assert held.get(handle, ALICE).nbytes == 1


@pytest.fixture
def served() -> Iterator[SqlServer]:
    server = SqlServer(sql_timeout_seconds=60.0)
    server.server.sql._prepared._bytes_max = 1 << 20  # pyright: ignore
    server.db.create_table("homes", primary_key="id", data={"id": [1, 2], "city": ["a", "b"]})
    yield server
    server.close()


def prepare(served: SqlServer) -> bytes:
    body = messages.wrapped("ActionCreatePreparedStatementRequest", query="SELECT id FROM homes WHERE city <= ?")
    (answer,) = served.client.do_action(fl.Action("CreatePreparedStatement", body))
    return messages.read(answer.body.to_pybytes())[1].prepared_statement_handle


def descriptor(handle: bytes) -> fl.FlightDescriptor:
    body = messages.wrapped("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    return fl.FlightDescriptor.for_command(body)


def bind(served: SqlServer, handle: bytes, text: str) -> None:
    row = pa.record_batch([pa.array([text])], names=["0"])
    writer, reader = served.client.do_put(descriptor(handle), row.schema)
    with writer:
        writer.write_batch(row)
        writer.done_writing()
        reader.read()


def ids(served: SqlServer, handle: bytes) -> list[int]:
    info = served.client.get_flight_info(descriptor(handle))
    return served.client.do_get(info.endpoints[0].ticket).read_all()["id"].to_pylist()


def test_parameters_count(served: SqlServer) -> None:
    first, second = prepare(served), prepare(served)
    bind(served, second, "a")
    for _ in range(4):
        bind(served, first, "z" * 400_000)
    with pytest.raises(fl.FlightUnavailableError, match="524,288 bytes for each user: close some") as refused:
        bind(served, second, "z" * 400_000)
    assert code_of(refused.value) == "UNAVAILABLE"
    assert (ids(served, first), ids(served, second)) == ([1, 2], [1]), "each has its own still"
    with pytest.raises(fl.FlightServerError, match="524,288 bytes for each user: send less"):
        bind(served, second, "z" * 600_000)
    body = messages.wrapped("ActionClosePreparedStatementRequest", prepared_statement_handle=first)
    list(served.client.do_action(fl.Action("ClosePreparedStatement", body)))
    bind(served, second, "z" * 400_000)
    assert ids(served, second) == [1, 2]
