"""Delta files give back their runs, by any range of rows, over several pages, and nothing of other columns."""

import numpy as np
import pytest

from nyala.engine.cfile.cache import PageCache
from nyala.engine.delta import LIVE
from nyala.engine.delta.file import ColumnEncoding, DeltaFile
from nyala.engine.delta.run import DeltaRun
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector
from nyala.schemas.errors import CorruptionError
from tests.engine.delta.written import write_delta_file

ENCODINGS = {
    LIVE: ColumnEncoding(PhysicalType.BOOL, "run_length", "none"),
    3: ColumnEncoding(PhysicalType.INT64, "bitshuffle", "lz4"),
    4: ColumnEncoding(PhysicalType.BYTES, "dictionary", "none"),
}


def run_of(rowids: np.ndarray, first_timestamp: int = 100) -> DeltaRun:
    timestamps = first_timestamp + np.arange(len(rowids), dtype=np.int64)
    return DeltaRun(rowids.astype(np.int32), timestamps, FixedVector(rowids.astype(np.int64) * 10))


def written(runs: dict[int, DeltaRun]) -> DeltaFile:
    fs = MemoryFileSystem()
    write_delta_file(fs, "7.redo", 7, "redo", 5, runs, ENCODINGS)
    return DeltaFile.open(fs, "7.redo", 7, "redo", 5, PageCache())


def test_every_range_of_rows_over_several_pages() -> None:
    rowids = np.sort(np.random.default_rng(1).integers(0, 60_000, 150_000))
    file = written({3: run_of(rowids)})
    edges = [0, 1, int(rowids[65_535]), int(rowids[65_536]), int(rowids[131_072]), 59_999, 60_000, 99_999]
    for first in edges:
        for last in [edge for edge in edges if edge >= first] + [first + 1]:
            low, high = np.searchsorted(rowids, (first, last))
            found = file.run(3, first, last)
            if low == high:
                assert found is None
                continue
            assert found is not None and isinstance(found.values, FixedVector)
            assert np.array_equal(found.rowids, rowids[low:high])
            assert np.array_equal(found.timestamps, 100 + np.arange(low, high))
            assert np.array_equal(found.values.values, rowids[low:high] * 10)


def test_columns_of_any_type_stand_side_by_side() -> None:
    valid = np.array([True, False, True])
    texts = BytesVector(np.array([0, 1, 1, 3], np.int32), np.frombuffer(b"abb", np.uint8), valid)
    file = written(
        {
            3: run_of(np.array([4])),
            LIVE: DeltaRun(np.array([4, 9], np.int32), np.array([1, 2]), FixedVector(np.array([0, 1], np.uint8))),
            4: DeltaRun(np.array([1, 4, 4], np.int32), np.array([7, 5, 6]), texts),
        }
    )
    assert sorted(file.column_ids) == [LIVE, 3, 4]
    assert (file.metadata.first_timestamp, file.metadata.last_timestamp) == (1, 100)
    assert file.metadata.rowset_id == 5
    found = file.run(4, 0, 10)
    assert found is not None and found.rowids.tolist() == [1, 4, 4]
    assert found.values.valid is not None and np.array_equal(found.values.valid, valid)
    assert file.run(99, 0, 10) is None


def test_a_file_under_another_number_is_refused() -> None:
    fs = MemoryFileSystem()
    write_delta_file(fs, "7.redo", 7, "redo", 5, {3: run_of(np.array([1]))}, ENCODINGS)
    with pytest.raises(CorruptionError, match=r"7\.redo"):
        DeltaFile.open(fs, "7.redo", 8, "redo", 5, PageCache())
    with pytest.raises(CorruptionError, match="kind redo, not undo"):
        DeltaFile.open(fs, "7.redo", 7, "undo", 5, PageCache())
    with pytest.raises(CorruptionError, match="deltas of rowset 5, not 6"):
        DeltaFile.open(fs, "7.redo", 7, "redo", 6, PageCache())
