"""Rows in any library's form, as record batches that a table takes."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import fits
from ...schemas.cells.moment import FIRST_MICROSECOND, LAST_MICROSECOND
from ...schemas.errors import InvalidArgumentError
from ...schemas.table.column import ColumnSchema
from .batching import in_batches, in_one_batch, in_slices
from .casting import Caster
from .json_cell import json_text
from .key_order import KeyOrder
from .leaves import python_leaves, with_leaves
from .stored import is_stored, stored_rows

_KNOWN = (
    "a pandas or polars DataFrame, a pyarrow Table, RecordBatch or RecordBatchReader, anything with "
    "__arrow_c_stream__, a dict of columns, a list of dicts, a pyarrow.dataset or the path of a Parquet or Arrow file"
)


DIGITS_MAX = 38
"""Digits of the widest decimal that a column holds."""


_WHOLE = {type(None), dt.date, dt.datetime}
"""Types of which Arrow drops nothing."""


class _UnfitError(Exception):
    """Values that no column holds; the message continues the column's name."""


class WriteData:
    """The data of a user's write as record batches: cast to the table's types by name, each of a good size for one
    commit.

    Iterate over it once. ``row_count`` is None if it is not known in advance.
    """

    def __init__(
        self, data: Any, columns: Sequence[ColumnSchema], whole: bool = False, key: Sequence[str] = ()
    ) -> None:
        """Take ``data``; ``whole`` makes it one batch.

        Rows in the order of the columns in ``key`` may make larger batches.

        Raises:
            InvalidArgumentError: it is not data, or its columns do not fit. Values are checked only during iteration.
        """
        given = read_data(data, {column.name: column for column in columns})
        self.row_count = given.row_count
        self.names = given.schema.names
        self._caster = Caster(given.schema, columns, given.misfits)
        self._batches = given.batches
        self._whole = whole
        self._order = KeyOrder(key) if key else None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        cast = map(self._caster.cast, in_slices(self._batches))
        return in_one_batch(cast) if self._whole else in_batches(cast, self._order)


