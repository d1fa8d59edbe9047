"""Rows that expire: embedded and over Flight, by every way to read and to write."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import apply_changes, backup, copy_table, restore
from nyala.schemas.errors import InvalidArgumentError

HOUR = timedelta(hours=1)
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("v", pa.string(), False),
        pa.field("w", pa.int64()),
        pa.field("at", pa.timestamp("us")),
    ]
)


def now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def make(db: Database, **options: Any) -> Table:
    """Make a table whose rows live two hours: one has half of it before it, one has expired, one has no end."""
    chosen: dict[str, Any] = {"ttl": ("at", "2h")} | options
    table = db.create_table("t", SCHEMA, "k", **chosen)
    table.insert({"k": [1, 2, 3], "v": ["new", "old", "ever"], "w": [1, 2, 3], "at": [now() - HOUR, old(), None]})
    return table


def old() -> datetime:
    return now() - 3 * HOUR


def keys_of(table: Table, **scan: Any) -> list[int]:
    return table.scan(ordered=True, **scan).to_arrow()["k"].to_pylist()


@pytest.mark.parametrize("is_flushed", [False, True], ids=["in memory", "in files"])
def test_no_way_to_read_shows_an_expired_row(db: Database, is_flushed: bool) -> None:
    table = make(db)
    if is_flushed:
        table.maintain("flush")
    assert keys_of(table) == [1, 3]
    assert table.count() == 2
    assert table.get((2,)) is None and table.get((1,)) is not None
    assert [row["k"] for row in table.get_many([(1,), (2,), (3,)]).to_pylist()] == [1, 3]
    assert keys_of(table, where="k = 2") == []
    assert keys_of(table, where="k IN (1, 2)") == [1]
    assert keys_of(table, where="k >= 2", limit=1) == [3]
    assert keys_of(table, where="k >= 1", limit=2, columns=["k"]) == [1, 3]
    assert keys_of(table, where="v = 'old'") == []
    assert table.scan().aggregate({"n": ("*", "count"), "top": ("w", "sum")}).to_pylist() == [{"n": 2, "top": 4}]
    assert table.scan(order_by="v", columns=["v"]).to_arrow()["v"].to_pylist() == ["ever", "new"]


@pytest.mark.parametrize("is_flushed", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("count", [1, 2, 100], ids=["one row", "two rows", "a batch"])
def test_an_expired_row_is_absent_for_writes(db: Database, is_flushed: bool, count: int) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl="at + 2h")
    keys = list(range(count))
    table.insert({"k": keys, "v": ["a"] * count, "w": keys, "at": [old()] * count})
    if is_flushed:
        table.maintain("flush")
    refused = table.update_ignore({"k": keys, "v": ["b"] * count})
    assert (refused.applied, refused.ignored) == (0, count)
    assert table.delete_ignore({"k": keys}).ignored == count
    written = table.insert({"k": keys, "v": ["c"] * count, "at": [now()] * count})
    assert (written.applied, written.error_count) == (count, 0)
    assert table.scan(ordered=True).to_arrow().drop_columns("at").to_pylist() == [
        {"k": key, "v": "c", "w": None} for key in keys
    ]
    assert table.insert_ignore({"k": keys, "v": ["d"] * count, "at": [now()] * count}).ignored == count
    assert table.upsert({"k": keys, "v": ["e"] * count, "at": [old()] * count}).applied == count
    assert table.count() == 0
    assert table.upsert({"k": keys, "v": ["f"] * count, "at": [None] * count}).applied == count
    assert set(table.scan().to_arrow()["w"].to_pylist()) == {None}


def test_an_expired_row_lacks_what_an_upsert_does_not_bring(db: Database) -> None:
    table = make(db)
    with pytest.raises(nyala.RowErrors, match="v"):
        table.upsert({"k": [2], "w": [5]})
    with pytest.raises(nyala.RowErrors):
        table.upsert([{"k": 2, "w": 5}])


def test_a_transaction_takes_expired_rows_for_absent(db: Database) -> None:
    table = make(db)
    with db.transaction() as transaction:
        transaction.write("t", {"k": [2], "v": ["again"], "w": [1], "at": [now()]}, "insert")
        transaction.write("t", {"k": [2], "w": [2]}, "update")
        transaction.write("t", {"k": [4], "v": ["four"], "w": [1], "at": [old()]}, "insert")
        transaction.write("t", {"k": [4]}, "delete")
    assert table.get((2,)) is not None and keys_of(table) == [1, 2, 3]
    with db.transaction() as transaction:
        transaction.truncate("t")
        transaction.write("t", {"k": [1], "v": ["only"], "w": [1], "at": [now()]}, "insert")
    assert keys_of(table) == [1]


def test_a_transaction_over_a_snapshot_goes_by_the_rows_of_the_snapshot(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl="at + 1s")
    table.insert({"k": [1, 2], "v": ["a", "a"], "at": [now(), now()]})
    seen = db.now()
    while table.count():
        pass
    with db.transaction(if_timestamp=seen) as transaction:
        transaction.update("t", {"k": [1], "v": ["b"]})
        transaction.delete("t", {"k": [2]})
    with pytest.raises(nyala.RowErrors, match="NOT_FOUND"), db.transaction() as transaction:
        transaction.update("t", {"k": [1], "v": ["b"]})
    assert table.count() == 0


def test_a_restore_brings_back_what_ended_since_unless_it_would_have_expired(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl="at + 2h")
    table.insert({"k": [1, 2, 3, 4], "v": ["a"] * 4, "at": [now(), now(), None, now()]})
    moment = table.insert({"k": [5], "v": ["a"], "at": [now() - 2 * HOUR + timedelta(seconds=1)]}).timestamp
    assert keys_of(table, as_of=moment) == [1, 2, 3, 4, 5]
    table.update({"k": [1], "at": [old()]})
    table.upsert({"k": [2], "v": ["b"], "at": [old()]})
    table.delete({"k": [4]})
    while table.get((5,)):
        pass
    assert table.restore(moment).applied == 3
    assert keys_of(table) == [1, 2, 3, 4]
    assert set(table.scan().to_arrow()["v"].to_pylist()) == {"a"}


def test_commits_that_end_rows_are_listed_and_ends_are_not(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl="at + 1s")
    begin = table.insert({"k": [1, 2, 3], "v": ["a"] * 3, "at": [now(), None, None]}).timestamp
    table.update({"k": [2], "at": [old()]})
    while table.get((1,)):
        pass
    table.delete({"k": [3]})
    ends = db.commits("t", begin)
    assert ends.select(["inserted", "updated", "deleted"]).to_pylist() == [
        {"inserted": 0, "updated": 1, "deleted": 0},
        {"inserted": 0, "updated": 0, "deleted": 1},
    ]


def test_statements_leave_expired_rows_alone(db: Database) -> None:
    table = make(db)
    assert table.update_where({"w": "w + 10"}, "w >= 1").applied == 2
    assert table.delete_where("k <= 2").applied == 1
    assert keys_of(table) == [3]


def test_the_feed_has_the_end_of_a_row(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl=("at", "1s"))
    begin = table.insert({"k": [0], "v": ["begin"], "at": [None]}).timestamp
    at = now()
    table.insert({"k": [1, 2], "v": ["a", "b"], "at": [at, at + HOUR]})
    table.upsert({"k": [3], "v": ["never seen"], "at": [old()]})
    end = int((at + timedelta(seconds=1) - datetime(1970, 1, 1)) / timedelta(microseconds=1)) << 12
    while table.get((1,)):
        pass
    every = table.changes(begin, every=True, ordered=True, columns=["k"]).to_arrow().to_pylist()
    assert [(row["_op"], row["k"]) for row in every] == [("insert", 1), ("expire", 1), ("insert", 2)]
    assert every[1]["_timestamp"] == end
    net = table.changes(every[0]["_timestamp"], before=True, columns=["k", "v"]).to_arrow().to_pylist()
    assert net == [{"_op": "expire", "_timestamp": end, "k": 1, "v": "a", "_before_k": 1, "_before_v": "a"}]
    assert db.commits("t", begin)["inserted"].to_pylist() == [2]


def test_a_date_ends_its_row_at_midnight_and_the_time_after_it(db: Database) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("day", pa.date32(), False)])
    table = db.create_table("t", schema, "k", ttl=("day", "1d"))
    today = datetime.now(UTC).date()
    table.insert({"k": [1, 2, 3], "day": [today, today - timedelta(days=1), date(1970, 1, 1)]})
    assert keys_of(table) in ([1], [])


def test_the_moment_may_be_in_the_key(db: Database) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us"), False), pa.field("k", pa.int64(), False)])
    table = db.create_table("t", schema, ["at", "k"], ttl=("at", "2h"))
    gone = old()
    table.insert({"at": [gone, now()], "k": [1, 2]})
    assert keys_of(table) == [2] and table.get((gone, 1)) is None
    assert table.insert({"at": [gone], "k": [1]}).applied == 1


def test_alter_sets_changes_and_ends_it(db: Database) -> None:
    table = make(db, ttl=None)
    assert keys_of(table) == [1, 2, 3]
    table.alter().set_option("ttl", ["at", "30m"]).apply()
    assert keys_of(table) == [3]
    table.alter().set_option("ttl", "at + 2h").apply()
    assert keys_of(table) == [1, 3]
    table.alter().rename_column("at", "moment").apply()
    assert db.table("t").describe()["options"]["ttl"] == "moment + 2h"
    with pytest.raises(InvalidArgumentError, match="set ttl to None first"):
        table.alter().drop_column("moment").apply()
    assert keys_of(table) == [1, 3]
    table.alter().set_option("ttl", None).drop_column("moment").apply()
    assert keys_of(table) == [1, 2, 3]


def test_a_time_alone_counts_from_the_last_write(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl="2h")
    assert table.scan().to_arrow().schema.names == [*SCHEMA.names, "written_at"]
    begin = now()
    for keys in ([1], [2, 3], [*range(4, 104)]):
        table.insert({"k": keys, "v": ["a"] * len(keys)})
    table.insert({"k": [200, 201], "v": ["a"] * 2, "written_at": [old(), None]})
    table.insert([{"k": 202, "v": "a", "written_at": None}, {"k": 203, "v": "a", "written_at": old()}])
    table.insert([{"k": 204, "v": "a", "written_at": None}])
    assert keys_of(table, where="k >= 200") == [201, 202, 204]
    written = table.scan().to_arrow()["written_at"].to_pylist()
    assert all(begin - timedelta(seconds=1) <= moment <= now() for moment in written)


def test_each_write_gives_a_row_its_whole_time_again(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl="2h")
    keys, early = [*range(8)], now() - HOUR
    table.insert({"k": keys, "v": ["a"] * 8, "written_at": [early] * 8})
    table.update({"k": [0], "w": [1]})
    table.update([{"k": 1, "w": 1}])
    table.upsert({"k": [2, 3], "v": ["b", "b"]})
    table.update_where({"w": 1}, "k = 4")
    with db.transaction() as transaction:
        transaction.update("t", {"k": [5], "w": [1]})
    table.update({"k": [6], "written_at": [early]})
    assert keys_of(table, where=[("written_at", ">", early)]) == [0, 1, 2, 3, 4, 5]


def test_the_column_of_the_last_write_belongs_to_the_store(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k", ttl="2h")
    for alteration in (table.alter().drop_column("written_at"), table.alter().rename_column("written_at", "w2")):
        with pytest.raises(InvalidArgumentError, match="set ttl to None first"):
            alteration.apply()
    other = db.create_table("other", SCHEMA, "k")
    other.insert({"k": [1], "v": ["a"]})
    with pytest.raises(InvalidArgumentError, match="first add it as a timestamp"):
        other.alter().set_option("ttl", "2h").apply()
    other.alter().add_column("written_at", "timestamp", read_default=old()).set_option("ttl", "2h").apply()
    assert keys_of(other) == []
    other.alter().set_option("ttl", "4h").apply()
    assert keys_of(other) == [1]
    other.alter().set_option("comment", "still from the last write").apply()
    assert other.update({"k": [1], "w": [1]}).applied == 1
    other.alter().set_option("ttl", "2h").apply()
    assert keys_of(other) == [1]


@pytest.mark.parametrize(
    "field",
    [pa.field("written_at", pa.date32()), pa.field("written_at", pa.timestamp("us"), False)],
    ids=["a date", "not null"],
)
def test_a_column_that_cannot_have_the_last_write_is_refused(db: Database, field: pa.Field) -> None:
    with pytest.raises(InvalidArgumentError, match="its column 'written_at' must be a timestamp, nullable"):
        db.create_table("t", SCHEMA.append(field), "k", ttl="1d")
    with pytest.raises(InvalidArgumentError, match="name it in ttl, as in 'written_at \\+ 1d'"):
        db.create_table(
            "t", SCHEMA.append(pa.field("written_at", pa.timestamp("us"))), "k", ttl="1d", order_by="written_at"
        )


def test_a_restore_keeps_rows_that_have_no_end(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k")
    table.insert({"k": [1], "v": ["a"]})
    table.alter().add_column("written_at", "timestamp").set_option("ttl", "1h").apply()
    moment = table.insert({"k": [2], "v": ["a"]}).timestamp
    table.delete({"k": [1]})
    table.restore(moment)
    row = table.get((1,))
    assert row is not None and row["written_at"] is None


def test_it_survives_a_restart(tmp_path: Path) -> None:
    with nyala.open(tmp_path) as db:
        make(db)
    with nyala.open(tmp_path) as db:
        assert keys_of(db.table("t")) == [1, 3]
        assert db.table("t").describe()["options"]["ttl"] == "at + 2h"


@pytest.mark.parametrize(
    ("ttl", "why"),
    [
        ("soon", "'soon' is not a time such as 90s"),
        (("at",), "is not a column and a time"),
        ("at +", "is not a time such as 90s"),
        (("at", "soon"), "'soon' is not a time such as 90s"),
        ("at + 1000000w", "at most 36,600 days"),
        (("w", "1d"), "'w', which has the type int64: use a timestamp or a date"),
        ("when + 1d", "there is no column 'when'"),
        (7, "ttl"),
        ("1 day", "'1 day' is not a time such as 90s"),
    ],
    ids=str,
)
def test_bad_times_are_refused(db: Database, ttl: Any, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        db.create_table("t", SCHEMA, "k", ttl=ttl)
    table = db.create_table("t", SCHEMA, "k")
    with pytest.raises(InvalidArgumentError, match=why):
        table.alter().set_option("ttl", list(ttl) if isinstance(ttl, tuple) else ttl).apply()


def test_backups_copies_and_their_tables_have_the_rows_that_live(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        table = make(db)
        backup(db, "t", tmp_path / "backup", executor="local")
        table.update({"k": [1], "at": [old()]})
        backup(db, "t", tmp_path / "backup", executor="local")
        assert keys_of(table) == [3]
        restore(db, tmp_path / "backup", "t", name="restored", executor="local")
        copy_table(db, db, "t", name="copied", executor="local")
        for name in ("restored", "copied"):
            assert keys_of(db.table(name)) == [3]
            assert db.table(name).describe()["options"]["ttl"] == "at + 2h"


def test_a_backup_after_another_time_is_a_full_one(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        table = make(db)
        backup(db, "t", tmp_path / "backup", executor="local")
        table.alter().set_option("ttl", "at + 9h").apply()
        table.upsert({"k": [1], "v": ["b"], "at": [now()]})
        again = backup(db, "t", tmp_path / "backup", executor="local")
        assert (again.kind, again.why_full) == ("full", "rows expire at other times than at the last backup")
        restore(db, tmp_path / "backup", "t", name="restored", executor="local")
        assert keys_of(db.table("restored")) == [1, 2, 3]


def test_a_file_of_changes_may_have_ends_of_rows(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", SCHEMA, "k")
        table.insert({"k": [1, 2], "v": ["a", "b"], "at": [None, None]})
        (tmp_path / "changes.json").write_text('{"_op": "expire", "k": 1}\n')
        apply_changes(db, "t", tmp_path / "changes.json")
        assert keys_of(table) == [2]
