"""Text that is longer than its varchar column: it is cut, and counted on every way into the store, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.jobs import apply_changes, load
from nyala.schemas.rows.transaction import TransactionCommit

SCHEMA = pa.schema([("id", pa.int64()), ("short", pa.string()), ("name", pa.string()), ("other", pa.string())])
LONG = {"id": [1, 2, 3], "short": ["abcdefgh", "ab", "\U0001f98c" * 6], "name": [None, "a" * 9, "n"]}
"""Three cells are too long: of 5 characters, whatever their bytes, and of 8."""
CUT = [(1, "abcde", None), (2, "ab", "a" * 8), (3, "\U0001f98c" * 5, "n")]


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """On disk, since imports build files there."""
    with Store.open(home, StoreOptions(maintenance="off")) as opened:
        yield opened


def make(db: Database, too_long: str | None = None, name: str = "t") -> Table:
    options = {
        "short": nyala.ColumnOptions(type="varchar(5)", too_long=too_long),  # pyright: ignore[reportArgumentType]
        "name": {"type": "varchar(8)", "too_long": too_long},
    }
    return db.create_table(name, SCHEMA, ["id"], [nyala.hash("id", buckets=2)], column_options=options)


def one_by_one(table: Table, data: dict[str, list[Any]]) -> int:
    rows = pa.table(data).to_pylist()
    return sum(table.upsert([row]).truncated for row in rows)


def many(table: Table, data: dict[str, list[Any]]) -> int:
    more = {**{name: cells * 1 for name, cells in data.items()}}
    more["id"] += range(10, 3_000)
    more["short"] += ["x"] * 2_990
    more["name"] += ["x"] * 2_990
    truncated = table.insert(more).truncated
    table.delete_where("id >= 10")
    return truncated


def numbered(table: Table, data: dict[str, list[Any]]) -> int:
    """The same answer again, where the store has forgotten the rows."""
    first, again = (table.upsert(data, writer="w", seq=7) for _ in range(2))
    assert first == again
    return again.truncated


def transaction(db: Database, table: Table, data: dict[str, list[Any]]) -> int:
    with db.transaction() as work:
        work.upsert(table, data)
    assert work.result is not None
    return work.result.cells_truncated


def repeated(db: Database, table: Table, data: dict[str, list[Any]]) -> int:
    """Keys that come twice in a transaction go another way."""
    with db.transaction() as work:
        work.insert(table, {"id": data["id"]})
        work.update(table, data)
    assert work.result is not None
    return work.result.cells_truncated


def statement(table: Table, data: dict[str, list[Any]]) -> int:
    table.upsert({"id": data["id"], "other": [None] * len(data["id"])})
    truncated = 0
    for row, name in ((row, name) for row in range(3) for name in ("short", "name")):
        cell = data[name][row]
        text = "NULL" if cell is None else f"'{cell}'"
        truncated += table.update_where({name: text}, f"id = {row + 1}").truncated
    return truncated


def files(db: Database, table: Table, data: dict[str, list[Any]], folder: Path) -> int:
    pq.write_table(pa.table(data), folder / "rows.parquet")
    return load(db, table.name, folder / "rows.parquet").truncated


def atomic_files(db: Database, table: Table, data: dict[str, list[Any]], folder: Path) -> int:
    pq.write_table(pa.table(data), folder / "whole.parquet")
    return load(db, table.name, folder / "whole.parquet", atomic=True).truncated


def changes(db: Database, table: Table, data: dict[str, list[Any]], folder: Path) -> int:
    pq.write_table(pa.table({**data, "_op": ["insert"] * 3}), folder / "changes.parquet")
    return apply_changes(db, table.name, folder / "changes.parquet").truncated


WAYS: dict[str, Callable[[Database, Table, dict[str, list[Any]], Path], int]] = {
    "rows as dicts": lambda db, table, data, folder: table.upsert(pa.table(data).to_pylist()).truncated,
    "rows one by one": lambda db, table, data, folder: one_by_one(table, data),
    "a batch": lambda db, table, data, folder: table.insert(pa.table(data)).truncated,
    "an atomic batch": lambda db, table, data, folder: table.insert(pa.table(data), atomic=True).truncated,
    "many rows": lambda db, table, data, folder: many(table, {name: list(cells) for name, cells in data.items()}),
    "a dictionary": lambda db, table, data, folder: (
        table.upsert({name: pa.array(cells).dictionary_encode() for name, cells in data.items()}).truncated
    ),
    "a number that comes again": lambda db, table, data, folder: numbered(table, data),
    "a transaction": lambda db, table, data, folder: transaction(db, table, data),
    "keys that come twice": lambda db, table, data, folder: repeated(db, table, data),
    "statements": lambda db, table, data, folder: statement(table, data),
    "a load": lambda db, table, data, folder: files(db, table, data, folder),
    "an atomic load": lambda db, table, data, folder: atomic_files(db, table, data, folder),
    "changes": lambda db, table, data, folder: changes(db, table, data, folder),
    "an import": lambda db, table, data, folder: (
        table.bulk_import(pa.table(data), directory=folder / "store").truncated
    ),
}


def state(table: Table) -> list[tuple[Any, ...]]:
    rows = table.scan(["id", "short", "name"], ordered=True).to_arrow().to_pylist()
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("way", WAYS)
def test_cells_that_were_cut_are_counted(db: Database, tmp_path: Path, way: str) -> None:
    table = make(db)
    assert WAYS[way](db, table, LONG, tmp_path) == 3
    assert state(table) == CUT
    other = make(db, name="fitting")
    fitting = {"id": [1, 2, 3], "short": ["abcde"] * 3, "name": ["abcdefgh"] * 3}
    assert WAYS[way](db, other, fitting, tmp_path) == 0


@pytest.mark.parametrize("way", [way for way in WAYS if "load" not in way])
def test_a_column_refuses_what_is_too_long(db: Database, tmp_path: Path, way: str) -> None:
    table = make(db, "error")
    with pytest.raises(nyala.StoreError, match=r"column '(short|name)' has more than [58] characters") as caught:
        WAYS[way](db, table, LONG, tmp_path)
    result = getattr(caught.value, "result", None)
    if result is not None:
        assert {error.code for error in result.errors} == {"INVALID_ARGUMENT"} and not result.truncated
    assert all(len(short or "") <= 5 and len(name or "") <= 8 for _, short, name in state(table))


def test_a_load_lists_the_rows_that_a_column_refuses(db: Database, tmp_path: Path) -> None:
    table = make(db, "error")
    pq.write_table(pa.table({**LONG, "other": ["x"] * 3}), tmp_path / "rows.parquet")
    made = load(db, "t", tmp_path / "rows.parquet")
    assert (made.error_count, made.applied, made.truncated) == (3, 0, 0)
    assert made.errors[0].message == "the cell of column 'short' has more than 5 characters"
    assert not state(table)


def test_only_cells_of_applied_rows_count(db: Database) -> None:
    table = make(db)
    table.insert({"id": [1], "short": ["old"]})
    assert table.insert_ignore(LONG).truncated == 2
    refused = table.insert({"id": [1, 7], "short": ["abcdefgh"] * 2}, on_error="return")
    assert (refused.applied, refused.error_count, refused.truncated) == (1, 1, 1)
    assert table.insert({"id": [1, 8], "short": ["abcdefgh"] * 2}, on_error="return", atomic=True).truncated == 0
    with db.transaction() as work:
        work.insert_ignore(table, {"id": [1, 9], "short": ["abcdefgh"] * 2})
    assert work.result is not None and work.result.cells_truncated == 1
    with db.transaction() as work:
        work.truncate(table)
        work.insert(table, {"id": [1], "short": ["abcdefgh"]})
    assert work.result is not None and (work.result.truncated, work.result.cells_truncated) == (5, 1)


def test_rows_that_become_files_at_once_are_counted(make_store: Callable[..., Database]) -> None:
    table = make(db := make_store(direct_load_bytes=64 << 10, flush_bytes=256 << 10))
    rows = 20_000
    data = pa.table({"id": range(rows), "short": ["abcdefgh"] * rows, "other": ["x" * 40] * rows})
    assert table.insert(data).truncated == rows
    with db.transaction() as work:
        work.insert(table, data.set_column(0, "id", [range(rows, 2 * rows)]))
    assert work.result is not None and work.result.cells_truncated == rows
    assert sum(tablet["rowsets"] for tablet in table.stats()["tablets"]) >= 4  # maintenance is off: no flush made them


def test_the_option_is_set_altered_described_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "other"
    with nyala.open(path) as db:
        table = make(db)
        cut = {"id": [1], "short": ["abcdef"], "name": ["b" * 9]}
        answer = table.upsert(cut, writer="w", seq=1)
        with db.transaction(app_id="a", app_version=1) as work:
            work.upsert(table, cut)
        assert (answer.truncated, work.result and work.result.cells_truncated) == (2, 2)
        table.alter().set_too_long("short", "error").add_column("more", "varchar(2)", too_long="error").apply()
        described = {column["name"]: column.get("too_long") for column in table.describe()["columns"]}
        assert described == {"id": None, "short": "error", "name": None, "other": None, "more": "error"}
    with nyala.open(path) as db:
        table = db.table("t")
        assert table.upsert(cut, writer="w", seq=1) == answer
        assert db._store.commit_transaction(TransactionCommit(transaction=work.id)) == work.result
        result = table.upsert({"id": [1, 2], "short": ["abcdef", "ab"], "name": ["b" * 9] * 2}, on_error="return")
        assert (result.applied, result.truncated) == (1, 1)
        with pytest.raises(nyala.InvalidArgumentError, match="'other' is string, which has no length"):
            table.alter().set_too_long("other", "error").apply()
        with pytest.raises(nyala.InvalidArgumentError, match="too_long"):
            table.alter().set_too_long("short", "cut").apply()  # pyright: ignore[reportArgumentType]
        with pytest.raises(nyala.InvalidArgumentError, match="'id' is int64, which has no length"):
            db.create_table("u", SCHEMA, ["id"], column_options={"id": {"too_long": "error"}})
        table.alter().widen_column("short", "varchar(6)").set_too_long("more", None).apply()
        assert table.upsert({"id": [1], "short": ["abcdef"], "more": ["abc"]}).truncated == 1
        table.alter().widen_column("short", "string").apply()
        assert [column.get("too_long") for column in table.describe()["columns"]] == [None] * 5
        table.upsert({"id": [1], "short": ["abcdefgh"]})
        assert state(table)[0][1] == "abcdefgh"
