"""The streaming source, by calling what Spark calls: no Java needed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.spark import stream_read
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.stream_read import StreamReader
from nyala.clients.spark.types import arrow_schema
from nyala.schemas.errors import InvalidArgumentError, SnapshotTooOldError, UnavailableError

ALL = ReadAllAvailable()


@pytest.fixture
def homes(db: Database) -> Table:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    return db.create_table("homes", schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])


@pytest.fixture
def stream(source: Callable[..., NyalaDataSource]) -> Callable[..., StreamReader]:
    def make(**options: object) -> StreamReader:
        found = source(readChangeFeed=True, **options)
        return found.streamReader(found.schema())

    return make


def rows(reader: StreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    assert all(batch.schema.equals(arrow_schema(reader._schema)) for batch in batches)
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["id"], row["_timestamp"]))


Stream = Callable[..., StreamReader]


def test_what_is_there_comes_first_then_what_changes(homes: Table, stream: Stream) -> None:
    homes.insert({"id": [1, 2], "v": [1, 2]})
    last = homes.delete({"id": [2]}).timestamp
    reader = stream()
    start = reader.initialOffset()
    assert start == {"timestamp": 0}
    middle = reader.latestOffset(start, ALL)
    assert middle == {"timestamp": last} == reader.reportLatestOffset()
    assert rows(reader, start, middle) == [{"_op": "insert", "_timestamp": last, "id": 1, "v": 1}]
    homes.upsert({"id": [1], "v": [7]})
    newest = homes.delete({"id": [1]}).timestamp
    end = reader.latestOffset(middle, ALL)
    assert [row["_op"] for row in rows(reader, middle, end)] == ["update", "delete"] and end == {"timestamp": newest}
    assert reader.latestOffset(end, ALL) == end and reader.partitions(end, end) == []


def test_a_reader_without_a_server_says_so_and_its_tasks_try_again(
    homes: Table, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = {"timestamp": homes.insert({"id": [1], "v": [1]}).timestamp}
    (part, *_) = stream().partitions({"timestamp": 0}, end)

    def away(_: object) -> None:
        raise UnavailableError("the server cannot be reached")

    with monkeypatch.context() as while_away:
        while_away.setattr(stream_read, "source_schema", away)
        reader = cloudpickle.loads(cloudpickle.dumps(stream()))
        asked = (
            reader.initialOffset,
            reader.prepareForTriggerAvailableNow,
            reader.reportLatestOffset,
            lambda: reader.latestOffset(end, reader.getDefaultReadLimit()),
            lambda: reader.partitions(end, end),
            lambda: list(reader.read(part)),
        )
        for ask in asked:
            with pytest.raises(UnavailableError, match="cannot be reached"):
                ask()
    parts = stream().partitions({"timestamp": 0}, end)
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [{"_op": "insert", "_timestamp": end["timestamp"], "id": 1, "v": 1}]


def test_where_a_stream_starts(homes: Table, stream: Stream) -> None:
    first = homes.insert({"id": [1], "v": [1]}).timestamp
    last = homes.insert({"id": [2], "v": [1]}).timestamp
    assert stream(startingTimestamp="latest").initialOffset() == {"timestamp": last}
    assert stream(startingTimestamp=first).initialOffset() == {"timestamp": first}
    reader = stream(startingTimestamp=last + 1000)
    assert reader.latestOffset(reader.initialOffset(), ALL) == reader.initialOffset()


def test_a_table_without_changes(homes: Table, stream: Stream) -> None:
    reader = stream()
    assert reader.latestOffset(reader.initialOffset(), ALL) == reader.initialOffset() == {"timestamp": 0}


def test_a_stream_is_of_changes(homes: Table, source: Callable[..., NyalaDataSource]) -> None:
    with pytest.raises(InvalidArgumentError, match="readChangeFeed=true"):
        source(startingTimestamp="latest").schema()


@pytest.mark.parametrize("limit", [ReadMaxRows(1), ReadMaxRows(7), ReadMaxRows(25), ReadMaxBytes(200)])
def test_limits_cut_between_commits(homes: Table, stream: Stream, limit: ReadMaxRows | ReadMaxBytes) -> None:
    dice = random.Random(str(limit))
    begin = at = homes.insert({"id": [0], "v": [0]}).timestamp
    sizes = {}
    for _ in range(12):
        ids = dice.sample(range(20), dice.randint(1, 9))
        at = homes.upsert({"id": ids, "v": [at % 1000] * len(ids)}).timestamp
        sizes[at] = len(ids)
    reader = stream()
    offset, batches = {"timestamp": begin}, []
    while (end := reader.latestOffset(offset, limit)) != offset:
        batches.append(rows(reader, offset, end))
        commits = sum(offset["timestamp"] < commit <= end["timestamp"] for commit in sizes)
        if isinstance(limit, ReadMaxRows):
            assert len(batches[-1]) <= limit.max_rows or commits == 1
        offset = end
    assert offset == {"timestamp": at} and len(batches) > 1
    found = [(row["_timestamp"], row["id"]) for batch in batches for row in batch]
    assert len(found) == len(set(found)) == sum(sizes.values())


@pytest.mark.parametrize("limit", [ReadMaxRows(40), ReadMaxRows(300), ReadMaxRows(7000), ReadMaxBytes(3000)])
def test_limits_cut_the_rows_that_are_there_at_first(
    homes: Table, stream: Stream, limit: ReadMaxRows | ReadMaxBytes
) -> None:
    """By key, at one snapshot, whatever becomes of rows and tablets meanwhile; a new reader goes on anywhere."""
    homes.insert({"id": range(0, 4000, 2), "v": range(2000)})
    homes.maintain("flush")
    homes.insert({"id": range(1, 4000, 2), "v": range(2000)})
    there = homes.delete({"id": range(100, 200)}).timestamp
    expected = homes.scan(as_of=there, ordered=True).to_arrow()["id"].to_pylist()
    reader, offset = stream(), {"timestamp": 0}
    sizes: list[int] = []
    found: list[int] = []
    while (end := reader.latestOffset(offset, limit)) != offset and end["timestamp"] == there:
        part = rows(reader, offset, end)
        assert all((row["_timestamp"], row["_op"]) == (there, "insert") for row in part)
        sizes.append(len(part))
        found += [row["id"] for row in part]
        offset = end
        if len(sizes) == 1:
            last = homes.upsert({"id": range(4100), "v": [-1] * 4100}).timestamp
            homes.maintain("flush")
            homes.maintain("compact")
            reader = stream()
    assert sorted(found) == expected and len(found) == len(set(found)), "each row once"
    assert offset == {"timestamp": there} and end == {"timestamp": last}, "then what has changed since"
    if isinstance(limit, ReadMaxRows):
        assert max(sizes) <= 2 * limit.max_rows and len(sizes) >= 3900 // (2 * limit.max_rows)
    else:
        assert len(sizes) > 5


def test_available_now_reads_up_to_what_was_there(homes: Table, stream: Stream) -> None:
    there = homes.insert({"id": [1], "v": [1]}).timestamp
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    homes.insert({"id": [2], "v": [1]})
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert end == {"timestamp": there} and reader.latestOffset(end, ALL) == end


def test_history_that_is_gone(homes: Table, stream: Stream) -> None:
    old = homes.insert({"id": [1, 2], "v": [1, 1]}).timestamp
    homes.upsert({"id": [1], "v": [2]})
    homes.maintain("flush")
    homes.alter().set_option("history_max_age_seconds", 1).apply()
    homes.upsert({"id": [1], "v": [3]})
    time.sleep(1.1)
    homes.maintain("flush_deltas")
    homes.maintain("gc")
    last = homes.upsert({"id": [2], "v": [9]}).timestamp
    start, end = {"timestamp": old}, {"timestamp": last}
    with pytest.raises(SnapshotTooOldError, match="failOnDataLoss=false"):
        stream().partitions(start, end)
    reader = stream(failOnDataLoss=False)
    for limit in (ALL, ReadMaxRows(1)):
        found = rows(reader, start, reader.latestOffset(start, limit))
        assert [(row["_timestamp"], row["id"]) for row in found][-1:] == [(last, 2)]


def test_columns_filter_and_values_before(homes: Table, stream: Stream) -> None:
    start = homes.insert({"id": [1, 2], "v": [1, 2]}).timestamp
    homes.upsert({"id": [1, 2], "v": [10, 20]})
    reader = stream(columns="id,v", filter="v = 10", beforeValues=True)
    end = reader.latestOffset({"timestamp": start}, ALL)
    (row,) = rows(reader, {"timestamp": start}, end)
    assert (row["_before_v"], row["v"]) == (1, 10)
    (first,) = rows(reader, {"timestamp": 0}, end)
    assert (first["_op"], first["_before_v"], first["v"]) == ("insert", None, 10)
