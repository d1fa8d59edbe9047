"""Names that somebody may have meant, and what messages print."""

from __future__ import annotations

import pyarrow as pa
import pytest

import nyala
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from nyala.schemas.phrases import counted, perhaps, size
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteResult


@pytest.mark.parametrize(
    ("name", "meant"),
    [("citty", "city"), ("CITY", "city"), ("pric", "Price"), ("x", ""), ("", ""), ("c" * 10_000, "")],
)
def test_the_nearest_name(name: str, meant: str) -> None:
    assert perhaps(name, ["id", "city", "Price"]) == (f", perhaps {meant!r}" if meant else "")


@pytest.mark.parametrize(("count", "words"), [(0, "0 tasks"), (1, "1 task"), (4_000, "4,000 tasks")])
def test_numbers_of_things(count: int, words: str) -> None:
    assert counted(count, "task") == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (1 << 51, "2048.0 TiB")]
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words


def test_errors_name_what_was_meant() -> None:
    db = nyala.Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    table = db.create_table("homes", pa.schema([pa.field("id", pa.int64(), False), ("price", pa.float64())]), ["id"])
    attempts = [
        lambda: db.table("hoems"),
        lambda: table.scan(["prise"]).to_arrow(),
        lambda: table.scan(where="prise > 3").to_arrow(),
        lambda: table.scan(order_by="prise").to_arrow(),
        lambda: table.scan().aggregate({"n": ("prise", "sum")}),
        lambda: table.update_where({"prise": "1"}),
        lambda: table.upsert({"id": [1], "prise": [1.0]}),
        lambda: table.alter().drop_column("prise").apply(),
    ]
    for number, attempt in enumerate(attempts):
        with pytest.raises(StoreError, match="perhaps 'price'" if number else "perhaps 'homes'"):
            attempt()
    assert repr(table.scan(limit=3)) == "Scan('homes', limit=3)"
    db.close()


def test_messages_print_only_what_is_not_the_default() -> None:
    assert repr(ScanSpec(table="t", limit=0, ordered=False)) == "ScanSpec(table='t', limit=0)"
    assert repr(WriteResult(timestamp=7, rows=2, applied=2)) == "WriteResult(timestamp=7, rows=2, applied=2)"
    assert repr(nyala.ColumnOptions(encoding="plain")) == "ColumnOptions(encoding='plain')"
