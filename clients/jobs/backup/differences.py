"""Finds the rows that differ between two tables, by a second read of the buckets whose sums differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.cells.literal import to_json
from ....schemas.rows.scan import ScanSpec
from ....schemas.table.column import ColumnSchema
from ...convert.cells import python_cell
from ...executors.executor import Executor
from ...executors.progress import Show, run_tasks
from ..link import StoreLink
from ..splits import TableSplit, TabletLabel, in_order, split_table
from .row_hash import Sums, bucket_of, row_hashes
from .verification import KeyDifference

ROWS_MAX = 4_000_000
"""Keys of either side held in memory at once."""
_HASH, _TABLET = " hash", " tablet"
"""No column of a table begins with a space."""

Side = tuple[StoreLink, str, int]
"""A store, a table, a snapshot."""


@dataclass(frozen=True)
class Differences:
    """The keys by which two tables differ, the left table's tablets that hold them, and whether the list is
    complete."""

    keys: list[KeyDifference]
    tablets: list[TabletLabel]
    complete: bool


@dataclass(frozen=True)
class KeysTask:
    """A task that looks for the differences of two tables: read the keys of some buckets of one split."""

    link: StoreLink
    split: TableSplit
    key: tuple[str, ...]
    buckets: tuple[int, ...]


def differing_keys(
    sides: Sequence[Side],
    key: Sequence[str],
    sums: tuple[Sums, Sums],
    most: int,
    executor: Executor,
    show: Show,
    split_bytes: int,
) -> Differences:
    """Return up to ``most`` keys at which a verification finds two tables to differ, in the buckets whose sums
    differ."""
    left, right = sums
    differing = np.flatnonzero((left.rows != right.rows) | (left.sums != right.sums))
    buckets = _some(differing, left.rows + right.rows)
    rows = [_keys_of(side, tuple(key), buckets, executor, show, split_bytes) for side in sides]
    found = _joined(rows[0], rows[1], list(key))
    tablets = [int(label) if label.isdigit() else label for label in pc.unique(found[_TABLET].drop_null()).to_pylist()]
    keys = [_difference(row, key) for row in _rows(found.slice(0, most))]
    return Differences(keys, in_order(tablets), found.num_rows <= most and len(buckets) == len(differing))


def _some(buckets: np.ndarray, rows: np.ndarray) -> tuple[int, ...]:
    """Return the first buckets, as many as memory allows."""
    held = np.cumsum(rows[buckets])
    return tuple(buckets[: max(1, int(np.searchsorted(held, ROWS_MAX, "right")))].tolist())


def _keys_of(
    side: Side, key: tuple[str, ...], buckets: tuple[int, ...], executor: Executor, show: Show, split_bytes: int
) -> pa.Table:
    link, table, snapshot = side
    about = link.service.describe_table(table)
    spec = ScanSpec(table=table, columns=[column.name for column in about.columns], as_of=snapshot)
    tasks = [KeysTask(link, split, key, buckets) for split in split_table(link.service, spec, split_bytes).splits]
    parts = run_tasks(executor, read_keys, tasks, lambda part: part.num_rows, f"look for differences in {table}", show)
    fields = [(column.name, _comparable(column)) for column in about.columns if column.name in key]
    schema = pa.schema([*fields, (_HASH, pa.uint64()), (_TABLET, pa.string())])
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for _, part in parts)])


def _comparable(column: ColumnSchema) -> pa.DataType:
    """Return the widest type of the same kind: keys of the two sides may differ in width."""
    kind = column.logical
    if kind.name == "decimal":
        return pa.decimal128(38, kind.scale)
    return pa.int64() if kind.is_integer else kind.arrow


def read_keys(task: KeysTask) -> pa.Table:
    """Read the keys of one split to find how two tables differ: return those in the task's buckets, with the hashes of
    their rows and the tablet."""
    stream = task.link.scan(task.split)
    parts = [_with_hashes(pa.RecordBatch.from_pylist([], schema=stream.schema), task)]
    for batch in stream.batches:
        chosen = np.isin(bucket_of(row_hashes(batch, task.key)), task.buckets)
        parts.append(_with_hashes(batch.filter(pa.array(chosen)), task))
    return pa.concat_tables(parts)


def _with_hashes(rows: pa.RecordBatch, task: KeysTask) -> pa.Table:
    arrays = [rows.column(name) for name in task.key]
    hashes = pa.array(row_hashes(rows), pa.uint64())
    tablet = pa.repeat(pa.scalar(str(task.split.label)), rows.num_rows)
    return pa.table([*arrays, hashes, tablet], names=[*task.key, _HASH, _TABLET])


def _joined(left: pa.Table, right: pa.Table, key: list[str]) -> pa.Table:
    """Return the keys that differ; ``_HASH`` is NULL if the left lacks the key, that of the right if the right does."""
    joined = left.join(right, key, join_type="full outer", right_suffix="_right")
    mine, other = joined[_HASH], joined[f"{_HASH}_right"]
    return joined.filter(pc.invert(pc.fill_null(pc.equal(mine, other), False)))


def _rows(found: pa.Table) -> list[dict[str, Any]]:
    return [{name: python_cell(found[name][row]) for name in found.schema.names} for row in range(found.num_rows)]


def _difference(row: dict[str, Any], key: Sequence[str]) -> KeyDifference:
    what = "only_right" if row[_HASH] is None else "only_left" if row[f"{_HASH}_right"] is None else "values"
    return KeyDifference(key={name: to_json(row[name]) for name in key}, what=what)