class GivenData(NamedTuple):
    """Data of any form that users give, converted to Arrow."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] | pa.RecordBatchReader
    row_count: int | None
    """None if it is not known in advance."""
    misfits: Sequence[str] = ()
    """Descriptions of columns that no Arrow type holds; ``schema`` lacks these columns."""
    guessed: Collection[str] = ()
    """Columns whose type is that of the Python values that are there, not one that was chosen for them."""


def read_data(data: Any, columns: Mapping[str, ColumnSchema]) -> GivenData:
    """Convert a user's data of any known form to Arrow; ``columns`` are the table's columns by name, if there is a
    table.

    Raises:
        InvalidArgumentError: it is not data, or its columns differ in length.
        NotFoundError: it is the path of a file that does not exist.
    """
    if isinstance(data, pa.Table):
        return GivenData(data.schema, data.to_batches(), data.num_rows)
    if isinstance(data, pa.RecordBatch):
        return GivenData(data.schema, [data], data.num_rows)
    if isinstance(data, pa.RecordBatchReader):
        return GivenData(data.schema, data, None)
    if _is_pandas(data, "DataFrame"):
        return _read_pandas(data, columns)
    if hasattr(data, "__arrow_c_stream__"):
        return _read_stream(data)
    if is_stored(data):
        rows = stored_rows(data)
        return GivenData(rows.schema, rows, None)
    if hasattr(data, "__arrow_c_array__"):
        return read_data(_batch_of(data), columns)
    if isinstance(data, Mapping):
        if data and not any(map(_is_column, data.values())):
            raise InvalidArgumentError(
                "a dict has a list of values for each column; put a single row into a list: [row]"
            )
        return _read_columns(data, columns)
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        return _read_columns(_transposed(data), columns)
    raise InvalidArgumentError(f"data must be {_KNOWN}, not a {type(data).__name__}{_instead(data)}")


def _instead(data: Any) -> str:
    """Return what to do with objects that are often passed by mistake."""
    return "; pass the result of its collect()" if hasattr(data, "collect") else ""


def _is_pandas(data: Any, kind: str) -> bool:
    """Recognise pandas objects without importing pandas."""
    return any(base.__name__ == kind and base.__module__.partition(".")[0] == "pandas" for base in type(data).__mro__)


def _read_stream(data: Any) -> GivenData:
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError) as error:
        if misfits := _unreadable(data):
            readable = data.select([name for name in data.columns if name not in misfits])
            return _read_stream(readable)._replace(misfits=list(misfits.values()))
        kind = type(data).__name__
        if kind == "Series":
            raise InvalidArgumentError("a Series is one column, not rows of a table: pass a DataFrame") from None
        raise InvalidArgumentError(f"the stream of a {kind} has no columns: {error}") from None
    return GivenData(reader.schema, reader, None)


def _batch_of(data: Any) -> pa.RecordBatch:
    try:
        return pa.record_batch(data)
    except (pa.ArrowException, TypeError) as error:
        raise InvalidArgumentError(f"this {type(data).__name__} has no columns; data must be {_KNOWN}") from error


def _unreadable(frame: Any) -> dict[str, str]:
    """Return, by name, the problems of DataFrame columns whose types Arrow does not know."""
    misfits: dict[str, str] = {}
    for name in frame.columns if hasattr(frame, "select") and hasattr(frame, "columns") else ():
        try:
            pa.RecordBatchReader.from_stream(frame.select([name]))
        except (pa.ArrowException, TypeError) as error:
            misfits[name] = f"column {name!r} has a type that Arrow does not support: {error}"
    return misfits


def _read_pandas(frame: Any, columns: Mapping[str, ColumnSchema]) -> GivenData:
    """Ignore the index. NaN, NaT and None become NULL, as pandas means them."""
    check_names(list(frame.columns))
    return _read_columns({name: frame[name] for name in frame.columns}, columns)


def check_names(names: Sequence[object]) -> None:
    """Raise InvalidArgumentError if the name of a column in a user's data is not a string, or two columns have the
    same."""
    if odd := [name for name in names if not isinstance(name, str)]:
        raise InvalidArgumentError(f"column names must be strings, not {odd[0]!r}")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidArgumentError(f"the data has more than one column named {twice[0]!r}: rename or drop one")


def _transposed(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns. All rows must have the same keys: a missing one could mean NULL, or "unchanged"."""
    names = list(rows[0]) if rows else []
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise InvalidArgumentError(
                f"row {number} has the columns {list(row)}, row 0 has {names}: use None for NULL, "
                "or write rows with different columns separately"
            )
    return {name: [row[name] for row in rows] for name in names}


def _read_columns(given: Mapping[str, Any], columns: Mapping[str, ColumnSchema]) -> GivenData:
    check_names(list(given))
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
    misfits: list[str] = []
    for name, values in given.items():
        try:
            arrays[name] = _column(name, values, columns.get(name))
        except InvalidArgumentError as error:
            misfits.append(error.message)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgumentError(f"the columns differ in length: {lengths}")
    table = pa.table(arrays)
    guessed = [name for name in arrays if _is_untyped(given[name])]
    return GivenData(table.schema, table.to_batches(), table.num_rows, misfits, guessed)


def _is_untyped(values: Any) -> bool:
    """Return whether cells are Python's, so that Arrow finds their type."""
    return (
        not isinstance(values, pa.Array | pa.ChunkedArray)
        and str(getattr(values, "dtype", object.__name__)) == "object"
    )


def _is_column(values: Any) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str | bytes)


def _column(name: str, values: Any, column: ColumnSchema | None) -> pa.Array | pa.ChunkedArray:
    """Return one column's values as Arrow; ``column`` is the table's column, if any."""
    if not _is_column(values):
        raise InvalidArgumentError(f"column {name!r} must be a list of values, not a {type(values).__name__}")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        if column is not None and _is_untyped(values):
            if column.logical.is_nested:
                return _nested(values, column)
            if column.logical.name == "json":
                return _json(name, values)
        if isinstance(values, list | tuple) and column is not None:
            return _from_python(values, column)
        return _from_anything(values)
    except _UnfitError as error:
        raise InvalidArgumentError(f"column {name!r} {error}") from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = str(error).partition("\n")[0]
        wanted = f", which the table stores as {column.logical}," if column else ""
        raise InvalidArgumentError(f"the values of column {name!r}{wanted} have no common type: {why}") from None


