"""No log, metric, page of the console or trace has a cell, a key, a value of a filter, or a token."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

import nyala
from nyala.flight_server.requests.traces import Traces
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import StoreError
from tests.doubles.collector import Collector, collecting
from tests.flight_server.http_client import Port

SECRET = "hunter2"
NUMBER = 190_283_746_501
PAGES = (
    *("/metrics", "/console", "/console/table?name=homes", "/console/activity", "/console/scans", "/console/writes"),
    *("/console/maintenance", "/console/memory", f"/console/table?name={SECRET}x", "/console/scan?id=00"),
)


def use(db: nyala.Database) -> None:
    """Write, read and fail with the secret by every way."""
    homes = db.table("homes")
    row = {"id": NUMBER, "city": SECRET, "price": 1.0}
    rows = [{**row, "id": NUMBER + number} for number in range(5000)]
    attempts: list[Callable[[], object]] = [
        lambda: homes.insert([row]),
        lambda: homes.insert([row]),  # refused: the key exists
        lambda: homes.upsert(rows),
        lambda: homes.insert([{**row, "city": NUMBER}]),
        lambda: homes.insert([{**row, "id": None}]),
        lambda: homes.insert([{**row, SECRET: 1}]),
        lambda: homes.scan(where=f"city = '{SECRET}'").to_arrow(),
        lambda: homes.scan(where=f"id = {NUMBER} AND city = '{SECRET}' AND (").to_arrow(),
        lambda: homes.scan(where=f"price = '{SECRET}'").to_arrow(),
        lambda: homes.scan(as_of=SECRET).to_arrow(),
        lambda: homes.get(NUMBER),
        lambda: homes.get(SECRET),
        lambda: homes.get_many([NUMBER, NUMBER + 1]),
        lambda: homes.update_where({"city": f"'{SECRET}2'"}, where=f"id = {NUMBER}"),
        lambda: homes.update_where({"price": f"'{SECRET}'"}, where=f"id = {NUMBER}"),
        lambda: homes.delete_where(f"id = {NUMBER + 1}"),
        lambda: _transact(db, row),
        lambda: homes.maintain("flush"),
        lambda: homes.maintain("compact"),
    ]
    outcomes = []
    for attempt in attempts:
        try:
            attempt()
            outcomes.append(True)
        except (StoreError, ValueError, TypeError):
            outcomes.append(False)
    assert outcomes.count(True) >= 9 and outcomes.count(False) >= 5


def _transact(db: nyala.Database, row: dict[str, Any]) -> None:
    with db.transaction() as transaction:
        transaction.insert("homes", [row])


def test_no_log_metric_page_or_trace_has_cells(
    port: Callable[..., Port], tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with collecting() as collector:
        look(port, tmp_path, caplog, capfd, collector)


def look(
    port: Callable[..., Port],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    collector: Collector,
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens, audit = tmp_path / "tokens.json", tmp_path / "audit.log"
    (root, _), (alice, _) = create_token(tokens, "root", ("admin",)), create_token(tokens, "alice")
    traces = Traces(collector.url)
    one = port(ServeOptions(tokens=tokens, audit_log=audit), traces=traces)
    one.served.server.calls.log.slow_seconds = 1e-9  # every request has a line
    with nyala.connect(one.served.url, token=root) as db:
        use(db)
    with nyala.connect(one.served.url, token=alice) as db, suppress(StoreError):
        db.table("homes").scan(where=f"city = '{SECRET}'").to_arrow()
    ticket = fl.Ticket(json.dumps({"table": "homes", "where": f"city = '{SECRET}'"}).encode())
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {root}".encode())])
    one.served.client.do_get(ticket, options).read_all()  # a short one of the client is no DoGet
    pages = {path: one.ask(path, root)[1].replace(f"{SECRET}x", "") for path in PAGES}
    logs = {"log": caplog.text, "audit": audit.read_text(), "output": "".join(capfd.readouterr())}
    assert " took " in logs["log"] and " failed: " in logs["log"] and '"maintain"' in logs["audit"]
    assert "filter on city" in pages["/console/scans"]
    traces.close()
    spans = {"spans": "".join(map(repr, collector.bodies))}
    assert {span.name for span in collector.spans} >= {"do_get", "do_put", "execute", "session_write", "session_get"}
    assert any(span.is_error for span in collector.spans)
    for name, text in {**logs, **pages, **spans}.items():
        for secret in (SECRET, str(NUMBER), f"{NUMBER:,}", root, alice, root.split("_", 2)[2]):
            assert secret not in text, name
    logging.getLogger("nyala.flight_server").info("planted: %s", SECRET)
    assert SECRET in caplog.text
