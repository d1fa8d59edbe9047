"""Tables whose changes are ordered by a column: late and repeated changes, embedded and over Flight."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import apply_changes, backup, restore
from nyala.schemas.errors import InvalidArgumentError
from tests.dose import dose

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string(), False), pa.field("at", pa.int64())])
KEYS, EVENTS = 12, 80


def make(db: Database, **options: Any) -> Table:
    return db.create_table("t", SCHEMA, "k", order_by="at", **options)


def rows_of(table: Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.scan(ordered=True).to_arrow().to_pylist()]


def test_an_older_row_is_ignored_and_counted(db: Database) -> None:
    table = make(db)
    table.upsert({"k": [1, 2], "v": ["a", "a"], "at": [5, 5]})
    result = table.upsert({"k": [1, 2, 3], "v": ["b", "b", "b"], "at": [4, 5, 1]})
    assert (result.applied, result.stale, result.ignored, result.error_count) == (2, 1, 0, 0)
    assert table.upsert([{"k": 1, "v": "c", "at": 3}]).stale == 1
    assert table.update([{"k": 1, "v": "c", "at": 3}]).stale == 1
    assert table.insert([{"k": 1, "v": "c", "at": 3}]).stale == 1
    assert rows_of(table) == [(1, "a", 5), (2, "b", 5), (3, "b", 1)]


def test_rows_of_one_batch_are_ordered_too(db: Database) -> None:
    table = make(db)
    result = table.upsert({"k": [1] * 4, "v": ["a", "b", "c", "d"], "at": [2, 1, 3, 2]})
    assert (result.applied, result.stale) == (2, 2)
    assert rows_of(table) == [(1, "c", 3)]


def test_a_delete_leaves_its_value_behind(db: Database) -> None:
    table = make(db)
    table.insert({"k": [1], "v": ["a"], "at": [5]})
    assert table.delete({"k": [1], "at": [4]}).stale == 1
    assert table.delete({"k": [1], "at": [9]}).applied == 1
    assert table.upsert({"k": [1], "v": ["late"], "at": [8]}).stale == 1
    assert rows_of(table) == []
    assert table.upsert({"k": [1], "v": ["new"], "at": [9]}).applied == 1
    assert rows_of(table) == [(1, "new", 9)]


def test_a_delete_may_come_before_its_row(db: Database) -> None:
    table = make(db)
    since = db.now()
    assert table.delete({"k": [1, 2], "at": [9, 3]}).applied == 2
    assert table.upsert({"k": [1, 2], "v": ["late", "new"], "at": [8, 4]}).stale == 1
    assert rows_of(table) == [(2, "new", 4)]
    assert table.get((1,)) is None and table.count() == 1
    assert [(row["k"], row["_op"]) for row in table.changes(since, every=True).to_arrow().to_pylist()] == [
        (2, "insert")
    ]


def test_a_delete_without_a_value_keeps_that_of_the_row(db: Database) -> None:
    table = make(db)
    table.insert({"k": [1], "v": ["a"], "at": [5]})
    table.delete({"k": [1]})
    assert table.upsert({"k": [1], "v": ["late"], "at": [4]}).stale == 1
    with pytest.raises(nyala.RowErrors, match="NOT_FOUND"):
        table.delete({"k": [2]})


def test_null_is_before_every_value_and_no_value_of_a_delete(db: Database) -> None:
    table = make(db)
    table.upsert({"k": [1, 2], "v": ["a", "a"], "at": [None, 0]})
    assert table.upsert({"k": [1, 2], "v": ["b", "b"], "at": [None, None]}).stale == 1
    assert rows_of(table) == [(1, "b", None), (2, "a", 0)]
    with pytest.raises(nyala.RowErrors, match="a delete needs a value in 'at'"):
        table.delete({"k": [2], "at": pa.array([None], pa.int64())})


def test_an_update_without_the_column_applies(db: Database) -> None:
    table = make(db)
    table.insert({"k": [1], "v": ["a"], "at": [5]})
    assert table.update({"k": [1], "v": ["b"]}).applied == 1
    assert table.update_where(set={"v": "v || '!'"}).applied == 1
    assert table.update_where(set={"at": "at - 1"}).stale == 1
    assert rows_of(table) == [(1, "b!", 5)]
    with pytest.raises(InvalidArgumentError, match="no column 'at', which orders the changes of each row: upsert"):
        table.upsert({"k": [1], "v": ["c"]})
    with pytest.raises(InvalidArgumentError, match="takes only the key columns and 'at', not 'v'"):
        table.delete({"k": [1], "v": ["c"]})


def test_a_transaction_is_ordered_as_its_writes_one_by_one(db: Database) -> None:
    table = make(db)
    table.upsert({"k": [1, 2], "v": ["a", "a"], "at": [5, 5]})
    with db.transaction() as transaction:
        transaction.delete("t", {"k": [1, 2], "at": [4, 7]})
        transaction.upsert("t", {"k": [1, 2, 3], "v": ["b", "b", "b"], "at": [6, 6, 6]})
        transaction.delete("t", {"k": [3], "at": [9]})
    assert transaction.result is not None
    assert (transaction.result.applied, transaction.result.stale) == (4, 2)
    assert table.upsert({"k": [1, 2, 3], "v": ["c", "c", "c"], "at": [6, 6, 8]}).stale == 2
    assert rows_of(table) == [(1, "c", 6)]


def test_restore_brings_back_what_is_older(db: Database) -> None:
    table = make(db)
    table.upsert({"k": [1, 2], "v": ["a", "a"], "at": [5, 5]})
    before = db.now()
    table.upsert({"k": [1], "v": ["b"], "at": [6]})
    table.delete({"k": [2], "at": [7]})
    assert table.restore(as_of=before).applied == 2
    assert rows_of(table) == [(1, "a", 5), (2, "a", 5)]


def test_an_alteration_sets_renames_and_ends_the_order(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k")
    table.insert({"k": [1], "v": ["a"], "at": [5]})
    table.alter().set_option("order_by", "at").apply()
    assert table.upsert({"k": [1], "v": ["b"], "at": [4]}).stale == 1
    table.alter().rename_column("at", "moment").apply()
    assert db.table("t").describe()["options"]["order_by"] == "moment"
    with pytest.raises(InvalidArgumentError, match="column 'moment' orders the changes"):
        table.alter().drop_column("moment").apply()
    assert table.upsert({"k": [1], "v": ["b"], "moment": [4]}).stale == 1
    table.alter().set_option("order_by", None).apply()
    assert table.upsert({"k": [1], "v": ["b"], "moment": [4]}).applied == 1
    table.alter().drop_column("moment").apply()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "there is no column 'nowhere'"),
        ("k", "a column of the key is the same in all changes"),
        ("share", "has the type double"),
        ("born", "an immutable column is the same in all changes"),
    ],
)
def test_a_column_without_an_order_is_refused(db: Database, name: str, why: str) -> None:
    schema = SCHEMA.append(pa.field("share", pa.float64())).append(pa.field("born", pa.int64()))
    options = {"born": nyala.ColumnOptions(immutable=True)}
    with pytest.raises(InvalidArgumentError, match=why):
        db.create_table("t", schema, "k", column_options=options, order_by=name)
    table = db.create_table("t", schema, "k", column_options=options)
    with pytest.raises(InvalidArgumentError, match=why):
        table.alter().set_option("order_by", name).apply()


def events_of(seed: int) -> list[tuple[int, int, bool]]:
    """Return a log of changes: key, place in the order, whether the row is deleted; in a random order."""
    chance = random.Random(seed)
    events = [(chance.randrange(KEYS), at, chance.random() < 0.3) for at in range(EVENTS)]
    chance.shuffle(events)
    return events


def newest(events: list[tuple[int, int, bool]]) -> list[tuple]:
    """Return the rows that the log leaves in its own order."""
    last = {key: (at, is_deleted) for key, at, is_deleted in sorted(events, key=lambda event: event[1])}
    return [(key, f"v{at}", at) for key, (at, is_deleted) in sorted(last.items()) if not is_deleted]


def change(table: Table, events: list[tuple[int, int, bool]]) -> None:
    for key, at, is_deleted in events:
        if is_deleted:
            table.delete([{"k": key, "at": at}])
        else:
            table.upsert([{"k": key, "v": f"v{at}", "at": at}])


@pytest.mark.parametrize("seed", range(dose(4, 100)))
def test_any_order_of_a_log_ends_as_the_sorted_log(tmp_path: Path, seed: int) -> None:
    events, chance = events_of(seed), random.Random(seed)
    expected, at = newest(events), 0
    while at < len(events):
        with nyala.open(tmp_path / "data", maintenance="off") as db:
            table = db.table("t") if at else make(db)
            for _ in range(chance.randrange(1, 5)):
                few = events[at : at + chance.randrange(1, 12)]
                at += len(few)
                change(table, few)
                table.maintain(chance.choice(["flush", "flush_deltas", "compact", "major_compact", "gc"]))
    with nyala.open(tmp_path / "data") as db:
        assert rows_of(db.table("t")) == expected


def test_eight_writers_end_as_the_sorted_log(db: Database) -> None:
    table, events = make(db), events_of(7)
    writers = [threading.Thread(target=change, args=(table, events[number::8])) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert rows_of(table) == newest(events)


def test_an_incremental_backup_of_lower_values_is_restored(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "data") as db, nyala.open(tmp_path / "other") as other:
        table = make(db)
        table.upsert({"k": [1, 2], "v": ["a", "a"], "at": [5, 5]})
        before = db.now()
        table.upsert({"k": [1, 2], "v": ["b", "b"], "at": [9, 9]})
        backup(db, "t", tmp_path / "backups")
        table.restore(before)
        backup(db, "t", tmp_path / "backups")
        restore(other, tmp_path / "backups", "t")
        assert rows_of(other.table("t")) == [(1, "a", 5), (2, "a", 5)]
        assert other.table("t").upsert({"k": [1], "v": ["late"], "at": [4]}).stale == 1


def test_files_of_changes_are_applied_in_the_order_of_the_table(tmp_path: Path) -> None:
    files = [tmp_path / "first.csv", tmp_path / "second.csv"]
    files[0].write_text("_op,k,v,at\nd,1,,4\nd,3,,7\nu,3,late,6\nd,40,,8\n")
    files[1].write_text("_op,k,v,at\nu,40,late,7\n")
    with nyala.open(tmp_path / "data") as db:
        make(db).upsert({"k": [1], "v": ["a"], "at": [5]})
        result = apply_changes(db, "t", [str(file) for file in files])
        assert (result.applied, result.stale) == (2, 2)
        assert rows_of(db.table("t")) == [(1, "a", 5)]


def test_an_import_counts_what_is_stale(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "data") as db:
        table = make(db)
        table.upsert({"k": [1], "v": ["a"], "at": [5]})
        table.delete({"k": [2], "at": [9]})
        result = table.bulk_import({"k": [1, 2, 3], "v": ["b", "b", "b"], "at": [1, 1, 1]}, mode="upsert")
        assert (result.rows, result.applied, result.stale) == (3, 1, 2)
        assert rows_of(table) == [(1, "a", 5), (3, "b", 1)]


def test_a_quota_of_bytes_refuses_no_delete(db: Database) -> None:
    table = make(db)
    table.upsert({"k": [1, 2], "v": ["a", "a"], "at": [5, 5]})
    table.alter().set_option("max_bytes", 1).apply()
    assert table.delete({"k": [1, 3], "at": [9, 9]}).applied == 2
    assert table.delete([{"k": 2, "at": 9}]).applied == 1


def test_sql_does_not_count_what_is_stale(db: Database) -> None:
    make(db).upsert({"k": [1], "v": ["a"], "at": [5]})
    assert db.sql("INSERT INTO t VALUES (1, 'b', 4), (2, 'b', 4)").changed == 1
    assert db.sql("UPDATE t SET at = at - 1").changed == 0
    conflict = "ON CONFLICT (k) DO UPDATE SET v = excluded.v, at = excluded.at"
    assert db.sql(f"INSERT INTO t VALUES (1, 'b', 4), (2, 'c', 5) {conflict}").changed == 1
    assert rows_of(db.table("t")) == [(1, "a", 5), (2, "c", 5)]
