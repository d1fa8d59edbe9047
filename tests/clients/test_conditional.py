"""Writes under the condition that nobody changed the row since: embedded and over Flight, in memory and on disk."""

from __future__ import annotations

import datetime as dt
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.string())])


@pytest.fixture
def table(db: Database) -> Table:
    return db.create_table("t", SCHEMA, ["k"])


def write(table: Table, op: str, keys: list[int], since: Any = None, **cells: Any) -> tuple[int, int, list[str]]:
    data = [{"k": key, **cells} for key in keys]
    result = table.write(data, op, if_timestamp=since, on_error="return")
    return result.applied, result.ignored, [f"{error.row}: {error.code}" for error in result.errors]


@pytest.mark.parametrize("flushes", [(), ("flush",), ("flush", "flush_deltas")], ids=["memory", "base", "deltas"])
@pytest.mark.parametrize("change", ["update", "delete", "delete and insert", "insert"])
def test_a_row_that_changed_since_is_refused(table: Table, change: str, flushes: tuple[str, ...]) -> None:
    born = [2] if change == "insert" else [1, 2]
    table.insert([{"k": key, "v": 0, "w": "a"} for key in (*born, 3)])
    moment = table.upsert({"k": [9], "v": [0]}).timestamp
    if flushes:
        table.maintain("flush")
    if change == "update":
        table.update({"k": [1], "w": ["b"]})
    if "delete" in change:
        table.delete({"k": [1]})
    if "insert" in change:
        table.insert({"k": [1], "v": [5]})
    for op in flushes:
        table.maintain(op)
    later = table.upsert({"k": [9], "v": [1]}).timestamp
    assert write(table, "update", [1, 3], moment, v=7) == (1, 0, ["0: CONFLICT"])
    assert write(table, "update", [3], moment, v=8) == (0, 0, ["0: CONFLICT"])
    assert write(table, "upsert", [1, 2], moment, v=7) == (1, 0, ["0: CONFLICT"])
    assert write(table, "upsert_ignore", [1], moment, v=7) == (0, 1, [])
    assert write(table, "delete", [1], moment) == (0, 0, ["0: CONFLICT"])
    assert write(table, "insert", [1], moment, v=1) == (0, 0, ["0: CONFLICT"])
    if change != "delete":
        assert write(table, "update", [1], later, v=8) == (1, 0, [])


def test_a_row_that_was_never_there_has_not_changed(table: Table) -> None:
    moment = table.upsert({"k": [9], "v": [0]}).timestamp
    assert write(table, "insert", [1, 1], moment, v=1) == (1, 0, ["1: ALREADY_PRESENT"])
    assert write(table, "update", [5], moment, v=1) == (0, 0, ["0: NOT_FOUND"])


def test_any_row_in_conflict_refuses_an_atomic_batch(table: Table) -> None:
    moment = table.insert({"k": [1, 2], "v": [0, 0]}).timestamp
    table.update({"k": [2], "v": [1]})
    with pytest.raises(nyala.RowErrors, match="CONFLICT"):
        table.write({"k": [1, 2], "v": [5, 5]}, "update", atomic=True, if_timestamp=moment)
    assert table.get((1,)) == {"k": 1, "v": 0, "w": None}