def _nested(values: Any, column: ColumnSchema) -> pa.Array | pa.ChunkedArray:
    """Return Python's lists, dicts and pairs in Arrow's own type, to be cast later; in the column's type if they have
    none that goes into it."""
    target, from_pandas = column.logical.arrow, _is_pandas(values, "Series")
    try:
        cells = _array(values, from_pandas=from_pandas)
        if fits(cells.type, target):
            return _with_nanoseconds(values, cells, target, from_pandas)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    if pa.types.is_map(target):
        values = [list(each.items()) if isinstance(each, Mapping) else each for each in values]
    return _array(values, with_leaves(target, _with_room), from_pandas)


def _array(values: Any, kind: pa.DataType | None = None, from_pandas: bool = False) -> pa.Array | pa.ChunkedArray:
    """Return Python's values as Arrow; what it would drop of their times is kept, or an error."""
    cells = pa.array(values, kind, from_pandas=from_pandas)
    if "time" not in str(cells.type) or not _is_untyped(values) or set(map(type, values)) <= _WHOLE:
        return cells
    leaves = list(python_leaves(values))
    if any(isinstance(leaf, dt.time) and leaf.tzinfo is not None for leaf in leaves):
        raise _UnfitError("has times with a zone, which a column of times cannot store: remove the zone")
    moments = [leaf for leaf in leaves if isinstance(leaf, dt.datetime) and leaf == leaf]  # NaT is not
    if any(getattr(moment, "nanosecond", 0) for moment in moments):  # of pandas
        return pa.array(values, with_leaves(cells.type, _in_nanoseconds), from_pandas=from_pandas)
    return cells


def _with_room(kind: pa.DataType) -> pa.DataType:
    """Return a type whose values the store casts to ``kind``; Arrow would make infinities of floats that are too
    large."""
    return pa.float64() if pa.types.is_floating(kind) else kind


def _in_nanoseconds(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("ns", kind.tz) if pa.types.is_timestamp(kind) else kind


def _with_nanoseconds(values: Any, cells: pa.Array, target: pa.DataType, from_pandas: bool) -> pa.Array:
    """Return cells of ``values``, in the type ``target`` if it has spans of nanoseconds: Arrow's own type would cut
    them."""
    if str(pa.duration("ns")) not in str(target):
        return cells
    try:
        return pa.array(values, target, from_pandas=from_pandas)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return cells  # the store refuses the rows that do not fit


def _json(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Return Python's dicts and lists as text of JSON, and text as it is."""
    cells = list(values)
    for row, cell in enumerate(cells):
        if isinstance(cell, dict | list | tuple):
            try:
                cells[row] = json_text(cell)
            except (InvalidArgumentError, ValueError, TypeError, RecursionError) as error:
                raise InvalidArgumentError(
                    f"column {name!r}, row {row}: the value cannot be written as JSON: {error}"
                ) from None
    return pa.array(cells, from_pandas=_is_pandas(values, "Series"))


def _from_anything(values: Any) -> pa.Array | pa.ChunkedArray:
    try:
        return _array(values, from_pandas=_is_pandas(values, "Series"))
    except OverflowError:  # Python integers that 64 bits do not hold
        try:
            return pa.array(values, pa.decimal128(38, 0))
        except pa.ArrowInvalid:
            digits = max(len(str(abs(value))) for value in values if isinstance(value, int))
            if digits <= DIGITS_MAX:
                raise
            raise _UnfitError(
                f"has integers of {digits} digits, but a column holds at most {DIGITS_MAX}: pass them as text"
            ) from None


def _from_python(values: Sequence[Any], column: ColumnSchema) -> pa.Array:
    """Return Python values in Arrow's own type, to be cast later; in the column's type if they have no common one."""
    try:
        cells = _array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if column.logical.name == "uint64" and all(value is None or isinstance(value, int) for value in values):
            return pa.array(values, pa.uint64())
        if column.logical.is_integer:
            raise  # Arrow would truncate fractions
        return _array(values, _with_room(column.logical.arrow))
    if column.logical.name == "timestamp[us]" and pa.types.is_integer(cells.type):
        inside = pc.and_(pc.greater_equal(cells, FIRST_MICROSECOND), pc.less_equal(cells, LAST_MICROSECOND))
        if not pc.any(inside).as_py():  # moments that Python lacks, as reads return them
            return cells.cast(pa.int64()).cast(column.logical.arrow)
    return _with_nanoseconds(values, cells, column.logical.arrow, from_pandas=False)
