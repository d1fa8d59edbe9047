"""Messages in Avro, whose schemas are in a registry: rows as they are, or in Debezium's envelope.

A message is a zero byte, the number of its schema in four bytes, and the value. Avro's logical types are read as
Connect's: so one table of types serves JSON and Avro.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import fastavro
import fastavro.schema
import numpy as np
import pyarrow as pa

from .....schemas.errors import InvalidArgumentError
from .....schemas.table.column import ColumnSchema
from .connect_types import ConnectField, fields_of, rows_of, struct_of
from .debezium import Envelopes, changes_of
from .debezium_json import connect_rows
from .decoded import NOT_READABLE, Decoded, Format, Messages, Shape, TargetColumns, in_halves, joined, reason_of
from .keys import by_keys, cells_of_key, values_of_key
from .plain import whole_rows
from .registry import Registry, UnknownSchemaError

_HEADER = 5
_LOGICAL = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "decimal": "org.apache.kafka.connect.data.Decimal",
}
"""What Connect calls Avro's logical types."""
_PRIMITIVES = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "fixed": "bytes",
    "enum": "string",
}


class AvroSchema:
    """A schema of messages in the registry: how to read a value of it, and the fields of rows in it."""

    def __init__(self, schema: Any) -> None:
        self._parsed = fastavro.schema.parse_schema(_bare(schema))
        names: dict[str, Any] = {}
        several = schema if isinstance(schema, list) and _is_several(schema) else [schema]
        self.connect = [_connect(each, names) for each in several][-1]

    def read(self, value: bytes) -> Any:
        """Return a value; raises what its reader raises if it is none."""
        stream = io.BytesIO(value)
        stream.seek(_HEADER)
        read = fastavro.schemaless_reader(stream, self._parsed)  # pyright: ignore[reportArgumentType, reportCallIssue]
        if stream.tell() != len(value):
            raise InvalidArgumentError(f"{len(value) - stream.tell()} bytes follow its value")
        return read


class AvroReader:
    """Reads values of messages by the schemas of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._schemas: dict[int, AvroSchema] = {}

    def schema(self, value: bytes) -> tuple[int, AvroSchema]:
        """Return the schema of a value, and its number.

        Raises:
            InvalidArgumentError: it has none.
            UnavailableError: the registry does not answer now.
        """
        if len(value) < _HEADER or value[0]:
            raise InvalidArgumentError("it does not begin with a zero byte and the number of its schema")
        number = int.from_bytes(value[1:_HEADER], "big")
        if number not in self._schemas:
            try:
                schema = self._registry.schema(number)
            except UnknownSchemaError as error:
                raise InvalidArgumentError(str(error)) from None
            try:
                self._schemas[number] = AvroSchema(schema)
            except (*NOT_READABLE, fastavro.schema.SchemaParseException) as error:
                raise InvalidArgumentError(f"schema {number} of the registry is not valid: {error}") from None
        return number, self._schemas[number]

    def key(self, key: bytes, columns: Sequence[ColumnSchema]) -> Mapping[str, Any]:
        """Return the cells of a key, which may be in Avro, or JSON or text."""
        if key[:1] != b"\0":
            return values_of_key(key, columns)
        _, schema = self.schema(key)
        value = schema.read(key)
        if not isinstance(value, dict):
            return cells_of_key(value, columns)
        fields = fields_of(schema.connect, is_json=False)
        rows = rows_of(pa.array([value], struct_of(fields)), fields)
        return cells_of_key(rows.to_pylist()[0], columns)

    def key_names(self, key: bytes | None) -> list[str] | None:
        """Return the columns of a key, if it is a record of Avro."""
        if not key or key[0]:
            return None
        try:
            connect = self.schema(key)[1].connect
            return [each["field"] for each in connect["fields"]] if connect["type"] == "struct" else None
        except InvalidArgumentError:
            return None


class AvroFormat(Format):
    """The format of messages that are records of Avro, which are rows, or Debezium's envelopes."""

    def __init__(self, registry: Registry, is_debezium: bool) -> None:
        self._reader = AvroReader(registry)
        self._is_debezium = is_debezium

    def decode(self, messages: Messages, table: TargetColumns) -> list[Decoded]:
        """Return what messages make of the table."""
        rejects: dict[int, str] = {}
        values: dict[int, Any] = {}
        schemas: dict[int, tuple[int, AvroSchema] | None] = {}
        last: tuple[int, AvroSchema] | None = None
        for number, value in enumerate(messages.values):
            if value is not None:
                try:
                    schema = self._reader.schema(value)
                    values[number] = schema[1].read(value)
                    last = schema
                except (*NOT_READABLE, InvalidArgumentError) as error:
                    rejects[number] = f"it is not Avro: {reason_of(error)}"
                    continue
            schemas[number] = last
        parts: list[Decoded] = []
        for _, run in groupby(schemas, lambda number: _number_of(schemas[number])):
            numbers = list(run)
            schema = schemas[numbers[0]]
            read = {number: values[number] for number in numbers if number in values}
            parts.append(self._run(messages, schema[1] if schema else None, numbers, read, table, rejects))
        return [*parts, joined([], pa.schema([]), rejects)]

    def _run(
        self,
        messages: Messages,
        schema: AvroSchema | None,
        numbers: Sequence[int],
        values: dict[int, Any],
        table: TargetColumns,
        rejects: dict[int, str],
    ) -> Decoded:
        """Return what messages of one schema make of the table."""
        parts: list[Decoded] = []
        if schema is not None and values:
            try:
                fields = self._fields_of(schema)
            except InvalidArgumentError as error:
                rejects.update(dict.fromkeys(values, error.message))
                return joined([], pa.schema([]), {})
            first = next((messages.keys[number] for number in values if messages.keys[number]), None)
            table.fit(Shape([each.column for each in fields], self._reader.key_names(first)))
            parts += self._rows(messages, fields, values, table)
        gone = [number for number in numbers if number not in values and not self._is_told(messages, number, values)]
        if gone and (values or table.is_there):
            parts.append(by_keys(messages.keys, gone, table.about, self._reader.key, rejects))
        why = {number: text for part in parts for number, text in part.rejects.items()}
        return joined(parts, pa.schema([]), why)

    def _rows(
        self, messages: Messages, fields: list[ConnectField], values: dict[int, Any], table: TargetColumns
    ) -> list[Decoded]:
        numbers, raw = np.array(list(values), np.int64), struct_of(fields)
        given, why, wrong = list(values.values()), {}, {}
        names = ("before", "after") if self._is_debezium else ()

        def read(first: int, end: int) -> list[pa.StructArray]:
            part = given[first:end]
            return [pa.array([each.get(name) for each in part], raw) for name in names] or [pa.array(part, raw)]

        parts = in_halves(read, 0, len(given), wrong)
        why |= {int(numbers[place]): f"it is not Avro: {text}" for place, text in wrong.items()}
        kept = np.array([place for place in range(len(given)) if place not in wrong], np.int64)
        if not parts:
            return [joined([], pa.schema([]), why)]
        structs = [pa.concat_arrays(each) for each in zip(*parts, strict=True)]
        if not self._is_debezium:
            rows = connect_rows(structs[0], fields, numbers[kept], why)
            return [Decoded(whole_rows(rows.rows, table.about), rows.numbers, rows.is_delete, why, rows.absent)]
        op = pa.array([given[place].get("op") for place in kept.tolist()], pa.string())
        envelopes = Envelopes(numbers[kept], op, structs[0], structs[1])

        def to_rows(structs: pa.StructArray, which: np.ndarray, why: dict[int, str]) -> Decoded:
            return connect_rows(structs, fields, which, why)

        def by_key(gone: Sequence[int], why: dict[int, str]) -> Decoded:
            return by_keys(messages.keys, gone, table.about, self._reader.key, why)

        changes = changes_of(envelopes, table.about, to_rows, by_key, lambda: table.partitions)
        return [*changes, joined([], pa.schema([]), why)]

    def _fields_of(self, schema: AvroSchema) -> list[ConnectField]:
        if not self._is_debezium:
            return fields_of(schema.connect, is_json=False)
        rows = [each for each in schema.connect.get("fields", ()) if each["field"] == "after"]
        if not rows:
            raise InvalidArgumentError("its schema is not Debezium's: it has no field 'after'")
        return fields_of(rows[0], is_json=False)

    def _is_told(self, messages: Messages, number: int, values: Mapping[int, Any]) -> bool:
        """Whether a message without a value follows the delete of its key, as Debezium sends both."""
        if not self._is_debezium or number - 1 not in values:
            return False
        same = messages.partitions[number - 1] == messages.partitions[number]
        return same and messages.keys[number - 1] == messages.keys[number] and values[number - 1].get("op") == "d"


