"""Debezium's messages in JSON, with the schema in each message, or without any."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from .....schemas.errors import InvalidArgumentError
from .....schemas.store.description import TableDescription
from .....schemas.table.column import ColumnSchema
from ....convert.leaves import infinities
from .connect_types import UNAVAILABLE, ConnectField, absent_of, fields_of, rows_of, struct_of, without_marks
from .debezium import Envelopes, changes_of
from .decoded import NOT_READABLE, Decoded, Format, Messages, Shape, TargetColumns, in_halves, joined, reason_of
from .json_text import float_of, read_alone, read_together, seen_schema, with_floats
from .keys import by_keys, cells_of_key, values_of_key
from .plain import ALONE, CHUNK, JsonRows, row_columns

_SCHEMA = re.compile(rb'\s*\{\s*"schema"\s*:\s*')
_PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:\s*')
_SAMPLE, _SAMPLE_BYTES = 256, 1 << 20
"""So many messages show what fields there are beside those of the table."""
_ROWS = ("before", "after")
_UNCLEAR = "the messages have no schema, so {} is not clear: let the connector send the schema (schemas.enable=true)"


class Wrapping:
    """The bytes before the payload of messages that bring their schema: the same in one message after the other."""

    def __init__(self) -> None:
        self._prefix = b""
        self._schema = ""

    def split(self, value: bytes) -> tuple[str, bytes]:
        """Return the schema of a message, as text of JSON, and its payload; an empty schema: it has none.

        Raises:
            InvalidArgumentError: it is not JSON.
        """
        if self._prefix and value.startswith(self._prefix) and value.endswith(b"}"):
            return self._schema, value[len(self._prefix) : -1]
        match = _SCHEMA.match(value)
        if match is None:
            return self._other(value)
        try:
            text = value.decode()
            start = len(value[: match.end()].decode())
            schema, end = json.JSONDecoder().raw_decode(text, start)
            payload = _PAYLOAD.match(text, end)
        except (ValueError, RecursionError):
            raise InvalidArgumentError("it is not JSON") from None
        if payload is None or not value.endswith(b"}"):
            return self._other(value)
        self._prefix = text[: payload.end()].encode()
        self._schema = "" if schema is None else text[start:end]
        return self._schema, value[len(self._prefix) : -1]

    def _other(self, value: bytes) -> tuple[str, bytes]:
        """Return the parts of a message in another order, or without a schema."""
        if not (b'"payload"' in value and b'"schema"' in value):
            return "", value
        whole = read_alone(value)
        if whole.keys() != {"schema", "payload"}:
            return "", value
        schema = "" if whole["schema"] is None else json.dumps(whole["schema"])
        return schema, json.dumps(whole["payload"]).encode()


class DebeziumJson(Format):
    """Debezium's envelope in JSON."""

    def __init__(self) -> None:
        self._wrapping, self._key_wrapping = Wrapping(), Wrapping()
        self._fields: dict[str, list[ConnectField]] = {}
        self._others = pa.schema([])
        """Fields beside the rows, with their types, as far as they were seen."""

    def decode(self, messages: Messages, table: TargetColumns) -> list[Decoded]:
        """Return what messages make of the table."""
        rejects: dict[int, str] = {}
        texts: dict[int, bytes] = {}
        schemas: dict[int, str] = {}
        last = ""
        for number, value in enumerate(messages.values):
            if value is not None:
                try:
                    last, texts[number] = self._wrapping.split(value)
                except InvalidArgumentError as error:
                    rejects[number] = error.message
                    continue
            schemas[number] = last  # a message without a value is read with those around it
        parts: list[Decoded] = []
        for schema, run in groupby(schemas, schemas.__getitem__):
            numbers = list(run)
            parts += self._run(messages, schema, numbers, {n: texts[n] for n in numbers if n in texts}, table, rejects)
        return [*parts, joined([], pa.schema([]), rejects)]

    def _run(
        self,
        messages: Messages,
        schema: str,
        numbers: Sequence[int],
        texts: Mapping[int, bytes],
        table: TargetColumns,
        rejects: dict[int, str],
    ) -> list[Decoded]:
        """Return what messages of one schema make of the table."""
        fields: list[ConnectField] | None = None
        if schema:
            try:
                fields = self._fields_of(schema)
            except InvalidArgumentError as error:
                rejects.update(dict.fromkeys(texts, error.message))
                return []
            first = next((messages.keys[number] for number in texts if messages.keys[number]), None)
            table.fit(Shape([each.column for each in fields], self._key_of(first)))
        elif not texts and not table.is_there:
            return []
        about = table.about
        reader = _WithSchema(fields) if fields is not None else _WithoutSchema(about, self._others)
        places = np.array(list(texts), np.int64)
        wrong: dict[int, str] = {}
        values = list(texts.values())
        chunks: list[Envelopes] = []
        for start in range(0, len(values), CHUNK):
            chunks += in_halves(
                lambda first, end: reader.read(values, first, end, places),
                start,
                min(start + CHUNK, len(values)),
                wrong,
            )
        if isinstance(reader, _WithoutSchema):
            self._others = reader.others
        rejects.update({int(places[place]): why for place, why in wrong.items()})
        rejects.update(reader.rejects)

        def by_key(gone: Sequence[int], why: dict[int, str]) -> Decoded:
            return by_keys(messages.keys, gone, about, self._key, why)

        parts = [
            each for chunk in chunks for each in changes_of(chunk, about, reader.rows, by_key, lambda: table.partitions)
        ]
        deletes = frozenset[int]().union(*(chunk.deletes for chunk in chunks))
        gone = [number for number in numbers if number not in texts and not _is_repeated(messages, number, deletes)]
        parts.append(by_key(gone, rejects))
        why = {number: text for part in parts for number, text in part.rejects.items()}
        return [joined(parts, pa.schema([]), why)]

    def _fields_of(self, schema: str) -> list[ConnectField]:
        """Return the fields of the rows of an envelope's schema."""
        if schema not in self._fields:
            envelope = json.loads(schema)
            try:
                rows = next(each for each in envelope["fields"] if each["field"] == "after")
            except (StopIteration, KeyError, TypeError):
                raise InvalidArgumentError("its schema is not Debezium's: it has no field 'after'") from None
            self._fields[schema] = fields_of(rows, is_json=True)
        return self._fields[schema]

    def _key_of(self, key: bytes | None) -> list[str] | None:
        """Return the columns of a message's key, if it has a schema."""
        if key is None:
            return None
        try:
            schema, _ = self._key_wrapping.split(key)
            return [each["field"] for each in json.loads(schema)["fields"]] if schema else None
        except (*NOT_READABLE, InvalidArgumentError):
            return None

    def _key(self, key: bytes, columns: Sequence[ColumnSchema]) -> Mapping[str, Any]:
        """Return the cells of a key."""
        schema, payload = self._key_wrapping.split(key)
        if not schema:
            return values_of_key(key, columns)
        fields = fields_of(json.loads(schema), is_json=True)
        rows = rows_of(pa.array([read_alone(payload)], struct_of(fields)), fields)
        return cells_of_key(rows.to_pylist()[0], columns)


