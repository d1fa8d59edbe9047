"""Sessions of the Python client: used for what is small, replaced when they break, and left where others must do."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.flight import sessions
from nyala.clients.flight.small_requests import SmallRequests
from nyala.clients.flight.store import FlightStore
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.protocol.verb import Kind
from tests.doubles.waiting import until
from tests.flight_server.guarded import Guarded

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("at", pa.timestamp("us"), False),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("b", pa.binary()),
        ("d", pa.date32()),
    ]
)
AT = dt.datetime(2024, 5, 6, 7, 8, 9, 10)


class Calls(FlightServer):
    """A server that counts its calls."""

    def __init__(self, store: Store) -> None:
        self.counts: dict[str, int] = {}
        super().__init__(store, "grpc://127.0.0.1:0")

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def do_get(self, *arguments: Any) -> Any:
        self._count("get")
        return super().do_get(*arguments)

    def do_put(self, *arguments: Any) -> Any:
        self._count("put")
        return super().do_put(*arguments)

    def do_exchange(self, *arguments: Any) -> Any:
        self._count("exchange")
        return super().do_exchange(*arguments)


class Served:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.server = Calls(store)
        self.database = nyala.connect(f"grpc://127.0.0.1:{self.server.port}")
        self.embedded = Database(store)
        self.table = self.database.create_table("t", SCHEMA, primary_key=["k", "at"])
        self.table.insert([row(key) for key in range(20)])

    def end_sessions(self) -> None:
        for call in self.server.calls._all():
            call.end("UNAVAILABLE: gone")


def row(key: int, text: str | None = "text") -> dict[str, Any]:
    return {"k": key, "at": AT, "s": text, "x": key * 0.1, "b": b"\xff\n", "d": dt.date(2020, 1, 2)}


@pytest.fixture
def served(tmp_path) -> Iterator[Served]:
    with Store.open(tmp_path, StoreOptions(maintenance="off")) as store:
        found = Served(store)
        yield found
        found.database.close()
        found.server.shutdown()


def test_small_requests_go_by_one_session(served: Served) -> None:
    served.server.counts.clear()
    assert served.table.upsert([row(1, "new")]).applied == 1
    assert served.table.get((1, AT)) == row(1, "new")
    assert served.table.get_many([(1, AT), (999, AT), (2, AT)]).column("s").to_pylist() == ["new", "text"]
    assert served.table.scan(where="k = 1").to_arrow().to_pylist() == [row(1, "new")]
    assert served.table.count() == 20
    assert served.server.counts.get("exchange", 0) <= 1
    assert "put" not in served.server.counts


def test_a_single_row_needs_no_batch(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallRequests, "write", None)
    for text in ("new", None):
        assert served.table.upsert([row(1, text)]).applied == 1
        assert served.embedded.table("t").get((1, AT)) == row(1, text)
    assert served.table.delete([{"k": 1, "at": AT}]).applied == 1


@pytest.mark.parametrize(
    "cells",
    [
        {"s": 5},
        {"s": "\ud800"},
        {"d": "2020-01-02"},
        {"d": dt.datetime(2020, 1, 2)},
        {"at": dt.datetime(2020, 1, 2, tzinfo=dt.UTC)},
        {"at": dt.date(2020, 1, 2)},
        {"x": 3},
        {"x": "1.5"},
        {"x": float("nan")},
        {"b": "text"},
        {"k": True},
        {"k": 1 << 63},
        {"k": None},
        {"k": np.int64(3)},
        {"unknown": 1},
    ],
    ids=str,
)
def test_what_a_row_may_hold_is_as_in_this_process(served: Served, cells: dict[Any, Any]) -> None:
    def written(table: Table) -> tuple[Any, ...]:
        try:
            result = table.upsert([{"k": 77, "at": AT, **cells}], on_error="return")
        except nyala.StoreError as error:
            return type(error), str(error)
        rows = table.scan(where="k <> 1 and k > 19 or s = '5'").to_arrow().to_pylist()
        return result.applied, result.errors, repr(rows)

    embedded = written(served.embedded.table("t"))
    served.embedded.table("t").delete_where("k > 19 or s = '5'")
    assert written(served.table) == embedded


def test_a_broken_session_is_replaced_and_a_write_is_applied_once(served: Served) -> None:
    for number in range(5):
        assert served.table.get((1, AT)) is not None
        served.end_sessions()
        assert served.table.insert([row(100 + number)]).applied == 1
        served.end_sessions()
        assert served.table.scan(where="k >= 100").count() == number + 1
    assert len(served.database.commits("t")) == 6


class Replies:
    """What becomes of each request in a session: ``lost`` is carried out without an answer, ``refused`` is not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *fates: str) -> None:
        self.fates = list(fates)
        real = sessions._Session.ask

        def ask(session: sessions._Session, request: bytes) -> bytes:
            fate = self.fates.pop(0) if self.fates else "answered"
            if fate == "refused":
                raise fl.FlightInternalError("stream reset")
            answer = real(session, request)
            if fate == "lost":
                raise fl.FlightUnavailableError("the connection broke")
            return answer

        monkeypatch.setattr(sessions._Session, "ask", ask)


