"""Random nested columns, four types deep, through a table: what was written is what every way to read returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.cells.types import LogicalType
from tests.dose import dose
from tests.engine.vectors.nested_values import nested_types, values

STEPS = ("flush", "flush_deltas", "minor_compact", "major_compact", "compact")


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, pa.DataType]:
    """Rows of up to three nested columns, other cells for some of them, and the type of one column more."""
    kinds = draw(st.lists(nested_types(), min_size=1, max_size=3))
    count = draw(st.integers(1, 8))
    cells = [pa.array(draw(st.lists(values(kind), min_size=count, max_size=count)), kind) for kind in kinds]
    fields = [pa.field("k", pa.int64(), False), *(pa.field(f"c{number}", kind) for number, kind in enumerate(kinds))]
    rows = pa.table([pa.array(range(count)), *cells], schema=pa.schema(fields))
    changed = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count).map(sorted))
    others = [
        pa.array(draw(st.lists(values(kind), min_size=len(changed), max_size=len(changed))), kind) for kind in kinds
    ]
    return rows, pa.table([pa.array(changed, pa.int64()), *others], schema=rows.schema), draw(nested_types(2))


@pytest.mark.timeout(3600)
@settings(
    max_examples=dose(40, 1_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    drawn=columns(),
    steps=st.lists(st.sampled_from(STEPS), max_size=4),
    later=st.lists(st.sampled_from(STEPS), max_size=4),
    row_column=st.booleans(),
)
def test_cells_come_back_by_every_way(
    drawn: tuple[pa.Table, pa.Table, pa.DataType], steps: list[str], later: list[str], row_column: bool
) -> None:
    rows, changes, more = drawn
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        db = Database(store)
        table = db.create_table("t", rows.schema, "k", row_column=row_column)
        table.insert(rows)
        for step in steps:
            table.maintain(step)
        before = db.now()
        if changes.num_rows:
            table.update(changes) if len(steps) % 2 else table.upsert(changes)
        table.alter().add_column("more", str(LogicalType.of(more))).apply()
        for step in later:
            table.maintain(step)
        _check(table, _patched(rows, changes).append_column("more", pa.nulls(rows.num_rows, more)))
        assert table.scan(ordered=True, as_of=before, columns=rows.column_names).to_arrow().equals(rows)
        feed = table.changes(before, columns=rows.column_names).to_arrow().sort_by("k")
        real = [key for key in changes["k"].to_pylist() if _row(rows, key) != _row(_patched(rows, changes), key)]
        assert [key for key in feed["k"].to_pylist() if key in real] == real


def _patched(rows: pa.Table, changes: pa.Table) -> pa.Table:
    places = {key: rows.num_rows + place for place, key in enumerate(changes["k"].to_pylist())}
    indices = [places.get(key, key) for key in range(rows.num_rows)]
    return pa.concat_tables([rows, changes]).combine_chunks().take(pa.array(indices))


def _row(rows: pa.Table, key: int) -> Any:
    return rows.slice(key, 1).to_pylist()


def _check(table: Table, expected: pa.Table) -> None:
    assert table.scan(ordered=True).to_arrow().equals(expected)
    keys = np.arange(expected.num_rows).tolist()
    assert table.get_many(keys).sort_by("k").equals(expected)
    assert table.get(0) == expected.slice(0, 1).to_pylist()[0]
    assert table.scan(where=f"k IN ({', '.join(map(str, keys))})").to_arrow().sort_by("k").equals(expected)
    assert table.scan(where="k = 0").to_arrow().equals(expected.slice(0, 1))
    for name in expected.column_names[1:]:
        assert table.scan(where=f"{name} IS NULL").count() == expected[name].null_count
        assert (
            table.scan(columns=[name], ordered=True)
            .to_arrow()[name]
            .combine_chunks()
            .equals(expected[name].combine_chunks())
        )
