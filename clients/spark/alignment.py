"""Converts rows from Spark into rows of a table: columns by name, cells in the table's types, no time zones."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.rows.operation import Operation
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from ..convert.casting import Caster
from .nested_clocks import converted
from .options import StreamWriteOptions, WriteOptions
from .statement import UNNUMBERED
from .types import arrow_schema, becomes_moment, check_case, same_name
from .zone import moments, session_zone


@dataclass(slots=True)
class Alignment:
    """Aligns the batches of a Spark write with the table's columns. Created by the planner and sent to the tasks; each
    copy is for one thread."""

    key: list[str]
    delete_columns: list[str]
    """The columns that a delete sends: those of the key, and the one that orders the changes of a row."""
    operation: Operation
    operation_column: str | None
    ignore_null: bool
    _columns: list[ColumnSchema]
    _names: dict[str, str]
    """Maps the columns to write to their names in the table."""
    _walls: dict[str, pa.DataType]
    """Those that are, or hold, dates or timestamps without a zone, to be converted to moments; the table's types."""
    _number: str | None = None
    """The column of the numbers that the store gives to the rows; None if it gives none."""
    _casters: dict[pa.Schema, Caster] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: StructType, table: TableDescription, options: WriteOptions | StreamWriteOptions) -> Alignment:
        """Check that rows of ``schema`` can be written.

        Raises:
            InvalidArgumentError: the table lacks a column or has another type, or the rows lack a key column.
        """
        operations = _operation_column(schema, options)
        apart = {operations, *(options.left_out if isinstance(options, WriteOptions) else ())}
        rows = StructType([column for column in schema if column.name not in apart])
        names = _names_in(table, rows)
        columns = {column.name: column for column in table.columns}
        is_wall = [becomes_moment(each, columns[names[each.name]]) for each in rows]
        walls = {
            each.name: columns[names[each.name]].logical.arrow
            for each, is_one in zip(rows, is_wall, strict=True)
            if is_one
        }
        Caster(_named(arrow_schema(rows), list(names.values())), table.columns)
        numbered = not table.unique_key and options.operation.base is Operation.INSERT
        key, number = (table.primary_key[:-1], table.primary_key[-1]) if numbered else (table.primary_key, None)
        if absent := [name for name in key if name not in names.values()]:
            raise InvalidArgumentError(f"the rows have no column {absent[0]!r}, a key column of table {table.name!r}")
        only_keys = options.ignore_null
        columns = [*table.primary_key, *filter(None, [table.options.order_by])]
        kept = (options.operation, operations, only_keys, table.columns, names, walls, number)
        return cls(table.primary_key, columns, *kept)

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Return the rows of a batch as the table takes them, and their operations if there is an operation column.

        Raises:
            InvalidArgumentError: a cell does not fit its column, or is NULL in a NOT NULL column.
        """
        words = None if self.operation_column is None else batch.column(self.operation_column)
        check_case(self._names)
        zone = session_zone(batch.schema) if self._walls else ""
        cells = {
            meant: converted(batch.column(name), self._walls[name], lambda clock: moments(clock, zone))
            if name in self._walls
            else batch.column(name)
            for name, meant in self._names.items()
        }
        if self._number in cells and not pc.any(pc.not_equal(cells[self._number], UNNUMBERED)).as_py():
            del cells[self._number]
        batch = pa.record_batch(cells) if cells else batch.select([])
        caster = self._casters.get(batch.schema)
        if caster is None:
            caster = self._casters[batch.schema] = Caster(batch.schema, self._columns)
        rows = caster.cast(batch)
        self._check_nulls(rows, words)
        return rows, words

    def _check_nulls(self, rows: pa.RecordBatch, words: pa.Array | None) -> None:
        """Spark does not check this: df.write passes NULLs on."""
        required = [column.name for column in self._columns if not column.nullable]
        # If only keys count (deletes), or NULL means "unchanged", the store checks the other columns.
        is_whole = words is None and not self.ignore_null and self.operation.base is not Operation.DELETE
        for name in required if is_whole else self.key:
            if name in rows.schema.names and (count := rows.column(name).null_count):
                raise InvalidArgumentError(f"column {name!r} is NULL in {count:,} rows, which the table does not allow")


def operations_of(words: pa.Array) -> tuple[pa.Int32Array, list[Operation]]:
    """Return a code for the operation of each row of a Spark write, and the operations of the codes.

    Raises:
        InvalidArgumentError: a row has none, or an unknown one.
    """
    if words.null_count:
        raise InvalidArgumentError(f"the operation column is NULL in {words.null_count:,} rows")
    coded = pc.dictionary_encode(pc.utf8_lower(words))
    known = {str(operation): operation for operation in Operation} | {"expire": Operation.DELETE_IGNORE}
    found = [known.get(word) for word in coded.dictionary.to_pylist()]
    if None in found:
        wrong = coded.dictionary[found.index(None)].as_py()
        raise InvalidArgumentError(
            f"the operation column has the unknown operation {wrong!r}; known: {', '.join(Operation)}"
        )
    return coded.indices, [operation for operation in found if operation is not None]


def _operation_column(schema: StructType, options: WriteOptions | StreamWriteOptions) -> str | None:
    """Return the rows' name of the operation column, if there is one."""
    if options.operation_column is None:
        return None
    try:
        name = same_name(options.operation_column, schema.fieldNames())
    except InvalidArgumentError:
        there = ", ".join(schema.fieldNames())
        raise InvalidArgumentError(
            f"operationColumn {options.operation_column!r} is not a column of the rows; they have {there}"
        ) from None
    if not isinstance(schema[name].dataType, StringType):
        raise InvalidArgumentError(f"operationColumn {name!r} is {schema[name].dataType.simpleString()}, not string")
    return name


def _names_in(table: TableDescription, rows: StructType) -> dict[str, str]:
    """Map the rows' columns to the table's names for them."""
    known = [column.name for column in table.columns]
    names = {name: same_name(name, known) for name in rows.fieldNames()}
    for name, meant in names.items():
        if twice := [other for other in names if names[other] == meant and other != name]:
            raise InvalidArgumentError(
                f"the rows have {name!r} and {twice[0]!r}, but the table has only one column {meant!r}"
            )
    return names


def _named(schema: pa.Schema, names: list[str]) -> pa.Schema:
    return pa.schema([each.with_name(name) for each, name in zip(schema, names, strict=True)])
