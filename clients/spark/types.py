"""Columns of a table as columns of Spark, and Arrow batches in the exact form that Spark takes.

| table | Spark |
|---|---|
| timestamp[us] | timestamp: the cells count microseconds in UTC; a schema of one's own may ask for timestamp_ntz |
| varchar(n), string | string |
| all others | the type of the same name |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql import types as spark

from ...schemas.changes import BEFORE
from ...schemas.column import ColumnSchema
from ...schemas.errors import InvalidArgumentError
from ...schemas.types import LogicalType

_UTC = pa.timestamp("us", tz="UTC")
_SAME: dict[str, spark.DataType] = {
    "bool": spark.BooleanType(),
    "int8": spark.ByteType(),
    "int16": spark.ShortType(),
    "int32": spark.IntegerType(),
    "int64": spark.LongType(),
    "date": spark.DateType(),
    "timestamp[us]": spark.TimestampType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "varchar": spark.StringType(),
    "binary": spark.BinaryType(),
}
_FEED = (
    spark.StructField("_op", spark.StringType(), False),
    spark.StructField("_timestamp", spark.LongType(), False),
)


def spark_type(kind: LogicalType) -> spark.DataType:
    """Return the type that a column of type ``kind`` has in Spark."""
    return spark.DecimalType(kind.precision, kind.scale) if kind.name == "decimal" else _SAME[kind.name]


def arrow_type(kind: spark.DataType, name: str) -> pa.DataType:
    """Return the Arrow type in which Spark takes cells of a column called ``name``.

    Raises:
        InvalidArgumentError: no table has cells for it.
    """
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.TimestampType):
        return _UTC
    if isinstance(kind, spark.TimestampNTZType):
        return pa.timestamp("us")
    for word, same in _SAME.items():
        if isinstance(kind, type(same)):
            return LogicalType(word).arrow
    raise InvalidArgumentError(
        f"column {name!r} is {kind.simpleString()}, which a table cannot hold; write it as a string, say by to_json()"
    )


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the schema that Spark demands of the batches of a reader whose schema is ``schema``."""
    return pa.schema([pa.field(each.name, arrow_type(each.dataType, each.name), each.nullable) for each in schema])


def table_schema(columns: Iterable[ColumnSchema]) -> spark.StructType:
    """Return what Spark sees of a table's columns."""
    return spark.StructType([_field(column) for column in columns])


def changes_schema(columns: Sequence[ColumnSchema], before: bool) -> spark.StructType:
    """Return what Spark sees of the changes of a table's columns."""
    now = [_field(column) for column in columns]
    earlier = [spark.StructField(BEFORE + field.name, field.dataType, True) for field in now] if before else []
    return spark.StructType([*_FEED, *now, *earlier])


def answer_schema(measures: pa.Schema) -> spark.StructType:
    """Return what Spark sees of the measures of an aggregate."""
    fields = [(each.name, spark_type(LogicalType.from_arrow(each)), each.nullable) for each in measures]
    return spark.StructType([spark.StructField(*field) for field in fields])


def _field(column: ColumnSchema) -> spark.StructField:
    comment = {"comment": column.comment} if column.comment else None
    return spark.StructField(column.name, spark_type(column.logical), column.nullable, comment)


def chosen(columns: Sequence[ColumnSchema], names: Sequence[str] | None) -> list[ColumnSchema]:
    """Return the columns called ``names``, in that order; None means all.

    Raises:
        InvalidArgumentError: there is no such column, or one is named twice.
    """
    if names is None:
        return list(columns)
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"a column is named twice in {', '.join(names)}")
    by_name = {column.name: column for column in columns}
    if unknown := [name for name in names if name not in by_name]:
        raise missing(unknown[0], list(by_name))
    return [by_name[name] for name in names]


def check_projection(asked: spark.StructType, there: spark.StructType) -> None:
    """Refuse a schema that asks for what a scan does not give.

    Raises:
        InvalidArgumentError: for a column that is not there, has another type, or may be NULL against the schema.
    """
    by_name = {field.name: field for field in there}
    if not asked.fields:
        raise InvalidArgumentError("a schema needs one column at least")
    for field in asked:
        have = by_name.get(field.name)
        if have is None:
            raise missing(field.name, list(by_name))
        if not _reads_as(have.dataType, field.dataType):
            raise InvalidArgumentError(
                f"column {field.name!r} is {have.dataType.simpleString()}, not {field.dataType.simpleString()}: "
                "leave the schema out, load the table anew if it was altered, or cast in Spark"
            )
        if have.nullable and not field.nullable:
            raise InvalidArgumentError(f"column {field.name!r} may be NULL, and the schema says NOT NULL")


def _reads_as(have: spark.DataType, asked: spark.DataType) -> bool:
    if isinstance(have, spark.TimestampType):
        return isinstance(asked, spark.TimestampType | spark.TimestampNTZType)
    return isinstance(asked, spark.StringType) if isinstance(have, spark.StringType) else have == asked


def missing(name: str, known: list[str]) -> InvalidArgumentError:
    """Return what to raise for a column that a table has not, though it has those ``known``."""
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known[:20])}"
    return InvalidArgumentError(f"the table has no column {name!r}; {hint}")


def conform(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return a batch of a scan with exactly the schema ``wanted``: its columns in their order, timestamps with their
    zone. Nothing is copied."""
    columns = (_relabelled(batch.column(field.name), field.type) for field in wanted)
    return pa.RecordBatch.from_arrays(list(columns), schema=wanted)


def _relabelled(cells: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Timestamps with and without a zone count the same microseconds."""
    return cells if cells.type == wanted else cells.view(wanted)
