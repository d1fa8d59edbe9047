"""A client that is killed: one warning in the log, and no traceback."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

import pytest

from nyala.schemas.rows.transaction import StagedBatch, StageResult
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import SCHEMA, Served

_CLIENT = """
import sys, time, pyarrow as pa, pyarrow.flight as fl
url, command, message = sys.argv[1:]
rows = pa.record_batch({"id": [1], "city": ["x"], "price": [1.0]})
writer, _ = fl.connect(url).do_put(fl.FlightDescriptor.for_command(command.encode()), rows.schema)
writer.write_batch(rows)
writer.write_metadata(message.encode())
writer.done_writing()
time.sleep(60)
"""


class Slow(FakeStore):
    """Its writes end when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        found = super().stage(command, batches)
        self.has_begun.set()
        assert self.may_end.wait(30)
        return found


def test_a_client_that_is_killed_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = Slow()
    types = {"id": "int64", "city": "string", "price": "double"}
    columns = [{"name": each.name, "type": types[each.name], "nullable": each.nullable} for each in SCHEMA]
    store.create_table(TableDefinition.model_validate({"name": "homes", "columns": columns, "primary_key": ["id"]}))
    served = Served(store)
    command = {"table": "homes", "op": "upsert", "stage": {"transaction": "x", "part": "p"}}
    texts = json.dumps(command), json.dumps({"commit": True, "rows": 1})
    client = subprocess.Popen([sys.executable, "-c", _CLIENT, served.url, *texts])
    try:
        assert store.has_begun.wait(60)
        with caplog.at_level(logging.INFO, "nyala.flight_server"):
            client.kill()
            client.wait()
            time.sleep(0.5)  # until the server's side of the connection knows; sooner, there is no warning to see
            store.may_end.set()
            until(lambda: caplog.records)
    finally:
        client.kill()
        store.may_end.set()
        served.server.shutdown()
    (record,) = (each for each in caplog.records if each.name == "nyala.flight_server")
    assert record.levelno == logging.WARNING and not record.exc_info
    assert "client disconnected" in record.getMessage()
