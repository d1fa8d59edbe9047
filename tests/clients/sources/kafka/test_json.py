"""Rows of JSON and Arrow: what becomes of good and bad messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.sources.kafka.formats import plain
from nyala.clients.sources.kafka.topic_table import TopicTable
from nyala.sources.kafka import ConsumeResult

from ..kafka_cluster import KafkaCluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("n", pa.int32())])
CatchUp = Callable[..., ConsumeResult]


def text(**row: Any) -> bytes:
    return json.dumps(row).encode()


def rejects(db: Database) -> dict[int, str]:
    """Return the reasons of rejects by offset."""
    rows = db.table("nyala_rejects").scan().to_arrow().to_pylist()
    return {row["offset"]: row["reason"] for row in rows}


def names(db: Database, table: str) -> dict[int, str]:
    rows = db.table(table).scan().to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def test_rows_are_upserted_and_deleted_in_order_and_once(
    db: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    db.create_table(topic, SCHEMA, "id")
    kafka.send(topic, [text(id=i, name="a") for i in range(100)])
    keys = [b'{"id": 1}', None, b"2", b'{"id": 2}', b"3", None]
    kafka.send(topic, [None, text(id=1, name="again"), None, text(id=2, n=7), None, text(id=4, name="b")], keys)
    result = catch_up(db, [topic])
    assert (result.messages, result.rejects, result.positions) == (106, 0, {f"{topic}[0]": 106})
    rows = names(db, topic)
    assert len(rows) == 99 and 3 not in rows
    assert (rows[1], rows[2], rows[4], rows[5]) == ("again", None, "b", "a")
    assert catch_up(db, [topic]).messages == 0
    kafka.send(topic, [text(id=0, name="later")])
    assert catch_up(db, [topic]).messages == 1
    assert names(db, topic)[0] == "later"
    assert kafka.committed(topic, topic, 0) == 107, "tools of Kafka see how far the group is"


BAD: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"no", "not JSON"),
    (b"\xff\xfe", "not UTF-8"),
    (b"[1]", "not a JSON object, but a list"),
    (b'{"id": 1, "name": "\xff"}', "not UTF-8"),
    (b'{"id": 1, "name": "\\ud800"}', "is not a valid string"),
    (b'{"id": 1}{"id": 2}', "not JSON"),
    (b'{"id": 1}\n{"id": 2}', "not JSON"),
    (b'{"id": 1', "not JSON"),
    (b'{"id": 1},"n":{}', "not JSON"),
    (b'{"id": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    (b'{"id": "x"}', "'x' is not a valid int64"),
    (b'{"id": 1.5}', "1.5 is not a valid int64"),
    (b'{"id": null}', "'id' is NULL"),
    (b'{"name": "no key"}', "'id' is NULL"),
    (b'{"id": 1, "n": 3000000000}', "3000000000 is not a valid int32"),
    (b'{"id": 1, "id2": 2}', "the table has no column 'id2'"),
    (b'{"id": 9223372036854775808}', "is not a valid int64"),
    (b'{"id": 1, "name": {"a": 1}}', "is not a valid string"),
    (b'{"id": 7, "name": "' + b"x" * 100_000 + b'"}', "the table refuses it"),
]


def test_each_bad_message_is_a_reject_and_the_others_apply(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    db = embedded
    db.create_table(topic, SCHEMA, "id")
    values: list[bytes] = []
    for number, (bad, _) in enumerate(BAD):  # among enough good ones that Arrow reads them together
        values += [text(id=100 * number + 1_000 + i, name="good") for i in range(50)] + [bad]
    kafka.send(topic, values)
    result = catch_up(db, [topic])
    reasons = rejects(db)
    assert result.rejects == len(BAD) and list(reasons) == [51 * number + 50 for number in range(len(BAD))]
    for (bad, words), reason in zip(BAD, reasons.values(), strict=True):
        assert words in reason, (bad[:50], reason)
    assert set(names(db, topic).values()) == {"good"} and len(names(db, topic)) == 50 * len(BAD)
    [row] = db.table("nyala_rejects").scan(where="offset = 152").to_arrow().to_pylist()
    assert (row["topic"], row["partition"], row["table"], row["value"]) == (topic, 0, topic, b"\xff\xfe")
    assert abs((row["timestamp"] - row["at"]).total_seconds()) < 100
    assert catch_up(db, [topic]).rejects == 0


def test_two_objects_in_one_message_shift_no_row(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    """An empty message beside one with two objects is as many rows as messages."""
    embedded.create_table(topic, pa.schema([*SCHEMA, ("kafka_offset", pa.int64())]), "id")
    values = [text(id=i, name="a") for i in range(100)]
    values[40:42] = [b" ", text(id=40) + text(id=41)]
    kafka.send(topic, values)
    assert catch_up(embedded, [topic]).rejects == 2
    rows = embedded.table(topic).scan().to_arrow().to_pylist()
    assert len(rows) == 98 and all(row["id"] == row["kafka_offset"] for row in rows)


def test_a_wrong_message_may_be_the_first_of_a_key(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    """A row that the store refuses is no change: what was before stays."""
    embedded.create_table(topic, SCHEMA, "id")
    kafka.send(topic, [text(id=1, name="kept"), text(id=1, name="x" * 100_000), text(id=2, name="y" * 100_000)])
    assert catch_up(embedded, [topic]).rejects == 2
    assert names(embedded, topic) == {1: "kept"}


def test_a_column_that_is_added_meanwhile_is_seen(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.create_table(topic, SCHEMA, "id")
    kafka.send(topic, [text(id=1, later=5)])
    read = TopicTable.refresh

    def stale(self: TopicTable) -> None:
        monkeypatch.setattr(TopicTable, "refresh", read)
        read(self)
        embedded.table(topic).alter().add_column("later", "int32").apply()

    monkeypatch.setattr(TopicTable, "refresh", stale)
    assert catch_up(embedded, [topic]).rejects == 0
    assert embedded.table(topic).get(1) == {"id": 1, "name": None, "n": None, "later": 5}


def test_more_rejects_than_allowed_end_the_run(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    embedded.create_table(topic, SCHEMA, "id")
    kafka.send(topic, [b"no"] * 3 + [text(id=1)])
    with pytest.raises(Exception, match=r"3 messages could not be .* rejects_max \(2\).*it is not JSON"):
        catch_up(embedded, [topic], rejects_max=2)
    assert len(rejects(embedded)) == 3 and names(embedded, topic) == {1: None}
    assert catch_up(embedded, [topic], rejects_max=2).messages == 0


def test_every_type_and_columns_of_the_message(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    fields = [
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("f", pa.float64()),
        ("ok", pa.bool_()),
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("us")),
        ("kafka_key", pa.binary()),
    ]
    options = {"doc": {"type": "json"}}
    flat = pa.schema([pa.field("id", pa.int64(), False), *fields])
    nested = pa.schema([*flat, ("doc", pa.string()), ("tags", pa.list_(pa.string()))])
    row = {"day": "2024-02-29", "at": "2024-02-29T12:00:00.5Z", "price": "12.50", "f": 1, "ok": True}
    for name, types in (("flat", flat), ("nested", nested)):
        kafka.create(f"{topic}_{name}")
        embedded.create_table(f"{topic}_{name}", types, "id", column_options=options if name == "nested" else None)
        more = {"doc": {"a": [1, {"b": None}]}, "tags": ["x", None]} if name == "nested" else {}
        kafka.send(f"{topic}_{name}", [text(id=i, **row, **more) for i in range(100)], [b"k"] * 100)
        assert catch_up(embedded, [f"{topic}_{name}"]).rejects == 0
        rows = embedded.table(f"{topic}_{name}").scan().to_arrow().to_pylist()
        assert len(rows) == 100
        first = rows[0]
        assert first["at"] == datetime(2024, 2, 29, 12, 0, 0, 500_000) and first["price"] == Decimal("12.50")
        assert (first["f"], first["ok"], first["kafka_topic"]) == (1.0, True, f"{topic}_{name}")
        assert (first["kafka_offset"], first["kafka_key"]) == (0, b"k")
        assert abs((datetime.now() - first["kafka_timestamp"]).days) < 2
    assert json.loads(first["doc"]) == more["doc"] and first["tags"] == ["x", None]


def test_a_field_that_is_missing_has_the_default_of_its_column(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    embedded.create_table(topic, SCHEMA, "id", column_options={"name": {"write_default": "new"}})
    kafka.send(topic, [text(id=1), text(id=2, name=None), text(id=3, name="a"), text(id=3)])
    catch_up(embedded, [topic])
    assert names(embedded, topic) == {1: "new", 2: None, 3: "new"}


def test_inserts_into_a_table_without_a_unique_key(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    embedded.create_table(topic, SCHEMA, "id", unique_key=False)
    kafka.send(topic, [text(id=1, name="a"), text(id=1, name="b"), None, text(id=1, name="a")], [b"1"] * 4)
    assert catch_up(embedded, [topic], op="insert").rejects == 1
    assert sorted(embedded.table(topic).scan().to_arrow()["name"].to_pylist()) == ["a", "a", "b"]
    assert "rows of the table have no key" in rejects(embedded)[2]


def test_an_insert_of_a_key_that_is_there_is_a_reject(
    db: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp
) -> None:
    db.create_table(topic, SCHEMA, "id")
    kafka.send(topic, [text(id=i % 50, name=f"{i}") for i in range(80)])
    assert catch_up(db, [topic], op="insert").rejects == 30
    assert names(db, topic) == {i: f"{i}" for i in range(50)}
    assert set(rejects(db)) == set(range(50, 80))


def test_an_ordering_column_decides(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp) -> None:
    embedded.create_table(topic, SCHEMA, "id", order_by="n")
    kafka.send(topic, [text(id=1, name="new", n=5), text(id=1, name="stale", n=4), text(id=2, name="a", n=1)])
    kafka.send(topic, [None, text(id=3, name="b", n=1)], [b"2", None])
    assert catch_up(embedded, [topic]).rejects == 0
    assert names(embedded, topic) == {1: "new", 3: "b"}


def test_streams_of_arrow(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp) -> None:
    def stream(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
        return sink.getvalue().to_pybytes()

    other = pa.schema([("id", pa.int16()), ("name", pa.large_string())])
    strange = pa.schema([("id", pa.int16()), ("what", pa.string())])
    embedded.create_table(topic, SCHEMA, "id")
    whole = stream([{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b", "n": 1}])
    values = [whole, stream([{"id": 2, "name": "c"}], other), None, stream([{"id": 1}], strange), whole[:100], b""]
    kafka.send(topic, [*values, stream([]), stream([{"id": 4, "name": "d", "n": 0}])], [b"1"] * 8)
    assert catch_up(embedded, [topic], format="arrow").rejects == 3
    assert names(embedded, topic) == {2: "c", 4: "d"}
    assert set(rejects(embedded)) == {3, 4, 5}


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_rows_are_whole(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, form: str) -> None:
    """A field that a message lacks is NULL, or the default of its column."""
    embedded.create_table(topic, SCHEMA, "id", column_options={"n": {"write_default": 7}})
    embedded.table(topic).insert({"id": [1, 2, 3], "name": ["a", "b", "c"], "n": [1, 1, 1]})
    values = [text(id=1), text(id=2, name="x")]
    if form == "arrow":
        values = []
        for rows in (pa.table({"id": [1]}), pa.table({"id": [2], "name": ["x"]})):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            values.append(sink.getvalue().to_pybytes())
    kafka.send(topic, values)
    assert catch_up(embedded, [topic], format=form).rejects == 0
    rows = embedded.table(topic).scan(ordered=True).to_arrow()
    assert [rows[name].to_pylist() for name in ("name", "n")] == [[None, "x", "c"], [7, 7, 1]]


def test_an_order_decides_about_deletes(embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp) -> None:
    """A tombstone deletes, and leaves the newest value behind that came before it."""
    embedded.create_table(topic, SCHEMA, "id", order_by="n")
    rows = [text(id=1, name="a", n=8), None, text(id=1, name="older", n=6), text(id=2, name="x", n=8), None]
    kafka.send(topic, [*rows, text(id=2, name="equal", n=8)], [b"1"] * 3 + [b"2"] * 3)
    assert catch_up(embedded, [topic]).rejects == 0
    assert names(embedded, topic) == {2: "equal"}
    kafka.send(topic, [text(id=1, name="late", n=7)], [b"1"])
    catch_up(embedded, [topic])
    assert names(embedded, topic) == {2: "equal"}


def test_arrow_and_python_read_the_same(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = [("f", pa.float64()), ("d", pa.date32()), ("t", pa.timestamp("us")), ("ok", pa.bool_())]
    schema = pa.schema([*SCHEMA, *more])
    cells = ["1", '"1"', "1.0", "1e2", "null", "true", '"true"', "NaN", '"2024-01-01"', '"2024-01-01T00:00:00+01:00"']
    cells += ['"2024-01-01 00:00:00"', "-0.0", '"x"', "[]", "{}", '""', "12345678901", '" 5 "', '"\\u0041"']
    cells += ["01", "+1"]
    values = [
        f'{{"id": {number}, "{column}": {cell}}}'.encode()
        for number, (column, cell) in enumerate((c, e) for c in schema.names[1:] for e in cells)
    ]
    seen = []
    values = [each for each in values for _ in range(2)]
    values += [text(id=-1)] * (512 - len(values))
    for alone in (1, 10_000):  # pairs by Arrow, or all by Python
        monkeypatch.setattr(plain, "ALONE", alone)
        name = f"{topic}_{alone}"
        kafka.create(name)
        embedded.create_table(name, schema, "id")
        kafka.send(name, values)
        catch_up(embedded, [name])
        rows = embedded.table(name).scan().to_arrow().to_pylist()
        seen.append({row["id"]: repr(row) for row in rows})
    assert len(seen[0]) > 30
    assert seen[0] == seen[1]


@pytest.mark.parametrize("count", [2, 50])
@pytest.mark.parametrize("form", ["json", "debezium-json"])
def test_decimals_keep_their_digits(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, form: str, count: int
) -> None:
    kinds = [pa.field("id", pa.int64(), False), ("d", pa.decimal128(38, 2)), ("f", pa.float64())]
    embedded.create_table(topic, pa.schema(kinds), "id")
    row = '{"id": %d, "d": 12345678901234567890.12, "f": 0.1}'
    envelope = row if form == "json" else f'{{"op": "c", "before": null, "after": {row}}}'
    kafka.send(topic, [(envelope % number).encode() for number in range(count)])
    assert catch_up(embedded, [topic], format=form).rejects == 0
    rows = embedded.table(topic).scan().to_arrow()
    assert set(rows["d"].to_pylist()) == {Decimal("12345678901234567890.12")} and set(rows["f"].to_pylist()) == {0.1}
