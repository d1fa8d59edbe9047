"""Rows for the jobs to work on: every type, and the cells that are easily lost."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("cents", pa.decimal128(10, 2)),
        ("small", pa.int16()),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
        ("ratio", pa.float32()),
    ]
)


def rows(ids: range, turn: int = 0) -> pa.Table:
    """Rows of ``SCHEMA`` with NULLs, NaN, -0.0 and empty cells; other ones in every ``turn``."""
    prices = (0.5, float("nan"), -0.0, None)
    columns: dict[str, list[Any]] = {
        "id": list(ids),
        "city": [None if i % 7 == 3 else "x" * (i % 19) + str(turn) * (i % 5) for i in ids],
        "price": [p if (p := prices[(i + turn) % 4]) is None else p * (i + 1) for i in ids],
        "at": [dt.datetime(2024, 1, 1) + dt.timedelta(seconds=i, microseconds=turn) for i in ids],
        "day": [dt.date(1969, 12, 1) + dt.timedelta(days=i % 400) for i in ids],
        "cents": [None if i % 11 == 0 else Decimal(i * 7 - 500 + turn) / 100 for i in ids],
        "small": [i % 100 - 50 for i in ids],
        "raw": [bytes([i % 256]) * (i % 9) for i in ids],
        "ok": [None if i % 5 == 0 else i % 2 == 0 for i in ids],
        "ratio": [i / 3 for i in ids],
    }
    return pa.table(columns, schema=SCHEMA)
