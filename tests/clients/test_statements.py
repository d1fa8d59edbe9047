"""Update and delete by condition, and restore: one commit each, right beside others who write."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, RowErrors, SnapshotTooOldError, StoreError
from tests.doubles.clock import ManualClock

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("n", pa.int32()),
        ("cents", pa.decimal128(9, 2)),
    ]
)
CITIES = ["Oslo", "Bergen", "Hamar"]


@pytest.fixture
def table(db: Database) -> Table:
    """Thirty rows in three tablets, some on disk, some in memory."""
    made = db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    for first in (0, 15):
        ids = list(range(first, first + 15))
        made.insert(
            {
                "id": ids,
                "city": [CITIES[number % 3] for number in ids],
                "price": [float(number) for number in ids],
                "n": [1] * 15,
                "cents": [Decimal("10.05")] * 15,
            }
        )
        if not first:
            made.maintain("flush")
    return made


def rows(table: Table, **how: Any) -> list[dict[str, Any]]:
    return table.scan(ordered=True, **how).to_arrow().to_pylist()


@pytest.mark.parametrize(
    "statement",
    [
        lambda table: table.update_where({"n": 2}, filter="id < 3"),
        lambda table: table.delete_where("id < 3", filters="id < 2"),
        lambda table: table.restore(1, dry_run=True),
    ],
)
def test_an_unknown_option_changes_nothing(table: Table, statement: Callable[[Table], object]) -> None:
    """A condition under another name is no condition: it would change all rows."""
    before = rows(table)
    with pytest.raises(TypeError, match=r"unexpected keyword argument '(filter|filters|dry_run)'.*`where`"):
        statement(table)
    assert rows(table) == before


def commits(table: Table, since: int) -> list[int]:
    return sorted(set(table.changes(since, every=True).to_arrow()["_timestamp"].to_pylist()))


def test_update_where_is_one_commit(db: Database, table: Table) -> None:
    before, moment = rows(table), db.now()
    result = table.update_where({"price": "price * 2 + n", "cents": "cents * 1.1"}, where="city = 'Oslo' and id >= 3")
    expected = [
        row | {"price": row["price"] * 2 + 1, "cents": Decimal("11.06")} if row["city"] == "Oslo" and row["id"] else row
        for row in before
    ]
    assert rows(table) == expected
    assert (result.rows, result.applied, result.error_count) == (9, 9, 0)
    assert commits(table, moment) == [result.timestamp] and rows(table, as_of=moment) == before


def test_all_expressions_see_the_row_as_it_was(table: Table) -> None:
    table.update_where({"price": "n", "n": "cast(price as int)"}, where="id = 7")
    assert [(row["price"], row["n"]) for row in rows(table, where="id = 7")] == [(1.0, 7)]


def test_plain_values_stand_for_themselves(table: Table) -> None:
    table.update_where({"city": None, "price": 1e-7, "n": 5, "cents": Decimal("1.50")}, where="id = 1")
    assert table.get(1) == {"id": 1, "city": None, "price": 1e-7, "n": 5, "cents": Decimal("1.50")}
    table.update_where({"city": "'O''Brien'"}, where="id = 1")
    assert table.get(1)["city"] == "O'Brien"  # pyright: ignore[reportOptionalSubscript]


PLAIN: list[tuple[str, Any, Any]] = [
    ("price", float("inf"), float("inf")),
    ("price", np.float64("-inf"), float("-inf")),
    ("price", float("nan"), float("nan")),
    ("price", -0.0, -0.0),
    ("price", 5e-324, 5e-324),
    ("price", np.float32(0.1), 0.10000000149011612),
    ("price", np.float64(0.1), 0.1),
    ("price", np.longdouble("0.5"), 0.5),
    ("price", 10**300, 1e300),
    ("price", Decimal("1E+200"), 1e200),
    ("price", Decimal("1E-400"), 0.0),
    ("n", np.int8(3), 3),
    ("n", np.uint64(3), 3),
    ("n", pa.scalar(4), 4),
    ("cents", Decimal("1E+2"), Decimal("100.00")),
    ("raw", b"\x00'", b"\x00'"),
    ("raw", bytearray(b"ab"), b"ab"),
    ("ok", np.bool_(True), True),
    ("at", np.datetime64("2024-05-31T12:00:00.000000", "ns"), dt.datetime(2024, 5, 31, 12)),
    ("at", np.datetime64("NaT"), None),
    ("day", np.datetime64("2024-05-31"), dt.date(2024, 5, 31)),
    ("day", pa.scalar(dt.date(2024, 5, 31)), dt.date(2024, 5, 31)),
]


@pytest.fixture(scope="module")
def plain() -> Iterator[Table]:
    schema = pa.schema(
        [*SCHEMA, ("raw", pa.binary()), ("ok", pa.bool_()), ("at", pa.timestamp("us")), ("day", pa.date32())]
    )
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        made = Database(store).create_table("plain", schema, ["id"])
        made.insert({"id": [1]})
        yield made


@pytest.mark.parametrize(
    ("column", "given", "stored"), PLAIN, ids=[f"{column} = {given!r}" for column, given, _ in PLAIN]
)
def test_values_of_python_and_numpy_are_set_as_they_are(plain: Table, column: str, given: Any, stored: Any) -> None:
    plain.update_where({column: given})
    row = plain.get(np.int64(1))
    assert row is not None and repr(row[column]) == repr(stored)


def test_values_that_no_column_has_are_refused(plain: Table) -> None:
    for value, why in [
        (10**400, "beyond 1e308"),
        (Decimal("NaN"), "not to a Decimal"),
        (dt.timedelta(1), "not to a timedelta"),
        (np.array([1]), "not to a ndarray"),
        (np.clongdouble(1), "not to a complex"),
        (np.datetime64(1, "ns"), "finer than a microsecond"),
    ]:
        with pytest.raises(InvalidArgumentError, match=why):
            plain.update_where({"price": value})


def test_keys_may_be_numpy_scalars(plain: Table) -> None:
    for key in (np.int64(1), np.int8(1), (np.int64(1),), {"id": np.uint8(1)}, pa.scalar(1)):
        assert plain.get(key) is not None
    assert plain.get_many([np.int64(1), np.int32(2)]).num_rows == 1
    with pytest.raises(InvalidArgumentError, match="a number of thousands of digits is not a valid int64"):
        plain.get(10**5_000)
    assert plain.count([("id", "in", [np.int64(1)])]) == 1


def test_decimals_become_the_nearest_doubles(table: Table) -> None:
    numbers = [0.3, 4.35, 6832.44, 49382715604.52, -1e-7]
    for number in numbers:
        table.update_where({"price": f"{number:.15f}", "cents": "4.35"}, where="id = 1")
        assert table.get(1)["price"] == number  # pyright: ignore[reportOptionalSubscript]
    for expression in ("cents", "cents + 0e0", "case when n > 99 then 1e0 else cents end", "cast(cents as double)"):
        table.update_where({"price": expression}, where="id = 1")
        assert table.get(1)["price"] == 4.35, expression  # pyright: ignore[reportOptionalSubscript]
    assert table.update_where({"n": "n"}, where="price = 4.35").rows == 1


def test_delete_where(db: Database, table: Table) -> None:
    moment = db.now()
    result = table.delete_where("city = 'Oslo'")
    assert (result.rows, result.applied) == (10, 10) and table.count() == 20 and table.count("city = 'Oslo'") == 0
    assert commits(table, moment) == [result.timestamp]
    assert table.delete_where("city = 'Oslo'").applied == 0
    with pytest.raises(InvalidArgumentError, match="where='true'"):
        table.delete_where(None)
    assert table.delete_where("true").applied == 20 and table.count() == 0


def test_restore_changes_only_what_differs(db: Database, table: Table) -> None:
    before, moment = rows(table), db.now()
    table.update_where({"price": "price + 1"}, where="id < 4")
    table.maintain("flush_deltas")
    table.delete_where("id >= 20")
    table.insert({"id": [100, 3_000], "city": ["new", None]})
    table.upsert({"id": [20], "city": ["again"]})
    table.update({"id": [9], "n": [2]})
    table.update({"id": [9], "n": [1]})  # as it was
    later, wrong = db.now(), rows(table)
    result = table.restore(moment)
    assert rows(table) == before
    assert result.applied == result.rows == 4 + 10 + 2
    assert commits(table, later) == [result.timestamp] and rows(table, as_of=later) == wrong
    assert table.restore(moment).applied == 0
    table.restore(later)
    assert rows(table) == wrong


def test_restore_shows_the_table_as_of_then_in_the_columns_of_now(db: Database, table: Table) -> None:
    moment = db.now()
    table.alter().add_column("since", "int32", read_default=5).drop_column("city").rename_column("n", "count").apply()
    table.update({"id": [1], "since": [7], "count": [9]})
    table.delete({"id": [2]})
    then = rows(table, as_of=moment)
    table.restore(moment)
    assert rows(table) == then and then[1]["since"] == 5


def test_restore_beyond_history_is_refused(db: Database, table: Table) -> None:
    with pytest.raises(SnapshotTooOldError):
        table.restore(1)
    with pytest.raises(InvalidArgumentError, match="future"):
        table.restore(db.now() << 1)


def test_cells_without_a_difference_are_left_alone(db: Database) -> None:
    made = db.create_table("floats", pa.schema([("id", pa.int64()), ("x", pa.float64()), ("s", pa.string())]), ["id"])
    made.insert({"id": [1, 2, 3], "x": [float("nan"), 0.0, None], "s": ["a", None, "c"]})
    moment = db.now()
    made.upsert({"id": [1, 2, 3], "x": [float("nan"), -0.0, None], "s": ["a", None, "c"]})
    assert made.restore(moment).applied == 1  # -0.0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a key column": ({"id": "id + 1"}, "part of the primary key"),
    "no such column": ({"zip": "1"}, "no column 'zip' to set; known: city"),
    "no such column in it": ({"n": "zip + 1"}, "no column 'zip'"),
    "text without quotes": ({"city": "Oslo"}, "single quotes, as in 'Oslo'"),
    "nothing": ({}, "set="),
    "bad SQL": ({"n": "n +"}, "'n': invalid expression at character 4, the end: expected a literal or a column"),
    "an overflow": ({"n": "n * 2147483647 * 2"}, "not in range"),
    "an overflow of 64 bits": ({"price": "(9223372036854775807 - n) * 9"}, "overflow"),
    "a fraction": ({"n": "n * 1.5"}, "'n \\* 1.5' cannot be computed as int32"),
    "too many digits": ({"cents": "cents * 100000000"}, "cents"),
    "division by zero": ({"price": "1 / (n - 1)"}, "division by zero; write NULLIF"),
    "text in a number": ({"n": "city"}, "CAST"),
    "a subquery": ({"n": "(select 1)"}, "not supported"),
    "an aggregate": ({"n": "max(n)"}, "not supported"),
    "a list": ({"n": [1]}, "not to a list"),
    "a long one": ({"n": "n" + " + 1" * 10_000}, "more than 10,000 parts"),
    "many long ones": ({"n": "n" + " + 1" * 6_000, "price": "n" + " + 1" * 6_000}, "set have more than 10,000 parts"),
    "a very long one": ({"n": "n" + " + 1" * 40_000}, "set has 160,002 characters; at most 131,072"),
    "a deep one": ({"n": "nullif(" * 1_000 + "n" + ", 1)" * 1_000}, "nested more than 100 levels"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_set_is_refused_and_nothing_changes(table: Table, case: tuple[dict[str, Any], str]) -> None:
    before = rows(table)
    with pytest.raises(InvalidArgumentError, match=case[1]) as refused:
        table.update_where(case[0])
    assert "\n" not in refused.value.message and rows(table) == before


def test_types_are_checked_where_no_row_matches(table: Table) -> None:
    with pytest.raises(InvalidArgumentError, match="CAST"):
        table.update_where({"n": "city"}, where="id < 0")


def test_a_row_that_is_refused_stops_all_and_names_its_key(db: Database) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int32(), nullable=False)])
    made = db.create_table("strict", schema, ["id"])
    made.insert({"id": [1, 2], "n": [0, 5]})
    with pytest.raises(RowErrors, match=r"'n' is NOT NULL, but the value is NULL; it has the key \(id=1\)"):
        made.update_where({"n": "nullif(n, 0) + 1"})
    assert rows(made) == [{"id": 1, "n": 0}, {"id": 2, "n": 5}]


def test_immutable_columns(db: Database) -> None:
    options = {"born": nyala.ColumnOptions(immutable=True)}
    schema = pa.schema([("id", pa.int64()), ("born", pa.int64()), ("n", pa.int64())])
    made = db.create_table("fixed", schema, ["id"], column_options=options)
    made.insert({"id": [1, 2], "born": [10, 20], "n": [0, 0]})
    with pytest.raises(InvalidArgumentError, match="immutable"):
        made.update_where({"born": "born + 1"})
    moment = db.now()
    made.delete({"id": [2]})
    made.update_where({"n": "born"})
    made.restore(moment)
    assert rows(made) == [{"id": 1, "born": 10, "n": 0}, {"id": 2, "born": 20, "n": 0}]


def test_numbered_statements_are_executed_once(db: Database, table: Table) -> None:
    first = table.update_where({"n": "n + 1"}, writer="nightly", seq=0)
    assert table.update_where({"n": "n + 1"}, writer="nightly", seq=0) == first
    assert {row["n"] for row in rows(table)} == {2}
    with pytest.raises(InvalidArgumentError, match="must be given together"):
        table.delete_where("true", seq=1)


def test_short_verbs_take_what_write_takes(db: Database, table: Table) -> None:
    first = table.upsert({"id": [1], "n": [7]}, writer="w", seq=3, durability="os")
    assert first.durability == "os"
    assert table.upsert({"id": [1], "n": [7]}, writer="w", seq=3, durability="os") == first
    moment = db.now()
    table.update({"id": [1], "n": [8]})
    assert table.delete_ignore({"id": [1, 2]}, if_timestamp=moment).ignored == 1
    assert table.get(1) is not None and table.get(2) is None


def test_head_count_and_get_many(table: Table) -> None:
    assert table.head(2)["id"].to_pylist() == [0, 1] and table.head().num_rows == 5
    assert table.count() == 30 and table.count("id < 3") == 3 and table.count([("city", "=", "Oslo")]) == 10
    assert table.get_many([(3,), (99,), (1,)])["id"].to_pylist() == [3, 1]
    assert table.get_many([{"id": 5}, 4])["id"].to_pylist() == [5, 4]
    assert table.get_many(pa.table({"id": [8, 2], "city": ["x", "y"]}).select(["id"]))["price"].to_pylist() == [
        8.0,
        2.0,
    ]
    assert table.get_many([]).schema.names == SCHEMA.names
    with pytest.raises(InvalidArgumentError, match="no column 'id', which is part of the primary key"):
        table.get_many({})


def test_keys_of_several_columns(db: Database) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.date32()), ("x", pa.int64())])
    made = db.create_table("pairs", schema, ["a", "b"], partition_by=[nyala.hash("a", buckets=2)])
    made.insert({"a": ["x", "x", "y"], "b": ["2026-01-01", "2026-01-02", "2026-01-01"], "x": [1, 2, 3]})
    before, moment = rows(made), db.now()
    made.update_where({"x": "x * 10"}, where="a = 'x'")
    made.delete_where("b = '2026-01-02'")
    assert [row["x"] for row in rows(made)] == [10, 3]
    made.restore(moment)
    assert rows(made) == before


def test_a_table_whose_key_is_not_unique(db: Database) -> None:
    made = db.create_table("readings", pa.schema([("s", pa.string()), ("x", pa.int64())]), ["s"], unique_key=False)
    made.insert({"s": ["a", "a", "b"], "x": [1, 2, 3]})
    before, moment = rows(made), db.now()
    made.update_where({"x": "x + auto_incrementing_id"}, where="s = 'a'")
    made.delete_where("x = 3")
    made.restore(moment)
    assert rows(made) == before


class Between:
    """Lets something else happen while a statement reads, between its scans."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], None]) -> None:
        self.scans = 0
        original = store._statements._scan

        def scan(*given: Any) -> Any:
            found = original(*given)
            batches = list(found.batches)
            self.scans += 1
            happens(self.scans)
            return type(found)(found.schema, found.snapshot, iter(batches))

        monkeypatch.setattr(store._statements, "_scan", scan)


