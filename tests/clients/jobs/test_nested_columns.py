"""Nested columns through the jobs: what arrives is what was there."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import backup, checksum, copy_table, export, load, restore

PAIR: list[Any] = [dt.time(1, 2, 3), None]
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flat": (pa.list_(pa.time32("s"), 2), [PAIR, None]),
    "listed": (pa.list_(pa.list_(pa.time32("s"), 2), 2), [[None, PAIR], None]),
    "mapped": (pa.map_(pa.string(), pa.list_(pa.time32("s"), 2)), [[("a", None), ("b", PAIR)], None]),
}


def assert_same(table: Table, other: Table) -> None:
    assert other.scan(ordered=True).to_arrow().equals(table.scan(ordered=True).to_arrow())


@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_one_length_that_are_null_pass_every_job(
    source: Database, target: Database, tmp_path: Path, kind: str
) -> None:
    """The items under a NULL were what the memory held before, and refused as times that there are not."""
    column, cells = KINDS[kind]
    schema = pa.schema([pa.field("k", pa.int64(), False), ("v", column)])
    rows = pa.table({"k": pa.array(range(6)), "v": pa.array([None, *cells, *cells, None], column)}, schema=schema)
    table = source.create_table("t", schema, "k")
    table.insert(rows)
    table.maintain("flush")
    backup(source, "t", tmp_path / "backups")
    restore(target, tmp_path / "backups", "t")
    assert target.table("t").scan(ordered=True).to_arrow().equals(rows)
    table.delete({"k": [1]})
    table.update(rows.slice(3, 1).set_column(1, schema.field(1), pa.nulls(1, column)))
    backup(source, "t", tmp_path / "backups")
    restore(target, tmp_path / "backups", "t", name="later")
    assert_same(table, target.table("later"))
    copy_table(source, target, "t", name="copied")
    assert_same(table, target.table("copied"))
    assert checksum(source, "t").is_same(checksum(target, "copied"))
    export(source, "t", tmp_path / "exported")
    loaded = target.create_table("loaded", schema, "k")
    load(target, "loaded", [str(tmp_path / "exported")])
    assert_same(table, loaded)