@pytest.mark.parametrize("fates", [["lost", "refused"], ["refused", "lost", "refused"], ["lost", "lost", "lost"]])
def test_a_row_whose_session_is_reset_is_applied_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, fates: list[str]
) -> None:
    assert served.table.get((1, AT)) == row(1)
    replies = Replies(monkeypatch, *fates)
    assert served.table.insert([row(100)]).applied == 1
    assert not replies.fates
    assert len(served.database.commits("t")) == 2
    served.server.counts.clear()
    assert served.table.insert([row(101)]).applied == 1
    assert "put" not in served.server.counts


def test_a_row_is_not_sent_another_way_to_a_server_that_has_no_sessions_any_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert served.table.get((1, AT)) == row(1)
    Replies(monkeypatch, "lost", *["refused"] * 10)
    with pytest.raises(nyala.UnavailableError, match="no longer accepts sessions"):
        served.table.insert([row(100)])
    assert served.table.get((100, AT)) == row(100)
    assert served.table.insert([row(101)]).applied == 1
    assert len(served.database.commits("t")) == 3


def test_a_numbered_row_goes_another_way_to_a_server_that_has_no_sessions_any_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert served.table.get((1, AT)) == row(1)
    replies = Replies(monkeypatch, "lost", *["refused"] * 2)
    assert served.table.insert([row(100)], writer="w", seq=1).applied == 1
    assert not replies.fates
    assert served.table.insert([row(100)], writer="w", seq=1).applied == 1
    assert len(served.database.commits("t")) == 2


def test_errors_are_those_of_the_store(served: Served) -> None:
    with pytest.raises(nyala.RowErrors) as caught:
        served.table.insert([row(1), row(500)])
    assert (caught.value.result.applied, caught.value.result.errors[0].code) == (1, "ALREADY_PRESENT")
    for key in [(1, None), ("x", AT), (1,), (1 << 70, AT), (1.5, AT), ("\ud800", AT)]:
        with pytest.raises(nyala.InvalidArgumentError) as remote:
            served.table.get(key)
        with pytest.raises(nyala.InvalidArgumentError) as local:
            served.embedded.table("t").get(key)
        assert str(remote.value) == str(local.value)
    with pytest.raises(nyala.InvalidArgumentError, match="nothing"):
        served.table.scan(where="nothing = 1").to_arrow()
    served.embedded.drop_table("t")
    with pytest.raises(nyala.NotFoundError):
        served.table.get((1, AT))


def test_the_first_rows_of_a_session_may_have_no_columns(served: Served) -> None:
    scan = {"columns": [], "where": "x < 0.25"}
    assert served.table.scan(**scan).to_arrow().num_rows == 3  # the first one may take too long for a session
    with nyala.connect(f"grpc://127.0.0.1:{served.server.port}") as db:
        assert db.table("t").scan(**scan).to_arrow().num_rows == 3
        assert db.table("t").scan(columns=["k"], where="k = 1").to_arrow().to_pydict() == {"k": [1]}


def test_large_requests_go_other_ways(served: Served) -> None:
    served.table.upsert(pa.Table.from_pylist([row(key, "x" * 1000) for key in range(2000)], SCHEMA))
    assert served.table.get_many([(key, AT) for key in range(2000)]).num_rows == 2000
    assert served.table.get_many([(key, AT) for key in range(9000)]).num_rows == 2000
    for _ in range(5):
        assert served.table.scan().to_arrow().num_rows == 2000
    assert served.table.upsert([row(1, "y" * 60_000), row(2, "y" * 60_000)]).applied == 2
    assert served.table.get((2, AT)) == row(2, "y" * 60_000)


def test_an_altered_table_is_read_with_its_new_columns(served: Served) -> None:
    assert served.table.get((1, AT)) == row(1)
    served.embedded.table("t").alter().drop_column("s").add_column("s", pa.date32()).apply()
    served.embedded.table("t").update([{"k": 1, "at": AT, "s": dt.date(2001, 2, 3)}])
    assert served.table.get((1, AT)) == served.embedded.table("t").get((1, AT))
    assert served.table.get((2, AT)) == {**row(2), "s": None}


