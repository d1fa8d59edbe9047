"""Columns whose pages have fewer rows: read, filtered, changed, merged and altered as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.cfile.format import StreamKey
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.schemas.errors import InvalidArgumentError

COUNT = 150_000
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), ("word", pa.string()), ("x", pa.float64()), ("plain", pa.int32())]
)
OPTIONS: dict[str, Any] = {
    "id": {"block_rows": 16_384},
    "word": {"block_rows": 1_024, "compression": "lz4"},
    "x": nyala.ColumnOptions(block_rows=4_096, compression="zstd"),
}


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    words = [None if number % 11 == 0 else f"word {number % 1_000}" for number in ids.tolist()]
    return pa.table([ids, words, ids / 8, (ids % 100).astype(np.int32)], schema=SCHEMA)


@pytest.fixture
def db(tmp_path: Path):
    with nyala.open(tmp_path / "store", maintenance="off") as opened:
        yield opened


def page_rows(db: Database) -> list[list[set[int]]]:
    """The rows of the pages of each rowset's columns, the last page of each left out."""
    (tablet,) = db._store._catalog.table("t").tablets  # pyright: ignore[reportAttributeAccessIssue]
    rowsets = [rowset for rowset in tablet.version.rowsets() if isinstance(rowset, DiskRowSet)]
    return [[pages_of(rowset, column.id) for column in tablet.schema.columns] for rowset in rowsets]


def pages_of(rowset: DiskRowSet, column_id: int) -> set[int]:
    reader = rowset._columns[column_id].reader if column_id in rowset._columns else rowset.reader
    key = StreamKey(column_id, "base")
    return {page.row_count for page in reader.stream(key).entry.pages[:-1]} if key in reader else set()


def check(table: Table, expected: pa.Table) -> None:
    assert table.scan(ordered=True).to_arrow().equals(expected)
    for where in (
        "word = 'word 77'",
        "id >= 70000 and id < 70010",
        "x > 18000 and word is null",
        "plain = 5 and id > 999",
    ):
        found = table.scan(where=where, ordered=True).to_arrow()
        assert found.equals(select(expected, where)), where
    for key in (0, 1_023, 1_024, 65_536, COUNT - 1):
        assert table.get(key) == (expected.slice(key, 1).to_pylist() or [None])[0]


def select(expected: pa.Table, where: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("expected", expected)
        found = connection.sql(f"SELECT * FROM expected WHERE {where} ORDER BY id")
        assert found is not None
        return found.to_arrow_table().cast(expected.schema)


def test_pages_have_as_many_rows_through_flushes_changes_and_merges(tmp_path: Path, db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["id"], column_options=OPTIONS)
    assert [column.get("block_rows") for column in table.describe()["columns"]] == [16_384, 1_024, 4_096, None]
    table.insert(rows(0, 100_000))
    table.maintain("flush")
    table.insert(rows(100_000, COUNT - 100_000))
    table.maintain("flush")
    expected = rows(0, COUNT)
    check(table, expected)
    assert page_rows(db)[0] == [{16_384}, {1_024}, {4_096}, {65_536}]

    moment = db.now()
    table.update_where({"x": "x + 1"}, where="id < 3000")
    table.maintain("flush_deltas")
    table.maintain("major_compact")
    table.maintain("compact")
    changed = pa.chunked_array([np.where(np.arange(COUNT) < 3_000, np.arange(COUNT) / 8 + 1, np.arange(COUNT) / 8)])
    check(table, expected.set_column(2, SCHEMA.field("x"), changed))
    assert table.scan(as_of=moment, ordered=True).to_arrow().equals(expected)
    assert page_rows(db) == [[{16_384}, {1_024}, {4_096}, {65_536}]]
    db.close()
    with nyala.open(tmp_path / "store", maintenance="off") as again:
        assert again.table("t").count("word = 'word 77'") == COUNT // 1_000 - len(range(77, COUNT, 11_000))


def test_it_is_altered_for_files_written_from_then_on(db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["id"])
    for first in (0, 70_000):
        table.insert(rows(first, 70_000))
        table.maintain("flush")
        table.alter().set_block_rows("x", 2_048).add_column(f"more{first}", "int32", block_rows=1_024).apply()
    expected = rows(0, 140_000)
    assert [pages[2] for pages in page_rows(db)] == [{65_536}, {2_048}]
    assert table.scan(SCHEMA.names, ordered=True).to_arrow().equals(expected)
    table.alter().set_block_rows("x", None).set_block_rows("plain", 8_192).apply()
    table.maintain("compact")
    assert page_rows(db)[0][2:4] == [{65_536}, {8_192}]
    assert table.scan(SCHEMA.names, ordered=True).to_arrow().equals(expected)


@pytest.mark.parametrize("wrong", [0, 1_000, 512, 131_072, -1_024])
def test_other_numbers_are_refused(db: Database, wrong: int) -> None:
    with pytest.raises(InvalidArgumentError, match="block_rows must be a power of two from 1,024 to 65,536"):
        db.create_table("t", SCHEMA, ["id"], column_options={"x": {"block_rows": wrong}})
    table = db.create_table("t", SCHEMA, ["id"])
    with pytest.raises(InvalidArgumentError, match="block_rows"):
        table.alter().set_block_rows("x", wrong).apply()


def test_long_cells_have_narrow_pages_by_themselves(tmp_path: Path, db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["id"])
    random = np.random.default_rng(4)

    def long_rows(first: int, count: int) -> pa.Table:
        words = [random.bytes(40).hex() for _ in range(count)]
        return rows(first, count).set_column(1, SCHEMA.field("word"), pa.array(words))

    expected = pa.concat_tables([long_rows(0, 100_000), long_rows(100_000, COUNT - 100_000)])
    for first in (0, 100_000):
        table.insert(expected.slice(first, 100_000))
        table.maintain("flush")
    check(table, expected)
    assert [pages[1] for pages in page_rows(db)] == [{4_096}, {4_096}]
    moment = db.now()
    table.update_where({"word": "'changed'"}, where="id = 70000")
    table.maintain("flush_deltas")
    table.maintain("compact")
    assert page_rows(db) == [[{65_536}, {4_096}, {65_536}, {65_536}]]
    assert (table.get(70_000) or {})["word"] == "changed"
    assert table.scan(as_of=moment, ordered=True).to_arrow().equals(expected)
    db.close()
    with nyala.open(tmp_path / "store", maintenance="off") as again:
        found = again.table("t").scan(where="word >= 'c'", ordered=True).to_arrow()
        changed = expected.to_pylist()
        changed[70_000]["word"] = "changed"
        assert found.to_pylist() == [row for row in changed if row["word"] >= "c"]
