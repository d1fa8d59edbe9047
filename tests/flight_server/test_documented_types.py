"""The table of types in docs/flight-actions.md: it lists all types that are taken, and cells come back as it says."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.cells.types import type_words
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition

DOCUMENT = Path(__file__).parents[2] / "docs/flight-actions.md"
WORDS = {"decimal(p,s)": "decimal(10,2)", "varchar(n)": "varchar(9)"}
DAY = 86_400

NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
NUMBERS += [pa.float16(), pa.float32(), pa.float64()]
ARRAYS = {
    str(array.type): array
    for array in [
        pa.array([True]),
        *(pa.array([1]).cast(kind) for kind in NUMBERS),
        *(pa.array([DAY]).cast(pa.timestamp("s")).cast(kind) for kind in (pa.date32(), pa.date64())),
        *(pa.array([DAY]).cast(pa.timestamp("s")).cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        *(pa.array([DAY * 1_000_000]).cast(pa.timestamp("us", zone)) for zone in ("UTC", "Asia/Tokyo")),
        *(pa.array([Decimal(1)], kind) for kind in (pa.decimal128(10, 2), pa.decimal128(12, 3), pa.decimal256(10, 2))),
        *(pa.array(["1"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
        *(pa.array([b"1"], kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))),
        *(pa.array([dt.time(1)], kind) for kind in map(pa.time32, ("s", "ms"))),
        *(pa.array([dt.time(1)], kind) for kind in map(pa.time64, ("us", "ns"))),
        *(pa.array([dt.timedelta(1)], kind) for kind in map(pa.duration, ("s", "ms", "us", "ns"))),
        pa.array([pa.MonthDayNano([1, 2, 3])]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
    ]
}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Return, for each type of a column, the Arrow type in which it comes, and all that it takes."""
    section = DOCUMENT.read_text().split("## Types")[1].split("\n## ")[0]
    found: dict[str, tuple[str, set[str]]] = {}
    for line in section.splitlines():
        cells: list[list[str]] = [re.findall("`([^`]+)`", cell) for cell in line.split("|")]
        if len(cells) == 5 and cells[1]:
            (word,), (comes,), others = cells[1:4]
            found[WORDS.get(word, word)] = comes, {comes, *others}
    return found


TYPES = documented()


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as opened:
        yield opened


def written(store: Store, cell: pa.Array) -> bool:
    """Whether a cell is stored."""
    batch = pa.RecordBatch.from_arrays([pa.array([1]), cell], ["id", "cell"])
    try:
        return not store.write(WriteCommand(table="t"), batch).errors
    except InvalidArgumentError as error:
        assert "cell" in error.message and str(cell.type) in error.message
        return False


@pytest.mark.parametrize("word", TYPES)
def test_the_types_that_a_column_takes(store: Store, word: str) -> None:
    columns = [{"name": "id", "type": "int64", "nullable": False}, {"name": "cell", "type": word}]
    store.create_table(TableDefinition.model_validate({"name": "t", "primary_key": ["id"], "columns": columns}))
    comes, takes = TYPES[word]
    taken = {kind for kind, array in ARRAYS.items() if written(store, array)}
    assert taken == takes
    first = ARRAYS[comes]
    assert written(store, first)
    cells = store.scan(ScanSpec(table="t")).to_reader().read_all()["cell"]
    assert str(cells.type) == comes and cells.cast(first.type).to_pylist() == first.to_pylist()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), first)
    for wrapped in (first.dictionary_encode(), runs, pa.nulls(1)):
        assert written(store, wrapped), wrapped.type


def test_every_type_is_in_the_table() -> None:
    assert set(TYPES) == {WORDS.get(word, word) for word in type_words() if "<" not in word}
    section = DOCUMENT.read_text().split("## Types")[1].split("\n## ")[0]
    assert all(f"`{word}`" in section for word in type_words() if "<" in word)
