"""Cells as Python values, including those that Python cannot represent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def python_cell(cell: pa.Scalar) -> Any:
    """Return a cell as a Python value; a date or timestamp outside the years 1 to 9999 as its days or
    microseconds since 1970."""
    try:
        return cell.as_py()
    except OverflowError:
        return cell.value  # pyright: ignore[reportAttributeAccessIssue] - dates and timestamps have it


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts of such cells."""
    try:
        return batch.to_pylist()
    except OverflowError:
        columns = [[python_cell(cell) for cell in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
