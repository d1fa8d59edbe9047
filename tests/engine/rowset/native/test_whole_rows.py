"""A table with the option row_column: its files have each row once more, which gets read and everything keeps right."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.cfile.cutter import cell_bytes
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.recovery.verify import verify_store
from nyala.engine.rowset import base_file, steps
from nyala.engine.rowset.base_file import ROWS, BaseFileWriter
from nyala.engine.rowset.native.row_stream import RowStream
from nyala.engine.vectors.vector import BytesVector, Vector
from tests.engine.subject import Subject

COUNT = 3_000
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("flag", pa.bool_()),
        ("name", pa.string()),
        ("money", pa.decimal128(30, 2)),
        ("x", pa.float32()),
        ("y", pa.float64()),
        ("raw", pa.binary()),
    ]
)


def row(key: int, step: int = 0) -> dict[str, Any]:
    cells = {
        "id": key,
        "small": key % 256 - 128,
        "flag": key % 3 == 0,
        "name": f"name {key} {step}" * (key % 4),
        "money": Decimal(key * 10**20 - 7).scaleb(-2),
        "x": key / 4,
        "y": -key / 7,
        "raw": bytes([key % 256]) * (key % 9),
    }
    return {
        name: None if name != "id" and (key + place) % 5 == 0 else cell
        for place, (name, cell) in enumerate(cells.items())
    }


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that are read as wholes."""
    numbers: list[int] = []
    real = RowStream.read

    def read(stream: RowStream, number: int, fields: np.ndarray) -> Any:
        numbers.append(number)
        return real(stream, number, fields)

    monkeypatch.setattr(RowStream, "read", read)
    return numbers


def opened(folder: Path) -> nyala.Database:
    return nyala.open(folder, maintenance="off", page_cache_bytes=1)


def files_with_rows(database: nyala.Database) -> list[bool]:
    """Return for each base file whether it has whole rows."""
    store: Any = database._store
    (tablet,) = store._catalog.table("t").tablets
    return [ROWS in rowset.reader for rowset in tablet.version.on_disk]


def check(table: nyala.Table, expected: dict[int, dict[str, Any]]) -> None:
    for key in range(0, COUNT, 37):
        assert table.get(key) == expected.get(key), key
    keys = list(range(5, COUNT, 91))
    assert table.get_many(keys).to_pylist() == [expected[key] for key in keys if key in expected]


def test_rows_are_read_as_wholes_through_alterations_and_restarts(tmp_path: Path, reads: list[int]) -> None:
    expected = {key: row(key) for key in range(COUNT)}
    with opened(tmp_path) as database:
        table = database.create_table("t", SCHEMA, primary_key="id", row_column=True)
        assert table.describe()["options"]["row_column"] is True
        table.insert(pa.Table.from_pylist(list(expected.values()), SCHEMA))
        table.maintain("flush")
        check(table, expected)
        assert len(reads) > 70 and files_with_rows(database) == [True]
    changes: list[Any] = [
        lambda alter: alter.widen_column("small", "int32").widen_column("x", "double"),
        lambda alter: alter.add_column("new", "int64", read_default=4).rename_column("name", "title"),
        lambda alter: alter.drop_column("y"),
    ]
    for step, change in enumerate(changes):
        with opened(tmp_path) as database:
            table = database.table("t")
            change(table.alter()).apply()
            names = table.schema.names
            for key, cells in expected.items():
                named = {
                    ("title" if name == "name" and "title" in names else name): cell for name, cell in cells.items()
                }
                expected[key] = {name: named.get(name, 4 if name == "new" else None) for name in names}
            reads.clear()
            check(table, expected)
            assert len(reads) > 70
            text = "title" if "title" in names else "name"
            changed = {key: {**expected[key], text: f"step {step}"} for key in range(0, COUNT, 5) if key in expected}
            table.upsert(list(changed.values()))
            table.delete([{"id": key} for key in range(step, COUNT, 74) if key in expected])
            expected |= changed
            expected = {key: cells for key, cells in expected.items() if key not in range(step, COUNT, 74)}
            for work in ("", "flush_deltas", "major_compact"):
                if work:
                    table.maintain(work)
                check(table, expected)
            table.insert([dict.fromkeys(names) | {"id": COUNT + step, "raw": b""}])
            table.maintain("flush")
            table.maintain("compact")
            check(table, expected)
            assert all(files_with_rows(database))
    with opened(tmp_path) as database:
        database.table("t").alter().set_option("row_column", False).apply()
        check(database.table("t"), expected)
        database.table("t").insert([{"id": COUNT + 10}])
        database.table("t").maintain("flush")
        assert sorted(files_with_rows(database)) == [False, True]
        database.table("t").maintain("compact")
        reads.clear()
        check(database.table("t"), expected)
        assert not any(files_with_rows(database)) and not reads
        database.table("t").alter().set_option("row_column", True).apply()
    with opened(tmp_path) as database:
        assert database.table("t").describe()["options"]["row_column"] is True


