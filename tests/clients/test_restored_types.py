"""A restore of cells of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database

NAN = float("nan")
LISTS = ([[1], None, [], [1, None]], [None, [1], [], [1, 2]])
KINDS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False, True], [None, True, False, False]),
    "uint64": (pa.uint64(), [1, None, 2**64 - 1, 0], [None, 1, 2**64 - 1, 5]),
    "decimal": (
        pa.decimal128(30, 2),
        [Decimal(1), None, Decimal(2), Decimal(3)],
        [None, Decimal(1), Decimal(2), Decimal(4)],
    ),
    "float16": (pa.float16(), [1.0, None, NAN, -0.0], [None, 1.0, NAN, 0.0]),
    "float32": (pa.float32(), [1.0, None, NAN, -0.0], [None, 1.0, NAN, 0.0]),
    "binary": (pa.binary(), [b"", None, b"a", b"b"], [None, b"", b"a", b"c"]),
    "time": (pa.time32("s"), [dt.time(1), None, dt.time(2), dt.time(3)], [None, dt.time(1), dt.time(2), dt.time(4)]),
    "interval": (
        pa.month_day_nano_interval(),
        [(1, 2, 3), None, (1, 1, 1), (2, 2, 2)],
        [None, (1, 2, 3), (1, 1, 1), (2, 2, 3)],
    ),
    "list": (pa.list_(pa.int64()), *LISTS),
    "large_list": (pa.large_list(pa.int64()), *LISTS),
    "fixed_size_list": (
        pa.list_(pa.int64(), 2),
        [[1, 2], None, [3, 4], [1, None]],
        [None, [1, 2], [3, 4], [1, 2]],
    ),
    "struct": (
        pa.struct([("a", pa.float64())]),
        [{"a": 1.0}, None, {"a": NAN}, {"a": -0.0}],
        [None, {"a": 1.0}, {"a": NAN}, {"a": 0.0}],
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        [[("a", 1)], None, [], [("a", 2)]],
        [None, [("a", 1)], [], [("a", 3)]],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_restore_brings_back_cells_of_every_type(db: Database, kind: str) -> None:
    """The third row has an equal cell, so that it does not differ."""
    cell_type, old, new = KINDS[kind]
    table = db.create_table("t", pa.schema([("id", pa.int64()), ("cell", cell_type)]), "id")
    ids = pa.array(range(4), pa.int64())
    table.insert(pa.table({"id": ids, "cell": pa.array(old, cell_type)}))
    moment = db.now()
    before = table.scan(ordered=True).to_arrow().to_pylist()
    table.update(pa.table({"id": ids, "cell": pa.array(new, cell_type)}))
    assert table.restore(moment).applied == 3
    assert repr(table.scan(ordered=True).to_arrow().to_pylist()) == repr(before)
