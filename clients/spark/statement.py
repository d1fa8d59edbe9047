"""Distinguishes SQL statements (``INSERT``, and writes to a table that Spark knows by name) from ``df.write``.

Both reach the same writer with different meanings. A statement adds rows: an existing key is an error. And Spark fills
the columns that a statement leaves out with defaults or NULL before the rows arrive: in new rows these are the store's
own defaults, in existing rows they would erase values.

The Java shim reports which kind a write is, and which columns were left out. Without it, a statement is recognised by
its columns: Spark passes all of them, with the metadata of the table's schema, which contains a mark. A frame that was
read from the table and is written back with all columns unchanged looks the same, so it counts as a statement too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, TypeVar

from pyspark.sql.types import StructField, StructType

from ...schemas.cells.literal import from_json
from ...schemas.cells.moment import microseconds_of
from ...schemas.errors import AlreadyPresentError, InvalidArgumentError, RowErrors
from ...schemas.rows.operation import Operation
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import AUTO_INCREMENTING
from .options import BatchReadOptions, Place, StreamWriteOptions, WriteOptions
from .types import spark_type

Writing = TypeVar("Writing", WriteOptions, StreamWriteOptions)

_MARK = "nyala"
"""The metadata key of the mark; the shim looks for it too."""
_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key in which Spark itself keeps the length of text: statements with longer text are refused by it."""
_DEFAULT, _DEFAULT_BEFORE = "CURRENT_DEFAULT", "EXISTS_DEFAULT"
"""The metadata keys of Spark's defaults. Spark requires the second too, though it is not used here."""
UNNUMBERED = 0
"""What statements have in the place of the number that the store gives to a row: it counts from 1."""
_ONLY_NEW = "INSERT only adds rows; the option operation=upsert also changes existing rows"
_ONCE = "INSERT OVERWRITE takes each key once; with the option operation=upsert one row of each key stays"
"""The shim says the same."""
_CHANGES_CELLS = (Operation.UPSERT, Operation.UPDATE)
_WORKS = (
    "name all columns, set the option ignoreNull so that NULLs leave cells unchanged, use the Java shim with its "
    "session extension, or write with df.write.format(nyala)"
)
_REFUSAL = f"raise_error('without the Java shim, Spark does not report which columns a statement leaves out: {_WORKS}')"
"""Not a constant: so Spark rejects a statement that needs it, and quotes it."""


def insertable(
    schema: StructType, columns: Sequence[ColumnSchema], options: BatchReadOptions, is_numbered: bool
) -> StructType:
    """Return the schema of a whole table with Spark's defaults for columns that a statement leaves out, among them the
    number of the rows where the store gives it."""
    found = []
    for field, column in zip(schema, columns, strict=True):
        own = (
            column.model_copy(update={"write_default": UNNUMBERED})
            if is_numbered and column.name == AUTO_INCREMENTING
            else column
        )
        found.append(_with_metadata(field, _metadata(own, options)))
    return StructType(found)


def as_meant(
    options: WriteOptions, schema: StructType, table: TableDescription, overwrites: bool
) -> tuple[WriteOptions, str | None]:
    """Return the options of a Spark write, adapted if it is an SQL statement, and what to say where it meets a key that
    is there: None if it may.

    Raises:
        InvalidArgumentError: it may leave out columns of existing rows, and nothing says which.
    """
    is_statement = _looks_so(schema, table, options) if options.statement is None else options.statement == "insert"
    if not is_statement or options.operation_column is not None:
        return numbering(options, schema, table), None
    if "operation" not in options.model_fields_set:
        advice = _ONCE if overwrites else _ONLY_NEW
        return options.model_copy(update={"operation": Operation.INSERT}), advice
    if options.statement is None and not overwrites and _may_erase(options) and not _refuses(schema):
        raise InvalidArgumentError(
            f"operation {str(options.operation)!r} in a statement may erase cells of columns that the statement leaves "
            f"out: {_WORKS}; or create a view with the operation in its OPTIONS"
        )
    return options, None


def numbering(options: Writing, schema: StructType, table: TableDescription) -> Writing:
    """Return the options of a Spark write that is no SQL statement: rows without the number that the store gives are
    inserted, unless the options say something else."""
    own = {"operation", "operation_column"} & options.model_fields_set
    if own or table.unique_key or AUTO_INCREMENTING in map(str.lower, schema.fieldNames()):
        return options
    return options.model_copy(update={"operation": Operation.INSERT})


def advised(error: RowErrors, advice: str) -> AlreadyPresentError | RowErrors:
    """Return the error for an SQL statement of Spark that meets a key that is there, with what to do."""
    return error if error.code != AlreadyPresentError.code else AlreadyPresentError(f"{error.message}; {advice}")


def _may_erase(options: BatchReadOptions | WriteOptions) -> bool:
    return options.operation is not None and options.operation.base in _CHANGES_CELLS and not options.ignore_null


def _mark(place: Place) -> str:
    return f"{place.uri} {place.table}"


def _looks_so(schema: StructType, table: TableDescription, options: WriteOptions) -> bool:
    marks = {(field.metadata or {}).get(_MARK) for field in schema}
    return marks == {_mark(options)} and schema.fieldNames() == [column.name for column in table.columns]


def _refuses(schema: StructType) -> bool:
    """Return whether the columns come from a schema with which Spark rejects statements that leave out columns."""
    return all((field.metadata or {}).get(_DEFAULT) == _REFUSAL for field in schema)


def _metadata(column: ColumnSchema, options: BatchReadOptions) -> dict[str, Any]:
    known = {_MARK: _mark(options)}
    if column.logical.name == "varchar":
        known[_VARCHAR] = column.type
    if _may_erase(options):
        default = _REFUSAL
    elif column.write_default is None or options.ignore_null:
        return known
    else:
        default = _sql(column)
    return {**known, _DEFAULT: default, _DEFAULT_BEFORE: "NULL"}


def _with_metadata(field: StructField, more: dict[str, Any]) -> StructField:
    return StructField(field.name, field.dataType, field.nullable, {**(field.metadata or {}), **more})


def _sql(column: ColumnSchema) -> str:
    """Return a column's default in Spark SQL, in a form that no session setting changes."""
    cell, kind = from_json(column.write_default, column.logical), column.logical
    if kind.name == "timestamp[us]":
        return f"timestamp_micros({microseconds_of(cell)})"
    if isinstance(cell, dt.date):
        return f"date_from_unix_date({(cell - dt.date(1970, 1, 1)).days})"
    if isinstance(cell, str | bytes):
        written = f"X'{(cell.encode() if isinstance(cell, str) else cell).hex()}'"
        return f"CAST({written} AS STRING)" if isinstance(cell, str) else written
    return f"CAST('{cell}' AS {spark_type(kind).simpleString()})"