def _number_of(schema: tuple[int, AvroSchema] | None) -> int:
    return 0 if schema is None else schema[0]


def _is_several(schema: list[Any]) -> bool:
    """Whether a list is of schemas with names, the last of which refers to the others; else it is a union."""
    return all(isinstance(each, dict) and "name" in each for each in schema)


def _bare(schema: Any) -> Any:
    """Return a schema without logical types: their raw values are read."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _bare(each) if name in ("type", "items", "values") else _bare_fields(name, each)
        for name, each in schema.items()
        if name != "logicalType"
    }


def _bare_fields(name: str, value: Any) -> Any:
    return [_bare(each) for each in value] if name == "fields" else value


def _connect(schema: Any, names: dict[str, Any], space: str = "") -> dict[str, Any]:
    """Return the schema of Connect that an Avro schema stands for."""
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise InvalidArgumentError(f"a union of {len(kinds)} types cannot be a column")
        return _connect(kinds[0], names, space) | {"optional": True}
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return {"type": _PRIMITIVES[schema]}
        return names[schema] if schema in names else names[f"{space}.{schema}"]
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _connect(kind, names, space)
    if kind == "record":
        space = schema.get("namespace") or schema["name"].rpartition(".")[0] or space
        result: dict[str, Any] = {"type": "struct", "name": schema.get("connect.name", schema["name"])}
        _remember(schema, space, names, result)
        result["fields"] = [{"field": each["name"]} | _connect(each["type"], names, space) for each in schema["fields"]]
        return result
    if kind == "array":
        return {"type": "array", "items": _connect(schema["items"], names, space)}
    if kind == "map":
        return {"type": "map", "values": _connect(schema["values"], names, space)}
    result = dict(_connect(kind, names, space))
    if meaning := schema.get("connect.name") or _LOGICAL.get(schema.get("logicalType", "")):
        result["name"] = meaning
    if schema.get("logicalType") == "decimal":
        result["parameters"] = {
            "scale": schema.get("scale", 0),
            "connect.decimal.precision": schema.get("precision", 38),
        }
        result["name"] = _LOGICAL["decimal"]
    if kind in ("enum", "fixed"):
        _remember(schema, schema.get("namespace") or space, names, result)
    return result


def _remember(schema: Mapping[str, Any], space: str, names: dict[str, Any], result: dict[str, Any]) -> None:
    name = schema["name"]
    names[name] = names[name if "." in name else f"{space}.{name}"] = result
