"""EXPLAIN: what a query asks of each table, and DataFusion's plan."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from ...schemas.phrases import counted, size
from .leaves.planning import Leaf, LeafTable, Need
from .source.reading import ScanService


def explained(
    store: ScanService,
    tables: Mapping[str, LeafTable],
    wanted: Mapping[str, Need],
    leaves: Mapping[str, Leaf] | None,
    plan: str,
    rows: int | None = None,
) -> pa.Table:
    """Return the lines of EXPLAIN, which tell for each table of a query: which columns are read, which filter the store
    applies, how much of the table it skips. With ``leaves``, also the rows and bytes that were read, and the tables
    whose keys restricted them."""
    lines: list[str] = []
    for name, need in wanted.items():
        table = tables[name]
        lines.append(f"table {table.description.name}")
        lines.append(f"  columns: {', '.join(need.columns) or 'none'}")
        lines.append(f"  filter in the store: {'none' if need.where is None else json.dumps(need.where, default=str)}")
        if table.since is None:
            skipped = store.plan(table.scan(need.columns, need.where)).explain
            lines += [f"  {key}: {value}" for key, value in skipped.items() if isinstance(value, int | float | str)]
        leaf = None if leaves is None else leaves.get(name)
        if leaf is not None:
            if leaf.restricted:
                lines.append(f"  restricted by the keys of: {', '.join(leaf.restricted)}")
            done = f"{counted(leaf.rows, 'row')}, {size(leaf.nbytes)}" if leaf.batches is not None else "streamed"
            lines.append(f"  read: {done}")
    lines.append("plan")
    lines += [f"  {line}" for line in plan.splitlines()]
    if rows is not None:
        lines.append(f"result: {counted(rows, 'row')}")
    return pa.table({"plan": lines})
