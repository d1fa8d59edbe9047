"""Loads into a store in a bucket, where a group of the log takes as long as many batches take to apply."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.engine.store import Store
from nyala.schemas.rows.write import WriteCommand
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
BATCHES, ROWS = 48, 1_000
AHEAD = 12


def test_a_load_goes_on_while_a_slot_is_on_its_way() -> None:
    machine = Machine()
    arrived, was_in_time = threading.Event(), []
    with Store.open(machine.home(), OPTIONS.model_copy(update={"log_patience_seconds": 60})) as store:
        Database(store).create_table("t", SCHEMA, ["id"])
        objects: Any = machine.objects
        put = objects.put_if_absent

        def slow(name: str, content: bytes) -> None:
            was_in_time.append(arrived.wait(10))
            put(name, content)

        def batches():
            for number in range(BATCHES):
                if number == AHEAD:
                    arrived.set()
                ids = list(range(number * ROWS, (number + 1) * ROWS))
                yield pa.record_batch([ids, ids], schema=SCHEMA)

        objects.put_if_absent = slow
        results = list(store.write_all(WriteCommand(table="t"), batches()))
        assert all(was_in_time), "the first slot had not arrived when so many batches had been taken"
        assert sum(result.applied for result in results) == BATCHES * ROWS
    with Store.open(machine.other().home(), OPTIONS) as store:
        assert Database(store).table("t").count() == BATCHES * ROWS