def test_a_long_row_is_not_there_as_a_whole(tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its cells may take more than a page."""
    monkeypatch.setattr(base_file, "_LONG_ROW_BYTES", 2_000)
    monkeypatch.setattr(base_file, "_ROWS_BYTES_AT_ONCE", 10_000)
    expected = {key: row(key) | {"raw": b"x" * (3_000 if key % 50 == 7 else 9)} for key in range(600)}
    with opened(tmp_path) as database:
        table = database.create_table("t", SCHEMA, ["id"], row_column=True)
        table.insert(list(expected.values()))
        table.maintain("flush")
        assert files_with_rows(database) == [True]
    with opened(tmp_path) as database:
        check(database.table("t"), expected)
        assert reads
    assert verify_store(LocalFileSystem(str(tmp_path))).is_sound


def planted(monkeypatch: pytest.MonkeyPatch, damage: Any) -> Subject:
    """Return a store whose whole rows were ``damage``d before they were written."""
    real = base_file.encode_rows
    monkeypatch.setattr(base_file, "encode_rows", lambda columns, count: damage(real, columns, count))
    subject = Subject(MemoryFileSystem(), table_options={"row_column": True}, page_cache_bytes=1)
    for key in range(9):
        subject.upsert(key, v=key)
    subject.flush()
    return subject


def others(real: Any, columns: dict[int, Vector], count: int) -> BytesVector:
    return real({**columns, 2: columns[2].take(np.arange(count)[::-1])}, count)


def broken(real: Any, columns: dict[int, Vector], count: int) -> BytesVector:
    rows: BytesVector = real(columns, count)
    rows.data[int(rows.offsets[4])] = 0xFF
    return rows


@pytest.mark.parametrize(
    ("damage", "why"), [(others, "differ from the cells of column 2"), (broken, "contradict each other")]
)
def test_whole_rows_that_are_not_those_of_the_columns_are_found(
    monkeypatch: pytest.MonkeyPatch, damage: Any, why: str
) -> None:
    subject = planted(monkeypatch, damage)
    subject.store.close()
    (problem,) = verify_store(subject.fs).problems
    assert why in problem


def test_a_row_that_contradicts_itself_is_read_from_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = planted(monkeypatch, broken)
    table = Database(subject.store).table("t")
    for key in range(9):
        assert table.get(key) == {"k": key, "v": key, "s": "s"}
    subject.store.close()


def test_merges_hold_few_whole_rows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "BYTES_AT_ONCE", 1 << 18)
    sizes, append = list[int](), BaseFileWriter._append_rows

    def note(self: BaseFileWriter, rows: Any, count: int) -> None:
        sizes.append(sum(cell_bytes(cells) for cells in self._run.values()))
        append(self, rows, count)

    names = [f"s{number}" for number in range(20)]
    with opened(tmp_path) as db:
        schema = pa.schema([pa.field("id", pa.int64(), False), *((name, pa.string()) for name in names)])
        table = db.create_table("t", schema, ["id"], row_column=True)
        for first in range(2):
            ids = np.arange(first, 8_000, 2)
            texts = pa.array([f"{key:0200}" for key in ids])
            table.insert(pa.table([ids, *[texts] * len(names)], schema=schema))
            table.maintain("flush")
        monkeypatch.setattr(BaseFileWriter, "_append_rows", note)
        table.maintain("compact")
        assert table.get(7) == {"id": 7, **dict.fromkeys(names, f"{7:0200}")}
    assert len(sizes) > 10 and max(sizes) <= 1.1 * (1 << 20)
