"""A table's columns as Spark columns, and Arrow batches in the exact form that Spark expects.

| table | Spark |
|---|---|
| timestamp[us] | timestamp: the cells are moments; an explicit schema may ask for timestamp_ntz: see `zone` |
| varchar(n), json, string | string |
| uint8, uint16, uint32, uint64 | the next wider integer: short, int, bigint, decimal(20,0) |
| float16 | float |
| time32, time64 | time |
| duration | interval day to second |
| list, large_list, fixed_size_list | array |
| struct, map | struct, map |
| month_day_nano_interval | none: leave the column out |
| all others | the type of the same name |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as spark

from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.table.column import ColumnSchema
from ...schemas.table.names import BEFORE
from .nested_clocks import converted, has_clocks
from .zone import session_zone, walls

_UTC, _NAIVE = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
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
    "json": spark.StringType(),
    "binary": spark.BinaryType(),
    "uint8": spark.ShortType(),
    "uint16": spark.IntegerType(),
    "uint32": spark.LongType(),
    "uint64": spark.DecimalType(20, 0),
    "float16": spark.FloatType(),
    "time64[us]": spark.TimeType(6),
    **dict.fromkeys(("time32[s]", "time32[ms]", "time64[ns]"), spark.TimeType(6)),
    "duration[us]": spark.DayTimeIntervalType(),
    **dict.fromkeys(("duration[s]", "duration[ms]", "duration[ns]"), spark.DayTimeIntervalType()),
}
_FEED = (
    spark.StructField("_op", spark.StringType(), False),
    spark.StructField("_timestamp", spark.LongType(), False),
)


def spark_type(kind: LogicalType) -> spark.DataType:
    """Return the Spark type of a column of type ``kind``."""
    if kind.name == "decimal":
        return spark.DecimalType(kind.precision, kind.scale)
    if kind.name == "struct":
        return spark.StructType([spark.StructField(name, spark_type(inner)) for name, inner in kind.fields])
    if kind.is_nested:
        inner = [spark_type(each) for _, each in kind.fields]
        return spark.MapType(inner[0], inner[1]) if kind.name == "map" else spark.ArrayType(inner[0])
    if kind.name not in _SAME:
        raise InvalidArgumentError(f"Spark has no type for a column of {kind}: leave it out with the option columns")
    return _SAME[kind.name]


def arrow_type(kind: spark.DataType, name: str) -> pa.DataType:
    """Return the Arrow type in which Spark exchanges cells of a column called ``name``.

    Raises:
        InvalidArgumentError: tables have no such type.
    """
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(arrow_type(kind.elementType, name))
    if isinstance(kind, spark.MapType):
        return pa.map_(arrow_type(kind.keyType, name), arrow_type(kind.valueType, name))
    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.dataType, name), each.nullable) for each in kind])
    if isinstance(kind, spark.TimeType):
        return pa.time64("ns")
    if isinstance(kind, spark.TimestampType):
        return _UTC
    if isinstance(kind, spark.TimestampNTZType):
        return _NAIVE
    for word, same in _SAME.items():
        if isinstance(kind, type(same)):
            return LogicalType(word).arrow
    raise InvalidArgumentError(
        f"column {name!r} is {kind.simpleString()}, which a table cannot hold; write it as a string, for "
        "example by to_json()"
    )


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the schema that Spark requires of batches from a reader with the schema ``schema``."""
    return pa.schema([pa.field(each.name, arrow_type(each.dataType, each.name), each.nullable) for each in schema])


def table_schema(columns: Iterable[ColumnSchema]) -> spark.StructType:
    """Return the Spark schema of a table's columns."""
    return spark.StructType([_field(column) for column in columns])


def changes_schema(columns: Sequence[ColumnSchema], before: bool) -> spark.StructType:
    """Return the Spark schema of the changes of a table's columns."""
    now = [_field(column) for column in columns]
    earlier = [spark.StructField(BEFORE + field.name, field.dataType, True) for field in now] if before else []
    return spark.StructType([*_FEED, *now, *earlier])


def answer_schema(measures: pa.Schema) -> spark.StructType:
    """Return the Spark schema of an aggregate's measures."""
    fields = [(each.name, spark_type(LogicalType.from_arrow(each)), each.nullable) for each in measures]
    return spark.StructType([spark.StructField(*field) for field in fields])


def _field(column: ColumnSchema) -> spark.StructField:
    comment = {"comment": column.comment} if column.comment else None
    return spark.StructField(column.name, spark_type(column.logical), column.nullable, comment)


def chosen(columns: Sequence[ColumnSchema], names: Sequence[str] | None) -> list[ColumnSchema]:
    """Return the columns called ``names`` in the options of a Spark read, in that order; None means all.

    Raises:
        InvalidArgumentError: there is no such column, or one is named twice.
    """
    if names is None:
        return list(columns)
    by_name = {column.name: column for column in columns}
    found = [same_name(name, list(by_name)) for name in names]
    if len(set(found)) < len(found):
        raise InvalidArgumentError(f"duplicate column in {', '.join(names)}")
    return [by_name[name] for name in found]


def becomes_moment(given: spark.StructField, column: ColumnSchema) -> bool:
    """Return whether the cells of a Spark write are, or hold, dates or timestamps without zone that become moments in
    the session's time zone.

    Raises:
        InvalidArgumentError: the result would differ from Spark's own cast.
    """
    return _becomes_moment(given.dataType, column.logical, f"column {given.name!r}")


