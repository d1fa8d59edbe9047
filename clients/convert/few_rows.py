"""A few rows, as a record batch of a table's types: for small writes, which come often.

It takes only what needs no judgement: Python values of exactly the type of their column. For all else there is
`data.WriteData`, which gives the same rows, and the errors.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...schemas.cells.moment import is_beyond
from ...schemas.table.column import ColumnSchema

ROWS_MAX = 64
_BYTES_MAX = 1 << 20
_LAYOUTS_MAX = 256
_TABLES_MAX = 64
_PYTHON: dict[str, type] = {
    "bool": bool,
    "int8": int,
    "int16": int,
    "int32": int,
    "int64": int,
    "double": float,
    "string": str,
    "varchar": str,
    "json": str,
    "binary": bytes,
    "date": dt.date,
    "timestamp[us]": dt.datetime,
}
"""The Python type of a column's cells, by the name of the column's type."""


class _Cells(NamedTuple):
    name: str
    python: type
    arrow: pa.DataType
    bound: int
    """Integers are in [-bound, bound)."""


def few_rows(data: Any, columns: Sequence[ColumnSchema]) -> pa.RecordBatch | None:
    """Convert a user's ``data`` to one batch of a table's columns, if it is a list of few dicts with simple values;
    else return None."""
    return _known(columns).batch(data)


def few_as_they_are(data: pa.Table | pa.RecordBatch, columns: Sequence[ColumnSchema]) -> pa.RecordBatch | None:
    """Convert few rows of few bytes that a user gave as Arrow in one piece, with exactly the types of a table's
    columns, to a batch; else return None."""
    if not 0 < data.num_rows <= ROWS_MAX or not _known(columns).has_types_of(data.schema):
        return None
    if data.get_total_buffer_size() > _BYTES_MAX and data.nbytes > _BYTES_MAX:  # the first is cheap; slices are whole
        return None
    if isinstance(data, pa.RecordBatch):
        return data
    batches = data.to_batches()
    return batches[0] if len(batches) == 1 else None


def _known(columns: Sequence[ColumnSchema]) -> FewRows:
    known = _KNOWN.get(id(columns))
    if known is None:
        if len(_KNOWN) >= _TABLES_MAX:
            _KNOWN.clear()
        known = _KNOWN[id(columns)] = FewRows(columns)
    return known


class FewRows:
    """Converts lists of few dicts to batches of one version of a table. Thread safe."""

    def __init__(self, columns: Sequence[ColumnSchema]) -> None:
        self._columns = columns
        self._by_name = {column.name: column for column in columns}
        self._layouts: dict[tuple[Any, ...], tuple[list[_Cells], pa.Schema]] = {}
        self._schema: pa.Schema | None = None
        """The last schema of data that had the table's types."""

    def has_types_of(self, schema: pa.Schema) -> bool:
        """Whether data with this schema has different columns of the table, each of exactly its type."""
        if self._schema is not None and schema.equals(self._schema, check_metadata=True):
            return True
        types = dict(zip(schema.names, schema.types, strict=True))
        if len(types) < len(schema) or not types.keys() <= self._by_name.keys():
            return False
        if any(self._by_name[name].logical.arrow != kind for name, kind in types.items()):
            return False
        self._schema = schema
        return True

    def batch(self, data: Any) -> pa.RecordBatch | None:
        """See ``few_rows``."""
        if not 0 < len(data) <= ROWS_MAX or not all(type(row) is dict for row in data):
            return None
        names = tuple(data[0])
        layout = self._layouts.get(names) or self._layout(names)
        if layout is None or not all(row.keys() == data[0].keys() for row in data[1:]):
            return None
        arrays = [_array([row[cells.name] for row in data], cells) for cells in layout[0]]
        if any(array is None for array in arrays):
            return None
        batch = pa.RecordBatch.from_arrays(arrays, schema=layout[1])
        return batch if batch.get_total_buffer_size() <= _BYTES_MAX else None

    def _layout(self, names: tuple[Any, ...]) -> tuple[list[_Cells], pa.Schema] | None:
        if not names or not all(name in self._by_name for name in names):
            return None
        columns = [self._by_name[name] for name in names]
        if not all(column.logical.name in _PYTHON for column in columns):
            return None
        kinds = [(column.name, column.logical) for column in columns]
        cells = [
            _Cells(name, _PYTHON[kind.name], kind.arrow, 1 << (kind.arrow.bit_width - 1) if kind.is_integer else 0)
            for name, kind in kinds
        ]
        schema = pa.schema([column.field.with_nullable(True) for column in columns])
        if len(self._layouts) < _LAYOUTS_MAX:
            self._layouts[names] = cells, schema
        return cells, schema


def _array(values: list[Any], cells: _Cells) -> pa.Array | None:
    """Return the values as an array; None if one is not simple."""
    python, bound = cells.python, cells.bound
    if python is dt.datetime and any(type(value) is python and value.tzinfo is not None for value in values):
        return None
    for value in values:
        if value is None or (python is dt.datetime and is_beyond(value)):
            continue
        if type(value) is not python or (bound and not -bound <= value < bound):
            return None
    try:
        return pa.array(values, cells.arrow)
    except (pa.ArrowException, ValueError, OverflowError):  # text that is not UTF-8, for one
        return None


_KNOWN: dict[int, FewRows] = {}
"""By the identity of the columns, which each keeps alive."""