def test_rows_that_change_meanwhile_are_read_again(
    store: Store, db: Database, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def happens(scan: int) -> None:
        if scan == 1:  # it has read all rows by now
            other = Database(store).table("homes")
            other.update({"id": [0], "n": [100]})
            other.update({"id": [3], "city": ["Bergen"]})  # matches no more
            other.update({"id": [1], "city": ["Oslo"]})  # matches now
            other.delete({"id": [6]})
            other.insert({"id": [99], "city": ["Oslo"], "n": [50]})

    Between(store, monkeypatch, happens)
    result = table.update_where({"n": "n + 1"}, where="city = 'Oslo'")
    found = {row["id"]: row["n"] for row in rows(table)}
    assert (found[0], found[3], found[1], found[99], found[9]) == (101, 1, 2, 51, 2) and 6 not in found
    assert result.applied == 10


def test_a_restore_undoes_what_happens_meanwhile(
    store: Store, db: Database, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, moment = rows(table), db.now()
    table.update_where({"n": "n + 1"}, where="id < 5")

    def happens(scan: int) -> None:
        if scan == 1:
            other = Database(store).table("homes")
            other.upsert({"id": [0, 20, 77], "n": [100, 100, 100]})
            other.delete({"id": [21]})
            other.update({"id": [3], "n": [1]})  # as it was

    Between(store, monkeypatch, happens)
    table.restore(moment)
    assert rows(table) == before


def test_an_alteration_meanwhile_starts_it_again(store: Store, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def happens(scan: int) -> None:
        if scan == 1:
            Database(store).table("homes").alter().add_column("more", "int32", read_default=1).apply()

    Between(store, monkeypatch, happens)
    assert table.update_where({"n": "n + 1"}).applied == 30
    assert {row["n"] for row in rows(table)} == {2}


def test_none_is_lost_among_many_who_update(db: Database, table: Table) -> None:
    errors: list[BaseException] = []

    def add(name: str) -> None:
        try:
            for _ in range(8):
                table.update_where({"n": "n + 1", "city": f"'{name}'"}, where="id < 10")
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        table.update({"id": [0, 5, 29], "price": [1.0, 2.0, 3.0]})
    for thread in threads:
        thread.join()
    assert not errors
    assert [row["n"] for row in rows(table)] == [33] * 10 + [1] * 20


def test_statements_survive_a_restart(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        made = db.create_table("t", data={"id": [1, 2, 3], "x": [1, 2, 3]}, primary_key=["id"])
        moment = db.now()
        first = made.update_where({"x": "x * 10"}, where="id > 1", writer="w", seq=0)
        made.delete_where("id = 1")
    with nyala.open(tmp_path / "store") as db:
        made = db.table("t")
        assert rows(made) == [{"id": 2, "x": 20}, {"id": 3, "x": 30}]
        assert made.update_where({"x": "x * 10"}, where="id > 1", writer="w", seq=0) == first
        made.restore(moment)
    with nyala.open(tmp_path / "store") as db:
        assert rows(db.table("t")) == [{"id": 1, "x": 1}, {"id": 2, "x": 2}, {"id": 3, "x": 3}]


def test_a_statement_too_large_for_a_commit_is_refused(make_store: Callable[..., Database]) -> None:
    db = make_store(limits={"batch_bytes": 10_000})
    made = db.create_table("t", pa.schema([("id", pa.int64()), ("x", pa.int64())]), ["id"])
    for first in range(0, 2_000, 500):
        made.insert({"id": list(range(first, first + 500))})
    with pytest.raises(InvalidArgumentError, match="split it into several"):
        made.update_where({"x": "id"})
    assert made.update_where({"x": "id"}, where="id < 500").applied == 500


def test_a_table_that_is_not_there(db: Database, table: Table) -> None:
    db.drop_table("homes")
    with pytest.raises(NotFoundError):
        table.update_where({"n": "1"})


def test_a_statement_may_take_longer_than_history_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"), clock)
    database = Database(store)
    made = database.create_table("t", SCHEMA, ["id"], history_max_age_seconds=1)
    made.insert({"id": range(10), "n": [1] * 10})
    made.maintain("flush")

    def happens(scan: int) -> None:
        if scan > 2:  # the last is under the locks
            return
        made.update({"id": [scan], "n": [100]})
        clock.advance(10_000_000)
        for op in ("flush_deltas", "major_compact", "gc"):
            made.maintain(op)

    Between(store, monkeypatch, happens)
    assert made.update_where({"n": "n + 1"}).applied == 10
    assert [row["n"] for row in rows(made)] == [2, 101, 101, 2, 2, 2, 2, 2, 2, 2]
    clock.advance(2_000_000)
    moment = database.now()
    made.delete_where("id = 3")
    assert made.restore(moment).applied
    assert made.get(3) == {"id": 3, "city": None, "price": None, "n": 2, "cents": None}
    monkeypatch.undo()
    clock.advance(10_000_000)
    with pytest.raises(SnapshotTooOldError):
        made.restore(moment)
    for op in ("flush_deltas", "major_compact", "gc"):
        made.maintain(op)
    assert not store._snapshots._held
    database.close()
