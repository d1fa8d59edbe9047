"""Debezium's messages in JSON: cells that need care, tombstones, and topics that grow."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.sources.kafka.cluster import Cluster
from nyala.clients.sources.kafka.formats import debezium_json
from nyala.sources.kafka import ConsumeResult

from ..kafka_cluster import KafkaCluster
from .test_debezium import ID, NAME, change, key
from .test_json import names, rejects

CatchUp = Callable[..., ConsumeResult]
FILLER = 40
"""So many more messages, and Arrow reads them all together first."""


@pytest.fixture(params=["alone", "together"])
def copies(request: pytest.FixtureRequest) -> int:
    return 0 if request.param == "alone" else FILLER


def send(kafka: KafkaCluster, topic: str, cells: list[Any], field: dict[str, Any], copies: int) -> None:
    """Send rows with a cell each, and some with NULL."""
    rows = [{"id": number, "c": cell} for number, cell in enumerate([*cells, *[None] * copies])]
    fields = (ID, field | {"field": "c", "optional": True})
    kafka.send(topic, [change("c", None, row, fields) for row in rows], [key(row["id"]) for row in rows])


def cells_of(db: Database, topic: str, count: int) -> list[Any]:
    return [(db.table(topic).get(number) or {}).get("c", "rejected") for number in range(count)]


def test_moments_of_nanoseconds_are_cut_in_text_as_in_numbers(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, copies: int
) -> None:
    texts = [f"2020-01-01T02:00:00.{digits}+02:00" for digits in ("1234567", "123456789", "999999999", "5")]
    texts += ["9999-12-31T23:59:59.9999999Z", "2020-01-01T00:00:00Z"]
    send(kafka, topic, texts, {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, copies)
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 0
    micros = [123_456, 123_456, 999_999, 500_000]
    assert cells_of(embedded, topic, 6) == [
        *(datetime(2020, 1, 1, 0, 0, 0, each) for each in micros),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
        datetime(2020, 1, 1),
    ]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_that_are_no_numbers_are_words(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, copies: int, kind: str
) -> None:
    send(kafka, topic, ["NaN", "Infinity", "-Infinity", 1.5, 2, "many"], {"type": kind}, copies)
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 1
    cells = cells_of(embedded, topic, 6)
    assert math.isnan(cells[0]) and cells[1:] == [math.inf, -math.inf, 1.5, 2.0, "rejected"]


def test_floats_that_are_too_large_are_rejects(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, copies: int
) -> None:
    send(kafka, topic, [1e39, 1.5, -1e300], {"type": "float"}, copies)
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 2
    assert cells_of(embedded, topic, 3) == ["rejected", 1.5, "rejected"]
    assert "too large" in rejects(embedded)[0]


def test_lists_have_floats_that_are_no_numbers(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, copies: int
) -> None:
    send(kafka, topic, [["NaN", None, 1.5]], {"type": "array", "items": {"type": "double"}}, copies)
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 0
    [cell] = cells_of(embedded, topic, 1)
    assert math.isnan(cell[0]) and cell[1:] == [None, 1.5]


@pytest.mark.parametrize("has_schema", [True, False])
def test_a_row_that_looks_like_a_delete(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, has_schema: bool
) -> None:
    fields = (ID, NAME, {"type": "string", "optional": True, "field": "op"}) if has_schema else None
    if not has_schema:
        embedded.create_table(
            topic, pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("op", pa.string())]), "id"
        )
    rows = [{"id": number, "name": "a", "op": "d"} for number in (1, 2)]
    values = [change("c", None, row, fields).replace(b'"op": "d"', b'"op":"d"') for row in rows]
    kafka.send(topic, [values[0], None, values[1]], [key(1, has_schema), key(1, has_schema), key(2, has_schema)])
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 0
    assert names(embedded, topic) == {2: "a"}


def test_a_truncation_in_a_topic_that_has_grown_is_a_reject(
    embedded: Database, kafka: KafkaCluster, topic: str, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one partition when the group is joined, and two when the truncation comes."""
    monkeypatch.setattr(Cluster, "count_partitions", lambda *given: 2)
    kafka.send(topic, [change("c", None, {"id": 1, "name": "a"}), change("t")], [key(1), None])
    assert catch_up(embedded, [topic], format="debezium-json").rejects == 1
    assert names(embedded, topic) == {1: "a"}
    assert "several partitions" in rejects(embedded)[1]


assert debezium_json.ALONE < FILLER
