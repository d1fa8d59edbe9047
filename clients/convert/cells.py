"""Cells as Python values, including those that Python cannot represent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...schemas.cells.moment import python_cell


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert a record batch to dicts of Python values, among them cells that Python cannot represent."""
    try:
        return batch.to_pylist()
    except OverflowError:
        columns = [[python_cell(cell) for cell in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
