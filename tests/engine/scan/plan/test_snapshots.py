"""Which moments may be read while the time of day jumps."""

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.scan import ScanSpec
from tests.doubles.clock import ManualClock
from tests.engine.subject import Subject

HOUR = 3_600_000_000


def test_moments_that_the_store_gave_are_read_after_the_clock_was_set_back() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(MemoryFileSystem(), clock)
    subject.upsert(1, 2)
    clock.advance(HOUR)
    subject.upsert(2, v=1)
    clock.advance(-HOUR)
    subject.upsert(3)
    subject.check()
    (_, _), *_, (since, _), (until, _) = subject.history
    feed = ScanSpec(table="t", changes=ChangeSpec(since=since, until=until))
    assert subject.store.scan(feed).to_reader().read_all().num_rows == 1
    subject.clock = ManualClock(1_700_000_000_000_000)
    subject.restart()
    subject.check()
    with pytest.raises(InvalidArgumentError, match="is in the future"):
        subject.scan(as_of=subject.store.now() + (HOUR << 12))
    subject.close()