def test_without_retries_writes_go_by_streams(served: Served) -> None:
    with nyala.connect(f"grpc://127.0.0.1:{served.server.port}", retries=False) as database:
        served.server.counts.clear()
        assert database.table("t").upsert([row(3)]).applied == 1
        assert served.server.counts == {"put": 1}


def test_a_server_without_sessions_is_served_as_before(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_SESSION", b'{"table":"t","session_of_another_kind":1}')
    with nyala.connect(f"grpc://127.0.0.1:{served.server.port}") as database:
        table = database.table("t")
        assert table.get((4, AT)) == row(4)
        assert table.upsert([row(50)]).applied == 1
        assert table.scan(where="k = 50").to_arrow().to_pylist() == [row(50)]
        assert table.get_many([(50, AT)]).num_rows == 1


def test_threads_have_sessions_of_their_own(served: Served) -> None:
    def work(number: int) -> None:
        key = 1000 + number
        assert served.table.insert([row(key)]).applied == 1
        assert served.table.get((key, AT)) == row(key)
        assert served.table.scan(where=f"k = {key}").to_arrow().num_rows == 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(60)))
    assert served.table.count("k >= 1000") == 60
    until(lambda: served.server.admission.count(Kind.EXCHANGE) == 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "nyala-session"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "k": st.integers(0, 5),
                "at": st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),
                "s": st.none() | st.text(max_size=5),
                "x": st.none() | st.floats(allow_nan=False),
                "b": st.none() | st.binary(max_size=5),
                "d": st.none() | st.dates(),
            }
        ),
        min_size=1,
        max_size=5,
    ),
    op=st.sampled_from(["upsert", "insert_ignore", "update_ignore", "delete_ignore"]),
)
def test_everything_is_as_in_this_process(served: Served, rows: list[dict[str, Any]], op: str) -> None:
    embedded = served.embedded.table("t")
    if op == "delete_ignore":
        rows = [{"k": each["k"], "at": each["at"]} for each in rows]
    result = served.table.write(rows, op)
    assert result.rows == len(rows)
    for each in rows:
        key = (each["k"], each["at"])
        assert served.table.get(key) == embedded.get(key)
    assert served.table.scan(where="k < 6").to_arrow().equals(embedded.scan(where="k < 6").to_arrow())


def test_a_session_is_not_used_with_another_token(tmp_path) -> None:
    guarded = Guarded(tmp_path)
    guarded.make_table()
    keys = pa.table({"k": pa.array([k % 10 for k in range(30_000)], pa.int64())})
    token, calls = guarded.admin_token, []
    with nyala.connect(guarded.served.url, token=lambda: calls.append(1) or token) as db:
        table = db.table("t")
        asks: list[Callable[[], Any]] = [
            lambda: table.get(1),
            lambda: table.get_many([1, 2]),
            lambda: table.get_many(keys),
            lambda: table.scan(where="k = 2").to_arrow(),
            lambda: table.upsert([{"k": 99, "a": 1, "b": "c"}]),
        ]
        for _ in range(3):
            token = guarded.admin_token
            for ask in asks:
                before = len(calls)
                assert ask() is not None and len(calls) > before
            token = guarded.user_token
            for ask in asks:
                with pytest.raises(nyala.NotFoundError, match="no table 't'"):
                    ask()
    guarded.close()


def test_an_answer_is_returned_though_no_thread_starts(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        if thread.name == "nyala-idle-streams":
            raise RuntimeError("can't start new thread")
        real(thread)

    real = threading.Thread.start
    with nyala.connect(f"grpc://127.0.0.1:{served.server.port}") as db:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            assert db.table("t").insert([row(100)]).applied == 1
            assert db.table("t").get_many([(100, AT)]).num_rows == 1
            until(lambda: served.server.admission.count(Kind.EXCHANGE) == 0)
        assert db.table("t").insert([row(101)]).applied == 1
        until(lambda: served.server.admission.count(Kind.EXCHANGE) == 0)


def test_the_session_is_no_stream_of_keys(served: Served) -> None:
    store = served.database._store
    assert isinstance(store, FlightStore)
    with pytest.raises(fl.FlightServerError, match="DoExchange takes a command"):
        writer, reader = store._client.do_exchange(fl.FlightDescriptor.for_path("t"))
        writer.begin(SCHEMA)
        reader.read_chunk()
