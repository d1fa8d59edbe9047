"""Debezium's envelopes in JSON and Avro: types, changes, tombstones and schemas that change."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from nyala import InvalidArgumentError, NotFoundError, UnavailableError
from nyala.clients.api.database import Database
from nyala.sources.kafka import ConsumeResult, consumer

from ..kafka_cluster import QUICK, KafkaCluster
from .test_json import names, rejects

CatchUp = Callable[..., ConsumeResult]
ID = {"type": "int64", "optional": False, "field": "id"}
NAME = {"type": "string", "optional": True, "field": "name"}
KEY_SCHEMA = {"type": "struct", "fields": [ID]}


def schema_of(fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    row = {"type": "struct", "optional": True, "fields": list(fields), "name": "shop.Value"}
    source = {"type": "struct", "field": "source", "fields": [{"type": "string", "field": "db"}]}
    return {
        "type": "struct",
        "name": "shop.Envelope",
        "fields": [row | {"field": "before"}, row | {"field": "after"}, source, {"type": "string", "field": "op"}],
    }


def change(
    op: str, before: Any = None, after: Any = None, fields: Sequence[dict[str, Any]] | None = (ID, NAME)
) -> bytes:
    payload = {"before": before, "after": after, "source": {"db": "\u00e9"}, "op": op, "ts_ms": 5}
    text = json.dumps({"schema": schema_of(fields), "payload": payload} if fields else payload, ensure_ascii=False)
    return text.encode()


def key(number: int, has_schema: bool = True) -> bytes:
    payload = {"id": number}
    return json.dumps({"schema": KEY_SCHEMA, "payload": payload} if has_schema else payload).encode()


@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize("copies", [1, 50])
def test_changes_are_applied_in_order(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, has_schema: bool, copies: int
) -> None:
    fields = (ID, NAME) if has_schema else None
    if not has_schema:
        embedded.create_table(topic, pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())]), "id")

    def row(number: int, name: str | None) -> dict[str, Any]:
        return {"id": number, "name": name}

    sent: list[tuple[int | None, bytes | None]] = [(n, change("r", None, row(n, "a"), fields)) for n in range(copies)]
    sent += [
        (1, change("u", None, row(1, "b"), fields)),
        (1, change("u", row(1, "b"), row(1, "c"), fields)),
        (2, change("c", None, row(2, "gone"), fields)),
        (2, change("d", row(2, None), None, fields)),
        (2, None),
        (2, change("c", None, row(2, "back"), fields)),
        (3, change("d", None, None, fields)),
        (4, change("c", None, row(4, "x"), fields)),
        (4, None),  # a delete that compaction removed
        (5, change("c", None, row(5, "moves"), fields)),
        (5, change("u", row(5, "moves"), row(6, "moved"), fields)),
        (7, change("m", None, None, fields)),
        (8, change("x", None, row(8, "?"), fields)),
        (8, change("c", row(8, "no after"), None, fields)),
        (None, None),
    ]
    kafka.send(topic, [value for _, value in sent], [None if n is None else key(n, has_schema) for n, _ in sent])
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 3
    expected = dict.fromkeys(range(copies), "a") | {1: "c", 2: "back", 6: "moved"}
    for number in (3, 4, 5):
        expected.pop(number, None)
    assert names(embedded, topic) == expected
    reasons = list(rejects(embedded).values())
    assert "operation is 'x'" in reasons[0] and "after is null" in reasons[1] and "neither" in reasons[2]
    assert embedded._store.describe_table(topic).primary_key == ["id"]


def b64(number: int, size: int = 4) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


D = "io.debezium.time."
C = "org.apache.kafka.connect.data."
TYPES: list[tuple[dict[str, Any], Any, str, Any]] = [
    ({"type": "int16"}, 5, "int16", 5),
    ({"type": "float"}, 1.5, "float", 1.5),
    ({"type": "boolean"}, True, "bool", True),
    ({"type": "bytes"}, base64.b64encode(b"\0\xff").decode(), "binary", b"\0\xff"),
    ({"type": "int32", "name": D + "Date"}, 19_782, "date", date(2024, 2, 29)),
    ({"type": "int32", "name": C + "Date"}, -1, "date", date(1969, 12, 31)),
    ({"type": "int64", "name": D + "Timestamp"}, 1_500, "timestamp[us]", datetime(1970, 1, 1, 0, 0, 1, 500_000)),
    ({"type": "int64", "name": C + "Timestamp"}, -1, "timestamp[us]", datetime(1969, 12, 31, 23, 59, 59, 999_000)),
    ({"type": "int64", "name": D + "MicroTimestamp"}, 7, "timestamp[us]", datetime(1970, 1, 1, 0, 0, 0, 7)),
    ({"type": "int64", "name": D + "NanoTimestamp"}, -1, "timestamp[us]", datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    ({"type": "int32", "name": D + "Time"}, 3_600_000, "time64[us]", time(1)),
    ({"type": "int64", "name": D + "MicroTime"}, 1, "time64[us]", time(0, 0, 0, 1)),
    ({"type": "int64", "name": D + "MicroDuration"}, 5, "duration[us]", timedelta(microseconds=5)),
    (
        {"type": "string", "name": D + "ZonedTimestamp"},
        "2024-02-29T12:00:00.25+02:00",
        "timestamp[us]",
        datetime(2024, 2, 29, 10, 0, 0, 250_000),
    ),
    (
        {"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        b64(-1250),
        "decimal(10,2)",
        Decimal("-12.50"),
    ),
    ({"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "0"}}, b64(7), "decimal(38,0)", Decimal(7)),
    (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []},
        {"scale": 3, "value": b64(1234)},
        "string",
        "1.234",
    ),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": [1]}', "json", '{"a": [1]}'),
    ({"type": "string", "name": "io.debezium.data.Uuid"}, "0-1", "string", "0-1"),
    ({"type": "array", "items": {"type": "int32"}}, [1, None], "list<int32>", [1, None]),
    (
        {"type": "struct", "fields": [{"field": "x", "type": "double"}, {"field": "y", "type": "double"}]},
        {"x": 1.0, "y": None},
        "json",
        '{"x": 1.0, "y": null}',
    ),
]


def test_every_type_of_debezium(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp) -> None:
    fields = [ID, *(kind | {"field": f"f{at}", "optional": True} for at, (kind, *_) in enumerate(TYPES))]
    row = {f"f{at}": cell for at, (_, cell, *_) in enumerate(TYPES)}
    nothing = dict.fromkeys(row)
    values = [change("c", None, {"id": i, **(row if i % 2 else nothing)}, fields) for i in range(100)]
    kafka.send(topic, values, [key(i) for i in range(100)])
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 0
    columns = {column.name: column.type for column in embedded._store.describe_table(topic).columns}
    assert columns == {"id": "int64"} | {f"f{at}": word for at, (_, _, word, _) in enumerate(TYPES)}
    rows = {each["id"]: each for each in embedded.table(topic).scan().to_arrow().to_pylist()}
    assert len(rows) == 100 and set(rows[4].values()) == {4, None}
    for at, (kind, *_, cell) in enumerate(TYPES):
        assert rows[5][f"f{at}"] == cell, kind


def test_a_value_without_a_place_is_a_reject(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    number = {"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "0", "connect.decimal.precision": "3"}}
    fields = [ID, number | {"field": "name"}]
    cells = [b64(999), b64(1000), "?", b64(-999), 5, "AAA"]
    values = [change("c", None, {"id": i, "name": b64(i)}, fields) for i in range(10, 60)]
    values += [change("c", None, {"id": i, "name": cell}, fields) for i, cell in enumerate(cells)]
    values += [b"{}", change("c", None, {"id": 9}, fields)[:-1], b'{"schema": 5, "payload": {"op": "c"}}']
    kafka.send(topic, values, [key(0)] * len(values))
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 7
    assert len(names(embedded, topic)) == 52
    assert set(rejects(embedded)) == {51, 52, 54, 55, 56, 57, 58}


def test_a_new_field_is_a_new_column(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp) -> None:
    more = (ID, NAME, {"type": "int32", "field": "n", "optional": True})
    values = [
        change("c", None, {"id": 1, "name": "a"}),
        change("c", None, {"id": 2, "name": "b", "n": 7}, more),
        change("u", None, {"id": 1, "name": "old shape"}),
        change("c", None, {"id": 3, "name": "c", "n": 9}, more),
    ]
    kafka.send(topic, values, [key(1)] * 4)
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 0
    rows = {each["id"]: (each["name"], each["n"]) for each in embedded.table(topic).scan().to_arrow().to_pylist()}
    assert rows == {1: ("old shape", None), 2: ("b", 7), 3: ("c", 9)}


UNAVAILABLE = "__debezium_unavailable_value"
UNAVAILABLE_BYTES = base64.b64encode(UNAVAILABLE.encode()).decode()


@pytest.mark.parametrize("copies", [0, 50], ids=["few", "many"])
@pytest.mark.parametrize("has_schema", [True, False])
def test_large_values_that_an_update_leaves_stay(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, has_schema: bool, copies: int
) -> None:
    fields = (ID, NAME) if has_schema else None
    if not has_schema:
        embedded.create_table(topic, pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())]), "id")
    values = [
        change("c", None, {"id": 1, "name": "large"}, fields),
        change("u", None, {"id": 1, "name": UNAVAILABLE}, fields),
        change("c", None, {"id": 2, "name": "other"}, fields),
        change("u", {"id": 2, "name": None}, {"id": 3, "name": UNAVAILABLE}, fields),
        None,
        change("c", None, {"id": 4, "name": "kept"}, fields),
        *(change("u", None, {"id": 4, "name": UNAVAILABLE}, fields) for _ in range(copies)),
    ]
    keys = [key(number, has_schema) for number in (1, 1, 2, 2, 4, *[4] * (copies + 1))]
    kafka.send(topic, values, keys)
    catch_up(embedded, [topic], format="debezium-json")
    assert names(embedded, topic) == {1: "large", 2: "other", 4: "kept"}
    assert "REPLICA IDENTITY FULL" in rejects(embedded)[3]


TEXTS = {"type": "array", "items": {"type": "string", "optional": True}}
LARGE: list[tuple[dict[str, Any], Any, Any, Any]] = [
    (TEXTS, ["a"], ["a"], [UNAVAILABLE]),
    (TEXTS, ["b"], ["b"], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    ({"type": "array", "items": {"type": "int32"}}, [1, 2], [1, 2], list(UNAVAILABLE.encode())),
    ({"type": "array", "items": {"type": "int64"}}, [1], [1], list(UNAVAILABLE.encode())),
    ({"type": "bytes"}, "AP8=", b"\0\xff", UNAVAILABLE_BYTES),
    ({"type": "bytes", "name": C + "Decimal", "parameters": {"scale": "2"}}, None, None, UNAVAILABLE_BYTES),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a":"b"}', '{"a":"b"}', UNAVAILABLE),
    ({"type": "string", "name": "io.debezium.data.Json"}, "{}", "{}", f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}'),
]


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize("has_schema", [True, False])
def test_large_lists_that_an_update_leaves_stay(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, has_schema: bool, copies: int
) -> None:
    """Arrays, maps of hstore and all else that is large have marks of their own."""
    described = [ID, *(kind | {"field": f"f{at}", "optional": True} for at, (kind, *_) in enumerate(LARGE))]
    row = {"id": 1} | {f"f{at}": sent for at, (_, sent, *_) in enumerate(LARGE)}
    kafka.send(topic, [change("c", None, row, described)], [key(1)])
    catch_up(embedded, [topic], format="debezium-json")
    left = {"id": 1} | {f"f{at}": mark for at, (*_, mark) in enumerate(LARGE)}
    values = [change("u", None, left, described if has_schema else None) for _ in range(copies)]
    kafka.send(topic, values, [key(1, has_schema)] * copies)
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 0
    row = embedded.table(topic).get(1)
    assert row is not None and [row[f"f{at}"] for at in range(len(LARGE))] == [there for _, _, there, _ in LARGE]


def test_a_truncation(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp) -> None:
    kafka.send(topic, [change("c", None, {"id": i, "name": "a"}) for i in range(5)], [key(i) for i in range(5)])
    catch_up(embedded, [topic], format="debezium-json")
    values = [change("c", None, {"id": 7, "name": "b"}), change("t"), change("c", None, {"id": 8, "name": "c"})]
    kafka.send(topic, values, [key(7), None, key(8)])
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 0
    assert names(embedded, topic) == {8: "c"}
    kafka.create(f"{topic}_two", 2)
    kafka.send(f"{topic}_two", values, [key(7), None, key(8)])
    assert catch_up(embedded, [f"{topic}_two"], format="debezium-json").rejects == 1
    assert names(embedded, f"{topic}_two") == {7: "b", 8: "c"}


def test_without_a_schema_nothing_is_guessed(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    with pytest.raises(NotFoundError, match="do not describe one"):
        kafka.send(topic, [change("c", None, {"id": 0, "name": "a"}, None)])
        catch_up(embedded, [topic], format="debezium-json")
    fields = [("name", pa.string()), ("at", pa.timestamp("us")), ("d", pa.decimal128(9, 2)), ("b", pa.binary())]
    embedded.create_table(topic, pa.schema([pa.field("id", pa.int64(), False), *fields]), "id")
    rows = [
        {"id": 1, "at": 1_709_208_000_000},
        {"id": 2, "d": b64(1250, 3)},
        {"id": 3, "d": "12.50", "b": "AP8=", "at": "2024-02-29T00:00:00Z"},
        {"id": 4, "new": 1},
        {"id": 5, "b": "?"},
    ]
    kafka.send(topic, [change("c", None, row, None) for row in rows])
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 4
    reasons = rejects(embedded)
    assert "unit of the moment" in reasons[1] and "decimal" in reasons[2] and "no column 'new'" in reasons[4]
    assert names(embedded, topic) == {0: "a", 3: None}
    row = embedded.table(topic).get(3)
    assert row is not None and (row["d"], row["b"]) == (Decimal("12.50"), b"\0\xff")


# Avro


class _Registry(ThreadingHTTPServer):
    """A registry of schemas; ``is_down`` lets it answer with errors."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.is_down = False
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                number = int(self.path.rpartition("/")[2])
                is_there = 0 < number <= len(registry.schemas)
                self.send_response(500 if registry.is_down else 200 if is_there else 404)
                self.end_headers()
                if is_there and not registry.is_down:
                    self.wfile.write(json.dumps({"schema": json.dumps(registry.schemas[number - 1])}).encode())

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def write(self, schema: dict[str, Any], value: Any) -> bytes:
        """Return a value as a message."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, {}), value)
        return b"\0" + (self.schemas.index(schema) + 1).to_bytes(4, "big") + stream.getvalue()


@pytest.fixture
def registry() -> Iterator[_Registry]:
    server = _Registry()
    yield server
    server.shutdown()
    server.server_close()


def nullable(kind: Any) -> Any:
    return ["null", kind]


ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": nullable("string")},
        {"name": "price", "type": nullable({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})},
        {"name": "at", "type": nullable({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"})},
        {"name": "day", "type": nullable({"type": "int", "logicalType": "date"})},
        {"name": "tags", "type": nullable({"type": "array", "items": nullable("string")})},
        {"name": "kind", "type": nullable({"type": "enum", "name": "Kind", "symbols": ["A", "B"]})},
        {"name": "more", "type": nullable({"type": "map", "values": "int"})},
    ],
}
KEY = {"type": "record", "name": "Key", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop",
    "fields": [
        {"name": "before", "type": nullable(ROW)},
        {"name": "after", "type": nullable("Value")},
        {"name": "op", "type": "string"},
    ],
}


def avro_row(number: int, **more: Any) -> dict[str, Any]:
    return {each["name"]: None for each in ROW["fields"]} | {"id": number} | more


def test_debezium_in_avro(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, registry: _Registry
) -> None:
    def envelope(op: str, before: Any = None, after: Any = None) -> bytes:
        return registry.write(ENVELOPE, {"op": op, "before": before, "after": after})

    whole = {
        "name": "a",
        "price": b"\x04\xe2",
        "at": 7,
        "day": 19_782,
        "tags": ["x", None],
        "kind": "B",
        "more": {"k": 1},
    }
    values = [envelope("r", None, avro_row(number, **whole)) for number in range(50)]
    values += [envelope("u", None, avro_row(1, name="b")), envelope("d", avro_row(2)), None, None]
    keys = [registry.write(KEY, {"id": number}) for number in [*range(50), 1, 2, 2, 3]]
    bad = [b"\0\0\0\0\x63abc", b"\1", b"", values[0][:-3], values[0] + b"x"]
    kafka.send(topic, [*values, *bad], [*keys, *[None] * len(bad)])
    assert catch_up(embedded, [topic], format="debezium-avro", registry=registry.url).rejects == len(bad)
    assert "schema 99 is not in the registry" in rejects(embedded)[54]
    rows = {each["id"]: each for each in embedded.table(topic).scan().to_arrow().to_pylist()}
    assert len(rows) == 48 and rows[1]["name"] == "b" and rows[1]["price"] is None
    del rows[5]["id"]
    assert rows[5] == whole | {
        "price": Decimal("12.50"),
        "at": datetime(1970, 1, 1, 0, 0, 0, 7),
        "day": date(2024, 2, 29),
        "more": '{"k": 1}',
    }
    assert len(registry.asked) == 3, "each schema once, and the one that is not there"


def test_rows_in_avro_and_a_registry_that_is_down(
    embedded: Database,
    kafka: KafkaCluster,
    topic: str,
    catch_up: CatchUp,
    registry: _Registry,
) -> None:
    kafka.send(topic, [registry.write(ROW, avro_row(number, name="a")) for number in range(40)], [b"0"] * 40)
    registry.is_down = True
    runner = consumer(embedded, kafka.address, [topic], format="avro", registry=registry.url, key="id", options=QUICK)
    runner._patience_seconds = 0.5
    with pytest.raises(UnavailableError, match="answers with HTTP 500"):
        runner.run()
    registry.is_down = False
    with pytest.raises(InvalidArgumentError, match="name them with --key"):
        catch_up(embedded, [topic], format="avro", registry=registry.url)
    assert catch_up(embedded, [topic], format="avro", registry=registry.url, key="id").messages == 40
    kafka.send(topic, [None], [b"5"])
    catch_up(embedded, [topic], format="avro", registry=registry.url)
    assert len(names(embedded, topic)) == 39 and "nyala_rejects" in embedded.tables()


def test_rows_in_avro_are_whole(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, registry: _Registry
) -> None:
    """A field that a message lacks, as one of an older schema does, is NULL, or the default of its column."""
    fields = [("id", pa.int64()), ("name", pa.string()), ("n", pa.int64()), ("kind", pa.string())]
    embedded.create_table(topic, pa.schema(fields), "id", column_options={"kind": {"write_default": "new"}})
    embedded.table(topic).insert({"id": [1, 2], "name": ["a", "b"], "n": [1, 2], "kind": ["old", "old"]})
    older = ROW | {"name": "Older", "fields": ROW["fields"][:2]}
    kafka.send(topic, [registry.write(older, {"id": 1, "name": "again"})], [b"1"])
    assert catch_up(embedded, [topic], format="avro", registry=registry.url).rejects == 0
    assert embedded.table(topic).get(1) == {"id": 1, "name": "again", "n": None, "kind": "new"}
    assert embedded.table(topic).get(2) == {"id": 2, "name": "b", "n": 2, "kind": "old"}
