"""The two tables of the race, and what their writers put into them: so that rows say by themselves what is wrong.

``events`` only grows: each batch adds EVENTS rows under keys that are scattered over the whole range, so that every
flush overlaps all the others. ``state`` is overwritten: rows 0 to FIXED of each writer by each of its batches, fresh
rows that are born and deleted KEPT batches later, and SHARED rows of writer -1 that all the writers race for.
"""

from __future__ import annotations

import threading
from random import Random

import numpy as np
import pyarrow as pa

import nyala
from tests.campaigns.options import columns, table

EVENTS, FIXED, FRESH, KEPT, SHARED = 100, 40, 4, 20, 8
LOADED_EVERY = 10
"""Of so many batches of events one comes in the order of its keys, so that it is loaded directly."""
FRESH_FROM = 1_000
EVENTS_SCHEMA = pa.schema(
    [pa.field("writer", pa.int16(), False), pa.field("number", pa.int64(), False), ("batch", pa.int64())]
)
STATE_SCHEMA = pa.schema(
    [
        pa.field("writer", pa.int16(), False),
        pa.field("number", pa.int64(), False),
        ("batch", pa.int64()),
        ("same", pa.int64()),
        ("later", pa.int64()),
        ("text", pa.string()),
    ]
)
KEY = ["writer", "number"]
_SCATTER, _GATHER, _MASK = 2_654_435_769, pow(2_654_435_769, -1, 1 << 32), (1 << 32) - 1


def scattered(places: np.ndarray) -> np.ndarray:
    """Return the key numbers of the events at ``places``: each another one, far from its neighbours."""
    return (places * _SCATTER) & _MASK


def gathered(numbers: np.ndarray) -> np.ndarray:
    """Return the places of the events with the key ``numbers``."""
    return (numbers * _GATHER) & _MASK


def create(database: nyala.Database, history_seconds: int) -> None:
    """Make both tables."""
    options = table(history_max_age_seconds=history_seconds)
    for name, schema in (("events", EVENTS_SCHEMA), ("state", STATE_SCHEMA)):
        database.create_table(name, schema, KEY, column_options=columns(schema), **options)


class Writer:
    """Writes batch after batch; ``events`` and ``state`` count those that were acknowledged."""

    def __init__(self, database: nyala.Database, number: int, seed: int) -> None:
        self.number = number
        self.random = Random(seed)
        self.events = self.state = self.commits = self.rows = 0
        self.shared: list[tuple[int, int]] = []
        """Commit timestamp and value of each of its writes to the shared rows."""
        self._events, self._state = database.table("events"), database.table("state")

    def step(self, stop: threading.Event) -> None:
        """Write one batch of each kind."""
        del stop
        batch = self.state
        fixed = range(FIXED)
        fresh = range(FRESH_FROM + batch * FRESH, FRESH_FROM + (batch + 1) * FRESH)
        self._write(self._state, "upsert", [*fixed, *fresh], batch=batch, same=batch)
        self.state += 1
        self._write(self._state, "update", fixed, later=batch)
        if batch >= KEPT:
            self._write(self._state, "delete", [number - KEPT * FRESH for number in fresh])
        value = batch << 8 | self.number
        timestamp = self._write(self._state, "upsert", range(SHARED), writer=-1, batch=value, text=f"{value}")
        self.shared.append((timestamp, value))
        keys = scattered(np.arange(self.events * EVENTS, (self.events + 1) * EVENTS))
        is_load = self.events % LOADED_EVERY == self.number
        self._write(self._events, "insert", np.sort(keys) if is_load else keys, batch=self.events)
        self.events += 1

    def event(self, place: int) -> tuple[int, int]:
        """Return the key of one of its events."""
        return self.number, int(scattered(np.array([place]))[0])

    def _write(self, table: nyala.Table, op: str, numbers: object, **cells: int | str) -> int:
        keys = pa.array(numbers, pa.int64())
        cells = {"writer": self.number, **cells}
        names = [field.name for field in table.schema if field.name in cells or field.name == "number"]
        columns = [
            keys if name == "number" else pa.repeat(pa.scalar(cells[name], table.schema.field(name).type), len(keys))
            for name in names
        ]
        result = table.write(pa.table(columns, names=names), op)
        self.commits += 1
        self.rows += result.applied
        assert result.applied == len(keys), f"{op} of {len(keys)} rows has applied {result.applied}"
        return result.timestamp
