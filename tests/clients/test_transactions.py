"""Transactions over tables and tablets, in this process and over Flight."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, RowErrors, UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.table.partition import hash as hash_by

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string()), ("n", pa.int32())])
Row = tuple[int, str | None, int | None]


def rows(*values: Row) -> pa.RecordBatch:
    arrays = [pa.array(cells, field.type) for cells, field in zip(zip(*values, strict=True), SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def made(db: Database, name: str = "t", buckets: int = 0) -> Table:
    return db.create_table(name, SCHEMA, ["k"], partition_by=[hash_by("k", buckets=buckets)] if buckets else [])


def read(table: Table, as_of: int | None = None) -> list[Row]:
    return [tuple(row.values()) for row in table.scan(ordered=True, as_of=as_of).to_arrow().to_pylist()]


def staged(db: Database, name: str, part: str, *batches: tuple[Operation | None, pa.RecordBatch]) -> int:
    command = WriteCommand(table="t", stage=Stage(transaction=name, part=part))
    return db._store.stage(command, [StagedBatch(batch, op) for op, batch in batches]).rows


def committed(db: Database, name: str, *parts: str, **more: Any) -> Any:
    return db._store.commit_transaction(TransactionCommit(transaction=name, parts=list(parts), **more))


@pytest.mark.parametrize("refusal", ["rows", "a table", "a condition"])
def test_a_refused_commit_leaves_nothing_staged(db: Database, refusal: str) -> None:
    made(db).insert(rows((1, "a", 1)))
    before = db.now()
    db.table("t").upsert(rows((1, "b", 1)))
    work = db.transaction(if_timestamp=before if refusal == "a condition" else None)
    with pytest.raises((RowErrors, NotFoundError, ConflictError)), work:
        work.insert("t", rows((1 if refusal == "rows" else 2, "c", 1)))
        work.upsert("t", rows((1, "c", 1)))
        if refusal == "a table":
            work.truncate("nowhere")
    assert db._store.staged_parts(work.id) == []


def test_a_commit_without_an_answer_can_be_repeated(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise UnavailableError("away")

    made(db)
    with monkeypatch.context() as patch, pytest.raises(UnavailableError), db.transaction() as work:
        work.insert("t", rows((1, "a", 1)))
        patch.setattr(type(db._store), "commit_transaction", away)
    assert work.commit().applied == 1


@pytest.mark.parametrize("buckets", [0, 3])
def test_everything_at_one_timestamp_or_nothing(db: Database, buckets: int) -> None:
    one, two = made(db, "one", buckets), made(db, "two", buckets)
    one.insert(rows((1, "a", 1), (2, "b", 2)))
    before = db.now()
    with db.transaction() as t:
        t.upsert("one", rows((2, "B", 20), (3, "c", 3)))
        t.delete(one, {"k": [1]})
        t.insert("two", rows(*((k, "x", k) for k in range(50))))
        t.update("two", {"k": [7], "n": [70]})
        assert read(one) == [(1, "a", 1), (2, "b", 2)] and read(two) == []
    assert t.result is not None and (t.result.rows, t.result.applied, t.result.ignored) == (54, 54, 0)
    at = t.result.timestamp
    assert read(one) == [(2, "B", 20), (3, "c", 3)] and len(read(two)) == 50
    assert read(two)[7] == (7, "x", 70)
    assert read(one, at - 1) == [(1, "a", 1), (2, "b", 2)] and read(two, at - 1) == []
    assert set(one.changes(before).to_arrow()["_timestamp"].to_pylist()) == {at}
    assert set(two.changes(before, every=True).to_arrow()["_timestamp"].to_pylist()) == {at}
    assert one.last_change() == two.last_change() == at


def test_nothing_is_left_when_the_body_raises(db: Database) -> None:
    table = made(db)
    with pytest.raises(ZeroDivisionError), db.transaction("lost") as t:
        t.insert(table, rows((1, "a", 1)))
        _ = 1 / 0
    assert read(table) == []
    with pytest.raises(NotFoundError, match="lost"):
        committed(db, "lost", "1")


def test_a_row_that_is_refused_refuses_all_and_says_where(db: Database) -> None:
    table, other = made(db), made(db, "other", 2)
    table.insert(rows((1, "a", 1)))
    with pytest.raises(RowErrors, match="ALREADY_PRESENT") as caught, db.transaction() as t:
        t.insert("other", rows((5, "e", 5)))
        t.insert("t", rows((2, "b", 2), (1, "A", 1)))
        t.delete("other", {"k": [99, 5]})
    result: Any = caught.value.result
    assert result.error_count == 2 and result.applied == 0
    found = {(error.part, error.table, error.row, error.code) for error in result.errors}
    assert found == {("2", "t", 1, "ALREADY_PRESENT"), ("3", "other", 0, "NOT_FOUND")}
    assert read(table) == [(1, "a", 1)] and read(other) == []


def test_a_row_that_no_table_may_hold_is_refused_with_its_position(db: Database) -> None:
    made(db)
    bad = pa.record_batch({"k": [1, None, 3], "v": ["a", "b", "c"]})
    assert staged(db, "T", "p", (None, rows((7, "g", 7))), (Operation.DELETE_IGNORE, rows((8, "h", 8)))) == 2
    assert (
        db._store.stage(WriteCommand(table="t", stage=Stage(transaction="T", part="q")), [StagedBatch(bad)]).rows == 3
    )
    result = committed(db, "T", "p", "q")
    assert [(error.part, error.row, error.code) for error in result.errors] == [("q", 1, "INVALID_ARGUMENT")]
    assert read(db.table("t")) == []
    assert committed(db, "T", "p").applied == 1, "a transaction that was refused can be committed otherwise"


def test_changes_of_one_key_come_in_their_order_and_to_one_change(db: Database) -> None:
    table = made(db)
    table.insert(rows((1, "a", 1), (2, "b", 2), (3, "c", 3)))
    before = db.now()
    up, drop, change, new = Operation.UPSERT, Operation.DELETE, Operation.UPDATE, Operation.INSERT
    staged(
        db,
        "T",
        "p",
        (up, rows((1, "x", 10), (4, "d", 4), (5, "e", 5))),
        (drop, rows((1, None, None), (5, None, None), (2, None, None))),
        (new, rows((2, "again", 22))),
        (up, rows((4, "y", 40))),
        (change, rows((2, "more", 23))),
        (drop, rows((3, None, None))),
        (new, rows((5, "back", 50))),
        (drop, rows((5, None, None))),
    )
    result = committed(db, "T", "p")
    assert (result.rows, result.applied, result.error_count) == (12, 12, 0)
    assert read(table) == [(2, "more", 23), (4, "y", 40)]
    feed = table.changes(before, every=True, ordered=True).to_arrow().to_pylist()
    assert [(row["_op"], row["k"]) for row in feed] == [("delete", 1), ("update", 2), ("delete", 3), ("insert", 4)]


def test_columns_of_several_parts_come_together(db: Database) -> None:
    table = made(db)
    table.insert(rows((1, "a", 1)))
    with db.transaction() as t:
        t.update(table, {"k": [1], "v": ["b"]})
        t.update(table, {"k": [1], "n": [2]})
        t.insert(table, {"k": [2], "n": [5]})
        t.upsert(table, {"k": [2], "v": ["z"]})
    assert read(table) == [(1, "b", 2), (2, "z", 5)]


@pytest.mark.parametrize("buckets", [0, 3])
def test_truncate_is_a_delete_of_all_rows_in_the_same_commit(db: Database, buckets: int) -> None:
    table = made(db, buckets=buckets)
    table.insert(rows(*((k, "old", k) for k in range(100))))
    table.maintain("flush")
    table.insert(rows(*((k, "mem", k) for k in range(100, 110))))
    table.delete({"k": list(range(20))})
    before, old = db.now(), read(table)
    with db.transaction() as t:
        t.truncate("t")
        t.insert("t", rows((30, "new", None), (500, "new", None), (5, "new", None)))
    assert t.result is not None and t.result.truncated == 90 and t.result.applied == 3
    new = [(5, "new", None), (30, "new", None), (500, "new", None)]
    for op in (None, "flush", "flush_deltas", "compact"):
        if op:
            table.maintain(op)
        assert read(table) == new and read(table, before) == old
        feed = table.changes(before).to_arrow()
        counts = {row["values"]: row["counts"] for row in feed["_op"].value_counts().to_pylist()}
        assert counts == {"delete": 89, "update": 1, "insert": 2}


def test_truncate_counts_rows_whose_keys_come_back(db: Database) -> None:
    table = made(db)
    table.insert(rows((1, "a", 1), (2, "b", 2), (3, "c", 3)))
    with db.transaction() as t:
        t.truncate("t")
        t.insert("t", rows((1, "a", 1), (2, "new", None), (3, "c", 3)))
        t.delete("t", {"k": [3]})
    assert t.result is not None and (t.result.truncated, t.result.applied) == (3, 4)
    assert read(table) == [(1, "a", 1), (2, "new", None)]


def test_truncate_alone_and_of_an_empty_table(db: Database) -> None:
    table, empty = made(db), made(db, "empty")
    table.insert(rows((1, "a", 1)))
    changed = empty.last_change()
    with db.transaction() as t:
        t.truncate(table)
        t.truncate(empty)
    assert read(table) == [] and t.result is not None and t.result.truncated == 1
    assert table.last_change() == t.result.timestamp and empty.last_change() == changed


def test_only_the_parts_that_are_named_count(db: Database) -> None:
    table = made(db)
    staged(db, "T", "first try", (None, rows((1, "lost", 1))))
    staged(db, "T", "second try", (None, rows((2, "won", 2))))
    staged(db, "T", "again", (None, rows((3, "old", 3))))
    staged(db, "T", "again", (None, rows((4, "new", 4))))
    assert committed(db, "T", "second try", "again").applied == 2
    assert read(table) == [(2, "won", 2), (4, "new", 4)]
    staged(db, "T", "late", (None, rows((5, "e", 5))))
    assert committed(db, "T", "late").applied == 2, "the first answer"
    assert len(read(table)) == 2


def test_a_version_of_an_application_is_committed_once(db: Database) -> None:
    table = made(db)
    for number, version, skipped in ((1, 5, False), (2, 5, True), (3, 4, True), (4, 6, False)):
        staged(db, f"T{number}", "p", (None, rows((number, "a", number))))
        assert committed(db, f"T{number}", "p", app_id="query", app_version=version).skipped is skipped
    assert [row[0] for row in read(table)] == [1, 4]
    with pytest.raises(InvalidArgumentError, match="together"):
        committed(db, "T5", app_id="query")


def test_what_makes_no_sense_is_refused(db: Database) -> None:
    made(db)
    with pytest.raises(NotFoundError, match="'x'"):
        committed(db, "T", "x")
    with pytest.raises(NotFoundError, match="'y'"):
        committed(db, "T", truncate=["y"])
    staged(db, "T", "p", (None, rows((1, "a", 1))))
    with pytest.raises(InvalidArgumentError, match="twice"):
        committed(db, "T", "p", "p")
    with pytest.raises(InvalidArgumentError, match="price"), db.transaction() as t:
        t.insert("t", {"k": [1], "price": [2]})
    with pytest.raises(InvalidArgumentError, match="blend"), db.transaction() as t:
        t.write("t", {"k": [1]}, "blend")
    with pytest.raises(InvalidArgumentError, match="at most 128"):
        db.transaction("x" * 129)
    wrongs: list[dict[str, Any]] = [{"writer": "w"}, {"atomic": True}, {"if_timestamp": 5}]
    for wrong in wrongs:
        command = WriteCommand(table="t", stage=Stage(transaction="T", part="w"), **wrong)
        with pytest.raises(InvalidArgumentError, match="cannot be combined with stage"):
            db._store.stage(command, [StagedBatch(rows((1, "a", 1)))])
    db.drop_table("t")
    with pytest.raises(NotFoundError, match="dropped"):
        committed(db, "T", "p")


def test_a_table_that_gets_the_name_of_another_is_not_taken_for_it(db: Database) -> None:
    """Neither by a part, nor by a truncation; the same table under its new name may have both."""
    old, new = made(db), made(db, "new")
    new.insert(rows((1, "new", 1)))
    old_id = db._store.describe_table("t").table_id

    def put(name: str, part: str) -> int:
        command = WriteCommand(table=name, stage=Stage(transaction="T", part=part, table_id=old_id))
        return db._store.stage(command, [StagedBatch(rows((5, part, 5)))]).rows

    assert put("t", "a") == 1
    old.alter().rename("old").apply()
    with pytest.raises(NotFoundError, match="'t'"):
        put("t", "b")
    new.alter().rename("t").apply()
    with pytest.raises(ConflictError, match="'t' was renamed or dropped during the request"):
        put("t", "b")
    with pytest.raises(ConflictError, match="'t' was renamed or dropped during the request"):
        committed(db, "T", "a", truncate=["t"], table_ids={"t": old_id})
    assert read(db.table("t")) == [(1, "new", 1)] and put("old", "b") == 1
    result = committed(db, "T", "a", "b", truncate=["old"], table_ids={"old": old_id})
    assert result.applied == 2 and read(db.table("old")) == [(5, "b", 5)]


def test_a_transaction_may_have_very_many_parts(db: Database) -> None:
    made(db)
    with pytest.raises(NotFoundError, match="has no part"):
        committed(db, "T", *(f"{number:0120}" for number in range(10_000)))


def test_a_table_that_is_altered_between_stage_and_commit(db: Database) -> None:
    table = made(db)
    staged(db, "T", "p", (None, rows((1, "a", 1))))
    table.alter().rename_column("n", "m").rename("other").apply()
    with pytest.raises(InvalidArgumentError, match=r"part 'p'.*'n'"):
        committed(db, "T", "p")
    table.alter().rename_column("m", "n").add_column("w", "int32", write_default=7).apply()
    assert committed(db, "T", "p").applied == 1
    assert db.table("other").get(1) == {"k": 1, "v": "a", "n": 1, "w": 7}


def test_commits_of_one_transaction_at_once_apply_it_once(db: Database) -> None:
    table = made(db)
    staged(db, "T", "p", (None, rows((1, "a", 1))))
    stamps: list[int] = []
    threads = [threading.Thread(target=lambda: stamps.append(committed(db, "T", "p").timestamp)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stamps) == 4 and len(set(stamps)) == 1 and len(read(table)) == 1


def test_a_key_that_the_store_numbers(db: Database) -> None:
    table = db.create_table(
        "log", pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())]), ["k"], unique_key=False
    )
    with db.transaction() as t:
        t.insert(table, {"k": [1, 1], "v": ["a", "b"]})
        t.insert(table, {"k": [1], "v": ["c"]})
    assert sorted(table.scan(["v"]).to_arrow()["v"].to_pylist()) == ["a", "b", "c"]


def test_memory_that_a_transaction_would_not_fit_in(make_store: Callable[..., Database]) -> None:
    db = make_store(transaction_bytes=20_000)
    table = made(db)
    table.insert(rows(*((k, "v", k) for k in range(2000))))
    with pytest.raises(InvalidArgumentError, match="transaction_bytes"), db.transaction() as t:
        t.update(table, rows(*((k, "w", k) for k in range(2000))))
    with pytest.raises(InvalidArgumentError, match="truncated"), db.transaction() as t:
        t.truncate(table)
    assert read(table)[0] == (0, "v", 0)
    db = make_store(memory_bytes=200_000)
    table = made(db)
    table.insert(rows(*((k, "v" * 20, k) for k in range(2000))))
    with pytest.raises(UnavailableError, match="flush"), db.transaction("T") as t:
        t.update(table, rows(*((k, "w" * 20, k) for k in range(2000))))


def swapped(db: Database) -> None:
    db.table("t").alter().rename("t_old").apply()
    db.table("t_new").alter().rename("t").apply()


def test_a_swapped_table_refuses_the_transaction(db: Database) -> None:
    old, new = made(db, "t"), made(db, "t_new")
    old.insert(rows((1, "old", 1)))
    new.insert(rows((1, "new", 1), (2, "new", 2)))
    replacing = db.transaction()
    replacing.truncate("t")
    replacing.insert("t", rows((7, "tx", 7)))
    two_parts = db.transaction()
    two_parts.insert("t", rows((8, "tx", 8)))
    swapped(db)
    with pytest.raises(ConflictError, match="another table has its name now"):
        replacing.commit()
    with pytest.raises(ConflictError, match="another table has its name now"):
        two_parts.insert("t", rows((9, "tx", 9)))
    for each in (replacing, two_parts):
        each.abort()
    assert read(db.table("t_old")) == [(1, "old", 1)] and read(db.table("t")) == [(1, "new", 1), (2, "new", 2)]


def test_a_table_of_several_servers_is_meant_by_its_name(embedded: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server has a number of its own for it. A server of version 0.1 tells of no store, and takes no number."""
    table, store = made(embedded), embedded._store
    about, asked = store.describe_table("t"), list[Any]()
    monkeypatch.setattr(
        store, "stage", lambda command, batches, act=store.stage: (asked.append(command), act(command, batches))[1]
    )
    commit = store.commit_transaction
    monkeypatch.setattr(store, "commit_transaction", lambda given: (asked.append(given), commit(given))[1])
    for stores in (about.stores * 2, []):
        monkeypatch.setattr(
            store, "describe_table", lambda _, stores=stores: about.model_copy(update={"stores": stores})
        )
        with embedded.transaction() as t:
            t.truncate(table)
            t.insert(table, rows((1, "a", 1)))
    commands, commits = asked[::2], asked[1::2]
    assert [command.stage.table_id for command in commands] == [None, None]
    assert [commit.table_ids for commit in commits] == [None, None]
    assert read(table) == [(1, "a", 1)]
