"""``DiskRowSet.find`` answers like a dict of its keys, for every kind of key, with and without the Bloom filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.cfile.cache import PageCache
from nyala.engine.codecs.codec import BLOCK_ROWS
from nyala.engine.delta.file import ColumnEncoding
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.rowset.base_file import write_base_file
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.rowset.key_filter import BITS_A_KEY, KEY_FILTER
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.keys.keys import KeyEncoder, KeyVector, argsort_keys, hash_keys
from nyala.engine.vectors.physical import PhysicalType, physical_of
from nyala.engine.vectors.vector import Vector
from nyala.schemas.errors import CorruptionError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.table import TableDefinition, TableSchema

KINDS = {
    "int64": (pa.int64(),),
    "int8, int32": (pa.int8(), pa.int32()),
    "string": (pa.string(),),
    "string, int32": (pa.string(), pa.int32()),
    "decimal": (pa.decimal128(30, 0),),
}


class Keys:
    """Keys of a kind: number i has the i-th key, in an order that is not the numbers'."""

    def __init__(self, kind: str) -> None:
        self.types = KINDS[kind]
        fields = [pa.field(f"k{number}", arrow, False) for number, arrow in enumerate(self.types)]
        names = [field.name for field in fields]
        self.schema: TableSchema = TableSchema.create(
            TableDefinition.from_arrow("t", pa.schema(fields), names), Limits()
        )
        self.physicals = [physical_of(arrow) for arrow in self.types]
        self.encoder = KeyEncoder(self.physicals)

    def cells(self, numbers: Sequence[int]) -> list[Vector]:
        return [
            from_arrow(pa.array([_cell(arrow, number, len(self.types)) for number in numbers], arrow), physical)
            for arrow, physical in zip(self.types, self.physicals, strict=True)
        ]

    def encoded(self, numbers: Sequence[int]) -> KeyVector:
        return self.encoder.encode(self.cells(numbers))

    def rowset(self, numbers: Sequence[int]) -> tuple[DiskRowSet, dict[int, int]]:
        """Return a rowset of these keys, and the row of each number."""
        keys = self.encoded(numbers)
        order = argsort_keys(keys)
        ordered = [numbers[row] for row in order]
        columns = self.schema.key
        cells = {column.id: vector for column, vector in zip(columns, self.cells(ordered), strict=True)}
        encodings = {
            column.id: ColumnEncoding(physical, _encoding(physical), "none")
            for column, physical in zip(columns, self.physicals, strict=True)
        }
        fs = MemoryFileSystem()
        write_base_file(fs, "f", 7, cells, None, self.encoded(ordered), encodings, 1, self.schema)
        rowset = DiskRowSet.open(fs, "f", 7, 0, columns, self.encoder, PageCache())
        return rowset, {number: row for row, number in enumerate(ordered)}


def _cell(arrow: pa.DataType, number: int, columns: int) -> int | str:
    if pa.types.is_string(arrow):
        return "\0" * (number % 3) + "x" * (number % 11) + str(number // columns)
    if pa.types.is_int8(arrow):
        return number % 200 - 100
    return number * 7919 - 1_000_003


def _encoding(physical: PhysicalType) -> str:
    return "prefix" if physical is PhysicalType.BYTES else "bitshuffle"


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Keys:
    return Keys(request.param)


@pytest.fixture(scope="module")
def large(kind: Keys) -> tuple[DiskRowSet, dict[int, int]]:
    """More rows than a page has, so that mini-blocks, pages and groups of mini-blocks all end inside."""
    return kind.rowset(range(0, 3 * (65 * BLOCK_ROWS + 5), 3))


def without_filter(rowset: DiskRowSet) -> DiskRowSet:
    """Return the rowset as if its file had been written by a store that knew no filters."""
    same = rowset.with_files(rowset.deltas)
    same.metadata = rowset.metadata.model_copy(update={"key_filter": 0})
    same._key_filter = None
    assert same.key_filter is None
    return same


def find(rowset: DiskRowSet, keys: KeyVector) -> list[int]:
    return rowset.find(keys, hash_keys(keys)).tolist()


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_keys_are_found_where_they_are_and_nowhere_else(kind: Keys, large: tuple[DiskRowSet, dict], data) -> None:
    rowset, row_of = large
    count = data.draw(st.sampled_from([0, 1, 2, 40, 3000]))
    seed = data.draw(st.integers(0, 1000))
    numbers = np.random.default_rng(seed).integers(-10, 3 * len(rowset) + 10, count).tolist()
    expected = [row_of.get(number, -1) for number in numbers]
    assert find(rowset, kind.encoded(numbers)) == expected
    assert find(without_filter(rowset), kind.encoded(numbers)) == expected


@given(st.sets(st.integers(0, 60), min_size=1), st.lists(st.integers(0, 60)))
@settings(max_examples=25, deadline=None)
def test_small_rowsets_answer_like_a_dict(kind: Keys, present: set[int], asked: list[int]) -> None:
    rowset, row_of = kind.rowset(sorted(present))
    assert find(rowset, kind.encoded(asked)) == [row_of.get(number, -1) for number in asked]


def test_the_filter_lets_about_one_absent_key_in_a_hundred_through() -> None:
    keys = Keys("int64")
    rowset, _ = keys.rowset(range(0, 40_000, 2))
    assert rowset.key_filter is not None
    present, absent = (hash_keys(keys.encoded(range(first, 40_000, 2))) for first in (0, 1))
    assert rowset.key_filter.may_hold(present).all()
    assert 0.002 < rowset.key_filter.may_hold(absent).mean() < 0.02
    assert rowset.reader.stream(KEY_FILTER).row_count * 64 / 20_000 == pytest.approx(BITS_A_KEY, rel=0.01)


def test_most_absent_keys_cost_no_look_at_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys("int64")
    rowset, _ = keys.rowset(range(0, 4000, 2))
    looked: list[int] = []
    read = DiskRowSet.keys_in
    monkeypatch.setattr(DiskRowSet, "keys_in", lambda self, *span: (looked.append(1), read(self, *span))[1])
    for number in range(1, 401, 2):
        assert find(rowset, keys.encoded([number])) == [-1]
    assert len(looked) < 20


def test_a_footer_that_names_a_filter_that_is_not_there_is_corrupt() -> None:
    rowset, _ = Keys("int64").rowset([1, 2, 3])
    footer = rowset.reader.footer
    kept = [entry for entry in footer.streams if entry.role != KEY_FILTER.role]
    reader = type(rowset.reader)(replace(rowset.reader.image), footer.model_copy(update={"streams": kept}), PageCache())
    with pytest.raises(CorruptionError, match="key_filter"):
        DiskRowSet(7, 0, reader, "f", Keys("int64").schema.key, rowset._encoder)
