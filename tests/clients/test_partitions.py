"""Partitioned tables through the Python API, embedded and over Flight, and across a restart of the store."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table

SCHEMA = pa.schema([("host", pa.string()), ("time", pa.int64()), ("value", pa.float64()), ("note", pa.string())])
LEVELS = (nyala.hash("host", buckets=3), nyala.range("time", bounds=[(0, 10), (10, 20), (30, None)]))


def create(db: Database, **options) -> Table:
    return db.create_table("metrics", SCHEMA, ["host", "time"], partition_by=LEVELS, **options)


def rows(times: range, seed: int = 1) -> list[dict]:
    dice = random.Random(seed)
    return [{"host": f"h{dice.randrange(50)}", "time": time, "value": dice.random()} for time in times]


def by_key(found) -> dict:
    return {(row["host"], row["time"]): row["value"] for row in found}


def test_the_description_says_how_the_table_is_cut(db: Database) -> None:
    partitions = create(db).describe()["partitions"]
    assert partitions == [
        {"hash": ["host"], "buckets": 3, "seed": 0},
        {
            "range": ["time"],
            "bounds": [{"lower": [0], "upper": [10]}, {"lower": [10], "upper": [20]}, {"lower": [30], "upper": None}],
        },
    ]
    again = db.create_table("again", SCHEMA, ["host", "time"], partition_by=partitions)
    assert again.describe()["partitions"] == partitions
    tablets = again.stats()["tablets"]
    assert len(tablets) == 9 and tablets[0]["partition"] == {"lower": [0], "upper": [10], "buckets": [0]}


def test_rows_in_a_gap_are_refused_and_the_others_written(db: Database) -> None:
    table = create(db)
    sent = rows(range(-5, 40))
    with pytest.raises(nyala.RowErrors, match="NO_PARTITION") as caught:
        table.insert(sent)
    result = caught.value.result
    gaps = [at for at, row in enumerate(sent) if row["time"] < 0 or 20 <= row["time"] < 30]
    assert (result.applied, result.error_count) == (len(sent) - len(gaps), len(gaps))
    assert [error.row for error in result.errors] == gaps
    assert "(time)" in result.errors[0].message
    kept = [row for at, row in enumerate(sent) if at not in gaps]
    assert by_key(table.scan().to_arrow().to_pylist()) == by_key(kept)
    assert table.scan(where="time >= 20 AND time < 30").to_arrow().num_rows == 0
    assert table.scan(where="time >= 20 AND time < 30", ordered=True).count() == 0
    assert table.get((sent[0]["host"], -5)) is None
    with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
        table.delete({"host": ["h1", kept[0]["host"]], "time": [25, kept[0]["time"]]})
    assert table.get((kept[0]["host"], kept[0]["time"])) is None


def test_a_batch_over_many_tablets_is_one_commit(db: Database) -> None:
    table = create(db)
    first = table.upsert(rows(range(20)))
    second = table.upsert(rows(range(20), seed=1) + rows(range(30, 50), seed=2))
    stamps = set(table.changes(since=first.timestamp - 1, every=True).to_arrow()["_timestamp"].to_pylist())
    assert stamps == {first.timestamp, second.timestamp}
    assert table.scan(as_of=first.timestamp).count() == 20
    assert table.scan(as_of=second.timestamp).count() == 40


def test_an_atomic_batch_is_refused_whole_over_all_tablets(db: Database) -> None:
    table = create(db)
    table.insert(rows(range(3)))
    with pytest.raises(nyala.RowErrors) as caught:
        table.insert(rows(range(20)), atomic=True)
    assert caught.value.result.applied == 0 and table.scan().count() == 3
    with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
        table.upsert(rows(range(15, 25)), atomic=True)
    assert table.scan().count() == 3


def test_answers_stand_in_the_order_of_the_rows(db: Database) -> None:
    table = create(db)
    table.insert(rows(range(0, 20, 2)))
    result = table.insert(rows(range(20))[::-1], on_error="return")
    absent = by_key(rows(range(20))).keys() - by_key(rows(range(0, 20, 2))).keys()
    sent = [(row["host"], row["time"]) for row in rows(range(20))[::-1]]
    assert [error.row for error in result.errors] == [at for at, key in enumerate(sent) if key not in absent]
    assert {error.code for error in result.errors} <= {"ALREADY_PRESENT"}


def test_conditional_and_numbered_writes_go_over_all_tablets(db: Database) -> None:
    table = create(db)
    read = table.write(rows(range(20)), writer="loader", seq=0)
    again = table.write(rows(range(20)), writer="loader", seq=0)
    assert again.timestamp == read.timestamp and again.applied == 20
    some = rows(range(20))[:5]
    table.update([row | {"value": 0.0} for row in some])
    later = [row | {"value": 1.0} for row in rows(range(20))]
    result = table.write(later, "update", if_timestamp=read.timestamp, on_error="return")
    assert [(error.row, error.code) for error in result.errors] == [(at, "CONFLICT") for at in range(5)]
    assert result.applied == 15


@pytest.mark.parametrize("flushed", [False, True])
def test_an_ordered_scan_merges_the_tablets(db: Database, flushed: bool) -> None:
    table = create(db)
    sent = [row for seed in range(20) for row in rows(range(20), seed)]
    table.upsert(sent[:200])
    if flushed:
        table.maintain("flush")
    table.upsert(sent[100:])
    found = table.scan(ordered=True).to_arrow().to_pylist()
    assert [(row["host"], row["time"]) for row in found] == sorted(by_key(sent))
    assert table.scan(ordered=True, limit=7).to_arrow().to_pylist() == found[:7]
    assert by_key(found) == by_key(sent)


def test_ranges_that_lead_the_key_are_scanned_one_after_the_other(db: Database) -> None:
    table = db.create_table(
        "t",
        SCHEMA,
        ["host", "time"],
        partition_by=[nyala.range("host", splits=["h2", "h3", "h9"]), nyala.hash("time", buckets=2)],
    )
    sent = [row for seed in range(20) for row in rows(range(20), seed)]
    table.upsert(sent)
    found = [(row["host"], row["time"]) for row in table.scan(ordered=True).to_arrow().to_pylist()]
    assert found == sorted(by_key(sent))


def test_explain_shows_what_each_level_leaves(db: Database) -> None:
    table = create(db)
    table.upsert(rows(range(20)))
    told = table.scan(where="host = 'h1' AND time < 15").explain()
    assert (told["tablets"], told["tablets_to_read"]) == (9, 2)
    assert [(level["level"], level["tablets_left"]) for level in told["partition_levels"]] == [
        ("hash(host)", 3),
        ("range(time)", 6),
    ]
    assert "1 of 3 buckets" in told["partition_levels"][0]["why"]


def test_keys_that_are_looked_up_come_back_in_their_order(embedded: Database) -> None:
    table = create(embedded)
    table.upsert(rows(range(20)))
    asked = [*rows(range(20))[::-1], {"host": "h1", "time": 25}]
    keys = pa.RecordBatch.from_pylist([{"host": row["host"], "time": row["time"]} for row in asked])
    found = embedded._store.get("metrics", keys).to_pylist()
    assert [(row["host"], row["time"]) for row in found] == [(row["host"], row["time"]) for row in asked[:-1]]


def test_a_partitioned_table_survives_a_restart(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "data") as db:
        table = create(db)
        table.upsert(rows(range(20)))
        table.maintain("flush")
        table.upsert(rows(range(30, 40), seed=3))
        described, tablets = table.describe(), [each["partition"] for each in table.stats()["tablets"]]
    with nyala.open(tmp_path / "data") as db:
        table = db.table("metrics")
        assert table.describe() == described
        assert [each["partition"] for each in table.stats()["tablets"]] == tablets
        assert by_key(table.scan().to_arrow().to_pylist()) == by_key(rows(range(20)) + rows(range(30, 40), seed=3))
        table.delete([{"host": row["host"], "time": row["time"]} for row in rows(range(20))])
        assert table.scan(where="time < 20").count() == 0


def test_words_that_cannot_be_are_refused_on_both_sides(db: Database) -> None:
    with pytest.raises(nyala.InvalidArgumentError, match="'value' is not"):
        db.create_table("t", SCHEMA, ["host"], partition_by=[nyala.hash("value", buckets=2)])
    with pytest.raises(nyala.InvalidArgumentError, match="buckets"):
        db.create_table("t", SCHEMA, ["host"], partition_by=[{"hash": ["host"], "buckets": 1}])
    with pytest.raises(nyala.InvalidArgumentError, match="at most 10,000"):
        db.create_table("t", SCHEMA, ["host"], partition_by=[nyala.hash("host", buckets=20_000)])
    assert db.tables() == []