def _is_repeated(messages: Messages, number: int, deletes: Collection[int]) -> bool:
    """Whether a message without a value follows the delete of its key, as Debezium sends both."""
    if number - 1 not in deletes or messages.partitions[number - 1] != messages.partitions[number]:
        return False
    return messages.keys[number - 1] == messages.keys[number]


class _WithSchema:
    """Reads envelopes whose rows have known fields."""

    def __init__(self, fields: list[ConnectField]) -> None:
        self._fields = fields
        self.rejects: dict[int, str] = {}
        raw = struct_of(fields)
        self._schema = pa.schema([*((name, raw) for name in _ROWS), ("op", pa.string())])

    def read(self, texts: Sequence[bytes], first: int, end: int, places: np.ndarray) -> Envelopes:
        """Read messages; raises if one cannot be read."""
        if end - first > ALONE:
            rows = read_together(texts[first:end], self._schema, ignores_others=True)
            if any(map(infinities, rows.columns)):
                raise pa.ArrowInvalid("a number is too large")
        else:
            rows = self._alone(texts[first:end])
        before, after, op = (rows.column(name) for name in (*_ROWS, "op"))
        return Envelopes(places[first:end], op, before, after)

    def _alone(self, texts: Sequence[bytes]) -> pa.RecordBatch:
        values = [read_alone(text, float_of) for text in texts]
        arrays = [
            pa.array([with_floats(value.get(each.name), each.type) for value in values], each.type)
            for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def rows(self, structs: pa.StructArray, numbers: np.ndarray, rejects: dict[int, str]) -> Decoded:
        """Return raw rows as those of the store."""
        return connect_rows(structs, self._fields, numbers, rejects)


def connect_rows(
    structs: pa.StructArray, fields: Sequence[ConnectField], numbers: np.ndarray, rejects: dict[int, str]
) -> Decoded:
    """Return the raw rows of Debezium's messages as those of the store; the wrong ones go to the rejects."""
    absent = absent_of(structs)
    structs = without_marks(structs, absent)
    wrong: dict[int, str] = {}
    parts = in_halves(lambda first, end: rows_of(structs[first:end], fields), 0, len(structs), wrong)
    rejects.update({int(numbers[place]): why for place, why in wrong.items()})
    kept = np.array([place for place in range(len(structs)) if place not in wrong], np.int64)
    if not parts:
        parts = [rows_of(structs[:0], fields)]
    rows = pa.Table.from_batches(parts).combine_chunks()
    batch = rows.to_batches()[0] if rows.num_rows else parts[0]
    left = {name: mask[kept] for name, mask in absent.items()}
    return Decoded(batch, numbers[kept], np.zeros(len(kept), np.bool_), absent=left)


class _WithoutSchema:
    """Reads envelopes whose rows have the columns of the table."""

    def __init__(self, about: TableDescription, others: pa.Schema) -> None:
        columns = row_columns(about)
        self._rows = JsonRows(columns)
        self._unclear = {each.name: each for each in columns if each.logical.name in ("decimal", "timestamp[us]")}
        self._bytes = [each.name for each in columns if each.logical.name == "binary"]
        self._is_fast = self._rows.is_read_by_arrow and not any(
            each.logical.name in ("decimal", "binary") for each in columns
        )
        self.others = others
        self.rejects: dict[int, str] = {}
        self._kind = pa.struct(list(self._rows.schema))
        self._absent: dict[str, list[int]] = {}
        """The numbers of messages that bring no value of a column, since it is large and unchanged."""

    def read(self, texts: Sequence[bytes], first: int, end: int, places: np.ndarray) -> Envelopes:
        """Read messages; raises if one cannot be read."""
        chosen = texts[first:end]
        if not self._is_fast or end - first <= ALONE:
            return self._alone(chosen, places[first:end])
        raw = pa.struct(list(self._rows.read_schema))
        schema = pa.schema([*((name, raw) for name in _ROWS), ("op", pa.string())])
        try:
            rows = read_together(chosen, pa.schema([*schema, *self.others]))
        except pa.ArrowInvalid:
            self._learn(chosen)
            rows = read_together(chosen, pa.schema([*schema, *self.others]))
        before, after = (rows.column(name) for name in _ROWS)
        absent = absent_of(after)
        for name, mask in absent.items():
            self._absent.setdefault(name, []).extend(places[first:end][mask].tolist())
        after = self._typed(without_marks(after, absent))
        return Envelopes(places[first:end], rows.column("op"), self._typed(before), after)

    def _learn(self, texts: Sequence[bytes]) -> None:
        sample, size = [], 0
        for text in texts[:_SAMPLE]:
            if (size := size + len(text)) > _SAMPLE_BYTES:
                break
            sample.append(text)
        if sample:
            seen = pa.schema([each for each in seen_schema(sample) if each.name not in (*_ROWS, "op")])
            self.others = pa.unify_schemas([self.others, seen], promote_options="permissive")

    def _typed(self, raw: pa.StructArray) -> pa.StructArray:
        cells = pa.RecordBatch.from_arrays([raw.field(name) for name in self._rows.names], self._rows.names)
        typed = self._rows.of_arrow(cells)
        return pa.StructArray.from_arrays(typed.columns, fields=list(self._kind), mask=raw.is_null())

    def _alone(self, texts: Sequence[bytes], numbers: np.ndarray) -> Envelopes:
        values, kept = [], []
        for text, number in zip(texts, numbers, strict=True):
            try:
                value = read_alone(text, self._rows.parse_float)
                for name in _ROWS:
                    if value.get(name) is not None:
                        value[name] = self._clear(self._told(value[name], int(number) if name == "after" else None))
            except (*NOT_READABLE, InvalidArgumentError) as error:
                self.rejects[int(number)] = reason_of(error)
                continue
            values.append(value)
            kept.append(int(number))
        columns = []
        for name in _ROWS:
            cells, wrong = self._rows.of_values([value.get(name) or {} for value in values])
            is_null = np.array([value.get(name) is None for value in values], np.bool_)
            for place, why in wrong.items():
                if not is_null[place] and (name == "after" or values[place].get("op") == "d"):
                    self.rejects[kept[place]] = why
            columns.append(pa.StructArray.from_arrays(cells.columns, fields=list(self._kind), mask=pa.array(is_null)))
        op = pa.array([each if isinstance(each := value.get("op"), str) else None for value in values], pa.string())
        good = pa.array([place for place, number in enumerate(kept) if number not in self.rejects], pa.int64())
        return Envelopes(np.array(kept, np.int64)[good], op.take(good), *(each.take(good) for each in columns))

    def _told(self, row: Any, number: int | None) -> Any:
        """Return a row with NULL in the place of large values that it does not bring, if it is one; remember those of
        the message with this number."""
        if not isinstance(row, dict):
            return row
        absent = [name for name, value in row.items() if value in UNAVAILABLE]
        if number is not None:
            for name in absent:
                self._absent.setdefault(name, []).append(number)
        return row | dict.fromkeys(absent)

    def _clear(self, row: Any) -> dict[str, Any]:
        """Return a row with its bytes, which are in base64. Raises InvalidArgumentError: a value may mean two things,
        or the row is none."""
        if not isinstance(row, dict):
            raise InvalidArgumentError("`before` or `after` in Debezium's message is not a JSON object")
        for name, column in self._unclear.items():
            value = row.get(name)
            is_decimal = column.logical.name == "decimal"
            if is_decimal and isinstance(value, str) and "." not in value:  # base64 may look like digits
                raise InvalidArgumentError(_UNCLEAR.format(f"the decimal {value[:50]!r} of {name!r}"))
            if not is_decimal and isinstance(value, int | float):
                raise InvalidArgumentError(_UNCLEAR.format(f"the unit of the moment {value} of {name!r}"))
        for name in self._bytes:
            if isinstance(row.get(name), str):
                row[name] = {"base64": row[name]}
                b64decode(row[name]["base64"], validate=True)
        return row

    def rows(self, structs: pa.StructArray, numbers: np.ndarray, rejects: dict[int, str]) -> Decoded:
        """Return rows, which have their types already."""
        columns = [structs.field(name) for name in self._rows.names]
        masks = {name: np.isin(numbers, which) for name, which in self._absent.items() if name in self._rows.names}
        absent = {name: mask for name, mask in masks.items() if mask.any()}
        nothing = np.zeros(len(numbers), np.bool_)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._rows.schema)
        return Decoded(batch, numbers, nothing, absent=absent)
