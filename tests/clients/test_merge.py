"""Merges: values combined with those of live rows, by rules of the table or of a call, embedded and over Flight."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import backup, restore
from nyala.schemas.errors import InvalidArgumentError

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("views", pa.int64()),
        pa.field("best", pa.float64()),
        pa.field("log", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("note", pa.string()),
    ]
)
RULES = {"views": "sum", "best": "max", "log": "append", "tags": "append"}
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def make(db: Database, **options: Any) -> Table:
    columns = {name: nyala.ColumnOptions(merge=rule) for name, rule in RULES.items()}
    return db.create_table("t", SCHEMA, "k", column_options=columns, **options)


def row_of(table: Table, key: int, *names: str) -> tuple:
    row = table.get((key,))
    assert row is not None
    return tuple(row[name] for name in names)


def test_the_words_combine_values(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": 1, "best": 2.0, "log": "a", "tags": ["x"], "note": "old"}])
    result = table.merge([{"k": 1, "views": 5, "best": 1.0, "log": "b", "tags": [None, "y"], "note": "new"}])
    assert (result.rows, result.applied) == (1, 1)
    assert row_of(table, 1, *SCHEMA.names[1:]) == (6, 2.0, "ab", ["x", None, "y"], "new")


def test_null_leaves_the_other_value(db: Database) -> None:
    table = make(db)
    table.merge({"k": [1, 2], "views": [None, 3], "best": [None, 0.5], "log": ["a", None]})
    table.merge({"k": [1, 2], "views": [4, None], "best": [1.5, None], "log": [None, "b"]})
    assert row_of(table, 1, "views", "best", "log") == (4, 1.5, "a")
    assert row_of(table, 2, "views", "best", "log") == (3, 0.5, "b")


def test_columns_that_the_data_lacks_stay(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": 1, "best": 2.0, "note": "n"}])
    table.merge([{"k": 1, "views": 1}])
    assert row_of(table, 1, "views", "best", "note") == (2, 2.0, "n")


def test_rows_of_one_key_apply_one_after_the_other(db: Database) -> None:
    table = make(db)
    table.merge({"k": [1, 2, 1, 1], "views": [1, 10, 2, 3], "log": ["a", "-", "b", "c"], "note": ["1", "2", "3", None]})
    assert row_of(table, 1, "views", "log", "note") == (6, "abc", None)
    table.merge({"k": [1, 1, 2, 1], "log": ["d", "e", "-", "f"]}, rules={"log": "excluded.log || log"})
    assert row_of(table, 1, "log") == ("fedabc",)


@pytest.mark.parametrize("count", [2, 3, 1_000, 5_001])
def test_many_rows_of_one_key(embedded: Database, count: int) -> None:
    table = make(embedded)
    table.merge([{"k": 0, "views": 7, "log": ">"}])
    letters = [chr(97 + number % 26) for number in range(count)]
    table.merge({"k": [0] * count + [1] * count, "views": [1] * count * 2, "log": letters * 2})
    assert row_of(table, 0, "views", "log") == (7 + count, ">" + "".join(letters))
    assert row_of(table, 1, "views", "log") == (count, "".join(letters))


def test_too_many_rows_of_one_key_for_other_rules(embedded: Database) -> None:
    table = make(embedded)
    rules = {"views": "excluded.views - views"}
    few = table.merge({"k": [1] * 1_000, "views": [1] * 1_000}, rules=rules)
    assert few.applied == 1_000 and row_of(table, 1, "views") == (0,)
    many = table.merge({"k": [1] * 1_001 + [2], "views": [1] * 1_002}, rules=rules, on_error="return")
    assert (many.applied, many.error_count) == (1, 1_001) and "split the data" in many.errors[0].message
    assert row_of(table, 1, "views") == (0,)


def test_a_sum_of_parts_may_be_too_large_if_that_of_all_is_not(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": -10}])
    table.merge({"k": [1, 1], "views": [MOST, 5]})
    assert row_of(table, 1, "views") == (MOST - 5,)


def test_a_value_that_does_not_fit_refuses_the_rows_of_its_key(db: Database) -> None:
    table = make(db)
    table.merge({"k": [1, 2], "views": [MOST, 1]})
    result = table.merge({"k": [2, 1, 3, 1], "views": [1, 1, 1, 2]}, on_error="return")
    assert (result.applied, [(error.row, error.code) for error in result.errors]) == (
        2,
        [(1, "INVALID_ARGUMENT"), (3, "INVALID_ARGUMENT")],
    )
    assert "(k=1): the merge of column 'views': 'sum' cannot be computed as int64" in result.errors[0].message
    assert [row_of(table, key, "views")[0] for key in (1, 2, 3)] == [MOST, 2, 1]
    with pytest.raises(nyala.RowErrors, match="overflow"):
        table.merge({"k": [2, 1], "views": [1, 1]}, atomic=True)
    assert row_of(table, 2, "views") == (2,)


def test_too_many_values_that_do_not_fit_refuse_the_batch(db: Database) -> None:
    table = make(db)
    table.merge({"k": range(200), "views": [MOST] * 200})
    with pytest.raises(InvalidArgumentError, match="more than 100 rows cannot be written"):
        table.merge({"k": range(201), "views": [1] * 201})
    assert table.count() == 200


def test_text_that_gets_too_long_is_refused_not_cut(db: Database) -> None:
    options = {"s": nyala.ColumnOptions(type="varchar(3)", merge="append")}
    table = db.create_table("t", pa.schema([("k", pa.int64()), ("s", pa.string())]), "k", column_options=options)
    table.merge([{"k": 1, "s": "ab"}])
    with pytest.raises(nyala.RowErrors, match="more than 3 characters"):
        table.merge([{"k": 1, "s": "cd"}])
    assert row_of(table, 1, "s") == ("ab",)
    table.merge([{"k": 1, "s": "c"}])
    assert row_of(table, 1, "s") == ("abc",)


def test_null_in_a_not_null_column_is_refused(db: Database) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("n", pa.int64(), False)])
    table = db.create_table("t", schema, "k")
    table.merge([{"k": 1, "n": 4}])
    with pytest.raises(nyala.RowErrors, match="NOT NULL"):
        table.merge([{"k": 1, "n": 4}], rules={"n": "nullif(n, excluded.n)"})
    assert row_of(table, 1, "n") == (4,)


def test_rules_of_a_call_take_the_place_of_those_of_the_table(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": 3, "log": "a"}])
    table.merge([{"k": 1, "views": 4, "log": "b"}], rules={"views": "views * 10 + excluded.views"})
    assert row_of(table, 1, "views", "log") == (34, "b")
    table.merge([{"k": 1, "views": 5}], rules={})
    assert row_of(table, 1, "views") == (5,)


def test_a_rule_that_is_its_column_keeps_the_value(db: Database) -> None:
    table = make(db)
    rules = {"views": "views + excluded.views", "note": "note", "best": '"best"', "tags": "tags"}
    new = {"views": 1, "best": 1.0, "tags": ["x"], "note": "first"}
    table.merge([{"k": 1, **new}, {"k": 1, "views": 2, "best": 3.0, "tags": [], "note": "second"}], rules=rules)
    assert row_of(table, 1, *new) == (3, 1.0, ["x"], "first")
    later = [{"k": k, "views": 4, "best": 9.0, "tags": None, "note": "later"} for k in (1, 2, 1)]
    assert table.merge(later, rules=rules).applied == 3
    assert row_of(table, 1, *new) == (11, 1.0, ["x"], "first")
    assert row_of(table, 2, *new) == (4, 9.0, None, "later")


def test_a_merge_that_keeps_all_values_changes_nothing(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "note": "first"}])
    before = db.now()
    assert table.merge([{"k": 1, "note": "second"}], rules={"note": "note"}).applied == 1
    assert row_of(table, 1, "note") == ("first",)
    assert table.changes(before).to_arrow().num_rows == 0
    table.merge([{"k": 1, "note": "third"}, {"k": 2, "note": "new"}], rules={"note": "note", "views": "7"})
    assert row_of(table, 1, "note", "views") == ("first", 7)
    assert row_of(table, 2, "note", "views") == ("new", None)


def test_many_different_rules_of_calls(embedded: Database) -> None:
    table = make(embedded)
    table.merge([{"k": 1, "views": 0}])
    for number in range(200):
        table.merge([{"k": 1, "views": 1}], rules={"views": f"views + excluded.views * {number % 70}"})
    table.merge([{"k": 1, "views": 1}], rules={"views": f"views + {'0 + ' * 500}1"})
    table.alter().rename_column("views", "seen").apply()
    table.merge([{"k": 1, "seen": 1}], rules={"seen": "seen + excluded.seen"})
    assert row_of(table, 1, "seen") == (sum(number % 70 for number in range(200)) + 2,)


def test_a_rule_may_read_all_columns_of_both_rows(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": 3, "best": 1.5, "note": "a"}])
    rule = "CASE WHEN excluded.best > best THEN excluded.note || '!' ELSE note || cast(k AS text) END"
    table.merge([{"k": 1, "best": 2.0, "note": "b"}], rules={"note": rule, "best": "max"})
    assert row_of(table, 1, "note", "best") == ("b!", 2.0)
    table.merge([{"k": 1, "best": 0.0, "note": "c"}], rules={"note": rule, "best": "max"})
    assert row_of(table, 1, "note", "best") == ("b!1", 2.0)


def test_a_rule_without_columns_applies_to_every_merge(db: Database) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us"))])
    options = {"n": nyala.ColumnOptions(merge="sum"), "at": nyala.ColumnOptions(merge="now()")}
    table = db.create_table("t", schema, "k", column_options=options)
    table.merge([{"k": 1, "n": 1}])
    assert row_of(table, 1, "at") == (None,)
    before = dt.datetime.now(dt.UTC).replace(tzinfo=None) - dt.timedelta(seconds=1)
    table.merge([{"k": 1, "n": 1}])
    (at,) = row_of(table, 1, "at")
    assert before < at < before + dt.timedelta(minutes=5)
    table.merge([{"k": 1}])
    assert row_of(table, 1, "at")[0] > at


def test_other_operations_replace(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": 3}])
    table.upsert([{"k": 1, "views": 1}])
    assert row_of(table, 1, "views") == (1,)
    table.update([{"k": 1, "views": 2}])
    assert row_of(table, 1, "views") == (2,)
    table.delete({"k": [1]})
    table.merge([{"k": 1, "views": 5}])
    assert row_of(table, 1, "views") == (5,)


def test_changes_of_a_transaction_are_merged_in_order(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": 1, "log": "a"}])
    with db.transaction() as transaction:
        transaction.merge(table, {"k": [1, 2], "views": [2, 2], "log": ["b", "b"]})
        transaction.upsert(table, {"k": [1], "views": [100]})
        transaction.merge(table, {"k": [1, 2], "views": [1, 1], "log": ["c", "c"]})
        transaction.delete(table, {"k": [2]})
        transaction.merge(table, {"k": [2, 3], "views": [7, 7]})
    assert row_of(table, 1, "views", "log") == (101, "abc")
    assert row_of(table, 2, "views", "log") == (7, None)
    assert row_of(table, 3, "views") == (7,)


def test_a_transaction_with_a_value_that_does_not_fit_is_refused(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": MOST}])
    with pytest.raises(nyala.StoreError, match="'sum' cannot be computed"), db.transaction() as transaction:
        transaction.merge(table, {"k": [2, 1], "views": [1, 1]})
    assert table.count() == 1


def test_stale_rows_are_not_merged(db: Database) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.int64())])
    table = db.create_table("t", schema, "k", column_options={"n": {"merge": "sum"}}, order_by="at")
    table.merge({"k": [1, 1, 1], "n": [1, 10, 100], "at": [5, 4, 6]})
    result = table.merge({"k": [1, 1], "n": [1_000, 10_000], "at": [5, 6]})
    assert (result.applied, result.stale) == (1, 1)
    assert row_of(table, 1, "n", "at") == (10_101, 6)


def test_rows_in_conflict_are_not_merged(db: Database) -> None:
    table = make(db)
    before = table.merge({"k": [1, 2], "views": [1, 1]}).timestamp
    table.merge([{"k": 2, "views": 1}])
    result = table.merge({"k": [1, 2], "views": [1, 1]}, if_timestamp=before, on_error="return")
    assert [(error.row, error.code) for error in result.errors] == [(1, "CONFLICT")]
    assert (row_of(table, 1, "views"), row_of(table, 2, "views")) == ((2,), (2,))


def test_an_expired_row_is_not_merged(db: Database) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("until", pa.timestamp("us"))])
    table = db.create_table("t", schema, "k", column_options={"n": {"merge": "sum"}}, ttl=("until", "0s"))
    table.merge([{"k": 1, "n": 1, "until": dt.datetime(2020, 1, 1)}])
    table.merge([{"k": 1, "n": 5, "until": None}])
    assert row_of(table, 1, "n") == (5,)


def test_a_merge_with_a_number_counts_once(db: Database) -> None:
    table = make(db)
    first = table.merge({"k": [1, 1], "views": [1, 2]}, writer="w", seq=0)
    assert table.merge({"k": [1, 1], "views": [1, 2]}, writer="w", seq=0) == first
    assert row_of(table, 1, "views") == (3,)
    table.merge([{"k": 1, "views": 1}], writer="w", seq=1)
    table.merge([{"k": 1, "views": 1}], writer="w", seq=1)
    assert row_of(table, 1, "views") == (4,)


def test_writers_at_the_same_time_all_count(db: Database) -> None:
    table = make(db, partition_by=[nyala.hash("k", buckets=3)])

    def write(number: int) -> None:
        for turn in range(40):
            count = 1 if turn % 2 else 7
            table.merge({"k": [(number + n) % 5 for n in range(count)], "views": [1] * count, "log": ["x"] * count})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = table.scan().to_arrow()
    assert sum(rows["views"].to_pylist()) == 8 * 20 * 8
    assert [len(log) for log in rows["log"].to_pylist()] == rows["views"].to_pylist()


def test_merged_rows_survive_flushes_compactions_and_a_restart(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    expected: dict[int, int] = {}
    with nyala.open(tmp_path / "store", maintenance="off") as db:
        table = make(db)
        for turn in range(20):
            keys = random.integers(0, 50, 30)
            table.merge({"k": keys, "views": [turn] * 30})
            for key in keys.tolist():
                expected[key] = expected.get(key, 0) + turn
            if turn % 4 == 3:
                table.maintain(("flush", "flush_deltas", "major_compact", "compact", "flush")[turn // 4])
    with nyala.open(tmp_path / "store") as db:
        rows = db.table("t").scan(columns=["k", "views"]).to_arrow().to_pylist()
        assert {row["k"]: row["views"] for row in rows} == expected
        db.table("t").merge([{"k": 0, "views": 1_000}])
        assert row_of(db.table("t"), 0, "views") == (expected.get(0, 0) + 1_000,)


def test_the_change_feed_and_the_past_have_the_results(db: Database) -> None:
    table = make(db)
    first = table.merge([{"k": 1, "views": 1}]).timestamp
    table.merge({"k": [1, 1], "views": [2, 3]})
    feed = table.changes(first, columns=["views"], before=True).to_arrow().to_pylist()
    assert [(row["_op"], row["views"], row["_before_views"]) for row in feed] == [("update", 6, 1)]
    assert table.scan(as_of=first).to_arrow()["views"].to_pylist() == [1]


def test_rules_are_altered(db: Database) -> None:
    table = make(db)
    table.merge([{"k": 1, "views": 1, "log": "a"}])
    table.alter().set_merge("views", "max").set_merge("log", None).apply()
    table.merge([{"k": 1, "views": 0, "log": "b"}])
    assert row_of(table, 1, "views", "log") == (1, "b")
    table.alter().add_column("n", "int32", merge="sum").rename_column("views", "seen").apply()
    with pytest.raises(InvalidArgumentError, match="the merge of column 'x': there is no column 'best'"):
        table.alter().add_column("x", "double", merge="x + excluded.best").drop_column("best").apply()
    table.merge([{"k": 1, "n": 4}])
    table.merge([{"k": 1, "n": 4}])
    assert row_of(table, 1, "n", "seen") == (8, 1)


def test_rules_go_along_with_a_backup_and_a_copy(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        table = make(db)
        table.merge([{"k": 1, "views": 1}])
        backup(db, "t", tmp_path / "backup")
        table.merge([{"k": 1, "views": 10}])
        backup(db, "t", tmp_path / "backup")
        restore(db, tmp_path / "backup", "t", name="again")
        again = db.table("again")
        assert row_of(again, 1, "views") == (11,)
        again.merge([{"k": 1, "views": 5}])
        assert row_of(again, 1, "views") == (16,)


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (lambda table: table.merge({"k": [1]}, rules={"views": "sum"}), "needs excluded.views: the data has no such"),
        (lambda table: table.merge({"k": [1]}, rules={"nothing": "sum"}), "there is no column 'nothing'"),
        (lambda table: table.merge({"k": [1]}, rules={"k": "k + 1"}), "part of the primary key"),
        (lambda table: table.merge({"k": [1]}, rules={"views": "excluded"}), "as in excluded.views"),
        (lambda table: table.merge({"k": [1]}, rules={"views": "excluded.nothing"}), "there is no column 'nothing'"),
        (lambda table: table.merge({"k": [1]}, rules={"views": "views +"}), "the merge of column 'views': invalid"),
        (lambda table: table.merge({"k": [1]}, rules={"views": "'x'"}), "text cannot be stored as int64"),
        (lambda table: table.merge({"k": [1]}, rules={"views": "append"}), r"\|\| takes text"),
        (lambda table: table.merge({"k": [1]}, rules={"views": 3}), "rules"),
        (lambda table: table.merge({"k": [1]}, rules="sum"), "rules"),
        (lambda table: table.write({"k": [1]}, "upsert", rules={"views": "sum"}), "rules are for a merge"),
        (lambda table: table.alter().set_merge("k", "sum").apply(), "part of the primary key"),
        (lambda table: table.alter().add_column("excluded", "int8").apply(), "rename the column 'excluded'"),
        (lambda table: table.alter().add_column("i", "int8", immutable=True, merge="sum").apply(), "is immutable"),
        (lambda table: table.alter().set_merge("views", "x" * 5_000).apply(), "more than 4,096 bytes"),
    ],
)
def test_wrong_rules_are_refused(db: Database, attempt: Callable[[Table], object], why: str) -> None:
    table = make(db)
    with pytest.raises(InvalidArgumentError, match=why):
        attempt(table)
    assert table.count() == 0


def test_the_ordering_column_has_no_rule(db: Database) -> None:
    with pytest.raises(InvalidArgumentError, match="orders the changes"):
        db.create_table("t", SCHEMA, "k", column_options={"views": {"merge": "sum"}}, order_by="views")
    table = make(db)
    with pytest.raises(InvalidArgumentError, match="orders the changes"):
        table.alter().set_option("order_by", "views").apply()
