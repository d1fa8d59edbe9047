"""Staged parts in a bucket: a byte that changes on its way loses no part, and each holder has numbers of its own."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.bucket.memory import MemoryBucket
from nyala.engine.commit.room import Room
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.files import REIGN_BITS
from nyala.engine.options import StoreOptions
from nyala.engine.transaction.staging.area import StagingArea
from nyala.engine.transaction.staging.file import PartInfo, PartWriter, read_info, read_rows
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import Stage
from tests.doubles.clock import ManualClock
from tests.doubles.watched_bucket import WatchedBucket

INFO = PartInfo(transaction="load", part="1", table_id=7, staged_at=1_700_000_000_000_000)
ROWS = pa.record_batch({"k": pa.array(range(100), pa.int64())})
PATH = "staging/1.stage"


def test_a_part_that_is_damaged_on_its_way_is_fetched_again() -> None:
    bucket = WatchedBucket(MemoryBucket())
    writer = PartWriter(BucketFileSystem(bucket, "", MemoryFileSystem(), 1 << 30, "s"), PATH, INFO)
    writer.add(Operation.UPSERT, ROWS)
    writer.finish()
    writer.close()
    for sound in range(4):
        for read, expected in ((read_info, (INFO, 100)), (_rows, [(Operation.UPSERT, ROWS)])):
            fs = BucketFileSystem(bucket, "", MemoryFileSystem(), 1 << 30, "s")
            bucket.flipped, bucket.sound_gets = 5, sound
            assert read(fs, PATH) == expected
            # Both fetch the head in two requests; then one fetches the end, the other a block in two.
            assert (bucket.flipped is None) == (sound < (3 if read is read_info else 5))


def _rows(fs: BucketFileSystem, path: str) -> list[tuple[Operation, pa.RecordBatch]]:
    return list(read_rows(fs, path))


def test_a_holder_that_opens_late_takes_no_numbers_of_the_next_one() -> None:
    """It lists what the next holder has staged meanwhile; two files of one name would be one object."""
    fs = MemoryFileSystem()
    nexts = _area(fs, 3)
    first = _staged(nexts, "a")
    late = _staged(_area(fs, 2), "b")
    second = _staged(nexts, "c")
    assert [number >> REIGN_BITS for number in (first, late, second)] == [3, 2, 3]
    assert len({first, late, second}) == 3
    again = _staged(_area(fs, 3), "d")
    assert again == second + 1


def test_a_part_of_a_later_reign_replaces_that_of_an_earlier_one_however_their_names_sort() -> None:
    fs = MemoryFileSystem()
    first = _staged(_area(fs, 9), "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fs, "unlink", lambda path: None)  # the process dies before it removes the first
        second = _staged(_area(fs, 10), "a")
    assert sorted(fs.list("staging")) == [f"{second}.stage", f"{first}.stage"]
    assert [part.number for part in _area(fs, 11).parts("a")] == [second]


def test_a_time_of_day_that_jumps_throws_nothing_away() -> None:
    fs, clock, second = MemoryFileSystem(), ManualClock(INFO.staged_at), 1_000_000
    area = StagingArea(fs, clock, 60, Room(fs, StoreOptions()))
    _staged(area, "first")
    clock.jump(3_600 * second)
    clock.advance(50 * second)
    assert not area.is_due() and area.expire() == []
    _staged(area, "second")
    clock.jump(-7_200 * second)
    clock.advance(11 * second)
    assert area.is_due() and area.expire() == ["first"] and len(fs.list("staging")) == 1


def _area(fs: MemoryFileSystem, reign: int) -> StagingArea:
    return StagingArea(fs, ManualClock(INFO.staged_at), 60, Room(fs, StoreOptions()), reign << REIGN_BITS)


def _staged(area: StagingArea, transaction: str) -> int:
    part = area.write(Stage(transaction=transaction, part="1"), 7, [(Operation.UPSERT, ROWS)])
    return int(part.path.removeprefix("staging/").removesuffix(".stage"))
