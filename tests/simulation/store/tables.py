"""Tables: what the actors write to, and the model of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import nyala
from nyala import partition
from nyala.schemas.table.column import ColumnOptions
from nyala.schemas.table.table import TableOptionsDict
from tests.campaigns.model.oracle import ModelSchema, Oracle

from .plan import TABLES

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.int64()), pa.field("n", pa.int64())])

EXTRA = "extra"
"""A column that comes and goes."""


def _sum(old: int | None, number: int | None) -> int | None:
    if old is None or number is None:
        return number if old is None else old
    return old + number


MODEL = ModelSchema(("k",), {"v": None, "n": None}, frozenset({"k"}), merges={"n": _sum})
Rows = dict[int, tuple[int | None, int | None]]


def create(database: nyala.Database, buckets: int, history_seconds: int | None = None) -> None:
    """Create the tables that are not there."""
    levels = [partition.hash("k", buckets=buckets)] if buckets else []
    options: TableOptionsDict = {} if history_seconds is None else {"history_max_age_seconds": history_seconds}
    for name in sorted(set(TABLES) - set(database.list_tables())):
        database.create_table(name, SCHEMA, "k", levels, {"n": ColumnOptions(merge="sum")}, **options)


def oracle() -> Oracle:
    """Return a model of a table."""
    return Oracle(MODEL)


def batch_of(op: str, rows: Iterable[tuple[int, int | None]], by: int) -> pa.RecordBatch:
    """Return rows as a call numbered ``by`` writes them: ``v`` says who wrote a row last."""
    given = given_of(op, rows, by)
    names = [name for name in SCHEMA.names if name in given[0]]
    return pa.record_batch([pa.array([row[name] for row in given], pa.int64()) for name in names], _part(names))


def given_of(op: str, rows: Iterable[tuple[int, int | None]], by: int) -> list[dict[str, Any]]:
    """Return rows as the model takes them."""
    if op.startswith("delete"):
        return [{"k": key} for key, _ in rows]
    return [{"k": key, "v": by, "n": number} for key, number in rows]


def _part(names: list[str]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


def rows_of(table: pa.Table) -> Rows:
    """Return rows by key."""
    columns = (table[name].to_pylist() for name in SCHEMA.names)
    rows = list(zip(*columns, strict=True))
    by_key = {key: (v, n) for key, v, n in rows}
    assert len(by_key) == len(rows), f"a key comes twice: {rows}"
    return by_key


def state_of(model: Oracle, moment: int) -> Rows:
    """Return the rows of a model at a moment."""
    return {key[0]: (row["v"], row["n"]) for key, row in model.as_of(moment).items()}


def at(model: Oracle, moment: int) -> Oracle:
    """Return a model as it was at a moment."""
    earlier = oracle()
    earlier.last_timestamp = moment
    for key, versions in model.versions.items():
        if kept := [version for version in versions if version[0] <= moment]:
            earlier.versions[key] = kept
    return earlier


def changes(table: nyala.Table, since: int, until: int, is_every: bool) -> list[dict[str, Any]]:
    """Return the changes between two moments, without the column that comes and goes."""
    feed = table.changes(since, until, every=is_every).to_arrow()
    return feed.select(["_op", "_timestamp", *SCHEMA.names]).to_pylist()
