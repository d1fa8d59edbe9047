"""Every type x every encoding x nullable or not x every kind of filter x every state, against pyarrow.compute.

Each state looks at every ``STRIDE``-th filter, another part of them in each state and at each moment; with 1, as
``MATRIX_STRIDE=1`` asks, at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.table import Table
from tests.campaigns.matrix.checks import checks_of, selected
from tests.campaigns.matrix.table import STATES, MatrixTable
from tests.dose import dose

STRIDE = int(os.environ.get("MATRIX_STRIDE", dose("241", "41")))


@pytest.fixture
def matrix(tmp_path: Path) -> Iterator[MatrixTable]:
    made = MatrixTable(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("state", STATES)
def test_every_column_answers_as_arrow_does(matrix: MatrixTable, state: str) -> None:
    matrix.reach(state)
    check_cells(matrix.table.scan(ordered=True).to_arrow(), matrix.rows)
    check_filters(matrix.table, matrix, matrix.rows, None, STATES.index(state))
    for number, (moment, rows) in enumerate(matrix.past):
        check_cells(matrix.table.scan(as_of=moment, ordered=True).to_arrow(), rows)
        check_filters(matrix.table, matrix, rows, moment, STATES.index(state) + 7 * number + 1)


def check_cells(found: pa.Table, expected: pa.Table) -> None:
    """Compare bit for bit: NaN with NaN, -0.0 not with 0.0."""
    assert found.schema.equals(expected.schema, check_metadata=True)
    for name in expected.schema.names:
        mine, other = bits(found[name]), bits(expected[name])
        assert mine.equals(other), f"{name}: {first_difference(mine, other)}"


def bits(column: pa.ChunkedArray) -> pa.Array:
    cells = column.combine_chunks()
    integers = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(cells.type)
    return cells.view(integers) if integers else cells


def first_difference(found: pa.Array, expected: pa.Array) -> str:
    for row, (mine, other) in enumerate(zip(found, expected, strict=True)):
        if not mine.equals(other):
            return f"row {row} has {str(mine)[:60]!r}, expected is {str(other)[:60]!r}"
    return f"{len(found)} rows, expected are {len(expected)}"


def check_filters(table: Table, matrix: MatrixTable, rows: pa.Table, moment: int | None, offset: int) -> None:
    ids = rows["id"].to_numpy()
    number = offset
    for variant in matrix.variants:
        cells = rows[variant.name].combine_chunks()
        for tree, mask in checks_of(variant):
            number += 1
            if number % STRIDE:
                continue
            found = table.scan(["id"], where=tree, as_of=moment).to_arrow()["id"].to_numpy()
            expected = ids[selected(mask(cells))]
            assert np.array_equal(np.sort(found), expected), (
                f"{tree}: not selected {sorted(set(expected) - set(found))[:3]}, "
                f"wrongly {sorted(set(found) - set(expected))[:3]}"
            )
