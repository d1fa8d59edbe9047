"""The decoder of pgoutput's messages, on bytes that are written here, without a server."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala import InternalError
from nyala.clients.sources.postgres.array_text import lists_of_text
from nyala.clients.sources.postgres.messages import Begin, Commit, Relation, lsn_of, lsn_text, truncated
from nyala.clients.sources.postgres.tuples import read_tuples
from nyala.clients.sources.postgres.types import grows, word_of

UNCHANGED = object()
Row = list[object]


def written(row: Row) -> bytes:
    """Return a row as PostgreSQL sends it."""
    cells = []
    for cell in row:
        if cell is None:
            cells.append(b"n")
        elif cell is UNCHANGED:
            cells.append(b"u")
        else:
            text = str(cell).encode()
            cells.append(b"t" + struct.pack(">i", len(text)) + text)
    return struct.pack(">h", len(row)) + b"".join(cells)


def insert(row: Row) -> bytes:
    return b"I" + struct.pack(">i", 7) + b"N" + written(row)


def update(row: Row, key: Row | None = None, old: Row | None = None) -> bytes:
    before = b"K" + written(key) if key else b"O" + written(old) if old else b""
    return b"U" + struct.pack(">i", 7) + before + b"N" + written(row)


def delete(row: Row, kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">i", 7) + kind + written(row)


def read(messages: list[bytes], columns: int = 2, key: Sequence[int] = (0,)) -> list[tuple[object, ...]]:
    """Return the changes: delete or upsert, whether it is a moved row, and the cells."""
    tuples = read_tuples(messages, columns, key)
    texts = [tuples.text(number).to_pylist() for number in range(columns)]
    unchanged = [cells.is_unchanged for cells in tuples.columns]
    changes = []
    for at, is_delete in enumerate(tuples.is_delete):
        cells = tuple(UNCHANGED if unchanged[each][at] else texts[each][at] for each in range(columns))
        changes.append(("delete" if is_delete else "upsert", bool(tuples.is_moved[at]), *cells))
    return changes


def test_changes_come_in_their_order() -> None:
    messages = [
        insert([1, "a"]),
        update([1, None]),
        delete([1, None]),
        update([3, UNCHANGED], key=[2, None]),
        update([3, "x"], old=[3, "y"]),
        update([4, UNCHANGED], old=[3, "large"]),
        delete([4, "large"], b"O"),
    ]
    assert read(messages) == [
        ("upsert", False, "1", "a"),
        ("upsert", False, "1", None),
        ("delete", False, "1", None),
        ("delete", False, "2", None),
        ("upsert", True, "3", UNCHANGED),
        ("upsert", False, "3", "x"),
        ("delete", False, "3", "large"),
        ("upsert", True, "4", "large"),
        ("delete", False, "4", "large"),
    ]


def test_an_unchanged_large_key_is_that_of_the_old_row() -> None:
    messages = [
        update([UNCHANGED, "x", UNCHANGED], key=["large", None, None]),
        update(["other", UNCHANGED, "a"], key=["large", None, None]),
        update([UNCHANGED, "y", "b"], old=["other", "x", "a"]),
    ]
    assert read(messages, 3) == [
        ("upsert", False, "large", "x", UNCHANGED),
        ("delete", False, "large", None, None),
        ("upsert", True, "other", UNCHANGED, "a"),
        ("upsert", False, "other", "y", "b"),
    ]
    moved = [update([UNCHANGED, "2", UNCHANGED], key=["large", "1", None])]
    assert read(moved, 3, [0, 1]) == [("delete", False, "large", "1", None), ("upsert", True, "large", "2", UNCHANGED)]


CELLS = st.one_of(st.none(), st.just(UNCHANGED), st.text(max_size=5), st.text(min_size=300, max_size=400))


@given(st.lists(st.tuples(st.integers(0, 9), CELLS, CELLS), max_size=20))
def test_any_cells_come_as_they_are(rows: list[tuple[object, ...]]) -> None:
    changes = read([update(list(row)) for row in rows], 3)
    assert changes == [("upsert", False, str(row[0]), *row[1:]) for row in rows]


def test_a_row_with_other_columns_is_an_error() -> None:
    with pytest.raises(InternalError, match="3 columns, not 2"):
        read([insert([1, 2]), insert([1, 2, 3])])


def test_other_messages() -> None:
    assert Begin.read(b"B" + struct.pack(">qqi", 5, 0, 1)).commit_lsn == 5
    commit = Commit.read(b"C" + struct.pack(">bqqq", 0, 5, 6, 86_400_000_000))
    assert (commit.end_lsn, commit.time) == (6, datetime(2000, 1, 2, tzinfo=UTC))
    columns = b"\x01id\0" + struct.pack(">ii", 23, -1) + b"\x00n\0" + struct.pack(">ii", 1700, 655366)
    relation = Relation.read(b"R" + struct.pack(">i", 7) + b"public\0t\0d" + struct.pack(">h", 2) + columns)
    assert (relation.oid, relation.schema, relation.name, relation.identity) == (7, "public", "t", "d")
    assert [(each.name, each.is_key, each.oid) for each in relation.columns] == [("id", True, 23), ("n", False, 1700)]
    assert truncated(b"T" + struct.pack(">ibii", 2, 0, 7, 8)) == [7, 8]


@given(st.integers(0, (1 << 63) - 1))
def test_positions_are_read_as_they_are_written(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn


def quoted(item: str | None) -> str:
    """Return an item of an array as PostgreSQL writes it."""
    if item is None:
        return "NULL"
    escaped = item.replace("\\", "\\\\").replace('"', '\\"')
    is_plain = item != "" and item.upper() != "NULL" and not set(item) & set('{}",\\ \t\n\r\v\f')
    return item if is_plain else f'"{escaped}"'


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=4), max_size=4), max_size=6))
def test_arrays_come_as_they_are(lists: list[list[str | None] | None]) -> None:
    text = [None if each is None else "{" + ",".join(map(quoted, each)) + "}" for each in lists]
    items, offsets, nulls = lists_of_text(pa.array(text, pa.string()))
    assert pa.ListArray.from_arrays(offsets, items, mask=nulls).to_pylist() == lists


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "[2:3]={1,2}"])
def test_arrays_that_are_no_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list"):
        lists_of_text(pa.array([text]))


def test_types_and_which_of_them_grow() -> None:
    def numeric(precision: int, scale: int) -> int:
        return ((precision << 16) | scale) + 4

    assert word_of(1700, numeric(10, 2)) == "decimal(10,2)"
    assert word_of(1700, -1) is None and word_of(1700, numeric(39, 2)) is None and word_of(600, -1) is None
    assert word_of(1231, numeric(5, 1)) == "list<decimal(5,1)>"
    grown = [((21, -1), (20, -1)), ((1043, 9), (25, -1)), ((1700, numeric(5, 2)), (1700, numeric(9, 2)))]
    other = [
        ((20, -1), (23, -1)),
        ((1114, -1), (1184, -1)),
        ((1114, -1), (1114, 3)),
        ((1700, numeric(5, 2)), (1700, numeric(9, 3))),
        ((114, -1), (3802, -1)),
        ((1042, 8), (1042, 12)),
    ]
    assert all(grows(*pair) for pair in grown) and not any(grows(*pair) for pair in other)
    assert np.all([grows(kind, kind) for pair in other for kind in pair])
