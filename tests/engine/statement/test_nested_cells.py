"""Statements of the engine over lists, structs and maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import nyala

PAIR = pa.struct([("a", pa.float64()), ("b", pa.string())])
KINDS = {
    "list": pa.list_(PAIR),
    "struct": PAIR,
    "map": pa.map_(pa.string(), pa.int64()),
    "two": pa.list_(pa.int32(), 2),
}
NOTHING: dict[str, Any] = dict.fromkeys(KINDS)
OLD: dict[str, Any] = {
    "list": [{"a": -0.0, "b": None}],
    "struct": {"a": 1.0, "b": ""},
    "map": [("k", 1)],
    "two": [1, None],
}
NEW: dict[str, Any] = {"list": [{"a": 0.0, "b": None}], "struct": {"a": 1.0, "b": None}, "map": [], "two": [1, 2]}


def test_nested_cells_are_restored(tmp_path: Path) -> None:
    """Those that differ, also by no more than a NULL or the sign of a zero; others are not written again."""
    with nyala.open(tmp_path) as db:
        table = db.create_table("t", pa.schema([("k", pa.int64()), *KINDS.items(), ("v", pa.int64())]), "k")
        table.upsert(
            [{"k": 1, "v": 1, **OLD}, {"k": 2, "v": 1, **NOTHING}, {"k": 3, "v": 1, **OLD}, {"k": 4, "v": 1, **OLD}]
        )
        moment, before = db.now(), table.scan(ordered=True).to_arrow()
        table.upsert(
            [{"k": 1, "v": 1, **NEW}, {"k": 2, "v": 1, **OLD}, {"k": 3, "v": 2, **OLD}, {"k": 4, "v": 1, **OLD}]
        )
        changed = db.now()
        table.restore(moment)
        after = table.scan(ordered=True).to_arrow()
        assert after.equals(before) and repr(after["list"][0]) == repr(before["list"][0])
        assert sorted(table.changes(changed, db.now()).to_arrow()["k"].to_pylist()) == [1, 2, 3]
