"""Reading a delta file by its pages' zone maps gives what reading all of it does, whatever the rows are like."""

from collections.abc import Callable

import numpy as np
import pytest

from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.stream import StreamReader
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.delta.file import ColumnEncoding, DeltaFile
from nyala.engine.delta.pages import DeltaPages
from nyala.engine.delta.patch import Patch
from nyala.engine.delta.run import DeltaRun
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector
from nyala.schemas.errors import CorruptionError
from tests.dose import by_night
from tests.engine.delta.model import Change, redo_of, seen, undo_of
from tests.engine.delta.written import write_delta_file

COLUMN = 4
ALL = 1 << 60


def pages_of(rowids: np.ndarray, timestamps: np.ndarray, kind: str, cache: PageCache | None = None) -> DeltaPages:
    fs = MemoryFileSystem()
    fs.make_directory("d")
    run = DeltaRun(rowids.astype(np.int32), timestamps.astype(np.int64), FixedVector(np.arange(len(rowids))))
    how = {COLUMN: ColumnEncoding(PhysicalType.INT64, "bitshuffle", "none")}
    write_delta_file(fs, f"d/1.{kind}", 1, kind, 9, {COLUMN: run}, how)
    cache = PageCache() if cache is None else cache
    pages = DeltaFile.open(fs, f"d/1.{kind}", 1, kind, 9, cache).pages(COLUMN)
    assert pages is not None
    return pages


def reader(pages: DeltaPages, kind: str) -> Callable[..., list[Patch]]:
    return pages.redo if kind == "redo" else pages.undo


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The pages that are looked into from now on: the role of their stream, and their number."""
    read: list[tuple[str, int]] = []
    page = StreamReader.page

    def counted(stream: StreamReader, number: int, is_taken_whole: bool = False) -> object:
        read.append((stream.key.role, number))
        return page(stream, number, is_taken_whole)

    monkeypatch.setattr(StreamReader, "page", counted)
    return read


@pytest.mark.parametrize("kind", ["redo", "undo"])
@pytest.mark.parametrize("cache_bytes", [0, 64 << 20])
@pytest.mark.parametrize("seed", by_night(range(6), range(2)))
def test_every_snapshot_and_range_of_rows(seed: int, cache_bytes: int, kind: str) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.integers(1, 6))
    sizes = random.choice([1, 3, PAGE_ROWS // 2, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS], rows)
    rowids = np.repeat(np.sort(random.choice(50, rows, replace=False)), sizes)
    steps = random.integers(1, 4, len(rowids))
    timestamps = np.concatenate([10 + np.cumsum(part) for part in np.split(steps, np.cumsum(sizes)[:-1])])
    pages = pages_of(rowids, timestamps, kind, PageCache(cache_bytes))
    changes: list[Change] = list(zip(rowids.tolist(), timestamps.tolist(), range(len(rowids)), strict=True))
    model = redo_of if kind == "redo" else undo_of
    for snapshot in [0, 10, int(timestamps.max()), ALL, *random.choice(timestamps, 4).tolist()]:
        expected = model(changes, snapshot)
        first, last = sorted(random.integers(0, 51, 2).tolist())
        for low, high in ((0, 50), (first, last)):
            inside = {row: cell for row, cell in expected.items() if low <= row < high}
            for is_scan in (False, True):
                assert seen(reader(pages, kind)(low, high, snapshot, is_scan), low, high) == inside


def test_a_hot_row_costs_the_pages_that_a_snapshot_needs(touched: list[tuple[str, int]]) -> None:
    count = 6 * PAGE_ROWS
    redo = pages_of(np.full(count, 7), np.arange(count) + 1, "redo", PageCache(0))
    assert seen(redo.redo(0, 100, ALL), 0, 100) == {7: count - 1}
    assert sorted(set(touched)) == [("rowid", 5), ("value", 5)]
    touched.clear()
    assert seen(redo.redo(0, 100, PAGE_ROWS * 2 + 5), 0, 100) == {7: PAGE_ROWS * 2 + 4}
    assert sorted(set(touched)) == [("rowid", 2), ("timestamp", 2), ("value", 2)]
    touched.clear()
    undo = pages_of(np.full(count, 7), np.arange(count) + 1, "undo", PageCache(0))
    assert seen(undo.undo(0, 100, 0), 0, 100) == {7: 0}
    assert {number for _, number in touched} == {0}
    touched.clear()
    assert seen(undo.undo(0, 100, PAGE_ROWS * 2 + 5), 0, 100) == {7: PAGE_ROWS * 2 + 5}
    assert {number for _, number in touched} == {2}


@pytest.mark.parametrize("kind", ["redo", "undo"])
def test_a_page_that_a_snapshot_does_not_need_is_not_opened(kind: str, touched: list[tuple[str, int]]) -> None:
    """Each of five pages holds the changes of another time, later ones in higher rows."""
    count = 5 * PAGE_ROWS
    pages = pages_of(np.arange(count), np.arange(count) // PAGE_ROWS + 1, kind)
    for snapshot, needed in ((0, 0), (1, 1), (4, 4), (5, 5)):
        touched.clear()
        found = seen(reader(pages, kind)(0, count, snapshot), 0, count)
        is_seen = np.arange(count) // PAGE_ROWS < snapshot
        assert sorted(found) == np.flatnonzero(is_seen if kind == "redo" else ~is_seen).tolist()
        opened = {number for _, number in touched}
        assert opened <= (set(range(needed)) if kind == "redo" else set(range(needed, 5)))
    touched.clear()
    reader(pages, kind)(0, count, 3)
    assert not touched, "the pages are kept"


def test_a_page_is_decoded_once_for_all_chunks(touched: list[tuple[str, int]]) -> None:
    pages = pages_of(np.arange(PAGE_ROWS), np.ones(PAGE_ROWS), "redo")
    for first in range(0, PAGE_ROWS, 1024):
        assert len(seen(pages.redo(first, first + 1024, ALL), first, first + 1024)) == 1024
    assert sorted(touched) == [("rowid", 0), ("value", 0)], "and no timestamp when all are visible"


def test_rows_that_fall_are_no_deltas() -> None:
    pages = pages_of(np.array([3, 9, 4]), np.array([1, 1, 1]), "redo")
    with pytest.raises(CorruptionError, match="not in row order"):
        pages.redo(0, 100, ALL)
