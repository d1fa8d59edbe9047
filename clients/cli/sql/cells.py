"""Cells of queries in the forms that files and screens can hold: tables have no lists and no intervals, queries do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from ..rows import nested_text
from .form import SqlForm

_NANOSECONDS = 1_000_000_000


def holdable(reader: pa.RecordBatchReader, form: SqlForm) -> pa.RecordBatchReader:
    """Return the rows that ``nyala sql`` prints, with text in place of what a form cannot hold: lists and structs as
    JSON, intervals as in ``1 mon 2 days 03:00:00``."""
    written = {place: write for place, kind in enumerate(reader.schema.types) if (write := _writer(kind, form))}
    if not written:
        return reader
    fields = [field.with_type(pa.string()) if place in written else field for place, field in enumerate(reader.schema)]
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [written[place](each) if place in written else each for place, each in enumerate(batch.columns)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _writer(kind: pa.DataType, form: SqlForm) -> Callable[[pa.Array], pa.Array] | None:
    if form is SqlForm.ARROW:
        return None
    if pa.types.is_interval(kind):
        return _intervals
    if form is SqlForm.PARQUET:
        return None
    if pa.types.is_duration(kind):
        return _durations
    return nested_text if pa.types.is_nested(kind) and form is not SqlForm.JSON else None


def _intervals(cells: pa.Array) -> pa.Array:
    return _texts(cells, lambda cell: _interval(*cell))


def _durations(cells: pa.Array) -> pa.Array:
    return _texts(cells.cast(pa.duration("us"), safe=False), _duration)


def _texts(cells: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if cell is None else write(cell) for cell in cells.to_pylist()], pa.string())


def _duration(cell: timedelta) -> str:
    return _interval(0, cell.days, cell.seconds * _NANOSECONDS + cell.microseconds * 1000)


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval as PostgreSQL writes it."""
    sign = -1 if months < 0 else 1
    years, rest_months = divmod(abs(months), 12)
    parts = [_of(sign * years, "year"), _of(sign * rest_months, "mon"), _of(days, "day")]
    seconds, rest = divmod(abs(nanoseconds), _NANOSECONDS)
    if nanoseconds or not any(parts):
        fraction = f".{rest:09}".rstrip("0") if rest else ""
        hours, minutes = seconds // 3600, seconds // 60 % 60
        parts.append(f"{'-' if nanoseconds < 0 else ''}{hours:02}:{minutes:02}:{seconds % 60:02}{fraction}")
    return " ".join(part for part in parts if part)


def _of(count: int, unit: str) -> str:
    return f"{count} {unit}{'' if count == 1 else 's'}" if count else ""
