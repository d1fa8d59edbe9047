"""The line of the log for a request that failed or took long, and the id that its client sees."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.flight_server.errors import request_log
from nyala.flight_server.errors.request_log import RequestLog, mark, new_request_id, request_id_of
from nyala.flight_server.runtime.logs import JsonLines
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.errors import ConflictError, NotFoundError, StoreError, UnavailableError
from nyala.schemas.protocol.request import Request, serving
from nyala.schemas.protocol.service import ScanStream, StoreService
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.table.table import TableDefinition
from tests.flight_server.served import SCHEMA, Served

from ..conftest import open_real

ID = re.compile(r"[0-9a-f]{12}")
SECRET = "hunter2"


@pytest.fixture
def real(serve: Callable[..., Served]) -> Served:
    store = open_real()
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    return serve(store, ServerConfig(slow_request_seconds=0.2))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, object]]]:
    """The lines of requests so far, as JSON."""
    caplog.set_level(logging.INFO, "nyala.flight_server")
    formatter = JsonLines()

    def found() -> list[dict[str, object]]:
        said = [json.loads(formatter.format(record)) for record in caplog.records]
        return [line for line in said if "verb" in line]

    return found


def test_an_error_has_the_id_of_its_line(real: Served, lines: Callable[[], list[dict[str, object]]]) -> None:
    with nyala.connect(real.url) as db:
        errors: list[StoreError] = []
        for act in (
            lambda: db.table("castles"),
            lambda: db.table("homes").scan(where=f"city = '{SECRET}' and oops = 1").to_arrow(),
            lambda: db.table("homes").insert([{"id": 1, "city": SECRET, "price": None, "floor": 2}]),
            lambda: list(real.client.do_get(fl.Ticket(b'{"table":"homes","where":"city = \'hunter2\' and oops=1"}'))),
        ):
            with pytest.raises((StoreError, fl.FlightError)) as caught:
                act()
            if isinstance(caught.value, StoreError):
                errors.append(caught.value)
    said = {line["request"]: line for line in lines()}
    sent = [error for error in errors if error.request_id]
    assert len(sent) >= 2 and len(said) >= 3
    assert all(error.request_id in said and ID.fullmatch(error.request_id) for error in sent if error.request_id)
    assert all(said[error.request_id]["code"] == error.code for error in sent)
    assert SECRET not in json.dumps(list(said.values()))


def test_each_request_of_a_session_has_its_own_id(real: Served, lines: Callable[[], list[dict[str, object]]]) -> None:
    writer, reader = real.client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'))
    writer.begin(pa.schema([]))
    found = []
    for _ in range(3):
        writer.write_metadata(b'{"get":"castles"}\n{"key":[1]}\n')
        found.append(json.loads(reader.read_chunk().app_metadata.to_pybytes())["error"]["request_id"])
    writer.close()
    assert len(set(found)) == 3
    assert [line["request"] for line in lines()] == found


def test_an_error_that_is_raised_again_has_another_id() -> None:
    error = UnavailableError("the log has failed")
    mark(error, first := new_request_id())
    assert request_id_of(error) == first
    mark(error, second := new_request_id())
    assert request_id_of(error) == second != first


def test_an_error_of_another_server_keeps_its_id() -> None:
    error = NotFoundError("x")
    error.request_id = "f" * 12
    mark(error, new_request_id())
    assert request_id_of(error) == "f" * 12


@pytest.mark.parametrize("forged", ["", "z" * 12, "a" * 33, "0a\n2026 error: all is lost", 7, b"0a"])
def test_what_is_no_id_is_not_taken_for_one(forged: Any) -> None:
    for marked in (True, False):
        error = NotFoundError("x")
        error.request_id = forged
        own = new_request_id()
        if marked:
            mark(error, own)
        assert (request_id_of(error) == own) is marked
        assert re.fullmatch("[0-9a-f]{12}", request_id_of(error))


class Slow:
    """A store whose scans take a while, or whose clients do."""

    def __init__(self, store: StoreService) -> None:
        self._store = store
        self.seconds = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def scan(self, spec: ScanSpec) -> ScanStream:
        time.sleep(self.seconds)
        return self._store.scan(spec)


def test_a_slow_request_has_a_line_and_a_slow_client_none(
    serve: Callable[..., Served], lines: Callable[[], list[dict[str, object]]]
) -> None:
    inner = open_real()
    inner.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    store = Slow(inner)
    served = serve(store, ServerConfig(slow_request_seconds=0.3, sent_bytes_target=1 << 16, sent_bytes_max=1 << 17))
    served.put("homes", served.rows(400_000))
    assert [line for line in lines() if line["verb"] == "do_get"] == []
    reader = served.client.do_get(fl.Ticket(b'{"table":"homes"}'))
    reader.read_chunk()
    time.sleep(0.5)
    for _ in reader:
        pass
    assert [line for line in lines() if line["verb"] == "do_get"] == []
    store.seconds = 0.4
    served.get({"table": "homes", "where": f"city = '{SECRET}'"})
    deadline = time.monotonic() + 20
    while not (slow := [line for line in lines() if line["verb"] == "do_get"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert slow[0]["table"] == "homes" and 0.4 <= float(str(slow[0]["seconds"])) < 20
    assert SECRET not in json.dumps(slow)
    inner.close()


def test_a_flood_of_errors_is_a_few_lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    monkeypatch.setattr(request_log.time, "monotonic", lambda: now)
    caplog.set_level(logging.INFO, "nyala.flight_server")
    log = RequestLog(0.0)
    for _ in range(1000):
        log.failed(new_request_id(), "do_get", "NOT_FOUND", None)
    assert len(caplog.records) == 20
    log.took(1e9, None, "do_get", None)  # 0: no request is slow
    now = 101.0
    log.failed(new_request_id(), "do_get", "NOT_FOUND", "alice")
    assert [record.getMessage() for record in caplog.records[20:]] == [
        "980 more requests failed or were slow, and were left out of the log",
        caplog.records[-1].getMessage(),
    ]
    assert "of 'alice' failed: NOT_FOUND" in caplog.records[-1].getMessage()


def test_other_lines_have_the_id_of_the_request_that_is_served() -> None:
    record = logging.LogRecord("nyala.wal", logging.INFO, __file__, 1, "hello", None, None)
    assert "request" not in json.loads(JsonLines().format(record))
    with serving(Request("", lambda: None, lambda: "abc")):
        assert json.loads(JsonLines().format(record))["request"] == "abc"


def test_an_error_keeps_its_id_across_processes() -> None:
    import pickle

    error = ConflictError("x")
    error.request_id = "abc"
    assert pickle.loads(pickle.dumps(error)).request_id == "abc"


def test_an_answer_that_a_move_expects_is_no_failure(
    real: Served, lines: Callable[[], list[dict[str, object]]], caplog: pytest.LogCaptureFixture
) -> None:
    """The first start by several processes moves tablets: it logged NOT_FOUND for each table and process."""
    for action in ("moves", "tablets", "describe_table"):
        with pytest.raises(fl.FlightError, match="castles"):
            real.action(action, {"table": "castles"})
    assert [(line["verb"], line["code"]) for line in lines()] == [("describe_table", "NOT_FOUND")]
    caplog.set_level(logging.DEBUG, "nyala.flight_server")
    with pytest.raises(fl.FlightError, match="castles"):
        real.action("tablets", {"table": "castles"})
    assert lines()[-1]["verb"] == "tablets"
