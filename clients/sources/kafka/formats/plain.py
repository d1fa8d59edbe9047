"""Messages that are rows themselves: JSON objects with the columns of the table, or streams of Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from .....schemas.cells.literal import from_json
from .....schemas.errors import InvalidArgumentError
from .....schemas.store.description import TableDescription
from .....schemas.table.column import ColumnSchema
from ....convert.leaves import infinities
from ....convert.text_cells import columns_of_text, columns_of_values, reader_of_floats
from .decoded import NOT_READABLE, Decoded, Format, Messages, TargetColumns, in_halves, joined, reason_of
from .json_text import read_alone, read_together
from .keys import by_keys, values_of_key

CHUNK = 4_096
"""So many messages are read at once at most, so that a wrong one costs the others little."""
ALONE = 32
"""From so many on, messages are read by Python, one by one, when Arrow rejects them."""
_BY_ARROW = frozenset({"bool", "int8", "int16", "int32", "int64", "float", "double", "string", "varchar", "date"}) | {
    "timestamp[us]",
    "decimal",
}
"""Types that Arrow reads from JSON as Python does here."""
OWN_COLUMNS = frozenset({"kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key"})
"""Columns of a table that are filled from the message itself, if the table has them."""


def row_columns(about: TableDescription) -> list[ColumnSchema]:
    """Return the columns of a table that messages bring."""
    numbered = () if about.unique_key else about.primary_key[-1:]
    return [each for each in about.columns if each.name not in OWN_COLUMNS and each.name not in numbered]


class JsonRows:
    """Messages that are JSON objects, as rows of a table. A field that an object lacks is NULL, or the default of its
    column."""

    def __init__(self, columns: Sequence[ColumnSchema]) -> None:
        self.columns = list(columns)
        self.names = [each.name for each in self.columns]
        self.parse_float = reader_of_floats(each.logical for each in self.columns)
        """How Python reads the floats of messages."""
        self.schema = pa.schema([each.field.with_nullable(True).remove_metadata() for each in self.columns])
        self.is_read_by_arrow = all(each.logical.name in _BY_ARROW for each in self.columns) and not any(
            each.write_default is not None for each in self.columns
        )
        """Arrow cannot tell a NULL from a field that is not there, which has the default."""
        self.read_schema = pa.schema(
            [each.with_type(pa.string()) if pa.types.is_date(each.type) else each for each in self.schema]
        )

    def of_arrow(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows that Arrow read with ``read_schema``, with the types of the columns.

        Raises:
            InvalidArgumentError: a date is none, or a number too large.
        """
        if any(map(infinities, rows.columns)):
            raise InvalidArgumentError("a number is too large")
        dates = [each for each in self.columns if pa.types.is_date(each.field.type)]
        cells, wrong = columns_of_text([rows.column(each.name) for each in dates], dates)
        if wrong:
            raise InvalidArgumentError(next(iter(wrong.values())))
        by_name = {column.name: values for column, values in zip(dates, cells, strict=True)}
        arrays = [by_name.get(name, rows.column(name)) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def of_values(self, values: Sequence[Mapping[str, Any]]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return objects that Python read as rows, and what is wrong with some: their rows do not count."""
        names = set(self.names)
        wrong: dict[int, str] = {}
        for place, value in enumerate(values):
            if unknown := value.keys() - names:
                wrong[place] = f"the table has no column {min(unknown)!r}"
        arrays: list[pa.Array] = []
        for column in self.columns:
            default = column.write_default
            if default is not None and not isinstance(default, str | int | float | bool):
                default = from_json(default, column.logical)
            [cells], why = columns_of_values([[each.get(column.name, default) for each in values]], [column], False)
            arrays.append(cells)
            wrong = why | wrong
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), wrong


def whole_rows(rows: pa.RecordBatch, about: TableDescription) -> pa.RecordBatch:
    """Return rows with all columns that messages bring: those that they lack are NULL, or have their default."""
    for column in row_columns(about):
        if column.name not in rows.schema.names:
            cell = from_json(column.write_default, column.logical)
            rows = rows.append_column(column.name, pa.repeat(pa.scalar(cell, column.field.type), rows.num_rows))
    return rows


class JsonFormat(Format):
    """The format of messages that are JSON objects, whose fields are columns."""

    def __init__(self) -> None:
        self._rows: tuple[int, int, JsonRows] | None = None

    def decode(self, messages: Messages, table: TargetColumns) -> list[Decoded]:
        """Return the rows of messages; a message without a value deletes its key."""
        about = table.about
        rows = self._of(about)
        wrong: dict[int, str] = {}
        numbers = np.array([number for number, value in enumerate(messages.values) if value is not None], np.int64)
        texts = [value for value in messages.values if value is not None]
        parts: list[tuple[pa.RecordBatch, np.ndarray]] = []
        for first in range(0, len(texts), CHUNK):
            parts += read_rows(rows, texts, first, min(first + CHUNK, len(texts)), wrong)
        rejects = {int(numbers[place]): why for place, why in wrong.items()}
        gone = [number for number, value in enumerate(messages.values) if value is None]
        deletes = by_keys(messages.keys, gone, about, values_of_key, rejects)
        whole = [Decoded.of(batch, numbers[places]) for batch, places in parts]
        return [joined([*whole, deletes], rows.schema, rejects)]

    def _of(self, about: TableDescription) -> JsonRows:
        version = about.table_id, about.schema_version
        if self._rows is None or self._rows[:2] != version:
            self._rows = (*version, JsonRows(row_columns(about)))
        return self._rows[2]


def read_rows(
    rows: JsonRows, texts: Sequence[bytes], first: int, end: int, wrong: dict[int, str]
) -> list[tuple[pa.RecordBatch, np.ndarray]]:
    """Return the rows of the messages from ``first`` to ``end``, which are JSON texts, with their places; the wrong
    ones go to ``wrong``."""

    def attempt(start: int, stop: int) -> tuple[pa.RecordBatch, np.ndarray]:
        if rows.is_read_by_arrow and stop - start > ALONE:
            return rows.of_arrow(read_together(texts[start:stop], rows.read_schema)), np.arange(start, stop)
        values, places, why = [], [], {}
        for place in range(start, stop):
            try:
                values.append(read_alone(texts[place], rows.parse_float))
                places.append(place)
            except InvalidArgumentError as error:
                why[place] = error.message
        batch, misfits = rows.of_values(values)
        wrong.update(why | {places[at]: text for at, text in misfits.items()})
        kept = np.array([at for at in range(len(values)) if at not in misfits], np.int64)
        return batch.take(pa.array(kept)), np.array(places, np.int64)[kept]

    return in_halves(attempt, first, end, wrong)


class ArrowFormat(Format):
    """The format of messages that are streams of Arrow IPC, each with one or more rows."""

    def decode(self, messages: Messages, table: TargetColumns) -> list[Decoded]:
        """Return the rows of messages; a message without a value deletes its key."""
        rejects: dict[int, str] = {}
        parts: list[Decoded] = []
        gone: list[int] = []
        for number, value in enumerate(messages.values):
            if value is None:
                gone.append(number)
                continue
            try:
                rows = pa.ipc.open_stream(value).read_all()
                rows.validate(full=True)
            except NOT_READABLE as error:
                rejects[number] = f"it is not an Arrow stream: {reason_of(error)}"
                continue
            for batch in rows.combine_chunks().to_batches():
                whole = whole_rows(batch, table.about)
                parts.append(Decoded.of(whole, np.full(batch.num_rows, number, np.int64)))
        deletes = by_keys(messages.keys, gone, table.about, values_of_key, rejects)
        parts += [deletes.slice(at) for at in range(deletes.rows.num_rows)]
        parts.sort(key=lambda each: int(each.numbers[0]))
        runs = [list(run) for _, run in groupby(parts, lambda each: (bool(each.is_delete[0]), each.rows.schema))]
        return [*(joined(run, run[0].rows.schema, {}) for run in runs), joined([], pa.schema([]), rejects)]