def test_moments_out_of_reach_are_refused(table: Table) -> None:
    data = {"k": [1], "v": [1]}
    with pytest.raises(nyala.SnapshotTooOldError):
        table.write(data, if_timestamp=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(nyala.InvalidArgumentError, match="future"):
        table.write(data, if_timestamp=dt.datetime(2101, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(nyala.InvalidArgumentError, match="time zone"):
        table.write(data, if_timestamp=dt.datetime(2026, 1, 1))


def test_rows_that_were_read_change_only_if_nobody_came_first(db: Database, table: Table) -> None:
    table.insert({"k": [1], "v": [10]})
    moment = db.now()
    (row,) = table.scan(as_of=moment).to_arrow().to_pylist()
    assert table.write([{**row, "v": row["v"] + 1}], "update", if_timestamp=moment).applied == 1
    with pytest.raises(nyala.RowErrors, match="CONFLICT"):
        table.write([{**row, "v": row["v"] + 1}], "update", if_timestamp=moment)
    assert table.get((1,)) == {"k": 1, "v": 11, "w": None}


def test_random_histories_against_a_dict(embedded: Database) -> None:
    table = embedded.create_table("t", SCHEMA, ["k"])
    random = Random(5)
    last_change: dict[int, int] = {}
    lives: set[int] = set()
    moments = [embedded.now()]
    for _ in range(150):
        keys = random.sample(range(12), random.randint(1, 6))
        op, since = random.choice(["upsert", "delete", "insert", "update"]), random.choice([None, *moments[-6:]])
        data = [{"k": key} if op == "delete" else {"k": key, "v": random.randint(0, 9)} for key in keys]
        result = table.write(data, op, if_timestamp=since, on_error="return")
        codes = {error.row: error.code for error in result.errors}
        for row, key in enumerate(keys):
            late = since is not None and last_change.get(key, 0) > since
            wrong = {"insert": key in lives, "update": key not in lives, "delete": key not in lives}.get(op, False)
            word = "ALREADY_PRESENT" if op == "insert" else "NOT_FOUND"
            assert codes.get(row) == ("CONFLICT" if late else word if wrong else None)
            if row not in codes:
                last_change[key] = result.timestamp
                (lives.discard if op == "delete" else lives.add)(key)
        moments.append(result.timestamp)
        if random.random() < 0.2:
            table.maintain(random.choice(["flush", "flush_deltas"]))


@pytest.mark.parametrize("flushes", [(), ("flush",), ("flush", "flush_deltas")], ids=["memory", "base", "deltas"])
@pytest.mark.parametrize("buckets", [0, 3])
def test_a_transaction_is_refused_whole_if_one_of_its_rows_changed(
    db: Database, buckets: int, flushes: tuple[str, ...]
) -> None:
    """Also a row that it changes more than once, one that is new since, and one that is gone."""
    partitions = [nyala.hash("k", buckets=buckets)] if buckets else []
    table = db.create_table("t", SCHEMA, ["k"], partition_by=partitions)
    table.insert([{"k": key, "v": 0, "w": "a"} for key in range(1, 5)])
    moment = db.now()
    for op in flushes:
        table.maintain(op)
    changes: list[tuple[str, dict[str, Any]]] = [
        ("update", {"k": [1], "w": ["b"]}),
        ("delete", {"k": [2]}),
        ("insert", {"k": [9], "v": [9]}),
    ]
    for op, data in changes:
        table.write(data, op)
    for op in flushes:
        table.maintain(op)
    before = state(table)
    late: list[list[tuple[str, dict[str, Any]]]] = [
        [("update", {"k": [4, 1], "v": [7, 7]})],
        [("update", {"k": [4], "v": [7]}), ("delete", {"k": [1]})],
        [("delete", {"k": [1]}), ("insert", {"k": [1], "v": [7]})],
        [("upsert", {"k": [2], "v": [7]})],
        [("insert", {"k": [9], "v": [7]})],
        [("delete_ignore", {"k": [4, 2]})],
        [("insert_ignore", {"k": [9], "v": [7]}), ("update_ignore", {"k": [9], "v": [8]})],
    ]
    for writes in late:
        with pytest.raises(nyala.RowErrors, match="CONFLICT"), db.transaction(if_timestamp=moment) as t:
            for op, data in writes:
                t.write("t", data, op)
        assert state(table) == before
    with db.transaction(if_timestamp=moment) as t:
        t.delete_ignore("t", {"k": [4, 4]})
        t.insert("t", {"k": [4, 5], "v": [7, 7]})
        t.update("t", {"k": [3], "v": [7]})
    assert state(table) == before | {3: (7, "a"), 4: (7, None), 5: (7, None)}


def state(table: Table) -> dict[int, tuple[Any, ...]]:
    return {row["k"]: (row["v"], row["w"]) for row in table.scan().to_arrow().to_pylist()}


def test_moments_out_of_reach_are_refused_for_transactions(db: Database, table: Table) -> None:
    wrong = {"2001-01-01T00:00:00Z": nyala.SnapshotTooOldError, "2101-01-01T00:00:00Z": nyala.InvalidArgumentError}
    for moment, error in wrong.items():
        with pytest.raises(error), db.transaction(if_timestamp=moment) as t:
            t.insert("t", {"k": [1], "v": [1]})
    with pytest.raises(nyala.InvalidArgumentError, match="exclude"), db.transaction(if_timestamp=db.now()) as t:
        t.truncate("t")
    assert state(table) == {}
