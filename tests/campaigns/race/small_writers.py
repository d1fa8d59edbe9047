"""Many writers of single rows, each with keys of its own that only it knows, and some that all of them race for."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa

import nyala
from tests.campaigns.options import columns, table
from tests.campaigns.race.checks import require

WRITERS = 32
TABLE = "small"
_KEYS, _BURST, _PAUSE_SECONDS = 12, 8, 0.6
_SCHEMA = pa.schema(
    [
        pa.field("writer", pa.int16(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        ("value", pa.int64()),
        ("text", pa.string()),
    ]
)

Row = dict[str, Any]


def create(database: nyala.Database, history_seconds: int) -> None:
    """Make the table."""
    options = table(history_max_age_seconds=history_seconds)
    database.create_table(TABLE, _SCHEMA, ["writer", "number"], column_options=columns(_SCHEMA), **options)


class SmallWriter:
    """Writes row after row; ``rows`` are its own, as the last acknowledgement left them."""

    def __init__(self, database: nyala.Database, number: int, seed: int) -> None:
        self.number = number
        self.rows: dict[int, Row] = {}
        self.won: list[int] = []
        """The numbers of the rows of all that it was the first to insert."""
        self.writes = 0
        self._raced = 0
        self._random = Random(seed)
        self._table = database.table(TABLE)

    def step(self, stop: threading.Event) -> None:
        """Write some rows one after the other, then rest."""
        for _ in range(_BURST):
            self._write_own()
        self._race()
        stop.wait(self._random.uniform(0, _PAUSE_SECONDS))

    def _write_own(self) -> None:
        number, random = self._random.randrange(_KEYS), self._random
        key: Row = {"writer": self.number, "number": number}
        cells: Row = {"value": random.choice([None, self.writes]), "text": random.choice([None, "", "x" * 40])}
        if random.random() < 0.5:
            del cells["text"]
        known = self.rows.get(number)
        op = random.choice(["update", "update", "upsert", "delete"] if known else ["insert", "upsert"])
        self._apply(op, key if op == "delete" else key | cells)
        if op == "delete":
            del self.rows[number]
        else:
            self.rows[number] = (known or key | {"value": None, "text": None}) | cells
        found = self._table.get((self.number, number))
        require(found == self.rows.get(number), f"after {op}: {found}, not {self.rows.get(number)}")

    def _apply(self, op: str, row: Row) -> None:
        result = self._table.write([row], op)
        require(result.applied == 1, f"{op} of {row} has applied {result.applied}")
        self.writes += 1

    def _race(self) -> None:
        row = {"writer": -1, "number": self._raced, "value": self.number, "text": None}
        if self._table.insert_ignore([row]).applied:
            self.won.append(self._raced)
        self._raced += 1


def check_rows(table: pa.Table, writers: Iterable[SmallWriter]) -> None:
    """All rows are there as their writers know them, and each that all raced for has one winner."""
    expected: dict[tuple[int, int], Row] = {}
    for writer in writers:
        expected |= {(writer.number, number): row for number, row in writer.rows.items()}
        for number in writer.won:
            require((-1, number) not in expected, f"two writers were the first to insert row {number}")
            expected[-1, number] = {"writer": -1, "number": number, "value": writer.number, "text": None}
    found = {(row["writer"], row["number"]): row for row in table.to_pylist()}
    require(len(found) == len(table), "a key is there twice")
    require(found == expected, f"{sorted(found.keys() ^ expected.keys())} or their cells differ")
