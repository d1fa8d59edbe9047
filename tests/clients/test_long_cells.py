"""Cells up to `cell_bytes_max`, an option of a table: written, changed, merged, read again, and refused beyond it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.jobs import backup, copy_table, load, restore, restore_pin
from nyala.schemas.errors import InvalidArgumentError
from tests.dose import by_night

KIB = 1 << 10
USUAL, MOST = 64 * KIB, 1024 * KIB
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("b", pa.binary()), ("doc", pa.string()), ("n", pa.int32())])
JSON = {"doc": {"type": "json"}}
STEPS = ["flush", "flush_deltas", "compact", "major_compact"]


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """On disk, as large files are."""
    with Store.open(home, StoreOptions(maintenance="off")) as opened:
        yield opened


@pytest.fixture(params=by_night(["embedded", "remote"], day=["embedded"]))
def db(request: pytest.FixtureRequest) -> Database:
    """By day in this process; `test_long_cells_pass_a_server` goes through a server."""
    return request.getfixturevalue(request.param)


def text(size: int, seed: int = 0) -> str:
    """Return so many letters, most of which no codec can shorten."""
    return random.Random(seed).randbytes((size + 1) // 2).hex()[:size]


def row(key: int, size: int, seed: int = 0) -> dict[str, Any]:
    """Return a row with three cells of ``size`` bytes."""
    letters = text(size, seed)
    return {"k": key, "s": letters, "b": letters.encode(), "doc": json.dumps(letters[2:]), "n": key}


def make(db: Database, most: int | None = MOST, **options: Any) -> Table:
    return db.create_table("t", SCHEMA, "k", column_options=JSON, cell_bytes_max=most, **options)


def rows_of(table: Table, **scan: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**scan).to_arrow().to_pylist(), key=lambda each: each["k"])


def is_refused(write: Callable[[], Any]) -> str:
    """Return why a row is refused as too large."""
    with pytest.raises(nyala.RowErrors) as caught:
        write()
    (error,) = caught.value.result.errors
    assert error.code == "TOO_LARGE"
    return error.message


@pytest.mark.parametrize("codes", [{}, {"encoding": "prefix"}, {"encoding": "dictionary"}, {"compression": "zstd"}])
@pytest.mark.parametrize("whole_rows", [False, True])
def test_long_cells_live_through_every_step(db: Database, codes: dict[str, Any], whole_rows: bool) -> None:
    options = {"s": codes, "b": codes, "doc": {**JSON["doc"], **codes}}
    table = db.create_table("t", SCHEMA, "k", column_options=options, cell_bytes_max=MOST, row_column=whole_rows)
    expected = {key: row(key, size, key) for key, size in enumerate([MOST, 3, MOST - 1, USUAL + 1, MOST])}
    since = db.now()
    table.insert([expected[0]])
    table.insert([expected[key] for key in (1, 2, 3)])
    table.upsert(pa.Table.from_pylist([expected[4]], SCHEMA))
    moments = [(db.now(), dict(expected))]
    for number, step in enumerate([None, *STEPS, *STEPS]):
        if step is not None:
            table.maintain(step)
        key = number % 5
        expected[key] = row(key, MOST - number, 100 + number)
        table.update([{name: expected[key][name] for name in ("k", "s", "b", "doc", "n")}])
        assert rows_of(table) == [expected[key] for key in sorted(expected)]
        assert table.get((key,)) == expected[key]
        moments.append((db.now(), dict(expected)))
    table.delete({"k": [1]})
    for moment, rows in moments:
        assert rows_of(table, as_of=moment) == [rows[key] for key in sorted(rows)]
    assert table.get_many({"k": [4, 0]}).to_pylist() == [expected[4], expected[0]]
    longest = table.scan(columns=["k"], where=f"len(s) >= {MOST - 3}").to_arrow()["k"].to_pylist()
    assert sorted(longest) == [key for key in (0, 2, 3, 4) if len(expected[key]["s"]) >= MOST - 3]
    least = table.scan().aggregate({"low": ("s", "min"), "high": ("b", "max")}, []).to_pylist()[0]
    left = [each for key, each in expected.items() if key != 1]
    assert least == {"low": min(each["s"] for each in left), "high": max(each["b"] for each in left)}
    changed = table.changes(since, every=True).to_arrow()["s"].to_pylist()
    assert {len(each) for each in changed if each} >= {MOST, MOST - 1, USUAL + 1, 3}


def test_long_cells_pass_a_server(remote: Database) -> None:
    size = 3 * USUAL
    table = make(remote, size)
    expected = {key: row(key, size - key, key) for key in range(3)}
    table.insert([expected[0]])
    table.upsert([expected[1], expected[2]])
    for step in (None, *STEPS):
        if step is not None:
            table.maintain(step)
        expected[1] = row(1, size, len(str(step)))
        table.update([expected[1]])
        assert table.get((1,)) == expected[1]
        assert table.get_many({"k": [2, 0]}).to_pylist() == [expected[2], expected[0]]
        assert rows_of(table) == list(expected.values())
    why = is_refused(lambda: table.upsert([row(9, size + 1)]))
    assert f"has more than {size:,} bytes: {size + 1:,}; to allow it, raise the table option" in why
    table.alter().set_option("cell_bytes_max", None).apply()
    assert rows_of(table) == list(expected.values())
    assert f"more than {USUAL:,} bytes" in is_refused(lambda: table.upsert([row(9, USUAL + 1)]))


@settings(max_examples=12, deadline=None)
@given(
    most=st.integers(USUAL, MOST),
    beyond=st.sampled_from([-1, 0, 1]),
    column=st.sampled_from(["s", "b", "doc"]),
    count=st.integers(1, 70),
)
def test_the_limit_is_exact(most: int, beyond: int, column: str, count: int) -> None:
    size = most + beyond
    cell = {"s": "x" * size, "b": b"x" * size, "doc": json.dumps("x" * (size - 2))}[column]
    rows = [{"k": key, column: "1" if column == "doc" else None} for key in range(count)] + [{"k": -1, column: cell}]
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = make(Database(store), most)
        if beyond <= 0:
            table.upsert(rows)
            assert table.get((-1,))[column] == cell  # pyright: ignore[reportOptionalSubscript]
            return
        why = is_refused(lambda: table.upsert(rows))
        assert f"the cell of column {column!r} has more than {most:,} bytes: {size:,}" in why


def test_the_error_says_which_row_and_what_to_raise(db: Database) -> None:
    table = make(db, None)
    with pytest.raises(nyala.RowErrors) as caught:
        table.insert([row(1, 5), row(2, USUAL), row(3, USUAL + 7)])
    (error, *more) = caught.value.result.errors
    assert (error.row, more) == (2, [])
    hint = "has more than 65,536 bytes: 65,543; to allow it, raise the table option cell_bytes_max, up to 1,048,576"
    assert error.message == f"the cell of column 's' {hint}"
    table.alter().set_option("cell_bytes_max", MOST).apply()
    table.insert([row(3, USUAL + 7)])
    why = is_refused(lambda: table.upsert([row(3, MOST + 1)]))
    assert why.endswith(
        "more than 1,048,576 bytes: 1,048,577; to allow it, raise limits.nested_cell_bytes of the store"
    )
    assert table.get((3,)) == row(3, USUAL + 7)


def test_keys_keep_their_limits(db: Database) -> None:
    table = db.create_table("t", pa.schema([("k", pa.string()), ("s", pa.string())]), "k", cell_bytes_max=MOST)
    why = is_refused(lambda: table.insert({"k": ["x" * (USUAL + 1)], "s": ["y" * MOST]}))
    assert "column 'k' has more than 65,536 bytes" in why and "limits.cell_bytes" in why
    assert "16,384" in is_refused(lambda: table.insert({"k": ["x" * USUAL], "s": ["y"]}))
    table.insert({"k": ["x"], "s": ["y" * MOST]})
    assert table.get(("x",)) == {"k": "x", "s": "y" * MOST}


@pytest.mark.parametrize("most", [0, -1, 1, USUAL - 1, MOST + 1, 1 << 70])
def test_sizes_that_no_table_may_have(db: Database, most: int) -> None:
    with pytest.raises((InvalidArgumentError, ValueError), match="cell_bytes_max"):
        make(db, most)
    table = make(db, None)
    with pytest.raises(InvalidArgumentError, match="cell_bytes_max"):
        table.alter().set_option("cell_bytes_max", most).apply()
    assert "cell_bytes_max" not in table.describe()["options"]


def test_the_limits_of_the_store_bound_the_option(make_store: Callable[..., Database]) -> None:
    db = make_store(limits={"cell_bytes": 100, "nested_cell_bytes": 200})
    with pytest.raises(InvalidArgumentError, match="may be from 100 to 200 bytes, not 201"):
        make(db, 201)
    table = make(db, 150)
    table.insert([row(1, 150)])
    assert "raise the table option cell_bytes_max, up to 200" in is_refused(lambda: table.insert([row(2, 151)]))


@pytest.mark.parametrize("lower", [None, 100_000])
def test_rows_above_a_lowered_limit_are_restored_and_copied(
    db: Database, home: Path, tmp_path: Path, lower: int | None
) -> None:
    table = make(db)
    table.insert([row(1, MOST), row(2, 10)])
    pinned = db.create_pin("before", "t")
    table.alter().set_option("cell_bytes_max", lower).apply()
    lowered = db.create_pin("after", "t")
    backup(db, "t", tmp_path / "backups")
    restore(db, tmp_path / "backups", "t", name="restored")
    copy_table(db, db, "t", name="copied")
    restore_pin(db, pinned, name="of_the_pin", directory=home)
    restore_pin(db, lowered, name="of_the_later_pin", directory=home)
    names = {"restored": lower, "copied": lower, "of_the_pin": MOST, "of_the_later_pin": lower}
    for name, most in names.items():
        other = db.table(name)
        assert rows_of(other) == rows_of(table)
        assert other.describe()["options"].get("cell_bytes_max") == most
    why = is_refused(lambda: db.table("restored").upsert([row(3, (lower or USUAL) + 1)]))
    assert f"more than {lower or USUAL:,} bytes" in why
    backup(db, "restored", tmp_path / "again")
    restore(db, tmp_path / "again", "restored", name="twice")
    assert rows_of(db.table("twice")) == rows_of(table)


def test_a_store_with_lower_limits_keeps_to_them(tmp_path: Path) -> None:
    with nyala.open(tmp_path, maintenance="off") as db:
        make(db).insert([row(1, MOST)])
    with nyala.open(tmp_path, maintenance="off", limits={"nested_cell_bytes": 2 * USUAL}) as db:
        table = db.table("t")
        assert table.get((1,)) == row(1, MOST)
        assert "more than 131,072" in is_refused(lambda: table.insert([row(2, 2 * USUAL + 1)]))
        table.alter().set_option("comment", "still altered").apply()
        assert table.describe()["options"]["cell_bytes_max"] == MOST


@pytest.mark.parametrize("lower", [None, USUAL, 100_000])
def test_a_lower_limit_leaves_the_rows_that_are_there(db: Database, lower: int | None) -> None:
    table = make(db)
    table.insert([row(1, MOST), row(2, 10), row(3, 500_000)])
    table.maintain("flush")
    table.update([row(2, MOST - 1)])
    before = db.now()
    table.alter().set_option("cell_bytes_max", lower).apply()
    assert table.describe()["options"].get("cell_bytes_max") == lower
    expected = [row(1, MOST), row(2, MOST - 1), row(3, 500_000)]
    for step in STEPS:
        table.maintain(step)
        assert rows_of(table) == expected
        why = is_refused(lambda: table.upsert([row(9, (lower or USUAL) + 1)]))
        assert f"more than {lower or USUAL:,} bytes" in why
    table.update({"k": [1], "n": [-1]})
    table.update([row(3, lower or USUAL)])
    expected = [{**row(1, MOST), "n": -1}, row(2, MOST - 1), row(3, lower or USUAL)]
    assert rows_of(table) == expected
    table.maintain("compact")
    assert rows_of(table) == expected and rows_of(table, as_of=before)[2] == row(3, 500_000)
    table.alter().set_option("cell_bytes_max", MOST).apply()
    table.upsert([row(9, MOST)])
    assert table.get((9,)) == row(9, MOST)


def test_a_restart_replays_long_cells_after_the_limit_fell(tmp_path: Path) -> None:
    with nyala.open(tmp_path, maintenance="off", wal_segment_bytes=1 << 16) as db:
        table = make(db)
        table.insert([row(key, MOST, key) for key in range(5)])
        table.maintain("flush")
        table.update([row(1, MOST - 1, 9)])
        table.alter().set_option("cell_bytes_max", None).apply()
    with nyala.open(tmp_path, maintenance="off") as db:
        table = db.table("t")
        expected = [row(key, MOST - (key == 1), 9 if key == 1 else key) for key in range(5)]
        assert rows_of(table) == expected
        table.maintain("compact")
        assert rows_of(table) == expected
    with nyala.open(tmp_path, maintenance="off") as db:
        assert rows_of(db.table("t")) == expected


def appended(table: Table, size: int) -> Any:
    return table.merge({"k": [1], "s": ["x" * size]}, rules={"s": "append"})


def test_computed_cells_have_the_same_limit(db: Database) -> None:
    table = make(db, 100_000)
    table.insert({"k": [1], "s": ["x" * 99_000]})
    appended(table, 1_000)
    with pytest.raises(nyala.StoreError, match="more than 100,000 bytes: 100,001"):
        appended(table, 1)
    with pytest.raises(nyala.StoreError, match="more than 100,000 bytes"):
        table.update_where(set={"s": "s || '!'"})
    assert table.get((1,))["s"] == "x" * 100_000  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_files_bring_long_cells(db: Database, tmp_path: Path, ending: str) -> None:
    letters, path = text(MOST), tmp_path / f"rows.{ending}"
    lines = {"csv": f"k,s\n1,{letters}\n2,x\n", "json": json.dumps({"k": 1, "s": letters}) + '\n{"k": 2, "s": "x"}\n'}
    path.write_text(lines[ending])
    table = make(db)
    load(db, "t", str(path))
    assert [each["s"] for each in rows_of(table)] == [letters, "x"]


def test_sql_creates_and_alters_the_option(db: Database) -> None:
    db.sql("CREATE TABLE q (k BIGINT PRIMARY KEY, s VARCHAR) WITH (cell_bytes_max = 100000)")
    table = db.table("q")
    assert table.describe()["options"]["cell_bytes_max"] == 100_000
    table.insert({"k": [1], "s": ["x" * 100_000]})
    assert db.sql("SELECT length(s) AS n FROM q").to_arrow().to_pylist() == [{"n": 100_000}]
    db.sql("ALTER TABLE q SET (cell_bytes_max = 200000)")
    db.sql("UPDATE q SET s = s || s")
    assert pc.utf8_length(table.scan().to_arrow()["s"]).to_pylist() == [200_000]
    db.sql("ALTER TABLE q RESET (cell_bytes_max)")
    assert "cell_bytes_max" not in table.describe()["options"]


def test_transactions_bring_long_cells(db: Database) -> None:
    table = make(db)
    with db.transaction() as work:
        work.insert(table, [row(key, MOST, key) for key in range(3)])
        work.update(table, [row(1, MOST - 1)])
    assert rows_of(table) == [row(0, MOST, 0), row(1, MOST - 1), row(2, MOST, 2)]
    with pytest.raises(nyala.StoreError, match="more than 1,048,576 bytes"), db.transaction() as work:
        work.insert(table, [row(7, MOST + 1)])
    assert table.get((7,)) is None