def _becomes_moment(kind: spark.DataType, target: LogicalType, where: str) -> bool:
    if target.name == "timestamp[us]" and isinstance(kind, spark.StringType):
        raise InvalidArgumentError(f"{where} is string, but the table's column is a timestamp: cast it to timestamp")
    if target.name == "date" and isinstance(kind, spark.TimestampType):
        raise InvalidArgumentError(f"{where} is timestamp, but the table's column is a date: cast it to date")
    if target.name == "timestamp[us]" and isinstance(kind, spark.TimestampNTZType | spark.DateType):
        return True
    inner = dict(target.fields)
    parts = [_becomes_moment(part, inner[name], where + path) for name, path, part in _parts(kind) if name in inner]
    return any(parts)  # each was checked


def _parts(kind: spark.DataType) -> list[tuple[str, str, spark.DataType]]:
    """Return the types inside of a nested one: what the store calls each, how its path ends, and the type."""
    if isinstance(kind, spark.ArrayType):
        return [("item", "[]", kind.elementType)]
    if isinstance(kind, spark.MapType):
        return [("key", ".key", kind.keyType), ("value", ".value", kind.valueType)]
    if isinstance(kind, spark.StructType):
        return [(each.name, f".{each.name}", each.dataType) for each in kind]
    return []


def same_name(name: str, known: Sequence[str]) -> str:
    """Return the column in ``known`` that ``name`` means: case-insensitively, as Spark does by default.

    Raises:
        InvalidArgumentError: there is none, or several that differ only in case.
    """
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    if len(alike) > 1:
        raise InvalidArgumentError(f"column {name!r} is ambiguous: write {' or '.join(map(repr, alike))}")
    if not alike:
        raise missing(name, list(known))
    return alike[0]


def check_case(names: Mapping[str, str]) -> None:
    """Check in a Spark task, which knows the session's settings, that names may differ from the columns' in case.

    Raises:
        InvalidArgumentError: the session is case-sensitive.
    """
    context = TaskContext.get()
    wrong = next((name for name, meant in names.items() if name != meant), None)
    if wrong and context and context.getLocalProperty("spark.sql.caseSensitive") == "true":
        raise missing(wrong, list(names.values()))


def projection(asked: spark.StructType, there: spark.StructType) -> dict[str, str]:
    """Map each column of the schema that Spark requests to its name in the scan.

    Raises:
        InvalidArgumentError: a column does not exist, has another type, or may be NULL against the schema.
    """
    if not asked.fields:
        raise InvalidArgumentError("a schema needs at least one column")
    names = {field.name: same_name(field.name, there.fieldNames()) for field in asked}
    for field in asked:
        have = there[names[field.name]]
        if not _reads_as(have.dataType, field.dataType):
            raise InvalidArgumentError(
                f"column {field.name!r} is {have.dataType.simpleString()}, not {field.dataType.simpleString()}: "
                "leave out the schema, load the table again if it was altered, or cast in Spark"
            )
        if have.nullable and not field.nullable:
            raise InvalidArgumentError(f"column {field.name!r} may be NULL, but the schema declares it NOT NULL")
    return names


def _reads_as(have: spark.DataType, asked: spark.DataType) -> bool:
    return isinstance(asked, spark.StringType) if isinstance(have, spark.StringType) else have == _of_moments(asked)


def _of_moments(kind: spark.DataType) -> spark.DataType:
    """Return a type with moments in place of times of a clock."""
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_of_moments(kind.elementType), kind.containsNull)
    if isinstance(kind, spark.MapType):
        return spark.MapType(_of_moments(kind.keyType), _of_moments(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, spark.StructType):
        fields = [(each.name, _of_moments(each.dataType), each.nullable, each.metadata) for each in kind]
        return spark.StructType([spark.StructField(*field) for field in fields])
    return spark.TimestampType() if isinstance(kind, spark.TimestampNTZType) else kind


def missing(name: str, known: list[str]) -> InvalidArgumentError:
    """Return the error for a column that a Spark user names and the table lacks; ``known`` are its columns."""
    close = get_close_matches(name.lower(), [each.lower() for each in known], 1)
    nearest = next((each for each in known if each.lower() in close), None)
    hint = f"did you mean {nearest!r}?" if nearest else f"it has {', '.join(known[:20])}"
    return InvalidArgumentError(f"the table has no column {name!r}; {hint}")


def conform(batch: pa.RecordBatch, wanted: pa.Schema, names: Mapping[str, str]) -> pa.RecordBatch:
    """Return a scan's batch with exactly the schema that Spark expects, ``wanted``: columns in its order, renamed by
    ``names``, timestamps with zone. Copies only timestamps that are wanted without one, and cells of other types.

    Raises:
        InvalidArgumentError: Spark's type cannot hold a cell: a duration that has nanoseconds, or is too long.
    """
    columns = (_as_wanted(batch.column(names[field.name]), field) for field in wanted)
    return pa.RecordBatch.from_arrays(list(columns), schema=wanted)


def _as_wanted(cells: pa.Array, wanted: pa.Field) -> pa.Array:
    """Return cells in a type; a scan's timestamps have no zone and mean UTC.

    Raises:
        InvalidArgumentError: Spark's type cannot hold one of them.
    """
    kind = wanted.type
    if cells.type == kind and not has_clocks(kind, kind):
        return cells
    try:
        cells = cells.view(kind) if kind == _UTC else cells.cast(kind)
    except pa.ArrowInvalid as error:  # durations, which Spark counts in microseconds
        raise InvalidArgumentError(
            f"column {wanted.name!r} is {cells.type} and has a value that Spark cannot hold: leave the column out with "
            f"the option columns ({str(error).partition(chr(10))[0]})"
        ) from None
    return converted(cells, kind, lambda moments: walls(moments, session_zone()))
