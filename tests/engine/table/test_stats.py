"""Statistics follow what is on disk and in memory."""

import pytest

from tests.engine.subject import Subject


def test_an_empty_table() -> None:
    subject = Subject()
    stats = subject.store.table_stats("t")
    (tablet,) = stats.tablets
    assert (stats.live_rows, stats.bytes_on_disk, tablet.rowsets, tablet.average_rowset_height) == (0, 0, 0, 0.0)
    assert [column.name for column in stats.columns] == ["k", "v", "s"]
    assert all(column.encodings and not column.bytes_on_disk for column in stats.columns)
    subject.close()


def test_rows_files_and_memory_are_counted() -> None:
    subject = Subject()
    subject.upsert(1, 2, 3, 4)
    in_memory = subject.store.table_stats("t")
    subject.flush()
    subject.delete(1)
    subject.upsert(2, 5, v=3)
    stats = subject.store.table_stats("t")
    (tablet,) = stats.tablets
    assert stats.live_rows == tablet.live_rows == 4
    assert in_memory.tablets[0].memory_bytes > 0 and in_memory.bytes_on_disk == 0
    names = subject.fs.list("tablets/2")
    assert stats.bytes_on_disk == sum(subject.fs.size(f"tablets/2/{name}") for name in names)
    subject.flush_deltas()
    after = subject.store.table_stats("t")
    assert after.tablets[0].delta_files == tablet.delta_files + 1
    assert after.bytes_on_disk > stats.bytes_on_disk
    assert 0 < sum(column.bytes_on_disk for column in after.columns) < after.bytes_on_disk
    subject.close()


@pytest.mark.parametrize(
    ("parts", "height"),
    [
        ([range(10)], 1.0),
        ([range(10), range(10, 20)], 1.0),
        ([range(0, 20, 2), range(1, 21, 2)], 2.0),
        ([range(0, 60, 2), range(5, 6), range(100, 109)], (30 * 2 + 1 * 2 + 9 * 1) / 40),
    ],
    ids=["one", "apart", "interleaved", "weighted by rows"],
)
def test_the_height_is_how_many_rowsets_a_key_may_be_in(parts: list[range], height: float) -> None:
    subject = Subject()
    for keys in parts:
        subject.upsert(*keys)
        subject.flush()
    assert subject.store.table_stats("t").tablets[0].average_rowset_height == pytest.approx(height)
    subject.store.close()
