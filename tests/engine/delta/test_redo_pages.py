"""Reading a REDO file by its pages' zone maps gives what reading all of it does, whatever the rows are like."""

import numpy as np
import pytest

from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.stream import StreamReader
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.delta.file import ColumnEncoding, DeltaFile, write_delta_file
from nyala.engine.delta.run import DeltaRun, Patch, redo_patch
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

COLUMN = 4


def file_of(rowids: np.ndarray, timestamps: np.ndarray) -> DeltaFile:
    fs = MemoryFileSystem()
    fs.make_directory("d")
    run = DeltaRun(rowids.astype(np.int32), timestamps.astype(np.int64), FixedVector(np.arange(len(rowids))))
    how = {COLUMN: ColumnEncoding(PhysicalType.INT64, "bitshuffle", "none")}
    write_delta_file(fs, "d/1.redo", 1, "redo", 9, {COLUMN: run}, how)
    return DeltaFile.open(fs, "d/1.redo", 1, "redo", 9, PageCache())


def pairs(patch: Patch | None) -> list[tuple[int, int]]:
    if patch is None:
        return []
    assert isinstance(patch.values, FixedVector)
    return list(zip(patch.rowids.tolist(), patch.values.values.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_every_snapshot_and_range_of_rows(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.integers(1, 6))
    sizes = random.choice([1, 3, PAGE_ROWS // 2, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS], rows)
    rowids = np.repeat(np.sort(random.choice(50, rows, replace=False)), sizes)
    steps = random.integers(1, 4, len(rowids))
    timestamps = np.concatenate([10 + np.cumsum(part) for part in np.split(steps, np.cumsum(sizes)[:-1])])
    file = file_of(rowids, timestamps)
    snapshots = [0, 10, int(timestamps.max()), 1 << 60, *random.choice(timestamps, 12).tolist()]
    for snapshot in snapshots:
        first, last = sorted(random.integers(0, 51, 2).tolist())
        for low, high in ((0, 50), (first, last)):
            run = file.run(COLUMN, low, high)
            expected = pairs(redo_patch(run, snapshot)) if run else []
            assert pairs(file.redo(COLUMN, low, high, snapshot)) == expected


def test_a_hot_row_costs_the_pages_that_a_snapshot_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 6 * PAGE_ROWS
    file = file_of(np.full(count, 7), np.arange(count) + 1)
    read: list[tuple[str, int]] = []
    page = StreamReader.page

    def counted(stream: StreamReader, number: int) -> object:
        read.append((stream.key.role, number))
        return page(stream, number)

    monkeypatch.setattr(StreamReader, "page", counted)
    assert pairs(file.redo(COLUMN, 0, 100, 1 << 60)) == [(7, count - 1)]
    assert sorted(set(read)) == [("rowid", 5), ("value", 5)]
    read.clear()
    assert pairs(file.redo(COLUMN, 0, 100, PAGE_ROWS * 2 + 5)) == [(7, PAGE_ROWS * 2 + 4)]
    assert sorted(set(read)) == [("rowid", 2), ("timestamp", 2), ("value", 2)]
