"""A process that writes single rows, and two at once, into a store of its own, to be killed.

    python tests/campaigns/crash/embedded_process.py DIRECTORY STARTS SEED

It prints a line for each write that is acknowledged.

STARTS is the JSON list of the next step of each writer. What step ``n`` of a writer does follows from ``n`` (`step`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa

import nyala
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.crash.server_process import OPTIONS
from tests.campaigns.options import store_at

SCHEMA = pa.schema(
    [
        pa.field("writer", pa.int64(), False),
        pa.field("number", pa.int64(), False),
        ("step", pa.int64()),
        ("text", pa.string()),
    ]
)


def step(writer: int, number: int) -> tuple[str, list[dict[str, Any]]]:
    """Return the operation and the rows: each key is inserted, changed, and some are deleted again. Every second writer
    does the same to a second key at once."""
    op, row = _of_one(writer, number)
    return op, [row, {**row, "number": -1 - row["number"]}] if writer % 2 else [row]


def _of_one(writer: int, number: int) -> tuple[str, dict[str, Any]]:
    key = {"writer": writer, "number": number // 3}
    match number % 3:
        case 0:
            return "insert", {**key, "step": number, "text": f"{number} " * (number % 20)}
        case 1:
            return "upsert", {**key, "step": number, "text": "changed"}
        case _:
            return ("delete", key) if number % 2 else ("update", {**key, "step": number})


def open_store(directory: str) -> nyala.Database:
    """Open the store as this process and its judge do."""
    return nyala.Database(store_at(directory, OPTIONS))


def main() -> None:
    directory, starts, seed = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    with open_store(directory) as database:
        table = database.table("t")
        for writer, start in enumerate(starts):
            threading.Thread(target=_write, args=(table, writer, start), daemon=True).start()
        random = Random(seed)
        while True:
            time.sleep(random.uniform(0, 0.2))
            table.maintain(random.choice(list(MaintenanceKind)))


def _write(table: nyala.Table, writer: int, number: int) -> None:
    while True:
        op, rows = step(writer, number)
        result = table.write(rows, op)
        assert result.applied == len(rows), result
        os.write(1, b"%d %d %d\n" % (writer, number, result.timestamp))
        number += 1


if __name__ == "__main__":
    main()
