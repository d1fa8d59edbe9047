"""What Spark hands to a writer, made into rows of a table: columns by name, cells of the table's types, no zones."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructType

from ...schemas.column import ColumnSchema
from ...schemas.description import TableDescription
from ...schemas.errors import InvalidArgumentError
from ...schemas.operation import Operation
from ..casting import Caster
from .options import StreamWriteOptions, WriteOptions
from .types import arrow_schema, missing


@dataclass(slots=True)
class Alignment:
    """Aligns the batches of a write. Made where a write is planned, sent to its tasks, used by one at a time."""

    key: list[str]
    operation: Operation
    operation_column: str | None
    ignore_null: bool
    _columns: list[ColumnSchema]
    _casters: dict[pa.Schema, Caster] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: StructType, table: TableDescription, options: WriteOptions | StreamWriteOptions) -> Alignment:
        """Check that rows of ``schema`` can be written at all.

        Raises:
            InvalidArgumentError: a column that the table has not or holds no such cells, or one of the key missing.
        """
        made = cls(table.primary_key, options.operation, options.operation_column, options.ignore_null, table.columns)
        rows = StructType([column for column in schema if column.name != options.operation_column])
        known = [column.name for column in table.columns]
        if unknown := [name for name in rows.fieldNames() if name not in known]:
            raise missing(unknown[0], known)
        Caster(arrow_schema(rows), table.columns)
        _check_operations(schema, options)
        numbered = not table.unique_key and options.operation.base is Operation.INSERT
        needed = table.primary_key[:-1] if numbered else table.primary_key
        if absent := [name for name in needed if name not in rows.fieldNames()]:
            raise InvalidArgumentError(f"the rows lack the key column {absent[0]!r} of table {table.name!r}")
        return made

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Return the rows of a batch as the table takes them, and the words of their operations if there is a column.

        Raises:
            InvalidArgumentError: a cell does not fit its column, or is NULL where none may be.
        """
        words = None
        if self.operation_column is not None:
            words = batch.column(self.operation_column)
            batch = batch.drop_columns([self.operation_column])
        caster = self._casters.get(batch.schema)
        if caster is None:
            caster = self._casters[batch.schema] = Caster(batch.schema, self._columns)
        rows = caster.cast(batch)
        self._check_nulls(rows, words)
        return rows, words

    def _check_nulls(self, rows: pa.RecordBatch, words: pa.Array | None) -> None:
        """Spark does not: df.write hands over what is NULL as it is."""
        required = [column.name for column in self._columns if not column.nullable]
        # Of what only keys count (deletes), or NULL says nothing, the store judges the other columns.
        is_whole = words is None and not self.ignore_null and self.operation.base is not Operation.DELETE
        for name in required if is_whole else self.key:
            if name in rows.schema.names and (count := rows.column(name).null_count):
                raise InvalidArgumentError(f"column {name!r} is NULL in {count:,} rows, which the table does not allow")


def operations_of(words: pa.Array) -> tuple[pa.Int32Array, list[Operation]]:
    """Return the operation of each row as a code, and what the codes stand for.

    Raises:
        InvalidArgumentError: a row has none, or one that there is not.
    """
    if words.null_count:
        raise InvalidArgumentError(f"the operation column is NULL in {words.null_count:,} rows")
    coded = pc.dictionary_encode(pc.utf8_lower(words))
    known = {str(operation): operation for operation in Operation}
    found = [known.get(word) for word in coded.dictionary.to_pylist()]
    if None in found:
        wrong = coded.dictionary[found.index(None)].as_py()
        raise InvalidArgumentError(f"the operation column says {wrong!r}; what works is {', '.join(Operation)}")
    return coded.indices, [operation for operation in found if operation is not None]


def _check_operations(schema: StructType, options: WriteOptions | StreamWriteOptions) -> None:
    name = options.operation_column
    if name is None:
        return
    if name not in schema.fieldNames():
        raise InvalidArgumentError(f"there is no operationColumn {name!r}; there are {', '.join(schema.fieldNames())}")
    if not isinstance(schema[name].dataType, StringType):
        raise InvalidArgumentError(f"operationColumn {name!r} is {schema[name].dataType.simpleString()}, not string")
